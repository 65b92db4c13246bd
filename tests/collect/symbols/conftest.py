"""Fixtures of the symboliser's tests."""

from symbol_programs import compile_c

__all__ = ["compile_c"]

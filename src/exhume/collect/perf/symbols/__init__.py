"""Addresses become names: kernel from kallsyms, programs from their ELF tables, JIT code from perf maps."""

from exhume.collect.perf.symbols.frame import Frame
from exhume.collect.perf.symbols.space import AddressSpace
from exhume.collect.perf.symbols.symbolizer import Symbolizer

__all__ = ["AddressSpace", "Frame", "Symbolizer"]

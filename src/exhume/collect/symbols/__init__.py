"""Addresses -> function names: kallsyms, ELF tables, Go tables, perf maps."""

"""Parsers of kernel text interfaces, one module per file format, named after it."""

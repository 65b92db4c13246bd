"""Segments -> rows: the readers' end of the store."""

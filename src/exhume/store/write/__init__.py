"""Rows -> segments: the recorder's end of the store."""

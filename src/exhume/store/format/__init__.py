"""The layout of a recording on disk."""

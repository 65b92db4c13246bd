"""Rows <-> Parquet. The only place that knows files; the disk format is told in docs/FORMAT.md."""

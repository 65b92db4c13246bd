"""Rows <-> Parquet. The only place that knows files; docs/FORMAT.md describes the format."""

import os

# Arrow reads this when it is loaded, so it has to be said before anything here imports it. Its own allocator keeps
# 14 MB for good after the first segment is sealed; the system's gives them back, and is no slower for one thread.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

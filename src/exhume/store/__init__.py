"""The store: rows to Parquet and back. The only package that accesses recording files; see docs/FORMAT.md."""

import os

# Arrow reads this variable when it is loaded, so it must be set before anything here imports Arrow. Arrow's own
# allocator retains 14 MB after the first segment is sealed; the system's returns them and is as fast for one thread.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")

"""exhume: a flight recorder and root-cause finder for hidden CPU starvation on Linux nodes.

As a library: `exhume.open(path)` opens a recording, `exhume.sql(path, query)` asks it with SQL; see docs/library.md.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exhume.library import ProfileFilter, Recording, open, sql

__all__ = ["ProfileFilter", "Recording", "__version__", "open", "sql"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """What the library offers, loaded when it is used: every command imports this package, and few need Arrow."""
    if name not in __all__:
        raise AttributeError(f"module 'exhume' has no attribute {name!r}")
    return getattr(importlib.import_module("exhume.library"), name)

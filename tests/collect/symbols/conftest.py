"""Fixtures of the symboliser's tests."""

from functools import partial

import pytest
from symbol_programs import compile_c

from exhume.collect.perf.symbols import files, jit, symbolizer
from exhume.collect.perf.symbols.file_worker import FileWorker

__all__ = ["compile_c"]


@pytest.fixture(autouse=True)
def long_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filesystems answer here, but on a machine that is busy otherwise not always in a second."""
    for module in (files, jit, symbolizer):
        monkeypatch.setattr(module, "FileWorker", partial(FileWorker, 60.0))

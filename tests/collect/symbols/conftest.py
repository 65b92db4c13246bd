"""Fixtures of the symboliser's tests."""

from functools import partial

import pytest
from tests.collect.symbols.symbol_programs import compile_c

from exhume.collect.symbols import files, symbolizer
from exhume.collect.symbols import perf_map as jit
from exhume.collect.symbols.file_worker import FileWorker

__all__ = ["compile_c"]


@pytest.fixture(autouse=True)
def long_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filesystems answer here, but on a machine that is busy otherwise not always in a second."""
    for module in (files, jit, symbolizer):
        monkeypatch.setattr(module, "FileWorker", partial(FileWorker, 60.0))

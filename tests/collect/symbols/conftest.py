"""Fixtures of the symboliser's tests."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.collect.symbols.symbol_programs import compile_c

from exhume.collect.symbols import files, symbolizer
from exhume.collect.symbols import perf_map as jit
from exhume.collect.symbols.owners import RefusalLog
from exhume.collect.symbols.parse_queue import ParseQueue

__all__ = ["compile_c"]


@pytest.fixture(autouse=True)
def patient_queues(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Filesystems answer here, but on a machine that is busy otherwise not always in a second. Parsers end with their
    test."""
    made: list[ParseQueue] = []

    def make(refusals: RefusalLog | None = None, **options: Any) -> ParseQueue:
        made.append(ParseQueue(refusals, **{"deadline_s": 60.0, **options}))
        return made[-1]

    monkeypatch.setattr(files, "_ASK_EVERY_S", 0.0)
    for module in (files, jit, symbolizer):
        monkeypatch.setattr(module, "ParseQueue", make)
    yield
    for queue in made:
        queue.close()

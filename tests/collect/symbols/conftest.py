"""Fixtures of the symboliser's tests."""

from functools import partial

import pytest
from symbol_programs import compile_c

from exhume.collect.perf.symbols import files
from exhume.collect.perf.symbols.patience import Patience

__all__ = ["compile_c"]


@pytest.fixture(autouse=True)
def much_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A filesystem without a device answers here, but on a machine that is busy otherwise not always in a second."""
    monkeypatch.setattr(files, "Patience", partial(Patience, 60.0))

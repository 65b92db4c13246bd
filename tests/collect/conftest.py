"""What the tests of the sources share."""

import itertools
import time
from pathlib import Path

import pytest
from tests.collect.fake_node import FakeNode

_MICROSECOND = 1_000


@pytest.fixture
def steady_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is timed costs a microsecond of CPU. Sources read what turned out to be dear less often and a part at a
    time, and on a machine that is busy otherwise anything may turn out to be dear."""
    clock = itertools.count(0, _MICROSECOND)
    monkeypatch.setattr(time, "thread_time_ns", lambda: next(clock))


@pytest.fixture
def node(tmp_path: Path, steady_costs: None) -> FakeNode:
    return FakeNode(tmp_path / "node")

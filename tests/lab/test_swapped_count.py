"""How the zombie maker detects that a page is in swap, while the kernel gives back what it charged ahead."""

import os
from pathlib import Path

import pytest

from exhume.lab.programs import zombie_maker

PAGE = os.sysconf("SC_PAGE_SIZE")
AHEAD = 63 * PAGE


def test_what_is_given_back_between_two_reads_is_no_swap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The page is in memory, and the kernel takes its charge ahead back after the first of the two reads."""
    counters = {"memory.usage_in_bytes": PAGE + AHEAD, "memory.memsw.usage_in_bytes": PAGE + AHEAD}

    def read(path: str) -> int:
        value = counters[Path(path).name]
        counters.update(dict.fromkeys(counters, PAGE))
        return value

    monkeypatch.setattr(zombie_maker, "number_in", read)
    assert zombie_maker.swapped(str(tmp_path)) < PAGE


@pytest.mark.parametrize("swapped", [0, PAGE])
def test_pages_in_swap_are_those_that_memory_does_not_have(tmp_path: Path, swapped: int) -> None:
    (tmp_path / "memory.usage_in_bytes").write_text(str(AHEAD))
    (tmp_path / "memory.memsw.usage_in_bytes").write_text(str(AHEAD + swapped))
    assert zombie_maker.swapped(str(tmp_path)) == swapped


def test_slow_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes ten seconds for each page of many is waited for; one that takes nothing is not."""
    now = 0.0
    left = dict.fromkeys("abcdefgh", 0)

    def sleep(_: float) -> None:
        nonlocal now
        now += 10
        next_one = next((name for name in left if not left[name]), None)
        if next_one and working:
            left[next_one] = PAGE

    monkeypatch.setattr(zombie_maker.time, "monotonic", lambda: now)
    monkeypatch.setattr(zombie_maker.time, "sleep", sleep)
    monkeypatch.setattr(zombie_maker, "reclaim_all", lambda path, data: None)
    monkeypatch.setattr(zombie_maker, "swapped", lambda cgroup: left[cgroup])
    working = True
    zombie_maker.swap_out(list(left), "memory.force_empty", b"0")
    assert all(left.values()) and now > zombie_maker.SECONDS_TO_SWAP
    left.update(dict.fromkeys(left, 0))
    working, began = False, now
    with pytest.raises(OSError, match="not swapped out"):
        zombie_maker.swap_out(list(left), "memory.force_empty", b"0")
    assert now - began <= zombie_maker.SECONDS_TO_SWAP + 20

"""What recording costs, beside perf in the same minute under the same load."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench.load import load
from bench.processes import start_exhume, start_perf, watch
from side_by_side import recorder, stop

from exhume.store.query import Recording

RATE_HZ = 97
# A whole minute, as the claim says: perf's cost grows with the run, and exhume pays much of its own at the start.
SECONDS = 60
LARGEST_RATIO = 1.0
LARGEST_RSS = 150_000_000


def compile_once(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """perf was compiled when it was built; exhume is when it first runs, if Python may keep what it compiled."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(work / "compiled"))
    with recorder(work / "first"):
        pass


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took: CPU seconds of both, and the most memory that exhume held."""

    ours: float
    theirs: float
    largest_rss: int


def cost_of_both(work: Path) -> Cost:
    directory = work / "recording"
    with ExitStack() as loaded:
        loaded.enter_context(load())
        time.sleep(1)
        exhume = start_exhume(directory, RATE_HZ)
        perf = start_perf(work / "perf.data", RATE_HZ)
        try:
            time.sleep(0.5)
            watch(SECONDS, exhume, perf)
            # Both end without the load: perf, with everything still to read, would take minutes beside it.
            loaded.close()
            ours, theirs = exhume.finish(), perf.finish()
        finally:
            stop(exhume)
            stop(perf)
    assert exhume.process.returncode == 0, exhume.output.read_text()
    recording = Recording.open(directory)
    # It did what it was asked to: neither fewer samples nor fewer seconds.
    assert set(recording.read("self")["rate_hz"].to_pylist()) == {RATE_HZ}
    assert recording.info().recorded_seconds >= SECONDS - 3
    return Cost(ours, theirs, max(exhume.rss))


@pytest.mark.root
@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.needs("perf")
def test_it_takes_no_more_cpu_than_perf_and_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU from start to exit as the kernel counts it, of both: imports and symbol tables of the one, the last pass over
    its data of the other."""
    compile_once(tmp_path, monkeypatch)
    cost = cost_of_both(tmp_path)
    print(cost)
    assert cost.ours <= LARGEST_RATIO * cost.theirs
    assert cost.largest_rss <= LARGEST_RSS

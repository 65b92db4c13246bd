"""Recording costs the same with twenty thousand zombies on the machine as without."""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from exhume.lab.zombies import make_zombies
from exhume.store.query import Recording

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.timeout(600)]
PROGRAM = (sys.executable, "-m", "exhume.cli.main")
COUNT = 20_000
# Longer than the time between two counts of cgroups, so that each run has at least one.
SECONDS = 11.0
# Beyond what runs without zombies differ by among themselves.
ALLOWED = 0.05
# Without, with, without, with, without: what changes on the machine meanwhile falls on both.
RUNS = (0, COUNT, 0, COUNT, 0)


@contextmanager
def recorder(directory: Path) -> Iterator[int]:
    """A recorder that ticks."""
    process = subprocess.Popen(
        [*PROGRAM, "record", "--dir", str(directory)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 30
        while not (directory / "recorder.lock").exists() or not ticks(directory):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        yield process.pid
        process.terminate()
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def ticks(directory: Path) -> int:
    return Recording.open(directory).read("anchors").num_rows


def cpu_seconds(pid: int) -> float:
    """What all threads of a process have used, to the nanosecond."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def cost_of(directory: Path) -> float:
    """CPU seconds of a recorder at work, once it has begun."""
    with recorder(directory) as pid:
        before = cpu_seconds(pid)
        time.sleep(SECONDS)
        return cpu_seconds(pid) - before


def test_zombies_make_recording_no_dearer(tmp_path: Path) -> None:
    costs: dict[int, list[float]] = {0: [], COUNT: []}
    for number, zombies in enumerate(RUNS):
        with ExitStack() as made:
            if zombies:
                assert made.enter_context(make_zombies(zombies, "tmpfs", work=tmp_path / "lab")).made == zombies
            directory = tmp_path / f"recording-{number}"
            costs[zombies].append(cost_of(directory))
            counted = [count for count in Recording.open(directory).read("cgroups")["dying"].to_pylist() if count]
            assert max(counted, default=0) >= zombies, "the recorder saw them"
    without, largest = costs[0], max(costs[0])
    noise = largest - min(without)
    print({zombies: [round(cost, 3) for cost in each] for zombies, each in costs.items()})
    assert statistics.mean(costs[COUNT]) <= largest * (1 + ALLOWED) + noise

"""Thousands of forks a second, and more cgroups than anybody needs: the recorder keeps up, counts what it loses, and
stays within its means."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.on_time import on_time
from tests.parts import missing
from tests.system.faults.recorder_process import (
    PATIENCE_S,
    RecorderProcess,
    clean_words,
    losses,
    monotonic,
    rows,
    seconds,
    until,
)

from exhume.model.clock import NANOS
from exhume.store.read.recording import Recording

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.alone]

Start = Callable[..., RecorderProcess]
Load = Callable[..., subprocess.Popen[str]]

MEMORY_MB = 150
STORM_S = 5
SIGTERM_S = 5.0
# An exec costs several times what a fork does.
FORKS_A_SECOND = {"fork": 5000, "exec": 1500}
# Where the machine has no room for a storm another one is made.
ATTEMPTS = 3


@pytest.mark.needs("gcc", "taskset")
@pytest.mark.parametrize("kind", FORKS_A_SECOND)
def test_a_storm_of_processes(
    tmp_path: Path, start: Start, load: Load, compiled: Callable[[str], Path], kind: str
) -> None:
    a_second = FORKS_A_SECOND[kind]
    for attempt in range(ATTEMPTS):
        directory = tmp_path / f"recording-{attempt}"
        # The storm is preferred to everybody, so that it is one also where others want the cores; and so is the
        # recorder: what it takes for a tick is its own work then.
        with on_time():
            recorder = start(directory)
        recorder.ticks(1)
        storm = load(compiled("fork_storm"), kind, str(a_second * STORM_S), str(STORM_S), nice=-20)
        reported, _ = storm.communicate(timeout=PATIENCE_S)
        forks, took = int(reported.split()[0]), float(reported.split()[1])
        recorder.ticks(1)
        assert recorder.stop() == 0
        clean_words(recorder)
        if forks / took > a_second / 8:
            break
    assert forks / took > a_second / 8, "this machine is too busy for a storm"

    assert sum(row["forks"] or 0 for row in rows(directory, "node", "forks")) >= forks * 0.9
    recording = Recording.open(directory)
    # Every sample that a busy core has made is stored or counted as lost. (Some kernels don't sample idle cores.)
    sampling = recording.read("sampling")
    shares = rows(directory, "cpu", "cpu", "span_ms", "idle", "iowait")
    for core in set(sampling.column("cpu").to_pylist()):
        taken = sum(row["busy"] + row["lost"] for row in sampling.to_pylist() if row["cpu"] == core)
        busy_ms = sum(r["span_ms"] * (1000 - r["idle"] - r["iowait"]) / 1000 for r in shares if r["cpu"] == core)
        assert taken > 0.7 * 97 * busy_ms / 1000 - 40, f"core {core}: {taken} samples in {busy_ms:.0f} ms"
    assert sum(row["lost"] for row in sampling.to_pylist()) == losses(directory).get("lost-samples", 0)
    assert "source-failed" not in losses(directory)

    names = set(recording.read("samples").column("comm").to_pylist())
    assert "fork_storm" in names or "storm-child" in names, "the storm itself was seen"
    cost = recording.self_cost()
    ticks = rows(directory, "self", "tick_us", "rss_kb")
    longest = max(row["tick_us"] for row in ticks)
    print(f"{forks / took:.0f} a second, cost {cost.cpu_percent_mean:.1f}%, longest tick {longest / 1000:.0f} ms")
    assert 0 < cost.cpu_percent_mean < 50, "its own cost is recorded, and is not the storm"
    assert cost.rss_kb_max < MEMORY_MB * 1024
    assert longest < 1_000_000, "no tick took longer than the second it has"


@pytest.mark.needs("gcc", "taskset")
def test_sigterm_in_a_storm_ends_it_within_seconds(
    tmp_path: Path, start: Start, load: Load, compiled: Callable[[str], Path]
) -> None:
    directory = tmp_path / "recording"
    with on_time():
        recorder = start(directory)
    recorder.ticks(1)
    seconds_of_it = 3 * STORM_S
    storm = load(compiled("fork_storm"), "exec", str(FORKS_A_SECOND["exec"] * seconds_of_it), str(seconds_of_it))
    recorder.ticks(2)
    recorder.send(signal.SIGTERM)
    assert recorder.wait(SIGTERM_S) == 0
    assert storm.poll() is None, "it was one until then"
    clean_words(recorder)
    assert all(segment.sealed for segment in Recording.open(directory).segments)


COUNT = 10_000
GROUPS_AT_ONCE = 500


def controller_mount(name: str) -> Path | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        kind = fields[fields.index("-") + 1]
        if kind == "cgroup" and name in fields[-1].split(","):
            return Path(fields[4])
    return None


def remove_tree(parent: Path) -> None:
    """cgroup directories go from the leaves up; their files go by themselves."""
    for directory, below, _ in os.walk(parent, topdown=False):
        for name in below:
            (Path(directory) / name).rmdir()
    parent.rmdir()


@pytest.fixture
def crowd() -> Iterator[Callable[[int], Path]]:
    """Make so many memory cgroups; all of them are gone at the end."""
    mounted = controller_mount("memory")
    if mounted is None:
        missing("the memory controller as cgroup v1")
    parent = mounted / f"exhume-faults-{os.getpid()}"

    def make(count: int) -> Path:
        parent.mkdir()
        for number in range(count - 1):
            if number % GROUPS_AT_ONCE == 0:
                branch = parent / f"branch-{number}"
                branch.mkdir()
            else:
                (branch / f"leaf-{number}").mkdir()
        return parent

    yield make
    with suppress(FileNotFoundError):
        remove_tree(parent)


def test_ten_thousand_cgroups(tmp_path: Path, start: Start, crowd: Callable[[int], Path]) -> None:
    parent = crowd(COUNT)
    mounted = parent.parent
    visible = sum(1 for _ in os.walk(mounted))
    directory = tmp_path / "recording"
    with on_time():
        recorder = start(directory)
    recorder.recording()

    def counts() -> list[dict[str, object]]:
        found = rows(directory, "cgroups", "hierarchy", "parent", "kernel", "visible", "dying")
        return [row for row in found if row["hierarchy"] == "memory" and row["visible"] is not None]

    until("the cgroups are counted", lambda: bool(counts()), every=0.2)
    known = counts()
    assert abs(known[-1]["visible"] - visible) <= 5, "nearly exact, however many others come and go meanwhile"
    assert known[-1]["kernel"] - known[-1]["visible"] == known[-1]["dying"]
    assert known[-1]["kernel"] >= COUNT

    # Made and removed ones are followed.
    for number in range(100):
        (parent / f"more-{number}").mkdir()
    made_at = monotonic()
    until("they are counted again", lambda: counts()[-1]["time"] > made_at, every=0.2)
    assert abs(counts()[-1]["visible"] - visible - 100) <= 5
    # Of the ticks that come after all was looked at for the first time.
    recorder.ticks(3)
    assert recorder.stop() == 0
    clean_words(recorder)
    assert "source-failed" not in losses(directory)
    ticks = rows(directory, "self", "user_us", "system_us", "span_ms", "tick_us")[2:]
    spent = sum(row["user_us"] + row["system_us"] for row in ticks) / 1e6
    share = spent / seconds(sum(row["span_ms"] for row in ticks) * NANOS // 1000)
    longest = max(row["tick_us"] for row in ticks)
    print(f"{share:.1%} of a core, longest tick {longest / 1000:.0f} ms")
    assert share < 0.15
    assert longest < 500_000

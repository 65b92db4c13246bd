"""Where time went, beside perf: the same seconds, the same rate, the same load."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from bench.processes import start
from tests.on_time import on_time
from tests.system.proof.function_names import exhume_functions, perf_functions
from tests.system.proof.perf_script import UNKNOWN, PerfSample, perf_samples
from tests.system.proof.side_by_side import (
    SOURCES,
    await_recorded,
    await_wall,
    compiled,
    next_second,
    preferred,
    recorder,
    stop,
)

from exhume.collect.symbols.symbolizer import Symbolizer
from exhume.model.clock import NANOS, Window
from exhume.procfs.host import Host
from exhume.store.read.profile import StackProfile
from exhume.store.read.recording import Recording

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.alone, pytest.mark.needs("perf", "gcc", "nm")]

SECONDS = 24
TOP = 20
SIGMAS = 4.0
PYTHON = "python3"
PROGRAM = "many_functions"
LOAD = (PROGRAM, PYTHON, "true")


@dataclass
class Counts:
    """Samples of the load: in all, by command, by the function that ran, and by every function that was called."""

    samples: int = 0
    commands: Counter[str] = field(default_factory=Counter)
    leaves: Counter[str] = field(default_factory=Counter)
    inclusive: Counter[str] = field(default_factory=Counter)

    def add(self, functions: list[str], count: int) -> None:
        self.samples += count
        self.leaves[functions[0] if functions else UNKNOWN] += count
        self.inclusive.update(dict.fromkeys(functions, count))


@dataclass(frozen=True)
class Measured:
    perf: Counts
    exhume: Counts
    perf_all: list[PerfSample]
    exhume_all: int


@contextmanager
def load(directory: Path) -> Iterator[None]:
    """C programs with symbols on all but one core, Python on the last: compression, sorting, system calls, and forks.

    They are preferred to whatever else runs, so that the samples are theirs also on a busy machine."""
    program = compiled("many_functions.c", directory)
    python = Path(sys.executable).with_name(PYTHON)
    seconds = str(SECONDS + 10)
    commands = [[str(program), seconds, str(core)] for core in range(max(1, (os.cpu_count() or 1) - 1))]
    commands += [[str(python), str(SOURCES / "compressing.py"), seconds]]
    running = [preferred(words) for words in commands]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Both record the same seconds; perf stamps its samples with the clock that exhume uses."""
    work = tmp_path_factory.mktemp("beside-perf")
    directory, data = work / "recording", work / "perf.data"
    # Without copies of all programs that ran.
    words = ["perf", "record", "-aNg", "-k", "CLOCK_MONOTONIC", "-e", "cpu-clock", "-F", "97", "-o", str(data)]
    with recorder(directory):
        # perf, too, empties its rings in time, whatever else wants the cores.
        with on_time():
            perf = start("perf record", words, work / "perf.log")
        try:
            with load(work):
                begin = next_second(2.0)
                await_wall(begin + SECONDS * NANOS)
                # And the tick after it: what is compared ends with a tick.
                await_recorded(directory, begin + SECONDS * NANOS)
            perf.finish()
        finally:
            stop(perf)
    recording = Recording.open(directory)
    # Whole ticks, wherever they ended: idle samples are only counted, tick by tick.
    ends = [row for row in recording.read("anchors").to_pylist() if row["wall"] > begin - NANOS // 2]
    first, last = ends[0], next(row for row in ends if row["wall"] > begin + (SECONDS - 0.5) * NANOS)
    window = Window(first["wall"], last["wall"])
    samples = [s for s in perf_samples(data) if first["time"] <= s.time_s * NANOS < last["time"]]
    assert recording.facts.event_source == "cpu-clock"
    assert not [loss for loss in recording.losses(window) if loss.source == "stacks"]
    sampling = recording.read("sampling").to_pylist()
    taken = sum(row["busy"] + row["idle"] for row in sampling if first["time"] <= row["time"] < last["time"])
    return Measured(_counts_of_perf(samples), _counts_of_exhume(recording.profile(window)), samples, taken)


def _counts_of_perf(samples: list[PerfSample]) -> Counts:
    counts = Counts()
    for sample in samples:
        counts.commands[sample.comm] += 1
        if sample.comm in LOAD:
            counts.add(perf_functions(sample), 1)
    return counts


def _counts_of_exhume(profile: StackProfile) -> Counts:
    counts = Counts()
    table = profile.frames
    frames = list(zip(table.kinds, table.modules, table.names, strict=True))
    stacks = [[frames[at] for at in reversed(stack.tolist())] for stack in profile.stacks]
    rows = (profile.comm_index.tolist(), profile.stack_index.tolist(), profile.counts.tolist())
    for index, stack, count in zip(*rows, strict=True):
        comm = profile.comms[index]
        counts.commands[comm] += count
        if comm in LOAD:
            counts.add(exhume_functions(stacks[stack]), count)
    return counts


def _compare(ours: Counter[str], theirs: Counter[str], samples: tuple[int, int]) -> None:
    """The top functions of either, each within sampling error.

    Of n samples a function has a, of the other's m it has b. Were both drawn at random from the same run, with
    p = (a + b) / (n + m) the difference a/n - b/m would have the variance

        p (1 - p) (1/n + 1/m) - 2 cov(a/n, b/m)

    The two watch the same seconds, so what one sees more of, the other does too: the covariance is not negative, and
    leaving it out gives an upper bound. Four sigmas are exceeded by chance once in 16,000 comparisons.
    """
    n, m = samples
    top = {name for name, _ in ours.most_common(TOP)} | {name for name, _ in theirs.most_common(TOP)}
    lines, beyond = [], []
    for name in sorted(top, key=lambda name: -theirs[name]):
        a, b = ours[name], theirs[name]
        p = (a + b) / (n + m)
        sigma = sqrt(p * (1 - p) * (1 / n + 1 / m))
        off = (a / n - b / m) / sigma if sigma else 0.0
        lines.append(f"{name:70} exhume {100 * a / n:6.2f}%  perf {100 * b / m:6.2f}%  {off:+5.1f} sigma")
        if abs(off) > SIGMAS:
            beyond.append(lines[-1])
    print("\n".join(lines))
    assert not beyond, "\n".join(beyond)


def test_both_took_as_many_samples_and_the_load_has_most_of_them(measured: Measured) -> None:
    assert measured.exhume_all == pytest.approx(len(measured.perf_all), rel=0.02)
    assert measured.perf.samples > 0.3 * len(measured.perf_all)
    assert len(measured.perf.leaves) > 5 * TOP


def test_functions_that_ran_have_the_shares_that_perf_tells(measured: Measured) -> None:
    ours, theirs = measured.exhume, measured.perf
    _compare(ours.leaves, theirs.leaves, (ours.samples, theirs.samples))


def test_functions_with_all_that_they_called_have_the_shares_that_perf_tells(measured: Measured) -> None:
    ours, theirs = measured.exhume, measured.perf
    _compare(ours.inclusive, theirs.inclusive, (ours.samples, theirs.samples))
    both = {name for name, _ in ours.inclusive.most_common(4 * TOP)} & theirs.inclusive.keys()
    assert {"user_round in many_functions", "system_round in many_functions", "do_syscall_64 in the kernel"} <= both


def test_commands_have_their_whole_names_and_the_shares_that_perf_tells(measured: Measured) -> None:
    ours, theirs = (
        Counter({comm: counts.commands[comm] for comm in LOAD if comm in counts.commands})
        for counts in (measured.exhume, measured.perf)
    )
    assert set(ours) == set(theirs) == set(LOAD)
    _compare(ours, theirs, (measured.exhume_all, len(measured.perf_all)))


def test_the_kernels_functions_are_named_as_perf_names_them(measured: Measured) -> None:
    """Not a matter of chance: every kernel address that perf met, by exhume's table. The padding before a function is
    no function: perf names it when the call before it never returns, exhume looks at the call."""
    named = {
        frame.address: frame.name
        for sample in measured.perf_all
        for frame in sample.frames
        if frame.in_kernel and not frame.name.startswith("__pfx_")
    }
    addresses = sorted(named)
    frames = Symbolizer(Host()).kernel(np.array(addresses, np.uint64))
    assert {a: frame.name for a, frame in zip(addresses, frames, strict=True)} == named
    assert len(named) > 500

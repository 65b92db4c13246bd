"""Slices claim no more than samples and counters support."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.store.read.profile import SampleTable
from exhume.store.read.slices import IDLE, SLICE_STATES, Slices, build_slices
from exhume.store.read.stacks import FrameTable

WALL = 1_780_000_000 * NANOS
WINDOW = Window(WALL, WALL + 2 * NANOS)
PERIOD_US = 10_000
STACKS = ("user", "kernel", "softirq", "unknown")


@dataclass
class Samples:
    """Samples of threads, in milliseconds of the window."""

    rows: list[tuple[int, int, int, int, str, str]] = field(default_factory=list)

    def add(
        self, cpu: int, at: int, pid: int, stack: str = "user", *, comm: str = "app", tid: int | None = None
    ) -> "Samples":
        self.rows.append((at, cpu, pid, tid or pid, comm, stack))
        return self

    def run(self, cpu: int, since: int, until: int, pid: int, stack: str = "user") -> "Samples":
        """A thread that is sampled each period."""
        for at in range(since + 10, until + 1, 10):
            self.add(cpu, at, pid, stack)
        return self

    def table(self) -> SampleTable:
        rows = sorted(self.rows)
        comms = sorted({row[4] for row in rows})

        def column(place: int) -> np.ndarray:
            return np.array([row[place] for row in rows], np.int64)

        return SampleTable(
            walls=WALL + np.array([row[0] for row in rows], np.int64) * MILLIS,
            cpus=column(1),
            pids=column(2),
            tids=column(3),
            comms=comms,
            comm_index=np.array([comms.index(row[4]) for row in rows], np.int64),
            weights_us=np.full(len(rows), PERIOD_US, np.int64),
            stacks=np.arange(len(STACKS)).astype(np.uint64),
            stack_index=np.array([STACKS.index(row[5]) for row in rows], np.int64),
            frames=FrameTable(
                ["user", "kernel", "kernel", ""], ["app", "", "", ""], ["main", "vfs_read", "__do_softirq", "[unknown]"]
            ),
            # main; main vfs_read; main __do_softirq vfs_read; [unknown]
            stack_offsets=np.array([0, 1, 3, 6, 7]),
            stack_frames=np.array([0, 0, 1, 0, 2, 1, 3]),
        )


def counters(*rows: tuple[int, int, int], since_ms: int = 0, span_ms: int = 1000) -> pa.Table:
    """Rows of the cpu table: (core, second, idle permille)."""
    return pa.table(
        {
            "cpu": pa.array([row[0] for row in rows], pa.uint16()),
            "wall": [WALL + row[1] * NANOS + since_ms * MILLIS for row in rows],
            "span_ms": pa.array([span_ms] * len(rows), pa.uint32()),
            "idle": pa.array([row[2] for row in rows], pa.uint16()),
            "iowait": pa.array([0] * len(rows), pa.uint16()),
        }
    )


def shown(of: Slices) -> list[tuple[int, float, float, str, int | None]]:
    """(core, since and until in milliseconds, state, pid)."""
    return [
        (
            of.cpus[of.lines[i]],
            (int(of.since[i]) - WALL) / MILLIS,
            (int(of.until[i]) - WALL) / MILLIS,
            SLICE_STATES[of.states[i]],
            of.threads[of.thread[i]].pid if of.thread[i] >= 0 else None,
        )
        for i in range(len(of))
    ]


def test_a_sample_covers_the_time_that_it_stands_for_and_no_more():
    found = build_slices(Samples().add(3, 500, 7).table(), WINDOW)
    assert shown(found) == [(3, 490.0, 500.0, "user", 7)]
    assert found.frames[found.frame[0]] == "main"


def test_neighbours_of_one_thread_and_state_are_one_slice():
    samples = Samples().run(0, 100, 130, 7).run(0, 130, 150, 7, "kernel").run(0, 150, 160, 8)
    assert shown(build_slices(samples.table(), WINDOW)) == [
        (0, 100.0, 130.0, "user", 7),
        (0, 130.0, 150.0, "system", 7),
        (0, 150.0, 160.0, "user", 8),
    ]


def test_threads_of_one_process_are_not_merged_and_keep_their_names():
    samples = Samples().add(0, 110, 7, comm="main").add(0, 120, 7, comm="io", tid=9)
    found = build_slices(samples.table(), WINDOW)
    assert [(each.pid, each.tid, each.comm) for each in found.threads] == [(7, 7, "main"), (7, 9, "io")]
    assert found.thread.tolist() == [0, 1]


def test_a_late_sample_reaches_back_to_the_one_before():
    samples = Samples().add(0, 110, 7).add(0, 124, 7).add(0, 160, 7)
    assert shown(build_slices(samples.table(), WINDOW)) == [(0, 100.0, 124.0, "user", 7), (0, 150.0, 160.0, "user", 7)]


def test_softirqs_and_stacks_that_were_lost_are_states_of_their_own():
    found = build_slices(Samples().add(0, 110, 7, "softirq").add(0, 120, 7, "unknown").table(), WINDOW)
    assert [row[3] for row in shown(found)] == ["softirq", "unknown"]


def test_the_function_is_that_of_most_samples_in_the_slice():
    samples = Samples().run(0, 100, 120, 7, "kernel").add(0, 130, 7, "kernel")
    table = samples.table()
    found = build_slices(table, WINDOW)
    assert [found.frames[each] for each in found.frame] == ["vfs_read"]
    assert found.samples.tolist() == [3]


def test_idle_is_where_the_counters_agree():
    samples = Samples().run(0, 0, 500, 7)
    found = shown(build_slices(samples.table(), WINDOW, counters((0, 0, 500), (0, 1, 1000))))
    assert found == [(0, 0.0, 500.0, "user", 7), (0, 500.0, 2000.0, "idle", None)]


def test_time_that_counters_call_busy_is_not_idle():
    """Half a second was sampled, and the kernel counted no idle time: what ran in the other half is not known."""
    samples = Samples().run(0, 0, 500, 7)
    found = shown(build_slices(samples.table(), WINDOW, counters((0, 0, 0), (0, 1, 1000))))
    assert found == [(0, 0.0, 500.0, "user", 7), (0, 1000.0, 2000.0, "idle", None)]


def test_a_second_with_lost_samples_is_not_idle():
    lost = pa.table({"cpu": pa.array([1], pa.uint16()), "wall": [WALL + NANOS]})
    rows = counters((0, 0, 1000), (0, 1, 1000), (1, 0, 1000), (1, 1, 1000))
    found = shown(build_slices(Samples().table(), WINDOW, rows, lost))
    assert found == [(0, 0.0, 2000.0, "idle", None), (1, 0.0, 1000.0, "idle", None)]


def test_without_counters_nothing_is_called_idle():
    assert IDLE not in build_slices(Samples().add(0, 500, 7).table(), WINDOW).states
    assert len(build_slices(Samples().table(), WINDOW)) == 0


def test_a_core_that_was_offline_for_a_second_has_no_slice_there():
    found = shown(build_slices(Samples().table(), WINDOW, counters((0, 0, 1000))))
    assert found == [(0, 0.0, 1000.0, "idle", None)]


def test_slices_end_at_the_window():
    samples = Samples().run(2, 0, 1990, 7)
    inside = Window(WALL + 333 * MILLIS, WALL + 666 * MILLIS)
    assert shown(build_slices(samples.table(), inside)) == [(2, 333.0, 666.0, "user", 7)]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2000), st.integers(1, 3), st.sampled_from(STACKS)), max_size=60
    ),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 1000)), unique_by=lambda row: row[:2]),
)
def test_slices_never_overlap_and_stay_on_their_cores(rows, counted):
    samples = Samples()
    for cpu, at, pid, stack in rows:
        samples.add(cpu, at, pid, stack)
    found = build_slices(samples.table(), WINDOW, counters(*counted))
    assert (found.until > found.since).all()
    assert (found.since >= WINDOW.since).all()
    assert (found.until <= WINDOW.until).all()
    same = found.lines[1:] == found.lines[:-1]
    assert (found.since[1:][same] >= found.until[:-1][same]).all()
    assert (np.diff(found.lines) >= 0).all()
    for cpu in {row[0] for row in rows}:
        ran = sum(row[2] - row[1] for row in shown(found) if row[0] == cpu and row[4] is not None)
        # A sample covers one and a half times what it stands for at most.
        assert ran <= 15 * sum(1 for row in rows if row[0] == cpu) + 1e-6


@pytest.mark.parametrize("idle", [0, 250, 500, 750, 1000])
def test_a_core_that_is_sampled_at_random_is_believed(idle):
    """Whether a sample falls on idle time is chance: the counters agree within what chance explains."""
    rng = np.random.default_rng(idle)
    busy = rng.random(100) * 1000 >= idle
    samples = Samples()
    for place in np.flatnonzero(busy).tolist():
        samples.add(0, place * 10 + 10, 7)
    found = build_slices(samples.table(), Window(WALL, WALL + NANOS), counters((0, 0, idle)))
    assert (IDLE in found.states) == (not busy.all())

"""The kernel log's clock is measured by events that the kernel opens at once, where it allows them."""

import errno
import os
import threading
import time
from collections.abc import Callable

import pytest
from tests.collect.perf.record_builder import comm

from exhume.collect.sources import kmsg as kernel_clock
from exhume.collect.sources.kmsg import KernelLogClock

Opened = list[tuple[int, int]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], Opened]:
    """The events that are opened, as process and core; those of a core can be refused."""

    def watch(cores_allowed: bool) -> Opened:
        found: Opened = []
        real = kernel_clock.open_event

        def open_event(spec: object, *, pid: int, cpu: int) -> int:
            if pid == -1 and not cores_allowed:
                raise OSError(errno.EACCES, os.strerror(errno.EACCES))
            found.append((pid, cpu))
            return real(spec, pid=pid, cpu=cpu)

        monkeypatch.setattr(kernel_clock, "open_event", open_event)
        return found

    return watch


@pytest.mark.root
def test_no_event_follows_a_thread_where_those_of_a_core_are_allowed(opened) -> None:
    """The first event that follows a thread waits for a grace period: seconds, on a machine that forks without end."""
    events, allowed = opened(True), os.sched_getaffinity(0)
    clock = KernelLogClock()
    # Held up in the middle of it, its name may come after so many of others that there is no room left: then once more.
    for _ in range(10):
        events.clear()
        assert clock.measure() and clock.measured
        if len(events) == 2:
            break
    assert [pid for pid, _ in events] == [-1, -1]
    assert {cpu for _, cpu in events} <= allowed
    assert os.sched_getaffinity(0) == allowed


@pytest.mark.root
def test_both_kinds_of_events_measure_the_same(opened) -> None:
    on_a_core, of_a_thread = KernelLogClock(), KernelLogClock()
    assert on_a_core.measure()
    events = opened(False)
    assert of_a_thread.measure()
    assert events == [(0, -1), (0, -1)]
    assert abs(on_a_core.offset_ns() - of_a_thread.offset_ns()) < 1_000_000


@pytest.mark.root
def test_names_of_others_on_the_core_are_not_taken_for_its_own() -> None:
    """A thread that names itself all the time, on every core in turn."""
    stop = threading.Event()

    def rename() -> None:
        while not stop.is_set():
            kernel_clock.set_thread_name(b"restless")

    clock = KernelLogClock()
    assert clock.measure()
    quiet = clock.offset_ns()
    restless = threading.Thread(target=rename)
    restless.start()
    try:
        for _ in range(20):
            assert clock.measure()
            assert abs(clock.offset_ns() - quiet) < 1_000_000
            time.sleep(0.01)
    finally:
        stop.set()
        restless.join()


def test_a_timestamp_is_of_the_requested_thread() -> None:
    data = comm(10, "other", 100) + comm(10, "own", 200, tid=11) + comm(10, "other", 300)
    assert kernel_clock._stamps(data, 11) == [200]
    assert kernel_clock._stamps(data, 12) == []


def test_what_comes_between_two_stamps_of_a_moment_is_left_out() -> None:
    """A virtual core may be taken away between the two; hardly twice in three times."""
    assert kernel_clock._offset([100, 200, 300], [150, 250, 9_000_350]) == 50
    assert kernel_clock._offset([100, 200, 300], [150]) == 50
    assert kernel_clock._offset([100], []) is None

"""How far the kernel log's clock is from CLOCK_MONOTONIC.

The log is stamped with the scheduler's clock. Time synchronisation slews CLOCK_MONOTONIC but not that one, so after a
month of uptime they can be a minute apart, and a NIC reset would be looked for in the wrong minute. Two events of this
core (or, where only that is allowed, of this thread), one stamped by each clock, both tell of the same harmless moment:
the thread's name set to what it already is. The difference of their stamps is the offset, to the microsecond, without
writing anything anywhere.
"""

import contextlib
import mmap
import os
import threading
from pathlib import Path

import numpy as np

from exhume.collect.perf.attr import SW_DUMMY, EventSpec, EventType, Flag, SampleType, open_event
from exhume.collect.perf.records import RecordType, walk
from exhume.collect.perf.ring import Ring, load_fence
from exhume.collect.perf.syscalls import current_core, set_thread_name
from exhume.model.errors import SourceUnavailable

# Once may go wrong: a virtual core may be taken away between the two stamps.
_TIMES = 3


class KernelLogClock:
    """Measures the offset when asked; remembers the last answer."""

    def __init__(self, comm: Path = Path("/proc/thread-self/comm")) -> None:
        self._comm = comm
        self._offset = 0
        self.measured = False

    def offset_ns(self) -> int:
        """Kernel-log time minus CLOCK_MONOTONIC, as last measured (0 if it never could be)."""
        return self._offset

    def measure(self) -> bool:
        """Measure now. False where the kernel doesn't allow even a thread to watch itself.

        The first event that follows a thread makes the kernel wait until every core has been through its scheduler,
        which took seconds under thousands of forks a second. An event of a core doesn't, so that is tried first.
        """
        return self._measure_on_a_core() or self._measure(pid=0, cpu=-1)

    def _measure_on_a_core(self) -> bool:
        # Stay where the thread runs: another core may be the starved one.
        allowed, core = os.sched_getaffinity(0), current_core()
        try:
            os.sched_setaffinity(0, {core})
        except OSError:
            return False
        try:
            return self._measure(pid=-1, cpu=core)
        finally:
            # The cores may have changed meanwhile; then the kernel has seen to it.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, allowed)

    def _measure(self, *, pid: int, cpu: int) -> bool:
        rings: list[Ring] = []
        try:
            for monotonic in (True, False):
                fd = open_event(_name_event(monotonic), pid=pid, cpu=cpu)
                ring = Ring(fd, cpu, mmap.PAGESIZE, load_fence())
                rings.append(ring)
            for ring in rings:
                ring.enable()
            name = self._comm.read_bytes().strip()
            for _ in range(_TIMES):
                set_thread_name(name)
            stamps = [_stamps(ring.read(), threading.get_native_id()) for ring in rings]
        except (OSError, SourceUnavailable):
            return False
        finally:
            for ring in rings:
                ring.close()
        offset = _offset(*stamps)
        if offset is None:
            return False
        self._offset = offset
        self.measured = True
        return True


def _name_event(monotonic: bool) -> EventSpec:
    return EventSpec(
        EventType.SOFTWARE,
        SW_DUMMY,
        0,
        SampleType.TID | SampleType.TIME | SampleType.CPU,
        Flag.DISABLED | Flag.COMM | Flag.SAMPLE_ID_ALL | Flag.EXCLUDE_KERNEL | Flag.EXCLUDE_HV,
        monotonic=monotonic,
    )


def _stamps(data: bytes, thread: int) -> list[int]:
    """When a thread was named; others on its core may have been meanwhile."""
    records = walk(data)
    at = records.of(RecordType.COMM)
    at = at[records.words[at + 1] >> np.uint64(32) == thread]
    ends = (start + int(records.words[start] >> np.uint64(48)) // 8 for start in at)
    return [int(records.words[end - 2]) for end in ends]


def _offset(monotonic: list[int], log: list[int]) -> int | None:
    """The usual difference. A ring that is full has the first of them."""
    found = sorted(after - before for before, after in zip(monotonic, log, strict=False))
    return found[(len(found) - 1) // 2] if found else None

"""The kernel log: lines of /dev/kmsg as events, brought from the log's own clock to CLOCK_MONOTONIC."""

import contextlib
import errno
import mmap
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.collect.perf.attr import (
    SW_DUMMY,
    EventSpec,
    EventType,
    Flag,
    SampleType,
    current_core,
    open_event,
    set_thread_name,
)
from exhume.collect.perf.records import RecordType, walk
from exhume.collect.perf.rings import Ring, load_fence
from exhume.collect.source import NOTHING, TickRows
from exhume.collect.sources.kmsg_signatures import LONGEST_LITERAL, PLAIN_KIND, Recognised, hints, recognise
from exhume.model.clock import Tick, read_boot_id
from exhume.model.errors import SourceUnavailable
from exhume.model.tables import KERNEL_LOG, Losses, columns_of
from exhume.procfs.host import Host
from exhume.procfs.kmsg import LogRecord, parse_record

_LARGEST_RECORD = 8192
# The two clocks drift apart slowly.
CLOCK_TICKS = 60
# One measurement may go wrong: a virtual core may be taken away between the two stamps.
_MEASUREMENTS = 3
# In one tick: enough to catch up with any real burst, few enough that a flood can't take the recorder over. What is
# beyond it stays in the kernel's buffer for the next tick.
_RECORDS_PER_TICK = 20_000
# When recording begins: more than the largest log of a boot holds.
_RECORDS_OF_BACKLOG = 1_000_000
# Of lines that are not recognised, and of those that are.
_ROWS_PER_TICK = {False: 1000, True: 2000}
# Halves of one wrapped line are printed in one go.
_SAME_LINE_US = 50_000

_STAMPED = SampleType.TID | SampleType.TIME | SampleType.CPU
_RENAMINGS = Flag.DISABLED | Flag.COMM | Flag.SAMPLE_ID_ALL | Flag.EXCLUDE_KERNEL | Flag.EXCLUDE_HV
_EVENT_COLUMNS = tuple(column.name for column in columns_of("events"))


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far the log has been recorded: the last record's number, in a boot."""

    boot_id: str
    sequence: int


@dataclass(slots=True)
class _Line:
    """The line before, should it turn out to go on in the next record."""

    record: LogRecord
    row: dict[str, Any] | None
    known: bool


class KernelLogSource:
    """Rows of the events table from /dev/kmsg; what was overwritten or left out is lost.

    `after` is where an earlier recorder stopped. Without it (or after a reboot) the lines that are already in the log
    are searched for signatures only, and everything from now on is recorded. Without a `clock`, the log's clock is
    taken for CLOCK_MONOTONIC.
    """

    name = KERNEL_LOG

    def __init__(self, host: Host, after: LogPosition | None = None, clock: "KernelLogClock | None" = None) -> None:
        self._boot_id = read_boot_id(host.proc)
        self._clock = clock
        resumes = after is not None and after.boot_id == self._boot_id
        self._last: int | None = after.sequence if after is not None and resumes else None
        self._before: _Line | None = None
        self._rows: list[dict[str, Any]] = []
        self._lost: list[tuple[str, int, str]] = []
        self._losses: list[Losses] = []
        self._left_out = 0
        self._room = dict(_ROWS_PER_TICK)
        path = host.dev / "kmsg"
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            remedy = "make /dev/kmsg visible (mount devtmpfs at /dev, or hand the device to the container)"
            if error.errno in (errno.EPERM, errno.EACCES):
                remedy = "grant CAP_SYSLOG and read access to /dev/kmsg, or set sysctl kernel.dmesg_restrict=0"
            raise SourceUnavailable(self.name, f"{path} can't be opened ({error.strerror})", remedy) from error
        if not resumes:
            self._drain(_RECORDS_OF_BACKLOG, only_known=True)
            self._before = None
            self._room = dict(_ROWS_PER_TICK)
        if clock is not None:
            clock.measure()

    @property
    def position(self) -> LogPosition | None:
        """Where a later recorder should go on; None until a line was seen."""
        return None if self._last is None else LogPosition(self._boot_id, self._last)

    def read(self, tick: Tick) -> TickRows:
        self._drain(_RECORDS_PER_TICK, only_known=False)
        if tick.nanos <= 0:
            # The tick that only sets counters: what the log says before the first real one belongs to that.
            return NOTHING
        if self._before is not None:
            # Its row leaves with this tick: a second half that comes later gets a row of its own.
            self._before.row = None
        if self._clock is not None and tick.index % CLOCK_TICKS == 0:
            self._clock.measure()
        if self._left_out:
            text = "lines of the kernel log beyond what is recorded in a second"
            self._lost.append(("rate-limit", self._left_out, text))
        self._losses += [Losses(tick.start, self.name, *lost) for lost in self._lost]
        rows, self._rows, self._lost = self._rows, [], []
        self._left_out, self._room = 0, dict(_ROWS_PER_TICK)
        offset = self._clock.offset_ns() if self._clock else 0
        for row in rows:
            row["time"], row["source"] = monotonic_of(row["kernel_us"], tick.end, offset), self.name
        return {"events": {name: [row.get(name) for row in rows] for name in _EVENT_COLUMNS}} if rows else NOTHING

    def take_losses(self) -> list[Losses]:
        losses, self._losses = self._losses, []
        return losses

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _drain(self, limit: int, *, only_known: bool) -> None:
        for _ in range(limit):
            try:
                raw = os.read(self._fd, _LARGEST_RECORD)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:
                    # Records were overwritten (kernel/printk/printk.c, devkmsg_read): the next number says how many.
                    continue
                self._lost.append(("read-error", 1, f"/dev/kmsg: {error.strerror}"))
                return
            if not raw:
                return
            record = parse_record(raw)
            if record is None:
                self._lost.append(("unreadable-record", 1, "a record of the kernel log that has another shape"))
            else:
                self._take(record, only_known)

    def _take(self, record: LogRecord, only_known: bool) -> None:
        if self._last is not None:
            if record.sequence <= self._last:
                return
            gap = record.sequence - self._last - 1
            if gap:
                text = f"{gap} lines of the kernel log were overwritten before they were read"
                self._lost.append(("sequence-gap", gap, text))
                self._before = None
        self._last = record.sequence
        before, self._before = self._before, None
        text, known = record.text, recognise(record.text)
        if before is not None and (joined := _join(before, record, known)):
            text, known = joined
            if before.row is not None:
                before.row.update(_described(text, known))
                self._before = _Line(record._replace(text=text), before.row, known is not None)
                return
        row = None if only_known and known is None else self._add(record, text, known)
        if row is not None or only_known:
            self._before = _Line(record._replace(text=text), row, known is not None)

    def _add(self, record: LogRecord, text: str, known: Recognised | None) -> dict[str, Any] | None:
        self._room[known is not None] -= 1
        if self._room[known is not None] < 0:
            self._left_out += 1
            return None
        self._rows.append({"kernel_us": record.stamp_us, "sequence": record.sequence, **_described(text, known)})
        return self._rows[-1]


def _described(text: str, known: Recognised | None) -> dict[str, Any]:
    if known is None:
        return {"text": text, "kind": PLAIN_KIND, "severity": "info"}
    return {"text": text, "kind": known.kind, "severity": known.severity, **known.fields}


def _join(before: _Line, record: LogRecord, known: Recognised | None) -> tuple[str, Recognised | None] | None:
    """The whole line, when this record is the rest of the one before."""
    if record.continues:
        text = before.record.text + record.text
        return text, recognise(text)
    # Two lines are halves of one only if neither says anything alone and together they do.
    if before.known or known is not None or record.stamp_us - before.record.stamp_us > _SAME_LINE_US:
        return None
    first, second = before.record.text, record.text
    # One look for a literal in either half, or where they meet with or without a blank.
    if not hints(f"{first} {second}\n{first[-LONGEST_LITERAL:]}{second[:LONGEST_LITERAL]}"):
        return None
    wholes = ((text, recognise(text)) for text in (f"{first} {second}", first + second))
    return next((whole for whole in wholes if whole[1] is not None), None)


def monotonic_of(stamp_us: int, now: int, offset: int) -> int:
    """A log stamp brought to CLOCK_MONOTONIC.

    The two clocks start together and drift apart at a steady rate, so a line from the first hour of the boot takes
    only its share of today's offset. `now` is monotonic nanoseconds, and `offset` is how far the log's clock is ahead.
    """
    stamp = stamp_us * 1000
    log_now = now + offset
    if log_now <= 0:
        return stamp - offset
    return stamp - offset * stamp // log_now


class KernelLogClock:
    """Measures how far the log's clock (local_clock) is ahead of CLOCK_MONOTONIC.

    Two events that differ in their clock alone record the same renamings of a thread: the difference of their stamps is
    the offset.
    """

    def __init__(self, comm: Path = Path("/proc/thread-self/comm")) -> None:
        self._comm = comm
        self._offset = 0
        self.measured = False

    def offset_ns(self) -> int:
        """Kernel-log time minus CLOCK_MONOTONIC, as last measured (0 if it never could be)."""
        return self._offset

    def measure(self) -> bool:
        """Measure now. False where the kernel doesn't allow even a thread to watch itself.

        The first event that follows a thread makes the kernel wait for an RCU grace period (kernel/events/core.c,
        account_event: synchronize_rcu), which took seconds under thousands of forks a second. An event of a core
        doesn't, so that is tried first.
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
                event = EventSpec(EventType.SOFTWARE, SW_DUMMY, 0, _STAMPED, _RENAMINGS, monotonic=monotonic)
                rings.append(Ring(open_event(event, pid=pid, cpu=cpu), cpu, mmap.PAGESIZE, load_fence()))
            for ring in rings:
                ring.enable()
            name = self._comm.read_bytes().strip()
            for _ in range(_MEASUREMENTS):
                set_thread_name(name)
            stamps = [_stamps(ring.read(), threading.get_native_id()) for ring in rings]
        except (OSError, SourceUnavailable):
            return False
        finally:
            for ring in rings:
                ring.close()
        offset = _offset(*stamps)
        if offset is not None:
            self._offset, self.measured = offset, True
        return offset is not None


def _stamps(data: bytes, thread: int) -> list[int]:
    """When a thread was renamed; others on its core may have been meanwhile."""
    records = walk(data)
    at = records.of(RecordType.COMM)
    return [int(time) for time in records.times(at[records.high(at) == thread])]


def _offset(monotonic: list[int], log: list[int]) -> int | None:
    """The usual difference. A ring that is full has the first of them."""
    found = sorted(after - before for before, after in zip(monotonic, log, strict=False))
    return found[(len(found) - 1) // 2] if found else None

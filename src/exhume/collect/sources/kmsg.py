"""The kernel log: its lines as events, with the log's timestamps converted to CLOCK_MONOTONIC.

/dev/kmsg is read if it can be opened. In a container the device cgroup refuses it, whatever the capabilities; syslog(2)
needs only CAP_SYSLOG, and is polled there.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

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
from exhume.model.clock import NANOS, Tick, read_boot_id
from exhume.model.errors import SourceUnavailable
from exhume.model.facts import MissingSource
from exhume.model.tables import KERNEL_LOG, Losses, columns_of
from exhume.procfs.host import Host
from exhume.procfs.kmsg import LogRecord, parse_record, parse_syslog

_LARGEST_RECORD = 8192
# How often to measure the offset: the two clocks drift apart slowly.
CLOCK_TICKS = 60
# One measurement may be wrong: the hypervisor may preempt a virtual core between the two timestamps.
_MEASUREMENTS = 3
# Per tick: enough to catch up with any real burst, few enough that a flood cannot monopolise the recorder. The rest
# stays in the kernel's buffer for the next tick.
_RECORDS_PER_TICK = 20_000
# When recording begins: more than the largest log of a boot has.
_RECORDS_OF_BACKLOG = 1_000_000
# For unrecognised and for recognised lines.
_ROWS_PER_TICK = {False: 1000, True: 2000}
# The halves of a wrapped line are printed almost at once.
_SAME_LINE_US = 50_000

_STAMPED = SampleType.TID | SampleType.TIME | SampleType.CPU
_RENAMINGS = Flag.DISABLED | Flag.COMM | Flag.SAMPLE_ID_ALL | Flag.EXCLUDE_KERNEL | Flag.EXCLUDE_HV
_EVENT_COLUMNS = tuple(column.name for column in columns_of("events"))


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far the log of a boot has been recorded: the last record's sequence number (None if it was read by syslog(2),
    which has none) and timestamp."""

    boot_id: str
    sequence: int | None
    stamp_us: int = 0


@dataclass(slots=True)
class LogLine:
    """The previous line, in case the next record continues it."""

    record: LogRecord
    row: dict[str, Any] | None
    known: bool


# Kind, count and text of a loss.
Loss = tuple[str, int, str]


class LogReader(Protocol):
    """A reader of log records: everything since the last call, oldest first."""

    def records(self, limit: int) -> Iterator[LogRecord | Loss]: ...

    def close(self) -> None: ...


class KmsgReader:
    """Records of /dev/kmsg. Raises OSError when it cannot be opened."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def records(self, limit: int) -> Iterator[LogRecord | Loss]:
        for _ in range(limit):
            try:
                raw = os.read(self._fd, _LARGEST_RECORD)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:
                    # Records were overwritten (kernel/printk/printk.c, devkmsg_read): the next sequence number shows
                    # how many.
                    continue
                yield "read-error", 1, f"/dev/kmsg: {error.strerror}"
                return
            if not raw:
                return
            unreadable = "unreadable-record", 1, "a record of the kernel log that has another shape"
            yield parse_record(raw) or unreadable

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


# The signature of syslog(2): an action with a buffer; returns -1 with errno set on failure.
Klogctl = Callable[[int, "ctypes.Array[ctypes.c_char] | None", int], int]
_SYSLOG_READ_ALL, _SYSLOG_SIZE_BUFFER = 3, 10
# Most ticks have few lines.
_SYSLOG_TAIL = 16 << 10
# However little is read, the kernel walks its whole buffer twice (find_first_fitting_seq): 1.2 ms for 128 KiB on 6.18.
# Calls that take longer than this share of a second are made less often.
_SYSLOG_SHARE = 0.002
# The end of the text read so far, used to find the position again: some lines with their timestamps.
_SYSLOG_ANCHOR = 512
# If a read of the whole log is much shorter than its buffer, the log was cleared and nothing was overwritten.
_SYSLOG_FULL = 0.5


def klogctl(action: int, buffer: "ctypes.Array[ctypes.c_char] | None", size: int) -> int:
    """Call syslog(2) of this machine."""
    called: int = _LIBC.klogctl(action, buffer, size)
    return called


_LIBC = ctypes.CDLL(None, use_errno=True)


class SyslogReader:
    """Records from syslog(2), SYSLOG_ACTION_READ_ALL. It always returns the newest records that fit into a buffer
    (kernel/printk/printk.c, syslog_print_all), so text that was already read is recognised by its end and left out.

    It has no sequence numbers and does not mark continued lines. Lines that were overwritten between two reads are
    noticed, but cannot be counted. Raises OSError when the call is refused, ValueError when the kernel does not
    timestamp lines.
    """

    def __init__(self, call: Klogctl, after_us: int | None = None) -> None:
        self._call = call
        self._whole = max(self._checked(_SYSLOG_SIZE_BUFFER, None, 0), _SYSLOG_TAIL)
        self._anchor = b""
        self._last_us = after_us
        first = self._newest(self._whole)
        if first and next(parse_syslog(first), None) is None:
            raise ValueError("the kernel puts no times on its lines")
        self._waiting: list[LogRecord] = []
        self._due = 0

    def records(self, limit: int) -> Iterator[LogRecord | Loss]:
        fresh, gap, now = b"", False, time.monotonic_ns()
        if now >= self._due:
            began = time.thread_time_ns()
            try:
                fresh, gap = self._fresh()
            except OSError as error:
                yield "read-error", 1, f"syslog(2): {error.strerror}"
            self._due = now + int((time.thread_time_ns() - began) / _SYSLOG_SHARE) - NANOS
        if gap:
            yield "sequence-gap", 1, "an unknown number of lines of the kernel log was overwritten before it was read"
        self._waiting += parse_syslog(fresh)
        taken, self._waiting = self._waiting[:limit], self._waiting[limit:]
        for record in taken:
            self._last_us = max(record.stamp_us, self._last_us or 0)
            yield record

    def close(self) -> None:
        """No resources to release."""

    def _fresh(self) -> tuple[bytes, bool]:
        """The text that is new since the last call, and whether earlier text was missed."""
        size = _SYSLOG_TAIL if self._anchor else self._whole
        while True:
            text = self._newest(size)
            at = text.rfind(self._anchor) if self._anchor else -1
            if at >= 0:
                fresh, gap = text[at + len(self._anchor) :], False
                break
            if size >= self._whole:
                # Compare timestamps. Those of another core may be slightly behind, so some lines may be missed or
                # repeated.
                fresh = _behind(text, self._last_us) if self._last_us is not None else text
                gap = bool(self._anchor) and fresh == text and len(text) >= _SYSLOG_FULL * self._whole
                break
            size = min(size * 8, self._whole)
        if text:
            self._anchor = text[-_SYSLOG_ANCHOR:]
        return fresh, gap

    def _newest(self, size: int) -> bytes:
        buffer = ctypes.create_string_buffer(size)
        length = self._checked(_SYSLOG_READ_ALL, buffer, size)
        return buffer.raw[:length]

    def _checked(self, action: int, buffer: "ctypes.Array[ctypes.c_char] | None", size: int) -> int:
        length = self._call(action, buffer, size)
        if length < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return length


def _behind(text: bytes, stamp_us: int) -> bytes:
    """The lines of a log after the last one that is not newer than a timestamp."""
    at = end = 0
    for line in text.splitlines(keepends=True):
        end += len(line)
        record = next(parse_syslog(line), None)
        if record is not None and record.stamp_us <= stamp_us:
            at = end
    return text[at:]


class KernelLogSource:
    """Rows of the events table; overwritten or omitted lines are reported as lost.

    `after` is where an earlier recorder stopped. Without it (or after a reboot) the lines that are already in the log
    are only searched for signatures, and everything from now on is recorded. Without a `clock`, the log's clock is
    assumed to be CLOCK_MONOTONIC. `syslog` is called when /dev/kmsg cannot be opened.
    """

    name = KERNEL_LOG

    def __init__(
        self,
        host: Host,
        after: LogPosition | None = None,
        clock: "KernelLogClock | None" = None,
        syslog: Klogctl | None = None,
    ) -> None:
        self._boot_id = read_boot_id(host.proc)
        self._clock = clock
        self._last: LogPosition | None = after if after is not None and after.boot_id == self._boot_id else None
        resumes = self._last is not None
        self._before: LogLine | None = None
        self._rows: list[dict[str, Any]] = []
        self._lost: list[Loss] = []
        self._losses: list[Losses] = []
        self._left_out = 0
        self._room = dict(_ROWS_PER_TICK)
        self.missing: tuple[MissingSource, ...] = ()
        path = host.dev / "kmsg"
        try:
            self._reader: LogReader = KmsgReader(path)
        except OSError as error:
            self._reader = self._open_syslog(path, error, syslog)
        if not resumes:
            self._drain(_RECORDS_OF_BACKLOG, only_known=True)
            self._before = None
            self._room = dict(_ROWS_PER_TICK)
        if clock is not None:
            clock.measure()

    def _open_syslog(self, path: Path, refused: OSError, syslog: Klogctl | None) -> LogReader:
        """Fall back to syslog(2); raises SourceUnavailable when it is not available either."""
        reason, remedy = f"{path} can't be opened ({refused.strerror})", _REMEDIES.get(refused.errno or 0, _NO_DEVICE)
        if syslog is None:
            raise SourceUnavailable(self.name, reason, remedy) from refused
        try:
            reader = SyslogReader(syslog, self._last.stamp_us if self._last is not None else None)
        except OSError as error:
            reason = f"{reason}, and syslog(2) is refused ({error.strerror})"
            raise SourceUnavailable(self.name, reason, remedy) from error
        except ValueError as error:
            remedy = "write Y to /sys/module/printk/parameters/time, or make /dev/kmsg readable"
            raise SourceUnavailable(self.name, f"{reason}, and in syslog(2) {error}", remedy) from error
        reason = f"{reason}: lines come by syslog(2), once a second and without numbers, so lost lines can't be counted"
        remedy = "nothing, unless lines are lost; a privileged container may open /dev/kmsg"
        self.missing = (MissingSource("kernel-log-numbers", reason, remedy),)
        return reader

    @property
    def position(self) -> LogPosition | None:
        """Where a later recorder should continue; None until a line was seen."""
        return self._last

    def read(self, tick: Tick) -> TickRows:
        self._drain(_RECORDS_PER_TICK, only_known=False)
        if tick.nanos <= 0:
            # The first tick only sets the base of counters; log lines before the first real tick belong to that tick.
            return NOTHING
        if self._before is not None:
            # Its row is written with this tick; if the second half comes later, it gets a row of its own.
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
        self._reader.close()

    def _drain(self, limit: int, *, only_known: bool) -> None:
        for record in self._reader.records(limit):
            if isinstance(record, LogRecord):
                self._take(record, only_known)
            else:
                self._lost.append(record)

    def _take(self, record: LogRecord, only_known: bool) -> None:
        last = self._last
        if last is not None and record.sequence is not None:
            if last.sequence is None:
                # An earlier recorder had no sequence numbers.
                if record.stamp_us <= last.stamp_us:
                    return
            elif record.sequence <= last.sequence:
                return
            elif gap := record.sequence - last.sequence - 1:
                text = f"{gap} lines of the kernel log were overwritten before they were read"
                self._lost.append(("sequence-gap", gap, text))
                self._before = None
        self._last = LogPosition(self._boot_id, record.sequence, record.stamp_us)
        before, self._before = self._before, None
        text, known = record.text, recognise(record.text)
        if before is not None and (joined := join_halves(before, record, known)):
            text, known = joined
            if before.row is not None:
                before.row.update(describe_line(text, known, error=before.record.error))
                self._before = LogLine(record._replace(text=text), before.row, known is not None)
                return
        row = None if only_known and known is None else self._add(record, text, known)
        if row is not None or only_known:
            self._before = LogLine(record._replace(text=text), row, known is not None)

    def _add(self, record: LogRecord, text: str, known: Recognised | None) -> dict[str, Any] | None:
        self._room[known is not None] -= 1
        if self._room[known is not None] < 0:
            self._left_out += 1
            return None
        described = describe_line(text, known, error=record.error)
        self._rows.append({"kernel_us": record.stamp_us, "sequence": record.sequence, **described})
        return self._rows[-1]


_NO_DEVICE = "make /dev/kmsg visible (mount devtmpfs at /dev, or hand the device to the container), or grant CAP_SYSLOG"
_REFUSED = (
    "grant CAP_SYSLOG; outside of containers also read access to /dev/kmsg, or set sysctl kernel.dmesg_restrict=0"
)
_REMEDIES = {errno.EPERM: _REFUSED, errno.EACCES: _REFUSED}


def describe_line(text: str, known: Recognised | None, *, error: bool = False) -> dict[str, Any]:
    if known is None:
        return {"text": text, "kind": PLAIN_KIND, "severity": "warning" if error else "info"}
    return {"text": text, "kind": known.kind, "severity": known.severity, **known.fields}


def join_halves(before: LogLine, record: LogRecord, known: Recognised | None) -> tuple[str, Recognised | None] | None:
    """The whole line, if this record is the rest of the previous one."""
    if record.continues:
        text = before.record.text + record.text
        return text, recognise(text)
    # Two lines are halves of one only if neither is recognised alone and both together are.
    if before.known or known is not None or record.stamp_us - before.record.stamp_us > _SAME_LINE_US:
        return None
    first, second = before.record.text, record.text
    # One search for a literal in either half, or where they meet with or without a blank.
    if not hints(f"{first} {second}\n{first[-LONGEST_LITERAL:]}{second[:LONGEST_LITERAL]}"):
        return None
    wholes = ((text, recognise(text)) for text in (f"{first} {second}", first + second))
    return next((whole for whole in wholes if whole[1] is not None), None)


def monotonic_of(stamp_us: int, now: int, offset: int) -> int:
    """A log timestamp converted to CLOCK_MONOTONIC.

    The two clocks start together and drift apart at a steady rate, so a line from the first hour of the boot gets only
    a proportionate part of today's offset. `now` is monotonic nanoseconds, and `offset` is how far the log's clock is
    ahead.
    """
    stamp = stamp_us * 1000
    log_now = now + offset
    if log_now <= 0:
        return stamp - offset
    return stamp - offset * stamp // log_now


class KernelLogClock:
    """Measures how far the log's clock (local_clock) is ahead of CLOCK_MONOTONIC.

    Two events that differ only in their clock record the same renames of a thread; the difference of their timestamps
    is the offset.
    """

    def __init__(self) -> None:
        self._comm = Path("/proc/thread-self/comm")
        self._offset = 0
        self.measured = False

    def offset_ns(self) -> int:
        """Kernel-log time minus CLOCK_MONOTONIC, as last measured (0 if it could never be measured)."""
        return self._offset

    def measure(self) -> bool:
        """Measure now. False when the kernel does not allow even a thread to watch itself.

        The first per-thread event makes the kernel wait for an RCU grace period (kernel/events/core.c, account_event:
        synchronize_rcu), which took seconds under thousands of forks a second. A per-CPU event does not, so that is
        tried first.
        """
        return self._measure_on_a_core() or self._measure(pid=0, cpu=-1)

    def _measure_on_a_core(self) -> bool:
        # Stay on the current core: another core may be the starved one.
        allowed, core = os.sched_getaffinity(0), current_core()
        try:
            os.sched_setaffinity(0, {core})
        except OSError:
            return False
        try:
            return self._measure(pid=-1, cpu=core)
        finally:
            # The available cores may have changed; then the kernel has already corrected the affinity.
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
    """The timestamps of a thread's renames; others on its core may have been renamed too."""
    records = walk(data)
    at = records.of(RecordType.COMM)
    return [int(time) for time in records.times(at[records.high(at) == thread])]


def _offset(monotonic: list[int], log: list[int]) -> int | None:
    """The median difference. A full ring contains the first renames."""
    found = sorted(after - before for before, after in zip(monotonic, log, strict=False))
    return found[(len(found) - 1) // 2] if found else None

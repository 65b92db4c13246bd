"""Cgroup tracepoints through a private tracing instance, for nodes where perf may not open them.

An instance (kernel/trace/trace.c, instance_mkdir) has its own buffers and events, so other users of tracefs are not
affected.
"""

import contextlib
import os
import re
from pathlib import Path

from exhume.collect.perf.tracepoints import CGROUP_OPERATIONS, find_tracefs
from exhume.collect.source import NOTHING, TickRows
from exhume.model.clock import NANOS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.tables import CgroupEvents, Losses, to_columns
from exhume.procfs.host import Host, ProcFile
from exhume.procfs.pid_status import status_values

_PREFIX = "exhume-"
# A kernel buffer of this size per core holds about two thousand events; the kernel's default is 1.4 MiB.
_BUFFER_KB = 256
_CHUNK = 1 << 16
# The name may contain anything, including dashes; after the last dash is the thread id. A thread group id may follow in
# parentheses.
_LINE = re.compile(
    rb"\s*(?P<comm>.+)-(?P<tid>\d+)\s+(?:\([^)]*\)\s+)?\[\d+\]\s+(?:\S+\s+)?(?P<seconds>\d+)\.(?P<fraction>\d+):\s"
    rb"(?P<event>cgroup_\w+): root=(?P<root>-?\d+) id=(?P<id>\d+) level=(?P<level>\d+) path=(?P<path>.*)"
)
_LOST = re.compile(rb"CPU:(?P<cpu>\d+) \[LOST (?P<count>\d+) EVENTS\]")


class CgroupTraceSource:
    """Rows of cgroup_events from a private tracing instance."""

    name = "cgroup-trace"

    def __init__(self, host: Host, tracefs: Path | None = None) -> None:
        self._host = host
        tracefs = tracefs or find_tracefs(host)
        if tracefs is None:
            raise _unavailable("tracefs can't be reached")
        remove_leftovers(tracefs / "instances", host)
        self._instance = tracefs / "instances" / f"{_PREFIX}{os.getpid()}"
        self._rest = b""
        self._losses: list[Losses] = []
        try:
            self._instance.mkdir()
        except OSError as error:
            raise _unavailable(f"no tracing instance can be made ({error.strerror})") from error
        try:
            (self._instance / "trace_clock").write_text("mono")
            (self._instance / "buffer_size_kb").write_text(str(_BUFFER_KB))
            for event in CGROUP_OPERATIONS:
                (self._instance / "events/cgroup" / event / "enable").write_text("1")
            self._pipe = os.open(self._instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self._remove()
            raise _unavailable(f"the tracing instance can't be used ({error.strerror})") from error

    def read(self, tick: Tick) -> TickRows:
        if tick.nanos <= 0:
            return NOTHING
        events, losses = parse_trace(self._drain())
        processes = {event.pid: self._process_of(event.pid) for event in events if event.pid is not None}
        for event in events:
            event.pid = processes.get(event.pid or 0)
        events.sort(key=lambda event: event.time)
        text = "the tracing buffer was full: cgroup events were not written"
        self._losses += [Losses(tick.start, self.name, "lost-cgroup-events", n, text, cpu) for cpu, n in losses]
        return {"cgroup_events": to_columns("cgroup_events", events)} if events else NOTHING

    def take_losses(self) -> list[Losses]:
        losses, self._losses = self._losses, []
        return losses

    def _drain(self) -> bytes:
        """All complete lines since the last call."""
        chunks = [self._rest]
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._pipe, _CHUNK):
                chunks.append(chunk)
        lines, newline, self._rest = b"".join(chunks).rpartition(b"\n")
        return lines + newline

    def _process_of(self, tid: int) -> int:
        """The process of a thread, as the trace has only thread ids; the thread itself when it has exited."""
        status = ProcFile(self._host.proc / str(tid) / "status").read_or_none() or b""
        return next(iter(status_values(status, b"Tgid")), tid)

    def close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
            self._remove()

    def _remove(self) -> None:
        # What cannot be removed now is removed by the next recorder.
        with contextlib.suppress(OSError):
            self._instance.rmdir()


def parse_trace(text: bytes) -> tuple[list[CgroupEvents], list[tuple[int, int]]]:
    """Parse cgroup events from the text of a trace pipe (with the thread id as the pid), and the loss of each core."""
    events: list[CgroupEvents] = []
    losses: list[tuple[int, int]] = []
    for line in text.split(b"\n"):
        found = _LINE.fullmatch(line)
        if found is None:
            lost = _LOST.match(line)
            if lost:
                losses.append((int(lost["cpu"]), int(lost["count"])))
            continue
        op = CGROUP_OPERATIONS.get(found["event"].decode())
        if op is None:
            continue
        comm = found["comm"].decode("utf-8", "replace")
        events.append(
            CgroupEvents(
                time=int(found["seconds"]) * NANOS + int(found["fraction"].ljust(9, b"0")[:9]),
                hierarchy=int(found["root"]),
                op=op,
                id=int(found["id"]),
                level=int(found["level"]),
                path=found["path"].decode("utf-8", "replace"),
                pid=int(found["tid"]),
                # The kernel's placeholder for a thread whose name it did not keep.
                comm=None if comm == "<...>" else comm,
            )
        )
    return events, losses


def remove_leftovers(instances: Path, host: Host) -> None:
    """Remove the instances of recorders that have exited. The kernel refuses to remove one that is in use."""
    with contextlib.suppress(OSError):
        for instance in list(instances.iterdir()):
            pid = instance.name.removeprefix(_PREFIX)
            ours = instance.name.startswith(_PREFIX) and pid.isascii() and pid.isdigit()
            if ours and (int(pid) == os.getpid() or not (host.proc / pid).exists()):
                with contextlib.suppress(OSError):
                    instance.rmdir()


def _unavailable(reason: str) -> SourceUnavailable:
    return SourceUnavailable(
        "cgroup-trace", reason, "run as root with tracefs mounted and writable at /sys/kernel/tracing"
    )

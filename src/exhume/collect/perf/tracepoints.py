"""Where tracepoints are described. Where tracefs is not mounted, a mount that only this process can see."""

import contextlib
import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from exhume.collect.perf.attr import call, numbers
from exhume.collect.perf.records import Records, RecordType
from exhume.collect.source import NOTHING, TickRows
from exhume.model.clock import NANOS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.tables import CgroupEvents, Columns, Events, Losses, to_columns
from exhume.procfs.host import Host
from exhume.procfs.pid_status import status_values

_FSCONFIG_CMD_CREATE = 6
_CLOEXEC = 1


@cache
def _detached_mount() -> Path | None:
    """One mount serves all: it stays until the process ends."""
    try:
        context = call(numbers().fsopen, b"tracefs\0", _CLOEXEC)
        try:
            call(numbers().fsconfig, context, _FSCONFIG_CMD_CREATE, None, None, 0)
            mount = call(numbers().fsmount, context, _CLOEXEC, 0)
        finally:
            os.close(context)
    except (OSError, SourceUnavailable):
        return None
    return Path(f"/proc/self/fd/{mount}")


def find_tracefs(host: Host) -> Path | None:
    """The root of tracefs: where it is mounted, else a detached mount of our own; None where neither can be had.

    A detached mount is attached nowhere: nothing on the node changes, and it goes with our descriptor.
    """
    for mounted in (host.sys / "kernel/tracing", host.sys / "kernel/debug/tracing"):
        if os.access(mounted / "events", os.R_OK | os.X_OK):
            return mounted
    return _detached_mount() if host.sys == Path("/sys") else None


CGROUP_OPERATIONS = {"cgroup_mkdir": "mkdir", "cgroup_rmdir": "rmdir", "cgroup_release": "release"}
WANTED = {**dict.fromkeys(CGROUP_OPERATIONS, "cgroup"), "net_dev_xmit_timeout": "net"}

_FIELD = re.compile(r"field:(.+?)([A-Za-z_]\w*)(?:\[\w*\])?;\s*offset:(\d+);\s*size:(\d+);\s*signed:(\d);")
_CODES = {(1, 0): "B", (1, 1): "b", (2, 0): "H", (2, 1): "h", (4, 0): "I", (4, 1): "i", (8, 0): "Q", (8, 1): "q"}
# Header, pid and tid, time, cpu, size of the raw part.
_RAW_OFFSET = 8 + 8 + 8 + 8 + 4


@dataclass(frozen=True, slots=True)
class Field:
    """Where a field lies in the raw record. Text lies elsewhere; the field then holds its place and length."""

    offset: int
    code: str
    text: bool

    def read(self, raw: bytes) -> int | str:
        (value,) = struct.unpack_from("<" + self.code, raw, self.offset)
        if not self.text:
            return int(value)
        start, length = value & 0xFFFF, value >> 16
        return raw[start : start + length].split(b"\0", 1)[0].decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Tracepoint:
    """One tracepoint of this kernel."""

    name: str
    id: int
    fields: dict[str, Field]

    def read(self, raw: bytes) -> dict[str, int | str]:
        return {name: field.read(raw) for name, field in self.fields.items()}


def parse_format(text: str) -> dict[str, Field]:
    """The fields in a tracepoint's format file, those common to all left out."""
    fields: dict[str, Field] = {}
    for kind, name, offset, size, signed in _FIELD.findall(text):
        if name.startswith("common_"):
            continue
        is_text = "__data_loc" in kind
        code = "I" if is_text else _CODES.get((int(size), int(signed)))
        if code:
            fields[name] = Field(int(offset), code, is_text)
    return fields


def load_tracepoint(tracefs: Path, name: str) -> Tracepoint | None:
    """A tracepoint by name; None where this kernel doesn't have it or we may not read it."""
    directory = tracefs / "events" / WANTED[name] / name
    try:
        number = int((directory / "id").read_text())
        return Tracepoint(name, number, parse_format((directory / "format").read_text()))
    except (OSError, ValueError):
        return None


NameOf = Callable[[int, int, int], str]


class TracepointRows:
    """Turns tracepoint records into rows."""

    def __init__(self, tracepoints: list[Tracepoint]) -> None:
        self._by_id = {tracepoint.id: tracepoint for tracepoint in tracepoints}

    def decode(self, records: Records, name_of: NameOf) -> tuple[list[CgroupEvents], list[Events]]:
        cgroups: list[CgroupEvents] = []
        events: list[Events] = []
        for start in records.of(RecordType.SAMPLE).tolist():
            size = int(records.words[start] >> np.uint64(48))
            raw = records.data[start * 8 + _RAW_OFFSET : start * 8 + size]
            tracepoint = self._by_id.get(int.from_bytes(raw[:2], "little"))
            if tracepoint is None:
                continue
            try:
                fields = tracepoint.read(raw)
            except struct.error:
                continue
            ids, time = int(records.words[start + 1]), int(records.words[start + 2])
            pid, tid = ids & 0xFFFFFFFF, ids >> 32
            if tracepoint.name in CGROUP_OPERATIONS:
                cgroups.append(_cgroup_row(tracepoint.name, fields, time, pid, name_of(pid, tid, time)))
            else:
                events.append(_timeout_row(fields, time))
        return cgroups, events


def _cgroup_row(name: str, fields: dict[str, int | str], time: int, pid: int, comm: str) -> CgroupEvents:
    return CgroupEvents(
        time=time,
        hierarchy=_number(fields, "root"),
        op=CGROUP_OPERATIONS[name],
        id=_number(fields, "id"),
        level=_number(fields, "level"),
        path=str(fields.get("path", "")),
        pid=pid,
        comm=comm,
    )


def _timeout_row(fields: dict[str, int | str], time: int) -> Events:
    device, queue = str(fields.get("name", "")), _number(fields, "queue_index")
    return Events(
        time=time,
        source="tracepoint",
        kind="nic-tx-timeout",
        severity="critical",
        text=f"{device} ({fields.get('driver', '?')}): transmit queue {queue} timed out",
        device=device,
        queue=queue,
    )


def _number(fields: dict[str, int | str], name: str) -> int:
    value = fields.get(name, 0)
    return value if isinstance(value, int) else 0


_PREFIX = "exhume-"
# A kernel buffer of this size a core holds about two thousand events; the kernel's own choice is 1.4 MiB.
_BUFFER_KB = 256
_CHUNK = 1 << 16
# The name may hold anything, also dashes; behind the last one is the thread. A thread group may follow in parentheses.
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
        try:
            self._instance.mkdir()
        except OSError as error:
            raise _unavailable(f"no tracing instance can be made ({error.strerror})") from error
        try:
            self._pipe = self._begin()
        except OSError as error:
            self._remove()
            raise _unavailable(f"the tracing instance can't be used ({error.strerror})") from error

    def _begin(self) -> int:
        (self._instance / "trace_clock").write_text("mono")
        (self._instance / "buffer_size_kb").write_text(str(_BUFFER_KB))
        pipe = os.open(self._instance / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            for event in CGROUP_OPERATIONS:
                (self._instance / "events/cgroup" / event / "enable").write_text("1")
        except OSError:
            os.close(pipe)
            raise
        return pipe

    def read(self, tick: Tick) -> TickRows:
        if tick.nanos <= 0:
            return NOTHING
        events, losses = parse_trace(self._drain())
        rows: dict[str, Columns] = {}
        if events:
            groups: dict[int, int] = {}
            for event in events:
                if event.pid is not None:
                    if event.pid not in groups:
                        groups[event.pid] = self._process_of(event.pid)
                    event.pid = groups[event.pid]
            events.sort(key=lambda event: event.time)
            rows["cgroup_events"] = to_columns("cgroup_events", events)
        if losses:
            text = "the tracing buffer was full: cgroup events were not written"
            rows["losses"] = to_columns(
                "losses", [Losses(tick.start, self.name, "lost-cgroup-events", n, text, cpu) for cpu, n in losses]
            )
        return rows

    def _drain(self) -> bytes:
        """All whole lines since the last time."""
        chunks = [self._rest]
        with contextlib.suppress(BlockingIOError):
            while chunk := os.read(self._pipe, _CHUNK):
                chunks.append(chunk)
        lines, newline, self._rest = b"".join(chunks).rpartition(b"\n")
        return lines + newline

    def _process_of(self, tid: int) -> int:
        """The process of a thread, which is all that the trace tells; the thread itself where it is gone."""
        try:
            status = (self._host.proc / str(tid) / "status").read_bytes()
        except OSError:
            return tid
        return next(iter(status_values(status, b"Tgid")), tid)

    def close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
            self._remove()

    def _remove(self) -> None:
        # What can't be removed now is removed by the next recorder.
        with contextlib.suppress(OSError):
            self._instance.rmdir()


def parse_trace(text: bytes) -> tuple[list[CgroupEvents], list[tuple[int, int]]]:
    """Cgroup events in the text of a trace pipe (with the thread for the pid), and what each core lost."""
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
                # What the kernel writes for a thread whose name it did not keep.
                comm=None if comm == "<...>" else comm,
            )
        )
    return events, losses


def remove_leftovers(instances: Path, host: Host) -> None:
    """Remove the instances of recorders that are gone. One that is in use refuses to be removed."""
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

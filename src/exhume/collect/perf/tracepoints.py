"""Tracepoints: the tracefs that describes them (mounted, or in a mount that only this process can see), the layout of
their records on this kernel, and the rows made from them."""

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
from exhume.model.errors import SourceUnavailable
from exhume.model.tables import NIC_TX_TIMEOUT, CgroupEvents, Events
from exhume.procfs.host import Host

_FSCONFIG_CMD_CREATE = 6
_CLOEXEC = 1


@cache
def _detached_mount() -> Path | None:
    """A detached mount of tracefs. It is shared, and stays until the process exits."""
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
    """The root of tracefs: its mount point, or else a detached mount of our own; None when neither is available.

    A detached mount is attached nowhere: nothing on the node changes, and it disappears with our file descriptor.
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
    """The position of a field in the raw record. Strings are stored elsewhere; the field then holds their position and
    length."""

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
    """The fields in a tracepoint's format file, without the common ones."""
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
    """Load a tracepoint by name; None when this kernel does not have it or we may not read it."""
    directory = tracefs / "events" / WANTED[name] / name
    try:
        number = int((directory / "id").read_text())
        return Tracepoint(name, number, parse_format((directory / "format").read_text()))
    except (OSError, ValueError):
        return None


def load_tracepoints(host: Host) -> list[Tracepoint]:
    """The recorded tracepoints that this kernel has and lets us read."""
    tracefs = find_tracefs(host)
    found = [load_tracepoint(tracefs, name) for name in WANTED] if tracefs else []
    return [tracepoint for tracepoint in found if tracepoint]


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
        kind=NIC_TX_TIMEOUT,
        severity="critical",
        text=f"{device} ({fields.get('driver', '?')}): transmit queue {queue} timed out",
        device=device,
        queue=queue,
    )


def _number(fields: dict[str, int | str], name: str) -> int:
    value = fields.get(name, 0)
    return value if isinstance(value, int) else 0

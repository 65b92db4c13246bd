"""Records as the kernel writes them into a ring, built field by field, and a ring to write them into."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from exhume.collect.perf.records import CONTEXT_KERNEL, CONTEXT_USER, RecordType

MISC_COMM_EXEC = 1 << 13


def record(kind: int, body: bytes, misc: int = 0) -> bytes:
    """A header, and the body filled up to a multiple of eight."""
    body += bytes(-len(body) % 8)
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def trailer(pid: int, tid: int, time: int, cpu: int = 0) -> bytes:
    return struct.pack("<IIQII", pid, tid, time, cpu, 0)


def padded(text: str | bytes) -> bytes:
    """A text as the kernel ends it: at least one zero, up to a multiple of eight."""
    raw = text.encode() if isinstance(text, str) else text
    return raw + bytes(8 - len(raw) % 8)


def fork(pid: int, parent: int, time: int, *, tid: int | None = None, parent_tid: int | None = None) -> bytes:
    tid, parent_tid = tid or pid, parent_tid or parent
    body = struct.pack("<IIIIQ", pid, parent, tid, parent_tid, time)
    return record(RecordType.FORK, body + trailer(parent, parent_tid, time))


def exits(pid: int, time: int, *, tid: int | None = None, parent: int = 1) -> bytes:
    body = struct.pack("<IIIIQ", pid, parent, tid or pid, parent, time)
    return record(RecordType.EXIT, body + trailer(pid, tid or pid, time))


def comm(pid: int, name: str | bytes, time: int, *, tid: int | None = None, execs: bool = False) -> bytes:
    body = struct.pack("<II", pid, tid or pid) + padded(name) + trailer(pid, tid or pid, time)
    return record(RecordType.COMM, body, MISC_COMM_EXEC if execs else 0)


def mmap2(
    pid: int, start: int, length: int, path: str, time: int, *, offset: int = 0, inode: int = 7, minor: int = 1
) -> bytes:
    """An executable mapping."""
    body = struct.pack("<IIQQQIIQQII", pid, pid, start, length, offset, 8, minor, inode, 1, 5, 2)
    return record(RecordType.MMAP2, body + padded(path) + trailer(pid, pid, time))


def sample(
    pid: int,
    time: int,
    *,
    kernel: Sequence[int] = (),
    user: Sequence[int] = (),
    tid: int | None = None,
    cpu: int = 0,
    chain: Sequence[int] | None = None,
    claims: int | None = None,
) -> bytes:
    """A stack sample, leaf first. `chain` is the callchain word by word; `claims` a count that need not be true."""
    if chain is None:
        chain = [*((CONTEXT_KERNEL, *kernel) if kernel else ()), *((CONTEXT_USER, *user) if user else ())]
    number = tid if tid is not None else pid
    body = struct.pack("<IIQIIQ", pid, number, time, cpu, 0, len(chain) if claims is None else claims)
    return record(RecordType.SAMPLE, body + struct.pack(f"<{len(chain)}Q", *chain))


def lost(count: int, time: int = 0, *, identified: bool = False) -> bytes:
    """The kernel could not write `count` records; events with `sample_id_all` add a trailer."""
    return record(RecordType.LOST, struct.pack("<QQ", 1, count) + (trailer(0, 0, time) if identified else b""))


def lost_samples(count: int) -> bytes:
    return record(RecordType.LOST_SAMPLES, struct.pack("<Q", count))


def throttle(time: int) -> bytes:
    return record(RecordType.THROTTLE, struct.pack("<QQQ", time, 1, 1))


def ksymbol(start: int, length: int, name: str, time: int) -> bytes:
    """Code that came to the kernel or left it."""
    body = struct.pack("<QIHH", start, length, 1, 0) + padded(name)
    return record(RecordType.KSYMBOL, body + trailer(1, 1, time))


def tracepoint(raw: bytes, pid: int, time: int, *, tid: int | None = None, cpu: int = 0) -> bytes:
    """A tracepoint's hit; the kernel fills the raw part up so that the record ends on a multiple of eight."""
    raw += bytes(-(len(raw) + 4) % 8)
    body = struct.pack("<IIQIII", pid, tid or pid, time, cpu, 0, len(raw))
    return record(RecordType.SAMPLE, body + raw)


def cgroup_raw(number: int, root: int, level: int, identity: int, path: str) -> bytes:
    """The raw part of a cgroup tracepoint, with the fields where newer kernels have them."""
    text = path.encode() + b"\0"
    place = 28
    return struct.pack("<HBBi iiQI", number, 0, 0, 1, root, level, identity, (len(text) << 16) | place) + text


@dataclass
class SimulatedRing:
    """What the kernel does to a ring: writes whole records while there is room, counts those for which there is
    none, and reports how many as soon as there is room. `content` is all that it ever held, its own records of
    losses included."""

    size: int
    position: int = 0
    data: bytearray = field(init=False)
    head: int = field(init=False)
    tail: int = field(init=False)
    unwritten: int = 0
    refused: int = 0
    accepted: list[bytes] = field(default_factory=list)
    content: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.data = bytearray(b"\xee" * self.size)
        self.head = self.tail = self.position

    def write(self, *records: bytes) -> None:
        for each in records:
            reported = lost(self.unwritten) if self.unwritten else b""
            if self.head - self.tail + len(reported) + len(each) > self.size:
                self.unwritten += 1
                self.refused += 1
                continue
            self.unwritten = 0
            self.accepted.append(each)
            self.content += [reported, each] if reported else [each]
            self._put(reported + each)

    def _put(self, content: bytes) -> None:
        for byte in content:
            self.data[self.head % self.size] = byte
            self.head += 1

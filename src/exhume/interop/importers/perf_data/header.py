"""Parse the header of a perf.data file: its events, the features that describe the machine, and the location of the
records.

tools/perf/Documentation/perf.data-file-format.txt; tools/perf/util/header.h, enum HEADER_*; struct perf_event_attr of
include/uapi/linux/perf_event.h.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

from exhume.collect.perf.attr import SW_DUMMY, EventType, Flag, SampleType
from exhume.interop.importers.form import Unreadable

MAGIC, FOREIGN_MAGIC, OLD_MAGIC = b"PERFILE2", b"2ELIFREP", b"PERFFILE"
_FILE_HEADER = struct.Struct("<8sQQQQQQQQ4Q")
PIPE_HEADER_BYTES = 16
_SECTION = struct.Struct("<QQ")
_BUILD_ID_HEAD = struct.Struct("<IHHi24s")
# Upper bounds that no header of a real machine exceeds.
_MAX_EVENTS = 4096
_MAX_FEATURE_BYTES = 64 << 20
_MAX_ATTR_BYTES = 4096
# struct perf_event_attr up to and including clockid; PERF_ATTR_SIZE_VER0 is 64 bytes.
_ATTR = struct.Struct("<IIQQQQQ")
_LEAST_ATTR_BYTES = 64

Read = Callable[[int, int], bytes]


class Feature(IntEnum):
    BUILD_ID = 2
    HOSTNAME = 3
    OSRELEASE = 4
    ARCH = 6
    NRCPUS = 7
    EVENT_DESC = 12
    SAMPLE_TIME = 21
    DIR_FORMAT = 24
    CLOCK_DATA = 29


_SOFTWARE = {
    **{0: "cpu-clock", 1: "task-clock", 2: "page-faults", 3: "context-switches", 4: "cpu-migrations"},
    **{5: "minor-faults", 6: "major-faults", 9: "dummy", 10: "bpf-output", 11: "cgroup-switches"},
}
_HARDWARE = {
    **{0: "cycles", 1: "instructions", 2: "cache-references", 3: "cache-misses", 4: "branches"},
    **{5: "branch-misses", 6: "bus-cycles", 7: "stalled-cycles-frontend", 8: "stalled-cycles-backend", 9: "ref-cycles"},
}
_NAMES = {EventType.SOFTWARE: _SOFTWARE, EventType.HARDWARE: _HARDWARE}


@dataclass(slots=True)
class Event:
    """An event that was recorded. `rate_hz` is 0 if it has a fixed period."""

    kind: int
    config: int
    sample_period: int
    sample_type: SampleType
    read_format: int
    flags: int
    ids: list[int] = field(default_factory=list)
    label: str = ""

    @property
    def rate_hz(self) -> int:
        return self.sample_period if self.flags & Flag.FREQ else 0

    @property
    def sample_id_all(self) -> bool:
        return bool(self.flags & Flag.SAMPLE_ID_ALL)

    @property
    def counts_nanoseconds(self) -> bool:
        """Whether periods are nanoseconds of CPU time."""
        return self.kind == EventType.SOFTWARE and self.config in (0, 1)

    @property
    def counts_cpu_time(self) -> bool:
        """Whether a sample stands for CPU time: clocks and cycles of any PMU."""
        if self.counts_nanoseconds or (self.kind == EventType.HARDWARE and self.config & 0xFF in (0, 9)):
            return True
        return self.name.split(":")[0].split("/")[-2 if "/" in self.name else 0] in ("cycles", "cpu-cycles")

    @property
    def is_dummy(self) -> bool:
        """Whether the event only carries side-band records (tools/perf/util/evlist.c, evlist__add_dummy)."""
        return self.kind == EventType.SOFTWARE and self.config == SW_DUMMY

    @property
    def name(self) -> str:
        if self.label:
            return self.label
        known = _NAMES[EventType(self.kind)] if self.kind in _NAMES else {}
        return known.get(self.config & 0xFF, f"event {self.kind}:{self.config:#x}")


@dataclass(slots=True)
class BuildId:
    """The build id of a mapped file."""

    path: str
    build_id: bytes
    kernel: bool


@dataclass(slots=True)
class Header:
    """What is known about a recording before its records, or in pipe mode from some of them. `clock` is the pair of its
    clock's time and wall time at one moment, `data` where the records begin and end (no end in pipe mode)."""

    events: list[Event] = field(default_factory=list)
    data: tuple[int, int | None] = (PIPE_HEADER_BYTES, None)
    hostname: str = ""
    release: str = ""
    arch: str = ""
    cores: int = 0
    clock: tuple[int, int] | None = None
    first_time: int = 0
    last_time: int = 0
    build_ids: list[BuildId] = field(default_factory=list)
    # perf record --threads: the records of each thread are in a file of their own, next to the header's file.
    is_directory: bool = False
    # Features that could not be decoded.
    malformed: list[str] = field(default_factory=list)

    @property
    def is_pipe(self) -> bool:
        return self.data[1] is None

    def add_feature(self, number: int, content: bytes) -> None:
        """Take in one feature; if it makes no sense, add its name to `malformed`."""
        try:
            self._take(number, content)
        except (struct.error, ValueError, IndexError, OverflowError) as error:
            self.malformed.append(f"header feature {number}: {error}")

    def _take(self, number: int, content: bytes) -> None:
        if number == Feature.HOSTNAME:
            self.hostname = _string(content, 0)[0]
        elif number == Feature.OSRELEASE:
            self.release = _string(content, 0)[0]
        elif number == Feature.ARCH:
            self.arch = _string(content, 0)[0]
        elif number == Feature.NRCPUS:
            self.cores = min(struct.unpack_from("<I", content)[0], 1 << 16)
        elif number == Feature.SAMPLE_TIME:
            self.first_time, self.last_time = struct.unpack_from("<QQ", content)
        elif number == Feature.CLOCK_DATA:
            version, _, wall, clock = struct.unpack_from("<IIQQ", content)
            if version == 1 and max(wall, clock) < 1 << 63:
                self.clock = clock, wall
        elif number == Feature.BUILD_ID:
            self.build_ids += _build_ids(content)
        elif number == Feature.EVENT_DESC:
            self._name_events(content)
        elif number == Feature.DIR_FORMAT:
            # tools/perf/util/data.h, PERF_DIR_VERSION.
            if struct.unpack_from("<Q", content)[0] != 1:
                raise Unreadable("a directory of perf record --threads in a newer form; convert it with perf script")
            self.is_directory = True

    def _name_events(self, content: bytes) -> None:
        count, size = struct.unpack_from("<II", content)
        at = 8
        by_id = {number: event for event in self.events for number in event.ids}
        for place in range(min(count, _MAX_EVENTS)):
            described = parse_attr(content[at : at + size])
            (ids,) = struct.unpack_from("<I", content, at + size)
            label, at = _string(content, at + size + 4)
            numbers = struct.unpack_from(f"<{min(ids, len(content))}Q", content, at)
            at += 8 * ids
            found = next((by_id[number] for number in numbers if number in by_id), None)
            if found is None and place < len(self.events) and self.events[place].sample_type == described.sample_type:
                found = self.events[place]
            if found is not None:
                found.label = label
                found.ids = found.ids or list(numbers)


def parse_attr(content: bytes) -> Event:
    """Parse a perf_event_attr of any size that a kernel had. Raises struct.error if it is truncated."""
    if len(content) < _LEAST_ATTR_BYTES:
        raise struct.error("an event's attributes are cut off")
    kind, _, config, period, sample_type, read_format, flags = _ATTR.unpack_from(content)
    return Event(kind, config, period, SampleType(sample_type), read_format, flags)


def read_header(read: Read, size: int) -> Header:
    """Read the header of a file through `read(offset, size)`, which returns bytes. Raises Unreadable."""
    start = read(0, _FILE_HEADER.size)
    magic, header_bytes = start[:8], int.from_bytes(start[8:16], "little")
    if magic == FOREIGN_MAGIC:
        raise Unreadable("recorded on a machine of the other byte order; convert it there with perf script")
    if magic == OLD_MAGIC:
        raise Unreadable("written by perf before Linux 2.6.39; convert it with perf script")
    if magic != MAGIC:
        raise Unreadable("not a perf.data file")
    if header_bytes == PIPE_HEADER_BYTES:
        return Header()
    if len(start) < _FILE_HEADER.size:
        raise Unreadable("cut off in its header")
    _, _, attr_bytes, attrs_at, attrs_size, data_at, data_size, _, _, *flags = _FILE_HEADER.unpack(start)
    if not _LEAST_ATTR_BYTES + 16 <= attr_bytes <= _MAX_ATTR_BYTES or attrs_size // attr_bytes > _MAX_EVENTS:
        raise Unreadable("damaged: the header's events have an impossible size")
    header = Header(data=(data_at, min(data_at + data_size, size) if data_size else size))
    attrs = read(attrs_at, min(attrs_size, _MAX_EVENTS * _MAX_ATTR_BYTES))
    for at in range(0, len(attrs) - attr_bytes + 1, attr_bytes):
        event = parse_attr(attrs[at : at + attr_bytes - 16])
        ids_at, ids_size = _SECTION.unpack_from(attrs, at + attr_bytes - 16)
        content = read(ids_at, min(ids_size, 1 << 20))
        event.ids = list(struct.unpack(f"<{len(content) // 8}Q", content[: len(content) // 8 * 8]))
        header.events.append(event)
    if data_size:
        _read_features(header, read, data_at + data_size, sum(word << 64 * place for place, word in enumerate(flags)))
    else:
        header.malformed.append("perf did not end properly: the header has neither features nor a length")
    return header


def _read_features(header: Header, read: Read, at: int, bits: int) -> None:
    for number in range(256):
        if not bits >> number & 1:
            continue
        section = read(at, _SECTION.size)
        at += _SECTION.size
        if len(section) < _SECTION.size:
            header.malformed.append("the header's features are cut off")
            return
        offset, length = _SECTION.unpack(section)
        if number in set(Feature):
            header.add_feature(number, read(offset, min(length, _MAX_FEATURE_BYTES)))


def _string(content: bytes, at: int) -> tuple[str, int]:
    """A length-prefixed text, and the offset of its end."""
    (length,) = struct.unpack_from("<I", content, at)
    if length > len(content):
        raise ValueError("a text longer than its section")
    text = content[at + 4 : at + 4 + length].split(b"\0", 1)[0]
    return text.decode("utf-8", "replace"), at + 4 + length


_MISC_KERNEL, _MISC_SIZE, _CPUMODE = 1, 1 << 15, 7


def _build_ids(content: bytes) -> list[BuildId]:
    found: list[BuildId] = []
    at = 0
    while at + _BUILD_ID_HEAD.size <= len(content):
        _, misc, size, _, raw = _BUILD_ID_HEAD.unpack_from(content, at)
        if size < _BUILD_ID_HEAD.size:
            raise ValueError("a build id of an impossible size")
        found.append(build_id_record(misc, raw, content[at + _BUILD_ID_HEAD.size : at + size]))
        at += size
    return found


def build_id_record(misc: int, raw: bytes, path: bytes) -> BuildId:
    """Parse an entry of the build-id table, or a BUILD_ID record of pipe mode."""
    length = min(raw[20], 20) if misc & _MISC_SIZE else 20
    text = path.split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
    return BuildId(text, raw[:length], misc & _CPUMODE == _MISC_KERNEL)

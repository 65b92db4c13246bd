"""Decode the records of a perf.data file in blocks of whole records, many at a time, with numpy.

tools/perf/util/event.h, enum perf_user_event_type: the records that perf adds to the kernel's; tools/perf/util/zstd.c
for compressed records: a single zstd frame spans all of them, is flushed after each one and never ended.
"""

import io
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import count
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow._compute import call_function

from exhume.collect.perf.attr import SampleType
from exhume.collect.perf.records import CONTEXT_KERNEL, CONTEXT_USER, LOW, Unique
from exhume.interop.importers.form import I64Array, U64Array
from exhume.interop.importers.perf_data.header import Event

_BLOCK = 4 << 20
_DECOMPRESSED, _PIECES = 64 << 10, 16
# The size field of a record has 16 bits.
_MOST_RECORD = 1 << 16
_HEAD = struct.Struct("<IHH")
_HALF = np.uint64(32)
_SIZE_SHIFT = np.uint64(51)
_MISC = np.uint64(0xFFFF)
_CPUMODE = np.uint64(7)
_USER_MODE = 2
# An empty raw block that ends a zstd frame (RFC 8878, 3.1.1.2).
_ZSTD_END = b"\x01\x00\x00"
# Maximum number of records whose size isn't a multiple of 8 bytes: each has to be walked separately.
_MOST_ODD = 1024
_LOST_TRACK = "damaged: a record of an impossible size, and nothing says where the next one begins"
# Times from here up are damage: a century of nanoseconds.
TIME_LIMIT = 1 << 62
_numbers = count(1)
LeaveOut = Callable[[str, int | None, int], None]


class Kind(IntEnum):
    MMAP = 1
    LOST = 2
    COMM = 3
    EXIT = 4
    FORK = 7
    SAMPLE = 9
    MMAP2 = 10
    LOST_SAMPLES = 13
    HEADER_ATTR = 64
    TRACING_DATA = 66
    BUILD_ID = 67
    FINISHED_ROUND = 68
    AUXTRACE = 71
    EVENT_UPDATE = 78
    HEADER_FEATURE = 80
    COMPRESSED = 81
    COMPRESSED2 = 83


# Known, but not used here: throttling, reads, AUX data, switches, namespaces, symbols of BPF, cgroups, text pokes; and
# perf's own records: indexes, thread and CPU maps, statistics, time conversions, the end of synthesized records.
_IGNORED = (*(5, 6, 8, 11, 12), *range(14, 22), *(65, 69, 70, 72), *range(73, 78), 79, 82)
_KNOWN = np.zeros(256, np.bool_)
_KNOWN[[*_IGNORED, *Kind]] = True
# Records that are followed by more bytes, or that have to be unpacked.
_SPECIAL = (Kind.TRACING_DATA, Kind.AUXTRACE, Kind.COMPRESSED, Kind.COMPRESSED2)
_COMPRESSED = (Kind.COMPRESSED, Kind.COMPRESSED2)
# The minimum size in words of the records that are read, without their trailer.
_LEAST_WORDS = np.ones(256, np.int64)
for _kind, _words in {
    **{Kind.MMAP: 5, Kind.LOST: 3, Kind.COMM: 2, Kind.EXIT: 4, Kind.FORK: 4, Kind.SAMPLE: 2},
    **{Kind.MMAP2: 9, Kind.LOST_SAMPLES: 2, Kind.HEADER_ATTR: 9, Kind.BUILD_ID: 5},
    **{Kind.EVENT_UPDATE: 3, Kind.HEADER_FEATURE: 2},
}.items():
    _LEAST_WORDS[_kind] = _words


@dataclass(frozen=True, slots=True)
class Block:
    """Whole records: their bytes, the offset (in 64-bit words) and the type of each. `rounds` counts approximately how
    often perf had been through all of its buffers. Block numbers increase."""

    data: bytes
    words: U64Array
    starts: I64Array
    types: npt.NDArray[np.uint32]
    rounds: int
    number: int = 0

    def of(self, kind: int) -> I64Array:
        chosen: I64Array = self.starts[self.types == kind]
        return chosen

    def sizes(self, at: I64Array) -> I64Array:
        """The sizes of some records in words."""
        return (self.words[at] >> _SIZE_SHIFT).astype(np.int64)

    def misc(self, at: I64Array) -> U64Array:
        return (self.words[at] >> _HALF) & _MISC

    def order(self, at: I64Array) -> I64Array:
        """Numbers that sort records in file order."""
        return at + (self.number << 32)

    def low(self, at: I64Array, word: int = 1) -> I64Array:
        """The lower half of a word of some records."""
        return (self.words[at + word] & LOW).astype(np.uint32).view(np.int32).astype(np.int64)

    def high(self, at: I64Array, word: int = 1) -> I64Array:
        return (self.words[at + word] >> _HALF).astype(np.uint32).view(np.int32).astype(np.int64)


class RecordReader:
    """Reads the records of one file, from the first on. Whatever can't be decoded goes to `leave_out`: reason, offset,
    count."""

    def __init__(self, file: IO[bytes], start: int, end: int | None, leave_out: LeaveOut) -> None:
        self._file = file
        self._end = end
        self._leave_out = leave_out
        #: How far the file was read.
        self.at = start
        self.compressed = False

    def read(self, size: int) -> bytes:
        """Read the next bytes of the records."""
        if self._end is not None:
            size = min(size, self._end - self.at)
        content = self._file.read(size) if size > 0 else b""
        self.at += len(content)
        return content

    def blocks(self) -> Iterator[Block]:
        """Yield the records in file order, including compressed ones."""
        rest = b""
        odd = 0
        while content := self.read(_BLOCK):
            rest += content
            while True:
                block, used, damaged = walk(rest, self._leave_out, self.at - len(rest))
                if block is not None:
                    yield block
                rest = rest[used:]
                if damaged or odd > _MOST_ODD:
                    self._leave_out(_LOST_TRACK, self.at - len(rest), 1)
                    return
                kind, _, size = _HEAD.unpack_from(rest) if len(rest) >= _HEAD.size else (0, 0, 0)
                if kind in _COMPRESSED:
                    self.compressed = True
                    yield from self._unpacked(rest)
                    return
                if kind in _SPECIAL:
                    rest = self._skip(rest)
                elif size & 7 and size <= len(rest):
                    # Features in pipe mode (tools/perf/util/header.c, perf_event__synthesize_features).
                    odd += 1
                    block, _, _ = walk(_padded(rest[:size]), self._leave_out, self.at - len(rest))
                    if block is not None:
                        yield block
                    rest = rest[size:]
                else:
                    break
        if rest:
            self._leave_out("the last record is cut off", self.at - len(rest), 1)

    def _skip(self, rest: bytes) -> bytes:
        """Skip a record that is followed by data of its own; return what comes after."""
        while len(rest) < 24 and (more := self.read(_BLOCK)):
            rest += more
        if len(rest) < 24:
            return b""
        kind, _, size = _HEAD.unpack_from(rest)
        if kind == Kind.AUXTRACE:
            length = size + int.from_bytes(rest[8:16], "little")
            self._leave_out("data of AUX area tracing", self.at - len(rest), 1)
        else:
            length = size + (int.from_bytes(rest[8:12], "little") + 7 & ~7)
        while length > len(rest):
            length -= len(rest)
            rest = self.read(min(length, _BLOCK))
            if not rest:
                return b""
        return rest[max(length, 8) :]

    def _unpacked(self, begin: bytes) -> Iterator[Block]:
        """Yield everything from the first compressed record on: the contents of those, and the records between them."""
        source = _Payloads(self, begin)
        rest = b""
        with pa.CompressedInputStream(pa.PythonFile(source, "r"), "zstd") as stream:
            whole = damaged = False
            while not whole and not damaged:
                content, whole = self._decompressed(stream)
                rest += content
                block, used, damaged = walk(rest, self._leave_out, self.at)
                rest = rest[used:]
                damaged |= len(rest) > _MOST_RECORD
                plain = source.take_plain()
                between = walk(plain, self._leave_out, self.at)[0] if plain else None
                if block is not None and between is not None:
                    # They precede the end of the block, whose last records belong to the next round.
                    block = replace(block, rounds=block.rounds + between.rounds)
                    between = replace(between, rounds=0)
                yield from (each for each in (block, between) if each is not None)
            if damaged:
                self._leave_out(_LOST_TRACK, self.at, 1)
                return
        if rest:
            self._leave_out("the last record is cut off", self.at, 1)
        if source.cut_off:
            self._leave_out("the last compressed record is cut off", self.at, 1)

    def _decompressed(self, stream: IO[bytes]) -> tuple[bytes, bool]:
        """Return the next bytes of compressed records, and whether these are the last. A damaged place costs no more
        than one of the chunks."""
        pieces: list[bytes] = []
        try:
            while len(pieces) < _PIECES:
                piece = stream.read(_DECOMPRESSED)
                if not piece:
                    return b"".join(pieces), True
                pieces.append(piece)
        except (OSError, pa.ArrowException):
            self._leave_out("damaged compressed records", self.at, 1)
            return b"".join(pieces), True
        return b"".join(pieces), False


class _Payloads(io.RawIOBase):
    """A file view of the content of compressed records; the records between them are set aside."""

    def __init__(self, reader: RecordReader, begin: bytes) -> None:
        self._reader = reader
        self._buffer, self._at = begin, 0
        self._payload = memoryview(b"")
        self._plain: list[bytes] = []
        self._ended = False
        self.cut_off = False

    def readable(self) -> bool:
        return True

    def take_plain(self) -> bytes:
        plain, self._plain = b"".join(self._plain), []
        return plain

    def read(self, size: int = -1) -> bytes:
        if not self._payload and not self._ended:
            self._payload = self._next()
        part = bytes(self._payload if size < 0 else self._payload[:size])
        self._payload = self._payload[len(part) :]
        return part

    def _next(self) -> memoryview:
        while self._fill(_HEAD.size):
            kind, _, size = _HEAD.unpack_from(self._buffer, self._at)
            if size < _HEAD.size or not self._fill(size):
                self.cut_off = True
                break
            record = memoryview(self._buffer)[self._at : self._at + size]
            self._at += size
            if kind == Kind.COMPRESSED:
                return record[_HEAD.size :]
            if kind == Kind.COMPRESSED2:
                length = int.from_bytes(record[8:16], "little")
                return record[16 : 16 + length]
            if size % 8 == 0:
                self._plain.append(bytes(record))
        self._ended = True
        return memoryview(_ZSTD_END)

    def _fill(self, size: int) -> bool:
        while len(self._buffer) - self._at < size:
            more = self._reader.read(_BLOCK)
            if not more:
                return False
            self._buffer, self._at = self._buffer[self._at :] + more, 0
        return True


def _padded(record: bytes) -> bytes:
    """Pad a record to whole words."""
    size = len(record) + 7 & ~7
    return record[:6] + size.to_bytes(2, "little") + record[8:] + bytes(size - len(record))


def walk(content: bytes, leave_out: LeaveOut, offset: int) -> tuple[Block | None, int, bool]:
    """Walk the whole records at the beginning of some bytes, up to the first one that needs special handling. Returns
    them, the bytes they take, and whether what follows makes no sense. `offset` is where the bytes are in the file."""
    whole = len(content) & ~7
    halves = memoryview(content)[:whole].cast("H")
    last = whole >> 1
    places: list[int] = []
    at = 0
    # The only loop over all records; sizes are checked afterwards, on the array.
    while at + 4 <= last:
        places.append(at)
        at += (halves[at + 3] >> 1) or last
    if not places:
        return None, 0, False
    starts = np.array(places, np.int64)
    sizes = np.frombuffer(content, "<u2", whole >> 1)[starts + 3].astype(np.int64)
    types = np.frombuffer(content, "<u4", whole >> 2)[starts >> 1]
    special = np.isin(types, _SPECIAL)
    stops = np.flatnonzero((sizes < 8) | (sizes & 7 != 0) | special | (starts * 2 + sizes > whole))
    kept = int(stops[0]) if len(stops) else len(starts)
    damaged = bool(len(stops) and sizes[kept] < 8 and not special[kept])
    used = int(starts[kept] * 2) if len(stops) else whole
    starts, sizes, types = starts[:kept], sizes[:kept], types[:kept]
    if not kept:
        return None, used, damaged
    small = np.minimum(types, 255)
    if not _KNOWN[small].all():
        for kind, number in Counter(types[~_KNOWN[small]].tolist()).items():
            first = int(starts[np.flatnonzero(types == kind)[0]]) * 2
            leave_out(f"records of the unknown type {kind}", offset + first, number)
    short = (sizes >> 3) < _LEAST_WORDS[small]
    if short.any():
        leave_out("records too short for their type", offset + int(starts[short][0]) * 2, int(short.sum()))
        starts, types = starts[~short], types[~short]
    words = np.frombuffer(content, "<u8", whole >> 3)
    rounds = int(np.count_nonzero(types == Kind.FINISHED_ROUND))
    return Block(content, words, starts >> 2, types.astype(np.uint32), rounds, next(_numbers)), used, damaged


_TRAILER = (
    SampleType.TID,
    SampleType.TIME,
    SampleType.ID,
    SampleType.STREAM_ID,
    SampleType.CPU,
    SampleType.IDENTIFIER,
)
_BEFORE_READ = (
    *(SampleType.IDENTIFIER, SampleType.IP, SampleType.TID, SampleType.TIME, SampleType.ADDR),
    *(SampleType.ID, SampleType.STREAM_ID, SampleType.CPU, SampleType.PERIOD),
)
# PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING, PERF_FORMAT_ID, _GROUP and _LOST.
_FORMAT_TIMES, _FORMAT_ID, _FORMAT_GROUP, _FORMAT_LOST = (1, 2), 4, 8, 16


class Layout:
    """The positions of fields in samples, and in the trailer of other records, for events of one sample type."""

    def __init__(self, event: Event) -> None:
        self._type = event.sample_type
        self._format = event.read_format
        self.has_time = SampleType.TIME in self._type
        self.has_cpu = SampleType.CPU in self._type
        self.has_chain = SampleType.CALLCHAIN in self._type
        fields = [name for name in _BEFORE_READ if name in self._type]
        #: The position of each fixed field of a sample, in words from the start of the record.
        self.places = {name: place + 1 for place, name in enumerate(fields)}
        self._behind = len(fields) + 1
        trailer = [name for name in _TRAILER if name in self._type] if event.sample_id_all else []
        self._back = {name: len(trailer) - place for place, name in enumerate(trailer)}
        self.trailer_words = len(trailer)

    def word(self, block: Block, at: I64Array, name: SampleType) -> U64Array | None:
        """A field of some samples, which must be long enough; None if the event doesn't have it."""
        place = self.places.get(name)
        return None if place is None else block.words[at + place]

    def least_words(self) -> int:
        return self._behind + (1 if self.has_chain else 0)

    def trailer(self, block: Block, at: I64Array, name: SampleType) -> U64Array | None:
        """A trailer field of some non-sample records; zero if the record is too short to have one."""
        if name not in self._back:
            return None
        there = block.sizes(at) > self.trailer_words
        return np.where(there, block.words[self.trailer_place(block, at, name)], np.uint64(0))

    def trailer_place(self, block: Block, at: I64Array, name: SampleType) -> I64Array:
        """The position of a trailer field of some non-sample records, in words; arbitrary for records without one."""
        return at + np.maximum(block.sizes(at) - self._back[name], 0)

    def chains(self, block: Block, at: I64Array) -> tuple[I64Array, I64Array, npt.NDArray[np.bool_]]:
        """Where the callchains of some samples begin (in words), how long they are, and which are valid."""
        sizes = block.sizes(at)
        place = np.full(len(at), self._behind, np.int64)
        sound = np.ones(len(at), np.bool_)
        if SampleType.READ in self._type:
            times = sum(1 for bit in _FORMAT_TIMES if self._format & bit)
            each = 1 + bool(self._format & _FORMAT_ID) + bool(self._format & _FORMAT_LOST)
            if self._format & _FORMAT_GROUP:
                sound = place < sizes
                count = block.words[at + np.minimum(place, sizes - 1)]
                sound &= count < np.uint64(1 << 16)
                place = place + 1 + times + np.where(sound, count, np.uint64(0)).astype(np.int64) * each
            else:
                place = place + each + times
        sound &= place < sizes
        length = np.minimum(block.words[at + np.minimum(place, sizes - 1)], np.uint64(1 << 20)).astype(np.int64)
        sound &= place + 1 + length <= sizes
        return at + place + 1, np.where(sound, length, 0), sound


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples in columns, with their callchains concatenated in `addresses`, as in the recorder's sampler."""

    time: U64Array
    cpu: I64Array
    pid: I64Array
    tid: I64Array
    period: U64Array
    addresses: U64Array
    first: I64Array
    depth: I64Array

    def __len__(self) -> int:
        return len(self.time)

    def select(self, chosen: I64Array) -> "Samples":
        """Select some of the samples, in that order."""
        depth = self.depth[chosen]
        return Samples(
            *(self.time[chosen], self.cpu[chosen], self.pid[chosen], self.tid[chosen], self.period[chosen]),
            *(self.addresses[ragged(self.first[chosen], depth)], np.cumsum(depth) - depth, depth),
        )


@dataclass(frozen=True, slots=True)
class Chains:
    """Concatenated parts of callchains, each with a key that is the same for equal parts."""

    addresses: U64Array
    first: I64Array
    depth: I64Array
    keys: U64Array

    def __len__(self) -> int:
        return len(self.first)

    def select(self, chosen: I64Array) -> "Chains":
        depth = self.depth[chosen]
        addresses = self.addresses[ragged(self.first[chosen], depth)]
        return Chains(addresses, np.cumsum(depth) - depth, depth, self.keys[chosen])


_HELD = ("time", "cpu", "pid", "tid", "period", "head", "tail")


@dataclass(frozen=True, slots=True)
class HeldSamples:
    """Samples that are held until all records of their time are there. `head` is the number assigned to the kernel part
    of each stack; `tail` is the user part, as an index into `tails`, or -1."""

    time: U64Array
    cpu: I64Array
    pid: I64Array
    tid: I64Array
    period: U64Array
    head: I64Array
    tail: I64Array
    tails: Chains

    def __len__(self) -> int:
        return len(self.time)

    def select(self, chosen: I64Array | npt.NDArray[np.bool_]) -> "HeldSamples":
        """Select some of the samples, in that order."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in _HELD})

    @classmethod
    def concatenate(cls, parts: "list[HeldSamples]") -> "HeldSamples":
        if len(parts) == 1:
            return parts[0]
        rows = np.cumsum([0, *(len(part.tails) for part in parts)]).tolist()
        words = np.cumsum([0, *(len(part.tails.addresses) for part in parts)]).tolist()
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _HELD}
        shifts = np.repeat(rows[:-1], [len(part) for part in parts])
        columns["tail"] = np.where(columns["tail"] < 0, -1, columns["tail"] + shifts)
        tails = Chains(
            np.concatenate([part.tails.addresses for part in parts]),
            np.concatenate([part.tails.first + word for part, word in zip(parts, words[:-1], strict=True)]),
            np.concatenate([part.tails.depth for part in parts]),
            np.concatenate([part.tails.keys for part in parts]),
        )
        return cls(**columns, tails=tails)


def ragged(first: I64Array, depth: I64Array) -> I64Array:
    """Concatenated indices of rows with different lengths."""
    return np.repeat(first - (np.cumsum(depth) - depth), depth) + np.arange(int(depth.sum()), dtype=np.int64)


def distinct(values: U64Array) -> Unique:
    """The distinct values of an array in order of first occurrence, by hashing: several times as fast as sorting if
    most values repeat."""
    whole = pa.Array.from_buffers(pa.uint64(), len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])
    encoded = call_function("dictionary_encode", [whole])
    which = encoded.indices.to_numpy().astype(np.int64)
    index = np.empty(len(encoded.dictionary), np.int64)
    index[which[::-1]] = np.arange(len(values) - 1, -1, -1)
    return Unique(encoded.dictionary.to_numpy(), index, which)


def decode_samples(block: Block, at: I64Array, layout: Layout) -> tuple[Samples, int]:
    """Decode some samples, which are long enough for their fields; also return how many were damaged otherwise and left
    out."""
    damaged = 0
    if layout.has_chain:
        begin, depth, sound = layout.chains(block, at)
        damaged = int(np.count_nonzero(~sound))
        at, begin, depth = at[sound], begin[sound], depth[sound]
    else:
        begin, depth = at, np.zeros(len(at), np.int64)
    first = np.cumsum(depth) - depth
    addresses = block.words[ragged(begin, depth)]
    bare = np.flatnonzero(depth == 0)
    ip = layout.word(block, at, SampleType.IP)
    if len(bare) and ip is not None:
        # Only the sampled instruction, without a callchain.
        user = (block.misc(at[bare]) & _CPUMODE) == _USER_MODE
        markers = np.where(user, np.uint64(CONTEXT_USER), np.uint64(CONTEXT_KERNEL))
        pairs = np.stack([markers, ip[bare]], axis=1).ravel()
        addresses, first, depth = _with_ips(pairs, bare, addresses, depth)
    ids = layout.word(block, at, SampleType.TID)
    ids = np.full(len(at), 2**64 - 1, np.uint64) if ids is None else ids
    cpu = layout.word(block, at, SampleType.CPU)
    time = layout.word(block, at, SampleType.TIME)
    period = layout.word(block, at, SampleType.PERIOD)
    nothing = np.zeros(len(at), np.uint64)
    found = Samples(
        nothing if time is None else time,
        np.zeros(len(at), np.int64) if cpu is None else (cpu & np.uint64(0xFFFF)).astype(np.int64),
        (ids & LOW).astype(np.uint32).view(np.int32).astype(np.int64),
        (ids >> _HALF).astype(np.uint32).view(np.int32).astype(np.int64),
        nothing if period is None else period,
        addresses,
        first,
        depth,
    )
    return found, damaged


def _with_ips(
    pairs: U64Array, bare: I64Array, addresses: U64Array, depth: I64Array
) -> tuple[U64Array, I64Array, I64Array]:
    """Fill empty callchains with a context marker and an address."""
    places = np.repeat((np.cumsum(depth) - depth)[bare], 2)
    longer = depth.copy()
    longer[bare] = 2
    return np.insert(addresses, places, pairs), np.cumsum(longer) - longer, longer

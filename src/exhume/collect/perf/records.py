"""Records as the kernel lays them out in a ring (include/uapi/linux/perf_event.h, enum perf_event_type), decoded many
at a time with numpy.

Every record is a multiple of eight bytes: a header (u32 type, u16 misc, u16 size), then fields by type.
  sample        pid,tid u32 | time u64 | cpu,reserved u32 | n u64 | n addresses u64
  tracepoint    pid,tid u32 | time u64 | cpu,reserved u32 | size u32 | raw bytes
  all others    fields of the type, then a trailer: pid,tid u32 | time u64 | cpu,reserved u32
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

_Number = TypeVar("_Number", np.int32, np.int64, np.uint32, np.uint64)


class Unique(NamedTuple):
    """The distinct values in ascending order, where each first stands, and for every place which of them it holds."""

    values: npt.NDArray[np.uint64]
    first: npt.NDArray[np.int64]
    which: npt.NDArray[np.int64]


def unique(values: npt.NDArray[np.uint64]) -> Unique:
    """The distinct values of an array."""
    order, begins = _sorted_runs(values)
    which = np.empty(len(values), dtype=np.int64)
    which[order] = np.cumsum(begins) - 1
    first = order[begins]
    return Unique(values[first], first, which)


def group_indices(values: npt.NDArray[_Number]) -> list[npt.NDArray[np.int64]]:
    """Where each distinct value stands: one array of places a value, each in ascending order."""
    if not len(values):
        return []
    order, begins = _sorted_runs(values)
    return np.split(order, np.flatnonzero(begins)[1:])


def isin(values: npt.NDArray[_Number], chosen: Collection[int]) -> npt.NDArray[np.bool_]:
    """Which of the values are among the chosen ones."""
    if not chosen:
        return np.zeros(len(values), dtype=np.bool_)
    table = np.fromiter(chosen, dtype=np.uint64, count=len(chosen))
    table.sort()
    at = np.minimum(np.searchsorted(table, values), len(table) - 1)
    found: npt.NDArray[np.bool_] = table[at] == values
    return found


def _sorted_runs(values: npt.NDArray[_Number]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The stable order that sorts the values, and where in it a new value begins."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begins = np.ones(len(values), dtype=np.bool_)
    begins[1:] = ordered[1:] != ordered[:-1]
    return order, begins


U64Array = npt.NDArray[np.uint64]
I64Array = npt.NDArray[np.int64]
LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
# A header's highest 16 bits are the size in bytes: this leaves it in 64-bit words.
_SIZE_SHIFT = np.uint64(51)
MISC_COMM_EXEC = 1 << 13
_EXEC = np.uint64(MISC_COMM_EXEC << 32)


class RecordType(IntEnum):
    LOST = 2
    COMM = 3
    EXIT = 4
    THROTTLE = 5
    UNTHROTTLE = 6
    FORK = 7
    SAMPLE = 9
    MMAP2 = 10
    LOST_SAMPLES = 13
    KSYMBOL = 17


# Values from here up in a callchain are no addresses: they say whether kernel or user addresses follow.
CONTEXT_FIRST = np.uint64(2**64 - 4095)
CONTEXT_KERNEL = 2**64 - 128
CONTEXT_USER = 2**64 - 512

SAMPLE_WORDS = 5
TRAILER_BYTES = 24

# The least size in words of a record of each type, that its fields can be read. Types that are not read have none.
_LEAST_WORDS = np.zeros(32, dtype=np.uint64)
for _kind, _words in {
    RecordType.LOST: 3,
    RecordType.COMM: 6,
    RecordType.EXIT: 7,
    RecordType.FORK: 7,
    RecordType.SAMPLE: SAMPLE_WORDS,
    RecordType.MMAP2: 13,
    RecordType.LOST_SAMPLES: 2,
    RecordType.KSYMBOL: 7,
}.items():
    _LEAST_WORDS[_kind] = _words
_TASK_KINDS = np.array((RecordType.COMM, RecordType.EXIT, RecordType.FORK, RecordType.MMAP2), dtype=np.uint32)
# A header has none of these bits: the kernel knows fewer than 32 types of records.
_NO_HEADER = np.uint64(0xFFFFFFE0)
# Of fewer words the records are found as quickly one by one.
_FEW_WORDS = 4096
# No ring loses more in a tick than a column of a row can hold.
LOST_AT_MOST = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Records:
    """What was drained from one or more rings: the bytes end to end, where each record begins (in 64-bit words), and
    each one's type. `bounds` is where each ring's part begins, `damaged` how many bytes of each made no sense."""

    data: bytes
    words: U64Array
    starts: I64Array
    types: npt.NDArray[np.uint32]
    bounds: I64Array
    damaged: list[int]

    def of(self, kind: RecordType) -> I64Array:
        chosen: I64Array = self.starts[self.types == kind]
        return chosen

    def low(self, at: I64Array, word: int = 1) -> U64Array:
        """The lower half of a word of some records: the pid, in the first behind the header."""
        values: U64Array = self.words[at + word] & LOW
        return values

    def high(self, at: I64Array, word: int = 1) -> U64Array:
        """The upper half of a word: the parent of a FORK or EXIT, the thread of any other."""
        values: U64Array = self.words[at + word] >> _HALF
        return values

    def sizes(self, at: I64Array) -> I64Array:
        """The sizes of some records in 64-bit words."""
        return (self.words[at] >> _SIZE_SHIFT).astype(np.int64)

    def times(self, at: I64Array) -> U64Array:
        """The times in the trailers of some records, which must not be samples."""
        times: U64Array = self.words[at + self.sizes(at) - 2]
        return times

    def execs(self, at: I64Array) -> I64Array:
        """Those of some COMM records that an exec wrote."""
        chosen: I64Array = at[(self.words[at] & _EXEC) != 0]
        return chosen

    def without_foreign_tasks(self) -> "Records":
        """Without forks, execs, mappings and ends of processes that have no number here: those outside of the reader's
        pid namespace (kernel/events/core.c, perf_event_pid: 0 for all of them, or -1 at their end)."""
        tasks = np.isin(self.types, _TASK_KINDS)
        pids = self.low(self.starts[tasks])
        kept = np.ones(len(self.starts), dtype=np.bool_)
        kept[tasks] = (pids != 0) & (pids != LOW)
        return replace(self, starts=self.starts[kept], types=self.types[kept])

    def ring_of(self, starts: I64Array) -> npt.NDArray[np.intp]:
        """Which ring each of some records comes from."""
        return np.searchsorted(self.bounds, starts, side="right") - 1

    def per_ring(self, starts: I64Array, weights: npt.ArrayLike | None = None) -> list[int]:
        """How many of some records each ring has, or the sum of their weights."""
        if not len(starts):
            return [0] * len(self.bounds)
        counts = np.bincount(self.ring_of(starts), weights=weights, minlength=len(self.bounds))
        return [int(count) for count in counts]


def walk(*parts: bytes) -> Records:
    """Find the records in what was drained from some rings. One that claims an impossible size ends the walk of its
    ring; what remains there is counted as damaged, and so is a record that is too short for its type."""
    # A word more, that the size of a record can be looked up wherever an impossible size before it led.
    data = b"".join([*(part + bytes(-len(part) % 8) for part in parts), bytes(8)])
    words = np.frombuffer(data, dtype="<u8")[:-1]
    lengths_of = np.array([len(part) for part in parts], dtype=np.int64)
    padded = (lengths_of + 7) >> 3
    bounds = np.cumsum(padded) - padded
    ends = bounds + (lengths_of >> 3)
    places = np.concatenate(
        [
            np.zeros(0, np.int64),
            *(_ring_places(data, words, *ring) for ring in zip(bounds.tolist(), ends.tolist(), strict=True)),
        ]
    )
    sizes = np.frombuffer(data, dtype="<u2")[places + 3].astype(np.int64)
    ring = np.searchsorted(bounds, places >> 2, side="right") - 1
    impossible = (sizes < 8) | (sizes & 7 != 0) | (places * 2 + sizes > ends[ring] * 8)
    damaged = (lengths_of & 7).tolist()
    if impossible.any():
        kept = np.ones(len(places), dtype=np.bool_)
        for number in np.unique(ring[impossible]).tolist():
            first = int(np.flatnonzero(impossible & (ring == number))[0])
            kept[first:] &= ring[first:] != number
            damaged[number] = int(bounds[number] * 8 + lengths_of[number] - places[first] * 2)
        places = places[kept]
    at = places >> 2
    heads = words[at]
    types = (heads & LOW).astype(np.uint32)
    lengths = heads >> _SIZE_SHIFT
    short = lengths < _LEAST_WORDS[np.minimum(types, len(_LEAST_WORDS) - 1)]
    records = Records(data, words, at, types, bounds, damaged)
    if not short.any():
        return records
    too_short = records.per_ring(at[short], lengths[short] << np.uint64(3))
    damaged = [count + more for count, more in zip(damaged, too_short, strict=True)]
    return Records(data, words, at[~short], types[~short], bounds, damaged)


def _ring_places(data: bytes, words: U64Array, bound: int, end: int) -> I64Array:
    """Where the records of one ring are, in 16-bit units. Sizes are checked afterwards, by the array."""
    if end - bound > _FEW_WORDS:
        headers = _headers(words[bound:end])
        if headers is not None:
            return (headers + bound) << 2
    return np.fromiter(_places(memoryview(data).cast("H"), bound * 4, end * 4), np.int64)


def _headers(words: U64Array) -> I64Array | None:
    """The words of a ring that are headers of records, found by the array: those that look like one and that lie where
    the record before ends. None where they don't cover the ring without a gap: then it is walked."""
    alike = np.flatnonzero(words & _NO_HEADER == 0)
    sizes = (words[alike] >> _SIZE_SHIFT).astype(np.int64)
    alike, sizes = alike[sizes > 0], sizes[sizes > 0]
    if not len(alike) or alike[0] != 0:
        return None
    ends = alike + sizes
    apart = np.flatnonzero(alike[1:] != ends[:-1])
    if len(apart):
        # Words inside of a record that look like a header: few, as that takes a small number with a size above it.
        kept = np.ones(len(alike), dtype=np.bool_)
        following = 0
        for place in apart.tolist():
            if place < following:
                continue
            following = int(np.searchsorted(alike, ends[place]))
            kept[place + 1 : following] = False
        alike, ends = alike[kept], ends[kept]
        if not np.array_equal(alike[1:], ends[:-1]):
            return None
    return alike if ends[-1] == len(words) else None


def _places(halves: memoryview, at: int, last: int) -> Iterator[int]:
    """The same one by one: each record's place depends on the size of the one before it."""
    while at < last:
        yield at
        # None has the size 0: that ends the walk.
        at += (halves[at + 3] >> 1) or last


@dataclass(frozen=True, slots=True)
class RawSamples:
    """Samples column by column, their callchains laid end to end in `addresses`."""

    time: U64Array
    cpu: npt.NDArray[np.uint16]
    pid: npt.NDArray[np.int32]
    tid: npt.NDArray[np.int32]
    addresses: U64Array
    first: I64Array
    depth: I64Array

    def __len__(self) -> int:
        return len(self.time)

    def chain(self, index: int) -> U64Array:
        first = self.first[index]
        return self.addresses[first : first + self.depth[index]]


def decode_samples(records: Records) -> RawSamples:
    """All stack samples of a drain, but for those without a callchain or whose callchain runs past its record."""
    at = records.of(RecordType.SAMPLE)
    words = records.words
    sizes = records.sizes(at)
    # An absurd count must not wrap into a small one: clip before it becomes signed.
    depth = np.minimum(words[at + 4], np.uint64(1 << 20)).astype(np.int64)
    sound = (depth > 0) & (depth + SAMPLE_WORDS <= sizes)
    at, depth = at[sound], depth[sound]
    first = np.cumsum(depth) - depth
    total = int(depth.sum())
    gather = np.repeat(at + SAMPLE_WORDS - first, depth) + np.arange(total, dtype=np.int64)
    ids = words[at + 1]
    return RawSamples(
        time=words[at + 2],
        cpu=(words[at + 3] & np.uint64(0xFFFF)).astype(np.uint16),
        pid=(ids & LOW).astype(np.uint32).view(np.int32),
        tid=(ids >> _HALF).astype(np.uint32).view(np.int32),
        addresses=words[gather],
        first=first,
        depth=depth,
    )


def lost_counts(records: Records) -> list[int]:
    """How many records the kernel says it could not write, for each ring."""
    lost, also = records.of(RecordType.LOST), records.of(RecordType.LOST_SAMPLES)
    counts = records.per_ring(lost, records.words[lost + 2])
    more = records.per_ring(also, records.words[also + 1])
    return [min(count + other, LOST_AT_MOST) for count, other in zip(counts, more, strict=True)]


def throttled_while_busy(records: Records) -> list[int]:
    """How often the kernel held sampling back on a core that had work, for each ring.

    An idle core without a tick is throttled as a matter of course: the kernel counts samples per tick
    (kernel/events/core.c, __perf_event_account_interrupt) and resumes with the next tick, when there is work. That
    loses nothing but idle samples.
    """
    throttled = np.flatnonzero(records.types == RecordType.THROTTLE)
    if not len(throttled):
        return [0] * len(records.bounds)
    samples = np.flatnonzero(records.types == RecordType.SAMPLE)
    before = np.searchsorted(samples, throttled) - 1
    throttled, before = throttled[before >= 0], before[before >= 0]
    last = records.starts[samples[before]]
    same_ring = records.ring_of(last) == records.ring_of(records.starts[throttled])
    busy = records.low(last) != 0
    return records.per_ring(last[same_ring & busy])


_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)


def row_keys(parts: U64Array, first: I64Array, depth: I64Array, salt: U64Array) -> U64Array:
    """A 64-bit key per row of a ragged array: equal rows with equal salt have equal keys, others practically never.

    Each part is mixed with its place in the row and the results are summed, which numpy can do for all rows at once.
    No row may be empty. Rows that are equal but mean different things have another salt.
    """
    if not len(first):
        return np.zeros(0, dtype=np.uint64)
    place = np.arange(len(parts), dtype=np.int64) - np.repeat(first, depth)
    mixed = parts + (place.astype(np.uint64) + np.uint64(1)) * _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    mixed ^= mixed >> np.uint64(31)
    result: U64Array = (np.add.reduceat(mixed, first) + salt * _STEP) * _MIX_1
    return result ^ (result >> np.uint64(29))


def chain_keys(samples: RawSamples, parts: U64Array, salt: U64Array) -> U64Array:
    """A key per callchain; `parts` has one for each address."""
    return row_keys(parts, samples.first, samples.depth, salt)


def has_user_part(samples: RawSamples) -> npt.NDArray[np.bool_]:
    """Which samples were taken in a program, or on its behalf in the kernel."""
    if not len(samples):
        return np.zeros(0, dtype=np.bool_)
    result: npt.NDArray[np.bool_] = np.logical_or.reduceat(samples.addresses == np.uint64(CONTEXT_USER), samples.first)
    return result

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
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

_Number = TypeVar("_Number", np.int32, np.int64, np.uint32, np.uint64)


class Unique(NamedTuple):
    """The distinct values in ascending order, the position where each first occurs, and for every position the index of
    its value."""

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
    """The positions of each distinct value: one ascending array of positions per value."""
    if not len(values):
        return []
    order, begins = _sorted_runs(values)
    return np.split(order, np.flatnonzero(begins)[1:])


def runs_of(values: npt.NDArray[_Number]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where each run of equal values begins, and its length. The records of a process mostly follow one another, so
    runs are far fewer than records."""
    begins = np.ones(len(values), dtype=np.bool_)
    begins[1:] = values[1:] != values[:-1]
    first = begins.nonzero()[0]
    lengths = np.empty(len(first), dtype=np.int64)
    lengths[:-1] = first[1:] - first[:-1]
    lengths[-1:] = len(values) - first[-1:]
    return first, lengths


def isin(values: npt.NDArray[_Number], chosen: Collection[int] | npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """Which of the values are among the chosen ones; an array of these must be sorted."""
    if not len(chosen):
        return np.zeros(len(values), dtype=np.bool_)
    if isinstance(chosen, np.ndarray):
        table = chosen
    else:
        table = np.fromiter(chosen, dtype=np.uint64, count=len(chosen))
        table.sort()
    first, lengths = runs_of(values)
    looked_up = values[first]
    at = np.minimum(table.searchsorted(looked_up), len(table) - 1)
    return np.repeat(table[at] == looked_up, lengths)


def _sorted_runs(values: npt.NDArray[_Number]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The stable order that sorts the values, and where in that order each new value begins."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begins = np.ones(len(values), dtype=np.bool_)
    begins[1:] = ordered[1:] != ordered[:-1]
    return order, begins


U64Array = npt.NDArray[np.uint64]
I64Array = npt.NDArray[np.int64]
LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
# The highest 16 bits of a header are the size in bytes; this shift leaves the size in 64-bit words.
_SIZE_SHIFT, _BYTES_SHIFT = np.uint64(51), np.uint64(48)
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


# Records about others that are missing.
LOSS_KINDS = frozenset((int(RecordType.LOST), int(RecordType.LOST_SAMPLES), int(RecordType.THROTTLE)))

# Values from here up in a callchain are context markers rather than addresses: they say whether kernel or user
# addresses follow.
CONTEXT_FIRST = np.uint64(2**64 - 4095)
CONTEXT_KERNEL = 2**64 - 128
CONTEXT_USER = 2**64 - 512

SAMPLE_WORDS = 5
TRAILER_BYTES = 24

# The minimum size in words of a record of each type, so that its fields can be read. Types that are not read have none.
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
# A header has none of these bits set: the kernel knows fewer than 32 record types.
_NO_HEADER = np.uint64(0xFFFFFFE0)
# A size of 1, in the highest 16 bits.
_LEAST_HEADER = np.uint64(1 << 48)
# Stands for all types beyond those that are read.
_OTHER_KIND = 31
_NO_PLACES: I64Array = np.zeros(0, dtype=np.int64)
_NO_WORDS: U64Array = np.zeros(0, dtype=np.uint64)
_NO_KINDS = np.zeros(0, dtype=np.uint32)
# No ring loses more in a tick than a column of a row can hold.
LOST_AT_MOST = 2**32 - 1


@dataclass(frozen=True)
class Records:
    """What was drained from one or more rings: the concatenated bytes, where each record begins (in 64-bit words), and
    its type. `bounds` is where each ring's part begins, `damaged` how many invalid bytes each ring had."""

    data: bytes
    words: U64Array
    starts: I64Array
    types: npt.NDArray[np.uint32]
    bounds: I64Array
    damaged: list[int]

    def of(self, kind: RecordType) -> I64Array:
        if kind not in self.kinds:
            return _NO_PLACES
        if len(self.kinds) == 1:
            return self.starts
        chosen = self._by_kind.get(kind)
        if chosen is None:
            chosen = self._by_kind[kind] = self.starts[self.types == kind]
        return chosen

    @cached_property
    def _by_kind(self) -> dict[RecordType, I64Array]:
        """The positions of each type that was looked up, which several readers of a tick need."""
        return {}

    @cached_property
    def kinds(self) -> frozenset[int]:
        """Which of the types that are read occur."""
        if not len(self.types):
            return frozenset()
        counts = np.bincount(np.minimum(self.types, _OTHER_KIND))
        return frozenset(counts.nonzero()[0].tolist())

    def low(self, at: I64Array, word: int = 1) -> U64Array:
        """The lower half of a word of some records; in the first word after the header, the pid."""
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
        """The timestamps in the trailers of some records, which must not be samples."""
        times: U64Array = self.words[at + self.sizes(at) - 2]
        return times

    def execs(self, at: I64Array) -> I64Array:
        """Those of some COMM records that were written by an exec."""
        chosen: I64Array = at[(self.words[at] & _EXEC) != 0]
        return chosen

    def without_foreign_tasks(self) -> "Records":
        """Drop the forks, execs, mappings and exits of processes that have no pid here: those outside the reader's pid
        namespace (kernel/events/core.c, perf_event_pid: 0 for all of them, or -1 at their end)."""
        tasks = np.isin(self.types, _TASK_KINDS)
        pids = self.low(self.starts[tasks])
        kept = np.ones(len(self.starts), dtype=np.bool_)
        kept[tasks] = (pids != 0) & (pids != LOW)
        return replace(self, starts=self.starts[kept], types=self.types[kept])

    def ring_of(self, starts: I64Array) -> npt.NDArray[np.intp]:
        """The ring that each of some records comes from."""
        return np.searchsorted(self.bounds, starts, side="right") - 1

    def per_ring(self, starts: I64Array, weights: npt.ArrayLike | None = None) -> list[int]:
        """How many of some records each ring has, or the sum of their weights."""
        if not len(starts):
            return [0] * len(self.bounds)
        counts = np.bincount(self.ring_of(starts), weights=weights, minlength=len(self.bounds))
        return [int(count) for count in counts]


def walk(*parts: bytes) -> Records:
    """Find the records in what was drained from some rings. A record with an impossible size ends the walk of its ring,
    and the rest of that ring is counted as damaged; so is a record that is too short for its type."""
    if not any(parts):
        return Records(b"", _NO_WORDS, _NO_PLACES, _NO_KINDS, np.zeros(len(parts), np.int64), [0] * len(parts))
    # One extra word, so that the size of a record can be looked up wherever an impossible size before it led.
    data = b"".join([*(part + bytes(-len(part) % 8) for part in parts), bytes(8)])
    words = np.frombuffer(data, dtype="<u8")[:-1]
    lengths_of = np.array([len(part) for part in parts], dtype=np.int64)
    padded = (lengths_of + 7) >> 3
    bounds = np.cumsum(padded) - padded
    whole = not (lengths_of & 7).any()
    found = _headers(words, bounds[lengths_of > 0]) if whole else None
    if found is None:
        at, damaged = _walked(data, bounds, lengths_of)
        heads = words[at]
    else:
        (at, heads), damaged = found, [0] * len(parts)
    types = (heads & LOW).astype(np.uint32)
    lengths = heads >> _SIZE_SHIFT
    short = lengths < _LEAST_WORDS[np.minimum(types, len(_LEAST_WORDS) - 1)]
    records = Records(data, words, at, types, bounds, damaged)
    if not short.any():
        return records
    too_short = records.per_ring(at[short], lengths[short] << np.uint64(3))
    damaged = [count + more for count, more in zip(damaged, too_short, strict=True)]
    return Records(data, words, at[~short], types[~short], bounds, damaged)


def _headers(words: U64Array, bounds: I64Array) -> tuple[I64Array, U64Array] | None:
    """Find the record headers in some rings by array operations, and their positions: words that look like a header and
    lie where the previous record ends. None when they do not cover the rings, which begin at `bounds`, without a
    gap."""
    # A word with a small value, such as a CPU number, has no size above it.
    alike = ((words & _NO_HEADER == 0) & (words >= _LEAST_HEADER)).nonzero()[0]
    if not len(alike):
        return None
    heads = words[alike]
    sizes = (heads >> _BYTES_SHIFT).astype(np.int64)
    ends = alike + (sizes >> 3)
    apart = np.flatnonzero(alike[1:] != ends[:-1])
    if len(apart):
        # Words inside a record that look like a header. They are few, as that takes a small number with a size above
        # it.
        kept = np.ones(len(alike), dtype=np.bool_)
        following = 0
        for place in apart.tolist():
            if place < following:
                continue
            following = int(np.searchsorted(alike, ends[place]))
            kept[place + 1 : following] = False
        alike, heads, sizes, ends = alike[kept], heads[kept], sizes[kept], ends[kept]
        if not np.array_equal(alike[1:], ends[:-1]):
            return None
    if alike[0] != 0 or ends[-1] != len(words) or (sizes & 7).any():
        return None
    # No record extends from one ring into the next.
    begins = np.searchsorted(alike, bounds)
    return (alike, heads) if np.array_equal(alike[begins], bounds) else None


def _walked(data: bytes, bounds: I64Array, lengths_of: I64Array) -> tuple[I64Array, list[int]]:
    """Find where the records of some rings begin, one after the other, and how many bytes of each ring are damaged."""
    ends = bounds + (lengths_of >> 3)
    halves = memoryview(data).cast("H")
    places = np.concatenate(
        [
            np.zeros(0, np.int64),
            *(
                np.fromiter(_places(halves, bound * 4, end * 4), np.int64)
                for bound, end in zip(bounds.tolist(), ends.tolist(), strict=True)
            ),
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
    return places >> 2, damaged


def _places(halves: memoryview, at: int, last: int) -> Iterator[int]:
    """The positions of a ring's records, in 16-bit units: each depends on the size of the record before it."""
    while at < last:
        yield at
        # No valid record has size 0, so that ends the walk.
        at += (halves[at + 3] >> 1) or last


@dataclass(frozen=True, slots=True)
class RawSamples:
    """Samples in columns, with their callchains concatenated in `addresses`. `idle_cpus` has the CPU of each sample
    that was left out as idle."""

    time: U64Array
    cpu: npt.NDArray[np.uint16]
    pid: npt.NDArray[np.int32]
    tid: npt.NDArray[np.int32]
    addresses: U64Array
    first: I64Array
    depth: I64Array
    idle_cpus: npt.NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.time)

    def chain(self, index: int) -> U64Array:
        first = self.first[index]
        return self.addresses[first : first + self.depth[index]]

    def without(self, idle: npt.NDArray[np.bool_]) -> "RawSamples":
        """The samples that are not idle; the idle ones remain counted."""
        busy = ~idle
        return RawSamples(
            time=self.time[busy],
            cpu=self.cpu[busy],
            pid=self.pid[busy],
            tid=self.tid[busy],
            addresses=self.addresses,
            first=self.first[busy],
            depth=self.depth[busy],
            idle_cpus=np.concatenate([self.idle_cpus, self.cpu[idle]]),
        )


class IdleLeaves:
    """The running function and its caller, by address, of idle-task samples that were found to be idle.

    These two addresses alone decide it (`is_idle`), and an idle core has only a handful of such pairs, so its samples
    are counted without looking at the rest of the callchain. Valid for one generation of the kernel's symbols."""

    def __init__(self) -> None:
        self._known: U64Array = np.zeros(0, dtype=np.uint64)

    def learn(self, samples: "RawSamples", idle: npt.NDArray[np.bool_]) -> None:
        """Learn from samples and which of them are idle."""
        of = samples.first[idle & (samples.depth > 2) & (samples.pid == 0) & (samples.tid == 0)]
        if not len(of):
            return
        heads = samples.addresses[of[:, None] + np.arange(3)]
        kernel = (heads[:, 0] == np.uint64(CONTEXT_KERNEL)) & (heads[:, 1:] < CONTEXT_FIRST).all(axis=1)
        new = np.unique(_pair_keys(heads[kernel, 1], heads[kernel, 2]))
        known = np.union1d(self._known, new)
        self._known = known if len(known) <= _IDLE_KEPT else new[:_IDLE_KEPT]

    def forget(self) -> None:
        self._known = self._known[:0]

    def among(self, records: Records, at: I64Array, depth: I64Array) -> npt.NDArray[np.bool_]:
        """Which of some samples are certainly idle; each must have its whole callchain."""
        words = records.words
        idle = np.zeros(len(at), dtype=np.bool_)
        if not len(self._known):
            return idle
        places = np.flatnonzero((words[at + 1] == 0) & (depth > 2))
        of = at[places] + SAMPLE_WORDS
        keys = _pair_keys(words[of + 1], words[of + 2])
        found = np.minimum(np.searchsorted(self._known, keys), len(self._known) - 1)
        idle[places] = (self._known[found] == keys) & (words[of] == np.uint64(CONTEXT_KERNEL))
        return idle


# Limit on the known pairs; a kernel has a few.
_IDLE_KEPT = 1024


def decode_samples(records: Records, idle: IdleLeaves | None = None) -> RawSamples:
    """All stack samples of a drain, except those without a callchain, those whose callchain extends past the record,
    and those that are known to be idle."""
    at = records.of(RecordType.SAMPLE)
    words = records.words
    sizes = records.sizes(at)
    # An absurd count must not wrap around to a small one, so clip it before it becomes signed.
    depth = np.minimum(words[at + 4], np.uint64(1 << 20)).astype(np.int64)
    sound = (depth > 0) & (depth + SAMPLE_WORDS <= sizes)
    if not sound.all():
        at, depth = at[sound], depth[sound]
    left_out = at[:0]
    if idle is not None:
        known = idle.among(records, at, depth)
        left_out = at[known]
        at, depth = at[~known], depth[~known]
    first = np.cumsum(depth) - depth
    total = int(depth.sum())
    gather = np.repeat(at + SAMPLE_WORDS - first, depth) + np.arange(total, dtype=np.int64)
    ids = words[at + 1]
    return RawSamples(
        time=words[at + 2],
        cpu=_cpus(words, at),
        pid=(ids & LOW).astype(np.uint32).view(np.int32),
        tid=(ids >> _HALF).astype(np.uint32).view(np.int32),
        addresses=words[gather],
        first=first,
        depth=depth,
        idle_cpus=_cpus(words, left_out),
    )


def _cpus(words: U64Array, at: I64Array) -> npt.NDArray[np.uint16]:
    return (words[at + 3] & np.uint64(0xFFFF)).astype(np.uint16)


def lost_counts(records: Records) -> list[int]:
    """How many records the kernel reports as lost, for each ring."""
    if LOSS_KINDS.isdisjoint(records.kinds):
        return [0] * len(records.bounds)
    lost, also = records.of(RecordType.LOST), records.of(RecordType.LOST_SAMPLES)
    counts = records.per_ring(lost, records.words[lost + 2])
    more = records.per_ring(also, records.words[also + 1])
    return [min(count + other, LOST_AT_MOST) for count, other in zip(counts, more, strict=True)]


def throttled_while_busy(records: Records) -> list[int]:
    """How often the kernel throttled sampling on a busy core, for each ring.

    An idle core without a tick is throttled as a matter of course: the kernel counts samples per tick
    (kernel/events/core.c, __perf_event_account_interrupt) and resumes with the next tick, when there is work. Only idle
    samples are lost by that.
    """
    if RecordType.THROTTLE not in records.kinds:
        return [0] * len(records.bounds)
    throttled = np.flatnonzero(records.types == RecordType.THROTTLE)
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


def _pair_keys(leaves: U64Array, callers: U64Array) -> U64Array:
    return leaves * _STEP + callers * _MIX_1


def row_keys(parts: U64Array, first: I64Array, depth: I64Array, salt: U64Array) -> U64Array:
    """A 64-bit key per row of a ragged array: equal rows with equal salt have equal keys, others practically never.

    Each part is mixed with its position in the row and the results are summed, which numpy can do for all rows at once.
    No row may be empty. Equal rows with different meanings must have different salts.
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
    """A key per callchain; `parts` has one part for each address."""
    return row_keys(parts, samples.first, samples.depth, salt)


def has_user_part(samples: RawSamples) -> npt.NDArray[np.bool_]:
    """Which samples were taken in a program, or in the kernel on its behalf."""
    if not len(samples):
        return np.zeros(0, dtype=np.bool_)
    result: npt.NDArray[np.bool_] = np.logical_or.reduceat(samples.addresses == np.uint64(CONTEXT_USER), samples.first)
    return result

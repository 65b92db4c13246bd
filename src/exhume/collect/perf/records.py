"""Records as the kernel lays them out in a ring, decoded many at a time with numpy.

Every record is a multiple of eight bytes: a header (u32 type, u16 misc, u16 size), then fields by type.
  sample        pid,tid u32 | time u64 | cpu,reserved u32 | n u64 | n addresses u64
  tracepoint    pid,tid u32 | time u64 | cpu,reserved u32 | size u32 | raw bytes
  all others    fields of the type, then a trailer: pid,tid u32 | time u64 | cpu,reserved u32
"""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

U64Array = npt.NDArray[np.uint64]
I64Array = npt.NDArray[np.int64]


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


# Values from here up in a callchain are no addresses: they say whether kernel or user addresses follow.
CONTEXT_FIRST = np.uint64(2**64 - 4095)
CONTEXT_KERNEL = 2**64 - 128
CONTEXT_USER = 2**64 - 512

SAMPLE_WORDS = 5
TRAILER_BYTES = 24


@dataclass(frozen=True, slots=True)
class Records:
    """The bytes of a drain, where each record begins (in 64-bit words), and each one's type."""

    data: bytes
    words: U64Array
    starts: I64Array
    types: npt.NDArray[np.uint32]
    damaged: int

    def of(self, kind: RecordType) -> I64Array:
        chosen: I64Array = self.starts[self.types == kind]
        return chosen


def walk(data: bytes) -> Records:
    """Find the records. One that claims an impossible size ends the walk; what remains is counted as damaged bytes."""
    usable = len(data) & ~7
    sizes = memoryview(data)[:usable].cast("H")
    starts: list[int] = []
    append = starts.append
    offset = 0
    # The one loop over all records: each one's place depends on the size of the one before it.
    while offset < usable:
        size = sizes[(offset >> 1) + 3]
        if size < 8 or size & 7 or offset + size > usable:
            break
        append(offset >> 3)
        offset += size
    words = np.frombuffer(data, dtype="<u8", count=usable >> 3)
    at = np.array(starts, dtype=np.int64)
    types = (words[at] & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return Records(data, words, at, types, len(data) - offset)


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
    sizes = (words[at] >> np.uint64(48)).astype(np.int64) >> 3
    at = at[sizes >= SAMPLE_WORDS]
    sizes = sizes[sizes >= SAMPLE_WORDS]
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
        pid=(ids & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32),
        tid=(ids >> np.uint64(32)).astype(np.uint32).view(np.int32),
        addresses=words[gather],
        first=first,
        depth=depth,
    )


def join_samples(parts: list[RawSamples]) -> RawSamples:
    """The samples of several rings as one."""
    if len(parts) == 1:
        return parts[0]
    offsets = np.cumsum([0] + [len(part.addresses) for part in parts[:-1]])
    return RawSamples(
        time=np.concatenate([part.time for part in parts]),
        cpu=np.concatenate([part.cpu for part in parts]),
        pid=np.concatenate([part.pid for part in parts]),
        tid=np.concatenate([part.tid for part in parts]),
        addresses=np.concatenate([part.addresses for part in parts]),
        first=np.concatenate([part.first + offset for part, offset in zip(parts, offsets, strict=True)]),
        depth=np.concatenate([part.depth for part in parts]),
    )


def lost_count(records: Records) -> int:
    """How many samples the kernel says it could not write."""
    lost = records.of(RecordType.LOST)
    also = records.of(RecordType.LOST_SAMPLES)
    return int(records.words[lost + 2].sum()) + int(records.words[also + 1].sum())


def groups_of(values: npt.NDArray[np.int32] | U64Array) -> list[I64Array]:
    """Where each distinct value stands: one array of places a value, each in ascending order."""
    if not len(values):
        return []
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    return np.split(order, cuts)


def throttled_while_busy(records: Records) -> int:
    """How often the kernel held sampling back on a core that had work.

    An idle core without a tick is throttled as a matter of course: the kernel counts samples per tick, and lets go as
    soon as there is work. That loses nothing but idle samples.
    """
    throttled = np.flatnonzero(records.types == RecordType.THROTTLE)
    if not len(throttled):
        return 0
    samples = np.flatnonzero(records.types == RecordType.SAMPLE)
    before = np.searchsorted(samples, throttled) - 1
    last = records.starts[samples[before[before >= 0]]]
    return int(np.count_nonzero(records.words[last + 1] & np.uint64(0xFFFFFFFF)))


_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_STEP = np.uint64(0x9E3779B97F4A7C15)


def row_keys(links: U64Array, first: I64Array, depth: I64Array, salt: U64Array) -> U64Array:
    """A 64-bit key per row of a ragged array: equal rows with equal salt have equal keys, others practically never.

    Each link is mixed with its place in the row and the results are summed, which numpy can do for all rows at once.
    No row may be empty. The salt tells equal rows apart where they mean different things.
    """
    if not len(first):
        return np.zeros(0, dtype=np.uint64)
    place = np.arange(len(links), dtype=np.int64) - np.repeat(first, depth)
    mixed = links + (place.astype(np.uint64) + np.uint64(1)) * _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    mixed ^= mixed >> np.uint64(31)
    result: U64Array = (np.add.reduceat(mixed, first) + salt * _STEP) * _MIX_1
    return result ^ (result >> np.uint64(29))


def chain_keys(samples: RawSamples, links: U64Array, salt: U64Array) -> U64Array:
    """A key per callchain; `links` are its addresses, or what stands for them."""
    return row_keys(links, samples.first, samples.depth, salt)


def has_user_part(samples: RawSamples) -> npt.NDArray[np.bool_]:
    """Which samples were taken in a program, or on its behalf in the kernel."""
    if not len(samples):
        return np.zeros(0, dtype=np.bool_)
    result: npt.NDArray[np.bool_] = np.logical_or.reduceat(samples.addresses == np.uint64(CONTEXT_USER), samples.first)
    return result

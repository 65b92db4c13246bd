"""The executable mappings that processes made in a tick, decoded by the array and told in runs.

Loading one program makes five to ten mappings, and a fork storm loads a thousand programs a second. A run is what one
process mapped without a fork or exec of its own in between: it can be applied at once, and the order of everything
else that matters is kept.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from exhume.collect.perf.distinct import distinct
from exhume.collect.perf.records import TRAILER_BYTES, I64Array, Records, RecordType, U64Array, row_keys
from exhume.collect.perf.symbols.space import FileKey, MappedFile, Mapping, mapped_file

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
# In 64-bit words: where the path begins, and how much of the record is not the path.
_PATH_AT = 9
_NOT_PATH = _PATH_AT + TRAILER_BYTES // 8
_FILES_KEPT = 4096
_PATH_BYTES_KEPT = 1 << 20
# What one process may map in a tick: the dynamic loader maps a few dozen files, the largest programs some hundred.
_MAX_OF_PROCESS = 2048


@dataclass(frozen=True, slots=True)
class MapRun:
    """Mappings of one process, in order; `time` is that of the first."""

    time: int
    pid: int
    mappings: list[Mapping]


class MapRuns:
    """Decodes mapping records; remembers the files they name."""

    def __init__(self) -> None:
        self._files: dict[int, MappedFile] = {}
        self._path_bytes = 0
        self._skipped: Counter[int] = Counter()

    def take_skipped(self) -> Counter[int]:
        """How many records were left out since this was last called, by process."""
        skipped, self._skipped = self._skipped, Counter()
        return skipped

    def decode(self, parts: list[tuple[Records, I64Array]]) -> list[MapRun]:
        """The runs in some records (given as places in what was drained); FORK and COMM records end a run."""
        maps = [_of_kind(records, at, RecordType.MMAP2) for records, at in parts]
        total = sum(len(at) for at in maps)
        if not total:
            return []
        if total > _MAX_OF_PROCESS:
            maps = self._bounded(parts, maps)
            total = sum(len(at) for at in maps)
        pids = np.concatenate([r.words[at + 1] & _LOW for (r, _), at in zip(parts, maps, strict=True)])
        times = np.concatenate([_times(r, at) for (r, _), at in zip(parts, maps, strict=True)])
        columns = [
            np.concatenate([r.words[at + word] for (r, _), at in zip(parts, maps, strict=True)]) for word in (2, 3, 4)
        ]
        files = [file for (r, _), at in zip(parts, maps, strict=True) for file in self._files_of(r, at)]
        order, cuts = _runs(pids, times, parts)
        starts, lengths, offsets = (column[order].tolist() for column in columns)
        ordered_times, ordered_pids = times[order].tolist(), pids[order].tolist()
        mappings = [
            Mapping(start, start + length, offset, files[place])
            for start, length, offset, place in zip(starts, lengths, offsets, order.tolist(), strict=True)
        ]
        return [
            MapRun(ordered_times[first], ordered_pids[first], mappings[first:end])
            for first, end in zip(cuts, [*cuts[1:], total], strict=True)
        ]

    def _bounded(self, parts: list[tuple[Records, I64Array]], maps: list[I64Array]) -> list[I64Array]:
        """The records without those of a process that made too many."""
        pids = np.concatenate([r.words[at + 1] & _LOW for (r, _), at in zip(parts, maps, strict=True)])
        kept = np.ones(len(pids), dtype=np.bool_)
        found, counts = np.unique(pids, return_counts=True)
        for pid, count in zip(found.tolist(), counts.tolist(), strict=True):
            if count > _MAX_OF_PROCESS:
                kept[np.flatnonzero(pids == pid)[_MAX_OF_PROCESS:]] = False
                self._skipped[pid] += count - _MAX_OF_PROCESS
        ends = np.cumsum([len(at) for at in maps])[:-1]
        return [at[keep] for at, keep in zip(maps, np.split(kept, ends), strict=True)]

    def _files_of(self, records: Records, at: I64Array) -> list[MappedFile]:
        """The file of each mapping record. Most records name one of a few files."""
        if not len(at):
            return []
        words = records.words
        sizes = (words[at] >> np.uint64(51)).astype(np.int64)
        depth = np.maximum(sizes - _NOT_PATH, 1)
        first = np.cumsum(depth) - depth
        gather = np.repeat(at + _PATH_AT - first, depth) + np.arange(int(depth.sum()), dtype=np.int64)
        identity = words[at + 5] * np.uint64(31) + words[at + 6] * np.uint64(1_000_003) + words[at + 7]
        keys = row_keys(words[gather], first, depth, identity)
        unique, index, inverse = distinct(keys)
        if len(self._files) > _FILES_KEPT or self._path_bytes > _PATH_BYTES_KEPT:
            self._files.clear()
            self._path_bytes = 0
        files = [
            self._files.get(key) or self._new_file(key, records, int(at[place]), int(sizes[place]))
            for key, place in zip(unique.tolist(), index.tolist(), strict=True)
        ]
        return [files[place] for place in inverse.tolist()]

    def _new_file(self, key: int, records: Records, at: int, size: int) -> MappedFile:
        device, inode, generation = (int(word) for word in records.words[at + 5 : at + 8])
        path = records.data[(at + _PATH_AT) * 8 : (at + size) * 8 - TRAILER_BYTES].split(b"\0", 1)[0]
        text = path.decode("utf-8", "surrogateescape")
        file = mapped_file(FileKey(device & 0xFFFFFFFF, device >> 32, inode, generation, text))
        self._files[key] = file
        self._path_bytes += len(text)
        return file


def _of_kind(records: Records, at: I64Array, kind: RecordType) -> I64Array:
    chosen: I64Array = at[(records.words[at] & _LOW) == kind]
    return chosen


def _times(records: Records, at: I64Array) -> U64Array:
    """The time in each record's trailer."""
    times: U64Array = records.words[at + (records.words[at] >> np.uint64(51)).astype(np.int64) - 2]
    return times


def _runs(pids: U64Array, times: U64Array, parts: list[tuple[Records, I64Array]]) -> tuple[I64Array, list[int]]:
    """The mappings in order of process and time, and where in that order each run begins."""
    enders: list[tuple[U64Array, U64Array]] = []
    for records, at in parts:
        named = _of_kind(records, at, RecordType.COMM)
        forked = _of_kind(records, at, RecordType.FORK)
        enders.append((records.words[named + 1] & _LOW, _times(records, named)))
        forked_times = _times(records, forked)
        enders.append((records.words[forked + 1] >> _HALF, forked_times))
        # The child's number may have been another's earlier in the tick.
        enders.append((records.words[forked + 1] & _LOW, forked_times))
    all_pids = np.concatenate([pids, *(ender[0] for ender in enders)])
    order = np.lexsort((np.concatenate([times, *(ender[1] for ender in enders)]), all_pids))
    is_map = order < len(pids)
    begins = is_map.copy()
    begins[1:] &= (all_pids[order][1:] != all_pids[order][:-1]) | ~is_map[:-1]
    return order[is_map], np.flatnonzero(begins[is_map]).tolist()

"""The entries of a perf map, compact and free of overlaps."""

from bisect import bisect_left, bisect_right

import numpy as np
import numpy.typing as npt

_Entry = tuple[int, int, int]  # start, end, where its name is


class CodeRanges:
    """Compiled functions by address. Code that was written over by a later function is forgotten."""

    __slots__ = ("_blob", "_ends", "_names", "_starts")

    def __init__(self) -> None:
        self._starts = np.empty(0, np.uint64)
        self._ends = np.empty(0, np.uint64)
        self._names = np.empty(0, np.uint32)
        self._blob = b""

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def nbytes(self) -> int:
        return self._starts.nbytes + self._ends.nbytes + self._names.nbytes + len(self._blob)

    def add(self, lines: list[bytes], max_name: int) -> int:
        """Take in lines of `start size name`, hexadecimal, in the order they were written. Returns how many were."""
        blob = bytearray(self._blob)
        entries: list[_Entry] = []
        for line in lines:
            fields = line.split(None, 2)
            if len(fields) != 3:
                continue
            try:
                start, size = int(fields[0], 16), int(fields[1], 16)
            except ValueError:
                continue
            if size <= 0 or not 0 < start < start + size < 1 << 63:
                continue
            entries.append((start, start + size, len(blob)))
            blob += fields[2][:max_name] + b"\n"
        if not entries:
            return 0
        kept = self._not_covered(np.array(entries, np.uint64))
        new = np.array(_later_wins(entries), np.uint64)
        starts = np.concatenate((self._starts[kept], new[:, 0]))
        order = np.argsort(starts)
        self._starts = starts[order]
        self._ends = np.concatenate((self._ends[kept], new[:, 1]))[order]
        self._names = np.concatenate((self._names[kept], new[:, 2].astype(np.uint32)))[order]
        self._blob = bytes(blob)
        return len(entries)

    def _not_covered(self, new: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Which functions no new one lies over."""
        first = np.searchsorted(self._ends, new[:, 0], side="right")
        last = np.maximum(np.searchsorted(self._starts, new[:, 1], side="left"), first)
        covered = np.zeros(len(self) + 1, np.int64)
        np.add.at(covered, first, 1)
        np.add.at(covered, last, -1)
        return np.asarray(np.cumsum(covered[:-1]) == 0)

    def find(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
        """The index of the function at each address; -1 where none is known."""
        at = np.searchsorted(self._starts, addresses, side="right") - 1
        if len(self):
            at[self._ends[at] <= addresses] = -1
        return at

    def name(self, index: int) -> bytes:
        start = int(self._names[index])
        return self._blob[start : self._blob.index(b"\n", start)]


def _later_wins(entries: list[_Entry]) -> list[_Entry]:
    """Entries without those that a later one overlaps."""
    ordered = sorted(entries)
    if all(ordered[i][1] <= ordered[i + 1][0] for i in range(len(ordered) - 1)):
        return entries
    starts: list[int] = []
    kept: list[_Entry] = []
    for entry in entries:
        first = bisect_right(starts, entry[0])
        if first and kept[first - 1][1] > entry[0]:
            first -= 1
        last = bisect_left(starts, entry[1], first)
        starts[first:last] = [entry[0]]
        kept[first:last] = [entry]
    return kept

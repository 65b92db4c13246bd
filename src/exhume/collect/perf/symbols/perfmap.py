"""The entries of a perf map, compact and free of overlaps."""

import numpy as np
import numpy.typing as npt


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

    def add(self, text: bytes, max_name: int) -> None:
        """Take in whole lines of `start size name`, hexadecimal, in the order they were written."""
        starts: list[int] = []
        ends: list[int] = []
        names: list[int] = []
        blob = bytearray(self._blob)
        for line in text.split(b"\n"):
            fields = line.split(None, 2)
            if len(fields) != 3:
                continue
            try:
                start, size = int(fields[0], 16), int(fields[1], 16)
            except ValueError:
                continue
            if size <= 0 or not 0 < start < start + size < 1 << 63:
                continue
            starts.append(start)
            ends.append(start + size)
            names.append(len(blob))
            blob += fields[2][:max_name] + b"\n"
        self._blob = bytes(blob)
        self._settle(
            np.concatenate((self._starts, np.array(starts, np.uint64))),
            np.concatenate((self._ends, np.array(ends, np.uint64))),
            np.concatenate((self._names, np.array(names, np.uint32))),
        )

    def _settle(
        self, starts: npt.NDArray[np.uint64], ends: npt.NDArray[np.uint64], names: npt.NDArray[np.uint32]
    ) -> None:
        """Sort, and of two entries that overlap keep the later one. Names lie in the order of writing, so the
        larger name offset is the later entry."""
        order = np.lexsort((names, starts))
        starts, ends, names = starts[order], ends[order], names[order]
        while len(starts) > 1:
            overlap = np.flatnonzero(ends[:-1] > starts[1:])
            if not len(overlap):
                break
            earlier = np.where(names[overlap] < names[overlap + 1], overlap, overlap + 1)
            keep = np.ones(len(starts), np.bool_)
            keep[earlier] = False
            starts, ends, names = starts[keep], ends[keep], names[keep]
        self._starts, self._ends, self._names = starts, ends, names

    def find(self, addresses: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
        """The index of the function at each address; -1 where none is known."""
        at = np.searchsorted(self._starts, addresses, side="right") - 1
        if len(self):
            at[self._ends[at] <= addresses] = -1
        return at

    def name(self, index: int) -> bytes:
        start = int(self._names[index])
        return self._blob[start : self._blob.index(b"\n", start)]

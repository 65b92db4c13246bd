"""Parser for perf maps: lines of `start size name`, written by runtimes for code that they compile into memory."""

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.parser.open_file import OpenFile
from exhume.collect.symbols.parser.wire import Arrays, BadReply, column, joined, pieces

#: The module of functions that a map names.
PERF_MAP = "perf-map"
_Entry = tuple[int, int, bytes]  # start, end, name

MAX_LINE = 16 << 10
_MAX_NAME = 512
_MAX_LINES = 8192


def read_perf_map(file: OpenFile, offset: int, size: int) -> dict[str, npt.NDArray[Any]]:
    """Parse the whole lines in a piece of a map into arrays; also returns how many bytes were read and used."""
    content = file.read(offset, size)
    *lines, rest = content.split(b"\n", _MAX_LINES)
    if not lines and len(content) > MAX_LINE:
        lines, rest = [content], b""  # no line of a perf map is this long: skip it
    entries = _parsed(lines)
    found = sorted(_later_wins(entries))
    lengths, names = joined([name for _, _, name in found])
    return {
        "starts": np.array([start for start, _, _ in found], np.uint64),
        "ends": np.array([end for _, end, _ in found], np.uint64),
        "lengths": lengths,
        "content": names,
        "written": np.array([(start, end) for start, end, _ in entries], np.uint64).reshape(-1),
        "progress": np.array([len(content), len(content) - len(rest)], np.uint64),
    }


def _parsed(lines: list[bytes]) -> list[_Entry]:
    entries: list[_Entry] = []
    for line in lines:
        fields = line.split(None, 2)
        if len(fields) != 3 or len(fields[0]) > 18 or len(fields[1]) > 18:
            continue
        try:
            start, size = int(fields[0], 16), int(fields[1], 16)
        except ValueError:
            continue
        if size > 0 and 0 < start < start + size < 1 << 63:
            entries.append((start, start + size, fields[2][:_MAX_NAME].replace(b"\n", b"")))
    return entries


def _later_wins(entries: list[_Entry]) -> list[_Entry]:
    """Drop the entries that a later one overlaps."""
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


class MapPiece:
    """Functions in a piece of a map, sorted and without overlaps; `read` and `used` are bytes of the piece. `written`
    holds the starts and ends of all code in it, including code that was overwritten within the piece."""

    __slots__ = ("ends", "names", "read", "starts", "used", "written")

    def __init__(self, arrays: Arrays, size: int) -> None:
        """Decode the reply to a request for `size` bytes. Raises BadReply."""
        self.starts, self.ends = column(arrays, "starts", np.uint64), column(arrays, "ends", np.uint64)
        self.names = pieces(arrays, "lengths", "content")
        written = column(arrays, "written", np.uint64)
        if len(written) % 2 or len(written) > 2 * _MAX_LINES or np.any(written[::2] >= written[1::2]):
            raise BadReply("the code of a perf map")
        self.written = written.reshape(-1, 2)
        progress = column(arrays, "progress", np.uint64).tolist()
        starts, ends = self.starts, self.ends
        if not len(starts) == len(ends) == len(self.names) <= _MAX_LINES or len(progress) != 2:
            raise BadReply("the functions of a perf map")
        self.read, self.used = progress
        if np.any(starts >= ends) or np.any(ends[:-1] > starts[1:]) or not self.used <= self.read <= size:
            raise BadReply("the order of a perf map")
        if any(len(name) > _MAX_NAME or b"\n" in name for name in self.names):
            raise BadReply("a name of a perf map")


class CodeRanges:
    """Compiled functions by address. Code that a later function overwrites is dropped."""

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

    def add(self, piece: MapPiece) -> None:
        """Add functions that were written after the known ones."""
        if not piece.names:
            return
        lengths = np.array([len(name) + 1 for name in piece.names], np.uint64)
        offsets = (np.cumsum(lengths) - lengths + np.uint64(len(self._blob))).astype(np.uint32)
        kept = self._not_covered(piece.written)
        starts = np.concatenate((self._starts[kept], piece.starts))
        order = np.argsort(starts)
        self._starts = starts[order]
        self._ends = np.concatenate((self._ends[kept], piece.ends))[order]
        self._names = np.concatenate((self._names[kept], offsets))[order]
        self._blob += b"".join(name + b"\n" for name in piece.names)

    def _not_covered(self, new: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """The functions that no new one overlaps."""
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

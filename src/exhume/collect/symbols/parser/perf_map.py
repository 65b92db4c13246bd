"""The text of perf maps: lines of `start size name`, as runtimes write them for code that they compile into memory."""

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.parser.open_file import OpenFile
from exhume.collect.symbols.parser.wire import Arrays, BadReply, column, joined, pieces

_Entry = tuple[int, int, bytes]  # start, end, name

MAX_LINE = 16 << 10
_MAX_NAME = 512
_MAX_LINES = 8192


def read_perf_map(file: OpenFile, offset: int, size: int) -> dict[str, npt.NDArray[Any]]:
    """The whole lines in a piece of a map as arrays, and how many bytes were read and used."""
    content = file.read(offset, size)
    *lines, rest = content.split(b"\n", _MAX_LINES)
    if not lines and len(content) > MAX_LINE:
        lines, rest = [content], b""  # no line of a perf map is this long: passed over
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


class MapPiece:
    """Functions in a piece of a map, sorted and apart from each other; `read` and `used` are bytes of the piece.
    `written` are starts and ends of all code that it speaks of, also of what was written over at once."""

    __slots__ = ("ends", "names", "read", "starts", "used", "written")

    def __init__(self, arrays: Arrays, size: int) -> None:
        """From a reply to a request for `size` bytes. Raises BadReply."""
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

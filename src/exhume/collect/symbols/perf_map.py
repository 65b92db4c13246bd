"""Names of code that runtimes compile into memory, from the perf maps that they write (/tmp/perf-PID.map).

The maps are untrusted files: they are read in pieces, within an allowance for each user.
"""

import os
import time
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.file_budget import MALFORMED, TIMEOUT, FileRefused
from exhume.collect.symbols.file_worker import FileWorker, RefusalLog
from exhume.collect.symbols.frame import JIT, Frame, make_frame, readable
from exhume.collect.symbols.locate import open_regular
from exhume.collect.symbols.mappings import AddressSpace
from exhume.procfs.host import Host
from exhume.procfs.pid_stat import parse_pid_stat
from exhume.procfs.pid_status import status_values

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


PERF_MAP = "perf-map"
DEFAULT_BUDGET = 4 << 20
_READ_A_TURN = 512 << 10
_READ_OF_USER = _READ_A_TURN // 2
_READ_OF_PROCESS = _READ_A_TURN // 4
_LINES_A_TURN = 8192
_MAX_PROCESSES = 512
_FRAME_BYTES = 400
_MAX_NAME = 512
_MAX_LINE = 16 << 10
_TURN_S = 1.0
_LOOK_AGAIN_S = 10.0
_DROPPED_S = 60.0
_CLOCK_SLACK_S = 2.0


@dataclass(frozen=True, slots=True)
class _Process:
    """Who a pid is: its user, its pid inside its container, and when it started (ticks since boot)."""

    uid: int
    inner_pid: int
    started: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """What was read of a map on from an offset, or from its start when it is `another` map than before."""

    inode: int
    another: bool
    content: bytes


class _PerfMap:
    """One process's map, as far as it was read."""

    __slots__ = ("code", "due", "frames", "inode", "offset", "process")

    def __init__(self, process: _Process | None) -> None:
        self.process = process
        self.due = float("-inf")
        self.inode = 0
        self.forget()

    @property
    def nbytes(self) -> int:
        return self.code.nbytes + len(self.frames) * _FRAME_BYTES

    def forget(self) -> None:
        self.code = CodeRanges()
        self.frames: dict[int, Frame] = {}
        self.offset = 0


class JitSymbols:
    """Looks up addresses of compiled code in perf maps."""

    def __init__(
        self,
        host: Host,
        budget: int = DEFAULT_BUDGET,
        clock: Callable[[], float] = time.monotonic,
        worker: FileWorker | None = None,
        refusals: RefusalLog | None = None,
    ) -> None:
        self._host = host
        self._budget = budget
        self._clock = clock
        self._maps: OrderedDict[int, _PerfMap] = OrderedDict()
        self._turn = float("-inf")
        self._allowance = _READ_A_TURN
        self._read_of: Counter[int] = Counter()
        self._worker = worker or FileWorker()
        self._refusals = refusals or RefusalLog()

    @property
    def nbytes(self) -> int:
        return sum(perf_map.nbytes for perf_map in self._maps.values())

    def frames(self, space: AddressSpace, addresses: list[int]) -> list[Frame | None]:
        """A frame for each address that the process's perf map names; None for the others."""
        perf_map = self._map_of(space.pid)
        if not len(perf_map.code):
            return [None] * len(addresses)
        wanted: npt.NDArray[np.uint64] = np.array(addresses, np.uint64)
        result: list[Frame | None] = []
        for index in perf_map.code.find(wanted).tolist():
            if index < 0:
                result.append(None)
                continue
            frame = perf_map.frames.get(index)
            if frame is None:
                name = readable(perf_map.code.name(index))
                frame = perf_map.frames[index] = make_frame(JIT, PERF_MAP, name)
            result.append(frame)
        return result

    def _map_of(self, pid: int) -> _PerfMap:
        now = self._clock()
        if now - self._turn >= _TURN_S:
            self._turn, self._allowance = now, _READ_A_TURN
            self._read_of.clear()
        perf_map = self._maps.get(pid)
        if perf_map is None:
            perf_map = self._maps[pid] = _PerfMap(None)
        self._maps.move_to_end(pid)
        if now >= perf_map.due and self._allowance > 0:
            perf_map = self._refresh(pid, perf_map)
            if perf_map.due <= now:
                perf_map.due = now + (_TURN_S if perf_map.inode else _LOOK_AGAIN_S)
            self._keep_budget()
        return perf_map

    def _refresh(self, pid: int, perf_map: _PerfMap) -> _PerfMap:
        process = self._process(pid)
        if process is None:
            return perf_map  # gone: what it wrote so far still names its samples
        if process != perf_map.process:  # first seen, or the pid belongs to another process now
            perf_map = self._maps[pid] = _PerfMap(process)
        allowed = min(self._allowance, _READ_OF_PROCESS, _READ_OF_USER - self._read_of[process.uid])
        if allowed <= 0:
            perf_map.due = self._turn + _TURN_S
        if allowed <= 0 or perf_map.code.nbytes > self._budget // 2:
            return perf_map
        path = f"{self._host.proc}/{pid}/root/tmp/perf-{process.inner_pid}.map"
        inode, offset = perf_map.inode, perf_map.offset
        try:
            # What it lies on is not known before it is opened, so the process stands for it.
            piece = self._worker.run(
                ("perf-map", pid), process.uid, lambda: self._read_piece(path, process, inode, offset, allowed)
            )
        except FileRefused as refusal:
            self._refusals.note(refusal, path, pid, process.uid)
            perf_map.due = self._clock() + (_DROPPED_S if refusal.code == TIMEOUT else _TURN_S)
            return perf_map
        if piece is not None:
            self._take(perf_map, piece, path, pid, process)
        return perf_map

    def _read_piece(self, path: str, process: _Process, inode: int, offset: int, allowed: int) -> _Piece | None:
        """The next piece of a map; None when there is none that can be believed."""
        file = open_regular(path, follow=False)
        if file is None:
            return None
        with file:
            try:
                status = os.fstat(file.fd)
                if status.st_uid != process.uid or self._is_stale(status, process):
                    return None
                another = status.st_ino != inode or status.st_size < offset
                return _Piece(status.st_ino, another, file.read(0 if another else offset, allowed))
            except OSError:
                return None

    def _take(self, perf_map: _PerfMap, piece: _Piece, path: str, pid: int, process: _Process) -> None:
        if piece.another:
            perf_map.forget()
            perf_map.inode = piece.inode
        content = piece.content
        self._allowance -= len(content)
        self._read_of[process.uid] += len(content)
        *lines, rest = content.split(b"\n", _LINES_A_TURN)
        if not lines and len(content) > _MAX_LINE:
            lines, rest = [content], b""  # no line of a perf map is this long: passed over
        perf_map.offset += len(content) - len(rest)
        if not lines:
            return
        if perf_map.code.add(lines, _MAX_NAME):
            perf_map.frames.clear()
        elif len(content) > _MAX_LINE:
            # A sparse file, or anything else: others' maps are worth more than the rest of it.
            perf_map.due = self._clock() + _DROPPED_S
            self._refusals.note(FileRefused(MALFORMED, "no line of a perf map in it"), path, pid, process.uid)

    def _is_stale(self, status: os.stat_result, process: _Process) -> bool:
        """Whether the map was left behind by an earlier process of the same pid."""
        started = process.started / os.sysconf("SC_CLK_TCK")
        written_ago = time.time() - status.st_mtime
        running_for = time.clock_gettime(time.CLOCK_BOOTTIME) - started
        return written_ago > running_for + _CLOCK_SLACK_S

    def _process(self, pid: int) -> _Process | None:
        try:
            with open(f"{self._host.proc}/{pid}/status", "rb") as file:  # noqa: PTH123
                status = file.read()
            with open(f"{self._host.proc}/{pid}/stat", "rb") as file:  # noqa: PTH123
                stat = parse_pid_stat(file.read())
        except OSError:
            return None
        if stat is None:
            return None
        # Real, effective, saved and file system user; the innermost namespace's pid comes last.
        users, pids = status_values(status, b"Uid"), status_values(status, b"NSpid")
        return _Process(users[1] if len(users) > 1 else 0, pids[-1] if pids else pid, stat.start)

    def _keep_budget(self) -> None:
        while len(self._maps) > 1 and (len(self._maps) > _MAX_PROCESSES or self.nbytes > self._budget):
            self._maps.popitem(last=False)

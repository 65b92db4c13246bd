"""Names of code that runtimes compile into memory, from the perf maps that they write (/tmp/perf-PID.map).

The maps are untrusted files: the parser process reads them in pieces, within an allowance per owner.
"""

import os
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.file_reader import FileReader, HeldFile
from exhume.collect.symbols.frame import JIT, Frame, make_frame
from exhume.collect.symbols.mappings import AddressSpace
from exhume.collect.symbols.owners import UNKNOWN_OWNER, Owner, Owners, RefusalLog
from exhume.collect.symbols.parse_queue import ParseQueue
from exhume.collect.symbols.parser.open_file import DEFERRED, FAILED, MALFORMED, TIMEOUT, FileRefused, readable
from exhume.collect.symbols.parser.perf_map import MAX_LINE, PERF_MAP, CodeRanges, MapPiece
from exhume.model.clock import NANOS
from exhume.procfs.host import Host
from exhume.procfs.pid_stat import parse_pid_stat
from exhume.procfs.pid_status import status_values

DEFAULT_BUDGET = 4 << 20
_READ_A_TURN = 512 << 10
_READ_OF_OWNER = _READ_A_TURN // 2
_READ_OF_PROCESS = _READ_A_TURN // 4
_MAX_PROCESSES = 512
_FRAME_BYTES = 400
_MAP_BYTES = 500
_TURN_S = 1.0
_LOOK_AGAIN_S = 10.0
_DROPPED_S = 60.0
_CLOCK_SLACK_S = 2.0
# How many ticks a sample waits for a piece of the map.
_PATIENCE = 1


@dataclass(frozen=True, slots=True)
class _Process:
    """The identity of a pid: its user, its pid inside its container, and its start time (ticks since boot)."""

    uid: int
    inner_pid: int
    started: int


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of a map from an offset on, or from its start when it is `another` map than before."""

    inode: int
    another: bool
    piece: MapPiece


class _PerfMap:
    """The map of one process, as far as it was read."""

    __slots__ = ("code", "due", "frames", "inode", "offset", "owner", "process", "requested")

    def __init__(self, process: _Process | None, owner: Owner = UNKNOWN_OWNER) -> None:
        self.process = process
        self.owner = owner
        self.requested = False
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
        queue: ParseQueue | None = None,
        refusals: RefusalLog | None = None,
    ) -> None:
        self._host = host
        self._budget = budget
        self._clock = clock
        self._maps: OrderedDict[int, _PerfMap] = OrderedDict()
        self._turn = float("-inf")
        self._allowance = _READ_A_TURN
        self._read_of: Counter[Owner] = Counter()
        self._refusals = refusals or RefusalLog()
        self.queue = queue or ParseQueue(self._refusals)
        self._owners = Owners(host, clock)

    @property
    def nbytes(self) -> int:
        return sum(perf_map.nbytes for perf_map in self._maps.values())

    def frames(self, space: AddressSpace, addresses: list[int]) -> tuple[list[Frame | None], int]:
        """A frame for each address that the process's perf map names, None for the others; and the number of ticks
        until more of the map may be known."""
        perf_map = self._map_of(space.pid)
        patience = _PATIENCE * perf_map.requested
        if not len(perf_map.code):
            return [None] * len(addresses), patience
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
        return result, patience

    def _map_of(self, pid: int) -> _PerfMap:
        now = self._clock()
        if now - self._turn >= _TURN_S:
            self._turn, self._allowance = now, _READ_A_TURN
            self._read_of.clear()
        perf_map = self._maps.get(pid)
        if perf_map is None:
            perf_map = self._maps[pid] = _PerfMap(None)
            self._keep_budget()
        self._maps.move_to_end(pid)
        if now >= perf_map.due and self._allowance > 0 and not perf_map.requested:
            perf_map = self._refresh(pid, perf_map)
            if perf_map.due <= now:
                perf_map.due = now + (_TURN_S if perf_map.inode else _LOOK_AGAIN_S)
        return perf_map

    def _refresh(self, pid: int, perf_map: _PerfMap) -> _PerfMap:
        process = self._process(pid)
        if process is None:
            return perf_map  # exited: what it wrote so far still names its samples
        if process != perf_map.process:  # seen for the first time, or the pid was reused
            perf_map = self._maps[pid] = _PerfMap(process, self._owners.of(pid))
        owner = perf_map.owner
        if perf_map.code.nbytes > self._budget // 2:
            return perf_map
        root, path = f"{self._host.proc}/{pid}/root", f"/tmp/perf-{process.inner_pid}.map"
        requested_map = perf_map

        def done(read: _Read | FileRefused | None) -> None:
            requested_map.requested = False
            if isinstance(read, FileRefused):
                self._refusals.note(read, root + path, pid, owner)
                dropped = read.code in (TIMEOUT, FAILED)
                requested_map.due = self._clock() + (_DROPPED_S if dropped else _TURN_S)
            elif read is not None:
                self._take(requested_map, read, root + path, pid, owner)
                self._keep_budget()

        perf_map.requested = True
        # The device is unknown before the map is opened, so the process stands in for it.
        self.queue.submit(
            owner, ("perf-map", pid), lambda reader: self._read(reader, root, path, requested_map, owner), done
        )
        return perf_map

    def _read(self, reader: FileReader, root: str, path: str, perf_map: _PerfMap, owner: Owner) -> _Read | None:
        """The next piece of a map; None when no map can be trusted. Runs in the queue's thread, one read after the
        other, so each read counts against the next."""
        process = perf_map.process
        (file,) = reader.open_regular([(root, path)], follow=False)
        if file is None or process is None or file.uid != process.uid or self._is_stale(file, process):
            return None
        allowed = min(self._allowance, _READ_OF_PROCESS, _READ_OF_OWNER - self._read_of[owner])
        if allowed <= 0:
            raise FileRefused(DEFERRED)
        _, inode, _, size = file.identity
        another = inode != perf_map.inode or size < perf_map.offset
        request = {"kind": "perf-map", "offset": 0 if another else perf_map.offset, "size": allowed}
        piece = MapPiece(reader.ask(request, [file]), allowed)
        self._allowance -= piece.read
        self._read_of[owner] += piece.read
        return _Read(inode, another, piece)

    def _take(self, perf_map: _PerfMap, read: _Read, path: str, pid: int, owner: Owner) -> None:
        if read.another:
            perf_map.forget()
            perf_map.inode = read.inode
            perf_map.due = min(perf_map.due, self._turn + _TURN_S)
        perf_map.offset += read.piece.used
        if read.piece.names:
            perf_map.code.add(read.piece)
            perf_map.frames.clear()
        elif read.piece.used and read.piece.read > MAX_LINE:
            # A sparse file or other junk: other owners' maps are worth more than the rest of it.
            perf_map.due = self._clock() + _DROPPED_S
            self._refusals.note(FileRefused(MALFORMED, "no line of a perf map in it"), path, pid, owner)

    def _is_stale(self, file: HeldFile, process: _Process) -> bool:
        """Whether an earlier process with the same pid left the map behind."""
        started = process.started / os.sysconf("SC_CLK_TCK")
        written_ago = time.time() - file.identity[2] / NANOS
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
        # Real, effective, saved and filesystem user; the pid of the innermost namespace is last.
        users, pids = status_values(status, b"Uid"), status_values(status, b"NSpid")
        return _Process(users[1] if len(users) > 1 else 0, pids[-1] if pids else pid, stat.start)

    def _keep_budget(self) -> None:
        """Drop maps until the rest fits: from the owner that uses most, least recently needed first."""
        sizes: Counter[Owner] = Counter()
        for perf_map in self._maps.values():
            sizes[perf_map.owner] += perf_map.nbytes + _MAP_BYTES
        while len(self._maps) > 1 and (len(self._maps) > _MAX_PROCESSES or sizes.total() > self._budget):
            owner, _ = sizes.most_common(1)[0]
            pid = next(pid for pid, perf_map in self._maps.items() if perf_map.owner == owner)
            sizes[owner] -= self._maps.pop(pid).nbytes + _MAP_BYTES

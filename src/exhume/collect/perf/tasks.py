"""Which program a sampled thread was running: names and address spaces, followed through forks, execs and mappings.

Most processes are known from /proc when they are first sampled. Those that are gone by then (a fork storm's) are
known from the kernel's task records. At thousands of forks a second almost all of those records belong to processes
that were never sampled and have already ended: they are dropped by the array, before Python looks at any of them.
"""

import contextlib
import struct
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from exhume.collect.host import Host
from exhume.collect.perf.mapruns import MapRun, MapRuns
from exhume.collect.perf.records import TRAILER_BYTES, Records, RecordType
from exhume.collect.perf.symbols.space import AddressSpace

MISC_COMM_EXEC = 1 << 13
# type, misc, size, pid, then tid or parent; the child's and the parent's thread.
_HEAD = struct.Struct("<IHHII")
_THREADS = struct.Struct("<II")
_time_of = itemgetter(0)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
# Address spaces of processes that were never sampled: kept for the case that they are first sampled in the second in
# which they end. Those that live on can always be read from /proc instead.
UNSAMPLED_KEPT = 512
# The name of a thread that was sampled when it no longer had one.
EXITING = "(exiting)"
SAMPLED_KEPT = 2048


@dataclass(slots=True)
class Image:
    """A program in memory. `salt` is equal for processes whose addresses mean the same (a fork before its exec)."""

    space: AddressSpace
    salt: int


# Stands for a process that ended before anything could be learnt about it; it is not asked about again.
_UNKNOWN = Image(AddressSpace(0), 0)


class Tasks:
    """Names and images of threads, by time within the current tick."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._salts = count(1)
        self._map_runs = MapRuns()
        # Newest last. More than one entry only within the tick of an exec.
        self._images: OrderedDict[int, list[tuple[int, Image | None]]] = OrderedDict()
        self._names: dict[int, list[tuple[int, str]]] = {}
        self._parents: dict[int, int] = {}
        self._sampled: set[int] = set()
        self._ended: list[tuple[int, int]] = []
        self._execed: list[int] = []
        # Processes that ended in this tick: /proc need not be asked about them.
        self.gone: set[int] = set()

    def apply(self, drained: Iterable[Records], sampled_pids: npt.NDArray[np.int32]) -> None:
        """Take in the task records of a tick, in the order of their time."""
        parts = [part for part in drained if len(part.starts)]
        relevant = _relevant_pids(parts, sampled_pids)
        self.gone = relevant[1]
        kept = [(part, _task_records(part, relevant)) for part in parts]
        told: list[tuple[int, int, bytes, MapRun | None]] = [
            (run.time, 0, b"", run) for run in self._map_runs.decode(kept)
        ]
        for part, starts in kept:
            others = starts[(part.words[starts] & _LOW) != RecordType.MMAP2]
            ends = others + (part.words[others] >> np.uint64(51)).astype(np.int64)
            times = part.words[ends - 2].tolist()
            told.extend((time, at, part.data, None) for time, at in zip(times, (others * 8).tolist(), strict=True))
        told.sort(key=_time_of)
        for time, at, data, run in told:
            if run is None:
                self._take(time, at, data)
            else:
                self._map(run)

    def _take(self, time: int, start: int, data: bytes) -> None:
        kind, misc, size, pid, other = _HEAD.unpack_from(data, start)
        if kind == RecordType.FORK:
            self._fork(pid, other, *_THREADS.unpack_from(data, start + 16))
        elif kind == RecordType.EXIT:
            self._ended.append((pid, _THREADS.unpack_from(data, start + 16)[0]))
        elif kind == RecordType.COMM:
            name = _text(data[start + 16 : start + size - TRAILER_BYTES])
            self._names.setdefault(other, []).append((time, name))
            if misc & MISC_COMM_EXEC:
                self._exec(time, pid)

    def _exec(self, time: int, pid: int) -> None:
        images = self._images.setdefault(pid, [])
        before = images[-1][1] if images else None
        parent = self._parents.get(pid)
        space = (
            before.space.exec() if before and before is not _UNKNOWN else AddressSpace(pid, (parent,) if parent else ())
        )
        images.append((time, Image(space, next(self._salts))))
        self._execed.append(pid)

    def _fork(self, pid: int, parent: int, tid: int, parent_tid: int) -> None:
        names = self._names.get(parent_tid)
        if names is None:
            names = self._names[parent_tid] = [(0, self._name_from_proc(parent, parent_tid))]
        self._names[tid] = [(0, names[-1][1])]
        if pid == parent:
            return
        self._parents[pid] = parent
        images = self._images.get(parent)
        image = images[-1][1] if images else None
        child = Image(image.space.fork(pid), image.salt) if image and image is not _UNKNOWN else None
        self._images[pid] = [(0, child)]

    def _map(self, run: MapRun) -> None:
        images = self._images.get(run.pid)
        image = images[-1][1] if images else None
        if image is None or image is _UNKNOWN:
            return
        image.space.add(run.mappings)
        # What the addresses mean has changed, so what was concluded from them before must not be reused.
        image.salt = next(self._salts)

    def image_at(self, pid: int, time: int) -> Image | None:
        """The image that `pid` had at `time` (nanoseconds)."""
        self._sampled.add(pid)
        images = self._images.get(pid)
        if images is None:
            images = self._images[pid] = [(0, self._from_proc(pid) or _UNKNOWN)]
        index = _last_before(images, time)
        began, image = images[index]
        if image is None:
            # A child of a process that had not been sampled. Its own maps tell, unless it has changed since.
            image = self._from_proc(pid) if index == len(images) - 1 else None
            image = image or self._from_parent(pid) or _UNKNOWN
            images[index] = (began, image)
        return image if image is not _UNKNOWN else None

    def changed_image(self, pid: int) -> bool:
        """Whether the process ran more than one program within the current tick."""
        return len(self._images.get(pid, ())) > 1

    def changed_name(self, tid: int) -> bool:
        """Whether the thread had more than one name within the current tick."""
        return len(self._names.get(tid, ())) > 1

    def take_execed(self) -> list[int]:
        """The processes that began another program since this was last asked."""
        execed, self._execed = self._execed, []
        return execed

    def name_at(self, pid: int, tid: int, time: int) -> str:
        """The name that a thread had at `time`."""
        names = self._names.get(tid)
        if names is None:
            names = self._names[tid] = [(0, self._name_from_proc(pid, tid))]
        return names[_last_before(names, time)][1]

    def parent(self, pid: int) -> int | None:
        return self._parents.get(pid)

    def settle(self) -> None:
        """End of the tick: forget the threads that ended and keep the newest of what changed."""
        for pid, tid in self._ended:
            self._names.pop(tid, None)
            if pid == tid:
                self._images.pop(pid, None)
                self._parents.pop(pid, None)
                self._sampled.discard(pid)
        self._ended.clear()
        for names in self._names.values():
            if len(names) > 1:
                names[:] = [(0, names[-1][1])]
        for images in self._images.values():
            if len(images) > 1:
                images[:] = [(0, images[-1][1])]
        if len(self._images) > SAMPLED_KEPT + UNSAMPLED_KEPT:
            self.forget()
        elif len(self._images) - len(self._sampled) > UNSAMPLED_KEPT:
            self._drop_unsampled()

    def _drop_unsampled(self) -> None:
        idle = [pid for pid in self._images if pid not in self._sampled]
        for pid in idle[: len(idle) - UNSAMPLED_KEPT // 2]:
            del self._images[pid]

    def forget(self) -> None:
        """Task records were lost: what is known may be stale, and a stale image would give wrong names."""
        self._images.clear()
        self._names.clear()
        self._parents.clear()
        self._sampled.clear()

    def _from_proc(self, pid: int) -> Image | None:
        space = None if pid in self.gone else AddressSpace.from_proc(self._host, pid)
        return Image(space, next(self._salts)) if space else None

    def _from_parent(self, pid: int) -> Image | None:
        parent = self._parents.get(pid)
        if parent is None:
            return None
        images = self._images.get(parent)
        image = images[0][1] if images else self._from_proc(parent)
        if image is None or image is _UNKNOWN:
            return None
        return Image(image.space.fork(pid), image.salt if images else next(self._salts))

    def _name_from_proc(self, pid: int, tid: int) -> str:
        if tid <= 0:
            return "swapper" if tid == 0 else EXITING
        if pid not in self.gone:
            with contextlib.suppress(OSError):
                return _text((self._host.proc / f"{pid}/task/{tid}/comm").read_bytes().rstrip(b"\n"))
        leader = self._names.get(pid)
        return leader[-1][1] if leader else f":{tid}"


def _last_before(entries: list[tuple[int, Image | None]] | list[tuple[int, str]], time: int) -> int:
    index = len(entries) - 1
    while index > 0 and entries[index][0] > time:
        index -= 1
    return index


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


def _pids(part: Records, kind: RecordType) -> npt.NDArray[np.uint64]:
    result: npt.NDArray[np.uint64] = part.words[part.of(kind) + 1]
    return result


def _relevant_pids(parts: list[Records], sampled_pids: npt.NDArray[np.int32]) -> tuple[set[int], set[int]]:
    """Pids to keep in any case (sampled, and the parents they were forked from), and pids that ended in this tick."""
    # A task that is being reaped is sampled with the pid -1.
    keep = {int(pid) for pid in sampled_pids if pid >= 0}
    ended: set[int] = set()
    forks = [_pids(part, RecordType.FORK) for part in parts]
    if forks:
        ids = np.concatenate(forks)
        children, parents = ids & _LOW, ids >> _HALF
        # A sampled child may have forked from one that did: two generations cover a shell's pipelines.
        for _ in range(2):
            mask = np.isin(children, np.fromiter(keep, dtype=np.uint64, count=len(keep)))
            keep.update(int(pid) for pid in np.unique(parents[mask]))
    for part in parts:
        at = part.of(RecordType.EXIT)
        ids, threads = part.words[at + 1], part.words[at + 2]
        leaders = (ids & _LOW) == (threads & _LOW)
        ended.update(int(pid) for pid in ids[leaders] & _LOW)
    return keep, ended


def _task_records(part: Records, relevant: tuple[set[int], set[int]]) -> npt.NDArray[np.int64]:
    """Where the records lie that matter: all of a sampled process, and those of any other that lives on."""
    keep, ended = relevant
    kinds = (RecordType.FORK, RecordType.EXIT, RecordType.COMM, RecordType.MMAP2)
    at = part.starts[np.isin(part.types, np.array(kinds, dtype=np.uint32))]
    pids = part.words[at + 1] & _LOW
    kept = np.isin(pids, np.fromiter(keep, dtype=np.uint64, count=len(keep)))
    dead = np.isin(pids, np.fromiter(ended, dtype=np.uint64, count=len(ended)))
    return at[kept | ~dead]

"""Names and mappings of the processes in a perf.data file, followed through its COMM, FORK and MMAP records.

As perf does it (tools/perf/util/machine.c, machine__process_fork_event; tools/perf/util/thread.c, thread__fork): a
child has the name and the mappings of its parent until it has its own, and a thread that no record names is called
`:tid`. An exec takes no mapping away: in the kernel, the process has the registers of the program before until the new
one runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from exhume.collect.perf.attr import SampleType
from exhume.collect.perf.records import row_keys, unique
from exhume.collect.symbols.mappings import AddressSpace, FileKey, MappedFile, Mapping, mapped_file
from exhume.interop.importers.form import I64Array, U64Array
from exhume.interop.importers.perf_data.records import Block, Kind, Layout, Samples

_PROT_EXEC = 4
# The same bit as that of an exec: a FORK that perf made up for a process that was there before.
_MISC_FORK_EXEC = 1 << 13
_MISC_BUILD_ID = 1 << 14
_KERNEL_PID = -1
_MAX_PATH_WORDS = 4096 // 8 + 1
_MAPS = ("time", "order", "pid", "start", "length", "offset", "file")
_moment_of = itemgetter(0)


class Rename(NamedTuple):
    time: int
    order: int
    pid: int
    tid: int
    comm: int


class Exit(NamedTuple):
    time: int
    order: int
    pid: int
    tid: int


class Fork(NamedTuple):
    time: int
    order: int
    pid: int
    parent: int
    tid: int
    parent_tid: int
    made_up: bool


@dataclass(frozen=True, slots=True)
class Maps:
    """Executable mappings that were made, column by column; `file` is a place in the list of files."""

    time: U64Array
    order: I64Array
    pid: I64Array
    start: U64Array
    length: U64Array
    offset: U64Array
    file: I64Array

    def select(self, chosen: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> "Maps":
        return Maps(*(getattr(self, name)[chosen] for name in _MAPS))

    @classmethod
    def concatenate(cls, parts: "Sequence[Maps]") -> "Maps":
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _MAPS))


@dataclass(frozen=True, slots=True)
class KernelMap:
    """Where the kernel's code, or that of a module, was. `reference` is the address that its first symbol had."""

    start: int
    length: int
    reference: int
    name: str


class Image:
    """The mappings of one process. `salt` is another one whenever its addresses may mean something else; `changed` is
    when it last had a new mapping."""

    __slots__ = ("_pending", "_space", "changed", "salt")

    def __init__(self, pid: int, salt: int) -> None:
        self.salt = salt
        self.changed = 0
        self._space = AddressSpace(pid)
        self._pending: list[list[Mapping]] = []

    def add(self, time: int, run: list[Mapping], salt: int) -> None:
        self._pending.append(run)
        self.salt = salt
        self.changed = time

    def fork(self, pid: int) -> "Image":
        child = Image(pid, self.salt)
        child._space, child._pending = self._space.fork(pid), self._pending.copy()
        return child

    @property
    def space(self) -> AddressSpace:
        """All of the mappings."""
        for run in self._pending:
            self._space.add(run)
        self._pending.clear()
        return self._space


class TaskDecoder:
    """Decodes the records of tasks; remembers the names and files in them."""

    def __init__(self) -> None:
        self.comms: list[str] = []
        self._comm_places: dict[bytes, int] = {}
        self.files: list[MappedFile] = []
        self._file_places: dict[int, int] = {}
        #: By path, from mapping records that carry them.
        self.build_ids: dict[str, bytes] = {}
        self.kernel_maps: list[KernelMap] = []

    def comm(self, name: bytes) -> int:
        """The place of a name among all of them."""
        place = self._comm_places.get(name)
        if place is None:
            place = self._comm_places[name] = len(self.comms)
            self.comms.append(name.decode("utf-8", "replace"))
        return place

    def renames(self, block: Block, layout: Layout) -> list[Rename]:
        at = block.of(Kind.COMM)
        if not len(at):
            return []
        ends = (at + block.sizes(at) - layout.trailer_words) * 8
        moments = (_times(block, at, layout), block.order(at))
        columns = (*moments, block.low(at), block.high(at), (at + 2) * 8, ends)
        return [
            Rename(time, order, pid, tid, self.comm(block.data[begin:end].split(b"\0", 1)[0]))
            for time, order, pid, tid, begin, end in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def exits(self, block: Block, layout: Layout) -> list[Exit]:
        at = block.of(Kind.EXIT)
        columns = (_times(block, at, layout), block.order(at), block.low(at), block.low(at, 2))
        return list(map(Exit._make, zip(*(column.tolist() for column in columns), strict=True))) if len(at) else []

    def forks(self, block: Block, layout: Layout) -> list[Fork]:
        at = block.of(Kind.FORK)
        if not len(at):
            return []
        made_up = (block.misc(at) & np.uint64(_MISC_FORK_EXEC)) != 0
        numbers = (block.low(at), block.high(at), block.low(at, 2), block.high(at, 2))
        columns = (_times(block, at, layout), block.order(at), *numbers, made_up)
        return list(map(Fork._make, zip(*(column.tolist() for column in columns), strict=True)))

    def maps(self, block: Block, layout: Layout) -> list[Maps]:
        found = []
        for kind, path_at in ((Kind.MMAP, 5), (Kind.MMAP2, 9)):
            at = block.of(kind)
            if not len(at):
                continue
            if kind == Kind.MMAP2:
                at = at[(block.low(at, 8) & _PROT_EXEC) != 0]
            pid = block.low(at)
            for place in at[pid == _KERNEL_PID].tolist():
                self._take_kernel(block, place, path_at)
            at = at[pid >= 0]
            if len(at):
                files = self._files_of(block, at, path_at, layout.trailer_words, identified=kind == Kind.MMAP2)
                start, length, offset = (block.words[at + word] for word in (2, 3, 4))
                moments = (_times(block, at, layout), block.order(at))
                found.append(Maps(*moments, block.low(at), start, length, offset, files))
        return found

    def _take_kernel(self, block: Block, at: int, path_at: int) -> None:
        size = int(block.sizes(np.array([at]))[0])
        name = block.data[(at + path_at) * 8 : (at + size) * 8].split(b"\0", 1)[0].decode("utf-8", "replace")
        start, length, offset = (int(word) for word in block.words[at + 2 : at + 5])
        self.kernel_maps.append(KernelMap(start, length, offset, name))

    def _files_of(self, block: Block, at: I64Array, path_at: int, trailer: int, *, identified: bool) -> I64Array:
        """The file of each mapping record. Most records name one of a few files."""
        sizes = block.sizes(at)
        depth = np.clip(sizes - path_at - trailer, 1, _MAX_PATH_WORDS)
        depth = np.minimum(depth, np.maximum(sizes - path_at, 1))
        first = np.cumsum(depth) - depth
        gather = np.repeat(at + path_at - first, depth) + np.arange(int(depth.sum()), dtype=np.int64)
        gather = np.minimum(gather, len(block.words) - 1)
        identity = np.zeros(len(at), np.uint64)
        if identified:
            words = block.words
            identity = words[at + 5] * np.uint64(31) + words[at + 6] * np.uint64(1_000_003) + words[at + 7]
        found, index, which = unique(row_keys(block.words[gather], first, depth, identity))
        places = [
            self._file_places[key]
            if key in self._file_places
            else self._new_file(key, block, int(at[place]), path_at, int(depth[place]), identified=identified)
            for key, place in zip(found.tolist(), index.tolist(), strict=True)
        ]
        return np.array(places, np.int64)[which]

    def _new_file(self, key: int, block: Block, at: int, path_at: int, depth: int, *, identified: bool) -> int:
        raw = block.data[(at + path_at) * 8 : (at + path_at + depth) * 8].split(b"\0", 1)[0]
        path = raw.decode("utf-8", "surrogateescape")
        device, inode, generation = (int(word) for word in block.words[at + 5 : at + 8]) if identified else (0, 0, 0)
        if identified and int(block.misc(np.array([at]))[0]) & _MISC_BUILD_ID:
            raw_id = block.data[(at + 5) * 8 : (at + 8) * 8]
            build_id = raw_id[4 : 4 + min(raw_id[0], 20)]
            self.build_ids[path] = build_id
            device, inode, generation = 0, int.from_bytes(build_id[:8], "little"), 0
        file = mapped_file(FileKey(device & 0xFFFFFFFF, device >> 32, inode, generation, path))
        self._file_places[key] = len(self.files)
        self.files.append(file)
        return self._file_places[key]


def _times(block: Block, at: I64Array, layout: Layout) -> U64Array:
    times = layout.trailer(block, at, SampleType.TIME)
    return np.zeros(len(at), np.uint64) if times is None else times


class Tasks:
    """Names and images of threads at any moment of the records that were applied last."""

    def __init__(self, decoder: TaskDecoder) -> None:
        self._decoder = decoder
        self._salts = count(1)
        self._swapper = decoder.comm(b"swapper")
        # With the time from which on, newest last; more than one only within one application.
        self._names: dict[int, list[tuple[int, int]]] = {0: [(0, self._swapper)]}
        self._images: dict[int, list[tuple[int, Image]]] = {}
        self._changed: set[int] = set()
        self._ended: list[Exit] = []
        self.parents: dict[int, tuple[int, int]] = {}

    def apply(self, renames: list[Rename], forks: list[Fork], exits: list[Exit], maps: Maps | None) -> None:
        """Take in records, in any order, that are newer than those of the last call."""
        self._forget_ended()
        self._ended = exits
        for pid in self._changed:
            del self._images[pid][:-1]
        self._changed.clear()
        for names in self._names.values():
            if len(names) > 1:
                del names[:-1]
        changes: list[tuple[tuple[int, int], Rename | Fork | tuple[int, list[Mapping]]]] = []
        changes.extend((each[:2], each) for each in renames)
        changes.extend((each[:2], each) for each in forks)
        if maps is not None and len(maps.time):
            changes.extend(self._runs(maps, forks))
        changes.sort(key=_moment_of)
        for (time, _), change in changes:
            if isinstance(change, Fork):
                self._fork(change)
            elif isinstance(change, Rename):
                self._names.setdefault(change.tid, []).append((time, change.comm))
            else:
                self._map(time, *change)

    def _forget_ended(self) -> None:
        """Forget threads that had ended before the last call: until then they may still have been sampled. A number
        that another has by now is kept, and so is the process of a thread that calls exec in place of its first one."""
        for time, _, pid, tid in self._ended:
            names = self._names.get(tid)
            if names is not None and names[-1][0] <= time and tid:
                del self._names[tid]
            images = self._images.get(pid) if pid == tid else None
            if images and max(images[-1][0], images[-1][1].changed) <= time:
                del self._images[pid]
                self.parents.pop(pid, None)
                self._changed.discard(pid)

    def _map(self, time: int, pid: int, run: list[Mapping]) -> None:
        if pid not in self._images:
            self._images[pid] = [(0, Image(pid, 0))]
        self._images[pid][-1][1].add(time, run, next(self._salts))

    def _fork(self, fork: Fork) -> None:
        # A parent whose name is not known has none to inherit (thread__fork: only if parent->comm_set).
        unnamed = self._decoder.comm(b":%d" % fork.parent_tid)
        name = self._names.get(fork.parent_tid, [(0, unnamed)])[-1][1]
        if name == unnamed:
            name = self._decoder.comm(b":%d" % fork.tid)
        self._names.setdefault(fork.tid, []).append((fork.time, name))
        if fork.pid == fork.parent:
            return
        self.parents[fork.pid] = (fork.parent, fork.time)
        images = None if fork.made_up else self._images.get(fork.parent)
        image = images[-1][1].fork(fork.pid) if images else Image(fork.pid, next(self._salts))
        self._set_image(fork.time, fork.pid, image)

    def _set_image(self, time: int, pid: int, image: Image) -> None:
        images = self._images.setdefault(pid, [])
        images.append((time, image))
        if len(images) > 1:
            self._changed.add(pid)

    def _runs(self, maps: Maps, forks: list[Fork]) -> list[tuple[tuple[int, int], tuple[int, list[Mapping]]]]:
        """What each process mapped without a fork of its own in between, with the moment of the first."""
        enders = [(pid, *each[:2]) for each in forks for pid in (each.pid, each.parent)]
        pids = np.concatenate([maps.pid, np.array([pid for pid, _, _ in enders], np.int64)])
        times = np.concatenate([maps.time, np.array([time for _, time, _ in enders], np.uint64)])
        orders = np.concatenate([maps.order, np.array([order for _, _, order in enders], np.int64)])
        order = np.lexsort((orders, times, pids))
        is_map = order < len(maps.pid)
        begins = is_map.copy()
        begins[1:] &= (pids[order][1:] != pids[order][:-1]) | ~is_map[:-1]
        chosen = maps.select(order[is_map])
        cuts = np.flatnonzero(begins[is_map]).tolist()
        files = self._decoder.files
        columns = (chosen.start, chosen.length, chosen.offset, chosen.file)
        mappings = [
            Mapping(start, start + length, offset, files[file])
            for start, length, offset, file in zip(*(column.tolist() for column in columns), strict=True)
        ]
        heads = (column[cuts].tolist() for column in (chosen.time, chosen.order, chosen.pid))
        bounds = zip(*heads, cuts, [*cuts[1:], len(mappings)], strict=True)
        return [((time, order), (pid, mappings[first:end])) for time, order, pid, first, end in bounds]

    def names_of(self, samples: Samples) -> I64Array:
        """The name of the thread of each sample, as a place among the names."""
        result = np.empty(len(samples), np.int64)
        tids, which = np.unique(samples.tid, return_inverse=True)
        current = np.empty(len(tids), np.int64)
        changing = []
        for place, tid in enumerate(tids.tolist()):
            names = self._names.get(tid)
            if names is None:
                current[place] = self._decoder.comm(b":%d" % tid)
            else:
                current[place] = names[-1][1]
                if len(names) > 1:
                    changing.append((place, names))
        result[:] = current[which]
        for place, names in changing:
            at = np.flatnonzero(which == place)
            since = np.array([time for time, _ in names], np.uint64)
            index = np.maximum(np.searchsorted(since, samples.time[at], side="right") - 1, 0)
            result[at] = np.array([name for _, name in names], np.int64)[index]
        return result

    def name_of(self, tid: int) -> str:
        """What a thread is called now."""
        names = self._names.get(tid)
        return self._decoder.comms[names[-1][1]] if names else f":{tid}"

    def images_of(self, samples: Samples) -> tuple[list[Image], I64Array]:
        """The images that were sampled, and which of them each sample ran; -1 where nothing is known of it."""
        images: list[Image] = []
        pids, which = np.unique(samples.pid, return_inverse=True)
        numbers = np.full(len(pids), -1, np.int64)
        changing = []
        for place, pid in enumerate(pids.tolist()):
            known = self._images.get(pid)
            if known:
                numbers[place] = len(images)
                images.append(known[-1][1])
                if len(known) > 1:
                    changing.append((place, known))
        result = numbers[which]
        for place, known in changing:
            at = np.flatnonzero(which == place)
            since = np.array([time for time, _ in known], np.uint64)
            index = np.maximum(np.searchsorted(since, samples.time[at], side="right") - 1, 0)
            base = len(images)
            images.extend(image for _, image in known)
            result[at] = base + index
        return images, result

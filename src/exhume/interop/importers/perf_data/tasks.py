"""Track the names and mappings of the processes in a perf.data file through its COMM, FORK and MMAP records.

As in perf (tools/perf/util/machine.c, machine__process_fork_event; tools/perf/util/thread.c, thread__fork), a child has
the name and the mappings of its parent until it has its own, and a thread without a recorded name is called `:tid`. An
exec doesn't remove mappings: while in the kernel, the process keeps the registers of the previous program until the new
one runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from exhume.collect.perf.attr import SampleType
from exhume.collect.perf.records import row_keys, unique
from exhume.collect.symbols.mappings import MAX_MAPPINGS, AddressSpace, FileKey, MappedFile, Mapping, mapped_file
from exhume.interop.importers.form import I64Array, U64Array
from exhume.interop.importers.perf_data.records import TIME_LIMIT, Block, HeldSamples, Kind, Layout, ragged

_PROT_EXEC = 4
# The same bit as that of an exec: a FORK that perf synthesized for an existing process.
_MISC_FORK_EXEC = 1 << 13
_MISC_BUILD_ID = 1 << 14
_KERNEL_PID = -1
_MAX_PATH_WORDS = 4096 // 8 + 1
# An address and a layer number in one word: user addresses are no longer, except for those mapped on request.
_ADDRESS_BITS = np.uint64(48)
_MOST_ADDRESS = np.uint64(1 << 48)
_MOST_LAYERS_AT_ONCE = 1 << 16
# An image with more layers than this is merged into one: each layer needs a lookup of its own.
_MOST_LAYERS = 6
_WORTH_TRIMMING = 200_000
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
    """New executable mappings, in columns; `file` is an index into the list of files."""

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
    """Where the kernel's code, or that of a module, was mapped. `reference` is the address of its first symbol."""

    start: int
    length: int
    reference: int
    name: str


class Image:
    """The mappings of one process, as layers of a MappingStore, the newest first. `salt` changes whenever its addresses
    may mean something else; `changed` is the time of its last new mapping."""

    __slots__ = ("changed", "layers", "pid", "salt")

    def __init__(self, pid: int, salt: int, layers: tuple[int, ...] = ()) -> None:
        self.pid = pid
        self.salt = salt
        self.layers = layers
        self.changed = 0

    def fork(self, pid: int) -> "Image":
        return Image(pid, self.salt, self.layers)


class MappingStore:
    """The executable mappings of all processes, in one table.

    A layer has what a process mapped without a fork in between: sorted rows that don't overlap. A newer layer of an
    image hides what lies below it. So an exec adds a few rows, and a fork none."""

    def __init__(self, files: list[MappedFile]) -> None:
        self._files = files
        self._start, self._end, self._shift = (np.zeros(0, np.uint64) for _ in range(3))
        self._file = np.zeros(0, np.int64)
        # For each layer: its number, its first row, and its number of rows.
        self._number, self._first, self._count = (np.zeros(0, np.int64) for _ in range(3))
        self._numbers = count()
        self._kept = 0

    def add(self, maps: Maps, run_of: I64Array, runs: int) -> list[int]:
        """Make a layer of each run of mappings, which come in order of time; return the layer numbers."""
        order = np.lexsort((maps.start, run_of))
        run, start, end = run_of[order], maps.start[order], (maps.start + maps.length)[order]
        counts = np.bincount(run, minlength=runs)
        first = np.cumsum(counts) - counts + len(self._start)
        self._append(start, end, (maps.start - maps.offset)[order], maps.file[order])
        clash = np.flatnonzero((run[1:] == run[:-1]) & (end[:-1] > start[1:]))
        for each in np.unique(run[clash]).tolist():
            first[each], counts[each] = self._overlaid(self._mappings(maps.select(run_of == each)))
        return self._name(first, counts)

    def merge(self, layers: Sequence[int]) -> int:
        """Merge several layers, given newest first, into one."""
        places = np.searchsorted(self._number, np.array(layers[::-1], np.int64))
        spans = zip(self._first[places].tolist(), self._count[places].tolist(), strict=True)
        rows = np.concatenate([np.arange(first, first + size) for first, size in spans])
        start, end = self._start[rows], self._end[rows]
        nothing = np.zeros(len(rows), np.int64)
        maps = Maps(start, nothing, nothing, start, end - start, start - self._shift[rows], self._file[rows])
        first, size = self._overlaid(self._mappings(maps))
        return self._name(np.array([first]), np.array([size]))[0]

    def trim(self, used: Callable[[], set[int]]) -> None:
        """Drop layers that no image uses any more, once that is worthwhile."""
        if len(self._start) < 2 * self._kept + _WORTH_TRIMMING:
            return
        kept = np.isin(self._number, np.array(sorted(used()), np.int64))
        self._number, first, counts = self._number[kept], self._first[kept], self._count[kept]
        self._first = np.cumsum(counts) - counts
        self._count = counts
        rows = ragged(first, counts)
        self._start, self._end, self._shift = self._start[rows], self._end[rows], self._shift[rows]
        self._file = self._file[rows]
        self._kept = len(rows)

    def locate(self, images: Sequence[Image], image_of: I64Array, addresses: U64Array) -> tuple[I64Array, U64Array]:
        """The file of each address (-1 for none), and the offset in it. Anonymous memory has no file offsets: there,
        the address itself is used."""
        file = np.full(len(addresses), -1, np.int64)
        offset = addresses.copy()
        layers = np.array([layer for image in images for layer in image.layers], np.int64)
        depth = np.array([len(image.layers) for image in images], np.int64)
        first = np.cumsum(depth) - depth
        left = np.flatnonzero((image_of >= 0) & (addresses < _MOST_ADDRESS))
        level = 0
        while len(left):
            left = left[depth[image_of[left]] > level]
            found, shift = self._look_up(layers[first[image_of[left]] + level], addresses[left])
            hit = found >= 0
            file[left[hit]] = found[hit]
            offset[left[hit]] -= shift[hit]
            left = left[~hit]
            level += 1
        return file, offset

    def _look_up(self, layer: I64Array, addresses: U64Array) -> tuple[I64Array, U64Array]:
        """Look each address up in one layer: the file (-1 for none), and what to subtract to get the offset in it."""
        file, shift = np.full(len(layer), -1, np.int64), np.zeros(len(layer), np.uint64)
        used, which = np.unique(layer, return_inverse=True)
        # A layer number and an address in one word.
        for begin in range(0, len(used), _MOST_LAYERS_AT_ONCE):
            chosen = np.flatnonzero((which >= begin) & (which < begin + _MOST_LAYERS_AT_ONCE))
            places = np.searchsorted(self._number, used[begin : begin + _MOST_LAYERS_AT_ONCE])
            rows = ragged(self._first[places], self._count[places])
            high = np.repeat(np.arange(len(places), dtype=np.uint64), self._count[places]) << _ADDRESS_BITS
            if not len(rows):
                continue
            wanted = ((which[chosen] - begin).astype(np.uint64) << _ADDRESS_BITS) + addresses[chosen]
            at = np.searchsorted(high + self._start[rows], wanted, side="right") - 1
            inside = (at >= 0) & (wanted - high[at] < self._end[rows[at]])
            inside &= high[at] >> _ADDRESS_BITS == wanted >> _ADDRESS_BITS
            hit = rows[at[inside]]
            file[chosen[inside]], shift[chosen[inside]] = self._file[hit], self._shift[hit]
        return file, shift

    def _append(self, start: U64Array, end: U64Array, shift: U64Array, file: I64Array) -> None:
        # For memory that may contain code compiled by a runtime, the address itself is used.
        jit = np.array([each.maybe_jit for each in self._files], np.bool_)
        self._start = np.concatenate([self._start, start])
        self._end = np.concatenate([self._end, end])
        self._shift = np.concatenate([self._shift, np.where(jit[file], np.uint64(0), shift)])
        self._file = np.concatenate([self._file, file])

    def _name(self, first: I64Array, counts: I64Array) -> list[int]:
        numbers = [next(self._numbers) for _ in range(len(first))]
        self._number = np.concatenate([self._number, np.array(numbers, np.int64)])
        self._first = np.concatenate([self._first, first])
        self._count = np.concatenate([self._count, counts])
        return numbers

    def _mappings(self, maps: Maps) -> list[Mapping]:
        columns = (maps.start, maps.length, maps.offset, maps.file)
        return [
            Mapping(start, start + length, offset, self._files[file])
            for start, length, offset, file in zip(*(column.tolist() for column in columns), strict=True)
        ]

    def _overlaid(self, mappings: list[Mapping]) -> tuple[int, int]:
        """Add rows for overlapping mappings, in the order in which they were made."""
        space = AddressSpace(0)
        space.add(mappings)
        layout = space.layout
        place = {file.number: at for at, file in enumerate(self._files)}
        first = len(self._start)
        start, end, offset = (np.array(column, np.uint64) for column in (layout.starts, layout.ends, layout.offsets))
        self._append(start, end, start - offset, np.array([place[file.number] for file in layout.files], np.int64))
        return first, len(layout.files)


class TaskDecoder:
    """Decodes task records, and interns the names and files in them."""

    def __init__(self) -> None:
        self.comms: list[str] = []
        self._comm_places: dict[bytes, int] = {}
        self.files: list[MappedFile] = []
        self._file_places: dict[int, int] = {}
        #: By path, from mapping records that carry them.
        self.build_ids: dict[str, bytes] = {}
        self.kernel_maps: list[KernelMap] = []

    def comm(self, name: bytes) -> int:
        """The index of a name among all names."""
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
                made = Maps(*moments, block.low(at), start, length, offset, files)
                # The legacy vsyscall page lies above this limit; nothing that matters does.
                possible = (start < _MOST_ADDRESS) & (length - np.uint64(1) < _MOST_ADDRESS)
                found.append(made.select(possible & (offset < np.uint64(1 << 63))))
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
    """The times of task records. An impossible one counts from the beginning, as records do that perf synthesized."""
    times = layout.trailer(block, at, SampleType.TIME)
    if times is None:
        return np.zeros(len(at), np.uint64)
    return np.where(times < np.uint64(TIME_LIMIT), times, np.uint64(0))


class Tasks:
    """Names and images of threads at any time within the records applied last."""

    def __init__(self, decoder: TaskDecoder) -> None:
        self._decoder = decoder
        self._salts = count(1)
        self.mappings = MappingStore(decoder.files)
        self._swapper = decoder.comm(b"swapper")
        # Names with the time from which on they apply, newest last; several only within one apply().
        self._names: dict[int, list[tuple[int, int]]] = {0: [(0, self._swapper)]}
        self._images: dict[int, list[tuple[int, Image]]] = {}
        self._changed: set[int] = set()
        self._ended: list[Exit] = []
        self.parents: dict[int, tuple[int, int]] = {}

    def apply(self, renames: list[Rename], forks: list[Fork], exits: list[Exit], maps: Maps | None) -> None:
        """Apply records, in any order, that are newer than those of the last call."""
        self._forget_ended()
        self._ended = exits
        for pid in self._changed:
            del self._images[pid][:-1]
        self._changed.clear()
        for names in self._names.values():
            if len(names) > 1:
                del names[:-1]
        self.mappings.trim(self._used_layers)
        changes: list[tuple[tuple[int, int], Rename | Fork | tuple[int, int]]] = []
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
        """Drop threads that ended before the last call; until then they may still have been sampled. An id that was
        reused is kept, and so is the process of a thread that calls exec in place of its main thread."""
        for time, _, pid, tid in self._ended:
            names = self._names.get(tid)
            if names is not None and names[-1][0] <= time and tid:
                del self._names[tid]
            images = self._images.get(pid) if pid == tid else None
            if images and max(images[-1][0], images[-1][1].changed) <= time:
                del self._images[pid]
                self.parents.pop(pid, None)
                self._changed.discard(pid)

    def _map(self, time: int, pid: int, layer: int) -> None:
        if pid not in self._images:
            self._images[pid] = [(0, Image(pid, 0))]
        image = self._images[pid][-1][1]
        image.layers = (layer, *image.layers)
        if len(image.layers) > _MOST_LAYERS:
            image.layers = (self.mappings.merge(image.layers),)
        image.salt = next(self._salts)
        image.changed = time

    def _used_layers(self) -> set[int]:
        return {layer for images in self._images.values() for _, image in images for layer in image.layers}

    def _fork(self, fork: Fork) -> None:
        # A parent without a known name has none to inherit (thread__fork: only if parent->comm_set).
        names = self._names.get(fork.parent_tid)
        name = -1 if names is None else names[-1][1]
        if name < 0 or self._decoder.comms[name] == f":{fork.parent_tid}":
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

    def _runs(self, maps: Maps, forks: list[Fork]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """What each process mapped without a fork of its own in between: the time of the first mapping, process and
        layer."""
        enders = [(pid, *each[:2]) for each in forks for pid in (each.pid, each.parent)]
        pids = np.concatenate([maps.pid, np.array([pid for pid, _, _ in enders], np.int64)])
        times = np.concatenate([maps.time, np.array([time for _, time, _ in enders], np.uint64)])
        orders = np.concatenate([maps.order, np.array([order for _, _, order in enders], np.int64)])
        order = np.lexsort((orders, times, pids))
        is_map = order < len(maps.pid)
        begins = is_map.copy()
        begins[1:] &= (pids[order][1:] != pids[order][:-1]) | ~is_map[:-1]
        chosen = maps.select(order[is_map])
        cuts = np.flatnonzero(begins[is_map])
        run_of = np.cumsum(begins[is_map]) - 1
        heads = (column[cuts].tolist() for column in (chosen.time, chosen.order, chosen.pid))
        within = np.arange(len(run_of)) - cuts[run_of] < MAX_MAPPINGS
        layers = self.mappings.add(chosen.select(within), run_of[within], len(cuts))
        return [((time, order), (pid, layer)) for time, order, pid, layer in zip(*heads, layers, strict=True)]

    def names_of(self, samples: HeldSamples) -> I64Array:
        """The name of each sample's thread, as an index into the names."""
        tids, which = np.unique(samples.tid, return_inverse=True)
        histories = [self._names.get(tid) or [(0, self._decoder.comm(b":%d" % tid))] for tid in tids.tolist()]
        names = np.array([name for history in histories for _, name in history], np.int64)
        return names[_at_that_time(histories, which, samples.time)]

    def name_of(self, tid: int) -> str:
        """The current name of a thread."""
        names = self._names.get(tid)
        return self._decoder.comms[names[-1][1]] if names else f":{tid}"

    def images_of(self, samples: HeldSamples) -> tuple[list[Image], I64Array]:
        """The sampled images, and which of them each sample ran; -1 if nothing is known about it."""
        pids, which = np.unique(samples.pid, return_inverse=True)
        found = [self._images.get(pid) for pid in pids.tolist()]
        histories = [history for history in found if history]
        images = [image for history in histories for _, image in history]
        number = np.full(len(pids), -1, np.int64)
        number[[place for place, history in enumerate(found) if history]] = np.arange(len(histories))
        known = np.flatnonzero(number[which] >= 0)
        result = np.full(len(samples), -1, np.int64)
        result[known] = _at_that_time(histories, number[which[known]], samples.time[known])
        return images, result


def _at_that_time(histories: Sequence[Sequence[tuple[int, object]]], which: I64Array, time: U64Array) -> I64Array:
    """Which entry of some concatenated histories applied at some times: the last one up to that time, otherwise the
    first. `which` is the history of each time."""
    counts = np.array([len(history) for history in histories], np.int64)
    first = np.cumsum(counts) - counts
    several = np.flatnonzero(counts[which] > 1)
    result = first[which]
    if len(several):
        since = np.array([moment for history in histories for moment, _ in history], np.uint64)
        owners = np.repeat(np.arange(len(histories)), counts)
        # Sort everything together, each entry before the times that equal its own: then the last entry before is the
        # right one.
        is_query = np.repeat((0, 1), (len(since), len(several)))
        moments = np.concatenate([since, time[several]])
        order = np.lexsort((is_query, moments, np.concatenate([owners, which[several]])))
        is_entry = order < len(since)
        last = order[np.maximum.accumulate(np.where(is_entry, np.arange(len(order)), 0))]
        # Before the first entry of all there is none; before the first of a later history, one of another.
        last = np.where(last < len(since), last, 0)
        result[several[order[~is_entry] - len(since)]] = last[~is_entry]
        result = np.maximum(result, first[which])
    return result

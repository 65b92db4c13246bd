"""Names and program images of every thread, followed through the FORK, COMM, EXIT and MMAP2 records of a tick.

A sample gets the name that its thread had and the program that its process ran at that time, even if the process has
since exited or run another program. Loading one program makes five to ten mappings, and a fork storm loads a thousand
programs a second. So mappings are decoded as arrays and applied in runs: the mappings of one process without a fork or
exec of its own in between, which keeps every order that matters.
"""

from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from exhume.collect.perf.records import (
    MISC_COMM_EXEC,
    TRAILER_BYTES,
    I64Array,
    Records,
    RecordType,
    U64Array,
    isin,
    row_keys,
    unique,
)
from exhume.collect.processes import read_start
from exhume.collect.symbols.mappings import AddressSpace, FileKey, Layout, MappedFile, Mapping, mapped_file
from exhume.collect.symbols.owners import Owner, Owners, fair_level
from exhume.model.clock import NANOS
from exhume.procfs.host import Host

# In 64-bit words: where the path begins, and how much of the record is not the path.
_PATH_AT = 9
_NOT_PATH = _PATH_AT + TRAILER_BYTES // 8
_FILES_KEPT = 4096
_PATH_BYTES_KEPT = 1 << 20
# How many mappings one process may make in a tick: the dynamic loader maps a few dozen files, the largest programs some
# hundred.
_MAX_OF_PROCESS = 2048
# And all processes together: each mapping takes some microseconds.
_MAX_OF_TICK = 16384
_MAX_LINEAGE = 4
_time_of = itemgetter(0)
# As plain integers: looking up an enum member takes longer than using it.
_FORK, _COMM = int(RecordType.FORK), int(RecordType.COMM)
# What of a header distinguishes the records of a name: an exec writes one, too.
_KIND_AND_EXEC = np.uint64(MISC_COMM_EXEC << 32 | 0xFFFFFFFF)
# How many address spaces of never sampled processes are kept, in case a process is first sampled in the second in which
# it exits. Those of living processes can always be read from /proc instead.
UNSAMPLED_KEPT = 512
# The name of a thread that was sampled after it had lost its name.
EXITING = "(exiting)"
# The name of every thread outside the recorder's pid namespace: all of them have tid 0, like the idle task.
FOREIGN = "(other pid ns)"
SAMPLED_KEPT = 2048
_TEXTS_KEPT = 1024
# A dropped thread name can be read again; more names than this would be a leak, not a node.
NAMES_KEPT = 32768
# How often a process with too many mappings is read from /proc.
READ_AGAIN_NS = 60 * NANOS


class _MapColumns:
    """The mappings of a tick: in the order of their runs, and sorted by address within each run. Most runs are the
    mappings of a program that was just loaded: of these nothing but the sorted columns is needed."""

    def __init__(
        self, starts: U64Array, ends: U64Array, offsets: U64Array, files: list[MappedFile], cuts: list[int]
    ) -> None:
        self._starts, self._ends, self._offsets, self._files = starts, ends, offsets, files
        run_of = np.zeros(len(starts), dtype=np.int64)
        run_of[cuts[1:]] = 1
        run_of = run_of.cumsum()
        order = np.lexsort((starts, run_of))
        starts, ends, offsets = starts[order], ends[order], offsets[order]
        self.sorted_files = [files[place] for place in order.tolist()]
        numbers = [file.layout_number for file in self.sorted_files]
        self.columns = (*(array("Q", each.tobytes()) for each in (starts, ends, offsets)), array("Q", numbers))
        overlap = (run_of[1:] == run_of[:-1]) & (ends[:-1] > starts[1:])
        # Runs that have to be applied one mapping after the other: they overlap, or have paths that count.
        self.in_order = set(run_of[1:][overlap].tolist())
        if any(file.long_path for file in files):
            self.in_order.update(range(len(cuts)))

    def mappings(self, first: int, end: int) -> list[Mapping]:
        """Some mappings, in the order in which they were made."""
        columns = (each[first:end].tolist() for each in (self._starts, self._ends, self._offsets))
        return list(map(Mapping, *columns, self._files[first:end]))


@dataclass(slots=True)
class MapRun:
    """Mappings of one process; `time` is that of the first."""

    time: int
    pid: int
    number: int
    first: int
    end: int
    columns: _MapColumns

    @property
    def mappings(self) -> list[Mapping]:
        """In the order in which they were made."""
        return self.columns.mappings(self.first, self.end)

    def layout(self) -> Layout | None:
        """All of them, unless they have to be applied one after the other."""
        columns, part = self.columns, slice(self.first, self.end)
        if self.number in columns.in_order:
            return None
        starts, ends, offsets, numbers = columns.columns
        return Layout.of_columns(starts[part], ends[part], offsets[part], columns.sorted_files[part], numbers[part])


# What happened to a process: the time, its mappings or else the kind of the record (with the bit of an exec), its pid;
# then of a FORK the parent, and the threads of both; of a COMM the thread, nothing that counts, and the name.
_Change = tuple[int, int | MapRun, int, int, int, int, bytes]


class MapRuns:
    """Decodes mapping records; remembers the files they name."""

    def __init__(self, owners: Owners) -> None:
        self._files: dict[int, MappedFile] = {}
        self._path_bytes = 0
        self._owners = owners
        self._skipped: Counter[int] = Counter()
        self._excess: Counter[Owner] = Counter()

    def take_skipped(self) -> tuple[Counter[int], Counter[Owner]]:
        """How many records were left out since the last call: by process, and those that exceed the share
        of an owner."""
        taken = self._skipped, self._excess
        self._skipped, self._excess = Counter(), Counter()
        return taken

    def decode(self, parts: list[tuple[Records, I64Array]]) -> list[MapRun]:
        """The runs in some records (given as positions in the drained words); FORK and COMM records end a run."""
        maps = [_of_kind(records, at, RecordType.MMAP2) for records, at in parts]
        total = sum(len(at) for at in maps)
        if not total:
            return []
        if total > _MAX_OF_PROCESS:
            maps = self._bounded(parts, maps)
            total = sum(len(at) for at in maps)
        pids = np.concatenate([r.low(at) for (r, _), at in zip(parts, maps, strict=True)])
        times = np.concatenate([r.times(at) for (r, _), at in zip(parts, maps, strict=True)])
        columns = [
            np.concatenate([r.words[at + word] for (r, _), at in zip(parts, maps, strict=True)]) for word in (2, 3, 4)
        ]
        files = [file for (r, _), at in zip(parts, maps, strict=True) for file in self._files_of(r, at)]
        order, cuts = _runs(pids, times, parts)
        starts, lengths, offsets = (column[order] for column in columns)
        # In a corrupt record the start may be any value; the end must not wrap around to an address before it.
        ends = np.maximum(starts + lengths, starts)
        mapped = _MapColumns(starts, ends, offsets, [files[place] for place in order.tolist()], cuts)
        first_times, first_pids = times[order[cuts]].tolist(), pids[order[cuts]].tolist()
        bounds = zip(first_times, first_pids, cuts, [*cuts[1:], total], strict=True)
        return [MapRun(time, pid, number, first, end, mapped) for number, (time, pid, first, end) in enumerate(bounds)]

    def _bounded(self, parts: list[tuple[Records, I64Array]], maps: list[I64Array]) -> list[I64Array]:
        """The records except those of a process that made too many."""
        pids = np.concatenate([r.low(at) for (r, _), at in zip(parts, maps, strict=True)])
        kept = np.ones(len(pids), dtype=np.bool_)
        found, counts = np.unique(pids, return_counts=True)
        for pid, seen in zip(found.tolist(), counts.tolist(), strict=True):
            if seen > _MAX_OF_PROCESS:
                kept[np.flatnonzero(pids == pid)[_MAX_OF_PROCESS:]] = False
                self._skipped[pid] += seen - _MAX_OF_PROCESS
        if np.count_nonzero(kept) > _MAX_OF_TICK:
            self._leave_excess(parts, pids, kept)
        ends = np.cumsum([len(at) for at in maps])[:-1]
        return [at[keep] for at, keep in zip(maps, np.split(kept, ends), strict=True)]

    def _leave_excess(self, parts: list[tuple[Records, I64Array]], pids: U64Array, kept: npt.NDArray[np.bool_]) -> None:
        """Leave out what exceeds the share of an owner; a process that has exited is charged to its parent's owner."""
        parents: dict[int, int] = {}
        for records, at in parts:
            forked = _of_kind(records, at, RecordType.FORK)
            parents.update(zip(records.low(forked).tolist(), records.high(forked).tolist(), strict=True))
        owner_of = {pid: self._owners.of(pid, _ancestors(parents, pid)) for pid in set(pids.tolist())}
        numbers = {owner: number for number, owner in enumerate(dict.fromkeys(owner_of.values()))}
        owners = np.fromiter((numbers[owner_of[pid]] for pid in pids.tolist()), np.int64, count=len(pids))
        counts = np.bincount(owners[kept], minlength=len(numbers))
        level = fair_level(counts.tolist(), _MAX_OF_TICK)
        for owner, number in numbers.items():
            beyond = np.flatnonzero(kept & (owners == number))[level:]
            if len(beyond):
                kept[beyond] = False
                self._excess[owner] += len(beyond)

    def _files_of(self, records: Records, at: I64Array) -> list[MappedFile]:
        """The file of each mapping record. Most records name one of a few files."""
        if not len(at):
            return []
        words = records.words
        sizes = records.sizes(at)
        depth = np.maximum(sizes - _NOT_PATH, 1)
        first = np.cumsum(depth) - depth
        gather = np.repeat(at + _PATH_AT - first, depth) + np.arange(int(depth.sum()), dtype=np.int64)
        identity = words[at + 5] * np.uint64(31) + words[at + 6] * np.uint64(1_000_003) + words[at + 7]
        keys = row_keys(words[gather], first, depth, identity)
        found, index, inverse = unique(keys)
        if len(self._files) > _FILES_KEPT or self._path_bytes > _PATH_BYTES_KEPT:
            self._files.clear()
            self._path_bytes = 0
        files = [
            self._files.get(key) or self._new_file(key, records, int(at[place]), int(sizes[place]))
            for key, place in zip(found.tolist(), index.tolist(), strict=True)
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


def _ancestors(parents: dict[int, int], pid: int) -> tuple[int, ...]:
    found: list[int] = []
    while len(found) < _MAX_LINEAGE and (parent := parents.get(found[-1] if found else pid)) is not None:
        found.append(parent)
    return tuple(found)


def _of_kind(records: Records, at: I64Array, kind: RecordType) -> I64Array:
    chosen: I64Array = at[records.low(at, 0) == kind]
    return chosen


def _runs(pids: U64Array, times: U64Array, parts: list[tuple[Records, I64Array]]) -> tuple[I64Array, list[int]]:
    """The mappings ordered by process and time, and where in that order each run begins."""
    enders: list[tuple[U64Array, U64Array]] = []
    for records, at in parts:
        named = _of_kind(records, at, RecordType.COMM)
        forked = _of_kind(records, at, RecordType.FORK)
        enders.append((records.low(named), records.times(named)))
        forked_times = records.times(forked)
        enders.append((records.high(forked), forked_times))
        # The child's pid may have belonged to another process earlier in the tick.
        enders.append((records.low(forked), forked_times))
    all_pids = np.concatenate([pids, *(ender[0] for ender in enders)])
    order = np.lexsort((np.concatenate([times, *(ender[1] for ender in enders)]), all_pids))
    is_map = order < len(pids)
    begins = is_map.copy()
    begins[1:] &= (all_pids[order][1:] != all_pids[order][:-1]) | ~is_map[:-1]
    return order[is_map], np.flatnonzero(begins[is_map]).tolist()


@dataclass(slots=True)
class Image:
    """A program in memory. `salt` is equal for processes whose addresses mean the same (a fork before its exec)."""

    space: AddressSpace
    salt: int


# Stands for a process that exited before anything about it was learnt; it is not looked up again.
_UNKNOWN = Image(AddressSpace(0), 0)


class LazyImage:
    """An image that has not been read from /proc yet. A process shares it with its children until one of them changes
    its own; it can be read from any process that still has it."""

    __slots__ = ("holder", "image")

    def __init__(self, holder: int) -> None:
        self.holder = holder
        self.image: Image | None = None


class Tasks:
    """Names and images of threads, by time within the current tick."""

    def __init__(self, host: Host, owners: Owners | None = None, *, foreign: bool = False) -> None:
        self._host = host
        self._foreign = foreign
        self._salts = count(1)
        self._map_runs = MapRuns(owners or Owners(host))
        # Each with its start time, newest last; the first has no lower bound. More than one only within a tick.
        self._images: OrderedDict[int, list[tuple[int, Image | LazyImage]]] = OrderedDict()
        self._names: dict[int, list[tuple[int, str]]] = {}
        # The threads and processes with more than one in this tick.
        self._more_names: set[int] = set()
        self._more_images: set[int] = set()
        self._parents: dict[int, int] = {}
        self._sampled: set[int] = set()
        self.ended_threads: set[int] = set()
        # Threads that changed their name in this tick: /proc no longer has the previous name.
        self._renamed: set[int] = set()
        self._began: list[int] = []
        # Mappings that were left out, by process, and when each process with too many was last read from /proc.
        self._skipped: Counter[int] = Counter()
        self._read_again: dict[int, int] = {}
        # Processes that exited in this tick: /proc no longer has them.
        self.gone: set[int] = set()

    def apply(self, drained: Iterable[Records], sampled_pids: Iterable[int]) -> None:
        """Apply the task records of a tick, ordered by time."""
        parts = [part for part in drained if len(part.starts)]
        if not parts:
            self.gone, self.ended_threads, self._renamed = set(), set(), set()
            return
        self.gone, self.ended_threads = _ended(parts)
        keep = _relevant_pids(parts, sampled_pids) | _traced_pids(parts)
        brief = np.fromiter(self.gone - keep, dtype=np.uint64)
        brief.sort()
        kept = [(part, _task_records(part, brief)) for part in parts]
        changes: list[_Change] = [(run.time, run, 0, 0, 0, 0, b"") for run in self._map_runs.decode(kept)]
        self._renamed = set()
        for part, starts in kept:
            at = starts[part.low(starts, 0) != RecordType.MMAP2]
            kinds = part.low(at, 0)
            kinds = np.where(kinds == _FORK, kinds, part.words[at] & _KIND_AND_EXEC)
            self._renamed.update(part.high(at[kinds != _FORK]).tolist())
            columns = (part.times(at), kinds, part.low(at), part.high(at), part.low(at, 2), part.high(at, 2))
            changes += zip(*(column.tolist() for column in columns), _texts(part, at), strict=True)
        changes.sort(key=_time_of)
        for time, change, pid, other, third, fourth, text in changes:
            if isinstance(change, MapRun):
                self._map(change)
            elif change == _FORK:
                self._fork(time, pid, other, third, fourth)
            else:
                self._name(time, other, _text(text))
                if change != _COMM:
                    self._exec(time, pid)

    def _name(self, time: int, tid: int, name: str) -> None:
        names = self._names.get(tid)
        if names is None:
            names = self._names[tid] = [(0, f":{tid}")]
        names.append((time, name))
        self._more_names.add(tid)

    def _exec(self, time: int, pid: int) -> None:
        images = self._images.get(pid)
        if images is None:
            # Its previous program can no longer be read.
            images = self._images[pid] = [(0, _UNKNOWN)]
        before = images[-1][1]
        if isinstance(before, LazyImage) or before is _UNKNOWN:
            parent = self._parents.get(pid)
            space = AddressSpace(pid, (parent,) if parent else ())
        else:
            space = before.space.exec()
        images.append((time, Image(space, next(self._salts))))
        self._more_images.add(pid)
        self._began.append(pid)

    def _fork(self, time: int, pid: int, parent: int, tid: int, parent_tid: int) -> None:
        names = self._names.get(parent_tid)
        if names is None and (name := self._name_from_proc(parent, parent_tid)) is not None:
            names = self._names[parent_tid] = [(0, name)]
        if names is not None:
            # An existing name belongs to another thread, which had this tid earlier in the tick.
            self._names.setdefault(tid, []).append((time, names[-1][1]))
            self._more_names.add(tid)
        if pid == parent:
            return
        self._parents[pid] = parent
        images = self._images.get(parent)
        if images is None:
            images = self._images[parent] = [(0, LazyImage(parent))]
        image = images[-1][1]
        if image is _UNKNOWN:
            child: Image | LazyImage = LazyImage(pid)
        else:
            child = image if isinstance(image, LazyImage) else Image(image.space.fork(pid), image.salt)
        self._images.setdefault(pid, []).append((time, child))
        self._more_images.add(pid)
        self._began.append(pid)

    def _map(self, run: MapRun) -> None:
        images = self._images.get(run.pid)
        if images is None:
            return
        began, image = images[-1]
        if isinstance(image, LazyImage):
            # From here on its image differs from that of its relatives.
            images[-1] = (began, LazyImage(run.pid))
            return
        if image is _UNKNOWN:
            return
        layout = run.layout()
        loaded = layout is not None and image.space.load(layout)
        skipped = 0 if loaded else image.space.add(run.mappings)
        if skipped:
            self._skipped[run.pid] += skipped
            if run.time - self._read_again.get(run.pid, -READ_AGAIN_NS) >= READ_AGAIN_NS:
                # The kernel records no munmap: most of the known mappings may be gone, and /proc has the current ones.
                self._read_again[run.pid] = run.time
                images[-1] = (began, LazyImage(run.pid))
                return
        # The meaning of the addresses has changed, so earlier conclusions about them must not be reused.
        image.salt = next(self._salts)

    def take_skipped(self) -> tuple[Counter[int], Counter[Owner]]:
        """How many mappings were left out since the last call: by process, and those that exceed the share
        of an owner."""
        skipped, excess = self._map_runs.take_skipped()
        if self._skipped:
            skipped, self._skipped = self._skipped + skipped, Counter()
        return skipped, excess

    def image_at(self, pid: int, time: int) -> Image | None:
        """The image that `pid` had at `time` (nanoseconds)."""
        self._sampled.add(pid)
        images = self._images.get(pid)
        if images is None:
            images = self._images[pid] = [(0, self._from_proc(pid) or _UNKNOWN)]
        index = _last_before(images, time)
        began, image = images[index]
        if isinstance(image, LazyImage):
            image = self._load(image, pid)
            images[index] = (began, image)
        return image if image is not _UNKNOWN else None

    def _load(self, lazy: LazyImage, pid: int) -> Image:
        """Read an image from a process that still has it."""
        if lazy.image is None:
            for holder in dict.fromkeys((pid, lazy.holder)):
                images = self._images.get(holder)
                image = self._from_proc(holder) if images and images[-1][1] is lazy else None
                if image is not None:
                    lazy.image = image
                    break
            else:
                return _UNKNOWN
        # A copy, since the new process makes its own mappings from now on.
        return Image(lazy.image.space.fork(pid), lazy.image.salt)

    def changed_image(self, pid: int) -> bool:
        """Whether the process ran more than one program within the current tick."""
        return len(self._images.get(pid, ())) > 1

    def changed_name(self, tid: int) -> bool:
        """Whether the thread had more than one name within the current tick."""
        return len(self._names.get(tid, ())) > 1

    def take_began(self) -> list[int]:
        """The processes that started, or executed another program, since the last call."""
        began, self._began = self._began, []
        return began

    def name_at(self, pid: int, tid: int, time: int) -> str:
        """The name that a thread had at `time`."""
        if self._foreign and pid == 0:
            return FOREIGN
        names = self._names.get(tid)
        if names is None:
            name = self._name_from_proc(pid, tid)
            if name is None:
                leader = self._names.get(pid)
                name = leader[-1][1] if leader else f":{tid}"
            names = self._names[tid] = [(0, name)]
        return names[_last_before(names, time)][1]

    def known_name(self, pid: int) -> str | None:
        """The current name of a process; None when it has exited."""
        names = self._names.get(pid)
        return names[-1][1] if names else self._name_from_proc(pid, pid)

    def parent(self, pid: int) -> int | None:
        return self._parents.get(pid)

    def lineage(self, pid: int) -> tuple[int, ...]:
        """The nearest known ancestors of a process."""
        return _ancestors(self._parents, pid)

    def settle(self) -> None:
        """End the tick: forget the threads that exited, and keep the latest of each change."""
        for tid in self._names.keys() & self.ended_threads:
            del self._names[tid]
        for pid in self.gone & self._images.keys():
            del self._images[pid]
        for pid in self.gone & self._parents.keys():
            del self._parents[pid]
        for pid in self.gone & self._read_again.keys():
            del self._read_again[pid]
        self._sampled -= self.gone
        for tid in self._more_names:
            if names := self._names.get(tid):
                names[:] = [(0, names[-1][1])]
        for pid in self._more_images:
            if images := self._images.get(pid):
                images[:] = [(0, images[-1][1])]
        self._more_names.clear()
        self._more_images.clear()
        if len(self._names) > NAMES_KEPT:
            # Only the names: a process with many threads must not cause the programs of others to be read again.
            self._names.clear()
        if len(self._images) > SAMPLED_KEPT + UNSAMPLED_KEPT:
            self.forget()
        elif len(self._images) - len(self._sampled) > UNSAMPLED_KEPT:
            self._drop_unsampled()

    def _drop_unsampled(self) -> None:
        idle = [pid for pid in self._images if pid not in self._sampled]
        for pid in idle[: len(idle) - UNSAMPLED_KEPT // 2]:
            del self._images[pid]

    def forget(self) -> None:
        """Task records were lost: the known state may be stale, and a stale image would give wrong names."""
        self._images.clear()
        self._names.clear()
        self._parents.clear()
        self._sampled.clear()
        self._read_again.clear()

    def _from_proc(self, pid: int) -> Image | None:
        space = None if pid in self.gone else AddressSpace.from_proc(self._host, pid)
        if space is None:
            return None
        if space.truncated:
            self._skipped[pid] += 1
        return Image(space, next(self._salts))

    def _name_from_proc(self, pid: int, tid: int) -> str | None:
        if tid <= 0:
            return "swapper" if tid == 0 else EXITING
        if pid not in self.gone and tid not in self._renamed:
            raw = read_start(f"{self._host.proc}/{pid}/task/{tid}/comm")
            return None if raw is None else _text(raw.rstrip(b"\n"))
        return None


def _last_before(entries: list[tuple[int, Image | LazyImage]] | list[tuple[int, str]], time: int) -> int:
    index = len(entries) - 1
    while index > 0 and entries[index][0] > time:
        index -= 1
    return index


@lru_cache(maxsize=_TEXTS_KEPT)
def _text(raw: bytes) -> str:
    """A name. Cached: thousands of processes have a few dozen."""
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


def _traced_pids(parts: list[Records]) -> set[int]:
    """Processes that triggered a tracepoint: its rows name them, even if they were too brief to be sampled."""
    return {pid for part in parts for pid in part.low(part.of(RecordType.SAMPLE)).tolist()}


def _ended(parts: list[Records]) -> tuple[set[int], set[int]]:
    """The processes and the threads that exited in this tick.

    When a thread other than the leader calls exec, the leader exits and the process goes on under its pid (fs/exec.c,
    de_thread); a pid may also have been reused for a new process. Neither counts as exited.
    """
    exits = [(part, part.of(RecordType.EXIT)) for part in parts]
    pids = np.concatenate([part.low(at) for part, at in exits])
    if not len(pids):
        return set(), set()
    tids = np.concatenate([part.low(at, 2) for part, at in exits])
    times = np.concatenate([part.times(at) for part, at in exits])
    leaders = pids == tids
    threads = set(tids.tolist())
    gone = threads if leaders.all() else set(pids[leaders].tolist())
    if alive := _alive(parts, pids[leaders], times[leaders]):
        gone, threads = gone - alive, threads - alive
    return gone, threads


def _alive(parts: list[Records], pids: U64Array, times: U64Array) -> set[int]:
    """Those of the processes which exited that began, or executed another program, after it."""
    if not len(pids):
        return set()
    births = [(part, at) for part in parts for at in (part.of(RecordType.FORK), part.execs(part.of(RecordType.COMM)))]
    born = np.concatenate([part.low(at) for part, at in births])
    born_times = np.concatenate([part.times(at) for part, at in births])
    order = np.argsort(pids, kind="stable")
    pids, times = pids[order], times[order]
    if (pids[1:] == pids[:-1]).any():
        # The last exit of each process alone.
        order = np.lexsort((times, pids))
        pids, times = pids[order], times[order]
    last = np.searchsorted(pids, born, side="right") - 1
    found = (last >= 0) & (pids[last] == born) & (times[last] < born_times)
    return set(born[found].tolist())


def _relevant_pids(parts: list[Records], sampled_pids: Iterable[int]) -> set[int]:
    """Pids to keep in any case: those that were sampled, and the parents that they were forked from."""
    # A task that is being reaped is sampled with the pid -1 (kernel/events/core.c, perf_event_pid_type).
    keep = {pid for pid in sampled_pids if pid >= 0}
    if parts:
        forks = [(part, part.of(RecordType.FORK)) for part in parts]
        children = np.concatenate([part.low(at) for part, at in forks])
        parents = np.concatenate([part.high(at) for part, at in forks])
        # The parent of a sampled child may have been forked in this tick too: two generations cover a shell's
        # pipelines.
        for _ in range(2):
            known = len(keep)
            keep.update(parents[isin(children, keep)].tolist())
            if len(keep) == known:
                break
    return keep


def _task_records(part: Records, brief: U64Array) -> I64Array:
    """The positions of the relevant records: all but those of the processes that began and ended unseen."""
    types = part.types
    at = part.starts[(types == RecordType.MMAP2) | (types == RecordType.FORK) | (types == RecordType.COMM)]
    chosen: I64Array = at[~isin(part.low(at), brief)]
    return chosen


def _texts(part: Records, at: I64Array) -> list[bytes]:
    """The name in each COMM record among some records."""
    named = part.low(at, 0) == _COMM
    starts, data = at * 8, part.data
    ends = starts + part.sizes(at) * 8 - TRAILER_BYTES
    bounds = zip(named.tolist(), starts.tolist(), ends.tolist(), strict=True)
    return [data[start + 16 : end] if is_name else b"" for is_name, start, end in bounds]

"""The executable mappings of one process image: where an address lies in which file.

Built from /proc/PID/maps for processes that were there first, and from the kernel's mmap records afterwards.
Thousands of processes come and go each second, so a fork shares its parent's mappings until either changes,
and mappings are only put in order when an address is looked up.
"""

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import count, pairwise
from operator import itemgetter
from typing import NamedTuple
from weakref import WeakValueDictionary

from exhume.collect.host import Host
from exhume.collect.perf.symbols.frame import readable

_DELETED = " (deleted)"
_EXECUTABLE = ord("x")
_MEMORY_PATHS = ("//anon", "/anon_hugepage", "/dev/zero", "/SYSV")
_JIT_PATHS = ("[anon", "[heap", "[stack", "/memfd:", *_MEMORY_PATHS)
_MAX_PENDING = 128
_MAX_LINEAGE = 3


class FileKey(NamedTuple):
    """How the kernel names a mapped file. Generation 0 means that it was not told."""

    major: int
    minor: int
    inode: int
    generation: int
    path: str


_numbers = count(1)
_start_of = itemgetter(0)


class MappedFile:
    """A file (or a piece of nameless memory) that processes map; one object for all of them.

    `path` is as the kernel wrote it, less the mark of a deleted file; `module` is the same fit to be shown.
    """

    __slots__ = ("__weakref__", "base", "key", "maybe_jit", "module", "number", "on_disk", "path")

    def __init__(self, key: FileKey) -> None:
        self.key = key
        # Never used again, not even when the object is gone: conclusions are kept by it.
        self.number = next(_numbers)
        self.path = key.path.removesuffix(_DELETED)
        self.module = readable(self.path.encode("utf-8", "surrogateescape"))
        self.base = self.module.rsplit("/", 1)[-1]
        # Whether there may be a program in it; memory without a file holds JIT code, if any.
        self.on_disk = self.path.startswith("/") and not self.path.startswith(_MEMORY_PATHS)
        # Whether a runtime may have put compiled code here: nameless memory, or a file that is only memory.
        self.maybe_jit = not self.path or self.path.startswith(_JIT_PATHS)


class Mapping(NamedTuple):
    start: int
    end: int
    offset: int
    file: MappedFile


_known: WeakValueDictionary[FileKey, MappedFile] = WeakValueDictionary()


def mapped_file(key: FileKey) -> MappedFile:
    """The one object that stands for this file."""
    file = _known.get(key)
    if file is None:
        file = _known[key] = MappedFile(key)
    return file


class Layout:
    """Mappings sorted by address and free of overlaps, as columns: thousands of processes are held at once."""

    __slots__ = ("ends", "files", "offsets", "starts")

    def __init__(self, mappings: Sequence[Mapping] = ()) -> None:
        self.starts = array("Q", [mapping[0] for mapping in mappings])
        self.ends = array("Q", [mapping[1] for mapping in mappings])
        self.offsets = array("Q", [mapping[2] for mapping in mappings])
        self.files: list[MappedFile] = [mapping[3] for mapping in mappings]

    def index(self, address: int) -> int:
        """Which mapping an address lies in; -1 for none."""
        at = bisect_right(self.starts, address) - 1
        return at if at >= 0 and address < self.ends[at] else -1

    def mapping(self, at: int) -> Mapping:
        return Mapping(self.starts[at], self.ends[at], self.offsets[at], self.files[at])

    def mappings(self) -> list[Mapping]:
        return list(map(Mapping, self.starts, self.ends, self.offsets, self.files))


def _overlaid(mappings: list[Mapping], made: Iterable[Mapping]) -> list[Mapping]:
    """Mappings after more were made, in order; what those cover is gone, as the kernel unmapped it."""
    starts = [mapping.start for mapping in mappings]
    for new in made:
        first = bisect_right(starts, new.start)
        if first and mappings[first - 1].end > new.start:
            first -= 1
        last = first
        before: list[Mapping] = []
        after: list[Mapping] = []
        while last < len(mappings) and starts[last] < new.end:
            old = mappings[last]
            if old.start < new.start:
                before.append(old._replace(end=new.start))
            if old.end > new.end:
                after.append(old._replace(start=new.end, offset=old.offset + new.end - old.start))
            last += 1
        mappings[first:last] = [*before, new, *after]
        starts[first:last] = [mapping.start for mapping in (*before, new, *after)]
    return mappings


_EMPTY = Layout()


class _Image:
    """A layout, and the mappings made since, in order."""

    __slots__ = ("layout", "pending")

    def __init__(self, layout: Layout, pending: list[Mapping]) -> None:
        self.layout = layout
        self.pending = pending

    def settle(self) -> None:
        made = self.pending
        if not self.layout.files:
            # A program that was just loaded: almost always apart from each other.
            made = sorted(made, key=_start_of)
            if all(before[1] <= after[0] for before, after in pairwise(made)):
                self.layout = Layout(made)
                self.pending = []
                return
        self.layout = Layout(_overlaid(self.layout.mappings(), self.pending))
        self.pending = []


class AddressSpace:
    """The executable mappings of one process image.

    `pid` is a process through whose /proc/PID/root its files can be reached; `lineage` are its ancestors,
    asked when it has already gone.
    """

    __slots__ = ("_image", "_shared", "lineage", "pid")

    def __init__(self, pid: int, lineage: tuple[int, ...] = ()) -> None:
        self.pid = pid
        self.lineage = lineage
        self._image = _Image(_EMPTY, [])
        self._shared = False

    @classmethod
    def from_proc(cls, host: Host, pid: int) -> "AddressSpace | None":
        """The mappings that a living process has now; None when it is gone or out of reach."""
        try:
            with open(f"{host.proc}/{pid}/maps", "rb") as maps:  # noqa: PTH123
                content = maps.read()
        except OSError:
            return None
        space = cls(pid)
        space._image = _Image(Layout(list(parse_maps(content))), [])
        return space

    def fork(self, pid: int) -> "AddressSpace":
        """The same mappings for a child; shared until one of the two changes."""
        child = AddressSpace.__new__(AddressSpace)
        child.pid = pid
        child.lineage = (self.pid, *self.lineage[: _MAX_LINEAGE - 1])
        child._image = self._image
        child._shared = self._shared = True
        return child

    def exec(self) -> "AddressSpace":
        """An empty space for the new program of the same process."""
        return AddressSpace(self.pid, self.lineage)

    def add(self, made: list[Mapping]) -> None:
        """Executable mappings that the process just made, in order."""
        if self._shared:
            self._image = _Image(self._image.layout, self._image.pending.copy())
            self._shared = False
        self._image.pending.extend(made)
        if len(self._image.pending) > _MAX_PENDING:
            self._image.settle()

    @property
    def layout(self) -> Layout:
        """The mappings, in order. Not to be changed."""
        image = self._image
        if image.pending:
            image.settle()
        return image.layout

    def find(self, address: int) -> Mapping | None:
        """The mapping that an address lies in."""
        layout = self.layout
        at = layout.index(address)
        return layout.mapping(at) if at >= 0 else None


def parse_maps(content: bytes) -> Iterable[Mapping]:
    """The executable mappings in the text of /proc/PID/maps."""
    for line in content.split(b"\n"):
        space = line.find(b" ")
        if space < 0 or line[space + 3] != _EXECUTABLE:
            continue
        fields = line.split(None, 5)
        start, _, end = fields[0].partition(b"-")
        major, _, minor = fields[3].partition(b":")
        path = os.fsdecode(fields[5].replace(b"\\012", b"\n")) if len(fields) > 5 else ""
        key = FileKey(int(major, 16), int(minor, 16), int(fields[4]), 0, path)
        yield Mapping(int(start, 16), int(end, 16), int(fields[2], 16), mapped_file(key))

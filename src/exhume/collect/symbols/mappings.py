"""The executable mappings of processes, and stripping of the bits that are not part of a user address.

On aarch64 the top byte of a pointer may hold a tag, and a return address on the stack carries a pointer authentication
code in the bits above the virtual address. Both must be removed before an address is looked up.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from operator import itemgetter, le
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.parser.open_file import readable
from exhume.procfs.host import Host
from exhume.procfs.maps import parse_maps

AARCH64_VA_BITS = 48
_KERNEL_HALF = np.uint64(1 << 55)


def strip_tags(addresses: npt.NDArray[np.uint64], va_bits: int = AARCH64_VA_BITS) -> npt.NDArray[np.uint64]:
    """Cut aarch64 user addresses to `va_bits`; kernel addresses (bit 55 set) are left unchanged."""
    mask = np.uint64((1 << va_bits) - 1)
    return np.where(addresses & _KERNEL_HALF, addresses, addresses & mask)


def user_va_bits(host: Host) -> int:
    """The number of bits in a user address on this kernel, judged by the location of our own stack.

    Kernels with 52 bits still place ordinary processes below 48 (higher only on request), and kernels built for 39 or
    42 bits put authentication codes right above those.
    """
    try:
        maps = (host.proc / "self/maps").read_bytes()
    except OSError:
        return AARCH64_VA_BITS
    tops = [entry.end for entry in parse_maps(maps.splitlines()) if entry.path != "[vsyscall]"]
    return max(((top - 1).bit_length() for top in tops), default=AARCH64_VA_BITS)


_DELETED = " (deleted)"
_MEMORY_PATHS = ("//anon", "/anon_hugepage", "/dev/zero", "/SYSV")
_JIT_PATHS = ("[anon", "[heap", "[stack", "/memfd:", *_MEMORY_PATHS)
_MAX_PENDING = 128
_MAX_LINEAGE = 3
# Limits per process: executable mappings, and bytes of unusually long paths (each path up to 4,096). A process may have
# 65,530 mappings (vm.max_map_count).
MAX_MAPPINGS = 8192
_LONG_PATH = 256
_MAX_LONG_PATHS = 256 << 10
# How much of /proc/PID/maps is read in total, and per read: the kernel returns about a page.
_MAX_MAPS_BYTES = 16 << 20
_MAPS_AT_ONCE = 64 << 10


class FileKey(NamedTuple):
    """The kernel's identity of a mapped file. Generation 0 means unknown."""

    major: int
    minor: int
    inode: int
    generation: int
    path: str


_numbers = count(1)
_start_of = itemgetter(0)


class MappedFile:
    """A file (or a stretch of anonymous memory) that processes map; all of them share one object.

    `path` is as the kernel wrote it, without the mark of a deleted file; `module` is the same, fit for display.
    """

    __slots__ = (
        *("__weakref__", "base", "key", "layout_number", "long_path", "maybe_jit", "module", "number", "on_disk"),
        "path",
    )

    def __init__(self, key: FileKey) -> None:
        self.key = key
        # Never reused, even after the object is gone: cached conclusions are keyed by it.
        self.number = next(_numbers)
        self.path = key.path.removesuffix(_DELETED)
        # The length of the path if it is unusually long, else 0.
        self.long_path = len(self.path) if len(self.path) > _LONG_PATH else 0
        module = readable(self.path.encode("utf-8", "surrogateescape"))
        self.module = self.path if module == self.path else module
        self.base = self.module.rsplit("/", 1)[-1]
        # Whether it may contain a program; memory without a file holds JIT code at most.
        self.on_disk = self.path.startswith("/") and not self.path.startswith(_MEMORY_PATHS)
        # Whether a runtime may have put compiled code here: anonymous memory, or a memory-backed file.
        self.maybe_jit = not self.path or self.path.startswith(_JIT_PATHS)
        # Twice the number, plus one if it may hold compiled code.
        self.layout_number = self.number << 1 | self.maybe_jit


class Mapping(NamedTuple):
    start: int
    end: int
    offset: int
    file: MappedFile


_known: WeakValueDictionary[FileKey, MappedFile] = WeakValueDictionary()


def mapped_file(key: FileKey) -> MappedFile:
    """The single object for this file."""
    file = _known.get(key)
    if file is None:
        file = _known[key] = MappedFile(key)
    return file


class Layout:
    """Mappings sorted by address and free of overlaps, stored as columns because thousands of processes are held at
    once."""

    __slots__ = ("ends", "files", "numbers", "offsets", "starts")

    def __init__(self, mappings: Sequence[Mapping] = ()) -> None:
        starts, ends, offsets, files = zip(*mappings, strict=True) if mappings else ((), (), (), ())
        self.starts = array("Q", starts)
        self.ends = array("Q", ends)
        self.offsets = array("Q", offsets)
        self.files: list[MappedFile] = list(files)
        self.numbers = array("Q", [file.layout_number for file in files])

    @classmethod
    def of_columns(
        cls,
        starts: "array[int]",
        ends: "array[int]",
        offsets: "array[int]",
        files: list[MappedFile],
        numbers: "array[int]",
    ) -> "Layout":
        """A layout of columns that are sorted and free of overlaps already."""
        layout = cls.__new__(cls)
        layout.starts, layout.ends, layout.offsets = starts, ends, offsets
        layout.files, layout.numbers = files, numbers
        return layout

    def overlaps(self) -> bool:
        """Whether any mapping begins before the previous one ends."""
        return not all(map(le, self.ends, self.starts[1:]))

    def index(self, address: int) -> int:
        """The index of the mapping that contains an address; -1 for none."""
        at = bisect_right(self.starts, address) - 1
        return at if at >= 0 and address < self.ends[at] else -1

    def mapping(self, at: int) -> Mapping:
        return Mapping(self.starts[at], self.ends[at], self.offsets[at], self.files[at])

    def mappings(self) -> list[Mapping]:
        return list(map(Mapping, self.starts, self.ends, self.offsets, self.files))


def _overlaid(mappings: list[Mapping], made: Iterable[Mapping]) -> list[Mapping]:
    """Apply newer mappings, in order; whatever they cover is removed, as the kernel unmapped it."""
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
    """A layout, and the mappings made since, in order; `long_paths` is the total size of their long paths in bytes."""

    __slots__ = ("layout", "long_paths", "pending")

    def __init__(self, layout: Layout, pending: list[Mapping], long_paths: int = 0) -> None:
        self.layout = layout
        self.pending = pending
        self.long_paths = long_paths

    def add(self, made: list[Mapping]) -> int:
        """Add mappings; returns how many were left out because they exceed the limits per process."""
        room = MAX_MAPPINGS - len(self.layout.files) - len(self.pending)
        kept = made if len(made) <= room else made[: max(room, 0)]
        for index, (_, _, _, file) in enumerate(kept):
            if file.long_path:
                self.long_paths += file.long_path
                if self.long_paths > _MAX_LONG_PATHS:
                    kept = kept[:index]
                    break
        self.pending.extend(kept)
        if len(self.pending) > _MAX_PENDING:
            self.settle()
        return len(made) - len(kept)

    def settle(self) -> None:
        made = self.pending
        if not self.layout.files:
            # A program that was just loaded: its mappings almost never overlap.
            layout = Layout(sorted(made, key=_start_of))
            if not layout.overlaps():
                self.layout, self.pending = layout, []
                return
        self.layout = Layout(_overlaid(self.layout.mappings(), self.pending))
        self.pending = []


class AddressSpace:
    """The executable mappings of one process image.

    `pid` is a process through whose /proc/PID/root its files can be reached; `lineage` is its ancestors, used when it
    has already exited. `truncated` means that it had more mappings than were read.
    """

    __slots__ = ("_image", "_shared", "lineage", "pid", "truncated")

    def __init__(self, pid: int, lineage: tuple[int, ...] = ()) -> None:
        self.pid = pid
        self.lineage = lineage
        self._image = _Image(_EMPTY, [])
        self._shared = False
        self.truncated = False

    @classmethod
    def from_proc(cls, host: Host, pid: int) -> "AddressSpace | None":
        """Read the current mappings of a living process; None when it has exited or cannot be accessed."""
        maps = ProcMaps(f"{host.proc}/{pid}/maps")
        try:
            mappings = list(maps)
        except OSError:
            return None
        space = cls(pid)
        space._image = _Image(Layout(mappings), [], maps.long_paths)
        space.truncated = maps.truncated
        return space

    def fork(self, pid: int) -> "AddressSpace":
        """The same mappings for a child; shared until either of them changes."""
        child = AddressSpace.__new__(AddressSpace)
        child.pid = pid
        child.lineage = (self.pid, *self.lineage[: _MAX_LINEAGE - 1])
        child._image = self._image
        child._shared = self._shared = True
        child.truncated = self.truncated
        return child

    def load(self, layout: Layout) -> bool:
        """Take the mappings that a program made when it was loaded, if it had none until now."""
        if self._shared or self._image.layout.files or self._image.pending:
            return False
        self._image.layout = layout
        return True

    def exec(self) -> "AddressSpace":
        """An empty address space for the program that the same process executes next."""
        return AddressSpace(self.pid, self.lineage)

    def add(self, made: list[Mapping]) -> int:
        """Add executable mappings that the process just made, in order. Returns how many were left out."""
        if self._shared:
            self._image = _Image(self._image.layout, self._image.pending.copy(), self._image.long_paths)
            self._shared = False
        return self._image.add(made)

    @property
    def layout(self) -> Layout:
        """The mappings, in order. Callers must not change them."""
        image = self._image
        if image.pending:
            image.settle()
        return image.layout

    def find(self, address: int) -> Mapping | None:
        """The mapping that contains an address."""
        layout = self.layout
        at = layout.index(address)
        return layout.mapping(at) if at >= 0 else None


class ProcMaps:
    """The executable mappings in /proc/PID/maps, read in pieces on demand, up to a limit."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.long_paths = 0
        self.truncated = False

    def __iter__(self) -> Iterator[Mapping]:
        for found, mapping in enumerate(executable_mappings(self._lines())):
            self.long_paths += mapping.file.long_path
            if found >= MAX_MAPPINGS or self.long_paths > _MAX_LONG_PATHS:
                self.truncated = True
                return
            yield mapping

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        left = _MAX_MAPS_BYTES
        with open(self._path, "rb", buffering=0) as maps:  # noqa: PTH123
            while content := maps.read(_MAPS_AT_ONCE):
                left -= len(content)
                if left < 0:
                    self.truncated = True
                    return
                *lines, rest = (rest + content).split(b"\n")
                yield from lines
        yield rest


def executable_mappings(lines: Iterable[bytes]) -> Iterator[Mapping]:
    """The executable mappings in lines of /proc/PID/maps."""
    for entry in parse_maps(lines, executable_only=True):
        key = FileKey(entry.major, entry.minor, entry.inode, 0, entry.path)
        yield Mapping(entry.start, entry.end, entry.offset, mapped_file(key))

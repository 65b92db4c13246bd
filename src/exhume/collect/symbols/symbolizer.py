"""The single entry point for symbolization: addresses in, frames out.

An address that cannot be named stays module+offset (or a bare address in the kernel), never a wrong name.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.files import FileSymbols
from exhume.collect.symbols.frame import ANONYMOUS, USER, Frame, make_frame
from exhume.collect.symbols.kernel import VDSO, KernelSymbols, VdsoSymbols
from exhume.collect.symbols.mappings import AddressSpace, MappedFile, Mapping
from exhume.collect.symbols.opener_process import OpenerProcess
from exhume.collect.symbols.owners import Owners, Refusal, RefusalLog
from exhume.collect.symbols.parse_queue import ParseQueue
from exhume.collect.symbols.perf_map import JitSymbols
from exhume.model.facts import MissingSource
from exhume.procfs.host import Host
from exhume.procfs.pid_status import status_mask

UNKNOWN = "[unknown]"
_ANONYMOUS = make_frame(USER, ANONYMOUS, ANONYMOUS)
UNKNOWN_FRAME = make_frame(USER, UNKNOWN, UNKNOWN)
_MAX_VIEWS = 4

Addresses = npt.NDArray[np.uint64]
Batch = Sequence[tuple[AddressSpace, Addresses]]


class _Group:
    """Addresses in one file, from any number of processes; `places` are the positions of their frames in the result."""

    __slots__ = ("offsets", "places", "views")

    def __init__(self) -> None:
        self.views: list[tuple[AddressSpace, Mapping]] = []
        self.offsets: list[int] = []
        self.places: list[tuple[list[Frame], int]] = []

    def add(self, space: AddressSpace, mapping: Mapping, address: int, frames: list[Frame], at: int) -> None:
        if not self.views or (len(self.views) < _MAX_VIEWS and self.views[-1][0] is not space):
            self.views.append((space, mapping))
        self.offsets.append(address - mapping.start + mapping.offset)
        self.places.append((frames, at))


# Bit 19 of a capability set.
_SYS_PTRACE = 1 << 19


class Symbolizer:
    """Names addresses of the kernel and of processes."""

    def __init__(self, host: Host, opener: OpenerProcess | None = None) -> None:
        self._kernel = KernelSymbols(host)
        self.refusals = RefusalLog()
        self.owners = Owners(host)
        self.queue = ParseQueue(self.refusals, opener=opener)
        self._files = FileSymbols(host, queue=self.queue, refusals=self.refusals)
        self._jit = JitSymbols(host, queue=self.queue, refusals=self.refusals)
        self._vdso = VdsoSymbols(host)
        self._others_hidden = _look_at_others(host)

    @property
    def missing(self) -> list[MissingSource]:
        """What could not be used, and how to enable it."""
        return [missing for missing in (self._kernel.missing, self._others_hidden) if missing]

    @property
    def nbytes(self) -> int:
        """The memory that symbol tables take."""
        return self._kernel.nbytes + self._files.nbytes + self._jit.nbytes

    def poll(self) -> None:
        """Take in the results of file reads since the last call."""
        self.queue.poll()
        self._files.poll()

    def take_changed(self) -> set[str]:
        """Modules whose frames may have changed since the last call. Frames of code without a file may
        always change."""
        return self._files.take_changed() | {ANONYMOUS}

    def wait(self, seconds: float) -> None:
        """Wait until all requested files were read, but no longer than the timeout."""
        self.queue.wait(seconds)
        self._files.poll()

    def take_refusals(self) -> list[Refusal]:
        """The files that were refused since the last call."""
        return self.refusals.take()

    def kernel_changed(self) -> None:
        """Note that a module or BPF program was loaded or unloaded."""
        self._kernel.changed()

    @property
    def kernel_generation(self) -> int:
        """Incremented each time the kernel's symbols are reloaded."""
        return self._kernel.generation

    def kernel_functions(self, addresses: Addresses) -> npt.NDArray[np.intp]:
        """The function number of each address, -1 for none; valid for one generation."""
        return self._kernel.functions(addresses)

    def file_functions(self, file: MappedFile, offsets: Addresses) -> tuple[int, npt.NDArray[np.intp]]:
        """A number for the file as it was read, and the numbers of the functions at some of its offsets: -1 for none,
        or when the file has not been read yet."""
        return self._files.functions(file, offsets)

    def kernel(self, addresses: Addresses) -> list[Frame]:
        """A frame for each kernel address."""
        return self._kernel.frames(addresses)

    def user(self, space: AddressSpace, addresses: Addresses) -> list[Frame]:
        """A frame for each address of one process."""
        return self.users([(space, addresses)])[0]

    def users(self, batch: Batch) -> list[list[Frame]]:
        """Frames for the addresses of many processes. Lookups are grouped by file: far cheaper than one by one, since
        most processes run the same few files."""
        results: list[list[Frame]] = []
        groups: defaultdict[MappedFile, _Group] = defaultdict(_Group)
        for space, addresses in batch:
            frames = [UNKNOWN_FRAME] * len(addresses)
            results.append(frames)
            self._place(space, addresses.tolist(), frames, groups)
        for group in groups.values():
            found = self._files.frames(group.views, group.offsets)
            for (frames, at), frame in zip(group.places, found, strict=True):
                frames[at] = frame
        self._files.poll()
        return results

    def _place(
        self, space: AddressSpace, addresses: list[int], frames: list[Frame], groups: defaultdict[MappedFile, _Group]
    ) -> None:
        """Sort addresses into the files that contain them; addresses in memory without a file are named here."""
        layout = space.layout
        seen: dict[int, Mapping] = {}
        compiled: list[tuple[int, Mapping]] = []
        for at, address in enumerate(addresses):
            index = layout.index(address)
            if index < 0:
                continue
            mapping = seen.get(index)
            if mapping is None:
                mapping = seen[index] = layout.mapping(index)
            if mapping.file.maybe_jit:
                compiled.append((at, mapping))
            elif mapping.file.on_disk:
                groups[mapping.file].add(space, mapping, address, frames, at)
            else:
                frames[at] = self._in_memory(mapping, address)
        if not compiled:
            return
        named, patience = self._jit.frames(space, [addresses[at] for at, _ in compiled])
        for (at, mapping), frame in zip(compiled, named, strict=True):
            if frame is not None:
                frames[at] = frame
            elif mapping.file.on_disk:
                groups[mapping.file].add(space, mapping, addresses[at], frames, at)
            else:
                unnamed = self._in_memory(mapping, addresses[at])
                frames[at] = replace(unnamed, patience=patience) if patience else unnamed

    def _in_memory(self, mapping: Mapping, address: int) -> Frame:
        file = mapping.file
        if file.path == VDSO:
            return self._vdso.frame(mapping, address - mapping.start)
        if file.maybe_jit or not file.module.startswith("["):
            return _ANONYMOUS
        return make_frame(USER, file.module, file.module)  # [vsyscall], [uprobes]


def _look_at_others(host: Host) -> MissingSource | None:
    """Check whether the maps and files of all users' processes are readable. No single process is representative (some
    are closed even to root), so this checks the capability."""
    try:
        effective = status_mask((host.proc / "self/status").read_bytes(), b"CapEff")
    except OSError:
        return None
    if effective is None or effective & _SYS_PTRACE:
        return None
    return MissingSource(
        "user symbols",
        "programs of other users can't be looked into, so their functions have no names",
        "run as root or add CAP_SYS_PTRACE",
    )

"""Names for addresses in files: symbol tables are loaded when first hit and kept within a budget of bytes."""

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.demangle import demangle
from exhume.collect.symbols.file_budget import DEFERRED, MALFORMED, OVER_BUDGET, FileRefused
from exhume.collect.symbols.file_worker import FileWorker, Owners, RefusalLog
from exhume.collect.symbols.frame import USER, Frame, make_frame, readable
from exhume.collect.symbols.locate import Identity, OpenFile, identity_of, open_mapped, open_regular
from exhume.collect.symbols.mappings import AddressSpace, MappedFile, Mapping
from exhume.collect.symbols.program import Program, load_names, load_outlines, load_program, open_debug_file
from exhume.collect.symbols.table import U64
from exhume.model.process import give_back
from exhume.procfs.host import Host

_T = TypeVar("_T")
# Processes that map a file, each with its mapping of it: never none.
Views = Sequence[tuple[AddressSpace, Mapping]]

DEFAULT_BUDGET = 12 << 20
_FRAME_BYTES = 400
_MAX_FILES = 4096
_NAMES_UNCHECKED = 256
_CHECK_EVERY_S = 10.0
_RETRY_FIRST_S = 1.0
_RETRY_AT_MOST_S = 60.0
_TRIM_EVERY = 512 << 10


class _FileState:
    """What is known about one mapped file. A program of None means that it could not be read, `deferred` that this
    was for want of time alone."""

    __slots__ = ("backoff", "checked", "deferred", "frames", "outline_from", "program")

    def __init__(self, now: float) -> None:
        self.program: Program | None = None
        self.deferred = False
        self.frames: dict[int, Frame] = {}
        self.checked = now
        self.backoff = _RETRY_FIRST_S
        self.outline_from = now


class FileSymbols:
    """Looks up file offsets in the symbol tables of the files that processes map."""

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
        self._known: OrderedDict[MappedFile, _FileState] = OrderedDict()
        # The same file is often mapped under several names; its table is loaded once.
        self._programs: dict[Identity, Program] = {}
        self._loaded_bytes = 0
        self._named = 0
        self._worker = worker or FileWorker()
        self._refusals = refusals or RefusalLog()
        self._owners = Owners(host, clock)

    @property
    def nbytes(self) -> int:
        frames = sum(len(known.frames) for known in self._known.values())
        return sum(program.nbytes for program in self._programs.values()) + frames * _FRAME_BYTES

    def frames(self, views: Views, offsets: list[int]) -> list[Frame]:
        """A frame for each offset in a file, which any of the processes that map it may let us reach."""
        file = views[0][1].file
        known = self._known_file(views)
        program = known.program
        if program is None:
            return [_nameless(file, offset, deferred=known.deferred) for offset in offsets]
        wanted = np.array(offsets, np.uint64)
        at = program.find(wanted)
        if not program.is_outlined and (at < 0).any() and self._outline(views, known, program):
            at = program.find(wanted)
        fresh = {index for index in at.tolist() if index >= 0 and index not in known.frames}
        if fresh:
            self._name(views, known, program, fresh)
        # A function whose name can't be read now has one frame all the same, since it has one number.
        waits = not program.is_outlined and known.outline_from <= self._clock()
        frames = [
            known.frames.get(index)
            or _nameless(file, program.start(index) if index >= 0 else offset, deferred=index >= 0 or waits)
            for index, offset in zip(at.tolist(), offsets, strict=True)
        ]
        if self._named > _NAMES_UNCHECKED:
            self._named = 0
            self._keep_budget()
        return frames

    def functions(self, file: MappedFile, offsets: npt.NDArray[np.uint64]) -> tuple[int, npt.NDArray[np.intp]]:
        """The number of the program that was read from a file, and those of the functions at some of its offsets.
        What has one number has one frame; a function without a name has a number once it was asked for by name."""
        known = self._known.get(file)
        if known is None or known.program is None:
            return 0, np.full(len(offsets), -1, np.intp)
        return known.program.number, known.program.find(offsets)

    def _known_file(self, views: Views) -> _FileState:
        now = self._clock()
        file = views[0][1].file
        known = self._known.get(file)
        if known is None:
            known = self._known[file] = _FileState(now)
            self._load(views, known)
            return known
        self._known.move_to_end(file)
        if known.program is None:
            if known.deferred or now - known.checked >= known.backoff:
                known.checked = now
                if not known.deferred:
                    known.backoff = min(known.backoff * 2, _RETRY_AT_MOST_S)
                self._load(views, known)
        elif now - known.checked >= _CHECK_EVERY_S:
            known.checked = now
            if self._rewritten(views, known.program):
                self._programs.pop(known.program.identity, None)
                known.frames.clear()
                self._load(views, known)
        return known

    def _rewritten(self, views: Views, program: Program) -> bool:
        """Whether the file was written again in place (the same inode, another content)."""
        space, mapping = views[0]

        def check() -> bool:
            try:
                status = os.stat(f"{self._host.proc}/{space.pid}/root{mapping.file.path}")  # noqa: PTH116
            except (OSError, ValueError):
                return False
            now = identity_of(status)
            return now[:2] == program.identity[:2] and now != program.identity

        try:
            return self._run(views, check)
        except FileRefused:
            return False

    def _load(self, views: Views, known: _FileState) -> None:
        known.program, known.deferred = None, False
        try:
            program = self._run(views, lambda: self._read_program(views))
        except FileRefused as refusal:
            known.deferred = refusal.code == DEFERRED
            if refusal.code in (MALFORMED, OVER_BUDGET):
                # The content will be the same the next time: it is not worth the work soon.
                known.backoff = _RETRY_AT_MOST_S
                give_back()
            self._note(refusal, views)
            program = None
        known.program = program
        if program is not None and program.identity not in self._programs:
            self._programs[program.identity] = program
            self._trim_after(program.nbytes)
        if program is not None or len(self._known) > _MAX_FILES:
            self._keep_budget()

    def _trim_after(self, loaded: int) -> None:
        """Loading takes several times the memory of what stays."""
        self._loaded_bytes += loaded
        if self._loaded_bytes > _TRIM_EVERY:
            self._loaded_bytes = 0
            give_back()

    def _outline(self, views: Views, known: _FileState, program: Program) -> bool:
        """Find out where a file's functions without a name are, now that one was hit."""
        now = self._clock()
        if now < known.outline_from:
            return False
        known.outline_from = now + _RETRY_AT_MOST_S
        try:
            outlines = self._run(views, lambda: self._read_outlines(views, program))
        except FileRefused as refusal:
            if refusal.code == DEFERRED:
                known.outline_from = now
            self._note(refusal, views)
            return False
        if outlines is None:
            return False
        program.outline(*outlines)
        self._trim_after(outlines[0].nbytes)
        self._keep_budget()
        return True

    def _read_outlines(self, views: Views, program: Program) -> tuple[U64, U64] | None:
        opened = self._open(views)
        if opened is None:
            return None
        with opened:
            return load_outlines(opened) if opened.identity == program.identity else None

    def _read_program(self, views: Views) -> Program | None:
        opened = self._open(views)
        if opened is None:
            return None
        with opened:
            known = self._programs.get(opened.identity)
            return known or load_program(opened, self._debug_roots(views))

    def _debug_roots(self, views: Views) -> tuple[str, ...]:
        """Where debug files may be installed: next to the file, for the first process that lets us look, or here."""
        roots = (f"{self._host.proc}/{space.pid}/root" for space, _ in views)
        # A Path would raise where we may not look: without CAP_SYS_PTRACE, at most of them.
        return (next((root for root in roots if os.path.isdir(root)), ""), "")  # noqa: PTH112

    def _open(self, views: Views) -> OpenFile | None:
        return next((file for view in views if (file := open_mapped(self._host, *view)) is not None), None)

    def _name(self, views: Views, known: _FileState, program: Program, indexes: set[int]) -> None:
        """Make frames for functions that are hit for the first time."""
        file = views[0][1].file
        named = {index for index in indexes if program.has_name(index)}
        names: dict[int, bytes] = {}
        if not program.needs_file:
            names = {index: program.name(index, None) for index in named}
        elif named:
            try:
                names = self._run(views, lambda: self._read_names(views, program, named))
            except FileRefused as refusal:
                self._note(refusal, views)
        names.update(dict.fromkeys(indexes - named, b""))
        for index, name in names.items():
            known.frames[index] = (
                make_frame(USER, file.module, demangle(readable(name)))
                if name
                else _nameless(file, program.start(index))
            )
        self._named += len(indexes)

    def _read_names(self, views: Views, program: Program, indexes: set[int]) -> dict[int, bytes]:
        file = self._open_names(views, program)
        if file is None:
            return {}
        with file:
            return load_names(file, program, indexes)

    def _open_names(self, views: Views, program: Program) -> OpenFile | None:
        """The file that the names are in: where it was, or wherever the mapped file can be reached now."""
        file = open_regular(program.source_path)
        if file is None or file.identity != program.source:
            if file is not None:
                file.close()
            file = self._open(views)
        if file is not None and file.identity != program.source:
            # A stripped file's names lie in another one. That was reached through a process, which may be gone.
            with file as mapped:
                file = open_debug_file(mapped, self._debug_roots(views))
        if file is not None and file.identity != program.source:
            file.close()
            return None
        if file is not None:
            program.source_path = file.path
        return file

    def _run(self, views: Views, job: Callable[[], _T]) -> _T:
        """What a job returns that reads a file, at the cost of the first owner that has some of its share left."""
        key = views[0][1].file.key
        # Disks answer as a whole; a filesystem without a device (network, FUSE, overlay) may stop to.
        device = (key.major, key.minor, key.inode if key.major else 0)
        owners = (self._owners.of(space.pid) for space, _ in views)
        owner = next((owner for owner in owners if self._worker.affords(owner)), None)
        if owner is None:
            raise FileRefused(DEFERRED)
        return self._worker.run(device, owner, job)

    def _note(self, refusal: FileRefused, views: Views) -> None:
        space, mapping = views[0]
        self._refusals.note(refusal, mapping.file.path, space.pid, self._owners.of(space.pid))

    def _keep_budget(self) -> None:
        """Forget the files that were not hit for longest, until the rest fits."""
        size = self.nbytes
        # Many at once: what all take is added up each time.
        most = _MAX_FILES * 7 // 8 if len(self._known) > _MAX_FILES else _MAX_FILES
        while len(self._known) > 1 and (size > self._budget or len(self._known) > most):
            _, oldest = self._known.popitem(last=False)
            size -= len(oldest.frames) * _FRAME_BYTES
            program = oldest.program
            if program is not None and not any(known.program is program for known in self._known.values()):
                del self._programs[program.identity]
                size -= program.nbytes
        if size > self._budget:
            for known in self._known.values():
                known.frames.clear()


def _nameless(file: MappedFile, offset: int, *, deferred: bool = False) -> Frame:
    return make_frame(USER, file.module, f"{file.base}+0x{offset:x}", deferred=deferred)

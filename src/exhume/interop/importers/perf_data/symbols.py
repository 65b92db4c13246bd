"""Resolve the addresses in a perf.data file to symbols: from perf's build-id cache, from the same file on this machine,
from a given kallsyms list, or from perf maps of compiled code; otherwise to module and offset.

A file on this machine is used if it has the recorded build id or, if no build id was recorded, if the recording was
made here.
"""

import os
import platform
import re
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from exhume.collect.symbols.frame import ANONYMOUS, JIT, KERNEL, USER, Frame, make_frame
from exhume.collect.symbols.kernel import KERNEL_MODULE, VDSO, KernelTable, load_kallsyms
from exhume.collect.symbols.mappings import MappedFile
from exhume.collect.symbols.parser.demangle import demangle
from exhume.collect.symbols.parser.elf import ElfFile
from exhume.collect.symbols.parser.open_file import FileRefused, OpenFile, identity_of, readable, refusing_malformed
from exhume.collect.symbols.parser.perf_map import PERF_MAP, CodeRanges, MapPiece, read_perf_map
from exhume.collect.symbols.parser.program import Program, load_outlines, load_program
from exhume.collect.symbols.parser.wire import BadReply
from exhume.interop.importers.files import InputFile
from exhume.interop.importers.form import UNKNOWN_FRAME, U64Array
from exhume.interop.importers.perf_data.header import Header
from exhume.interop.importers.perf_data.tasks import KernelMap

_NOTES = Path("/sys/kernel/notes")
_KALLSYMS = Path("/proc/kallsyms")
_DEBUG = Path("/usr/lib/debug/.build-id")
# The first symbol of the kernel's code; perf records its address (tools/perf/util/machine.c, ref_reloc_sym_names).
_REFERENCES = ("_text", "_stext")
# Upper bound of the kernel image (arch/x86/include/asm/page_64_types.h, KERNEL_IMAGE_SIZE).
_IMAGE_BYTES = 1 << 30
_TMP = Path("/tmp")
_MAP_PIECE, _MOST_MAP_BYTES, _MOST_MAPS = 512 << 10, 64 << 20, 512
_ANONYMOUS_FRAME = make_frame(USER, ANONYMOUS, ANONYMOUS)
_FIRST_SYMBOL = re.compile(rb"^([0-9a-f]+) [tT] (_text|_stext)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SymbolPlaces:
    """Where to look for symbols: perf's cache, a kallsyms list if one is given, and the directory of the recording, for
    maps of compiled code (perf-PID.map)."""

    cache: Path
    kallsyms: Path | None = None
    recording: InputFile | None = None


class Symbols:
    """Resolves the addresses of one file to frames."""

    def __init__(self, header: Header, kernel_maps: Sequence[KernelMap], places: SymbolPlaces) -> None:
        self._header = header
        self._kernel_maps = kernel_maps
        self._places = places
        self._kernel: _KernelNames | None = None
        self._programs: dict[tuple[str, bytes], _NamedFile | None] = {}
        self._compiled: dict[int, _CompiledCode | None] = {}
        #: Files without known functions, as no file with their build id was found.
        self.nameless: set[str] = set()

    @property
    def _local(self) -> bool:
        return self._header.hostname == platform.node() and self._header.release == platform.release()

    @property
    def kernel_is_named(self) -> bool:
        return self._kernel is None or len(self._kernel.table.addresses) > 0

    def kernel(self, addresses: U64Array) -> list[Frame]:
        """Return a frame for each kernel address."""
        if self._kernel is None:
            self._kernel = self._load_kernel()
        return self._kernel.frames(addresses)

    def user(self, file: MappedFile, build_id: bytes, offsets: U64Array) -> list[Frame]:
        """Return a frame for each offset in a mapped file."""
        if not file.on_disk and file.path != VDSO:
            module = file.module if file.module.startswith("[") else ANONYMOUS
            return [make_frame(USER, module, module)] * len(offsets)
        key = (file.path, build_id)
        if key not in self._programs:
            self._programs[key] = self._load(file, build_id)
        program = self._programs[key]
        if program is None:
            self.nameless.add(file.path)
            return [nameless_frame(file, offset) for offset in offsets.tolist()]
        return program.frames(file, offsets)

    def compiled(self, pid: int, addresses: U64Array) -> list[Frame]:
        """Return a frame for each address in memory into which a process may have compiled code."""
        if pid not in self._compiled:
            if len(self._compiled) > _MOST_MAPS:
                self._compiled.clear()
            self._compiled[pid] = self._load_map(pid)
        code = self._compiled[pid]
        return [_ANONYMOUS_FRAME] * len(addresses) if code is None else code.frames(addresses)

    def _load_map(self, pid: int) -> "_CompiledCode | None":
        """The perf map of a process: from the directory of the recording, or from this machine if the recording was
        made here. Like perf, trust a map that belongs to root or to the user (tools/perf/util/symbol.c, dso__load); in
        the directory of the recording also one that belongs to the owner of the recording. Recordings are also kept in
        /tmp, where any user can put a map."""
        name, trusted = f"perf-{pid}.map", (0, os.geteuid())
        recording, given = self._places.recording, None
        if recording is not None:
            given = _opened(recording.path.with_name(name), trusted=(*trusted, recording.uid))
        if given is None and self._local:
            given = _opened(_TMP / name, trusted)
        if given is None:
            return None
        try:
            return _CompiledCode.load(given)
        except (FileRefused, BadReply, OSError):
            return None
        finally:
            given.close()

    def _load(self, file: MappedFile, build_id: bytes) -> "_NamedFile | None":
        for path in self._candidates(file.path, build_id):
            opened = _opened(path)
            if opened is None:
                continue
            try:
                found = _build_id(opened)
                if not build_id or found == build_id:
                    return _NamedFile.load(opened, found)
            except (FileRefused, OSError):
                pass
            opened.close()
        return None

    def _candidates(self, path: str, build_id: bytes) -> list[Path]:
        found: list[Path] = []
        if build_id:
            cached = self._cached(build_id)
            found += [cached / name for name in ("elf", "vdso", "debug")] if cached.is_dir() else [cached]
        elif path == VDSO and self._local:
            # The vDSO is not a file; perf's cache has the one of each kernel.
            found += sorted((self._places.cache / VDSO).glob("*/vdso"))[:1]
        if path.startswith("/") and (build_id or self._local):
            found.append(Path(path))
        return found

    def _cached(self, build_id: bytes) -> Path:
        text = build_id.hex()
        return self._places.cache / ".build-id" / text[:2] / text[2:]

    def _load_kernel(self) -> "_KernelNames":
        recorded = next((each for each in self._header.build_ids if each.kernel and "kernel" in each.path), None)
        build_id = b"" if recorded is None else recorded.build_id
        candidates: list[Path] = []
        if self._places.kallsyms is not None:
            candidates.append(self._places.kallsyms)
        else:
            if build_id:
                candidates.append(self._cached(build_id) / "kallsyms")
            if build_id == _own_kernel() if build_id else self._local:
                candidates.append(_KALLSYMS)
        for path in candidates:
            try:
                table = load_kallsyms(str(path))
            except (OSError, ValueError, LookupError):
                continue
            if len(table.addresses):
                return _KernelNames(table, *self._moved(path))
        return _KernelNames(KernelTable(np.empty(0, np.uint64), np.empty(0, np.uint32), b"", hidden=False), 0, None)

    def _moved(self, path: Path) -> tuple[int, tuple[int, int] | None]:
        """How far the kernel's code was relocated when it was recorded (KASLR moves it at each boot), and its address
        range."""
        recorded = next((each for each in self._kernel_maps if each.name.startswith("[kernel.kallsyms]")), None)
        if recorded is None:
            return 0, None
        here = _first_symbol(path, recorded.name.removeprefix("[kernel.kallsyms]"))
        if here is None or here == recorded.reference:
            return 0, None
        # After the mapped code follows code that ran only at boot; idle tasks have it in their stacks.
        begin = recorded.reference
        others = [each.start for each in self._kernel_maps if each.start > begin and each is not recorded]
        return here - begin, (begin, min([*others, begin + _IMAGE_BYTES]))


@dataclass(slots=True)
class _KernelNames:
    """The kernel's functions. Addresses in the range `inside` are shifted by `moved` before the lookup; other
    addresses, which belong to modules, are not looked up."""

    table: KernelTable
    moved: int
    inside: tuple[int, int] | None
    _named: dict[int, Frame] = field(default_factory=dict)

    def frames(self, addresses: U64Array) -> list[Frame]:
        wanted = addresses
        if self.inside is not None:
            first, end = (np.uint64(bound % 2**64) for bound in self.inside)
            here = (addresses >= first) & (addresses < end)
            wanted = np.where(here, addresses + np.uint64(self.moved % 2**64), np.uint64(0))
        at = self.table.find(wanted) if len(self.table.addresses) else np.full(len(addresses), -1)
        named = self._named
        for index in set(at.tolist()) - named.keys():
            named[index] = make_frame(KERNEL, *self.table.symbol(index)) if index >= 0 else UNKNOWN_FRAME
        return [
            named[index] if index >= 0 else make_frame(KERNEL, KERNEL_MODULE, f"0x{address:x}")
            for index, address in zip(at.tolist(), addresses.tolist(), strict=True)
        ]


class _CompiledCode:
    """Functions compiled by a runtime, from the perf map that it wrote."""

    def __init__(self) -> None:
        self._code = CodeRanges()
        self._frames: dict[int, Frame] = {}

    @classmethod
    def load(cls, file: OpenFile) -> "_CompiledCode":
        """Load a perf map. Raises FileRefused, BadReply and OSError."""
        found = cls()
        at = 0
        while at < _MOST_MAP_BYTES:
            piece = MapPiece(read_perf_map(file, at, _MAP_PIECE), _MAP_PIECE)
            if not piece.used:
                break
            found._code.add(piece)
            at += piece.used
        return found

    def frames(self, addresses: U64Array) -> list[Frame]:
        at = self._code.find(addresses).tolist()
        for index in set(at) - self._frames.keys():
            known = index >= 0
            self._frames[index] = (
                make_frame(JIT, PERF_MAP, readable(self._code.name(index))) if known else _ANONYMOUS_FRAME
            )
        return [self._frames[index] for index in at]


class _NamedFile:
    """A program or library whose functions are known."""

    def __init__(self, program: Program, file: OpenFile, source: OpenFile) -> None:
        self._program = program
        self._file = file
        self._source = source
        self._frames: dict[int, Frame] = {}

    @classmethod
    def load(cls, opened: OpenFile, build_id: bytes) -> "_NamedFile":
        """Load the symbols of a file. Raises FileRefused and OSError."""
        text = build_id.hex()
        debug = _opened(_DEBUG / text[:2] / f"{text[2:]}.debug") if build_id else None
        program, source = load_program(opened, [debug] if debug is not None else [])
        return cls(program, opened, source)

    def frames(self, file: MappedFile, offsets: U64Array) -> list[Frame]:
        at = self._program.find(offsets)
        if (at < 0).any() and not self._program.is_outlined:
            try:
                self._program.outline(*load_outlines(self._file))
            except (FileRefused, OSError):
                self._program.outline(np.empty(0, np.uint64), np.empty(0, np.uint64))
            at = self._program.find(offsets)
        for index in set(at.tolist()):
            if index >= 0 and index not in self._frames:
                self._frames[index] = self._named(file, index)
        return [
            self._frames[index] if index >= 0 else nameless_frame(file, offset)
            for index, offset in zip(at.tolist(), offsets.tolist(), strict=True)
        ]

    def _named(self, file: MappedFile, index: int) -> Frame:
        try:
            with refusing_malformed():
                name = self._program.name(index, self._source)
        except (FileRefused, OSError):
            name = b""
        if not name:
            return nameless_frame(file, self._program.start(index))
        return make_frame(USER, file.module, demangle(readable(name)))


def nameless_frame(file: MappedFile, offset: int) -> Frame:
    """The frame of a function without a name."""
    return make_frame(USER, file.module, f"{file.base}+0x{offset:x}")


def _opened(path: Path, trusted: Collection[int] | None = None) -> OpenFile | None:
    """Open a regular file; None if it can't be opened. With `trusted`, it must belong to one of these users, who
    must also have put it there themselves: symlinks are not followed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if trusted else 0))
    except OSError:
        return None
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or (trusted is not None and status.st_uid not in trusted):
        os.close(fd)
        return None
    return OpenFile(fd, identity_of(status), str(path))


def _build_id(file: OpenFile) -> bytes:
    with refusing_malformed():
        return ElfFile(file.read).build_id()


def _own_kernel() -> bytes:
    """The build id of the running kernel (a note in /sys/kernel/notes); empty if it can't be read."""
    try:
        notes = _NOTES.read_bytes()
    except OSError:
        return b""
    at = 0
    while at + 12 <= len(notes):
        name, size, kind = (int.from_bytes(notes[at + 4 * i : at + 4 * i + 4], "little") for i in range(3))
        content = at + 12 + (name + 3 & ~3)
        if kind == 3 and notes[at + 12 : at + 16] == b"GNU\0":
            return notes[content : content + size]
        at = content + (size + 3 & ~3)
    return b""


def _first_symbol(path: Path, name: str) -> int | None:
    """The address of the kernel's first symbol in a kallsyms list."""
    wanted = (name or _REFERENCES[0]).encode()
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(1 << 18):
            rest += chunk
            for match in _FIRST_SYMBOL.finditer(rest):
                if match[2] == wanted:
                    return int(match[1], 16)
            rest = rest[-256:]
    return None

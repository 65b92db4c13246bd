"""The functions of one program or library, ready to be looked up by file offset."""

import os
from collections.abc import Iterable
from itertools import count

import numpy as np
import numpy.typing as npt

from exhume.collect.perf.symbols.elf import ElfFile, NotElf, Segment, StringTable
from exhume.collect.perf.symbols.locate import Identity, OpenFile, open_regular
from exhume.collect.perf.symbols.table import FunctionTable, RawSymbols

# Names of small files are kept; of larger ones they are read from the file when a function is first hit.
_STRINGS_KEPT = 128 << 10
_NAME_READ = 256
_MAX_NAME = 4096


_numbers = count(1)


class Program:
    """Functions by file offset, and their names."""

    __slots__ = ("_segments", "_strings", "_strings_at", "identity", "number", "source", "source_path", "table")

    def __init__(
        self, segments: tuple[Segment, ...], table: FunctionTable, strings: bytes | None, at: StringTable
    ) -> None:
        self._segments = segments
        self._strings = strings
        self._strings_at = at
        self.table = table
        # Never used again: conclusions about callchains are kept by it.
        self.number = next(_numbers)
        self.identity: Identity = (0, 0, 0, 0)
        self.source: Identity = (0, 0, 0, 0)
        self.source_path = ""

    @property
    def nbytes(self) -> int:
        return self.table.nbytes + len(self._strings or b"") + 500

    @property
    def needs_file(self) -> bool:
        """Whether names have to be read from the source file."""
        return self._strings is None

    def find(self, offsets: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
        """The index of the function at each file offset; -1 where none is known."""
        found = np.full(len(offsets), -1, np.intp)
        for segment in self._segments:
            inside = (offsets >= np.uint64(segment.offset)) & (offsets < np.uint64(segment.offset + segment.size))
            if inside.any():
                vaddrs = offsets[inside] + np.uint64((segment.vaddr - segment.offset) % 2**64)
                found[inside] = self.table.find(vaddrs)
        return found

    def name(self, index: int, file: OpenFile | None) -> bytes:
        """The name of a function, chosen among its aliases as perf does."""
        names = [self._string(int(self.table.names[alias]), file) for alias in self.table.aliases(index)]
        return min(names, key=_preference)

    def _string(self, at: int, file: OpenFile | None) -> bytes:
        if self._strings is not None:
            end = self._strings.find(b"\0", at)
            return self._strings[at : end if end >= 0 else None]
        if file is None or at >= self._strings_at.size:
            return b""
        content = file.read(self._strings_at.offset + at, _NAME_READ)
        if b"\0" not in content:
            content = file.read(self._strings_at.offset + at, _MAX_NAME)
        return content.partition(b"\0")[0]


def _preference(name: bytes) -> tuple[bool, int, int, bytes]:
    """Aliases: the one with the fewest leading underscores, then the longest."""
    return not name, len(name) - len(name.lstrip(b"_")), -len(name), name


def load_program(file: OpenFile, debug_roots: Iterable[str]) -> Program | None:
    """The functions in a file, or in the debug file that belongs to it. None when it is no ELF file."""
    try:
        elf = ElfFile(file.read)
        program = _best_program(file, elf, debug_roots)
    except (NotElf, OSError):
        return None
    program.identity = file.identity
    return program


def _best_program(file: OpenFile, elf: ElfFile, debug_roots: Iterable[str]) -> Program:
    if not elf.has_symtab:
        debug = _open_debug(elf, file.path, debug_roots)
        if debug is not None:
            with debug[0] as debug_file:
                return _from_file(debug_file, debug[1], elf.code)
        if mini := elf.mini_debug():
            return _with_mini_debug(elf, mini)
    return _from_file(file, elf, elf.code)


def _from_file(file: OpenFile, elf: ElfFile, segments: tuple[Segment, ...]) -> Program:
    symbols, strings_at = elf.functions()
    strings = file.read(strings_at.offset, strings_at.size) if strings_at.size <= _STRINGS_KEPT else None
    program = Program(segments, FunctionTable(symbols), strings, strings_at)
    program.source, program.source_path = file.identity, file.path
    return program


def _with_mini_debug(elf: ElfFile, mini: bytes) -> Program:
    """Dynamic symbols and, beside them, those that the packed table adds."""

    def unpacked(offset: int, size: int) -> bytes:
        return mini[offset : offset + size]

    dynamic, dynamic_strings = elf.dynamic_functions()
    try:
        packed, packed_strings = ElfFile(unpacked).functions()
    except NotElf:
        packed, packed_strings = RawSymbols.none(), StringTable(0, 0)
    strings = elf.strings(dynamic_strings)
    packed.name += np.uint32(len(strings))
    strings += unpacked(packed_strings.offset, packed_strings.size)
    table = FunctionTable(RawSymbols.concatenate([dynamic, packed]))
    return Program(elf.code, table, strings, StringTable(0, len(strings)))


def _open_debug(elf: ElfFile, path: str, roots: Iterable[str]) -> tuple[OpenFile, ElfFile] | None:
    """The debug file of a stripped program, where one is installed. The build id proves that it belongs."""
    build_id = elf.build_id()
    if len(build_id) < 4:
        return None
    link = os.fsdecode(elf.debug_link())
    for root in roots:
        for candidate in _debug_paths(root, build_id.hex(), path, link):
            file = open_regular(candidate)
            if file is None:
                continue
            try:
                debug = ElfFile(file.read)
                if debug.has_symtab and debug.build_id() == build_id:
                    return file, debug
            except (NotElf, OSError):
                pass
            file.close()
    return None


def _debug_paths(root: str, build_id: str, path: str, link: str) -> list[str]:
    paths = [f"{root}/usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug"]
    if link and "/" not in link and path.startswith(root + "/"):
        inside = path[len(root) :].rpartition("/")[0]
        paths.append(f"{root}/usr/lib/debug{inside}/{link}")
        paths.append(f"{root}{inside}/.debug/{link}")
    return paths

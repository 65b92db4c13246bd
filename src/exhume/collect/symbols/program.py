"""The functions of one program or library, ready to be looked up by file offset."""

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Protocol

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.elf import ElfFile, NotElf, Segment, StringTable
from exhume.collect.symbols.elf_names import ElfNames
from exhume.collect.symbols.file_budget import FileBudget, FileRefused, Read, refusing_malformed
from exhume.collect.symbols.gopclntab import read_go_functions
from exhume.collect.symbols.locate import Identity, OpenFile, open_regular
from exhume.collect.symbols.outlines import read_outlines
from exhume.collect.symbols.table import U64, FunctionTable, RawSymbols, Spans

# Names of small files are kept; of larger ones they are read from the file when a function is first hit.
_STRINGS_KEPT = 128 << 10

_numbers = count(1)


class NamedFunctions(Protocol):
    """Functions that some table of a file names, known by their index in `spans`."""

    @property
    def spans(self) -> Spans: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def needs_file(self) -> bool:
        """Whether names have to be read from the source file."""
        ...

    def name(self, index: int, file: OpenFile | None) -> bytes: ...


class Program:
    """Functions by file offset, and their names.

    They come from one table or several, of which an earlier one wins where both know an address. After them come
    the outlines, once they are known: functions without a name. Indexes run on from table to table.
    """

    __slots__ = ("_outlines", "_segments", "_tables", "identity", "number", "source", "source_path")

    def __init__(self, segments: tuple[Segment, ...], tables: Sequence[NamedFunctions]) -> None:
        self._segments = segments
        self._tables = tuple(tables)
        self._outlines: Spans | None = None
        # Never used again: conclusions about callchains are kept by it.
        self.number = next(_numbers)
        self.identity: Identity = (0, 0, 0, 0)
        self.source: Identity = (0, 0, 0, 0)
        self.source_path = ""

    @property
    def nbytes(self) -> int:
        outlines = 0 if self._outlines is None else self._outlines.nbytes
        return sum(table.nbytes for table in self._tables) + outlines + 500

    @property
    def needs_file(self) -> bool:
        """Whether names have to be read from the source file."""
        return any(table.needs_file for table in self._tables)

    @property
    def is_outlined(self) -> bool:
        """Whether functions without a name are known."""
        return self._outlines is not None

    def outline(self, starts: U64, ends: U64) -> None:
        """Add the places of functions. Those that lie wholly inside a named one are never looked up."""
        unnamed = np.ones(len(starts), np.bool_)
        for table in self._tables:
            unnamed &= ~table.spans.enclose(starts, ends)
        self._outlines = Spans.of(starts[unnamed], ends[unnamed])

    def find(self, offsets: U64) -> npt.NDArray[np.intp]:
        """The index of the function at each file offset; -1 where none is known."""
        found = np.full(len(offsets), -1, np.intp)
        for segment in self._segments:
            inside = (offsets >= np.uint64(segment.offset)) & (offsets < np.uint64(segment.offset + segment.size))
            if inside.any():
                vaddrs = offsets[inside] + np.uint64((segment.vaddr - segment.offset) % 2**64)
                found[inside] = self._find(vaddrs)
        return found

    def _find(self, addresses: U64) -> npt.NDArray[np.intp]:
        spans = self._spans()
        first = next(spans)
        found = first.find(addresses)
        passed = len(first)
        for following in spans:
            missing = np.flatnonzero(found < 0)
            if not len(missing):
                break
            at = following.find(addresses[missing])
            found[missing] = np.where(at >= 0, at + passed, -1)
            passed += len(following)
        return found

    def _spans(self) -> Iterator[Spans]:
        for table in self._tables:
            yield table.spans
        if self._outlines is not None:
            yield self._outlines

    def name(self, index: int, file: OpenFile | None) -> bytes:
        """The name of a function; empty when it has none."""
        for table in self._tables:
            if index < len(table.spans):
                return table.name(index, file)
            index -= len(table.spans)
        return b""

    def has_name(self, index: int) -> bool:
        return index < sum(len(table.spans) for table in self._tables)

    def start(self, index: int) -> int:
        """The file offset that a function starts at."""
        address = self._start_address(index)
        for segment in self._segments:
            if segment.vaddr <= address < segment.vaddr + segment.size:
                return address - segment.vaddr + segment.offset
        return address

    def _start_address(self, index: int) -> int:
        for spans in self._spans():
            if index < len(spans):
                return spans.start(index)
            index -= len(spans)
        raise IndexError(index)


def load_program(file: OpenFile, debug_roots: Iterable[str]) -> Program | None:
    """The functions in a file, or in the debug file that belongs to it. None when it is no ELF file.

    Raises FileRefused when it is damaged, or when reading it takes more than the budget of one file.
    """
    budget = FileBudget()
    try:
        with refusing_malformed():
            elf = ElfFile(_reading(file, budget), budget)
            program = _best_program(file, elf, debug_roots, budget)
    except (NotElf, OSError):
        return None
    program.identity = file.identity
    return program


def load_outlines(file: OpenFile) -> tuple[U64, U64]:
    """Where the functions in a file start and end, by address, whether they have a name or not. Raises FileRefused."""
    budget = FileBudget()
    read = _reading(file, budget)
    try:
        with refusing_malformed():
            return read_outlines(ElfFile(read, budget), read)
    except (NotElf, OSError):
        return np.empty(0, np.uint64), np.empty(0, np.uint64)


def load_names(file: OpenFile, program: Program, indexes: Iterable[int]) -> dict[int, bytes]:
    """The names of some functions, from the file that they lie in. Raises FileRefused."""
    budget = FileBudget()
    names: dict[int, bytes] = {}
    with refusing_malformed():
        for index in indexes:
            budget.count()
            names[index] = program.name(index, file)
    return names


def open_debug_file(file: OpenFile, roots: Iterable[str]) -> OpenFile | None:
    """The file that the names of a stripped one lie in, where it is installed. Raises FileRefused."""
    budget = FileBudget()
    try:
        with refusing_malformed():
            found = _open_debug(ElfFile(_reading(file, budget), budget), file.path, roots, budget)
    except (NotElf, OSError):
        return None
    return None if found is None else found[0]


def _reading(file: OpenFile, budget: FileBudget) -> Read:
    return budget.reading(file.read, file.size)


def _best_program(file: OpenFile, elf: ElfFile, debug_roots: Iterable[str], budget: FileBudget) -> Program:
    if not elf.has_symtab:
        debug = _open_debug(elf, file.path, debug_roots, budget)
        if debug is not None:
            with debug[0] as debug_file:
                return _from_file(debug_file, debug[1], elf.code, budget)
        if mini := elf.mini_debug():
            return _with_mini_debug(elf, mini, budget)
    return _from_file(file, elf, elf.code, budget)


def _from_file(file: OpenFile, elf: ElfFile, segments: tuple[Segment, ...], budget: FileBudget) -> Program:
    symbols, strings_at = elf.functions()
    strings = elf.strings(strings_at) if strings_at.size <= _STRINGS_KEPT else None
    tables: list[NamedFunctions] = []
    if not elf.has_symtab and (go := read_go_functions(elf, _reading(file, budget))) is not None:
        tables.append(go)
        symbols = symbols.select(go.spans.find(symbols.start) < 0)
    tables.append(ElfNames(FunctionTable(symbols), strings, strings_at))
    program = Program(segments, tables)
    program.source, program.source_path = file.identity, file.path
    return program


def _with_mini_debug(elf: ElfFile, mini: bytes, budget: FileBudget) -> Program:
    """Dynamic symbols, and those that the packed table adds."""

    def unpacked(offset: int, size: int) -> bytes:
        return mini[offset : offset + size]

    dynamic, dynamic_strings = elf.dynamic_functions()
    try:
        packed, packed_strings = ElfFile(unpacked, budget).functions()
    except FileRefused:
        packed, packed_strings = RawSymbols.none(), StringTable(0, 0)
    strings = elf.strings(dynamic_strings)
    packed.name += np.uint32(len(strings))
    strings += unpacked(packed_strings.offset, packed_strings.size)
    table = FunctionTable(RawSymbols.concatenate([dynamic, packed]))
    return Program(elf.code, [ElfNames(table, strings, StringTable(0, len(strings)))])


def _open_debug(elf: ElfFile, path: str, roots: Iterable[str], budget: FileBudget) -> tuple[OpenFile, ElfFile] | None:
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
                with refusing_malformed():
                    debug = ElfFile(_reading(file, budget), budget)
                    if debug.has_symtab and debug.build_id() == build_id:
                        return file, debug
            except (FileRefused, OSError):
                pass  # another may do; a budget that is spent is noticed at the next read
            file.close()
    return None


def _debug_paths(root: str, build_id: str, path: str, link: str) -> list[str]:
    paths = [f"{root}/usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug"]
    if link and "/" not in link and path.startswith(root + "/"):
        inside = path[len(root) :].rpartition("/")[0]
        paths.append(f"{root}/usr/lib/debug{inside}/{link}")
        paths.append(f"{root}{inside}/.debug/{link}")
    return paths

"""The functions of one program or library, for lookup by file offset; read by the parser process, and sent to the
recorder as arrays."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.parser.elf import ElfFile, Segment, StringTable, read_outlines
from exhume.collect.symbols.parser.gopclntab import GoFunctions, GoLayout, read_go_functions, read_go_name
from exhume.collect.symbols.parser.open_file import (
    FileBudget,
    FileRefused,
    Identity,
    OpenFile,
    Read,
    refusing_malformed,
)
from exhume.collect.symbols.parser.table import U64, FunctionTable, RawSymbols, Spans
from exhume.collect.symbols.parser.wire import Arrays, BadReply, column, text

# The names of small files are kept; those of larger files are read from the file when a function is first hit.
_STRINGS_KEPT = 512 << 10
_MAX_SEGMENTS = 64
_FAR = 1 << 62
_ELF, _GO = 0, 1
_HEAD = 7  # numbers that describe a table

_numbers = count(1)


class ElfNames:
    """The functions of a symbol table. Its strings are kept, or read from the file when a function is hit."""

    __slots__ = ("strings", "strings_at", "table")

    def __init__(self, table: FunctionTable, strings: bytes | None, at: StringTable) -> None:
        self.table = table
        self.strings = strings
        self.strings_at = at

    @property
    def spans(self) -> Spans:
        return self.table.spans

    @property
    def nbytes(self) -> int:
        return self.table.nbytes + len(self.strings or b"")

    @property
    def needs_file(self) -> bool:
        return self.strings is None

    def lookup(self, index: int) -> list[int]:
        """Where the names of a function are in the file."""
        found = (int(self.table.names[alias]) for alias in self.table.aliases(index))
        return [self.strings_at.offset + at for at in found if at < self.strings_at.size]

    def name(self, index: int, file: OpenFile | None) -> bytes:
        """The name of a function, chosen among its aliases as perf does."""
        if self.strings is None:
            return b"" if file is None else read_elf_name(file, self.lookup(index))
        return best_name(self._kept(int(self.table.names[alias])) for alias in self.table.aliases(index))

    def _kept(self, at: int) -> bytes:
        assert self.strings is not None
        end = self.strings.find(b"\0", at)
        return self.strings[at : end if end >= 0 else None]


def read_elf_name(file: OpenFile, offsets: list[int]) -> bytes:
    return best_name(file.string(offset) for offset in offsets)


def best_name(names: Iterable[bytes]) -> bytes:
    """The alias with the fewest leading underscores, then the longest."""
    return min(names, key=lambda name: (not name, len(name) - len(name.lstrip(b"_")), -len(name), name), default=b"")


NamedFunctions = ElfNames | GoFunctions


class Program:
    """Functions by file offset, and their names.

    They come from one or more tables; an earlier table wins where both cover an address. Outlines, once loaded, come
    last: functions without a name. Indexes are continuous across tables.
    """

    __slots__ = ("_outlines", "identity", "number", "segments", "source", "source_at", "tables")

    def __init__(self, segments: tuple[Segment, ...], tables: Sequence[NamedFunctions]) -> None:
        self.segments = segments
        self.tables = tuple(tables)
        self._outlines: Spans | None = None
        # Never reused: cached conclusions about callchains are keyed by it.
        self.number = next(_numbers)
        self.identity: Identity = (0, 0, 0, 0)
        self.source: Identity = (0, 0, 0, 0)
        self.source_at = ("", "")  # its root and path

    @property
    def nbytes(self) -> int:
        outlines = 0 if self._outlines is None else self._outlines.nbytes
        return sum(table.nbytes for table in self.tables) + outlines + 500

    @property
    def needs_file(self) -> bool:
        """Whether names must be read from the source file."""
        return any(table.needs_file for table in self.tables)

    @property
    def is_outlined(self) -> bool:
        """Whether functions without a name are known."""
        return self._outlines is not None

    def outline(self, starts: U64, ends: U64) -> None:
        """Add the bounds of functions. Those wholly inside a named function are never looked up."""
        unnamed = np.ones(len(starts), np.bool_)
        for table in self.tables:
            unnamed &= ~table.spans.enclose(starts, ends)
        self._outlines = Spans.of(starts[unnamed], ends[unnamed])

    def find(self, offsets: U64) -> npt.NDArray[np.intp]:
        """The index of the function at each file offset; -1 where none is known."""
        found: npt.NDArray[np.intp] | None = None
        for segment in self.segments:
            # An offset below the segment wraps around to a number beyond its size.
            inside = offsets - np.uint64(segment.offset) < np.uint64(segment.size)
            if not inside.any():
                continue
            shift = np.uint64((segment.vaddr - segment.offset) % 2**64)
            if found is None and inside.all():
                # The common case: most programs have one code segment.
                return self._find(offsets + shift)
            if found is None:
                found = np.full(len(offsets), -1, np.intp)
            found[inside] = self._find(offsets[inside] + shift)
        return np.full(len(offsets), -1, np.intp) if found is None else found

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
        for table in self.tables:
            yield table.spans
        if self._outlines is not None:
            yield self._outlines

    def name(self, index: int, file: OpenFile | None) -> bytes:
        """The name of a function; empty when it has none."""
        for table in self.tables:
            if index < len(table.spans):
                return table.name(index, file)
            index -= len(table.spans)
        return b""

    def lookup(self, index: int) -> list[int]:
        """The arguments that `read_name` needs to find a function's name in the source file."""
        for table in self.tables:
            if index < len(table.spans):
                return [_GO if isinstance(table, GoFunctions) else _ELF, *table.lookup(index)]
            index -= len(table.spans)
        return [_ELF]

    def has_name(self, index: int) -> bool:
        return index < sum(len(table.spans) for table in self.tables)

    def start(self, index: int) -> int:
        """The file offset of a function's start."""
        address = self._start_address(index)
        for segment in self.segments:
            if segment.vaddr <= address < segment.vaddr + segment.size:
                return address - segment.vaddr + segment.offset
        return address

    def _start_address(self, index: int) -> int:
        for spans in self._spans():
            if index < len(spans):
                return spans.start(index)
            index -= len(spans)
        raise IndexError(index)


def load_program(file: OpenFile, debug_files: Sequence[OpenFile] = ()) -> tuple[Program, OpenFile]:
    """The functions in a file or in its first matching debug file, and the file that holds the names.

    Raises FileRefused when it is not an ELF file, when it is damaged, or when reading it exceeds the budget of one
    file.
    """
    budget = FileBudget()
    with refusing_malformed():
        return _best_program(file, ElfFile(_reading(file, budget), budget), debug_files, budget)


def debug_link(file: OpenFile) -> tuple[bytes, bytes]:
    """The build ID of a stripped file and the name of its debug file; empty when it has symbols of its own."""
    budget = FileBudget()
    with refusing_malformed():
        elf = ElfFile(_reading(file, budget), budget)
        return (b"", b"") if elf.has_symtab else (elf.build_id(), elf.debug_link())


def load_outlines(file: OpenFile) -> tuple[U64, U64]:
    """The starts and ends of all functions in a file, named or not, by address. Raises FileRefused."""
    budget = FileBudget()
    read = _reading(file, budget)
    with refusing_malformed():
        return read_outlines(ElfFile(read, budget), read)


def load_names(file: OpenFile, lookups: Iterable[list[int]]) -> list[bytes]:
    """Read the names of some functions from the file that contains them. Raises FileRefused."""
    budget = FileBudget()
    names: list[bytes] = []
    with refusing_malformed():
        for kind, *lookup in lookups:
            budget.count()
            names.append(read_go_name(file, lookup) if kind == _GO else read_elf_name(file, lookup))
    return names


def _reading(file: OpenFile, budget: FileBudget) -> Read:
    return budget.reading(file.read, file.size)


def _best_program(
    file: OpenFile, elf: ElfFile, debug_files: Sequence[OpenFile], budget: FileBudget
) -> tuple[Program, OpenFile]:
    if not elf.has_symtab:
        build_id = elf.build_id()
        for each in debug_files:
            debug = _debug_elf(each, build_id, budget)
            if debug is not None:
                return _from_file(each, debug, elf.code, budget), each
        if mini := elf.mini_debug():
            return _with_mini_debug(elf, mini, budget), file
    return _from_file(file, elf, elf.code, budget), file


def _debug_elf(file: OpenFile, build_id: bytes, budget: FileBudget) -> ElfFile | None:
    """Open a debug file, if its build ID proves that it belongs to a stripped file."""
    try:
        with refusing_malformed():
            debug = ElfFile(_reading(file, budget), budget)
            if len(build_id) >= 4 and debug.has_symtab and debug.build_id() == build_id:
                return debug
    except (FileRefused, OSError):
        pass  # another one may work; the next read notices an exhausted budget
    return None


def _from_file(file: OpenFile, elf: ElfFile, segments: tuple[Segment, ...], budget: FileBudget) -> Program:
    symbols, strings_at = elf.functions()
    strings = elf.strings(strings_at) if strings_at.size <= _STRINGS_KEPT else None
    tables: list[NamedFunctions] = []
    if not elf.has_symtab and (go := read_go_functions(elf, _reading(file, budget))) is not None:
        tables.append(go)
        symbols = symbols.select(go.spans.find(symbols.start) < 0)
    tables.append(ElfNames(FunctionTable.of(symbols), strings, strings_at))
    return Program(segments, tables)


def _with_mini_debug(elf: ElfFile, mini: bytes, budget: FileBudget) -> Program:
    """Dynamic symbols, and those that the compressed table adds."""

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
    table = FunctionTable.of(RawSymbols.concatenate([dynamic, packed]))
    return Program(elf.code, [ElfNames(table, strings, StringTable(0, len(strings)))])


def pack_program(program: Program, source: int) -> dict[str, npt.NDArray[Any]]:
    """Pack a program into the arrays of a reply; `source` is the number of the file with its names."""
    code = [number for segment in program.segments for number in astuple(segment)]
    arrays: dict[str, npt.NDArray[Any]] = {"code": np.array(code, np.uint64)}
    heads = []
    for number, table in enumerate(program.tables):
        if isinstance(table, GoFunctions):
            heads += [_GO, table.spans.base, *astuple(table.layout)]
            arrays |= {f"bounds{number}": table.bounds, f"names{number}": table.records}
            continue
        kept = table.strings is not None
        heads += [_ELF, table.spans.base, table.strings_at.offset, table.strings_at.size, int(kept), 0, 0]
        starts, ends = table.spans.arrays
        arrays |= {f"starts{number}": starts, f"ends{number}": ends, f"names{number}": table.table.names}
        arrays[f"strings{number}"] = text(table.strings or b"")
    arrays["tables"] = np.array([source, *heads], np.uint64)
    return arrays


def unpack_program(arrays: Arrays) -> tuple[Program, int]:
    """Unpack the program in a reply, and the number of its source. Raises BadReply."""
    code = column(arrays, "code", np.uint64).tolist()
    # Sums of offsets and sizes must fit in 64 bits.
    if len(code) % 3 or len(code) > 3 * _MAX_SEGMENTS or max(*code[0::3], *code[1::3], 0, 0) > _FAR:
        raise BadReply("the segments of code")
    source, *heads = column(arrays, "tables", np.uint64).tolist() or [0]
    tables: list[NamedFunctions] = []
    if len(heads) not in (_HEAD, 2 * _HEAD):
        raise BadReply("the number of tables")
    for number, at in enumerate(range(0, len(heads), _HEAD)):
        kind, base, *fields = heads[at : at + _HEAD]
        names = column(arrays, f"names{number}", np.uint32).copy()
        if kind == _GO:
            bounds = column(arrays, f"bounds{number}", np.uint32).copy()
            if len(bounds) != len(names) + 1 or np.any(bounds[:-1] > bounds[1:]) or fields[1] not in (4, 8):
                raise BadReply("a table of Go functions")
            tables.append(GoFunctions(base, bounds, names, GoLayout(*fields)))
            continue
        starts = column(arrays, f"starts{number}", np.uint32, np.uint64).copy()
        ends = column(arrays, f"ends{number}", np.uint32, np.uint64).copy()
        if not len(starts) == len(ends) == len(names) or starts.dtype != ends.dtype:
            raise BadReply("a table of symbols")
        _check_sorted(starts, ends)
        strings = column(arrays, f"strings{number}", np.uint8).tobytes() if fields[2] else None
        table = FunctionTable(Spans(base, starts, ends), names)
        tables.append(ElfNames(table, strings, StringTable(fields[0], fields[1])))
    segments = tuple(Segment(*code[at : at + 3]) for at in range(0, len(code), 3))
    return Program(segments, tables), source


def unpack_outlines(arrays: Arrays) -> tuple[U64, U64]:
    """Unpack the outlines in a reply. Raises BadReply."""
    starts, ends = column(arrays, "outline", np.uint64).copy(), column(arrays, "outlined", np.uint64).copy()
    if len(starts) != len(ends):
        raise BadReply("the outlines")
    _check_sorted(starts, ends)
    return starts, ends


def _check_sorted(starts: npt.NDArray[Any], ends: npt.NDArray[Any]) -> None:
    if np.any(starts[:-1] > starts[1:]) or np.any(ends < starts):
        raise BadReply("the order of functions")

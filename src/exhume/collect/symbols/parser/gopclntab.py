"""Go's function table (gopclntab), present in every Go program because the runtime needs it; stripping leaves it in
place.

It begins with a header, followed by names, and a sorted list with the start of each function and the offset of its
record. Only that list is kept, eight bytes per function; records and names are read from the file when a function is
hit.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.parser.elf import MAX_SYMBOLS, ElfFile, Section, StringTable
from exhume.collect.symbols.parser.open_file import OpenFile, Read
from exhume.collect.symbols.parser.table import Spans

_GO_1_16, _GO_1_18, _GO_1_20 = 0xFFFFFFFA, 0xFFFFFFF0, 0xFFFFFFF1
_MAGICS = (_GO_1_20, _GO_1_18, _GO_1_16)
_HEADER_SIZE = 8 + 8 * 8
_ALIGNMENT = 8
_CHUNK = 32768  # functions per read
_SEARCHED_AT_ONCE = 1 << 20
_MAX_SEARCHED = 256 << 20
# The table may end this much before its code does: the linker pads to a multiple of a few bytes.
_MAX_FILLING = 64
_TEXT_IN_MODULE = 22  # index of the pointer to the start of code in the runtime's moduledata


@dataclass(frozen=True, slots=True)
class _Header:
    """Where the parts of a table are, relative to its start. Since Go 1.18 function starts are relative to `text`."""

    pointer: int
    relative: bool
    functions: int
    text: int
    names: StringTable
    list: int

    @property
    def text_field(self) -> int:
        return 8 + 2 * self.pointer

    @property
    def entry(self) -> int:
        """The number of bytes that a function's start takes."""
        return 4 if self.relative else self.pointer


@dataclass(frozen=True, slots=True)
class _List:
    """Function starts, plus one for the end of the last function, and the locations of their records. Starts that are
    addresses are made relative to the first one."""

    first: int
    bounds: npt.NDArray[np.uint32]
    records: npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class GoLayout:
    """Where the records and names of functions are in the file, and how many bytes a start takes (`relative`: the start
    is relative to the base)."""

    records: int
    entry: int
    relative: int
    names: int
    names_size: int


class GoFunctions:
    """The functions of a Go program: each extends to the start of the next."""

    __slots__ = ("bounds", "layout", "nbytes", "records", "spans")
    needs_file = True

    def __init__(
        self, base: int, bounds: npt.NDArray[np.uint32], records: npt.NDArray[np.uint32], layout: GoLayout
    ) -> None:
        self.spans = Spans(base, bounds[:-1], bounds[1:])
        self.nbytes = bounds.nbytes + records.nbytes
        self.bounds, self.records, self.layout = bounds, records, layout

    def lookup(self, index: int) -> list[int]:
        """The arguments that `read_go_name` needs."""
        layout = self.layout
        start = self.spans.start(index) - (self.spans.base if layout.relative else 0)
        return [layout.records + int(self.records[index]), start, layout.entry, layout.names, layout.names_size]

    def name(self, index: int, file: OpenFile | None) -> bytes:
        return b"" if file is None else read_go_name(file, self.lookup(index))


def read_go_name(file: OpenFile, lookup: list[int]) -> bytes:
    """The name of a function; empty when the record at that offset does not describe a function starting there."""
    record_at, start, width, names, names_size = lookup
    record = file.read(record_at, width + 4)
    at = int.from_bytes(record[width:], "little")
    if len(record) != width + 4 or int.from_bytes(record[:width], "little") != start or at >= names_size:
        return b""
    return file.string(names + at)


def read_go_functions(elf: ElfFile, read: Read) -> GoFunctions | None:
    """The functions of a Go program; None when it is not one, or when the start of its code cannot be found."""
    for section in _candidates(elf, read):
        header = _header(read, section)
        if header is not None and (functions := _functions(elf, read, section, header)) is not None:
            return functions
    return None


def _candidates(elf: ElfFile, read: Read) -> Iterator[Section]:
    for name in (b".gopclntab", b".data.rel.ro.gopclntab"):
        if (section := elf.place(name)) is not None:
            yield section
            return
    # The C linker, used for position-independent programs with cgo, puts the table among other data.
    data = elf.place(b".data.rel.ro")
    if data is None or elf.place(b".go.buildinfo") is None:
        return
    for at in _searched(read, data):
        yield Section(data.address + at, data.offset + at, data.size - at)


def _searched(read: Read, data: Section) -> Iterator[int]:
    """Positions in a section where tables may start."""
    for first in range(0, min(data.size, _MAX_SEARCHED), _SEARCHED_AT_ONCE):
        content = read(data.offset + first, min(_SEARCHED_AT_ONCE, data.size - first))
        if not content:
            return
        words = np.frombuffer(content, "<u4", len(content) // _ALIGNMENT * _ALIGNMENT // 4)[:: _ALIGNMENT // 4]
        # Not np.isin, whose first call loads more of numpy.
        for at in np.flatnonzero((words == _GO_1_20) | (words == _GO_1_18) | (words == _GO_1_16)).tolist():
            yield first + at * _ALIGNMENT


def _header(read: Read, section: Section) -> _Header | None:
    content = read(section.offset, _HEADER_SIZE)
    if len(content) != _HEADER_SIZE:
        return None
    magic, zero, quantum, pointer = struct.unpack_from("<IHBB", content)
    if magic not in _MAGICS or zero or quantum not in (1, 2, 4) or pointer not in (4, 8):
        return None
    words = list(struct.unpack_from("<8Q" if pointer == 8 else "<8I", content, 8))
    relative = magic != _GO_1_16
    text = words.pop(2) if relative else 0
    functions, _, names, names_end, _, _, functions_at = words[:7]
    size = section.size
    if not 0 < functions <= MAX_SYMBOLS or not names < names_end <= size or functions_at >= size:
        return None
    strings = StringTable(section.offset + names, names_end - names)
    return _Header(pointer, relative, functions, text, strings, functions_at)


def _functions(elf: ElfFile, read: Read, section: Section, header: _Header) -> GoFunctions | None:
    listed = _listed(read, section.offset + header.list, header)
    if listed is None:
        return None
    bounds = listed.bounds
    base = _text_start(elf, section, header, int(bounds[-1])) if header.relative else listed.first
    start, end = base + int(bounds[0]), base + int(bounds[-1])
    inside = any(code.vaddr <= start < end <= code.vaddr + code.size for code in elf.code)
    if not base or not inside or np.any(bounds[:-1] > bounds[1:]):
        return None
    names = header.names
    layout = GoLayout(section.offset + header.list, header.entry, int(header.relative), names.offset, names.size)
    return GoFunctions(base, bounds, listed.records, layout)


def _listed(read: Read, offset: int, header: _Header) -> _List | None:
    """The list of functions: pairs of a start and a record offset, and a final start, where the last function ends."""
    entry, count = header.entry, header.functions
    bounds = np.empty(count + 1, np.uint32)
    records = np.empty(count, np.uint32)
    first = 0
    for done in range(0, count + 1, _CHUNK):
        size = min(2 * _CHUNK, 2 * (count - done) + 1) * entry
        content = read(offset + 2 * done * entry, size)
        if len(content) != size:
            return None
        numbers = np.frombuffer(content, f"<u{entry}")
        starts = numbers[0::2].astype(np.uint64)
        if not header.relative:
            first = first or int(starts[0])
            starts -= np.uint64(first)
            if np.any(starts >> np.uint64(32)):
                return None
        bounds[done : done + len(starts)] = starts
        records[done : done + len(numbers) // 2] = numbers[1::2]
    return _List(first, bounds, records)


def _text_start(elf: ElfFile, section: Section, header: _Header, end: int) -> int:
    """The address that function starts are relative to; 0 when unknown.

    This is not always the start of the code section: the C linker puts its own code before Go's. Up to Go 1.25 the
    header has the address; since then it is in the runtime's moduledata, which has a section of its own.
    """
    if header.text:
        return header.text
    if (module := elf.place(b".go.module")) is not None:
        return elf.pointer(module, _TEXT_IN_MODULE * header.pointer)
    if text := elf.pointer(section, header.text_field):
        return text
    code = elf.place(b".text")
    return code.address if code is not None and 0 <= code.size - end < _MAX_FILLING else 0

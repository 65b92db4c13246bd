"""ELF files: the functions of a program or library, and the location of its code in the file.

Read piece by piece with `read(offset, size)` and numpy, never mapped: truncating a mapped file would kill the reader,
and mapped pages would count as its memory. Anyone may write such a file: every count in it is bounded, and every loop
over its content is charged to the budget of the file.
"""

import lzma
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exhume.collect.symbols.parser.open_file import MALFORMED, NOT_ELF, OVER_BUDGET, FileBudget, FileRefused, Read
from exhume.collect.symbols.parser.table import U64, UNSIZED_REACH, RawSymbols

_CHUNK = 32768  # symbols per read
MAX_SYMBOLS = 700_000
# A linker writes a few dozen sections, and one to four segments of code.
_MAX_HEADERS = 4096  # of sections, or of segments
_MAX_CODE_SEGMENTS = 64
_MAX_NOTES = 16384
_MAX_SMALL_SECTION = 1 << 20
_MAX_STRINGS = 16 << 20
_MAX_UNPACKED = 32 << 20
_UNPACKED_AT_ONCE = 1 << 20
_UNPACKING_MEMORY = 80 << 20  # enough for the largest dictionary of `xz -9`

_FAR = 1 << 62

_LITTLE_ENDIAN = 1
_CLASS_32, _CLASS_64 = 1, 2
_PT_LOAD = 1
_PF_X = 1
_SHT_SYMTAB, _SHT_RELA, _SHT_NOTE, _SHT_NOBITS, _SHT_DYNSYM = 2, 4, 7, 8, 11
_SHF_EXECINSTR = 4
_STT_NOTYPE, _STT_FUNC, _STT_IFUNC = 0, 2, 10
_STB_LOCAL, _STB_GLOBAL, _STB_WEAK = 0, 1, 2
_NT_GNU_BUILD_ID = 3
_EM_ARM, _EM_AARCH64, _EM_RISCV = 40, 183, 243
# These machines mark code and data with local symbols ($x, $d, ...) that name nothing.
_MACHINES_WITH_MAPPING_SYMBOLS = (_EM_ARM, _EM_AARCH64, _EM_RISCV)

_PROGRAM_HEADER = {
    _CLASS_64: np.dtype("<u4,<u4,<u8,<u8,<u8,<u8,<u8,<u8"),
    _CLASS_32: np.dtype("<u4,<u4,<u4,<u4,<u4,<u4,<u4,<u4"),
}
_PROGRAM_HEADER[_CLASS_64].names = ("type", "flags", "offset", "vaddr", "paddr", "filesz", "memsz", "align")
_PROGRAM_HEADER[_CLASS_32].names = ("type", "offset", "vaddr", "paddr", "filesz", "memsz", "flags", "align")
_SECTION_HEADER = {
    _CLASS_64: np.dtype("<u4,<u4,<u8,<u8,<u8,<u8,<u4,<u4,<u8,<u8"),
    _CLASS_32: np.dtype("<u4,<u4,<u4,<u4,<u4,<u4,<u4,<u4,<u4,<u4"),
}
for _dtype in _SECTION_HEADER.values():
    _dtype.names = ("name", "type", "flags", "addr", "offset", "size", "link", "info", "align", "entsize")
_SYMBOL = {
    _CLASS_64: np.dtype("<u4,u1,u1,<u2,<u8,<u8"),
    _CLASS_32: np.dtype("<u4,<u4,<u4,u1,u1,<u2"),
}
_SYMBOL[_CLASS_64].names = ("name", "info", "other", "section", "value", "size")
_SYMBOL[_CLASS_32].names = ("name", "value", "size", "info", "other", "section")
_RELOCATION = np.dtype("<u8,<u4,<u4,<u8")
_RELOCATION.names = ("address", "kind", "symbol", "addend")


class NotElf(FileRefused):
    """Not an ELF file, or not a kind that this reader supports."""

    def __init__(self) -> None:
        super().__init__(NOT_ELF)


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the file that is loaded as code."""

    offset: int
    size: int
    vaddr: int


@dataclass(frozen=True, slots=True)
class Section:
    """A named stretch of the file, and the address that it is loaded at."""

    address: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class StringTable:
    """The location of a symbol table's names in its file."""

    offset: int
    size: int


class ElfFile:
    """The headers of an ELF file; symbols and notes are read on demand."""

    def __init__(self, read: Read, budget: FileBudget | None = None) -> None:
        """`read` charges the budget itself where it has to (`FileBudget.reading`)."""
        self._read = read
        self._budget = budget or FileBudget()
        ident = read(0, 64)
        if len(ident) < 52 or ident[:4] != b"\x7fELF" or ident[5] != _LITTLE_ENDIAN:
            raise NotElf
        self._class = ident[4]
        if self._class == _CLASS_64 and len(ident) == 64:
            fields = struct.unpack_from("<HHIQQQIHHHHHH", ident, 16)
        elif self._class == _CLASS_32:
            fields = struct.unpack_from("<HHIIIIIHHHHHH", ident, 16)
        else:
            raise NotElf
        _, self.machine, _, _, phoff, shoff, _, _, phentsize, phnum, shentsize, shnum, shstrndx = fields
        self.code = self._code_segments(phoff, phentsize, phnum)
        self._sections = self._section_headers(shoff, shentsize, shnum)
        self._section_names = self._small_section(shstrndx) if shstrndx < len(self._sections) else b""

    def _code_segments(self, offset: int, entry: int, count: int) -> tuple[Segment, ...]:
        if not count:
            return ()
        headers = self._headers(_PROGRAM_HEADER[self._class], offset, entry, count)
        code = headers[(headers["type"] == _PT_LOAD) & (headers["flags"] & _PF_X != 0)]
        # Each lookup walks them, and sums of their fields must fit in 64 bits.
        if len(code) > _MAX_CODE_SEGMENTS:
            raise FileRefused(OVER_BUDGET, f"{len(code)} segments of code")
        if np.any(code["offset"] > np.uint64(_FAR)) or np.any(code["filesz"] > np.uint64(_FAR)):
            raise FileRefused(MALFORMED, "a segment of code lies beyond the end of any file")
        return tuple(Segment(int(row["offset"]), int(row["filesz"]), int(row["vaddr"])) for row in code)

    def _section_headers(self, offset: int, entry: int, count: int) -> npt.NDArray[np.void]:
        dtype = _SECTION_HEADER[self._class]
        if not offset:
            return np.empty(0, dtype)
        if not count:  # too many sections for the header field: the first section holds the number
            count = int(self._headers(dtype, offset, entry, 1)["size"][0])
        return self._headers(dtype, offset, entry, count)

    def _headers(self, dtype: np.dtype[np.void], offset: int, entry: int, count: int) -> npt.NDArray[np.void]:
        if entry != dtype.itemsize:
            raise FileRefused(MALFORMED, "headers of an unknown size")
        if count > _MAX_HEADERS:
            raise FileRefused(OVER_BUDGET, f"{count} headers")
        size = entry * count
        content = self._read(offset, size)
        if len(content) != size:
            raise FileRefused(MALFORMED, "the file ends before its headers")
        self._budget.count(count)
        return np.frombuffer(content, dtype)

    def _small_section(self, index: int) -> bytes:
        header = self._sections[index]
        if header["type"] == _SHT_NOBITS or header["size"] > _MAX_SMALL_SECTION:
            return b""
        return self._read(int(header["offset"]), int(header["size"]))

    def _named(self, name: bytes) -> int | None:
        for index, at in enumerate(self._sections["name"].tolist()):
            if self._section_names[at : at + len(name) + 1] == name + b"\0":
                return index
        return None

    def section(self, name: bytes) -> bytes:
        """The content of a small section; empty when it is missing."""
        index = self._named(name)
        return self._small_section(index) if index is not None else b""

    def place(self, name: bytes) -> Section | None:
        """The location of a section; None when it is missing or has no content."""
        index = self._named(name)
        if index is None or self._sections[index]["type"] == _SHT_NOBITS:
            return None
        header = self._sections[index]
        return Section(int(header["addr"]), int(header["offset"]), int(header["size"]))

    def pointer(self, section: Section, at: int) -> int:
        """A pointer inside a section after relocation, before the load address is added."""
        content = self._read(section.offset + at, 8 if self._class == _CLASS_64 else 4)
        return int.from_bytes(content, "little") or self._relocation(section.address + at)

    def _relocation(self, address: int) -> int:
        """The relocated value at an address: position-independent files often hold zeros there. 0 for none."""
        if self._class != _CLASS_64:
            return 0  # 32-bit files hold the value itself
        for header in self._sections[self._sections["type"] == _SHT_RELA]:
            end = int(header["offset"]) + int(header["size"])
            for offset in range(int(header["offset"]), end, _CHUNK * _RELOCATION.itemsize):
                content = self._read(offset, min(_CHUNK * _RELOCATION.itemsize, end - offset))
                entries = np.frombuffer(content, _RELOCATION, len(content) // _RELOCATION.itemsize)
                self._budget.count(len(entries) + 1)
                found = entries["addend"][(entries["address"] == address) & (entries["symbol"] == 0)]
                if len(found):
                    return int(found[0])
                if not content:
                    break
        return 0

    def build_id(self) -> bytes:
        """The build ID that the linker gave this program; empty when it has none."""
        seen = 0
        for index in np.nonzero(self._sections["type"] == _SHT_NOTE)[0]:
            self._budget.count()
            notes = self._small_section(int(index))
            at = 0
            while at + 12 <= len(notes):
                seen += 1
                if seen > _MAX_NOTES:
                    raise FileRefused(OVER_BUDGET, f"more than {_MAX_NOTES} notes")
                name_size, size, kind = struct.unpack_from("<III", notes, at)
                content = at + 12 + (name_size + 3 & ~3)
                if kind == _NT_GNU_BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0":
                    return notes[content : content + size]
                at = content + (size + 3 & ~3)
        return b""

    def debug_link(self) -> bytes:
        """The name of the file with the symbols of this stripped file; empty for none."""
        return self.section(b".gnu_debuglink").partition(b"\0")[0]

    def mini_debug(self) -> bytes:
        """The compressed symbol table (mini debug info) that some distributions embed in a stripped file, unpacked: an
        ELF file itself."""
        packed = self.section(b".gnu_debugdata")
        if not packed:
            return b""
        pieces: list[bytes] = []
        size = 0
        try:
            unpacker = lzma.LZMADecompressor(memlimit=_UNPACKING_MEMORY)
            while not unpacker.eof:
                piece = unpacker.decompress(packed, _UNPACKED_AT_ONCE)
                packed = b""
                pieces.append(piece)
                size += len(piece)
                self._budget.count(len(piece) // 16)
                if size > _MAX_UNPACKED:
                    raise FileRefused(OVER_BUDGET, f"packed symbols of more than {_MAX_UNPACKED >> 20} MiB")
                if not piece and unpacker.needs_input:
                    break  # truncated: use what there is
        except lzma.LZMAError:
            return b""
        return b"".join(pieces)

    @property
    def has_symtab(self) -> bool:
        return bool((self._sections["type"] == _SHT_SYMTAB).any())

    def functions(self) -> tuple[RawSymbols, StringTable]:
        """The functions in the full symbol table, or in the dynamic one for a stripped or huge file."""
        for kind in (_SHT_SYMTAB, _SHT_DYNSYM):
            found = self._functions_in(kind)
            if found is not None:
                return found
        return RawSymbols.none(), StringTable(0, 0)

    def dynamic_functions(self) -> tuple[RawSymbols, StringTable]:
        return self._functions_in(_SHT_DYNSYM) or (RawSymbols.none(), StringTable(0, 0))

    def strings(self, table: StringTable) -> bytes:
        """All names of a symbol table."""
        if table.size > _MAX_STRINGS:
            raise FileRefused(OVER_BUDGET, f"names of {table.size} bytes")
        return self._read(table.offset, table.size)

    def _functions_in(self, kind: int) -> tuple[RawSymbols, StringTable] | None:
        tables = self._sections[self._sections["type"] == kind]
        if not len(tables) or int(tables[0]["link"]) >= len(self._sections):
            return None
        header = tables[0]
        strings = self._sections[int(header["link"])]
        dtype = _SYMBOL[self._class]
        count = int(header["size"]) // dtype.itemsize
        parts: list[RawSymbols] = []
        total = 0
        for first in range(0, count, _CHUNK):
            size = min(_CHUNK, count - first) * dtype.itemsize
            content = self._read(int(header["offset"]) + first * dtype.itemsize, size)
            symbols = np.frombuffer(content, dtype, len(content) // dtype.itemsize)
            self._budget.count(len(symbols))
            part = self._code_symbols(symbols, complete=kind == _SHT_SYMTAB)
            parts.append(part)
            total += len(part)
            if total > MAX_SYMBOLS:
                return None
            if len(content) < size:
                break
        return RawSymbols.concatenate(parts), StringTable(int(strings["offset"]), int(strings["size"]))

    def _code_symbols(self, symbols: npt.NDArray[np.void], *, complete: bool) -> RawSymbols:
        """The symbols that name code. A dynamic table omits most functions, so the extent of an unsized symbol is
        unknown there, and unsized symbols are left out too."""
        info, section = symbols["info"], np.minimum(symbols["section"], len(self._sections))
        in_code = np.append(self._sections["flags"] & _SHF_EXECINSTR != 0, False)
        in_code[0] = False
        named = _NAMES_GLOBAL_CODE if self.machine in _MACHINES_WITH_MAPPING_SYMBOLS else _NAMES_CODE
        wanted = named[info] & in_code[section]
        wanted &= (symbols["name"] != 0) & (symbols["value"] < 1 << 59)
        if not complete:
            wanted &= symbols["size"] > 0
        which = np.flatnonzero(wanted)
        section = section[which]
        start = symbols["value"][which].astype(np.uint64)
        if self.machine == _EM_ARM:
            start &= ~np.uint64(1)  # the lowest bit says that the function is Thumb code
        size = np.minimum(symbols["size"][which], 1 << 31).astype(np.uint32)
        section_end = (self._sections["addr"].astype(np.uint64) + self._sections["size"].astype(np.uint64))[section]
        room = np.minimum(section_end - np.minimum(start, section_end), UNSIZED_REACH).astype(np.uint16)
        rank = _RANKS[info[which]] + (size > 0) * np.uint8(8)
        return RawSymbols(start, size, room, rank, symbols["name"][which].astype(np.uint32))


# By type and binding of a symbol: whether it may name code, and which of two names at one address is better.
_KIND, _BINDING = np.arange(256) & 15, np.arange(256) >> 4
_NAMES_CODE = (_KIND == _STT_FUNC) | (_KIND == _STT_IFUNC) | (_KIND == _STT_NOTYPE)
_NAMES_GLOBAL_CODE = _NAMES_CODE & ((_KIND != _STT_NOTYPE) | (_BINDING != _STB_LOCAL))
_RANKS = ((_KIND != _STT_NOTYPE) * 4 + (_BINDING != _STB_WEAK) * 2 + (_BINDING == _STB_GLOBAL)).astype(np.uint8)

# The version, and the encodings of the .eh_frame pointer, the count, and the pairs (four bytes each, signed, relative
# to the header). Linkers write nothing else.
_KNOWN_HEADER = bytes([1, 0x1B, 0x03, 0x3B])
_HEADER_SIZE = 12
_ENTRY_SIZE = 16
_WINDOW = 1 << 20
_FAR = 1 << 56  # no address or distance in a valid file comes near this

Numbers = npt.NDArray[np.int32]


def read_outlines(elf: ElfFile, read: Read) -> tuple[U64, U64]:
    """Function starts and ends as sorted addresses. They do not overlap; functions of unknown length are left out."""
    nothing = np.empty(0, np.uint64), np.empty(0, np.uint64)
    header, frames = elf.place(b".eh_frame_hdr"), elf.place(b".eh_frame")
    if header is None or frames is None or max(header.address, abs(header.address - frames.address)) > _FAR:
        return nothing
    content = read(header.offset, _HEADER_SIZE)
    if len(content) != _HEADER_SIZE or content[:4] != _KNOWN_HEADER:
        return nothing
    count = struct.unpack_from("<I", content, 8)[0]
    if count > MAX_SYMBOLS:
        return nothing
    content = read(header.offset + _HEADER_SIZE, min(count * 8, header.size - _HEADER_SIZE))
    pairs = np.frombuffer(content, "<i4", len(content) // 8 * 2).reshape(-1, 2)
    starts, entries = pairs[:, 0], pairs[:, 1]  # both relative to the header
    if np.any(starts[:-1] > starts[1:]):
        return nothing
    return _inside(elf.code, header.address, starts, _lengths(read, header, frames, starts, entries))


def _lengths(read: Read, header: Section, frames: Section, starts: Numbers, entries: Numbers) -> Numbers:
    """Function lengths according to their entries in .eh_frame; 0 where unknown.

    An entry is trusted only when its start, a distance in four bytes, equals the start in the list. That also proves
    that the length has four bytes: after a distance in eight, this position would hold its upper half, and so zero or a
    value larger than any function.
    """
    lengths = np.zeros(len(starts), np.int32)
    shift = header.address - frames.address
    for begin in range(0, frames.size, _WINDOW):
        content = read(frames.offset + begin, min(_WINDOW + _ENTRY_SIZE, frames.size - begin))
        words = np.frombuffer(content, "<i4", len(content) // 4)
        # Most files are read in one go, and no file has many windows.
        which = np.flatnonzero((entries >= begin - shift) & (entries < begin - shift + _WINDOW))
        at = entries[which] + np.int64(shift - begin)
        whole = (at % 4 == 0) & (at <= len(content) - _ENTRY_SIZE)
        which, at = which[whole], at[whole]
        word = at // 4
        length = words[word + 3]
        sound = at + words[word + 2] + (begin + 8 - shift) == starts[which]
        sound &= (words[word + 1] != 0) & (length > 0)
        lengths[which[sound]] = length[sound]
        if len(content) < _WINDOW:
            break
    return lengths


def _inside(code: tuple[Segment, ...], base: int, starts: Numbers, lengths: Numbers) -> tuple[U64, U64]:
    """The functions that start in loaded code, cut off at the end of the code, of the function, or at the next
    function."""
    limit = np.zeros(len(starts), np.int64)
    for segment in code:
        if segment.vaddr + segment.size > _FAR:
            continue
        first = segment.vaddr - base
        limit[(starts >= first) & (starts < first + segment.size)] = first + segment.size
    limit[:-1] = np.minimum(limit[:-1], starts[1:])
    ends = np.minimum(limit, starts + lengths.astype(np.int64))
    wanted = (lengths > 0) & (ends > starts)
    return (starts[wanted] + np.int64(base)).astype(np.uint64), (ends[wanted] + base).astype(np.uint64)

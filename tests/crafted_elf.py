"""ELF files that were made to cost their reader time or memory, each a program that still runs.

The kernel starts a program by its segments alone, so its sections can say anything.
"""

import lzma
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

PROGBITS, SYMTAB, STRTAB, RELA, NOTE, DYNSYM = 1, 2, 3, 4, 7, 11
CODE = 6  # SHF_ALLOC | SHF_EXECINSTR
_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
GLOBAL_FUNCTION = 0x12


@dataclass
class Section:
    """A section header to be; `size` may be other than that of the content."""

    name: str
    kind: int = PROGBITS
    content: bytes = b""
    size: int | None = None
    flags: int = 0
    address: int = 0
    link: int = 0
    offset: int | None = field(default=None)


def with_sections(program: bytes, sections: list[Section], *, count: int | None = None) -> bytes:
    """A program with these sections in place of its own, after an empty one. `count` is what the header says."""
    out = bytearray(program)
    names = b"\0"
    headers = [_HEADER.pack(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
    for section in [*sections, Section(".shstrtab", STRTAB)]:
        name = len(names)
        names += section.name.encode() + b"\0"
        content = names if section.name == ".shstrtab" else section.content
        out += b"\0" * (-len(out) % 16)
        offset = len(out) if section.offset is None else section.offset
        if section.offset is None:
            out += content
        size = len(content) if section.size is None else section.size
        headers.append(
            _HEADER.pack(name, section.kind, section.flags, section.address, offset, size, section.link, 0, 8, 24)
        )
    out += b"\0" * (-len(out) % 16)
    struct.pack_into("<Q", out, 40, len(out))
    struct.pack_into("<HHH", out, 58, _HEADER.size, len(headers) if count is None else count, len(headers) - 1)
    out += b"".join(headers)
    return bytes(out)


def symbols(*entries: tuple[int, int, int]) -> bytes:
    """Global functions in the first section: where the name is, address, size."""
    return _SYMBOL.pack(0, 0, 0, 0, 0, 0) + b"".join(
        _SYMBOL.pack(name, GLOBAL_FUNCTION, 0, 1, address, size) for name, address, size in entries
    )


def _text() -> Section:
    return Section(".text", PROGBITS, b"\x90" * 64, flags=CODE, address=0x1000)


def many_note_headers(program: bytes) -> bytes:
    """60,000 sections of notes, all on one MiB of the shortest notes: five thousand million notes."""
    notes = Section(".note", NOTE, b"\0" * (1 << 20))
    at = len(program) + -len(program) % 16
    return with_sections(program, [notes, *[Section("", NOTE, offset=at, size=1 << 20)] * 60_000])


def many_notes(program: bytes) -> bytes:
    """As many sections of notes as are taken, on one MiB."""
    notes = Section(".note", NOTE, b"\0" * (1 << 20))
    at = len(program) + -len(program) % 16
    return with_sections(program, [notes, *[Section("", NOTE, offset=at, size=1 << 20)] * 4000])


def endless_sections(program: bytes) -> bytes:
    """The count of sections is in the first one's size: 2**40."""
    made = bytearray(with_sections(program, [_text()], count=0))
    at = struct.unpack_from("<Q", made, 40)[0]
    struct.pack_into("<Q", made, at + 32, 1 << 40)
    return bytes(made)


def endless_symtab(program: bytes) -> bytes:
    """A symbol table of 4 TiB of zeros (the file is to be made as long)."""
    return with_sections(
        program, [_text(), Section(".symtab", SYMTAB, size=1 << 42, link=3), Section(".strtab", STRTAB)]
    )


def _packed() -> bytes:
    plain = with_sections(b"\x7fELF\x02\x01\x01" + bytes(57), [_text()])
    return lzma.compress(plain)


def _with_strings(program: bytes, size: int) -> bytes:
    return with_sections(
        program,
        [
            _text(),
            Section(".dynsym", DYNSYM, symbols((1, 0x1000, 16)), link=3),
            Section(".dynstr", STRTAB, size=size),
            Section(".gnu_debugdata", PROGBITS, _packed()),
        ],
    )


def huge_strings(program: bytes) -> bytes:
    """Names of 8 GiB, next to packed symbols, for which all names are kept."""
    return _with_strings(program, 1 << 33)


def endless_strings(program: bytes) -> bytes:
    """Names of 2**63 - 1 bytes."""
    return _with_strings(program, 2**63 - 1)


def xz_bomb(program: bytes) -> bytes:
    """Packed symbols that unpack to half a GiB."""
    packer = lzma.LZMACompressor(preset=0)
    zeros = bytes(1 << 20)
    packed = b"".join(packer.compress(zeros) for _ in range(512)) + packer.flush()
    return with_sections(program, [_text(), Section(".gnu_debugdata", PROGBITS, packed)])


def many_go_tables(program: bytes) -> bytes:
    """Data in which a table of Go functions may start every eight bytes."""
    table = struct.pack("<IHBB", 0xFFFFFFF1, 0, 1, 8)
    data = Section(".data.rel.ro", PROGBITS, table * (2 << 20))
    return with_sections(program, [_text(), data, Section(".go.buildinfo", PROGBITS, b"go")])


def many_relocations(program: bytes) -> bytes:
    """4,000 sections of relocations on one of 16 MiB of zeros, none of which completes the pointer looked for."""
    table = struct.pack("<IHBB8Q", 0xFFFFFFF1, 0, 1, 8, 1, 1, 0, 0, 8, 8, 8, 72) + bytes(64)
    at = len(program) + -len(program) % 16
    relocations = Section(".rela", RELA, bytes(16 << 20))
    return with_sections(
        program,
        [
            relocations,
            _text(),
            Section(".gopclntab", PROGBITS, table),
            *[Section("", RELA, offset=at, size=16 << 20)] * 4000,
        ],
    )


# By name, with the length that the file is to have where that is more than its content.
KINDS: dict[str, tuple[Callable[[bytes], bytes], int]] = {
    "many_note_headers": (many_note_headers, 0),
    "many_notes": (many_notes, 0),
    "endless_sections": (endless_sections, 0),
    "endless_symtab": (endless_symtab, 1 << 42),
    "huge_strings": (huge_strings, 1 << 34),
    "endless_strings": (endless_strings, 0),
    "xz_bomb": (xz_bomb, 0),
    "many_go_tables": (many_go_tables, 0),
    "many_relocations": (many_relocations, 0),
}


def write(kind: str, program: Path, path: Path) -> Path:
    """Write a crafted copy of a program; what it has too much of is sparse."""
    craft, length = KINDS[kind]
    content = craft(program.read_bytes())
    with path.open("wb") as file:
        file.write(content)
        file.truncate(max(length, len(content)))
    path.chmod(0o755)
    return path

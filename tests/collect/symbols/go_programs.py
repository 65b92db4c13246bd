"""Go programs made by hand: an ELF file with nothing in it but a table of functions, in any form it had."""

import struct
from dataclasses import dataclass, field

GO_1_16, GO_1_18, GO_1_20 = 0xFFFFFFFA, 0xFFFFFFF0, 0xFFFFFFF1
X86, I386, ARM64 = 62, 3, 183
FUNCTIONS = {"internal/cpu.Initialize": 96, "runtime.goexit.abi0": 16, "main.(*Mill[...]).grind": 480, "main.main": 64}
CODE_AT, CODE_OFFSET = 0x401000, 0x1000
_MODULE_POINTERS = 40
_TEXT_IN_MODULE = 22


def function_table(
    functions: dict[str, int],
    *,
    magic: int = GO_1_20,
    pointer: int = 8,
    quantum: int = 1,
    text: int = CODE_AT,
    reported: int | None = None,
) -> bytes:
    """A table as the linker writes it. `reported` is what the header says of where code starts, unless that is true."""
    word = "Q" if pointer == 8 else "I"
    entry = word if magic == GO_1_16 else "I"
    base = text if magic == GO_1_16 else 0
    names, name_at = bytearray(1), {}
    for name in functions:
        name_at[name] = len(names)
        names += name.encode() + b"\0"
    pairs, records, start = bytearray(), bytearray(), base
    list_size = struct.calcsize(f"<{entry}") * (2 * len(functions) + 1)
    for name, size in functions.items():
        pairs += struct.pack(f"<2{entry}", start, list_size + len(records))
        records += struct.pack(f"<{entry}i", start, name_at[name]) + b"\xaa" * 36
        start += size
    pairs += struct.pack(f"<{entry}", start)
    header_size = 8 + 8 * pointer
    parts = [len(functions), 3]
    if magic != GO_1_16:
        parts.append(text if reported is None else reported)
    after_names = header_size + len(names)
    parts += [header_size, after_names, after_names, after_names, after_names]
    header = struct.pack("<IHBB", magic, 0, quantum, pointer) + struct.pack(f"<{len(parts)}{word}", *parts)
    return bytes(header.ljust(header_size, b"\0") + names + pairs + records)


def module_data(text: int, pointer: int = 8) -> bytes:
    """The runtime's description of a module, with nothing in it but where its code starts."""
    pointers = [0] * _MODULE_POINTERS
    pointers[_TEXT_IN_MODULE] = text
    return struct.pack(f"<{_MODULE_POINTERS}{'Q' if pointer == 8 else 'I'}", *pointers)


def relocation(address: int, value: int) -> bytes:
    return struct.pack("<QIIq", address, 8, 0, value)


def module_text_address(module: int) -> int:
    return module + _TEXT_IN_MODULE * 8


@dataclass
class Elf:
    """A file of sections. Code comes first, at CODE_AT; the others follow, each at CODE_AT plus its distance."""

    code_size: int
    machine: int = X86
    wide: bool = True
    sections: list[tuple[bytes, int, bytes]] = field(default_factory=list)

    def add(self, name: str, content: bytes, kind: int = 1) -> int:
        """Add a section; returns its address."""
        offset = self._end()
        self.sections.append((name.encode(), kind, content))
        return CODE_AT - CODE_OFFSET + offset

    def _end(self) -> int:
        return CODE_OFFSET + self._padded(self.code_size) + sum(self._padded(len(c)) for _, _, c in self.sections)

    @staticmethod
    def _padded(size: int) -> int:
        return -(-size // 64) * 64

    def content(self) -> bytes:
        word = "Q" if self.wide else "I"
        code = (b".text", 1, b"\x90" * self.code_size)
        names = b"\0.text\0.shstrtab\0" + b"".join(name + b"\0" for name, _, _ in self.sections)
        body, headers = b"", [struct.pack("<II4" + word + "II2" + word, *[0] * 10)]
        for name, kind, content in (code, *self.sections, (b".shstrtab", 3, names)):
            offset = CODE_OFFSET + len(body)
            flags, address = (6 if name == b".text" else 2), CODE_AT - CODE_OFFSET + offset
            at = names.index(b"\0" + name + b"\0") + 1
            headers.append(
                struct.pack("<II4" + word + "II2" + word, at, kind, flags, address, offset, len(content), 0, 0, 32, 0)
            )
            body += content.ljust(self._padded(len(content)), b"\0")
        size = self.code_size
        segment = (
            struct.pack("<II6Q", 1, 5, CODE_OFFSET, CODE_AT, CODE_AT, size, size, 4096)
            if self.wide
            else struct.pack("<8I", 1, CODE_OFFSET, CODE_AT, CODE_AT, size, size, 5, 4096)
        )
        header_size = 64 if self.wide else 52
        ident = b"\x7fELF" + bytes([2 if self.wide else 1, 1, 1]) + bytes(9)
        header = ident + struct.pack(
            f"<HHI3{word}I6H", 2, self.machine, 1, CODE_AT, header_size, CODE_OFFSET + len(body), 0, header_size,
            len(segment), 1, len(headers[0]), len(headers), len(headers) - 1,
        )  # fmt: skip
        return (header + segment).ljust(CODE_OFFSET, b"\0") + body + b"".join(headers)

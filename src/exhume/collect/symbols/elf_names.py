"""Functions named by an ELF symbol table, and how their names are found in its string table."""

from collections.abc import Iterator

from exhume.collect.symbols.elf import StringTable
from exhume.collect.symbols.locate import OpenFile
from exhume.collect.symbols.table import FunctionTable, Spans


class ElfNames:
    """The functions of a symbol table. Its strings are kept, or read from the file when a function is hit."""

    __slots__ = ("_strings", "_strings_at", "_table", "spans")

    def __init__(self, table: FunctionTable, strings: bytes | None, at: StringTable) -> None:
        self._table = table
        self._strings = strings
        self._strings_at = at
        self.spans: Spans = table.spans

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + len(self._strings or b"")

    @property
    def needs_file(self) -> bool:
        return self._strings is None

    def name(self, index: int, file: OpenFile | None) -> bytes:
        """The name of a function, chosen among its aliases as perf does."""
        return min(self._names(index, file), key=_preference)

    def _names(self, index: int, file: OpenFile | None) -> Iterator[bytes]:
        for alias in self._table.aliases(index):
            at = int(self._table.names[alias])
            if self._strings is not None:
                end = self._strings.find(b"\0", at)
                yield self._strings[at : end if end >= 0 else None]
            elif file is None or at >= self._strings_at.size:
                yield b""
            else:
                yield file.string(self._strings_at.offset + at)


def _preference(name: bytes) -> tuple[bool, int, int, bytes]:
    """Aliases: the one with the fewest leading underscores, then the longest."""
    return not name, len(name) - len(name.lstrip(b"_")), -len(name), name

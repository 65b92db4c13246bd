"""Find and open the files to import: regular files, directories, standard input; compressed or not."""

import gzip
import hashlib
import io
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from exhume.interop.importers.form import Unreadable
from exhume.model.errors import os_reason

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
HEAD_BYTES = 64 << 10
_FIRST_PART = "data"
_CHUNK = 1 << 20
# Text of stacks compresses to a thirtieth; a file that unpacks to more than this many times its size is a decompression
# bomb. Small files may consist of one repeated line.
_MOST_RATIO, _FREE_BYTES = 300, 16 << 20
# No format has longer lines.
MAX_LINE = 1 << 20


class InputFile:
    """A regular file, or the part of one given by `span`. Raises Unreadable if it can't be opened."""

    def __init__(self, path: Path, name: str | None = None, span: tuple[int, int] | None = None) -> None:
        self.path = path
        self.name = name or str(path)
        self.span = span
        try:
            status = path.stat()
        except OSError as error:
            raise Unreadable(os_reason(error)) from error
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("not a regular file")
        self.size = status.st_size
        self.mtime_ns = status.st_mtime_ns
        self.uid = status.st_uid
        self.packing = _packing(self._begin(4))
        self.head = self._begin(HEAD_BYTES) if not self.packing else self._unpacked_head()
        #: The other files of a directory of perf record --threads, for its first file.
        self.parts = [InputFile(part) for part in _parts_of(path)] if path.name == _FIRST_PART else []

    @property
    def whole_size(self) -> int:
        """The size of the file and its parts in bytes."""
        return self.size + sum(part.size for part in self.parts)

    def open(self) -> IO[bytes]:
        """Open the file as it is."""
        try:
            return self.path.open("rb")
        except OSError as error:
            raise Unreadable(os_reason(error)) from error

    def open_unpacked(self) -> IO[bytes]:
        """Open the file, unpacked if it is compressed. Reading raises Unreadable for damaged files."""
        if self.span is not None:
            return io.BufferedReader(_Span(self.open(), *self.span), _CHUNK)
        if not self.packing:
            return self.open()
        return io.BufferedReader(_Unpacked(self.open(), self.packing, self.size), _CHUNK)

    def read_all(self, most: int) -> bytes:
        """Read the whole file, unpacked. Raises Unreadable if it has more than `most` bytes."""
        pieces: list[bytes] = []
        size = 0
        with self.open_unpacked() as content:
            # Read in chunks: read(most) would allocate everything first, however small the file is.
            while piece := content.read(_CHUNK):
                pieces.append(piece)
                size += len(piece)
                if size > most:
                    raise Unreadable(f"more than {most >> 20} MB, which no such file has")
        return b"".join(pieces)

    def digest(self) -> str:
        """The hash of the content, by which a file is recognised."""
        found = hashlib.blake2b(digest_size=16)
        for each in (self, *self.parts):
            with each.open() as file:
                while content := file.read(_CHUNK):
                    found.update(content)
        return found.hexdigest()

    def _begin(self, size: int) -> bytes:
        with self.open() as file:
            return file.read(size)

    def _unpacked_head(self) -> bytes:
        with self.open_unpacked() as file:
            return file.read(HEAD_BYTES)


def _parts_of(first: Path) -> list[Path]:
    """The files of the other threads (tools/perf/util/data.c, perf_data__open_dir)."""
    found = [each for each in first.parent.glob(f"{_FIRST_PART}.*") if each.suffix[1:].isdecimal() and each.is_file()]
    return sorted(found, key=lambda each: int(each.suffix[1:]))


def _packing(head: bytes) -> str:
    return "gzip" if head[:2] == GZIP else "zstd" if head[:4] == ZSTD else ""


class _Unpacked(io.RawIOBase):
    """The content of a compressed file, in chunks; refuses content that grows without bounds."""

    def __init__(self, file: IO[bytes], packing: str, size: int) -> None:
        self._file = file
        self._content: Any = (
            gzip.GzipFile(fileobj=file)
            if packing == "gzip"
            else pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
        )
        self._most = max(size * _MOST_RATIO, _FREE_BYTES)
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]
        try:
            # Not read(): pyarrow's stream (26.0) leaks the bytes it allocated when the content is damaged.
            size = int(self._content.readinto(buffer))
        except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
            raise Unreadable("the compressed content is cut off or damaged", self._read) from error
        self._read += size
        if self._read > self._most:
            raise Unreadable(f"unpacks to more than {self._most >> 20} MB, which no such file does", self._read)
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


class _Span(io.RawIOBase):
    """The bytes of a file between two offsets."""

    def __init__(self, file: IO[bytes], begin: int, end: int) -> None:
        self._file = file
        self._left = end - begin
        file.seek(begin)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview[int]") -> int:  # type: ignore[override]
        content = self._file.read(min(len(buffer), self._left))
        self._left -= len(content)
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._file.close()
        super().close()


def chunks(file: IO[bytes] | io.RawIOBase, size: int = 8 << 20) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines of a text in large chunks, each with its offset. A line beyond MAX_LINE raises Unreadable."""
    rest = b""
    offset = 0
    while True:
        content = file.read(size)
        if not content:
            break
        whole = rest + content
        cut = whole.rfind(b"\n") + 1
        rest = whole[cut:]
        if len(rest) > MAX_LINE:
            raise Unreadable(f"a line longer than {MAX_LINE >> 20} MB", offset + cut)
        if cut:
            yield offset, whole[:cut]
            offset += cut
    if rest:
        yield offset, rest + b"\n"


def expand(paths: list[str], spooled_stdin: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files that the arguments name: those in a directory sorted by name; `-` is standard input, which is
    written to a file first."""
    for text in paths:
        if text == "-":
            yield "-", spooled_stdin
            continue
        path = Path(text)
        if path.is_dir():
            first = path / _FIRST_PART
            if first.is_file() and first.with_suffix(".0").is_file():
                # A directory of perf record --threads is one recording.
                yield text, first
                continue
            inside = sorted(each for each in path.iterdir() if not each.name.startswith("."))
            yield from ((str(each), each) for each in inside if not each.is_dir())
        else:
            yield text, path


def spool_stdin(target: Path) -> None:
    """Write standard input to a file: formats are recognised by their beginning, and some files are read twice."""
    with target.open("wb") as file, os.fdopen(os.dup(0), "rb") as source:
        while content := source.read(_CHUNK):
            file.write(content)

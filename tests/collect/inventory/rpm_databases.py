"""Databases of rpm, built byte by byte, in its three containers."""

import sqlite3
import struct
from collections.abc import Sequence
from pathlib import Path


def header(name: str, version: str = "1.0", release: str = "1.el9", epoch: int | None = None) -> bytes:
    """A package's header: an index of tags, and their values."""
    entries, data = [], b""
    values: list[tuple[int, int, bytes]] = [
        (1000, 6, name.encode() + b"\0"),
        (1001, 6, version.encode() + b"\0"),
        (1002, 6, release.encode() + b"\0"),
        (1004, 9, b"a summary\0"),
    ]
    if epoch is not None:
        values.append((1003, 4, struct.pack(">I", epoch)))
    for tag, kind, value in values:
        data += b"\0" * (-len(data) % 4) if kind == 4 else b""
        entries.append(struct.pack(">4I", tag, kind, len(data), 1))
        data += value
    return struct.pack(">2I", len(entries), len(data)) + b"".join(entries) + data


def write_sqlite(path: Path, headers: Sequence[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE Packages (hnum INTEGER PRIMARY KEY AUTOINCREMENT, blob BLOB NOT NULL)")
    connection.executemany("INSERT INTO Packages (blob) VALUES (?)", [(each,) for each in headers])
    connection.commit()
    connection.close()


def ndb(headers: Sequence[bytes]) -> bytes:
    slots, blobs, block = [], b"", 4096 // 16
    for number, each in enumerate(headers, 1):
        slots.append(struct.pack("<4s3I", b"Slot", number, block, (len(each) + 47) // 16))
        blob = struct.pack("<4s3I", b"BlbS", number, 1, len(each)) + each
        blob += b"\0" * (-len(blob) % 16)
        blobs += blob
        block += len(blob) // 16
    first = struct.pack("<4s4I", b"RpmP", 0, 1, 1, len(headers) + 1).ljust(32, b"\0") + b"".join(slots)
    return first.ljust(4096, b"\0") + blobs


def berkeley(headers: Sequence[bytes], order: str = "<", size: int = 512) -> bytes:
    """A table with one page of entries, and each record on linked pages of its own."""
    pages = [struct.pack(f"{order}8x4xI4xI", 0x061561, size).ljust(25, b"\0") + b"\x08"]
    entries: list[bytes] = []
    overflow: list[bytes] = []
    room = size - 26
    for each in headers:
        first = 2 + len(overflow)
        parts = [each[at : at + room] for at in range(0, len(each), room)]
        for place, part in enumerate(parts):
            following = 2 + len(overflow) + 1 if place + 1 < len(parts) else 0
            head = struct.pack(f"{order}8x3I2H2B", 0, 0, following, 1, len(part), 0, 7)
            overflow.append((head + part).ljust(size, b"\0"))
        entries += [b"\x01key0", struct.pack(f"{order}B3x2I", 3, first, len(each))]
    offsets, body, end = [], b"", size
    for entry in entries:
        end -= len(entry)
        offsets.append(end)
        body = entry + body
    page = struct.pack(f"{order}8x3I2H2B", 1, 0, 0, len(entries), end, 0, 13)
    page += struct.pack(f"{order}{len(offsets)}H", *offsets)
    pages.append(page.ljust(end, b"\0") + body)
    return b"".join(each.ljust(size, b"\0") for each in (*pages, *overflow))

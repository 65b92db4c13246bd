"""Installed packages, read from the database files of dpkg, rpm and apk: no package manager is run.

rpm keeps one record (a header in its own format) per package, in one of three containers: SQLite (rpm 4.16 and later),
Berkeley DB hash tables (earlier; read by rpm's own lib/backend/bdb_ro.cc) and ndb (lib/backend/ndb/rpmpkg.c).
Everything in them is untrusted: offsets are checked, and work is bounded.
"""

import re
import sqlite3
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from exhume.collect.inventory.files import NodeFiles, Unreadable, clean
from exhume.model.inventory import Packages, Reason

MOST_PACKAGES = 20_000
_DPKG, _DPKG_PARTS, _APK = "/var/lib/dpkg/status", "/var/lib/dpkg/status.d", "/lib/apk/db/installed"
_RPM = ("/var/lib/rpm", "/usr/lib/sysimage/rpm")
# 3,000 packages take 5 MB in dpkg's database and 150 MB in rpm's.
_MOST_STATUS, _MOST_RPM = 64 << 20, 512 << 20
_MOST_PARTS = 5000
_DPKG_FIELD = re.compile(rb"^(Package|Status|Version): (.*)$", re.MULTILINE)
# Tags and types of rpm headers (include/rpm/rpmtag.h).
_NAME, _VERSION, _RELEASE, _EPOCH = 1000, 1001, 1002, 1003
_INT32, _STRING = 4, 6
_KEYS = "gpg-pubkey"
_MOST_ENTRIES = 1 << 16
_ENTRY = struct.Struct(">4I")


def read_packages(files: NodeFiles) -> Packages:
    """The packages in the first database that exists. Raises Unreadable when there is none, or it may not be read."""
    problem: Unreadable | None = None
    for read in (_dpkg, _rpm, _apk):
        try:
            return read(files)
        except Unreadable as error:
            if problem is None or error.reason is not Reason.ABSENT:
                problem = error
    if problem is not None and problem.reason is not Reason.ABSENT:
        raise problem
    raise Unreadable(Reason.ABSENT, "there is no database of dpkg, rpm or apk")


def _packages(files: NodeFiles, manager: str, found: Iterator[tuple[str, str]]) -> Packages:
    versions: dict[str, set[str]] = defaultdict(set)
    for name, version in found:
        versions[name].add(version)
    return Packages(
        manager, files.bounded({name: ",".join(sorted(each)) for name, each in versions.items()}, MOST_PACKAGES)
    )


def _dpkg(files: NodeFiles) -> Packages:
    try:
        content = files.read(_DPKG, _MOST_STATUS)
    except Unreadable:
        # Images without a package manager have one file per package.
        content = b"\n\n".join(_parts(files))
        if not content:
            raise
    return _packages(files, "dpkg", _dpkg_entries(content))


def _parts(files: NodeFiles) -> Iterator[bytes]:
    try:
        names = sorted(path.name for path in files.root.file(_DPKG_PARTS).iterdir())[:_MOST_PARTS]
    except OSError:
        return
    for name in names:
        if not name.endswith(".md5sums"):
            yield files.optional(f"{_DPKG_PARTS}/{name}", 1 << 16).encode()


def _dpkg_entries(content: bytes) -> Iterator[tuple[str, str]]:
    for entry in content.split(b"\n\n"):
        known = dict(_DPKG_FIELD.findall(entry))
        # Removed packages stay in the list if their configuration was kept.
        if b"Package" in known and known.get(b"Status", b"install ok installed").split()[2:] == [b"installed"]:
            yield _text(known[b"Package"]), _text(known.get(b"Version", b""))


def _apk(files: NodeFiles) -> Packages:
    def entries() -> Iterator[tuple[str, str]]:
        for entry in files.text(_APK, _MOST_STATUS).split("\n\n"):
            known = {line[0]: line[2:] for line in entry.split("\n") if line[1:2] == ":"}
            if "P" in known:
                yield clean(known["P"]), clean(known.get("V", ""))

    return _packages(files, "apk", entries())


def _rpm(files: NodeFiles) -> Packages:
    problem = Unreadable(Reason.ABSENT, "there is no database of rpm")
    for directory in _RPM:
        for name, records in (("rpmdb.sqlite", _sqlite), ("Packages.db", _ndb), ("Packages", _berkeley)):
            try:
                # Check that it exists and is readable: the SQLite errors below do not tell.
                files.read(f"{directory}/{name}", 1)
            except Unreadable as error:
                problem = error if error.reason is not Reason.ABSENT else problem
                continue
            path = files.root.file(f"{directory}/{name}")
            try:
                return _packages(files, "rpm", _rpm_entries(records(path)))
            except (sqlite3.Error, struct.error, ValueError, OSError) as error:
                raise Unreadable(Reason.FAILED, f"{directory}/{name} can't be read: {error}") from None
    raise problem


def _rpm_entries(records: Iterator[bytes]) -> Iterator[tuple[str, str]]:
    for record in records:
        known = header_values(record)
        name, version, release = (str(known.get(tag, "")) for tag in (_NAME, _VERSION, _RELEASE))
        # Vendor keys are stored as packages.
        if name and name != _KEYS:
            epoch = f"{known[_EPOCH]}:" if known.get(_EPOCH) else ""
            yield clean(name), clean(f"{epoch}{version}-{release}")


def header_values(record: bytes) -> dict[int, str | int]:
    """The required values of a header. Raises ValueError for an invalid header."""
    if len(record) < 8:
        raise ValueError("a header is cut off")
    entries, length = struct.unpack_from(">2I", record)
    begin = 8 + entries * _ENTRY.size
    if entries > _MOST_ENTRIES or begin + length > len(record):
        raise ValueError("a header is larger than its record")
    found: dict[int, str | int] = {}
    for tag, kind, offset, _ in _ENTRY.iter_unpack(record[8:begin]):
        if tag not in (_NAME, _VERSION, _RELEASE, _EPOCH) or offset >= length:
            continue
        at = begin + offset
        if kind == _STRING:
            found[tag] = _text(record[at : record.find(b"\0", at, begin + length)])
        elif kind == _INT32 and offset + 4 <= length:
            found[tag] = int.from_bytes(record[at : at + 4], "big")
    return found


def _sqlite(path: Path) -> Iterator[bytes]:
    # Immutable: nothing is locked or written, even if the directory is writable.
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)
    try:
        for (blob,) in connection.execute("SELECT blob FROM Packages LIMIT ?", (2 * MOST_PACKAGES,)):
            if isinstance(blob, bytes):
                yield blob
    finally:
        connection.close()


def _ndb(path: Path) -> Iterator[bytes]:
    """Pages of slots, each with the position of a record in blocks of 16 bytes (lib/backend/ndb/rpmpkg.c)."""
    content = _whole(path)
    if content[:4] != b"RpmP":
        raise ValueError("it is not a database of ndb")
    (pages,) = struct.unpack_from("<I", content, 12)
    # The header takes the first two slots.
    for at in range(32, min(pages * 4096, len(content) - 15, 32 + 32 * MOST_PACKAGES), 16):
        mark, number, block, _ = struct.unpack_from("<4s3I", content, at)
        if mark != b"Slot" or not number or not block:
            continue
        begin = block * 16
        mark, stored, _, length = struct.unpack_from("<4s3I", content, begin)
        if mark != b"BlbS" or stored != number or begin + 16 + length > len(content):
            raise ValueError("a slot leads to no record")
        yield content[begin + 16 : begin + 16 + length]


# Pages of a hash table (src/dbinc/db_page.h): types, the common header, and entries stored on their own pages.
_HASH_META, _HASH_UNSORTED, _OVERFLOW, _HASH = 8, 2, 7, 13
_HASH_MAGIC = 0x061561
_PAGE_HEADER = 26
_OFF_PAGE = 3


def _berkeley(path: Path) -> Iterator[bytes]:
    return _HashTable(_whole(path)).records()


class _HashTable:
    """Pages of one size: pages of the table hold pairs of keys and values, and a value larger than a page is on linked
    pages of its own."""

    def __init__(self, content: bytes) -> None:
        order = next((sign for sign in "<>" if content[12:16] == struct.pack(f"{sign}I", _HASH_MAGIC)), None)
        if order is None or content[25] != _HASH_META:
            raise ValueError("it is not a hash table of Berkeley DB")
        self._content, self._order = content, order
        (self._size,) = self._unpack("I", 20)
        if not 512 <= self._size <= 65536 or self._size & (self._size - 1):
            raise ValueError("its pages have no size")
        # No page belongs to two records, so all records together are bounded by the file.
        self._left = len(content) // self._size

    def records(self) -> Iterator[bytes]:
        size = self._size
        for begin in range(size, len(self._content) - size + 1, size):
            if self._content[begin + 25] not in (_HASH, _HASH_UNSORTED):
                continue
            (entries,) = self._unpack("H", begin + 20)
            if _PAGE_HEADER + 2 * entries > size:
                raise ValueError("a page has more entries than room")
            for offset in self._unpack(f"{entries}H", begin + _PAGE_HEADER)[1::2]:
                # An rpm record is larger than what fits on the page.
                if offset + 12 <= size and self._content[begin + offset] == _OFF_PAGE:
                    yield self._record(*self._unpack("2I", begin + offset + 4))

    def _record(self, page: int, length: int) -> bytes:
        parts, got = [], 0
        while page and got < length:
            self._left -= 1
            begin = page * self._size
            if self._left < 0 or begin + self._size > len(self._content) or self._content[begin + 25] != _OVERFLOW:
                raise ValueError("a record is not whole")
            (page,), (used,) = self._unpack("I", begin + 16), self._unpack("H", begin + 22)
            parts.append(self._content[begin + _PAGE_HEADER : begin + min(self._size, _PAGE_HEADER + used)])
            got += len(parts[-1])
        return b"".join(parts)[:length]

    def _unpack(self, form: str, at: int) -> tuple[int, ...]:
        return struct.unpack_from(f"{self._order}{form}", self._content, at)


def _whole(path: Path) -> bytes:
    if path.stat().st_size > _MOST_RPM:
        raise ValueError(f"it has more than {_MOST_RPM >> 20} MiB")
    content = path.read_bytes()
    if len(content) < 512:
        raise ValueError("it is cut off")
    return content


def _text(value: bytes) -> str:
    return clean(value.decode("utf-8", "replace").strip())

"""Incident bundles: minutes of a recording in one zip file, with a report for human readers (`exhume export bundle`).

A bundle arrives attached to a ticket, so it is untrusted. No path in it is used: only entries named like the table of a
segment are unpacked, into a private directory and under a name that this module generates. Sizes are bounded twice: by
what the archive declares, before anything is read, and by what is actually read. The directory is removed when the
process that opened it exits, however it exits.
"""

import os
import shutil
import stat
import struct
import subprocess
import tempfile
import zipfile
import zlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from exhume.model.errors import RecordingError, os_reason
from exhume.model.isolation import isolated_environment, isolated_script
from exhume.model.tables import TABLES
from exhume.store.format.names import OVERVIEW, PARQUET_SUFFIX, SegmentName

SUFFIX = ".exhume.zip"
# Where the segments are in the archive.
RECORDING = "recording"
# Limits on the unpacked bytes and entries: four times what ten minutes of a node with 1,000 cores need.
MOST_UNPACKED = 2 << 30
MOST_ENTRIES = 20_000
# Limit on the archive's central directory, which is held in memory as a whole: some 100 bytes per entry.
_MOST_CONTENTS = 4 << 20
_PIECE = 1 << 20
# End of central directory record of an archive without a comment: signature, disk numbers, entry counts, size and
# offset of the central directory (APPNOTE.TXT 4.3.16); and the signature of the Zip64 locator that precedes it in
# archives beyond 4 GiB (4.3.15).
_END = struct.Struct("<4s4H2LH")
_END_MARK, _LARGE_MARK, _LARGE_BYTES = b"PK\x05\x06", b"PK\x06\x07", 20
_ENCRYPTED = 0x1
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Exceptions raised when a damaged archive is read.
_DAMAGES = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, struct.error, ValueError)
_CLEANER = Path(__file__).with_name("cleaner.py")


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The recording of a bundle, unpacked into a private directory."""

    directory: Path
    _top: Path
    _cleaner: "subprocess.Popen[bytes]"

    def close(self) -> None:
        """Remove the directory."""
        if self._cleaner.stdin is not None:
            self._cleaner.stdin.close()
        self._cleaner.wait()
        shutil.rmtree(self._top, ignore_errors=True)


def unpack(path: Path) -> Unpacked:
    """Unpack the recording of a bundle. Raises RecordingError if the file is not a bundle, is damaged or is too
    large."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _refused(path, "it is not a regular file")
            _check_end(path, file.fileno())
            with zipfile.ZipFile(file) as archive:
                return _unpack(path, archive, _chosen(path, archive))
    except _DAMAGES as error:
        raise _refused(path, f"it is damaged: {error}") from None
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {os_reason(error)}") from error


def check_bundle(path: Path) -> None:
    """Check a bundle without unpacking it, for a caller that only stores it: that it is within the limits, and that no
    entry names a path outside of the directory that a careless program would unpack it to. Raises RecordingError."""
    try:
        with path.open("rb") as file:
            _check_end(path, file.fileno())
            with zipfile.ZipFile(file) as archive:
                _chosen(path, archive)
                for info in archive.infolist():
                    parts = PurePosixPath(info.filename.replace("\\", "/")).parts
                    if not parts or parts[0] == "/" or ".." in parts or ":" in parts[0] or "\0" in info.orig_filename:
                        raise _refused(path, f"{info.filename[:80]!r} names a place outside of it")
                    if stat.S_ISLNK(info.external_attr >> 16):
                        raise _refused(path, f"{info.filename[:80]!r} is a link")
    except _DAMAGES as error:
        raise _refused(path, f"it is damaged: {error}") from None
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {os_reason(error)}") from error


def _unpack(path: Path, archive: zipfile.ZipFile, chosen: "list[tuple[zipfile.ZipInfo, Path]]") -> Unpacked:
    top = Path(tempfile.mkdtemp(prefix="exhume-bundle-"))
    # Started before anything is in the directory, so that nothing is left behind if this process is killed.
    cleaner = subprocess.Popen(
        isolated_script(_CLEANER, top),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=isolated_environment(),
    )
    unpacked = Unpacked(top / RECORDING, top, cleaner)
    with ExitStack() as undo:
        undo.callback(unpacked.close)
        if sum(info.file_size for info, _ in chosen) > shutil.disk_usage(top).free:
            raise RecordingError(f"{path} takes more room than {top.parent} has; set TMPDIR to a larger place")
        unpacked.directory.mkdir()
        for info, target in chosen:
            _extract(archive, info, unpacked.directory / target)
        undo.pop_all()
    return unpacked


def _check_end(path: Path, fd: int) -> None:
    """Check the last bytes before the whole central directory is read: it may claim to be larger than memory."""
    size = os.fstat(fd).st_size
    end = os.pread(fd, _END.size, max(0, size - _END.size))
    if len(end) < _END.size or not end.startswith(_END_MARK):
        raise _refused(path, "it does not end like one")
    _, disk, first_disk, here, entries, contents, _, comment = _END.unpack(end)
    if disk or first_disk or here != entries or comment:
        raise _refused(path, "it does not end like one")
    large = os.pread(fd, len(_LARGE_MARK), max(0, size - _END.size - _LARGE_BYTES))
    if entries > MOST_ENTRIES or contents > _MOST_CONTENTS or large == _LARGE_MARK:
        raise _refused(path, f"it has more than {MOST_ENTRIES:,} entries, or is larger than any")


def _chosen(path: Path, archive: zipfile.ZipFile) -> list[tuple[zipfile.ZipInfo, Path]]:
    """The entries that are tables of segments, and their target paths. Other entries are for human readers."""
    found: dict[Path, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        target = _target(info.filename)
        if target is None:
            continue
        if target in found or info.flag_bits & _ENCRYPTED or info.compress_type not in _METHODS:
            raise _refused(path, f"{info.filename!r} is there twice, encrypted or packed in another way")
        found[target] = info
    if not found:
        raise _refused(path, "no recording is in it")
    total = sum(info.file_size for info in found.values())
    if total > MOST_UNPACKED:
        raise _refused(path, f"its recording takes {total / (1 << 30):.1f} GiB, more than {MOST_UNPACKED >> 30}")
    return [(info, target) for target, info in found.items()]


def _target(entry: str) -> Path | None:
    """The target path of an entry, built from the parsed parts of its name and never from the name itself."""
    parts = PurePosixPath(entry).parts
    if len(parts) != 3 or parts[0] != RECORDING or "\0" in entry:
        return None
    segment, table = SegmentName.of_entry(parts[1]), parts[2].removesuffix(PARQUET_SUFFIX)
    if segment is None or segment.length_ms is None or table not in (*TABLES, OVERVIEW):
        return None
    return Path(str(segment)) / f"{table}{PARQUET_SUFFIX}" if parts[2].endswith(PARQUET_SUFFIX) else None


def _extract(archive: zipfile.ZipFile, info: zipfile.ZipInfo, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    left = info.file_size
    with archive.open(info) as source, target.open("xb") as file:
        while piece := source.read(min(_PIECE, left + 1)):
            left -= len(piece)
            if left < 0:
                raise zipfile.BadZipFile(f"{info.filename!r} is longer than it says")
            file.write(piece)
    if left:
        raise zipfile.BadZipFile(f"{info.filename!r} is cut off")


def _refused(path: Path, why: str) -> RecordingError:
    return RecordingError(f"{path} is a file, but not a bundle of exhume export: {why}")

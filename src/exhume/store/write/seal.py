"""Seal a live segment: Arrow streams become Parquet files in a staging directory, which is renamed into place.

Sealing can be repeated after any interruption: a half-written sealed segment is discarded, and a live segment whose
sealed counterpart exists already is only removed.
"""

import ctypes
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow._compute import call_function

from exhume.model.clock import MILLIS
from exhume.model.facts import RecordingFacts
from exhume.model.ownership import PRIVATE_DIRECTORY, Access, trusted_users
from exhume.model.tables import TABLES
from exhume.store.format.files import check_regular, read_regular
from exhume.store.format.layout import ROW_GROUP_ROWS, arrange, layout_of
from exhume.store.format.names import (
    DAMAGED_SUFFIX,
    DROPPING_SUFFIX,
    LIVE_DIRECTORY,
    LIVE_SUFFIX,
    PARQUET_SUFFIX,
    SEALING_SUFFIX,
    SegmentName,
)
from exhume.store.format.schema import DIMENSIONS, UnreadableFile, facts_in, time_column, with_facts
from exhume.store.read.core_grid import OverviewRows
from exhume.store.read.reader import LiveStream

# From linux/fs.h: up to the end of the file.
_SYNC_FILE_RANGE_WRITE = 2
_start_writing = getattr(ctypes.CDLL(None), "sync_file_range", None)
if _start_writing is not None:
    _start_writing.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)

# Smaller live files are read into memory whole: otherwise the message of each tick costs four system calls.
_IN_MEMORY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed segment and its size on disk. `damaged` lists the tables whose rows could not all be decoded."""

    name: SegmentName
    path: Path
    size: int
    damaged: tuple[str, ...] = ()


class DamagedSegment(Exception):
    """A live segment from which nothing can be sealed."""


class SealProcessFailed(Exception):
    """A sealing process exited or failed to start for a reason that is not necessarily the segment's fault."""


@dataclass(slots=True)
class _Reach:
    """The earliest and the latest time of the rows seen so far, in monotonic milliseconds."""

    first_ms: int
    last_ms: int

    def include(self, table: str, rows: pa.Table) -> None:
        column = time_column(table)
        if column is None or table in DIMENSIONS:
            return
        scale = MILLIS if column == "time" else 1
        extent = call_function("min_max", [rows.column(column)])
        self.first_ms = min(self.first_ms, extent["min"].as_py() // scale)
        # An anchor's time is the end of its tick. Other rows begin at their time, so they need room after it.
        room = 0 if table == "anchors" else 1
        self.last_ms = max(self.last_ms, extent["max"].as_py() // scale + room)


def seal(recording: Path, live: Path, access: Access | None = None) -> Sealed | None:
    """Seal a live segment that no process writes to any more. None if it had no rows. Raises OSError (a full disk) or
    DamagedSegment, and then leaves the live segment untouched."""
    name = SegmentName.parse(live.name)
    if name is None:
        raise ValueError(f"{live} is not a segment")
    finished = next((path for path in recording.glob(f"*_{name.boot}_{name.start_ms}_*") if path.is_dir()), None)
    if finished is not None:
        discard(recording, live)
        return None
    staging = live.with_name(live.name + SEALING_SUFFIX)
    shutil.rmtree(staging, ignore_errors=True)
    access = access or Access()
    reach = _Reach(name.start_ms, name.start_ms)
    overview = OverviewRows()
    try:
        # Other users can't read anything in it before its final access mode is set.
        staging.mkdir(mode=PRIVATE_DIRECTORY)
        tables = [table for table in sorted(TABLES) if (live / (table + LIVE_SUFFIX)).exists()]
        damaged = tuple(table for table in tables if _seal_table(live, staging, table, (reach, overview)))
        if not any(staging.iterdir()):
            staging.rmdir()
            if damaged:
                raise DamagedSegment
            discard(recording, live)
            return None
        sealed = SegmentName(
            name.wall_ms, name.boot, name.start_ms, reach.last_ms - name.start_ms, name.start_ms - reach.first_ms
        )
        overview.write(staging, sealed)
        files = sorted(staging.iterdir())
        size = sum(path.stat().st_size for path in files)
        for path in (*files, staging):
            sync(path, access)
    except (OSError, pa.ArrowException):
        shutil.rmtree(staging, ignore_errors=True)
        raise
    path = recording / str(sealed)
    staging.rename(path)
    sync(recording)
    discard(recording, live)
    return Sealed(sealed, path, size, damaged)


def write_sealed(recording: Path, name: SegmentName, facts: RecordingFacts, tables: Mapping[str, pa.Table]) -> Path:
    """Write rows as a sealed segment that begins at `name`. On OSError nothing is left behind."""
    staging = recording / (str(name) + SEALING_SUFFIX)
    reach, overview = _Reach(name.start_ms, name.start_ms), OverviewRows()
    try:
        staging.mkdir(mode=PRIVATE_DIRECTORY)
        for table, rows in tables.items():
            batches = rows.cast(with_facts(table, facts, name)).to_batches()
            _write_rows(staging / (table + PARQUET_SUFFIX), table, batches, (reach, overview))
        length, before = reach.last_ms - name.start_ms, name.start_ms - reach.first_ms
        sealed = SegmentName(name.wall_ms, name.boot, name.start_ms, length, before)
        overview.write(staging, sealed)
        staging.rename(recording / str(sealed))
    except (OSError, pa.ArrowException):
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return recording / str(sealed)


def _seal_table(live: Path, staging: Path, table: str, watching: tuple[_Reach, OverviewRows]) -> bool:
    """Write one table, if it has rows, and pass them to the watchers. Returns whether some could not be decoded."""
    file, path = live / (table + LIVE_SUFFIX), staging / (table + PARQUET_SUFFIX)
    name = SegmentName.parse(live.name)
    assert name is not None
    try:
        status = file.stat()
        check_regular(status)
        small = status.st_size <= _IN_MEMORY_BYTES
        with pa.BufferReader(read_regular(file, _IN_MEMORY_BYTES)) if small else pa.OSFile(str(file)) as source:
            stream = LiveStream(source, table)
            if stream.schema is not None:
                facts_in(stream.schema.metadata, table, name)
                _write_rows(path, table, stream, watching)
            return stream.damaged
    except UnreadableFile:
        return True


def _write_rows(
    path: Path, table: str, stream: Iterable[pa.RecordBatch], watching: tuple[_Reach, OverviewRows]
) -> None:
    writer: pq.ParquetWriter | None = None
    try:
        for group in _row_groups(stream):
            rows = pa.Table.from_batches(group)
            for each in watching:
                each.include(table, rows)
            if writer is None:
                writer = pq.ParquetWriter(
                    path, rows.schema, **layout_of(table, rows.schema).writer_options(rows.schema)
                )
                writer.add_key_value_metadata(rows.schema.metadata)
            # Free the unsorted rows before the sorted ones are written.
            group.clear()
            rows = arrange(table, rows)
            writer.write_table(rows, row_group_size=max(1, rows.num_rows))
    finally:
        if writer is not None:
            writer.close()


def _row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    group: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        group.append(batch)
        rows += batch.num_rows
        if rows >= ROW_GROUP_ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group


def set_aside(live: Path) -> Path:
    """Move a live segment that can't be sealed out of the way of the recorder and of readers."""
    aside = live.with_name(live.name + DAMAGED_SUFFIX)
    shutil.rmtree(aside, ignore_errors=True)
    live.rename(aside)
    return aside


def discard(recording: Path, segment: Path) -> None:
    """Remove a segment. It is renamed away first, in one step, so that a reader finds all of it or nothing."""
    leaving = recording / LIVE_DIRECTORY / (segment.name + DROPPING_SUFFIX)
    shutil.rmtree(leaving, ignore_errors=True)
    segment.rename(leaving)
    shutil.rmtree(leaving, ignore_errors=True)


def sweep(recording: Path) -> None:
    """Remove what a killed recorder left half-written or half-removed."""
    live = recording / LIVE_DIRECTORY
    for suffix in (SEALING_SUFFIX, DROPPING_SUFFIX):
        for path in live.glob("*" + suffix):
            if SegmentName.parse(path.name.removesuffix(suffix).removesuffix(DAMAGED_SUFFIX)) is not None:
                shutil.rmtree(path, ignore_errors=True)


def leftovers(recording: Path) -> list[Path]:
    """Live segments that have not been sealed, oldest first."""
    found = [
        (name.start_ms, path)
        for path in (recording / LIVE_DIRECTORY).iterdir()
        if (name := SegmentName.of_entry(path.name)) is not None
        and path.is_dir()
        and not path.is_symlink()
        and path.lstat().st_uid in trusted_users()
    ]
    return [path for _, path in sorted(found)]


def start_writing(path: Path | str) -> None:
    """Start writing a file's data to the disk without waiting. A file system with a journal then has the sizes of all
    such files in one transaction, which the first sync commits for all of them (fs/ext4/inode.c, ext4_writepages;
    fs/ext4/fsync.c, ext4_fsync_journal)."""
    # Only a hint: where the C library or the file system lacks it, the sync does all of it.
    if _start_writing is not None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            _start_writing(fd, 0, 0, _SYNC_FILE_RANGE_WRITE)
        finally:
            os.close(fd)


def sync(path: Path | str, access: Access | None = None, *, data_only: bool = False) -> None:
    """Fsync a file or directory after applying its final access mode. With `data_only`, wait only for what is needed to
    read the data again (fdatasync)."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if access is not None:
            access.apply(fd)
        (os.fdatasync if data_only else os.fsync)(fd)
    finally:
        os.close(fd)

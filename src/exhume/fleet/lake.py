"""The lake: Parquet files in partitions by date and hour, in a directory or an object store, readable by any tool.

Files appear atomically: in a directory they are written next to the tables and renamed, in an object store each is one
upload. File names are derived from the content, so that writing the same rows again replaces the file.
"""

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from exhume.fleet.schema import BUNDLES, TABLES, LakeTable
from exhume.model.errors import ExhumeError, NoData, UsageError

STORES = ("s3://", "gs://")
# Google's client retries for 15 minutes by default.
_GCS_PATIENCE = timedelta(seconds=30)
SUFFIX = ".parquet"
BUNDLE_SUFFIX = ".exhume.zip"
# Directories with this prefix are not tables; Spark, Athena and DuckDB's globs skip them.
STAGING, HUB = "_staging", "_hub"
COMPACT, OF_HUB = "compact-", "hub-"
# Metadata key of a compacted file: the hub's files that are merged into it, so that a restarted hub does not write them
# again.
MERGED_KEY = b"exhume.merged"
HOUR_US, DAY_US = 3_600_000_000, 86_400_000_000
# Rows that arrive later than this after the end of a partition are merged by the next compaction.
SETTLE = timedelta(minutes=10)
_LEVEL, _COMPACT_LEVEL = 3, 12
# Staged files older than this were left by a killed writer.
_LEFT_S = 86_400
# How long a reader may take to list a directory that it has opened.
_LISTED_S, _EXCHANGED = 1.0, ".old"
_COMPACT_ROWS = 1 << 20
# Small files that a compaction holds at once as they were read: each column of one takes more memory than its rows do.
_FILES_AT_ONCE = 1024
_LONGEST_REASON = 300
_EXCHANGE, _AT_FDCWD = 2, -100
_PARTITION = re.compile(r"date=(\d{4}-\d\d-\d\d)(?:/hour=(\d\d))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class LakeError(ExhumeError):
    """The lake can't be read or written; the message says why. `full`: there is no space left."""

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


def node_hash(node: str) -> str:
    """A hash of a node's name for use in file names: fixed length, no characters that are special in paths."""
    return hashlib.sha256(node.encode()).hexdigest()[:16]


def bundle_path(node: str, incident: str) -> str:
    return f"{BUNDLES}/node={node_hash(node)}/{incident}{BUNDLE_SUFFIX}"


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a table: its path relative to the lake, and the end of its time range."""

    table: LakeTable
    path: str
    until: datetime


@dataclass(slots=True)
class Compaction:
    """The result of a compaction. `damaged`: files that can't be read, with the reason; they stay where they are."""

    partitions: int = 0
    files: int = 0
    rows: int = 0
    repeats: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    damaged: list[tuple[str, str]] = field(default_factory=list)


class Lake:
    """A lake at a path or URI."""

    def __init__(self, uri: str, filesystem: pa.fs.FileSystem, root: str, endpoint: str | None = None) -> None:
        self.uri, self.endpoint = uri, endpoint
        self._files, self._root = filesystem, root.rstrip("/")

    @classmethod
    def open(cls, uri: str, endpoint: str | None = None, *, make: bool = True) -> "Lake":
        """Open the lake in a directory, which is created if `make` is set, or at s3://BUCKET/PATH or gs://BUCKET/PATH;
        `endpoint` is a custom object-store endpoint. Raises UsageError, LakeError, NoData for a missing directory."""
        if not uri.startswith(STORES):
            if "://" in uri:
                raise UsageError(f"{uri} is not a lake: name a directory, s3://BUCKET/PATH or gs://BUCKET/PATH")
            directory = Path(uri).expanduser().absolute()
            with _failing(uri):
                if make:
                    directory.mkdir(parents=True, exist_ok=True)
                elif not directory.is_dir():
                    raise NoData(f"there is no lake at {uri}; nodes write one with exhume fleet push")
            return cls(uri, pa.fs.LocalFileSystem(), str(directory))
        with _failing(uri):
            return cls(uri, *_object_store(uri, endpoint), endpoint)

    @property
    def directory(self) -> Path | None:
        """The lake's directory; None in an object store."""
        return Path(self._root) if isinstance(self._files, pa.fs.LocalFileSystem) else None

    @property
    def filesystem(self) -> pa.fs.FileSystem:
        """The file system of the lake, for Parquet readers; paths are those returned by `listed`."""
        return self._files

    @property
    def subtree(self) -> pa.fs.SubTreeFileSystem:
        """The lake's root as a file system: paths begin with the name of a table."""
        return pa.fs.SubTreeFileSystem(self._root, self._files)

    def listed(self, path: str = "", *, recursive: bool = False) -> list[pa.fs.FileInfo]:
        """The entries below a path. Raises LakeError."""
        # Google's store has no directories, only object names: direct children have to be derived from all of them.
        flat = self._files.type_name == "gcs"
        with _failing(self.uri):
            selector = pa.fs.FileSelector(self._at(path), recursive=recursive or flat, allow_not_found=True)
            found: list[pa.fs.FileInfo] = self._files.get_file_info(selector)
        if recursive or not flat:
            return found
        top = f"{self._at(path)}/"
        below: dict[str, pa.fs.FileInfo] = {}
        for each in found:
            name, deeper, _ = each.path.removeprefix(top).partition("/")
            below.setdefault(name, pa.fs.FileInfo(top + name, pa.fs.FileType.Directory) if deeper else each)
        return list(below.values())

    def check(self) -> None:
        """Check that the lake can be read. Raises LakeError if it can't be reached, NoData if it does not exist."""
        with _failing(self.uri):
            found = self._files.get_file_info(self._root).type
        if found == pa.fs.FileType.NotFound:
            raise NoData(f"there is no lake at {self.uri}; nodes write one with exhume fleet push")

    def gone(self, listed: str) -> bool:
        """Whether a listed file no longer exists. Raises LakeError."""
        with _failing(self.uri):
            return bool(self._files.get_file_info(listed).type == pa.fs.FileType.NotFound)

    def write(self, table: LakeTable, rows: pa.Table, name: str) -> int:
        """Store rows as one file `name` in each of their partitions; durable on return. Returns the number of bytes.
        Raises LakeError."""
        return sum(
            self._write_file(f"{path}/{name}{SUFFIX}", table, part, _LEVEL) for path, part in _partitioned(table, rows)
        )

    def write_new(self, table: LakeTable, rows: pa.Table, name: str) -> int:
        """Like `write`, but skip partitions whose compacted file already includes it."""
        written = 0
        for path, part in _partitioned(table, rows):
            if name not in self._merged(path):
                written += self._write_file(f"{path}/{name}{SUFFIX}", table, part, _LEVEL)
        return written

    def put(self, path: str, source: Path) -> None:
        """Store a file unchanged. Raises LakeError."""
        with _failing(self.uri):
            if self.directory is None:
                with self._files.open_output_stream(self._at(path)) as target, source.open("rb") as content:
                    while piece := content.read(1 << 20):
                        target.write(piece)
                return
            staged = self._staged()
            shutil.copyfile(source, staged)
            self._place(staged, path)

    def has(self, path: str) -> bool:
        with _failing(self.uri):
            return bool(self._files.get_file_info(self._at(path)).type == pa.fs.FileType.File)

    def partitions(self, table: LakeTable) -> list[Partition]:
        """The partitions of a table, oldest first."""
        found = []
        for path in self._directories(table.name):
            found += self._directories(path) if table.hourly else [path]
        known = ((path, _PARTITION.fullmatch(path.partition("/")[2])) for path in found)
        return [Partition(table, path, _end_of(match)) for path, match in sorted(known) if match is not None]

    def files(self, path: str) -> list[tuple[str, int]]:
        """The Parquet files directly below a path, and their sizes."""
        return sorted((each.base_name, each.size) for each in self.listed(path) if each.base_name.endswith(SUFFIX))

    def read(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read one file. Raises LakeError."""
        with _failing(self.uri), self._files.open_input_file(self._at(path)) as source:
            # A dataset takes several times as long for a small file. Of an object store, ranges are fetched together.
            file = pq.ParquetFile(source, pre_buffer=self.directory is None)
            return file.read(columns, use_threads=False)

    # Compaction and retention.

    def compact(self, now: datetime, settle: timedelta = SETTLE) -> Compaction:
        """Merge the files of each partition that ended a while ago into one, sorted by node and time, without
        duplicate rows. Raises LakeError."""
        done = Compaction()
        with self._only_compaction():
            self._recover()
            for table in TABLES.values():
                for partition in self.partitions(table):
                    if partition.until + settle <= now:
                        self._compact(partition, done)
            self._remove_exchanged(wait_s=_LISTED_S)
        return done

    def prune(self, before: datetime) -> int:
        """Remove the partitions that ended before a moment, and older bundles; returns how many."""
        old = [each for table in TABLES.values() for each in self.partitions(table) if each.until <= before]
        with _failing(self.uri):
            for partition in old:
                self._remove_directory(partition.path)
            bundles = self.listed(BUNDLES, recursive=True)
            late = [each for each in bundles if each.type == pa.fs.FileType.File and each.mtime < before]
            for each in late:
                self._files.delete_file(each.path)
        return len(old) + len(late)

    def _compact(self, partition: Partition, done: Compaction) -> None:
        files = self.files(partition.path)
        if not files or (len(files) == 1 and files[0][0].startswith(COMPACT)):
            return
        rows, merged, names = self._read_united(partition, [name for name, _ in files], done)
        if rows is None or (len(names) == 1 and names[0].startswith(COMPACT)):
            return
        kept = without_repeats(partition.table, rows)
        merged |= {name.removesuffix(SUFFIX) for name in names if name.startswith(OF_HUB)}
        target = f"{COMPACT}{hashlib.sha256(' '.join(names).encode()).hexdigest()[:16]}{SUFFIX}"
        kept = kept.replace_schema_metadata({MERGED_KEY: json.dumps(sorted(merged)).encode()})
        size = self._swap(partition, names, target, kept)
        done.partitions += 1
        done.files += len(names)
        done.rows += kept.num_rows
        done.repeats += rows.num_rows - kept.num_rows
        # Only files that can't be read are left out, and there are hardly any.
        left_out = set() if len(names) == len(files) else {name for name, _ in files}.difference(names)
        done.bytes_before += sum(length for name, length in files if name not in left_out)
        done.bytes_after += size

    def _read_united(
        self, partition: Partition, names: Sequence[str], done: Compaction
    ) -> tuple[pa.Table | None, set[str], list[str]]:
        """The rows of files as one table (None if no file can be read), the hub's files that were merged into them, and
        the files that were read."""
        united: list[pa.Table] = []
        merged: set[str] = set()
        read: list[str] = []
        for begin in range(0, len(names), _FILES_AT_ONCE):
            parts = []
            for name in names[begin : begin + _FILES_AT_ONCE]:
                path = f"{partition.path}/{name}"
                try:
                    parts.append(self.read(path))
                    read.append(name)
                except LakeError as error:
                    # Unless it is the lake that can't be read.
                    self.check()
                    reason = " ".join(str(error.__cause__ or error).split())
                    done.damaged.append((path, reason[:_LONGEST_REASON]))
            merged.update(name for part in parts for name in _merged_in(part.schema.metadata))
            if parts:
                united.append(_united(partition.table, parts).combine_chunks())
        return _united(partition.table, united) if united else None, merged, read

    def _swap(self, partition: Partition, names: Sequence[str], target: str, rows: pa.Table) -> int:
        """Replace files by one. In a directory the whole partition is exchanged atomically, so that a reader lists
        either the old files or the new one; in an object store both exist for a moment."""
        path = f"{partition.path}/{target}"
        if self.directory is None:
            size = self._write_file(path, partition.table, rows, _COMPACT_LEVEL)
            with _failing(self.uri):
                for name in names:
                    self._files.delete_file(self._at(f"{partition.path}/{name}"))
            return size
        with _failing(self.uri):
            swap = self._staged()
            swap.mkdir()
            note = swap.with_suffix(".json")
            note.write_text(json.dumps({"partition": partition.path, "target": target, "names": list(names)}))
            size = _write_parquet(swap / target, partition.table, rows, _COMPACT_LEVEL)
            for each in (swap, note, note.parent):
                _sync(each)
            if not _exchange(swap, self.directory / partition.path):
                # Without an atomic exchange, the new file is placed first: rows are briefly duplicated, but never
                # missing.
                (swap / target).rename(self.directory / path)
                for name in names:
                    (self.directory / partition.path / name).unlink(missing_ok=True)
            self._finish_swap(note)
        return size

    def _recover(self) -> None:
        """Finish a compaction that was killed, and remove the files of killed writers."""
        if self.directory is None:
            return
        with _failing(self.uri):
            for note in (self.directory / STAGING).glob("*.json"):
                self._finish_swap(note)
            self._remove_exchanged()
            for left in (self.directory / STAGING).iterdir():
                if left.is_file() and left.stat().st_mtime < time.time() - _LEFT_S:
                    left.unlink()

    def _finish_swap(self, note: Path) -> None:
        """After an exchange, move files that were written meanwhile back to the partition; the rest is removed
        later."""
        assert self.directory is not None
        swap = note.with_suffix("")
        try:
            known = json.loads(note.read_text())
        except ValueError:
            # The note is synced before the exchange, so if it is damaged nothing was exchanged.
            known = None
        if known and swap.is_dir():
            partition, names = self.directory / known["partition"], set(known["names"])
            if (partition / known["target"]).exists():
                for late in swap.iterdir():
                    if late.name not in names:
                        late.rename(partition / late.name)
                _sync(partition)
        if swap.is_dir():
            swap.rename(swap.with_suffix(_EXCHANGED))
        note.unlink()

    def _remove_exchanged(self, wait_s: float = 0.0) -> None:
        """Remove the old files of exchanged partitions, after a delay for readers that opened such a directory just
        before: they would otherwise list an empty directory."""
        old = [] if self.directory is None else list((self.directory / STAGING).glob("*" + _EXCHANGED))
        if old and wait_s:
            time.sleep(wait_s)
        for directory in old:
            shutil.rmtree(directory, ignore_errors=True)

    @contextmanager
    def _only_compaction(self) -> Iterator[None]:
        if self.directory is None:
            yield
            return
        with _failing(self.uri):
            staging = self.directory / STAGING
            staging.mkdir(exist_ok=True)
            with (staging / "compact.lock").open("w") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise LakeError(f"another compaction of {self.uri} is running; wait for its end") from None
                yield

    def _merged(self, path: str) -> set[str]:
        """The hub's files that were merged into a partition's compacted files."""
        found: set[str] = set()
        for name, _ in self.files(path):
            if name.startswith(COMPACT):
                with _failing(self.uri), self._files.open_input_file(self._at(f"{path}/{name}")) as file:
                    found.update(_merged_in(pq.read_metadata(file).metadata))
        return found

    def _write_file(self, path: str, table: LakeTable, rows: pa.Table, level: int) -> int:
        with _failing(self.uri):
            if self.directory is not None:
                staged = self._staged()
                size = _write_parquet(staged, table, rows, level)
                self._place(staged, path)
                return size
            buffer = pa.BufferOutputStream()
            _write_parquet(buffer, table, rows, level)
            content = buffer.getvalue()
            with self._files.open_output_stream(self._at(path)) as target:
                target.write(content)
            return int(content.size)

    def _staged(self) -> Path:
        assert self.directory is not None
        staging = self.directory / STAGING
        staging.mkdir(exist_ok=True)
        return staging / uuid.uuid4().hex

    def _place(self, staged: Path, path: str) -> None:
        """Move a staged file to its final path, durably."""
        assert self.directory is not None
        target = self.directory / path
        try:
            _sync(staged)
            for _ in range(3):
                # The partition may be removed or exchanged between mkdir and rename.
                target.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):
                    staged.rename(target)
                    break
            else:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(target))
            for parent in (target.parent, *target.parent.parents):
                _sync(parent)
                if parent == self.directory:
                    break
        finally:
            staged.unlink(missing_ok=True)

    def _remove_directory(self, path: str) -> None:
        if self.directory is None:
            self._files.delete_dir(self._at(path))
            return
        # Renamed first, so that it disappears atomically.
        leaving = self._staged()
        (self.directory / path).rename(leaving)
        shutil.rmtree(leaving)
        with suppress(OSError):
            (self.directory / path).parent.rmdir()

    def _directories(self, path: str) -> list[str]:
        return [f"{path}/{each.base_name}" for each in self.listed(path) if each.type == pa.fs.FileType.Directory]

    def _at(self, path: str) -> str:
        return str(PurePosixPath(self._root) / path)


def _object_store(uri: str, endpoint: str | None) -> tuple[pa.fs.FileSystem, str]:
    scheme, _, address = (endpoint or "").rpartition("://")
    path = uri.partition("://")[2]
    # The path may contain options: gs://anonymous@BUCKET/PATH?endpoint_override=HOST.
    if endpoint is None and (uri.startswith(STORES[0]) or {"?", "@"} & set(path)):
        found: tuple[pa.fs.FileSystem, str] = pa.fs.FileSystem.from_uri(uri)
        return found
    if uri.startswith(STORES[0]):
        return pa.fs.S3FileSystem(endpoint_override=address, scheme=scheme or "https"), path
    # A custom endpoint needs no Google account, unless credentials are configured.
    anonymous = endpoint is not None and "GOOGLE_APPLICATION_CREDENTIALS" not in os.environ
    return pa.fs.GcsFileSystem(
        anonymous=anonymous,
        endpoint_override=address or None,
        scheme=scheme or "https",
        retry_time_limit=_GCS_PATIENCE,
    ), path


def without_repeats(table: LakeTable, rows: pa.Table) -> pa.Table:
    """Rows sorted by node and time; of rows with the same key, only the one received last is kept."""
    others = [name for name in table.key if name not in ("node", table.time)]
    keys = ["node", table.time, *others] if table.time in table.key else [*table.key, table.time]
    order = [(name, "ascending") for name in keys]
    rows = rows.sort_by([*order, *([("received_at", "ascending")] if "received_at" in rows.schema.names else [])])
    if rows.num_rows < 2:
        return rows
    last = np.zeros(rows.num_rows, np.bool_)
    last[-1] = True
    for name in table.key:
        column = rows.column(name)
        before, after = column.slice(0, rows.num_rows - 1), column.slice(1)
        # Two nulls are equal; a null and a value differ.
        differs = pc.fill_null(pc.not_equal(before, after), False)
        differs = pc.or_(differs, pc.not_equal(pc.is_null(before), pc.is_null(after)))
        last[:-1] |= differs.to_numpy()
    kept = rows.filter(pa.array(last))
    return kept.sort_by([("node", "ascending"), (table.time, "ascending")]) if table.time not in table.key else kept


def _united(table: LakeTable, parts: Sequence[pa.Table]) -> pa.Table:
    """Files of several schema versions as one table: the current columns in their current types first, then those of
    later versions."""
    united = pa.concat_tables([part.replace_schema_metadata(None) for part in parts], promote_options="permissive")
    rows = united.num_rows
    arrays: dict[str, Any] = {
        each.name: united.column(each.name).cast(each.type)
        if each.name in united.schema.names
        else pa.nulls(rows, each.type)
        for each in table.schema
    }
    arrays |= {name: united.column(name) for name in united.schema.names if name not in arrays}
    return pa.table(arrays)


def _partitioned(table: LakeTable, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each partition, with its path relative to the lake."""
    unit = HOUR_US if table.hourly else DAY_US
    numbers = rows.column(table.time).to_numpy().astype("datetime64[us]").astype(np.int64) // unit
    for number in np.unique(numbers).tolist():
        begin = _EPOCH + timedelta(microseconds=number * unit)
        path = f"{table.name}/date={begin:%Y-%m-%d}" + (f"/hour={begin:%H}" if table.hourly else "")
        mine = numbers == number
        yield path, rows if mine.all() else rows.filter(pa.array(mine))


def _end_of(match: "re.Match[str]") -> datetime:
    date = datetime.strptime(match[1], "%Y-%m-%d").replace(tzinfo=UTC)
    return date + (timedelta(days=1) if match[2] is None else timedelta(hours=int(match[2]) + 1))


def encodings(table: LakeTable, schema: pa.Schema) -> dict[str, Any]:
    """How the columns of a file are encoded, as options of a Parquet writer: columns with repeated values by
    dictionaries, times by their differences. Only what common readers know: Spark 4.0 refuses
    BYTE_STREAM_SPLIT (VectorizedColumnReader, getValuesReader; SPARK-56894 adds it)."""
    changing = [name for name in table.changing if name in schema.names]
    times = [name for name in changing if pa.types.is_timestamp(schema.field(name).type)]
    return {
        "use_dictionary": [name for name in schema.names if name not in changing],
        "column_encoding": dict.fromkeys(times, "DELTA_BINARY_PACKED") or None,
    }


def _write_parquet(target: "Path | pa.BufferOutputStream", table: LakeTable, rows: pa.Table, level: int) -> int:
    """Write a Parquet file; returns its size if known."""
    writer = pq.ParquetWriter(
        target,
        rows.schema,
        compression="zstd",
        compression_level=level,
        write_statistics=["node", table.time],
        store_schema=False,
        **encodings(table, rows.schema),
    )
    with writer:
        if rows.schema.metadata:
            writer.add_key_value_metadata(rows.schema.metadata)
        writer.write_table(rows, row_group_size=_COMPACT_ROWS)
    return target.stat().st_size if isinstance(target, Path) else 0


def _merged_in(metadata: Any) -> list[str]:
    found: list[str] = json.loads((metadata or {}).get(MERGED_KEY, b"[]"))
    return found


@contextmanager
def _failing(uri: str) -> Iterator[None]:
    """Convert errors of the file system or object store to one sentence."""
    try:
        yield
    except (LakeError, NoData):
        raise
    except ImportError as error:
        # Some builds of pyarrow lack them.
        reason = "this pyarrow has no client of that object store: install PyPI's, or push to a hub"
        raise LakeError(f"the lake {uri} can't be used: {reason}") from error
    except (OSError, pa.ArrowException) as error:
        code = getattr(error, "errno", None)
        full = code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        reason = (os.strerror(code) if code else str(error).splitlines()[0][:300]).lower()
        raise LakeError(f"the lake {uri} can't be used: {reason}", full=full) from error


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two directories atomically (renameat2, since Linux 3.15); False if the file system does not support
    it."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code))

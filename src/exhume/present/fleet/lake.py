"""The lake as a worker sees it: partitions and files, bounded caches of what was read, and the files that could not be
read.

A partition is identified by the names and sizes of its files. Files are immutable: a partition grows by new files, or
is compacted, which replaces them. So cached data of an unchanged partition stays valid, and of a grown partition only
the new files are read.
"""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from exhume.fleet.lake import Lake, LakeError
from exhume.model.errors import NoData
from exhume.present.fleet.measures import BY_NAME
from exhume.present.web.handle import RecordingHandle
from exhume.store.read.index import Skipped
from exhume.store.read.progress import track

HOUR_MS = 3_600_000
MAX_BYTES = 64 << 20
# Recordings of bundles that a worker keeps open.
_MAX_RECORDINGS = 4
# Compaction can remove files while they are read. Then the partition is listed again, up to this many times.
_ATTEMPTS = 3
_MAX_REASON = 200
_PARTITION = re.compile(r"date=(\d{4}-\d{2}-\d{2})(?:/hour=(\d{2}))?$")
_TEXT = ["node", "key", "value", "cause", "severity", "function", "process", "culprit", "leaker"]
#: A key that every node with an inventory has; it reveals nodes that send no summaries.
ROSTER_KEY = "kernel"

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int32]
Times = npt.NDArray[np.int64]
_Value = TypeVar("_Value")


class _Gone(Exception):
    """A listed file no longer exists."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The files of a partition's directory."""

    path: str
    files: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class Hour:
    """An hour of minute summaries, reduced to one value per node and measure; NaN where there is none."""

    files: tuple[tuple[str, int], ...] = ()
    places: dict[str, int] = field(default_factory=dict)
    values: dict[str, Floats] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return 150 * len(self.places) + sum(array.nbytes for array in self.values.values())

    def add(self, tables: Iterable[pa.Table], measures: Sequence[str]) -> None:
        """Add the rows of files."""
        codes: list[Codes] = []
        columns: dict[str, list[Floats]] = {name: [] for name in measures}
        for table in tables:
            codes.append(_places(table.column("node"), self.places))
            for name, parts in columns.items():
                there = name in table.column_names
                column = table.column(name).cast(pa.float32()).to_numpy() if there else None
                parts.append(np.full(table.num_rows, np.nan, np.float32) if column is None else column)
        rows = np.concatenate([*codes, np.empty(0, np.int32)])
        for name, parts in columns.items():
            kept = self.values.get(name, np.empty(0, np.float32))
            grown = np.full(len(self.places), np.nan, np.float32)
            grown[: len(kept)] = kept
            column = np.concatenate([*parts, np.empty(0, np.float32)])
            known = ~np.isnan(column)
            if BY_NAME[name].fold == "max":
                np.fmax.at(grown, rows[known], column[known])
            else:
                counted = np.bincount(rows[known], minlength=len(grown)) > 0
                sums = np.bincount(rows[known], column[known], len(grown))
                grown[counted] = np.nan_to_num(grown[counted]) + sums[counted]
            self.values[name] = grown


@dataclass(frozen=True, slots=True)
class KeyRows:
    """The changes of one attribute in a day, in time order: indices into `nodes`, times in microseconds, and indices
    into `values` (-1: the attribute was removed)."""

    nodes: list[str]
    values: list[str]
    node: Codes
    at: Times
    value: Codes

    @property
    def nbytes(self) -> int:
        # `nodes` is not counted: all keys of a day share the same list.
        return 500 + 150 * len(self.values) + self.node.nbytes + self.at.nbytes + self.value.nbytes


class LakeHandle:
    """One worker's view of a lake."""

    def __init__(self, lake: Path | str, endpoint: str | None = None) -> None:
        """Open the lake. `endpoint` is a custom object-store endpoint. Raises NoData, UsageError, LakeError."""
        self.lake = lake
        self._files: fs.FileSystem = Lake.open(str(lake), endpoint, make=False).subtree
        self._cache: OrderedDict[tuple[str, object], tuple[object, Any]] = OrderedDict()
        self._nbytes = 0
        self._damaged: dict[str, Skipped] = {}
        self._recordings: OrderedDict[str, RecordingHandle] = OrderedDict()

    def recording(self, directory: str) -> RecordingHandle:
        """The recording of an unpacked bundle."""
        if directory not in self._recordings:
            self._recordings[directory] = RecordingHandle(Path(directory))
        self._recordings.move_to_end(directory)
        while len(self._recordings) > _MAX_RECORDINGS:
            self._recordings.popitem(last=False)
        return self._recordings[directory]

    def damaged(self) -> list[Skipped]:
        """The files found to be unreadable so far."""
        return list(self._damaged.values())

    def note_damaged(self, files: Iterable[Skipped]) -> None:
        """Record files that other workers could not read."""
        self._damaged |= {str(each.path): each for each in files}

    def warm_up(self) -> Iterator[None]:
        """Read the data of the first view. An unreachable lake is ignored here; requests will report it."""
        with suppress(LakeError, NoData):
            hours = self.hours()
            if hours:
                self.hour(hours[-1], [next(iter(BY_NAME))])
                self.rows_of(day_of(hours[-1]), [ROSTER_KEY])
        yield

    # Partitions.

    def hours(self) -> list[int]:
        """The hours that have summaries, in order, in milliseconds."""
        found = []
        for day in self._directories("summaries"):
            for path in self._directories(day):
                match = _PARTITION.search(path)
                if match is not None and match[2] is not None:
                    found.append(_ms(f"{match[1]}T{match[2]}"))
        return sorted(found)

    def days(self, table: str) -> list[str]:
        """The dates of a table, in order."""
        return sorted(match[1] for path in self._directories(table) if (match := _PARTITION.search(path)))

    def hour_or_newest(self, at: int | None) -> int:
        """The hour that contains a moment; by default the newest with summaries. Raises NoData for an empty lake."""
        if at is not None:
            return at // HOUR_MS * HOUR_MS
        hours = self.hours()
        if not hours:
            raise NoData(f"{self.lake} has no summaries yet: nodes send them with exhume record --push")
        return hours[-1]

    def _directories(self, path: str) -> list[str]:
        return [info.path for info in self._list(path) if info.type == fs.FileType.Directory]

    def _list(self, path: str) -> list[Any]:
        try:
            return list(self._files.get_file_info(fs.FileSelector(path, allow_not_found=True)))
        except (OSError, pa.ArrowException) as error:
            reason = " ".join(str(error).split())[:_MAX_REASON]
            raise LakeError(f"the lake {self.lake} can't be read: {reason}") from None

    def partition(self, path: str) -> Partition:
        """The current files of a partition, without those still being written, which have other names."""
        files = sorted(
            (info.path, info.size)
            for info in self._list(path)
            if info.type == fs.FileType.File and info.extension == "parquet" and not info.base_name.startswith(".")
        )
        return Partition(path, tuple(files))

    # Rows.

    def hour(self, at: int, measures: Sequence[str]) -> Hour:
        """The values of an hour, with at least the given measures."""
        path = _hour_path(at)

        def load(partition: Partition) -> Hour:
            kept = self._kept(path, "hour") or Hour()
            if not set(kept.files) <= set(partition.files):
                kept = Hour()
            # Work on a copy: a read that fails half-way must not leave partial data in the cache.
            hour = Hour(kept.files, dict(kept.places), {name: values.copy() for name, values in kept.values.items()})
            new = [file for file, size in partition.files if (file, size) not in set(kept.files)]
            known = list(hour.values)
            missing = [name for name in measures if name not in known]
            if known or not missing:
                hour.add(self._read(new, ["node", *known]), known)
            if missing:
                hour.add(self._read([file for file, _ in partition.files], ["node", *missing]), missing)
            hour.files = partition.files
            self._keep(path, "hour", partition.files, hour)
            return hour

        partition = self.partition(path)
        kept: Hour | None = self._kept(path, "hour")
        if kept is not None and kept.files == partition.files and all(name in kept.values for name in measures):
            return kept
        return self._retry(partition, load)

    def minutes(self, at: int, node: str, columns: Sequence[str]) -> pa.Table | None:
        """The minute rows of one node in an hour."""
        path = _hour_path(at)

        def load(partition: Partition) -> pa.Table | None:
            wanted = ["node", "minute", *columns]
            files = [file for file, _ in partition.files]
            found = [_of_node(table, node) for table in self._read(files, wanted, {"node": [node]})]
            rows = [table for table in found if table.num_rows]
            return pa.concat_tables(rows, promote_options="permissive").sort_by("minute") if rows else None

        return self._retry(self.partition(path), load)

    def rows_of(self, day: str, keys: Sequence[str] | None) -> dict[str, KeyRows]:
        """The changes of attributes in a day, by key; None selects every key."""
        path = f"attributes/date={day}"
        partition = self.partition(path)
        if keys is not None:
            known = {key: self._fresh(partition, ("key", key)) for key in keys}
            if all(rows is not None for rows in known.values()):
                return {key: rows for key, rows in known.items() if rows.at.size}

        def load(partition: Partition) -> dict[str, KeyRows]:
            files = [file for file, _ in partition.files]
            pruned = None if keys is None else {"key": list(keys)}
            found = _split_by_key(self._read(files, ["node", "at", "key", "value"], pruned), keys)
            for key in found if keys is None else keys:
                self._keep(path, ("key", key), partition.files, found.get(key, _NO_ROWS))
            return found

        return self._retry(partition, load)

    def incidents(self, day: str, columns: Sequence[str]) -> pa.Table | None:
        """The incidents of a day, without their findings and without duplicates."""
        path = f"incidents/date={day}"
        partition = self.partition(path)
        kept = self._fresh(partition, "incidents")
        if kept is not None:
            return kept if kept.num_rows else None

        def load(partition: Partition) -> pa.Table | None:
            tables = [each for each in self._read([file for file, _ in partition.files], columns) if each.num_rows]
            table = _each_once(pa.concat_tables(map(_plain, tables), promote_options="permissive")) if tables else None
            self._keep(path, "incidents", partition.files, pa.table({}) if table is None else table)
            return table

        return self._retry(partition, load)

    def open(self, path: str) -> Any:
        """Open a file of the lake for reading."""
        return self._files.open_input_file(path)

    # Files.

    def _retry(self, partition: Partition, load: Callable[[Partition], _Value]) -> _Value:
        for _ in range(_ATTEMPTS - 1):
            try:
                return load(partition)
            except _Gone:
                partition = self.partition(partition.path)
        try:
            return load(partition)
        except _Gone:
            raise NoData(f"{partition.path} changes faster than it can be read; try again") from None

    def _read(
        self, files: Sequence[str], columns: Sequence[str], wanted: dict[str, list[str]] | None = None
    ) -> Iterator[pa.Table]:
        """The rows of each file, with the columns it has; a damaged file is recorded and skipped. Row groups whose
        statistics exclude all `wanted` values of a column are not read."""
        for path in track(list(files)):
            if path in self._damaged:
                continue
            try:
                with self._files.open_input_file(path) as source:
                    table = _read_file(source, columns, wanted)
            except FileNotFoundError:
                raise _Gone from None
            except (OSError, pa.ArrowException) as error:
                reason = " ".join(str(error).split())[:_MAX_REASON]
                self._damaged[path] = Skipped(Path(path), reason)
                continue
            if table is not None:
                yield table

    # The cache: data read from each partition, by path and query.

    def _kept(self, path: str, what: object) -> Any:
        found = self._cache.get((path, what))
        if found is not None:
            self._cache.move_to_end((path, what))
        return None if found is None else found[1]

    def _fresh(self, partition: Partition, what: object) -> Any:
        """The cached data if the partition's files are unchanged, else None."""
        found = self._cache.get((partition.path, what))
        return self._kept(partition.path, what) if found is not None and found[0] == partition.files else None

    def _keep(self, path: str, what: object, files: object, value: Any) -> None:
        _, old = self._cache.pop((path, what), (None, None))
        self._nbytes += value.nbytes - (0 if old is None else old.nbytes)
        self._cache[path, what] = files, value
        while self._nbytes > MAX_BYTES and len(self._cache) > 1:
            _, (_, gone) = self._cache.popitem(last=False)
            self._nbytes -= gone.nbytes


def day_of(at: int) -> str:
    """The UTC date of a moment in milliseconds."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d")


def _hour_path(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("summaries/date=%Y-%m-%d/hour=%H")


def _ms(hour: str) -> int:
    return int(datetime.strptime(hour, "%Y-%m-%dT%H").replace(tzinfo=UTC).timestamp()) * 1000


def _read_file(source: Any, columns: Sequence[str], wanted: dict[str, list[str]] | None) -> pa.Table | None:
    known = pq.read_metadata(source)
    there = [name for name in columns if name in known.schema.names]
    if columns[0] not in there:
        return None
    groups = [i for i in range(known.num_row_groups) if _may_hold(known.row_group(i), wanted)]
    texts = [name for name in there if name in _TEXT]
    file = pq.ParquetFile(source, metadata=known, read_dictionary=texts)
    return file.read_row_groups(groups, there, use_threads=False)


def _may_hold(group: Any, wanted: dict[str, list[str]] | None) -> bool:
    """Whether the statistics of a row group allow it to contain one of the values."""
    for i in range(group.num_columns if wanted else 0):
        column = group.column(i)
        values = (wanted or {}).get(column.path_in_schema)
        known = column.statistics
        if values is not None and known is not None and known.has_min_max and isinstance(known.min, str):
            return any(known.min <= value <= known.max for value in values)
    return True


def _places(column: Any, places: dict[str, int]) -> Codes:
    """The index in `places` of each row's text; new texts are added. The index of a null is arbitrary."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    parts = [np.empty(0, np.int32)]
    for chunk in encoded.chunks:
        texts = ["" if text is None else text for text in chunk.dictionary.to_pylist()] or [""]
        known = np.array([places.setdefault(text, len(places)) for text in texts], np.int32)
        parts.append(known[chunk.indices.fill_null(0).to_numpy(zero_copy_only=False)])
    return np.concatenate(parts)


def micros(column: Any) -> Times:
    """A column of timestamps as microseconds since 1970."""
    times: Times = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
    return times


def _plain(table: pa.Table) -> pa.Table:
    """The table with dictionary columns decoded: dictionaries of several files must be unified for each use."""
    for i, part in enumerate(table.schema):
        if pa.types.is_dictionary(part.type):
            table = table.set_column(i, part.name, table.column(i).cast(part.type.value_type))
    return table


def _of_node(table: pa.Table, node: str) -> pa.Table:
    places: dict[str, int] = {node: 0}
    return _plain(table.filter(pa.array(_places(table.column("node"), places) == 0)))


def _each_once(incidents: pa.Table) -> pa.Table:
    """One row per incident: the last one written, unless only an earlier one has a bundle."""
    bundles = incidents.column("bundle").to_pylist() if "bundle" in incidents.column_names else [None] * len(incidents)
    ids = list(zip(incidents.column("node").to_pylist(), incidents.column("id").to_pylist(), strict=True))
    last: dict[tuple[str, str], int] = {}
    for i, (key, bundle) in enumerate(zip(ids, bundles, strict=True)):
        if bundle or key not in last or not bundles[last[key]]:
            last[key] = i
    return incidents if len(last) == len(incidents) else incidents.take(sorted(last.values()))


def _split_by_key(tables: Iterable[pa.Table], keys: Sequence[str] | None) -> dict[str, KeyRows]:
    """The rows of each key, in time order."""
    nodes: dict[str, int] = {}
    values: dict[str, int] = {}
    known: dict[str, int] = {} if keys is None else {key: i for i, key in enumerate(keys)}
    parts: list[tuple[Codes, Times, Codes, Codes]] = []
    for table in tables:
        key = _places(table.column("key"), known)
        chosen = key < (len(known) if keys is None else len(keys))
        rows = table.filter(pa.array(chosen))
        value = np.where(rows.column("value").is_null().to_numpy(), -1, _places(rows.column("value"), values))
        parts.append((_places(rows.column("node"), nodes), micros(rows.column("at")), key[chosen], value))
    if not parts:
        return {}
    node, at, key, value = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.lexsort((at, key))
    starts = np.searchsorted(key[order], np.arange(len(known) + 1))
    all_nodes, all_values = list(nodes), np.array(list(values), object)
    found = {}
    for name, i in known.items():
        rows = order[starts[i] : starts[i + 1]]
        if not len(rows) or (keys is not None and i >= len(keys)):
            continue
        used, codes = np.unique(value[rows], return_inverse=True)
        gone = int(len(used) > 0 and used[0] == -1)
        texts = [str(text) for text in all_values[used[gone:]]]
        found[name] = KeyRows(all_nodes, texts, node[rows], at[rows], codes.astype(np.int32) - gone)
    return found


_NO_ROWS = KeyRows([], [], np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int32))

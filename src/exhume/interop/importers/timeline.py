"""Merge the spools of many files into the segments of one recording.

A segment is assembled from the rows that all files have for its time, and from what the recording already has there.
New segments are built next to the recording and moved into place together: an interrupted import either changes
nothing, or is completed by the next one.
"""

import json
import shutil
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.collect.incidents import IncidentMarks
from exhume.interop.importers.form import MODES, I64Array
from exhume.interop.importers.spool import MOST_CORES, STATES, spooled_rows
from exhume.model.clock import MILLIS, NANOS, Tick
from exhume.model.errors import RecordingError
from exhume.model.facts import RecordingFacts
from exhume.model.tables import INCIDENT, KERNEL_STATES, RECORDER, Columns, Losses, to_columns
from exhume.store.format.layout import ROW_GROUP_ROWS
from exhume.store.format.names import IMPORT_STAGING_NAME, IMPORTS_NAME, LIVE_DIRECTORY, SegmentName, boot_part
from exhume.store.format.schema import schema_of
from exhume.store.read.index import Segment, sealed_segments
from exhume.store.read.reader import Request, read_available
from exhume.store.write.seal import discard, seal, sync
from exhume.store.write.writer import LiveTable, to_batch

Spans = list[tuple[int, int]]
Measured = tuple[int, int, frozenset[int]]
COMMIT_NAME = "commit.json"
# A second with less recorded time than this has too few samples to tell how busy it was.
_LEAST_COVERED_NS = NANOS // 4
# Two logs timestamp the same line to the second, or a moment later.
_SAME_LINE_NS = 2 * NANOS
IMPORT, GAP, OVERLAP = "import", "gap", "overlap"
# Rows of a segment that an import recreates, by table: source and kind.
_MADE_AGAIN = {"events": (RECORDER, INCIDENT), "losses": (IMPORT, GAP)}
_CPU_STATES = ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "guest", "idle")


@dataclass(frozen=True, slots=True)
class ImportedFile:
    """An imported file of the recording: its digest, and the time that it covers, by kind."""

    name: str
    format: str
    digest: str
    spans: dict[str, tuple[int, int]]
    cpus: tuple[int, ...] = ()


@dataclass(slots=True)
class ImportList:
    """The files that a recording was imported from, stored in its directory."""

    boot_id: str
    segment_s: int
    files: list[ImportedFile] = field(default_factory=list)

    def to_json(self) -> str:
        files = [
            {**{name: getattr(file, name) for name in ("name", "format", "digest", "spans")}, "cpus": list(file.cpus)}
            for file in self.files
        ]
        return json.dumps(
            {"version": 1, "boot_id": self.boot_id, "segment_s": self.segment_s, "files": files}, indent=1
        )

    @classmethod
    def read(cls, directory: Path) -> "ImportList | None":
        """Read the list of a directory; None if nothing was imported. Raises RecordingError for a damaged list."""
        path = directory / IMPORTS_NAME
        try:
            found = json.loads(path.read_bytes())
            files = [
                ImportedFile(
                    str(each["name"]),
                    str(each["format"]),
                    str(each["digest"]),
                    {str(kind): (int(since), int(until)) for kind, (since, until) in each["spans"].items()},
                    tuple(int(cpu) for cpu in each["cpus"]),
                )
                for each in found["files"]
            ]
            return cls(str(found["boot_id"]), int(found["segment_s"]), files)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RecordingError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordingError(f"{path} is damaged; import into another directory with --dir") from error


@dataclass(frozen=True, slots=True)
class Piece:
    """The spool of a file. `samples` and `cores` are the times for which its rows count: of overlapping files, only one
    counts. `begins` is when each of the two begins in the file, `segments` are the segments that it has rows for."""

    spool: Path
    samples: tuple[tuple[int, int], ...]
    cores: tuple[tuple[int, int], ...]
    begins: tuple[int, int]
    segments: frozenset[int]


@dataclass(frozen=True, slots=True)
class Plan:
    """The input for every segment of an import. `measured` are the times and cores with measured metrics, from any
    file, and `measured_before` those that the recording already has; `losses` are those of the whole timeline: gaps and
    overlaps. For a recording with nothing but logs (`only_logs`), the time of the logs is its time."""

    directory: Path
    facts: RecordingFacts
    segment_s: int
    pieces: tuple[Piece, ...]
    measured: tuple[Measured, ...]
    measured_before: tuple[Measured, ...]
    losses: tuple[Losses, ...]
    only_logs: bool

    @property
    def staging(self) -> Path:
        return self.directory / LIVE_DIRECTORY / IMPORT_STAGING_NAME


@dataclass(frozen=True, slots=True)
class Assembled:
    """A segment before it is sealed, with the input for incident marks and the segments that it replaces. `outside` are
    log lines at times for which nothing else is known."""

    live: Path | None
    cpu: pa.Table
    events: pa.Table
    outside: pa.Table
    replaces: tuple[str, ...]


def _gathered(plan: Plan, number: int, old: list[Segment]) -> dict[str, pa.Table]:
    """The rows of a segment, by table, from all files and from the recording."""
    since, until = number * plan.segment_s * NANOS, (number + 1) * plan.segment_s * NANOS
    tables: dict[str, list[pa.Table]] = {}
    states: list[pa.Table] = []
    logs: list[pa.Table] = []
    for piece in plan.pieces:
        if number not in piece.segments:
            continue
        lines: list[pa.Table] = []
        for table, rows in spooled_rows(piece.spool, number):
            if table == STATES:
                states.append(_within(rows, ("second", NANOS), piece.samples, piece.begins[0]))
            elif table == "samples":
                chosen = _within(rows, ("time_ms", MILLIS), piece.samples, piece.begins[0])
                tables.setdefault(table, []).append(chosen)
            elif table == "cpu":
                tables.setdefault(table, []).append(_within(rows, ("time", 1), piece.cores, piece.begins[1]))
            else:
                (lines if table == "events" else tables.setdefault(table, [])).append(rows)
        if lines:
            logs.append(pa.concat_tables(lines))
    batch = to_batch("cpu", _derived_cpu(states, plan, since, until))
    derived = [] if batch is None else [pa.Table.from_batches([batch])]
    before: list[pa.Table] = []
    for segment in old:
        for table, rows in _old_rows(segment):
            kept = rows
            if table == "cpu":
                known = pa.array(_measured(rows, plan.measured_before))
                derived.insert(0, rows.filter(pc.invert(known)))
                kept = rows.filter(known)
            (before if table == "events" else tables.setdefault(table, [])).insert(0, kept)
    if before:
        logs.insert(0, pa.concat_tables(before))
    tables["events"] = _without_repeated_lines(logs)
    rows = {table: pa.concat_tables(parts) for table, parts in tables.items() if parts}
    rows["cpu"] = _merged_cpu(rows.get("cpu"), derived, plan)
    _add(rows, "sampling", _sampling(states))
    if "sampling" in rows:
        totals = (
            rows["sampling"]
            .group_by(["time", "cpu"], use_threads=False)
            .aggregate([(name, "sum") for name in ("busy", "idle", "lost")])
        )
        rows["sampling"] = totals.rename_columns(schema_of("sampling").names).cast(schema_of("sampling"))
    _add(rows, "losses", to_columns("losses", [loss for loss in plan.losses if since <= loss.time < until]))
    for table, keys in (("stacks", ["stack"]), ("frames", ["frame"]), ("processes", ["pid", "start", "comm"])):
        if table in rows:
            rows[table] = _first_of(rows[table], keys)
    if "node" in rows:
        rows["node"] = _first_of(rows["node"], ["time"])
    return {table: found for table, found in rows.items() if found.num_rows}


def assemble(plan: Plan, number: int) -> Assembled | None:
    """Write one segment without the incident marks; None if it has no rows."""
    old = [each for each in sealed_segments(plan.directory) if segment_number(each, plan.segment_s) == number]
    rows = _gathered(plan, number, old)
    events = rows.pop("events", schema_of("events").empty_table())
    replaces = tuple(segment.path.name for segment in old)
    cpu = rows.get("cpu", schema_of("cpu").empty_table())
    span = _span({**rows, "events": events} if plan.only_logs and events.num_rows else rows)
    if span is None:
        return Assembled(None, cpu, events.slice(0, 0), events, replaces) if events.num_rows or old else None
    time = events.column("time").to_numpy()
    inside = pa.array((time >= span[0]) & (time <= span[1]))
    seconds = np.arange(span[0] // NANOS + 1, span[1] // NANOS + 1, dtype=np.int64) * NANOS
    ends = np.unique(np.append(seconds, span[1]))
    rows["anchors"] = pa.table({"time": ends, "wall": ends}).cast(schema_of("anchors"))
    live = _begin(plan, span[0] // MILLIS)
    for table, found in rows.items():
        _write(live, table, plan.facts, found)
    return Assembled(live, cpu, events.filter(inside), events.filter(pc.invert(inside)), replaces)


def segment_number(segment: Segment, segment_s: int) -> int:
    """The number of the timeline's segment that a sealed one belongs to. One with only log lines begins after
    the last of them, and reaches back to the first."""
    name = segment.name
    return (name.wall_ms - (name.reach_ms if not name.length_ms else 0)) // 1000 // segment_s


def _begin(plan: Plan, start_ms: int) -> Path:
    """Create the directory of a live segment in the staging directory."""
    live = plan.staging / LIVE_DIRECTORY / str(SegmentName(start_ms, boot_part(plan.facts.boot_id), start_ms))
    shutil.rmtree(live, ignore_errors=True)
    live.mkdir(parents=True)
    return live


def mark(marks: IncidentMarks, segment: Assembled) -> pa.Table:
    """The events of a segment with the incidents that begin in it. Segments must come in order of time."""
    given: list[tuple[int, int, dict[str, Any]]] = []
    events = segment.events.sort_by("time")
    if events.num_rows:
        columns = {name: events.column(name).to_pylist() for name in events.schema.names}
        given.append((columns["time"][0], columns["time"][-1] + 1, {"events": columns}))
    cpu = segment.cpu.sort_by("time")
    if cpu.num_rows:
        time, span = cpu.column("time").to_numpy(), cpu.column("span_ms").to_numpy()
        columns = {name: cpu.column(name).to_numpy() for name in ("cpu", *KERNEL_STATES, "steal")}
        cuts = np.append(np.flatnonzero(np.append(True, time[1:] != time[:-1])), len(time))
        for first, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            start = int(time[first])
            part = {name: column[first:end] for name, column in columns.items()}
            given.append((start, start + int(span[first]) * MILLIS, {"cpu": part}))
    given.sort(key=lambda each: each[0])
    found: list[pa.Table] = [events]
    for place, (start, end, rows) in enumerate(given):
        opened = marks.observe(Tick(place, start, end, end), [rows])
        if "events" in opened:
            batch = to_batch("events", opened["events"])
            assert batch is not None
            found.append(pa.Table.from_batches([batch]))
    return pa.concat_tables(found)


def finish(plan: Plan, live: Path | None, events: pa.Table, outside: pa.Table) -> list[tuple[str, int]]:
    """Seal the segment's content into the staging directory; return names and sizes.

    Log lines at times without samples and metrics get a segment of their own that begins after the last of them: it has
    no length, so that a log line doesn't make time count as recorded, and reaches back to the first line."""
    sealed = []
    if live is not None:
        if events.num_rows:
            _write(live, "events", plan.facts, events)
        sealed.append(seal(plan.staging, live))
    if outside.num_rows:
        start_ms = int(outside.column("time").to_numpy().max()) // MILLIS + 1
        while any((plan.staging / LIVE_DIRECTORY).parent.glob(f"*_{start_ms}_*")):
            start_ms += 1
        aside = _begin(plan, start_ms)
        _write(aside, "events", plan.facts, outside)
        sealed.append(seal(plan.staging, aside))
    return [(each.path.name, each.size) for each in sealed if each is not None]


def commit(plan: Plan, added: Collection[str], replaced: Collection[str], imports: ImportList) -> None:
    """Move the new segments into place."""
    content = {"added": sorted(added), "replaced": sorted(replaced), "imports": imports.to_json()}
    journal = plan.staging / COMMIT_NAME
    unfinished = journal.with_suffix(".tmp")
    unfinished.write_text(json.dumps(content))
    sync(unfinished)
    unfinished.rename(journal)
    sync(plan.staging)
    complete(plan.directory)


def complete(directory: Path) -> None:
    """Complete an earlier import that was already decided, or remove what it left behind."""
    staging = directory / LIVE_DIRECTORY / IMPORT_STAGING_NAME
    journal = staging / COMMIT_NAME
    if journal.exists():
        content = json.loads(journal.read_bytes())
        for name in content["replaced"]:
            if (directory / name).is_dir() and (staging / name).exists() | (name not in content["added"]):
                discard(directory, directory / name)
        for name in content["added"]:
            if (staging / name).is_dir():
                (staging / name).rename(directory / name)
        unfinished = directory / (IMPORTS_NAME + ".tmp")
        unfinished.write_text(content["imports"])
        sync(unfinished)
        unfinished.rename(directory / IMPORTS_NAME)
        sync(directory)
    shutil.rmtree(staging, ignore_errors=True)


def _within(rows: pa.Table, column: tuple[str, int], taken: Iterable[tuple[int, int]], begin: int) -> pa.Table:
    """The rows whose time lies in one of some closed spans. `column` is the name and unit of the time: if a span begins
    later than its file, a unit that it shares with the time before belongs to that time."""
    name, unit = column
    time = rows.column(name).to_numpy()
    kept = np.zeros(len(time), np.bool_)
    for since, until in taken:
        first = since // unit if since == begin else -(-since // unit)
        kept |= (time >= first) & (time <= until // unit)
    return rows if kept.all() else rows.filter(pa.array(kept))


def _old_rows(segment: Segment) -> Iterator[tuple[str, pa.Table]]:
    for path in sorted(segment.path.glob("*.parquet")):
        table = path.stem
        if table in ("overview", "anchors"):
            continue
        rows = read_available(segment, Request(table))
        if rows is not None:
            dropped = _MADE_AGAIN.get(table)
            if dropped is not None:
                pairs = zip(rows.column("source").to_pylist(), rows.column("kind").to_pylist(), strict=True)
                rows = rows.filter(pa.array([pair != dropped for pair in pairs], pa.bool_()))
            yield table, rows.select(schema_of(table).names).cast(schema_of(table))


def _summed(states: list[pa.Table]) -> dict[str, npt.NDArray[Any]]:
    """The counts of each core and second, summed over all files."""
    rows = pa.concat_tables(states)
    second, cpu = rows.column("second").to_numpy(), rows.column("cpu").to_numpy().astype(np.int64)
    distinct, which = np.unique(second * 65536 + cpu, return_inverse=True)
    result: dict[str, npt.NDArray[Any]] = {"second": distinct // 65536, "cpu": distinct % 65536}
    for name in (*(f"{mode}_us" for mode in MODES), "busy", "quiet"):
        result[name] = np.bincount(which, weights=rows.column(name).to_numpy(), minlength=len(distinct))
    return result


def _sampling(states: list[pa.Table]) -> Columns:
    if not sum(len(each) for each in states):
        return {}
    counts = _summed(states)
    return {
        "time": counts["second"] * NANOS,
        "cpu": counts["cpu"],
        "busy": counts["busy"].astype(np.int64),
        "idle": counts["quiet"].astype(np.int64),
        "lost": np.zeros(len(counts["cpu"]), np.int64),
    }


def _derived_cpu(states: list[pa.Table], plan: Plan, since: int, until: int) -> Columns:
    """The busy share of each core in each sampled second, derived from its samples."""
    spans = [span for piece in plan.pieces for span in piece.samples if span[0] < until and span[1] >= since]
    covered = _covered(spans, since, until)
    if not len(covered["second"]):
        return {}
    cores = min(max(1, plan.facts.cores), MOST_CORES)
    shape = (len(covered["second"]), cores)
    shares = {mode: np.zeros(shape) for mode in MODES}
    if sum(len(each) for each in states):
        counts = _summed(states)
        place = np.searchsorted(covered["second"], counts["second"])
        place = np.minimum(place, shape[0] - 1)
        inside = (covered["second"][place] == counts["second"]) & (counts["cpu"] < cores)
        for mode in MODES:
            shares[mode][place[inside], counts["cpu"][inside]] = counts[f"{mode}_us"][inside]
    span_ms = (covered["nanos"] // MILLIS)[:, None]
    permille = {mode: np.minimum(shares[mode] / span_ms, 1000.0) for mode in ("user", "system", "softirq")}
    busy = np.maximum(sum(permille.values()), 1e-9)
    scale = np.minimum(1.0, 1000.0 / busy)
    whole = {mode: np.floor(values * scale).astype(np.int64) for mode, values in permille.items()}
    nothing = np.zeros(shape, np.int64)
    columns = {state: whole.get(state, nothing).ravel() for state in _CPU_STATES}
    columns["idle"] = 1000 - sum(columns[state] for state in ("user", "system", "softirq"))
    return {
        "time": np.repeat(covered["start"], cores),
        "cpu": np.tile(np.arange(cores), shape[0]),
        "span_ms": np.repeat(covered["nanos"] // MILLIS, cores),
        **columns,
    }


def _covered(spans: Spans, since: int, until: int) -> dict[str, I64Array]:
    """The seconds that some spans cover, and how much of each second."""
    first = np.arange(since // NANOS, -(-until // NANOS), dtype=np.int64)
    start, end = np.full(len(first), 2**62), np.zeros(len(first), np.int64)
    for begin, last in spans:
        inside = (first * NANOS <= last) & (first * NANOS + NANOS > begin)
        start[inside] = np.minimum(start[inside], np.maximum(first[inside] * NANOS, begin))
        end[inside] = np.maximum(end[inside], np.minimum(first[inside] * NANOS + NANOS, last))
    kept = end - start >= _LEAST_COVERED_NS
    return {"second": first[kept], "start": start[kept], "nanos": (end - start)[kept]}


def _measured(rows: pa.Table, times: tuple[Measured, ...]) -> npt.NDArray[np.bool_]:
    """Mask of the metrics that lie in measured times."""
    cpu, time = rows.column("cpu").to_numpy(), rows.column("time").to_numpy()
    middle = time + rows.column("span_ms").to_numpy().astype(np.int64) * (MILLIS // 2)
    inside = np.zeros(len(middle), np.bool_)
    for since, until, cpus in times:
        inside |= (middle >= since) & (middle <= until) & np.isin(cpu, list(cpus))
    return inside


def _merged_cpu(measured: pa.Table | None, derived: list[pa.Table], plan: Plan) -> pa.Table:
    """Merge metrics: measured ones, and derived ones where there are none."""
    parts = [] if measured is None else [measured]
    parts += [rows.filter(pc.invert(pa.array(_measured(rows, plan.measured)))) for rows in derived]
    if not parts:
        return schema_of("cpu").empty_table()
    rows = pa.concat_tables(parts).sort_by([("time", "ascending"), ("cpu", "ascending")])
    return _first_of(rows, ["time", "cpu"])


def _without_repeated_lines(parts: list[pa.Table]) -> list[pa.Table]:
    """The lines of several logs; if two logs have the same line at about the same time, the first one is kept."""
    seen: dict[str, list[int]] = {}
    kept: list[pa.Table] = []
    for rows in parts:
        columns = zip(rows.column("text").to_pylist(), rows.column("time").to_pylist(), strict=True)
        lines = list(columns)
        fresh = [not any(abs(time - other) <= _SAME_LINE_NS for other in seen.get(text, ())) for text, time in lines]
        for text, time in lines:
            seen.setdefault(text, []).append(time)
        kept.append(rows if all(fresh) else rows.filter(pa.array(fresh, pa.bool_())))
    return kept


def _first_of(rows: pa.Table, keys: list[str]) -> pa.Table:
    """Of rows with equal keys, the first."""
    numbered = rows.append_column("_row", pa.array(np.arange(rows.num_rows)))
    first = numbered.group_by(keys, use_threads=False).aggregate([("_row", "min")]).column("_row_min").to_numpy()
    return rows if len(first) == rows.num_rows else rows.take(pa.array(np.sort(first)))


def _add(rows: dict[str, pa.Table], table: str, columns: Columns) -> None:
    batch = to_batch(table, columns) if columns else None
    if batch is not None:
        more = pa.Table.from_batches([batch])
        rows[table] = pa.concat_tables([rows[table], more]) if table in rows else more


def _span(rows: dict[str, pa.Table]) -> tuple[int, int] | None:
    """The first and last moment of the rows; an interval counts with its end."""
    edges: list[int] = []
    for table, found in rows.items():
        if table in ("stacks", "frames", "processes"):
            continue
        column, unit = ("time_ms", MILLIS) if table == "samples" else ("time", 1)
        time = found.column(column).to_numpy()
        edges += [int(time.min()) * unit, int(time.max()) * unit]
        if table == "cpu":
            edges.append(int((time + found.column("span_ms").to_numpy().astype(np.int64) * MILLIS).max()))
    return (min(edges), max(edges)) if edges else None


def _write(live: Path, table: str, facts: RecordingFacts, rows: pa.Table) -> None:
    with closing(LiveTable(live, table, facts)) as file:
        # In batches of half a row group: a whole minute of a large node takes a hundred megabytes at once.
        for batch in rows.cast(schema_of(table)).to_batches(max_chunksize=ROW_GROUP_ROWS // 2):
            file.write([batch])

"""The small recordings of real scenarios, and recordings made of them: without a table, or two at once."""

import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

from exhume.diagnose.engine import diagnose
from exhume.model.clock import NANOS, Tick
from exhume.model.facts import RecordingFacts
from exhume.model.finding import Diagnosis, Finding, Severity
from exhume.model.tables import TABLES
from exhume.store.read.recording import Recording
from exhume.store.write.writer import SegmentWriter

HERE = Path(__file__).parent
SCENARIOS = sorted(path.parent.name for path in HERE.glob("*/expected.json"))
# What the tables of a node's row hold: levels, of which the higher counts; the others add up.
LEVELS = ("mem_", "cached", "dirty", "writeback", "shmem", "slab_", "percpu", "kernel_stack", "swap_", "dentries")
LEVELS += ("inodes", "mounts", "conntrack", "net_namespaces", "load1", "span_ms", "time")
STACKS = ("samples", "stacks", "frames")


def expected(scenario: str) -> dict[str, Any]:
    return json.loads((HERE / scenario / "expected.json").read_text())


@cache
def diagnosed(scenario: str) -> Diagnosis:
    return diagnosis_of(Recording.open(HERE / scenario))


def diagnosis_of(recording: Recording) -> Diagnosis:
    span = recording.span()
    assert span is not None
    return diagnose(recording, span)


def grave(diagnosis: Diagnosis) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.severity is not Severity.INFO]


def finding_of(diagnosis: Diagnosis, cause: str) -> Finding | None:
    return next((finding for finding in diagnosis.findings if finding.cause == cause), None)


def without(scenario: str, tables: tuple[str, ...], directory: Path) -> Recording:
    """The recording of a scenario, as where these sources were missing."""
    target = directory / "-".join((scenario, *tables))
    shutil.copytree(HERE / scenario, target)
    for table in tables:
        for file in target.rglob(f"{table}.*"):
            file.unlink()
    return Recording.open(target)


def both(one: str, other: str, directory: Path) -> Recording:
    """Two scenarios at once on one node."""
    return joined(Recording.open(HERE / one), Recording.open(HERE / other), directory)


def joined(first: Recording, second: Recording, directory: Path) -> Recording:
    """Two recordings as one of a larger node: the cores of the second come after those of the first, and both begin in
    the same second."""
    cores = first.facts.cores
    facts = RecordingFacts(
        "node-2",
        first.facts.boot_id,
        cores + second.facts.cores,
        first.facts.kernel,
        first.facts.arch,
        first.facts.event_source,
        first.facts.rate_hz,
    )
    writer = SegmentWriter(directory / "both", facts, max_bytes=None, max_age_s=None, segment_s=3600)
    later = _begin(first) - _begin(second)
    tables = [table for table in TABLES if table != "anchors"]
    rows = {table: _rows(first, table, 0) + _rows(second, table, cores, later) for table in tables}
    rows["node"] = _added(_rows(first, "node", 0), _rows(second, "node", 0, later))
    for table in ("frames", "stacks"):
        writer.append(table, _columns(list({str(row): row for row in rows.pop(table)}.values())))
    span = first.span()
    start = min(row["time"] for row in rows["cpu"])
    offset = span.since - start
    for second_number in range(int(span.seconds) + 1):
        begin, end = start + second_number * NANOS, start + (second_number + 1) * NANOS
        for table, found in rows.items():
            now = [row for row in found if begin <= _moment(row) < end]
            if now:
                writer.append(table, _columns(now))
        writer.commit(Tick(second_number, begin, end, end + offset))
    writer.close()
    return Recording.open(directory / "both")


def _begin(recording: Recording) -> int:
    return min(recording.read("cpu").column("time").to_pylist())


def _rows(recording: Recording, table: str, cores: int, later: int = 0) -> list[dict[str, Any]]:
    rows = recording.read(table).to_pylist()
    for row in rows:
        row.pop("wall", None)
        if "time" in row:
            row["time"] += later
        if "time_ms" in row:
            row["time_ms"] += later // 1_000_000
        if cores and row.get("cpu") is not None:
            row["cpu"] += cores
        # Processes of two nodes share no numbers.
        for column in ("pid", "tid", "ppid"):
            if cores and row.get(column) and row[column] > 2:
                row[column] += 1_000_000
    return rows


def _added(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> list[dict[str, Any]]:
    added = []
    for left, right in zip(one, other, strict=False):
        row = dict(left)
        for name, value in right.items():
            mine = left.get(name)
            if name == "time" or value is None or mine is None:
                row[name] = mine if mine is not None or name == "time" else value
            else:
                row[name] = max(mine, value) if name.startswith(LEVELS) else mine + value
        added.append(row)
    return added


def _moment(row: dict[str, Any]) -> int:
    return row["time_ms"] * 1_000_000 if "time_ms" in row else row["time"]


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row.get(name) for row in rows] for name in rows[0]} if rows else {}

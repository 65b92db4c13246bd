"""Incidents of all nodes: a list, newest first, a histogram by hour, and the bundle of each incident."""

import os
import tempfile
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.errors import NoData
from exhume.present.fleet.lake import HOUR_MS, LakeHandle, day_of, micros
from exhume.present.fleet.params import LAST_MOMENT, BundlePathParams, HistogramParams, IncidentsParams
from exhume.present.fleet.roster import Places, Roster, column_of, days_of
from exhume.present.fleet.schemas import CauseCount, FleetHistogramShape, FleetIncident, FleetIncidentsShape
from exhume.present.web.params import Refusal
from exhume.present.web.schemas import Reply, json_reply
from exhume.store.read.bundle import SUFFIX

# All columns except the finding, which is read together with the bundle.
COLUMNS = (
    *("node", "id", "at", "until", "cause", "severity", "confidence", "core", "function", "process", "culprit"),
    *("leaker", "lost_core_s", "summary", "bundle"),
)
BUNDLES = "bundles"
_NUMBERS = ("confidence", "lost_core_s")
# Limits for fetching a bundle from an object store.
MAX_BUNDLE_BYTES, _PIECE = 512 << 20, 1 << 20


def histogram(handle: LakeHandle, params: HistogramParams) -> Reply:
    """The number of incidents that began in each hour."""
    counts: Counter[int] = Counter()
    for day in handle.days("incidents"):
        table = handle.incidents(day, COLUMNS)
        if table is not None:
            counts.update((_ms(table) // HOUR_MS * HOUR_MS).tolist())
    hours = sorted(counts)
    shape: FleetHistogramShape = {"hours": hours, "incidents": [counts[hour] for hour in hours]}
    return json_reply(shape)


def incidents(handle: LakeHandle, params: IncidentsParams) -> Reply:
    """The newest incidents first."""
    since = 0 if params.since is None else params.since
    until = LAST_MOMENT if params.until is None else params.until
    nodes = _selected_nodes(handle, params, until)
    found: list[FleetIncident] = []
    causes: Counter[str] = Counter()
    sick: dict[str, set[str]] = {}
    total = 0
    for day in reversed(handle.days("incidents")):
        if not day_of(since) <= day <= day_of(until):
            continue
        table = handle.incidents(day, COLUMNS)
        if table is None:
            continue
        begin = _ms(table)
        mask = (begin >= since) & (begin < until)
        if nodes is not None:
            mask &= pc.is_in(table.column("node"), value_set=pa.array(sorted(nodes), pa.string())).to_numpy()
        rows = table.filter(pa.array(mask))
        for cause, node in zip(*(_texts(rows, name) for name in ("cause", "node")), strict=True):
            causes[cause] += 1
            sick.setdefault(cause, set()).add(node)
        if params.cause is not None:
            rows = rows.filter(pc.equal(pc.fill_null(rows.column("cause"), ""), params.cause))
        total += rows.num_rows
        wanted = params.limit - len(found)
        if wanted > 0:
            newest = rows.take(np.argsort(-_ms(rows), kind="stable")[:wanted])
            found += [_incident(row) for row in newest.to_pylist()]
    counted: list[CauseCount] = [
        {"cause": cause, "incidents": count, "nodes": len(sick[cause])} for cause, count in causes.most_common()
    ]
    shape: FleetIncidentsShape = {"incidents": found, "total": total, "causes": counted}
    return json_reply(shape)


def _selected_nodes(handle: LakeHandle, params: IncidentsParams, until: int) -> set[str] | None:
    """The requested nodes; None for all."""
    if params.node is not None:
        return {params.node}
    if params.key is None:
        return None
    try:
        at = handle.hour_or_newest(None if params.until is None else max(0, until - 1))
    except NoData:
        return set()
    names = Roster.of(handle, at, handle.hour(at, [])).names
    column = column_of(days_of(handle, at, [params.key]).get(params.key, []), at, Places(names))
    wanted = column.values.index(params.value) + 1 if params.value in column.values else 0
    if wanted == 0 and params.value:
        return set()
    return {names[i] for i in np.flatnonzero(column.codes == wanted)}


def _incident(row: dict[str, Any]) -> FleetIncident:
    shape: Any = {name: row.get(name) for name in COLUMNS}
    for name in _NUMBERS:
        value = shape[name]
        shape[name] = None if value is None or not np.isfinite(value) else round(float(value), 4)
    for name in ("at", "until"):
        shape[name] = None if shape[name] is None else int(shape[name].timestamp() * 1000)
    shape["bundle"] = safe_bundle(row.get("bundle")) is not None
    incident: FleetIncident = shape
    return incident


def _ms(table: pa.Table) -> Any:
    return micros(table.column("at")) // 1000


def _texts(table: pa.Table, name: str) -> list[str]:
    if name not in table.column_names:
        return [""] * table.num_rows
    return [text or "" for text in table.column(name).to_pylist()]


def safe_bundle(path: str | None) -> PurePosixPath | None:
    """The path of a bundle in the lake; None if the path is not valid: rows come from nodes and are untrusted."""
    if not path or "\0" in path or not path.endswith(SUFFIX):
        return None
    parts = PurePosixPath(path).parts
    if parts[0] != BUNDLES or len(parts) != 3 or any(part in ("..", ".", "/") for part in parts):
        return None
    return PurePosixPath(*parts)


def bundle_path(handle: LakeHandle, params: BundlePathParams) -> Reply | tuple[str, bool]:
    """The bundle of an incident as a local file, and whether it was fetched, in which case the caller removes it."""
    for day in reversed(handle.days("incidents")):
        table = handle.incidents(day, COLUMNS)
        if table is None or "bundle" not in table.column_names:
            continue
        chosen = pc.and_(pc.equal(table.column("node"), params.node), pc.equal(table.column("id"), params.incident))
        for text in table.filter(chosen).column("bundle").to_pylist():
            path = safe_bundle(text)
            if path is not None:
                return _local(handle, path)
    raise Refusal(404, "this incident has no bundle in the lake: nodes send them with their incidents")


def _local(handle: LakeHandle, path: PurePosixPath) -> tuple[str, bool]:
    if isinstance(handle.lake, Path):
        lake = handle.lake.resolve()
        file = (lake / path).resolve()
        # A symlink in the lake must not lead outside it.
        if not file.is_relative_to(lake):
            raise Refusal(404, f"{path} is not a file of the lake")
        return str(file), False
    fd, target = tempfile.mkstemp(prefix="exhume-fetched-", suffix=SUFFIX)
    try:
        with os.fdopen(fd, "wb") as fetched, handle.open(str(path)) as source:
            size = 0
            while piece := source.read(_PIECE):
                size += len(piece)
                if size > MAX_BUNDLE_BYTES:
                    raise Refusal(413, f"{path} is larger than {MAX_BUNDLE_BYTES >> 20} MiB")
                fetched.write(piece)
    except (OSError, pa.ArrowException, Refusal) as error:
        Path(target).unlink(missing_ok=True)
        if isinstance(error, Refusal):
            raise
        raise Refusal(404, f"{path} can't be read: {error}") from None
    return target, True

"""Nodes: the lake as a whole, each node's values for an hour, node attributes, and details of one node."""

from collections.abc import Iterable, Sequence

import numpy as np

from exhume.present.fleet.lake import LakeHandle
from exhume.present.fleet.measures import MEASURES, Measure
from exhume.present.fleet.params import AttributesParams, CellsParams, HourParams, NodeParams
from exhume.present.fleet.roster import Column, Places, Roster, column_of, days_of
from exhume.present.fleet.schemas import (
    AttributeColumn,
    AttributesHeader,
    CellsHeader,
    FleetShape,
    MeasureShape,
    NodeSeries,
    NodeShape,
)
from exhume.present.web.params import QueryParams, Refusal
from exhume.present.web.schemas import Reply, framed, json_reply

VERSION = 1
# Columns sent without being requested, the most useful first, up to a byte limit. The others are read on request.
USUAL = (
    *("zone", "pool", "image", "kernel", "instance_type", "os", "bootstrap", "cgroup.version"),
    *("nic.driver", "nic.firmware"),
)
USUAL_PREFIXES = ("unit.", "label.", "nic.", "sysctl.", "container.")
MAX_COLUMN_BYTES = 1_500_000
# An attribute with more values than this is an identifier rather than a property; it is read only on request.
MAX_VALUES = 2_000


def fleet(handle: LakeHandle, params: QueryParams) -> Reply:
    """The lake as a whole."""
    shape: FleetShape = {
        "version": VERSION,
        "lake": str(handle.lake),
        "hours": handle.hours(),
        "measures": [_measure(measure) for measure in MEASURES],
        "damaged": [{"file": str(each.path), "reason": each.reason} for each in handle.damaged()],
    }
    return json_reply(shape)


def _measure(measure: Measure) -> MeasureShape:
    name, title, unit, fold, full, scale, hue = measure
    return {"name": name, "title": title, "unit": unit, "fold": fold, "full": full, "scale": scale, "hue": hue}


def cells(handle: LakeHandle, params: CellsParams) -> Reply:
    """One value per node and measure for an hour."""
    names = params.names
    at = handle.hour_or_newest(params.at)
    hour = handle.hour(at, names)
    roster = Roster.of(handle, at, hour)
    header: CellsHeader = {
        "at": at,
        "roster": roster.fingerprint,
        "nodes": len(roster.names),
        "names": None if params.known == roster.fingerprint else roster.names,
        "measures": names,
        "silent": roster.silent,
        "damaged": len(handle.damaged()),
    }
    arrays = []
    for name in names:
        values = np.full(len(roster.names), np.nan, np.float32)
        values[roster.places] = hour.values[name]
        arrays.append(values.tobytes())
    return framed(header, *arrays)


def attributes(handle: LakeHandle, params: AttributesParams) -> Reply:
    """The attributes of each node at the end of an hour: the requested ones, or by default the usual ones."""
    at, roster = _roster(handle, params)
    days = days_of(handle, at, list(params.keys) or None)
    keys = params.keys or _usual_first(days)
    places = Places(roster.names)
    columns: list[AttributeColumn] = []
    arrays: list[bytes] = []
    size = 0
    for key in keys:
        column = column_of(days.get(key, []), at, places)
        if not params.keys and (len(column.values) > MAX_VALUES or size > MAX_COLUMN_BYTES):
            continue
        packed, width = _packed(column)
        columns.append({"key": key, "values": column.values, "width": width, "offset": size})
        arrays.append(packed)
        size += len(packed)
    header: AttributesHeader = {
        "at": at,
        "roster": roster.fingerprint,
        "nodes": len(roster.names),
        "columns": columns,
        "keys": [] if params.keys else sorted(days),
    }
    return framed(header, *arrays)


def _roster(handle: LakeHandle, params: HourParams) -> tuple[int, Roster]:
    at = handle.hour_or_newest(params.at)
    return at, Roster.of(handle, at, handle.hour(at, []))


def _usual_first(keys: Iterable[str]) -> list[str]:
    def rank(key: str) -> tuple[int, str]:
        if key in USUAL:
            return USUAL.index(key), key
        return len(USUAL) + (not key.startswith(USUAL_PREFIXES)), key

    return sorted(keys, key=rank)


def _packed(column: Column) -> tuple[bytes, int]:
    """The codes in the narrowest integer type, padded so that the next array is aligned."""
    if len(column.values) == 1 and column.codes.all():
        return b"", 0
    width = 1 if len(column.values) < 256 else 2 if len(column.values) < 65_536 else 4
    data = column.codes.astype(f"<u{width}").tobytes()
    return data + bytes(-len(data) % 4), width


def node(handle: LakeHandle, params: NodeParams) -> Reply:
    """One node: its minutes within an hour, and its attributes at the end of that hour."""
    at = handle.hour_or_newest(params.at)
    rows = handle.minutes(at, params.name, [measure.name for measure in MEASURES])
    days = days_of(handle, at, None)
    places = Places([params.name])
    columns = {key: column_of(each, at, places) for key, each in days.items()}
    known = {key: column.values[0] for key, column in columns.items() if column.values}
    if rows is None and not known:
        raise Refusal(404, f"nothing is known of a node {params.name[:100]!r} in this hour")
    there = [] if rows is None else [measure.name for measure in MEASURES if measure.name in rows.column_names]
    series: list[NodeSeries] = [
        {"measure": name, "values": _floats(rows.column(name).to_pylist())} for name in there if rows is not None
    ]
    times = [] if rows is None else [int(each.timestamp()) * 1000 for each in rows.column("minute").to_pylist()]
    shape: NodeShape = {
        "node": params.name,
        "at": at,
        "minutes": times,
        "series": series,
        "attributes": dict(sorted(known.items())),
    }
    return json_reply(shape)


def _floats(values: Sequence[float | int | None]) -> list[float | None]:
    return [None if value is None or not np.isfinite(value) else round(float(value), 4) for value in values]

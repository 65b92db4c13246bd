"""Flame graphs, their files, and sub-second offsets."""

from dataclasses import dataclass, replace

import numpy as np

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.present.flame import largest_changes
from exhume.present.web.flame_view import apply_view, prune
from exhume.present.web.handle import RecordingHandle
from exhume.present.web.params import MAX_CORES, BaselineParams, ExportParams, FlameParams, SubsecondParams
from exhume.present.web.query import BoundQuery, ms, window_of
from exhume.present.web.reply import Refusal, Reply, framed, with_columns
from exhume.store.read.flame_tree import NODE_STATES, FlameTree, build_tree
from exhume.store.read.profile import StackProfile
from exhume.store.read.samples import moments_of_samples

BEFORE_S = 60
MAX_COLUMNS = 20_000
MAX_SUBSECOND_SAMPLES = 30_000_000


@dataclass(frozen=True, slots=True)
class _Sides:
    """The profile of the query, and the one that it is compared with."""

    current: StackProfile
    reference: StackProfile | None = None
    base: Window | None = None
    label: str = ""


def flame(handle: RecordingHandle, params: FlameParams) -> Reply:
    """The stacks of a time and cores as one tree; with a baseline, both sides in the same tree."""
    query = BoundQuery.of(handle, params)
    sides = _sides(query, params)
    pruned = prune(build_tree(sides.current, sides.reference), params.least)
    return _flame_reply(query, sides, pruned.tree, pruned.dropped)


def export(handle: RecordingHandle, params: ExportParams) -> Reply:
    """The same flame graph as a file for other tools, as the page shows it."""
    # Loaded with the first export: the first view does not wait for it.
    from exhume.present.web.exports import render

    query = BoundQuery.of(handle, params)
    sides = _sides(query, params)
    tree = apply_view(build_tree(sides.current, sides.reference), params.root, params.hide)
    return render(params.form, query, tree, sides.base, sides.current)


def _sides(query: BoundQuery, params: BaselineParams) -> _Sides:
    recording, window, wanted = query.recording, query.window, query.filter
    query.check_samples("a flame graph sums every sample")
    current = recording.profile(window, wanted)
    if params.baseline == "none":
        return _Sides(current)
    if params.baseline == "before":
        span = query.handle.span()
        base = Window(window.since - max(BEFORE_S * NANOS, window.nanos), window.since).clamp(span)
        return _Sides(current, recording.profile(base, wanted), base, "the same cores before")
    if params.baseline == "others":
        # Without a selection of cores there are no other ones: nothing to compare with, and the page says so.
        # Numbers of cores need neither begin at 0 nor be consecutive.
        others = frozenset() if query.cpus is None else frozenset(range(MAX_CORES)) - query.cpus
        return _Sides(current, recording.profile(window, replace(wanted, cpus=others)), window, "the other cores")
    base = window_of(query.handle, params.base_since, params.base_until)
    return _Sides(current, recording.profile(base, wanted), base, "the selected baseline window")


def _flame_reply(query: BoundQuery, sides: _Sides, tree: FlameTree, dropped: int) -> Reply:
    base = sides.base
    spots = [*sides.current.blind_spots, *(sides.reference.blind_spots if sides.reference else [])]
    fields = {
        "since": ms(query.window.since),
        "until": ms(query.window.until),
        "base_since": ms(base.since) if base else None,
        "base_until": ms(base.until) if base else None,
        "baseline": sides.label,
        "differential": tree.differential,
        "samples": int(tree.samples[0]),
        "weight_us": int(tree.weight[0]),
        "base_samples": int(tree.base_samples[0]),
        "base_weight_us": int(tree.base_weight[0]),
        "blind_spots": list(dict.fromkeys(spots)),
        "states": list(NODE_STATES),
        "labels": {"name": tree.labels.names, "module": tree.labels.modules, "kind": tree.labels.kinds},
        "dropped": dropped,
        "changes": largest_changes(tree, 5),
    }
    columns = {
        "label": tree.label,
        "parent": tree.parent,
        "weight": tree.weight,
        "samples_of": tree.samples,
        "base_weight": tree.base_weight if tree.differential else tree.base_weight[:0],
        "state": tree.state,
    }
    return with_columns(fields, columns)


def subsecond(handle: RecordingHandle, params: SubsecondParams) -> Reply:
    """Samples by their offset in the second (or longer column), column after column. Columns begin at multiples of
    their length; what is before `from` is not part of the window."""
    query = BoundQuery.of(handle, params)
    window, column_ms, rows = query.window, params.column_ms, params.rows
    column = column_ms * MILLIS
    first = window.since // column * column
    columns = 0 if window.empty else -(-(window.until - first) // column)
    if columns > MAX_COLUMNS:
        raise Refusal(
            413, f"this time has {columns:,} columns of {column_ms} ms; choose a shorter one, or wider columns"
        )
    query.check_samples("offsets read every sample", MAX_SUBSECOND_SAMPLES)
    found = moments_of_samples(query.recording.samples(window, query.filter, ["cpu", "weight_us"]))
    since = found.walls - first
    place = since // column * rows + since % column * rows // column
    counts = np.bincount(place, minlength=columns * rows)[: columns * rows].astype(np.uint32)
    header = {
        "since": ms(first),
        "from": ms(window.since),
        "until": ms(window.until),
        "column_ms": column_ms,
        "rows": rows,
        "columns": columns,
        "most": int(counts.max(initial=0)),
        "samples": len(found.walls),
    }
    return framed(header, counts)

"""Flame graphs, their export as files, and sub-second offsets."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.model.times import format_moment
from exhume.present.flame import FlameCaption, largest_changes
from exhume.present.html.flame import flame_fields, flame_report, only, thin_out
from exhume.present.web.handle import BoundQuery, RecordingHandle, ms
from exhume.present.web.params import (
    MAX_CORES,
    BaselineParams,
    ExportParams,
    FlameParams,
    Format,
    Refusal,
    SubsecondParams,
)
from exhume.present.web.schemas import Reply, SubsecondHeader, framed
from exhume.store.read.flame_tree import FlameTree, Ints, build_tree
from exhume.store.read.profile import IN_KERNEL, StackProfile

BEFORE_S = 60
MAX_COLUMNS = 20_000
MAX_SUBSECOND_SAMPLES = 30_000_000
# File suffix and media type of each format.
FORMATS: dict[Format, tuple[str, str]] = {
    "folded": ("folded.txt", "text/plain; charset=utf-8"),
    "pprof": ("pb.gz", "application/gzip"),
    "speedscope": ("speedscope.json", "application/json"),
    "svg": ("svg", "image/svg+xml"),
    "html": ("html", "text/html; charset=utf-8"),
}
# Created once: for each scalar made from a Python string, pyarrow imports pandas' date types if pandas is installed.
_COMMA = pa.scalar(",", pa.string())

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Sides:
    """The profile of the query, and the profile it is compared with."""

    current: StackProfile
    reference: StackProfile | None = None
    base: Window | None = None
    label: str = ""


def flame(handle: RecordingHandle, params: FlameParams) -> Reply:
    """The stacks of a window and cores as one tree; with a baseline, both sides are in the same tree."""
    query = BoundQuery.of(handle, params)
    sides = _sides(query, params)
    whole = build_tree(sides.current, sides.reference)
    # A child is never wider than its parent, so the kept nodes form a tree.
    kept = whole.width >= params.least
    kept[0] = True
    thinned = thin_out(whole, kept)
    tree = thinned.tree
    spots = [*sides.current.blind_spots, *(sides.reference.blind_spots if sides.reference else [])]
    fields = {
        **flame_fields(tree, query.window, sides.base),
        "baseline": sides.label,
        "blind_spots": list(dict.fromkeys(spots)),
        "labels": thinned.labels,
        "dropped": len(whole) - len(tree),
        "changes": largest_changes(whole, 5),
    }
    parts = [json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")[:-1]]
    # Arrow formats integers several times faster than the json module.
    for name, values in thinned.columns.items():
        texts = pa.array(values).cast(pa.string())
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(texts)], texts), _COMMA)[0]
        parts += [b',"', name.encode(), b'":[', joined.as_buffer().to_pybytes(), b"]"]
    return Reply(b"".join([*parts, b"}"]))


def _sides(query: BoundQuery, params: BaselineParams) -> _Sides:
    recording, window, wanted = query.recording, query.window, query.filter
    query.check_samples("a flame graph sums every sample")
    current = recording.profile(window, wanted)
    if params.baseline == "none":
        return _Sides(current)
    if params.baseline == "before":
        before = Window(window.since - max(BEFORE_S * NANOS, window.nanos), window.since)
        base, label = before.clamp(query.handle.span()), "the same cores before"
    elif params.baseline == "others":
        # Without a selection of cores there are no others to compare with, and the page says so. Core numbers need
        # neither begin at 0 nor be consecutive.
        others = frozenset() if query.cpus is None else frozenset(range(MAX_CORES)) - query.cpus
        base, label, wanted = window, "the other cores", replace(wanted, cpus=others)
    elif params.baseline == "other":
        # The other recording has other container ids.
        other = BoundQuery.of(query.handle.other(), params)
        base = other.handle.window(params.base_since, params.base_until)
        label = f"the recording of {other.recording.facts.node}"
        return _Sides(current, other.recording.profile(base, other.filter), base, label)
    else:
        base, label = query.handle.window(params.base_since, params.base_until), "the selected baseline window"
    return _Sides(current, recording.profile(base, wanted), base, label)


def export(handle: RecordingHandle, params: ExportParams) -> Reply:
    """The flame graph as a file, named after node and time: for people (SVG, HTML) and for other tools."""
    # Imported with the first export, so that the first view does not wait for it.
    from exhume.interop.folded import render_folded
    from exhume.interop.pprof import render_pprof
    from exhume.interop.speedscope import render_speedscope
    from exhume.present.flame import render_svg

    query = BoundQuery.of(handle, params)
    sides = _sides(query, params)
    tree = _apply_view(build_tree(sides.current, sides.reference), params.root, params.hide)
    node, window = query.recording.facts.node, query.window
    content: str | bytes
    if params.form == "pprof":
        content = render_pprof(tree, window)
    elif params.form == "speedscope":
        content = render_speedscope(tree, f"{node} {_shown(window)}")
    elif params.form == "folded":
        content = render_folded(tree)
    else:
        caption = FlameCaption(
            title=f"{node} · CPU flame graph",
            window=_shown(window),
            baseline=_shown(sides.base) if sides.base else "",
            filters=_filters(query),
            blind_spots=sides.current.blind_spots,
        )
        svg = params.form == "svg"
        content = render_svg(tree, caption, up=params.up == 1) if svg else flame_report(tree, caption)
    ending, media = FORMATS[params.form]
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in node) or "node"
    name = f"exhume-{safe}-{format_moment(window.since, UTC, digits=0).replace(':', '')}.{ending}"
    body = content if isinstance(content, bytes) else content.encode("utf-8", "replace")
    return Reply(body, media, headers={"content-disposition": f'attachment; filename="{name}"'})


def _shown(window: Window) -> str:
    return f"{format_moment(window.since, UTC)} to {format_moment(window.until, UTC)}"


def _filters(query: BoundQuery) -> list[str]:
    wanted = query.filter
    named = {
        "core": ",".join(map(str, sorted(query.cpus))) if query.cpus is not None else None,
        "thread": wanted.comm,
        "pid": wanted.pid,
        "container": wanted.container,
        "pod": wanted.pod,
        "stacks matching": wanted.stack_regex,
        "in": wanted.leaf,
    }
    return [f"{label} {value}" for label, value in named.items() if value is not None]


def _apply_view(tree: FlameTree, root: Sequence[str], hide: Sequence[str]) -> FlameTree:
    """Apply the page's view to a tree: hidden frames are removed with all their callees, and their callers shrink
    accordingly; the names in `root` are followed, as far as they match, to the frame that fills the width."""
    if hide:
        names = set(hide)
        hidden = np.array([name in names for name in tree.labels.names], np.bool_)[tree.label]
        hidden[0] = False
        tree = _left(tree, ~_below(tree, hidden))
    node = 0
    for name in root:
        children = np.flatnonzero(tree.parent == node)
        found = [child for child in children.tolist() if child and tree.name(child) == name]
        if not found:
            break
        node = max(found, key=lambda child: float(tree.width[child]))
    return _left(tree, _below(tree, np.arange(len(tree)) == node)) if node else tree


def _below(tree: FlameTree, marked: Mask) -> Mask:
    """The marked nodes and their descendants."""
    found = marked.copy()
    for start, stop in tree.levels[1:]:
        found[start:stop] |= found[tree.parent[start:stop]]
    return found


def _left(tree: FlameTree, kept: Mask) -> FlameTree:
    """The tree with only the own time of the kept nodes, without nodes that have no time left."""

    def left(inclusive: Ints) -> Ints:
        own = inclusive.copy()
        np.subtract.at(own, tree.parent[1:], inclusive[1:])
        total: Ints = np.where(kept, own, 0)
        for start, stop in reversed(tree.levels[1:]):
            np.add.at(total, tree.parent[start:stop], total[start:stop])
        return total

    weight, samples, base_weight, base_samples = map(
        left, (tree.weight, tree.samples, tree.base_weight, tree.base_samples)
    )
    smaller = replace(tree, weight=weight, samples=samples, base_weight=base_weight, base_samples=base_samples)
    alive = (smaller.weight > 0) | (smaller.base_weight > 0)
    alive[0] = True
    return only(smaller, alive)


def subsecond(handle: RecordingHandle, params: SubsecondParams) -> Reply:
    """Samples by their offset within the second (or longer column), column after column, followed by the kernel
    samples among them. Columns begin at multiples of their length; data before `from` is not part of the window."""
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
    parts = [(np.zeros(0, np.int64), np.zeros(0, np.bool_))]
    for name, samples in query.recording.samples(window, query.filter, [IN_KERNEL]):
        since = samples.column("time_ms").to_numpy() * MILLIS + name.offset - first
        place = since // column * rows + since % column * rows // column
        parts.append((place, samples.column(IN_KERNEL).to_numpy()))
    places, in_kernel = (np.concatenate(values) for values in zip(*parts, strict=True))
    size = columns * rows
    counts, kernel = (
        np.bincount(some, minlength=size)[:size].astype(np.uint32) for some in (places, places[in_kernel])
    )
    header: SubsecondHeader = {
        "since": ms(first),
        "from": ms(window.since),
        "until": ms(window.until),
        "column_ms": column_ms,
        "rows": rows,
        "columns": columns,
        "most": int(counts.max(initial=0)),
        "samples": len(places),
    }
    return framed(header, counts.tobytes(), kernel.tobytes())

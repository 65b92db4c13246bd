"""What ran, worked out: flame graphs, files of them, sub-second offsets, processes."""

from dataclasses import dataclass, replace
from pathlib import Path as FilePath

import numpy as np
from starlette.responses import Response

from exhume.model.clock import MILLIS, NANOS
from exhume.model.window import Window
from exhume.present.differential import largest_changes
from exhume.present.flame import NODE_STATES, FlameTree, build_tree
from exhume.present.web.asked import MOST_CORES, Asked, Asking, ms, refuse, window_of
from exhume.present.web.exports import render
from exhume.present.web.framed import framed, modelled, with_columns
from exhume.present.web.limits import check_samples
from exhume.present.web.opened import opened_at
from exhume.present.web.running import who_ran
from exhume.present.web.seen import as_seen
from exhume.present.web.thinning import thinned
from exhume.store.read.profile import StackProfile
from exhume.store.read.samples import moments_of_samples

BEFORE_S = 60
MOST_COLUMNS = 20_000
MOST_SUBSECOND_SAMPLES = 30_000_000
EVERY_CORE = frozenset(range(MOST_CORES))


@dataclass(frozen=True, slots=True)
class Against:
    """What a flame graph is held against."""

    baseline: str
    since: int | None
    until: int | None


def flame(directory: FilePath, asking: Asking, against: Against, least: float) -> Response:
    question = asking.of(opened_at(directory))
    sides = _sides(question, against)
    tree = build_tree(sides.current, sides.reference)
    kept = thinned(tree, least)
    return Response(_flame_json(question, sides, kept.tree, kept.dropped), media_type="application/json")


class _Sides:
    """The profile asked for, and the one that it is held against."""

    def __init__(self, current: StackProfile, reference: StackProfile | None, base: Window | None, words: str) -> None:
        self.current = current
        self.reference = reference
        self.base = base
        self.words = words


def _sides(question: Asked, against: Against) -> _Sides:
    baseline = against.baseline
    recording, window, wanted = question.recording, question.window, question.wanted
    check_samples(recording, window, "a flame graph adds up every sample")
    current = recording.profile(window, wanted)
    if baseline == "none":
        return _Sides(current, None, None, "")
    span = question.opened.span()
    if baseline == "before":
        base = Window(window.since - max(BEFORE_S * NANOS, window.nanos), window.since).clamp(span)
        return _Sides(current, recording.profile(base, wanted), base, "the same cores before")
    if baseline == "others":
        # Without a selection of cores there are no other ones: nothing to compare with, and the page says so.
        # Cores are whatever numbers were sampled: those of a node need not begin at 0, nor follow each other.
        others = frozenset() if question.cpus is None else EVERY_CORE - question.cpus
        reference = recording.profile(window, replace(wanted, cpus=others))
        return _Sides(current, reference, window, "the other cores")
    base = window_of(question.opened, against.since, against.until)
    return _Sides(current, recording.profile(base, wanted), base, "the window picked by hand")


def _flame_json(question: Asked, sides: _Sides, tree: FlameTree, dropped: int) -> bytes:
    base = sides.base
    spots = [*sides.current.blind_spots, *(sides.reference.blind_spots if sides.reference else [])]
    words = {
        "since": ms(question.window.since),
        "until": ms(question.window.until),
        "base_since": ms(base.since) if base else None,
        "base_until": ms(base.until) if base else None,
        "baseline": sides.words,
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
    return with_columns(words, columns)


def export(  # noqa: PLR0917
    directory: FilePath, asking: Asking, against: Against, form: str, root: tuple[str, ...], hide: tuple[str, ...]
) -> Response:
    question = asking.of(opened_at(directory))
    sides = _sides(question, against)
    tree = as_seen(build_tree(sides.current, sides.reference), root, hide)
    return render(form, question, tree, sides.base, sides.current)


def subsecond(directory: FilePath, asking: Asking, column_ms: int, rows: int) -> Response:
    question = asking.of(opened_at(directory))
    window = question.window
    column = column_ms * MILLIS
    first = window.since // column * column
    columns = 0 if window.empty else -(-(window.until - first) // column)
    if columns > MOST_COLUMNS:
        raise refuse(
            413, f"this time has {columns:,} columns of {column_ms} ms; choose a shorter one, or wider columns"
        )
    check_samples(question.recording, window, "offsets look at every sample", MOST_SUBSECOND_SAMPLES)
    found = moments_of_samples(question.recording.selected(window, question.wanted, ["cpu", "weight_us"]))
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


def processes(directory: FilePath, asking: Asking, limit: int) -> Response:
    question = asking.of(opened_at(directory))
    check_samples(question.recording, question.window, "ranking looks at every sample")
    names = question.opened.container_names
    return modelled(who_ran(question.recording, question.window, question.wanted, limit, names))

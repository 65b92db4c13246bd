"""What ran: flame graphs, sub-second offsets, processes, and when a frame was on a core."""

from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Path, Query, Request
from pydantic import StringConstraints
from starlette.responses import Response

from exhume.model.clock import MILLIS, NANOS
from exhume.model.window import Window
from exhume.present.differential import largest_changes
from exhume.present.flame import NODE_STATES, FlameTree, build_tree
from exhume.present.web.answering import Answering
from exhume.present.web.asking import (
    MOST_CORES,
    Answers,
    Asked,
    Asking,
    Cells,
    Moment,
    Question,
    Text,
    ms,
    refuse,
    window_of,
)
from exhume.present.web.exports import FORMATS, render
from exhume.present.web.framed import framed, modelled, with_columns
from exhume.present.web.limits import check_samples
from exhume.present.web.opened import opened_at
from exhume.present.web.routes_timeline import FRAMED, PROBLEMS, heatmap_of
from exhume.present.web.running import who_ran
from exhume.present.web.seen import as_seen
from exhume.present.web.shapes import FlameShape, ProcessesShape
from exhume.present.web.thinning import thinned
from exhume.store.profile import StackProfile
from exhume.store.selected import moments_of_samples

router = APIRouter(tags=["stacks"], responses=PROBLEMS)
BEFORE_S = 60
MOST_COLUMNS = 20_000
MOST_SUBSECOND_SAMPLES = 30_000_000
EVERY_CORE = frozenset(range(MOST_CORES))
BASELINES = "^(none|before|others|window)$"

FILES: dict[int | str, dict[str, Any]] = {
    200: {"description": "a file", "content": {media.partition(";")[0]: {} for _, media in FORMATS.values()}}
}

Baseline = Annotated[
    str,
    Query(
        pattern=BASELINES,
        description="before: the same cores earlier; others: the other cores; window: base_since to base_until",
    ),
]
Frame = Annotated[str, StringConstraints(max_length=4000)]
Least = Annotated[float, Query(ge=0, le=1, description="thinner frames are left out: a part of the whole")]


@router.get("/flame", responses={200: {"model": FlameShape}}, response_class=Response)
async def flame(  # noqa: PLR0917
    request: Request,
    answers: Answers,
    question: Question,
    baseline: Baseline = "none",
    base_since: Moment = None,
    base_until: Moment = None,
    least: Least = 1 / 20_000,
) -> Response:
    """The stacks of a time and cores as one tree; with a baseline, both sides in the same tree."""
    against = _Against(baseline, base_since, base_until)
    return await answers.apart(request, _flame, question, against, least, long=_long(question, answers))


@dataclass(frozen=True, slots=True)
class _Against:
    """What a flame graph is held against."""

    baseline: str
    since: int | None
    until: int | None


def _flame(directory: FilePath, asking: Asking, against: _Against, least: float) -> Response:
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


def _sides(question: Asked, against: _Against) -> _Sides:
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


@router.get("/export/{form}", responses=FILES, response_class=Response)
async def export(  # noqa: PLR0917
    request: Request,
    answers: Answers,
    question: Question,
    form: Annotated[str, Path(pattern=f"^({'|'.join(FORMATS)})$")],
    baseline: Baseline = "none",
    base_since: Moment = None,
    base_until: Moment = None,
    root: Annotated[list[Frame], Query(max_length=500, description="frames that lead to the one to begin at")] = [],  # noqa: B006
    hide: Annotated[list[Frame], Query(max_length=100, description="frames to leave out, with what they call")] = [],  # noqa: B006
) -> Response:
    """The same flame graph as a file for other tools, as it is seen on the page."""
    against = _Against(baseline, base_since, base_until)
    long = _long(question, answers)
    return await answers.apart(request, _export, question, against, form, tuple(root), tuple(hide), long=long)


def _export(  # noqa: PLR0917
    directory: FilePath, asking: Asking, against: _Against, form: str, root: tuple[str, ...], hide: tuple[str, ...]
) -> Response:
    question = asking.of(opened_at(directory))
    sides = _sides(question, against)
    tree = as_seen(build_tree(sides.current, sides.reference), root, hide)
    return render(form, question, tree, sides.base, sides.current)


@router.get("/subsecond", responses=FRAMED, response_class=Response)
async def subsecond(
    request: Request,
    answers: Answers,
    question: Question,
    column_ms: Annotated[int, Query(ge=100, le=60_000, description="milliseconds of a column")] = 1000,
    rows: Annotated[int, Query(ge=1, le=1000, description="parts that a column is divided into")] = 50,
) -> Response:
    """Samples by when in their second (or longer column) they were taken: column after column, its beginning first.
    Columns begin at whole ones of the clock, the first at `since`; what is before `from` was not asked for."""
    return await answers.apart(request, _subsecond, question, column_ms, rows, long=_long(question, answers))


def _subsecond(directory: FilePath, asking: Asking, column_ms: int, rows: int) -> Response:
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


@router.get("/processes", responses={200: {"model": ProcessesShape}}, response_class=Response)
async def processes(
    request: Request, answers: Answers, question: Question, limit: Annotated[int, Query(ge=1, le=1000)] = 100
) -> Response:
    """Who ran, the most first, with the cores that they ran on; and the same for containers."""
    return await answers.apart(request, _processes, question, limit, long=_long(question, answers))


def _processes(directory: FilePath, asking: Asking, limit: int) -> Response:
    question = asking.of(opened_at(directory))
    check_samples(question.recording, question.window, "ranking looks at every sample")
    names = question.opened.container_names
    return modelled(who_ran(question.recording, question.window, question.wanted, limit, names))


@router.get("/frame-times", responses=FRAMED, response_class=Response)
async def frame_times(  # noqa: PLR0917
    request: Request,
    answers: Answers,
    question: Question,
    name: Annotated[str, Query(max_length=4000)],
    module: Text = None,
    kind_of_frame: Annotated[str, Query(pattern="^(kernel|user|jit|comm|)$")] = "kernel",
    cells: Cells = 1000,
) -> Response:
    """When a frame was on a core: the part of each core's time in stacks that hold it, as in /api/cores."""
    if kind_of_frame == "comm":
        wanted = replace(question.wanted, comm=name)
    else:
        wanted = replace(question.wanted, frame=(kind_of_frame, module or "", name))
    return await heatmap_of(request, answers, replace(question, wanted=wanted), cells, "busy")


def _long(question: Asking, answers: Answering) -> bool:
    return answers.is_long(question.since, question.until)

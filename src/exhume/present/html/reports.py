"""Single-file HTML reports: of a diagnosis (findings, cores over time, events, and stacks compared with the baseline)
and of a verified fix."""

import base64
import re
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

import numpy as np
import numpy.typing as npt

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.model.finding import Diagnosis
from exhume.model.remedy import Measure, Stretch, Verified
from exhume.model.tables import INCIDENT, KERNEL_STATES
from exhume.model.times import format_clock, format_moment
from exhume.present.cause_pages import cause_page
from exhume.present.cores import Axis, axis_for, grid_on
from exhume.present.diagnosis_view import diagnosis_json, focus_text, span_text
from exhume.present.events_view import visible
from exhume.present.flame import FlameCaption
from exhume.present.html.flame import flame_data, render
from exhume.present.verify_view import format_expected, format_stretch, format_stretch_value, sentence, title, verdict
from exhume.remedy.verify.measures import MEASURES, Kind, Series, format_value
from exhume.remedy.verify.proof import Proof
from exhume.store.read.core_grid import CELL_STATES, GAP, CoreGrid, weights_of
from exhume.store.read.flame_tree import build_tree
from exhume.store.read.profile import ProfileFilter
from exhume.store.read.recording import Recording

# A report shows an incident: of a longer window, only the part around the focus is drawn.
MAX_NS = 1800 * NANOS
MAX_CELLS = 600
MAX_EVENTS = 200
# A cell is encoded in two bytes: permille, with one value reserved for cells without data.
_FULL, _UNRECORDED = 1000, 65_535


def diagnosis_report(recording: Recording, diagnosis: Diagnosis, zone: tzinfo | None) -> str:
    """A diagnosis as one HTML file."""
    return render("diagnosis", diagnosis_data(recording, diagnosis, zone))


def diagnosis_data(recording: Recording, diagnosis: Diagnosis, zone: tzinfo | None) -> dict[str, Any]:
    """The data of the report: the diagnosis, and what the recording holds around it."""
    shown = _shown(recording, diagnosis)
    axis = axis_for(shown, MAX_CELLS)
    grid = grid_on(axis, "busy", recording.cores)
    events = [event for event in recording.events(shown) if event.severity != "info" or event.kind == INCIDENT]
    offset = datetime.fromtimestamp(shown.since // NANOS, UTC).astimezone(zone).utcoffset()
    data: dict[str, Any] = {
        "title": f"{diagnosis.node}: {diagnosis.verdict}",
        # Offset of the time zone from UTC.
        "offset_ms": 0 if offset is None else int(offset.total_seconds()) * 1000,
        "diagnosis": diagnosis_json(diagnosis, zone, millis=True),
        "events": [
            {"at_ms": each.wall // MILLIS, "kind": each.kind, "severity": each.severity, "text": each.text}
            for each in events[:MAX_EVENTS]
        ],
    }
    return {
        **_printable(data),
        "window": focus_text(diagnosis, zone),
        "cause_pages": {each.cause: _unlinked(page) for each in diagnosis.findings if (page := cause_page(each.cause))},
        "cores": _packed(grid) if grid.cpus else None,
        "kernel": _kernel(recording, axis),
        "events_left_out": max(0, len(events) - MAX_EVENTS),
        **_flame(recording, diagnosis, zone),
    }


def _unlinked(page: str) -> str:
    """A cause's page without web links and without the list of links at its end: a report must not contain URLs."""
    return re.sub(r"\[([^\]]+)\]\(https?://[^)]*\)", r"\1", page.partition("\n## Where it was seen")[0])


def _shown(recording: Recording, diagnosis: Diagnosis) -> Window:
    """The window together with its baseline, or as much of it as is worth drawing."""
    since, until = diagnosis.window
    if diagnosis.baseline[1] > diagnosis.baseline[0]:
        since, until = min(since, diagnosis.baseline[0]), max(until, diagnosis.baseline[1])
    if until - since > MAX_NS:
        middle = (diagnosis.focus[0] + diagnosis.focus[1]) // 2
        since, until = max(since, middle - MAX_NS // 2), min(until, middle + MAX_NS // 2)
    shown = Window(since, until)
    return shown.clamp(recording.span() or shown)


def _packed(grid: CoreGrid) -> dict[str, Any]:
    return {
        "since": grid.window.since // MILLIS,
        "until": grid.window.until // MILLIS,
        "cells": grid.cells,
        "cpus": grid.cpus,
        "measure": grid.measure,
        "full": _FULL,
        "unrecorded": _UNRECORDED,
        "states": list(CELL_STATES),
        "weights": weights_of(grid.measure),
        "values": _base64(np.where(grid.values == GAP, _UNRECORDED, grid.values), "<u2"),
        "dominant": _base64(np.maximum(grid.dominant, 0), "u1"),
    }


def _base64(cells: npt.NDArray[Any], numbers: str) -> str:
    return base64.b64encode(cells.astype(numbers).tobytes()).decode()


def _kernel(recording: Recording, axis: Axis) -> dict[str, list[int]]:
    """For each cell, the kernel's share of the worst core, and that core."""
    rows = recording.read("cpu", axis.window, ["cpu", *KERNEL_STATES, "wall"])
    worst = np.full(axis.cells, -1, np.int64)
    if rows.num_rows:
        kernel = np.sum([rows.column(state).to_numpy().astype(np.int64) for state in KERNEL_STATES], axis=0)
        cells = np.clip((rows.column("wall").to_numpy() - axis.since) // axis.cell_nanos, 0, axis.cells - 1)
        # The core is packed into the low bits, so that one maximum finds both.
        np.maximum.at(worst, cells, (np.minimum(kernel, 1000) << 16) + rows.column("cpu").to_numpy())
    known = worst >= 0
    return {
        "permille": np.where(known, worst >> 16, -1).tolist(),
        "cpus": np.where(known, worst & 0xFFFF, 0).tolist(),
    }


def _flame(recording: Recording, diagnosis: Diagnosis, zone: tzinfo | None) -> dict[str, Any]:
    """The flame graph that compares focus and baseline, on the core of the first finding that names one."""
    core = next((f.culprit.cpu for f in diagnosis.findings if f.culprit.cpu is not None), None)
    matching = ProfileFilter(cpus=None if core is None else {core})
    focus, baseline = Window(*diagnosis.focus), Window(*diagnosis.baseline)
    current = recording.profile(focus, matching)
    if not current.samples:
        return {"flame": None, "flame_core": core, "no_flame": "no stacks were sampled in this time"}
    before = None if baseline.empty else recording.profile(baseline, matching)
    # Without baseline samples there is no comparison: everything would seem to have grown.
    if before is not None and not before.samples:
        before = None
    caption = FlameCaption(
        title=diagnosis.node,
        window=span_text(focus, zone),
        baseline=span_text(baseline, zone),
        blind_spots=current.blind_spots,
    )
    tree = build_tree(current, before)
    data = flame_data(tree, caption, focus, None if before is None else baseline)
    return {"flame": data, "flame_core": core, "no_flame": ""}


def _printable(data: Any) -> Any:
    """The data with control characters escaped in every string."""
    if isinstance(data, str):
        return visible(data)
    if isinstance(data, dict):
        return {name: _printable(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_printable(value) for value in data]
    return data


# With more values than this, each drawn point is the worst of several neighbours.
MAX_POINTS = 300


def verify_report(proof: Proof, zone: tzinfo | None) -> str:
    """The verification of a fix as one HTML file."""
    return render("verify", verify_data(proof, zone))


def verify_data(proof: Proof, zone: tzinfo | None) -> dict[str, Any]:
    """The data of the report."""
    verification = proof.verification
    word = verdict(verification)
    since, until = (format_clock(each, zone) for each in (verification.looked_from, verification.looked_until))
    applied = format_moment(verification.applied_at, zone, digits=0)
    observed = zip(verification.measures, proof.before, proof.after, strict=True)
    return {
        "title": visible(f"{verification.node}: fix {verification.fix}, {word}"),
        "verdict": word,
        "sentence": _sentence(sentence(verification)),
        "subtitle": visible(
            f"{verification.node} · fix {verification.fix} of {verification.target} · applied {applied} · "
            f"observed {since} to {until}"
        ),
        "interrupted": verification.interrupted,
        "measures": [_measure(*each) for each in observed],
        "done": [_sentence(each) for each in verification.done],
        "blind_spots": [_sentence(each) for each in verification.blind_spots],
    }


def _measure(verified: Verified, before: Series, after: Series) -> dict[str, Any]:
    measure = verified.effect.measure
    return {
        "title": visible(title(verified.effect)),
        "change": verified.change.value,
        "expected": format_expected(verified.effect),
        "as_expected": verified.as_expected,
        "why": _sentence(verified.why),
        "before": _series(measure, verified.before, before),
        "after": _series(measure, verified.after, after),
    }


def _series(measure: Measure, stretch: Stretch, observed: Series) -> dict[str, Any]:
    rates = _rates(observed)
    has_worst = len(rates) > 1 and MEASURES[measure].kind is not Kind.EVENTS
    return {
        "value": visible(format_stretch_value(measure, stretch)),
        "coverage": visible(format_stretch(measure, stretch)),
        "worst": visible(format_value(measure, max(rates))) if has_worst else "",
        "points": _pooled(rates, observed.spans),
    }


def _rates(observed: Series) -> list[float]:
    """The values to draw: levels and counts unchanged, amounts as rates in the unit of the measure."""
    meaning = MEASURES[observed.effect.measure]
    if meaning.kind in (Kind.LEVEL, Kind.STOCK):
        return list(observed.values)
    return [value / span * meaning.per for value, span in zip(observed.values, observed.spans, strict=True)]


def _pooled(values: Sequence[float], spans: Sequence[float]) -> list[tuple[float, float]]:
    step = max(1, -(-len(values) // MAX_POINTS))
    return [
        (round(max(values[i : i + step]), 6), round(sum(spans[i : i + step]), 3)) for i in range(0, len(values), step)
    ]


def _sentence(text: str) -> str:
    return visible(text[:1].upper() + text[1:])

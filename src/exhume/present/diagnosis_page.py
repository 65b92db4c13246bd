"""What the page of a diagnosis shows beside its words: cores over time, marks, and the difference in stacks."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo

import numpy as np

from exhume.model.clock import NANOS
from exhume.model.events import INCIDENT
from exhume.model.finding import Diagnosis
from exhume.model.window import Window
from exhume.present.cores import Axis, CoreRow, axis_for, grid_on, pooled_rows
from exhume.present.diagnosis_view import span_text
from exhume.present.flame import build_tree
from exhume.present.flame_html import render_html
from exhume.present.flame_page import FlamePage
from exhume.store.read.core_grid import CoreGrid
from exhume.store.read.events import EventView
from exhume.store.read.profile import ProfileFilter
from exhume.store.read.recording import Recording

# A page is for looking at an incident: of a longer window the part around the focus is drawn.
LONGEST_NS = 1800 * NANOS
MOST_CELLS = 600
MOST_ROWS = 128
MOST_MARKS = 200
KERNEL_STATES = ("system", "irq", "softirq")


@dataclass(frozen=True, slots=True)
class Curve:
    """The share of the kernel on the worst core of each cell (permille, -1 where none was recorded), and that core."""

    permille: list[int]
    cpus: list[int]


@dataclass(frozen=True, slots=True)
class Page:
    """All that the page is made of. `flame` is a page of its own; where there is none, `no_flame` says why."""

    diagnosis: Diagnosis
    zone: tzinfo | None
    offset_s: int
    shown: Window
    axis: Axis
    grid: CoreGrid
    rows: list[CoreRow]
    curve: Curve
    marks: list[EventView] = field(default_factory=list)
    marks_left_out: int = 0
    flame: str = ""
    flame_core: int | None = None
    no_flame: str = ""


def read_page(recording: Recording, diagnosis: Diagnosis, zone: tzinfo | None) -> Page:
    """Read what is to be drawn of a diagnosis."""
    shown = _shown(recording, diagnosis)
    axis = axis_for(shown, MOST_CELLS)
    grid = grid_on(axis, "busy", recording.cores)
    marks = [event for event in recording.events(shown) if event.severity != "info" or event.kind == INCIDENT]
    flame, core, why = _flame(recording, diagnosis, zone)
    return Page(
        diagnosis=diagnosis,
        zone=zone,
        offset_s=_offset(shown.since, zone),
        shown=shown,
        axis=axis,
        grid=grid,
        rows=pooled_rows(grid, MOST_ROWS) if grid.cpus else [],
        curve=_curve(recording, axis),
        marks=marks[:MOST_MARKS],
        marks_left_out=max(0, len(marks) - MOST_MARKS),
        flame=flame,
        flame_core=core,
        no_flame=why,
    )


def _shown(recording: Recording, diagnosis: Diagnosis) -> Window:
    """The window that was asked about with what it was compared with, or so much of it as is worth drawing."""
    since, until = diagnosis.window
    if diagnosis.baseline[1] > diagnosis.baseline[0]:
        since, until = min(since, diagnosis.baseline[0]), max(until, diagnosis.baseline[1])
    if until - since > LONGEST_NS:
        middle = (diagnosis.focus[0] + diagnosis.focus[1]) // 2
        since, until = max(since, middle - LONGEST_NS // 2), min(until, middle + LONGEST_NS // 2)
    shown = Window(since, until)
    return shown.clamp(recording.span() or shown)


def _curve(recording: Recording, axis: Axis) -> Curve:
    rows = recording.read("cpu", axis.window, ["cpu", *KERNEL_STATES, "wall"])
    worst = np.full(axis.cells, -1, np.int64)
    if rows.num_rows:
        kernel = np.sum([rows.column(state).to_numpy().astype(np.int64) for state in KERNEL_STATES], axis=0)
        cells = np.clip((rows.column("wall").to_numpy() - axis.since) // axis.cell_nanos, 0, axis.cells - 1)
        # The core stands below the share, so that one maximum finds both.
        np.maximum.at(worst, cells, (np.minimum(kernel, 1000) << 16) + rows.column("cpu").to_numpy())
    known = worst >= 0
    return Curve(np.where(known, worst >> 16, -1).tolist(), np.where(known, worst & 0xFFFF, 0).tolist())


def _flame(recording: Recording, diagnosis: Diagnosis, zone: tzinfo | None) -> tuple[str, int | None, str]:
    """The difference between focus and baseline on the core of the first finding that names one."""
    core = next((f.culprit.cpu for f in diagnosis.findings if f.culprit.cpu is not None), None)
    wanted = ProfileFilter(cpus=None if core is None else {core})
    focus, baseline = Window(*diagnosis.focus), Window(*diagnosis.baseline)
    current = recording.profile(focus, wanted)
    if not current.samples:
        return "", core, "no stacks were sampled in this time"
    before = None if baseline.empty else recording.profile(baseline, wanted)
    # A side without samples can't be compared: everything would seem to have come.
    if before is not None and not before.samples:
        before = None
    page = FlamePage(
        title=f"{diagnosis.node} · {'all cores' if core is None else f'core {core}'}",
        window=span_text(focus, zone),
        baseline=span_text(baseline, zone),
        blind_spots=current.blind_spots,
    )
    return render_html(build_tree(current, before), page), core, ""


def _offset(moment: int, zone: tzinfo | None) -> int:
    """Seconds that the zone is ahead of UTC."""
    offset = datetime.fromtimestamp(moment // NANOS, UTC).astimezone(zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())

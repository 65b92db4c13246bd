"""`exhume top` as lines: cores with their last minute, running and waiting processes, and the newest incidents.

It is redrawn once a second for as long as it is open, so like the recorder's status it writes escape sequences
directly: each cell is formatted once.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

from exhume.diagnose.growth import THRESHOLDS
from exhume.model.clock import NANOS
from exhume.model.text import count, duration, percent
from exhume.model.times import format_clock, format_offset
from exhume.present.events_view import visible
from exhume.present.palette import BLUE, BY_NAME, GREEN, IDLE_PERMILLE, LETTERS, ORANGE, RED, state_letter
from exhume.present.terminal.status import colours_of
from exhume.present.top_view import GAP, HISTORY_NS, STATES, CoreUsage, Order, StripRow, TopFrame, Usage
from exhume.store.read.events import EventView

KEYS = {
    "q": "quit (or Ctrl-C)",
    "s": "sort by CPU, by waiting, or by CPU in the kernel",
    "g": "pods, or their containers",
    "/": "show only what has a text in its name, number, container or pod; Enter ends it, Esc clears it",
    "p": "pause, and go on (or the space bar)",
    "?": "this help",
}
# Height of a frame when it is printed once.
PRINTED_LINES = 44
_RESET = "\x1b[0m"
_GUTTER = 8
_LEAST_STRIP, _LEAST_PANEL, _PANEL_SHARE = 12, 50, 0.55
_PANEL = f"{'core':>4} {'now':<12}  {'stall':>6}   who, in what"
# Below this height, cores and groups get fewer lines, and there is no space between sections.
_ROOMY = 32
_NAME = 16
_FIGURE = 8
_LATE_S = 2.5
_PRESSURE_LOOK, _PRESSURE_BAD = 0.2, 0.5
# Half a core of kernel time, or half a waiting thread, is highlighted.
_MUCH = 0.5


@dataclass(slots=True)
class View:
    """The user's choices, and the state of the recorder. `typed` is the filter while it is being entered."""

    order: Order = Order.CPU
    match: str = ""
    typed: str | None = None
    paused: bool = False
    help: bool = False
    containers: bool = False
    stopped: bool = False
    late_s: float = 0.0


class Ink:
    """Styles as escape sequences; empty without colours."""

    def __init__(self, color: str) -> None:
        self.colours = colours_of(color)

    def __call__(self, text: str, colour: str = "", *, bold: bool = False, dim: bool = False) -> str:
        if self.colours is None or not (colour or bold or dim):
            return text
        parts = ["1"] * bold + ["2"] * dim + ([self.colours.codes(colour, True)] if colour else [])
        return f"\x1b[{';'.join(parts)}m{text}{_RESET}"


class TopPrinter:
    """Draws frames at the current width and height."""

    def __init__(self, ink: Ink, zone: tzinfo | None) -> None:
        self._ink = ink
        self._zone = zone
        self._cell = lru_cache(8192)(self._draw_cell)

    def lines(self, frame: TopFrame, view: View, width: int, height: int, *, keys: bool = True) -> list[str]:
        """At most `height` lines of at most `width` cells; the last one lists the keys."""
        foot = [self._keys(view, width)] if keys else []
        room = height - len(foot)
        body = (list(self._help(width)) if view.help else self._body(frame, view, width, room))[: max(0, room)]
        return [*body, *[""] * (room - len(body) if keys else 0), *foot]

    def _body(self, frame: TopFrame, view: View, width: int, height: int) -> list[str]:
        head = [self._head(frame, view, width), self._pressure(frame, width)]
        if frame.zombies is not None:
            head.append(self._zombies(frame, width))
        groups, title = (frame.pods, "pod") if frame.pods and not view.containers else (frame.containers, "container")
        gap = [""] if height >= _ROOMY else []
        # Each of the headings and the legend takes a line.
        room = max(0, height - len(head) - 3 - len(gap) * 3)
        core_lines = max(1, min(len(frame.cores), 10 if gap else 6, -(-room // 3)))
        marks = frame.incidents[: 4 if gap else 2]
        room -= core_lines + max(1, len(marks))
        group_lines = min(len(groups), max(1, (room - 1) // 3)) if groups and room >= 6 else 0
        process_lines = max(0, room - (group_lines + 1 if group_lines else 0))
        return [
            *head,
            *gap,
            *self._cores(frame, width, core_lines),
            *gap,
            *self._table("process", frame.processes[:process_lines], view, width, frame),
            *(self._table(title, groups[:group_lines], view, width, frame) if group_lines else ()),
            *gap,
            *self._incidents(frame, marks, width),
        ]

    def _head(self, frame: TopFrame, view: View, width: int) -> str:
        """The node and its time; at the right the losses, which are kept even with little room."""
        ink, recorder = self._ink, frame.recorder
        lost = ", ".join(f"{kind} {number:,}" for kind, number in recorder.losses.items())
        right = _line(f"lost: {lost}" if lost else "nothing lost", max(12, width // 2))
        state = "PAUSED" if view.paused else "STOPPED" if view.stopped else ""
        if not state and view.late_s >= _LATE_S:
            state = f"NO TICK FOR {view.late_s:.0f} s"
        clock = f"{format_clock(frame.time, self._zone)} {format_offset(frame.time, self._zone)}"
        parts = [
            visible(frame.node),
            *([state] if state else []),
            clock,
            count(len(frame.cores), "core"),
            f"{recorder.rate_hz} Hz",
            f"recorder {percent(recorder.cpu)} of a core",
        ]
        left = _joined(parts, width - cell_len(right) - 2)
        space = " " * max(2, width - cell_len(left) - cell_len(right))
        if state:
            left = left.replace(state, ink(state, ORANGE, bold=True), 1)
        return f"{ink(left, bold=not state)}{space}{ink(right, ORANGE if lost else GREEN)}"

    def _pressure(self, frame: TopFrame, width: int) -> str:
        named = {"cpu": frame.pressure.cpu, "memory": frame.pressure.memory, "io": frame.pressure.io}
        known = {name: share for name, share in named.items() if share is not None}
        parts = [f"{name} {percent(share, 0)}" for name, share in known.items()]
        waiting = "  ".join(parts) if parts else "unknown (no PSI)"
        more = [f"{frame.running} running"] if frame.running is not None else []
        more += [f"{frame.blocked} blocked"] if frame.blocked is not None else []
        if frame.memory_available is not None:
            more.append(f"{percent(frame.memory_available, 0)} of memory available")
        line = _joined([f"pressure  {waiting}", *more], width)
        for (name, share), part in zip(known.items(), parts, strict=True):
            bad = share >= _PRESSURE_BAD
            # Filling the cores may be intended, so CPU pressure is at most a warning; memory and io can be bad.
            if share >= _PRESSURE_LOOK:
                line = line.replace(part, self._ink(part, RED if bad and name != "cpu" else ORANGE), 1)
        return line

    def _zombies(self, frame: TopFrame, width: int) -> str:
        found = frame.zombies
        assert found is not None
        tracked = "" if found.tracked is None else f" of {found.tracked:,} memory cgroups"
        pace = "" if found.per_hour is None else f", {found.per_hour:+,.0f} an hour" if found.per_hour else ", steady"
        text = _line(f"zombies   {found.count:,}{tracked}{pace}", width)
        colour = RED if found.count >= THRESHOLDS.many else ORANGE if found.count > THRESHOLDS.normal else ""
        return self._ink(text, colour)

    def _cores(self, frame: TopFrame, width: int, lines: int) -> Iterator[str]:
        """The strip, with one core at the right of each line: its own if every core has a line, else the worst."""
        ink, strip = self._ink, frame.strip
        own = len(frame.cores) <= lines
        halves = ink.colours is not None and not own
        rows = strip.rows(lines * 2 if halves else lines)
        pairs = [rows[at : at + 2] for at in range(0, len(rows), 2)] if halves else [[row] for row in rows]
        shown = min(HISTORY_NS // NANOS, width - _GUTTER - 1 - max(_LEAST_PANEL, int(width * _PANEL_SHARE)))
        shown = shown if shown >= _LEAST_STRIP else 0
        panel = width - _GUTTER - 1 - shown if shown else width
        title = _fit(f"  cores, last {shown} s", _GUTTER + shown + 1) if shown else ""
        yield ink(_line(title + _PANEL + ("" if own else " (worst)"), width), dim=True)
        cores = frame.cores if own else frame.worst_cores
        for place in range(max(len(pairs), min(lines, len(cores)))):
            left = self._strip_line(pairs[place], shown) if place < len(pairs) else " " * (_GUTTER + shown)
            right = self._core(cores[place], panel) if place < min(lines, len(cores)) else ""
            yield f"{left} {right}" if shown else right
        yield self._legend(width)

    def _strip_line(self, pair: Sequence[StripRow], shown: int) -> str:
        upper, lower = pair[0], pair[-1]
        cpus = sorted({upper.cpus[0], lower.cpus[-1]})
        label = f"{'-'.join(map(str, cpus)):>{_GUTTER - 1}} "
        columns = (upper.states, upper.permille, lower.states, lower.permille)
        ticks = list(zip(*(column[-shown:] for column in columns), strict=True))
        # Quantised to 2.5%, so that few distinct cells have to be formatted.
        cells = "".join(self._cell(a, b // 25, c, d // 25) for a, b, c, d in ticks)
        # The newest tick is always at the right edge.
        return f"{label}{' ' * (shown - len(ticks))}{cells}{_RESET if self._ink.colours else ''}"

    def _draw_cell(self, upper: int, high: int, lower: int, low: int) -> str:
        colours = self._ink.colours
        if colours is not None:
            return colours.halves(
                *(
                    _GAP_COLOUR if state == GAP else colours.of_core(STATES[state], step * 25)
                    for state, step in ((upper, high), (lower, low))
                )
            )
        state, step = (upper, high) if high >= low else (lower, low)
        return "/" if state == GAP else state_letter(STATES[state], step * 25)

    def _core(self, core: CoreUsage, width: int) -> str:
        """One core: ` 42 system 100% 6.0 s ● kubelet mem_cgroup_iter`."""
        ink = self._ink
        quiet = core.busy_permille < IDLE_PERMILLE
        state = "idle" if quiet else core.state
        now = f"{core.cpu:>4} {state:<7}{'' if quiet else percent(core.permille / 1000, 0):>5}"
        stall = duration(round(core.longest_stall_s * NANOS)) if core.longest_stall_s else ""
        going = "●" if core.stall_s else " "
        who = " ".join(visible(text) for text in (core.comm, core.function) if text)
        text = _line(f"{now}  {stall:>6} {going} {who}", width)
        colour = "" if quiet or state == "user" else BY_NAME[state].hue
        return ink(text, RED if core.longest_stall_s else colour, bold=bool(core.stall_s))

    def _legend(self, width: int) -> str:
        if self._ink.colours is None:
            return _line(f"{' ' * _GUTTER}{LETTERS}  ● still stalled", width)
        keys = "  ".join(f"{self._ink('█', BY_NAME[name].hue)} {self._ink(name, dim=True)}" for name in STATES)
        plain = _GUTTER + sum(len(name) + 4 for name in STATES)
        for note in ("● still stalled: 95% or more in the kernel", "● still stalled", ""):
            if plain + len(note) <= width:
                return f"{' ' * _GUTTER}{keys}  {self._ink(note, dim=True)}"
        return ""

    def _table(self, title: str, rows: Sequence[Usage], view: View, width: int, frame: TopFrame) -> Iterator[str]:
        """Processes, containers or pods; the sort column is marked."""
        ink, by_process = self._ink, title == "process"
        figures = [("CPU", Order.CPU), ("kernel", Order.KERNEL), ("waits", Order.WAIT)]
        heads = [f"{name}{'▾' if order is view.order else ''}" for name, order in figures]
        heads += [] if by_process else ["stopped"]
        lead = (8 + _NAME) if by_process else max(8 + _NAME, min(56, width - _FIGURE * len(heads) - 2))
        name = f"{'pid':>7} process" if by_process else f"  {title}s" if rows else ""
        columns = "".join(f"{head:>{_FIGURE}}" for head in heads)
        span = f"  in (last {frame.window_s:.0f} s)" if by_process else ""
        yield ink(_line(f"{_fit(name, lead)}{columns}{span}", width), dim=True)
        if not rows and by_process:
            why = f"nothing matches {view.match!r}" if view.match else "nothing was sampled"
            yield _line(f"        {why}", width)
        for row in rows:
            label = f"{row.pid or 0:>7} {_fit(visible(row.name), _NAME)}" if by_process else f"  {visible(row.name)}"
            values = [row.cpu, row.kernel, row.waiting, *([] if by_process else [row.throttled])]
            place = visible(row.container or row.pod or "")
            text = f"{_fit(label, lead)}{''.join(f'{_share(value):>{_FIGURE}}' for value in values)}  {place}"
            # Interrupts served on idle cores (process 0) take nothing from other processes.
            hot = row.pid != 0 and row.kernel >= _MUCH and row.kernel >= row.cpu / 2
            waits = (row.waiting or 0.0) + (row.throttled or 0.0) >= _MUCH
            yield ink(_line(text, width), RED if hot else ORANGE if waits else "")

    def _incidents(self, frame: TopFrame, marks: Sequence[EventView], width: int) -> Iterator[str]:
        if not marks:
            yield self._ink(_line("no incident in the last hour", width), dim=True)
        for mark in marks:
            text = _line(f"{format_clock(mark.wall, self._zone)} incident: {visible(mark.text)}", width)
            # An incident of the last minute is highlighted as new.
            new = mark.wall > frame.time - 60 * NANOS
            yield self._ink(text, RED if new else ORANGE, bold=new)

    def _keys(self, view: View, width: int) -> str:
        if view.typed is not None:
            return self._ink(_line(f"filter: {visible(view.typed)}▏ Enter keeps it, Esc clears it", width), BLUE)
        shown = {
            "q": "quit",
            "s": f"sort: {view.order.value}",
            "g": "pods" if view.containers else "containers",
            "/": f"filter: {visible(view.match)}" if view.match else "filter",
            "p": "go on" if view.paused else "pause",
            "?": "back" if view.help else "help",
        }
        return self._ink(_joined([f"{key} {what}" for key, what in shown.items()], width), dim=True)

    def _help(self, width: int) -> Iterator[str]:
        yield self._ink(_line("exhume top: this node, by the rows of its recorder", width), bold=True)
        yield ""
        for key, what in KEYS.items():
            yield from _hung(f"  {key}  ", what, width)
        yield ""
        for name, what in _COLUMNS.items():
            yield from _hung(f"  {name:<8} ", what, width)


_GAP_COLOUR = "#3a3d44"  # nothing was recorded
_COLUMNS = {
    "cores": "the state that took most of each second, and its own share; with many cores the worst of neighbours",
    "stall": "the longest time of the last minute at 95% or more in system, irq and softirq, without a pause",
    "CPU": "100% is one core; by samples of the last seconds",
    "kernel": "the part of it in functions of the kernel",
    "waits": "time that its threads waited for a core: 100% is one thread all the time; – where nothing was measured",
    "stopped": "time that its CPU quota stopped it",
    "zombies": "memory cgroups that were removed and that the kernel still keeps",
}


def _share(value: float | None) -> str:
    if value is None:
        return "–"
    return percent(value, 0 if value >= 9.995 else 1)


def _fit(text: str, width: int) -> str:
    """The text at exactly this width: padded with blanks, or cut with an ellipsis."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(f"{set_cell_size(text, max(0, width - 1)).rstrip()}…", max(0, width))


def _line(text: str, width: int) -> str:
    return _fit(text, width).rstrip()


def _joined(parts: Sequence[str], width: int) -> str:
    """As many parts as fit, in order."""
    line = ""
    for part in parts:
        longer = f"{line}  ·  {part}" if line else part
        if cell_len(longer) > width:
            break
        line = longer
    return line or _fit(parts[0], width)


def _hung(lead: str, text: str, width: int) -> list[str]:
    wrapped = textwrap.wrap(text, max(4, width - len(lead)), break_on_hyphens=False)
    return [f"{' ' * len(lead) if place else lead}{line}" for place, line in enumerate(wrapped)]

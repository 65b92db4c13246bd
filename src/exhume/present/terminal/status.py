"""The recorder's status: a small heatmap of the last seconds on a terminal, plain lines when piped.

It is redrawn once a second while the recorder runs, so it writes its own escape sequences: cells are formatted once,
when their second arrives, and only joined afterwards.
"""

import shutil
import sys
from collections import deque
from collections.abc import Callable
from datetime import tzinfo
from typing import IO, Protocol

from exhume.model.clock import NANOS
from exhume.model.progress import TickSummary
from exhume.model.text import duration
from exhume.model.times import format_clock
from exhume.present.palette import BY_NAME, blend
from exhume.present.status import CoreNow, cores_now, happenings, tick_words

MAP_LINES = 8
KEPT_HAPPENINGS = 4
LABEL = 9
PLAIN_EVERY = 60 * NANOS
LEGEND = ("system", "softirq", "user", "steal")
RESET = "\x1b[0m"
_NIGHT = "#1b1d22"


class Status(Protocol):
    """Shows a recorder at work."""

    def tick(self, summary: TickSummary) -> None: ...


def status_for(color: str, directory: str, zone: tzinfo | None) -> Status:
    """The live status on a terminal, else lines."""
    if sys.stdout.isatty():
        return LiveStatus(sys.stdout, _painter(color), directory, zone)
    return PlainStatus(sys.stdout, directory, zone)


class PlainStatus:
    """A line a minute, and one for whatever happens."""

    def __init__(self, output: IO[str], directory: str, zone: tzinfo | None) -> None:
        self._output = output
        self._zone = zone
        self._next = 0
        print(f"recording into {directory}", file=output, flush=True)

    def tick(self, summary: TickSummary) -> None:
        for line in happenings(summary, self._zone):
            print(line, file=self._output, flush=True)
        if summary.tick.end >= self._next:
            self._next = summary.tick.end + PLAIN_EVERY
            when = format_clock(summary.tick.wall, self._zone)
            print(f"{when} recording: {tick_words(summary)}", file=self._output, flush=True)


Painter = Callable[[str, str], str]


class LiveStatus:
    """Cores x the last seconds, redrawn in place."""

    def __init__(self, output: IO[str], paint: Painter | None, directory: str, zone: tzinfo | None) -> None:
        self._output = output
        self._paint = paint
        self._directory = directory
        self._zone = zone
        self._drawn = 0
        self._began: int | None = None
        self._labels: list[str] = []
        self._rows: list[deque[str]] = []
        self._happened: deque[str] = deque(maxlen=KEPT_HAPPENINGS)

    def tick(self, summary: TickSummary) -> None:
        self._began = summary.tick.start if self._began is None else self._began
        self._happened.extend(happenings(summary, self._zone))
        width = shutil.get_terminal_size().columns
        self._add_column(cores_now(summary.cpu))
        self._draw(self._lines(summary, width))

    def _add_column(self, now: list[CoreNow]) -> None:
        if not now:
            return
        size = -(-len(now) // (MAP_LINES * 2)) if len(now) > MAP_LINES else 1
        groups = [max(now[at : at + size], key=lambda core: core.permille) for at in range(0, len(now), size)]
        halves = len(now) > MAP_LINES
        pairs = [groups[at : at + 2] for at in range(0, len(groups), 2)] if halves else [[group] for group in groups]
        if len(pairs) != len(self._rows):
            self._rows = [deque(maxlen=1000) for _ in pairs]
            step = size * (2 if halves else 1)
            self._labels = [_label(now[at : at + step]) for at in range(0, len(now), step)]
        for row, pair in zip(self._rows, pairs, strict=True):
            row.append(self._cell(pair[0], pair[-1]))

    def _cell(self, upper: CoreNow, lower: CoreNow) -> str:
        if self._paint is None:
            return " .:-=+*#%@"[min(9, max(upper.permille, lower.permille) // 100)]
        return self._paint(_colour(upper), _colour(lower))

    def _lines(self, summary: TickSummary, width: int) -> list[str]:
        elapsed = duration(summary.tick.end - (self._began or summary.tick.end))
        room = max(10, width - LABEL - 1)
        end = RESET if self._paint else ""
        lines = [f"recording into {self._directory} · {elapsed} · Ctrl-C stops and seals"[:width]]
        for label, row in zip(self._labels, self._rows, strict=True):
            cells = list(row)[-room:]
            lines.append(f"{label:>{LABEL - 1}} {''.join(cells)}{end}")
        if self._paint is not None:
            keys = (self._paint(BY_NAME[name].hue, BY_NAME[name].hue) + f"{end} {name}" for name in LEGEND)
            lines.append(" " * LABEL + "  ".join(keys))
        lines.append(tick_words(summary)[:width])
        lines.extend(text[:width] for text in self._happened)
        return lines

    def _draw(self, lines: list[str]) -> None:
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        body = "".join(f"\x1b[2K{line}\n" for line in lines)
        self._output.write(f"{up}\r{body}\x1b[J")
        self._output.flush()
        self._drawn = len(lines)


def _label(cores: list[CoreNow]) -> str:
    return str(cores[0].cpu) if len(cores) == 1 else f"{cores[0].cpu}-{cores[-1].cpu}"


def _colour(core: CoreNow) -> str:
    share = core.permille / 1000
    return _NIGHT if share < 0.02 else blend(_NIGHT, BY_NAME[core.state].hue, share**0.8)


def _painter(color: str) -> Painter | None:
    """Paints a cell of two colours, upper and lower half; None where there are to be no colours."""
    from functools import lru_cache

    from rich.color import Color

    from exhume.present.terminal.console import colours_in, console

    terminal = console(color)
    if not colours_in(terminal):
        return None
    system = terminal._color_system

    @lru_cache(4096)
    def codes(colour: str, foreground: bool) -> str:
        found = Color.parse(colour)
        shown = found if system is None else found.downgrade(system)
        return ";".join(shown.get_ansi_codes(foreground))

    def paint(upper: str, lower: str) -> str:
        return f"\x1b[{codes(upper, True)};{codes(lower, False)}m▀"

    return paint

"""Zombies as they come and go: redrawn in place on a terminal, a line a count when piped."""

import json
import shutil
import sys
from collections import deque
from collections.abc import Callable
from datetime import tzinfo

from rich.console import Console

from exhume.diagnose.zombie_report import ZombieReport
from exhume.model.text import count, duration
from exhume.model.times import format_clock
from exhume.present.terminal.console import console
from exhume.present.terminal.zombies import counts_lines, format_growth, verdict_line
from exhume.present.zombies_view import zombies_json

_BARS = "▁▂▃▄▅▆▇█"
_LABEL = "  zombies "

Surface = Callable[[ZombieReport], None]


def watch_surface(color: str, as_json: bool, zone: tzinfo | None) -> Surface:
    """What shows each count: JSON lines, a screen that is redrawn, or plain lines."""
    if as_json:
        return lambda report: print(json.dumps(zombies_json(report, zone)), flush=True)
    if sys.stdout.isatty():
        return _Screen(console(color), zone)
    return lambda report: print(_line(report, zone), flush=True)


def sparkline(values: list[int]) -> str:
    """Values as bars between their least and their most; all the same is a flat line."""
    least, most = min(values), max(values)
    if least == most:
        return _BARS[0] * len(values)
    return "".join(_BARS[(value - least) * (len(_BARS) - 1) // (most - least)] for value in values)


def _line(report: ZombieReport, zone: tzinfo | None) -> str:
    memory = report.census.memory
    when = format_clock(report.wall, zone)
    if memory is None or memory.dying is None:
        return f"{when} zombies can't be counted: {'; '.join(report.census.blind_spots)}"
    pace = format_growth(report.growth.get((memory.name, memory.controller)))
    return f"{when} {count(memory.dying, 'zombie')}, {memory.visible or 0:,} visible, growth {pace}"


class _Screen:
    """The counts, and how they went."""

    def __init__(self, terminal: Console, zone: tzinfo | None) -> None:
        self._terminal = terminal
        self._zone = zone
        self._seen: deque[int] = deque(maxlen=1000)
        self._began: int | None = None
        self._first = 0
        self._drawn = 0

    def __call__(self, report: ZombieReport) -> None:
        width = shutil.get_terminal_size().columns
        dying = report.census.dying
        if self._began is None:
            self._began, self._first = report.wall, dying or 0
        with self._terminal.capture() as captured:
            self._terminal.print(verdict_line(report))
            self._terminal.print()
            for line in counts_lines(report):
                self._terminal.print(line)
            self._terminal.print()
            if dying is not None:
                self._seen.append(dying)
                shown = list(self._seen)[-max(10, width - len(_LABEL) - 1) :]
                self._terminal.print(f"{_LABEL}{sparkline(shown)}")
                self._terminal.print(f"  {min(shown):,} to {max(shown):,}, {dying - self._first:+,} since the start")
            for spot in report.census.blind_spots:
                self._terminal.print(f"  {spot}")
            watched = duration(report.wall - self._began)
            when = format_clock(report.wall, self._zone)
            self._terminal.print(f"  {when}, watched for {watched}; every 2 s · Ctrl-C ends")
        self._draw(captured.get().split("\n")[:-1])

    def _draw(self, lines: list[str]) -> None:
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        sys.stdout.write(f"{up}\r" + "".join(f"\x1b[2K{line}\n" for line in lines) + "\x1b[J")
        sys.stdout.flush()
        self._drawn = len(lines)

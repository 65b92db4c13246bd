"""The recorder's status: a small heatmap of the last seconds on a terminal, plain lines when piped, and a summary at
the end.

It is redrawn once a second while the recorder runs, so it writes escape sequences directly: each cell is formatted
once.
"""

import shutil
import sys
import textwrap
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import tzinfo
from functools import lru_cache
from typing import IO, NamedTuple, Protocol

from exhume.model.clock import NANOS
from exhume.model.progress import RecordingSummary, TickSummary
from exhume.model.tables import Columns
from exhume.model.text import count, duration, percent, size
from exhume.model.times import format_clock
from exhume.present.palette import LETTERS, cell_colour, state_letter, state_rank

MAP_LINES = 8
KEPT_EVENTS = 4
KEPT_ANNOUNCEMENTS = 3
SEPARATOR = " · "
LABEL = 9
PLAIN_EVERY = 60 * NANOS
LEGEND = ("system", "softirq", "user", "steal")
RESET = "\x1b[0m"
# Hard and soft interrupts share a colour; see the palette.
_STATES = (("user", ("user", "nice")), ("system", ("system",)), ("softirq", ("irq", "softirq")), ("steal", ("steal",)))


class CoreNow(NamedTuple):
    """One core in the last tick: its dominant state, and that state's share in permille."""

    cpu: int
    permille: int
    state: str


def _rank(core: CoreNow) -> float:
    return state_rank(core.state, core.permille)


class Status(Protocol):
    """Shows the state of a running recorder. No method raises OSError: a recording outlives the terminal that shows
    it."""

    def tick(self, summary: TickSummary) -> None: ...

    def announce(self, text: str) -> None:
        """Show a line permanently, such as the address of the page."""

    def note(self, text: str) -> None:
        """Show a line among the most recent ones, such as a log message."""


def status_for(color: str, directory: str, zone: tzinfo | None) -> Status:
    """The live status on a terminal, plain lines otherwise."""
    if sys.stdout.isatty():
        return LiveStatus(sys.stdout, colours_of(color), directory, zone)
    return PlainStatus(sys.stdout, directory, zone)


class PlainStatus:
    """A line per minute, and one for each incident and each loss."""

    def __init__(self, output: IO[str], directory: str, zone: tzinfo | None) -> None:
        self._output = output
        self._zone = zone
        self._next = 0
        self.announce(f"recording into {directory}")

    def tick(self, summary: TickSummary) -> None:
        for line in tick_events(summary, self._zone):
            self.announce(line)
        if summary.tick.end >= self._next:
            self._next = summary.tick.end + PLAIN_EVERY
            when = format_clock(summary.tick.wall, self._zone)
            self.announce(f"{when} recording: {SEPARATOR.join(tick_parts(summary))}")

    def announce(self, text: str) -> None:
        with suppress(OSError):
            print(text, file=self._output, flush=True)

    def note(self, text: str) -> None:
        # Log lines go to stderr.
        with suppress(OSError):
            print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class Colours:
    """The colours of a terminal, as parameters of escape sequences."""

    #: From a colour, and whether it is the foreground colour, to escape parameters.
    codes: Callable[[str, bool], str]
    #: The colour of a core by its state and permille.
    of_core: Callable[[str, int], str]

    def halves(self, upper: str, lower: str) -> str:
        """A character of two colours, one per half. No reset is needed before the next one."""
        return f"\x1b[{self.codes(upper, True)};{self.codes(lower, False)}m▀"


class LiveStatus:
    """A heatmap of cores x the last seconds, redrawn in place."""

    def __init__(self, output: IO[str], colours: Colours | None, directory: str, zone: tzinfo | None) -> None:
        self._output = output
        self._colours = colours
        self._directory = directory
        self._zone = zone
        self._drawn = 0
        self._began: int | None = None
        self._labels: list[str] = []
        self._rows: list[deque[str]] = []
        self._announced: deque[str] = deque(maxlen=KEPT_ANNOUNCEMENTS)
        self._newest: deque[str] = deque(maxlen=KEPT_EVENTS)
        self._last: TickSummary | None = None
        # Announcements come from the thread that reads the output of the page's server.
        self._lock = threading.Lock()

    def tick(self, summary: TickSummary) -> None:
        with self._lock:
            self._began = summary.tick.start if self._began is None else self._began
            self._newest.extend(tick_events(summary, self._zone))
            self._add_column(cores_now(summary.cpu))
            self._last = summary
            self._draw()

    def announce(self, text: str) -> None:
        with self._lock:
            self._announced.append(text)
            self._draw()

    def note(self, text: str) -> None:
        with self._lock:
            self._newest.extend(text.splitlines()[:KEPT_EVENTS])
            self._draw()

    def _add_column(self, now: list[CoreNow]) -> None:
        if not now:
            return
        halves = 2 if len(now) > MAP_LINES else 1
        size = -(-len(now) // (MAP_LINES * 2)) if halves == 2 else 1
        groups = [max(now[at : at + size], key=_rank) for at in range(0, len(now), size)]
        pairs = [groups[at : at + halves] for at in range(0, len(groups), halves)]
        if len(pairs) != len(self._rows):
            self._rows = [deque(maxlen=1000) for _ in pairs]
            step = size * halves
            ends = [{now[at].cpu, now[min(at + step, len(now)) - 1].cpu} for at in range(0, len(now), step)]
            self._labels = ["-".join(map(str, sorted(each))) for each in ends]
        for row, pair in zip(self._rows, pairs, strict=True):
            row.append(self._cell(pair[0], pair[-1]))

    def _cell(self, upper: CoreNow, lower: CoreNow) -> str:
        if self._colours is None:
            worst = max(upper, lower, key=_rank)
            return state_letter(worst.state, worst.permille)
        return self._colours.halves(*(self._colours.of_core(core.state, core.permille) for core in (upper, lower)))

    def _lines(self, width: int, height: int) -> list[str]:
        """The lines of the status. No line may exceed the width, nor all of them the height, or the cursor could not
        return."""
        summary = self._last
        elapsed = duration(summary.tick.end - (self._began or 0)) if summary else ""
        head = [f"recording into {self._directory}", *([elapsed] if elapsed else []), "Ctrl-C stops and seals"]
        lines = _joined(head, width)
        lines += [part for text in self._announced for part in _wrapped(text, width)]
        end = RESET if self._colours else ""
        room = max(1, width - LABEL - 1)
        named = zip(self._labels, self._rows, strict=True)
        rows = [f"{label:>{LABEL - 1}} {''.join(list(row)[-room:])}{end}" for label, row in named]
        legend = self._legend(width) if rows else []
        below = _joined(tick_parts(summary), width) if summary else []
        newest = [part for text in self._newest for part in _wrapped(text, width)]
        # With little room, keep what matters most: address and losses before cores, cores before events.
        rows = rows[: max(0, height - 1 - len(lines) - len(below))]
        left = height - 1 - len(lines) - len(below) - len(rows)
        legend = legend if len(legend) <= left else []
        shown = max(0, left - len(legend))
        return [*lines, *rows, *legend, *below, *newest[max(0, len(newest) - shown) :]][: height - 1]

    def _legend(self, width: int) -> list[str]:
        if self._colours is None:
            return _wrapped(LETTERS, width)
        full = [(name, self._colours.of_core(name, 1000)) for name in LEGEND]
        keys = [f"{self._colours.halves(colour, colour)}{RESET} {name}" for name, colour in full]
        shown = LABEL + sum(len(name) + 4 for name in LEGEND)
        return [" " * LABEL + "  ".join(keys)] if shown <= width else []

    def _draw(self) -> None:
        width, height = shutil.get_terminal_size()
        lines = self._lines(width, height)
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        body = "".join(f"\x1b[2K{line}\n" for line in lines)
        with suppress(OSError):
            self._output.write(f"{up}\r{body}\x1b[J")
            self._output.flush()
        self._drawn = len(lines)


def _wrapped(text: str, width: int) -> list[str]:
    """A wrapped line; an address is never broken if it fits on a line of its own."""
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False) or [""]


def _joined(parts: Sequence[str], width: int) -> list[str]:
    """Parts on as few lines as possible, broken only between parts."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(SEPARATOR) + len(part) <= width:
            lines[-1] += SEPARATOR + part
        else:
            lines += _wrapped(part, width)
    return lines


def colours_of(color: str) -> Colours | None:
    """The colours of standard output; None if it has none."""
    # Imported here: a recorder without a terminal does not need rich.
    from rich.color import Color

    from exhume.present.terminal.console import colours_in, console

    terminal = console(color)
    if not colours_in(terminal):
        return None
    system = terminal._color_system

    @lru_cache(4096)
    def codes(colour: str, foreground: bool) -> str:
        found = Color.parse(colour)
        return ";".join((found if system is None else found.downgrade(system)).get_ansi_codes(foreground))

    return Colours(codes, cell_colour(terminal.color_system))


def cores_now(cpu: Columns | None) -> list[CoreNow]:
    """The cores of a tick, in order."""
    if cpu is None:
        return []
    columns = {name: _plain(cpu[name]) for _, parts in _STATES for name in parts}
    found = []
    for row, core in enumerate(_plain(cpu["cpu"])):
        shares = {state: sum(columns[part][row] for part in parts) for state, parts in _STATES}
        state = max(shares, key=shares.__getitem__)
        found.append(CoreNow(core, shares[state], state))
    return sorted(found, key=lambda now: now.cpu)


def tick_parts(summary: TickSummary) -> list[str]:
    """The sampling rate, cost and losses of a tick, as text."""
    seconds = max(summary.tick.seconds, 1e-9)
    return [
        f"{summary.rate_hz} Hz",
        f"{summary.samples / seconds:,.0f} samples/s",
        f"{summary.lost:,} samples lost",
        f"cost {percent(summary.own_cpu)} of one core",
        f"{size(summary.rss_bytes)} memory",
        f"{size(summary.written_bytes / seconds)}/s written",
    ]


def tick_events(summary: TickSummary, zone: tzinfo | None) -> Iterator[str]:
    """The incidents and losses of a tick, as text."""
    when = format_clock(summary.tick.wall, zone)
    for text in summary.incidents:
        yield f"{when} incident: {text}"
    for text in summary.losses:
        yield f"{when} loss: {text}"


def summary_lines(summary: RecordingSummary, directory: str, on_disk: int) -> Iterator[str]:
    """What was recorded, what was lost, and what it cost. More is written in total than remains on disk."""
    span = duration(max(0, summary.until - summary.since))
    samples = f"{count(summary.samples, 'sample')} at {summary.rate_hz} Hz" if summary.rate_hz else "no stack samples"
    incidents = count(summary.incidents, "incident")
    yield f"recorded {span} into {directory}: {samples}, {incidents}, {size(on_disk)} on disk"
    lost = ", ".join(f"{name} {number:,}" for name, number in summary.losses.items())
    yield f"lost: {lost or 'nothing'}"
    yield (
        f"cost: {percent(summary.own_cpu)} of one core, {size(summary.peak_rss_bytes)} of memory at most, "
        f"{size(summary.written_bytes)} written while recording"
    )


def _plain(column: object) -> list[int]:
    """A column, list or numpy array, as a list of ints."""
    tolist = getattr(column, "tolist", None)
    return tolist() if tolist is not None else list(column)  # type: ignore[call-overload, no-any-return]

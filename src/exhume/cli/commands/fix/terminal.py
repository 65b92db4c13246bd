"""What the actions of `exhume fix` print and ask, and how they carry out steps while they do."""

import json
import select
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.cli.commands.fix.arguments import ActionOptions
from exhume.cli.terminal import ProgressBar, say

if TYPE_CHECKING:
    from exhume.control.changes import NodeJournal
    from exhume.model.remedy import Outcome, Step
    from exhume.model.stop import Stop
    from exhume.remedy.fixer import Point
    from exhume.remedy.ledger import Entry, Ledger
    from exhume.remedy.services.actions import Action
    from exhume.remedy.services.node import Node
    from exhume.store.read.recording import Recording

INTERRUPTED = (
    "exhume: interrupted; the current step is finished first (a slow stop is not waited for), and no other is begun"
)
_SLOW_STOP_S = 5.0


def can_ask() -> bool:
    """Whether a person can be asked on a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str, stop: "Stop") -> bool:
    """Ask for confirmation; without a terminal the answer is no."""
    if not can_ask():
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    # A signal ends the wait for an answer.
    while not stop.is_set():
        if select.select([sys.stdin], [], [], 0.2)[0]:
            return sys.stdin.readline().strip().lower() in ("y", "yes")
    return False


def actions_of(node: "Node", journal: "NodeJournal", stop: "Stop", options: ActionOptions) -> "Mapping[str, Action]":
    """The actions that steps of a fix may name."""
    from exhume.present.fix_view import format_cost, outcome_line
    from exhume.remedy.services.actions import Patience, service_actions
    from exhume.remedy.zombies.apply import FREE_ZOMBIES, FreeZombies, Limits, Observer

    def accept(step: "Step") -> bool:
        return options.accept_cost or confirmed(f"{step.id}: {format_cost(step)}. Go on?", stop)

    def began(step: "Step", core: int | None) -> None:
        say(printable(f"  {step.id}: {step.title}{'' if core is None else f', on core {core}'} …"))

    def ended(outcome: "Outcome") -> None:
        say(printable(f"  {outcome_line(outcome)}"))

    limits = Limits(accept, step_s=options.step_s)
    patience = Patience(options.stop_wait_s, _stop_progress, stop)
    free = FreeZombies(node.root.host, stop, journal, limits, Observer(began=began, ended=ended))
    return {**service_actions(node.controls, node.files, patience), FREE_ZOMBIES: free}


class StopProgress:
    """Shows that a unit takes its time to stop: a bar on a terminal, else one line."""

    def __init__(self) -> None:
        self._name = ""
        self._bar: ProgressBar | None = None
        self._printed = False

    def __call__(self, name: str, waited: float, limit: float) -> None:
        if name != self._name or waited < 1:
            self._name, self._printed = name, False
            self._bar = ProgressBar(printable(f"{name} is stopping"))
        if sys.stderr.isatty() and self._bar is not None:
            self._bar(min(1.0, waited / max(limit, 1e-3)))
        elif waited >= _SLOW_STOP_S and not self._printed:
            self._printed = True
            say(printable(f"{name} has not stopped yet; waiting up to {limit:,.0f} s"))

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.__exit__()
            self._bar = None


_stop_progress = StopProgress()


def print_step(point: "Point", entry: "Entry") -> None:
    """Print what begins and what came of it."""
    from exhume.remedy.fixer import Point

    _stop_progress.close()
    if point is Point.WRITTEN:
        say(printable(f"{entry.step.id} …"))
    elif point is Point.MARKED:
        say(printable(f"{entry.step.id}: {entry.mark}{f': {entry.why}' if entry.why else ''}"))


def open_live_recording(node: "Node", directory: Path) -> "Recording | None":
    """The recording that goes on here, if one does."""
    from exhume.model.errors import RecordingError
    from exhume.store.read.recording import Recording

    if not node.root.is_here:
        return None
    try:
        return Recording.open(directory)
    except RecordingError:
        return None


def warn_unreadable(ledger: "Ledger") -> None:
    """Print which fixes can't be read; the others are used all the same."""
    for each in ledger.shelf().unreadable:
        say(printable(f"exhume: fix {each.id} is left out: {each.why}"))


def print_json(document: object) -> None:
    print(json.dumps(document))


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(printable(line))


def reading_width() -> int | None:
    """The width of the terminal; None without one, so that no line is broken for a program."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def printable(line: str) -> str:
    """Escape undecodable bytes and terminal control characters."""
    safe = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
    return safe.encode(errors="backslashreplace").decode()

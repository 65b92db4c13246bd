"""What the actions of `exhume fix` share: what they print and ask, and how they carry out steps while they do."""

import json
import select
import shlex
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.cli.commands.fix import WORK_DIR
from exhume.cli.terminal import ProgressBar, activity, say
from exhume.control.changes import NodeJournal
from exhume.model.remedy import Outcome, Step
from exhume.model.stop import Stop
from exhume.present.fix_view import format_cost, outcome_line
from exhume.remedy.fixer import Point
from exhume.remedy.ledger import Entry, Ledger
from exhume.remedy.services.actions import Action, Patience, service_actions
from exhume.remedy.services.node import Node, open_node

if TYPE_CHECKING:
    from exhume.collect.cgroup.pins import KnownPins

INTERRUPTED = (
    "exhume: interrupted; the current step is finished first (a slow stop is not waited for), and no other is begun"
)
_SLOW_STOP_S = 5.0


def work_dir_flag(work_dir: Path) -> str:
    """` --work-dir D` for a suggested command; empty for the default."""
    return "" if work_dir == WORK_DIR else f" --work-dir {shlex.quote(str(work_dir))}"


@contextmanager
def reach_node(path: Path) -> Iterator[Node]:
    """Open the node; on a terminal, show that it is waiting for systemd."""
    with ExitStack() as opened:
        with activity("connecting to systemd"):
            node = opened.enter_context(open_node(path))
        yield node


def can_ask() -> bool:
    """Whether there is a terminal on which a person can answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirmed(question: str, stop: Stop) -> bool:
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


class StepProgress:
    """Prints the start and the outcome of each step. A unit that is slow to stop is shown as a bar on a terminal, else
    as a line."""

    def __init__(self) -> None:
        self._stopping = ""
        self._bar: ProgressBar | None = None
        self._printed = False

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.__exit__()
            self._bar = None

    def step(self, point: Point, entry: Entry) -> None:
        self._end_bar()
        if point is Point.WRITTEN:
            say(printable(f"{entry.step.id} …"))
        elif point is Point.MARKED:
            say(printable(f"{entry.step.id}: {entry.mark}{f': {entry.why}' if entry.why else ''}"))

    def stopping(self, name: str, waited: float, limit: float) -> None:
        if name != self._stopping or waited < 1:
            self._stopping, self._printed = name, False
            self._bar = ProgressBar(printable(f"{name} is stopping"))
        if sys.stderr.isatty() and self._bar is not None:
            self._bar(min(1.0, waited / max(limit, 1e-3)))
        elif waited >= _SLOW_STOP_S and not self._printed:
            self._printed = True
            say(printable(f"{name} has not stopped yet; waiting up to {limit:,.0f} s"))

    def searched(self, share: float) -> None:
        """The share of the search for files that pin zombies; 1 at its end."""
        if share >= 1.0:
            self._end_bar()
            return
        if self._bar is None:
            self._bar = ProgressBar("searching for files that pin zombies")
        self._bar(share)

    def part_began(self, step: Step, core: int | None) -> None:
        say(printable(f"  {step.id}: {step.title}{'' if core is None else f', on core {core}'} …"))

    def part_ended(self, outcome: Outcome) -> None:
        say(printable(f"  {outcome_line(outcome)}"))


def actions_of(
    node: Node,
    journal: NodeJournal,
    stop: Stop,
    progress: StepProgress,
    *,
    accept_cost: bool = False,
    step_s: float = 60.0,
    stop_wait_s: float = 600.0,
    known: "KnownPins | None" = None,
) -> Mapping[str, Action]:
    """The actions that the steps of a fix may use. `accept_cost` is whether a CPU spike is accepted without asking;
    `known` are the pins of zombies that the plan found."""
    # Imported here: it takes 0.3 s, and `exhume fix list` does not need it.
    from exhume.collect.cgroup.pins import KnownPins
    from exhume.remedy.zombies.apply import FREE_ZOMBIES, FreeZombies, Limits, Observer

    def accept(step: Step) -> bool:
        return accept_cost or confirmed(f"{step.id}: {format_cost(step)}. Go on?", stop)

    observer = Observer(began=progress.part_began, ended=progress.part_ended, searched=progress.searched)
    limits = Limits(accept, step_s=step_s)
    known = known if known is not None else KnownPins()
    free = FreeZombies(node.root.host, stop, journal, limits, observer, known=known)
    patience = Patience(stop_wait_s, progress.stopping, stop)
    return {**service_actions(node.controls, node.files, patience), FREE_ZOMBIES: free}


def warn_unreadable(ledger: Ledger) -> None:
    """Print which fixes can't be read; all others are used."""
    for each in ledger.shelf().unreadable:
        say(printable(f"exhume: fix {each.id} is left out: {each.why}"))


def print_document(options: Namespace, document: object, lines: Iterable[str]) -> None:
    """Print a document if --json is given, else the lines."""
    for line in [json.dumps(document)] if options.json else map(printable, lines):
        print(line, flush=True)


def reading_width() -> int | None:
    """The width of the terminal; None without one, so that no line is broken in piped output."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def printable(line: str) -> str:
    """Escape undecodable bytes and terminal control characters."""
    safe = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
    return safe.encode(errors="backslashreplace").decode()

"""The deeds of a fix on this node, and saying what is done while it is done."""

import sys
from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

from exhume.cli.fix_words import confirmed, printable

if TYPE_CHECKING:
    from exhume.cli.terminal import ProgressBar
    from exhume.model.remedy import Outcome, Step
    from exhume.model.stop import Stop
    from exhume.remedy.fixes import Point
    from exhume.remedy.journal import Journal
    from exhume.remedy.ledger import Entry
    from exhume.remedy.services.actions import Action
    from exhume.remedy.services.node import Node

ENDS_SOON = (
    "exhume: heard; the step that was begun is ended first (a stop that takes long is not waited for), and no other is "
    "begun"
)

_TELL_AFTER_S = 5.0


def actions_of(node: "Node", journal: "Journal", options: Namespace, stop: "Stop") -> Mapping[str, "Action"]:
    """What each step of a fix may ask for."""
    from exhume.cli.terminal import say
    from exhume.present.fix_view import cost_words, outcome_line
    from exhume.remedy.services.actions import service_actions
    from exhume.remedy.services.stopping import LONGEST_S, Patience
    from exhume.remedy.zombies.apply import Applier, Tell, Wishes
    from exhume.remedy.zombies.as_step import FREE_ZOMBIES, FreeZombies
    from exhume.remedy.zombies.look import Watch, memory_root

    def accept(step: "Step") -> bool:
        return getattr(options, "accept_cost", False) or confirmed(f"{step.id}: {cost_words(step)}. Go on?", stop)

    def ended(outcome: "Outcome") -> None:
        say(f"  {printable(outcome_line(outcome))}")

    host = node.root.host
    watch = Watch(host, options.work_dir.absolute())
    applier = Applier(host, stop, journal, memory_root(host), watch, Tell(ended=ended))
    wishes = Wishes(accept, step_s=getattr(options, "max_time", 60.0))
    longest = getattr(options, "stop_wait", LONGEST_S)
    patience = Patience(longest, _waiting, stop)
    return {**service_actions(node.controls, node.files, patience), FREE_ZOMBIES: FreeZombies(applier, wishes)}


class Waiting:
    """Tells that a unit takes its time to stop: on a terminal by a bar, else in one line."""

    def __init__(self) -> None:
        self._name = ""
        self._bar: ProgressBar | None = None
        self._told = False

    def __call__(self, name: str, waited: float, limit: float) -> None:
        from exhume.cli.terminal import ProgressBar, say

        if name != self._name or waited < 1:
            self._name, self._told = name, False
            self._bar = ProgressBar(printable(f"{name} is stopping"))
        if sys.stderr.isatty() and self._bar is not None:
            self._bar(min(1.0, waited / max(limit, 1e-3)))
        elif waited >= _TELL_AFTER_S and not self._told:
            self._told = True
            say(printable(f"{name} has not stopped yet; it is waited for up to {limit:,.0f} s"))

    def over(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.__exit__()
            self._bar = None


_waiting = Waiting()


def hear(point: "Point", entry: "Entry") -> None:
    """Say what begins and what came of it."""
    from exhume.cli.terminal import say
    from exhume.remedy.fixes import Point

    _waiting.over()
    if point is Point.WRITTEN:
        say(printable(f"{entry.step.id} …"))
    elif point is Point.MARKED:
        say(printable(f"{entry.step.id}: {entry.mark}{f': {entry.why}' if entry.why else ''}"))

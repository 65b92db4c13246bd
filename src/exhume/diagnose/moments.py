"""Incidents as people see them: marks of the recorder that belong together, and the finding that explains each best."""

from collections.abc import Sequence
from dataclasses import dataclass

from exhume.model.clock import NANOS, Window
from exhume.model.finding import Finding
from exhume.model.tables import DYING_CGROUPS
from exhume.store.read.events import EventView

# What to look at around a mark. Marks whose surroundings overlap are of one moment, unless that becomes too long to be
# one.
AROUND_NS = 20 * NANOS
TOGETHER_NS = 2 * AROUND_NS
LONGEST_NS = 120 * NANOS
# A growth is marked when it has gone on for up to this long.
GROWTH_NS = 60 * NANOS


@dataclass(frozen=True, slots=True)
class Moment:
    """Marks of one episode, in their order."""

    marks: tuple[EventView, ...]

    @property
    def trigger(self) -> str | None:
        """What all of its marks were made for; None where that differs."""
        triggers = {mark.trigger for mark in self.marks}
        return triggers.pop() if len(triggers) == 1 else None

    @property
    def window(self) -> Window:
        """What to look at to explain it. A growth is visible only after its first second."""
        first, last = self.marks[0].wall, self.marks[-1].wall
        if self.trigger == DYING_CGROUPS:
            return Window(first, last + GROWTH_NS + AROUND_NS)
        return Window(first - AROUND_NS, last + AROUND_NS)

    @property
    def span(self) -> Window:
        """From its first mark to its last, each for as long as it says that a core was held, a second at least."""
        held = (mark.wall + int((mark.value or 0) * NANOS) for mark in self.marks if mark.cpu is not None)
        return Window(self.marks[0].wall, max(self.marks[-1].wall + NANOS, *held, 0))

    @property
    def at(self) -> int:
        """Its middle: the diagnosis looks for the trouble nearest to it."""
        if self.trigger == DYING_CGROUPS:
            return self.marks[-1].wall + GROWTH_NS // 2
        return (self.marks[0].wall + self.marks[-1].wall) // 2


def best_finding(findings: Sequence[Finding], trigger: str | None) -> Finding | None:
    """The finding that explains a moment: of the cause that its trigger is about, else the first one."""
    best = best_cause([finding.cause for finding in findings], trigger)
    return None if best is None else findings[best]


def best_cause(causes: Sequence[str], trigger: str | None) -> int | None:
    """The same by the causes of the findings, in their order: which of them it is."""
    # Lists of marks do without it.
    from exhume.diagnose.catalogue import catalogue

    known = catalogue()
    about = (
        place
        for place, cause in enumerate(causes)
        if trigger is not None and cause in known and trigger in known[cause].marks
    )
    return next(about, 0 if causes else None)


def moments_of(marks: Sequence[EventView]) -> list[Moment]:
    """Marks (in the order of time) in groups. A growth is a moment of its own: it is visible over other seconds than
    what happened next to it, and has another explanation."""
    groups: list[list[EventView]] = []
    newest: dict[bool, list[EventView]] = {}
    for mark in marks:
        grows = mark.trigger == DYING_CGROUPS
        last = newest.get(grows)
        if last and mark.wall - last[-1].wall <= TOGETHER_NS and mark.wall - last[0].wall <= LONGEST_NS:
            last.append(mark)
        else:
            newest[grows] = [mark]
            groups.append(newest[grows])
    return [Moment(tuple(group)) for group in groups]

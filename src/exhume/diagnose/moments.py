"""Incidents as users see them: marks of the recorder that belong together, and the finding that explains them best."""

from collections.abc import Sequence
from dataclasses import dataclass

from exhume.model.clock import NANOS, Window
from exhume.model.finding import Finding
from exhume.model.tables import DYING_CGROUPS
from exhume.store.read.events import EventView

# Time to look at around a mark. Marks whose surroundings overlap belong to one moment, up to a maximum length.
AROUND_NS = 20 * NANOS
TOGETHER_NS = 2 * AROUND_NS
LONGEST_NS = 120 * NANOS
# A growth mark is dated to the beginning of the growth and is set up to this long after it.
GROWTH_NS = 60 * NANOS


@dataclass(frozen=True, slots=True)
class Moment:
    """Marks of one episode, in order of time."""

    marks: tuple[EventView, ...]

    @property
    def trigger(self) -> str | None:
        """The trigger of the marks; None if they differ."""
        triggers = {mark.trigger for mark in self.marks}
        return triggers.pop() if len(triggers) == 1 else None

    @property
    def window(self) -> Window:
        """The window to diagnose. Growth only becomes visible after its first second."""
        first, last = self.marks[0].wall, self.marks[-1].wall
        if self.trigger == DYING_CGROUPS:
            return Window(first, last + GROWTH_NS + AROUND_NS)
        return Window(first - AROUND_NS, last + AROUND_NS)

    @property
    def span(self) -> Window:
        """From the first mark to the last, extended by the time that a mark says a core was held; at least a second."""
        held = (mark.wall + int((mark.value or 0) * NANOS) for mark in self.marks if mark.cpu is not None)
        return Window(self.marks[0].wall, max(self.marks[-1].wall + NANOS, *held, 0))

    @property
    def at(self) -> int:
        """The middle: the diagnosis looks for the focus nearest to it."""
        if self.trigger == DYING_CGROUPS:
            return self.marks[-1].wall + GROWTH_NS // 2
        return (self.marks[0].wall + self.marks[-1].wall) // 2


def best_finding(findings: Sequence[Finding], trigger: str | None) -> Finding | None:
    """The finding that explains a moment: one whose cause the trigger is about, otherwise the first."""
    best = best_cause([finding.cause for finding in findings], trigger)
    return None if best is None else findings[best]


def best_cause(causes: Sequence[str], trigger: str | None) -> int | None:
    """The index of the cause that explains a moment, given the causes of the findings in their order."""
    # Listing marks does not need the catalogue.
    from exhume.diagnose.catalogue import catalogue

    known = catalogue()
    about = (
        place
        for place, cause in enumerate(causes)
        if trigger is not None and cause in known and trigger in known[cause].marks
    )
    return next(about, 0 if causes else None)


def moments_of(marks: Sequence[EventView]) -> list[Moment]:
    """Group marks, which are in order of time, into moments. Growth marks are grouped on their own: growth shows over
    other seconds than what happened next to it, and has another explanation."""
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

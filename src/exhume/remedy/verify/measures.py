"""What each measure is: its words, and how much of a change matters."""

from dataclasses import dataclass
from enum import StrEnum

from exhume.model.remedy import Effect, Measure


class Kind(StrEnum):
    """How a measure is compared.

    A LEVEL is a value at a time (a share, a wait). A FLOW is an amount that passes all the time (pages, forks). EVENTS
    are single happenings that are counted. A STOCK is a count that stands until something adds to it or takes away.
    """

    LEVEL = "level"
    FLOW = "flow"
    EVENTS = "events"
    STOCK = "stock"


@dataclass(frozen=True, slots=True)
class Meaning:
    """A measure in words and numbers. Lower is better for all of them.

    `per` is what an amount is told for, in seconds; 0 for what is no amount. A change matters from `matters` on (in
    `unit`) and from `share` of what was there before. Below `nothing` there is nothing of it. A second from `spike` on
    is one that hurts by itself; None where there is no such second.
    """

    title: str
    unit: str
    kind: Kind
    matters: float = 0.0
    share: float = 0.0
    nothing: float = 0.0
    per: float = 0.0
    spike: float | None = None
    spike_words: str = ""


_HOUR = 3600.0

MEANINGS: dict[Measure, Meaning] = {
    Measure.ZOMBIES: Meaning("zombies", "zombies", Kind.STOCK, matters=50, share=0.1, nothing=50),
    Measure.ZOMBIE_GROWTH: Meaning(
        "growth of zombies", "zombies an hour", Kind.FLOW, matters=30, share=0.2, nothing=30, per=_HOUR, spike=1e-9,
        spike_words="times at which zombies came",
    ),
    Measure.BUSIEST_CORE: Meaning(
        "busiest core", "of a core", Kind.LEVEL, matters=0.1, nothing=0.1, spike=0.95,
        spike_words="times at which a core had no time left",
    ),
    Measure.KERNEL_CORE: Meaning(
        "kernel on its worst core", "of a core", Kind.LEVEL, matters=0.05, share=0.2, nothing=0.1, spike=0.8,
        spike_words="times at which the kernel held a core",
    ),
    Measure.THROTTLING: Meaning(
        "throttling", "s held back a second", Kind.FLOW, matters=0.02, share=0.2, nothing=0.01, per=1.0, spike=0.1,
        spike_words="times at which cgroups were held back",
    ),
    Measure.RECLAIM: Meaning(
        "reclaim", "pages a second", Kind.FLOW, matters=250, share=0.2, nothing=50, per=1.0, spike=1000.0,
        spike_words="times at which memory was reclaimed",
    ),
    Measure.RESTARTS: Meaning("restarts", "an hour", Kind.EVENTS, per=_HOUR),
    Measure.NIC_TIMEOUTS: Meaning("timeouts of network cards", "an hour", Kind.EVENTS, per=_HOUR),
    Measure.FORKS: Meaning("forks", "a second", Kind.FLOW, matters=20, share=0.2, nothing=20, per=1.0),
    Measure.RUN_QUEUE_WAIT: Meaning(
        "wait for a core", "s waited a second on the worst core", Kind.LEVEL, matters=0.05, share=0.2, nothing=0.05,
        spike=1.0, spike_words="times at which tasks queued for a core",
    ),
}  # fmt: skip

# What is promised most; a plan's steps may each say something of the same measure.
_STRENGTH = ("stay", "rise", "fall", "stop")


def promised(effects: "list[Effect] | tuple[Effect, ...]") -> tuple[Effect, ...]:
    """The effects of all steps together: each measure of each subject once, with the most that any step promises."""
    strongest: dict[tuple[Measure, str], Effect] = {}
    for effect in effects:
        key = (effect.measure, effect.subject)
        known = strongest.get(key)
        if known is None or _strength(effect) > _strength(known):
            strongest[key] = effect
    return tuple(strongest.values())


def _strength(effect: Effect) -> int:
    return _STRENGTH.index(effect.expected) if effect.expected in _STRENGTH else 0

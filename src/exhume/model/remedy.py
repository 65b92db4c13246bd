"""The words for remedies: a plan of steps, what came of each, and how things stand afterwards."""

from dataclasses import dataclass, field
from enum import StrEnum


class Risk(StrEnum):
    """What could go wrong for others on the node."""

    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do. `action` names how it is carried out, on which `targets` (files, cgroups, swaps, processes);
    `commands` are the same in words that a person could type. A step without an action is for a person to take.

    `cpu_seconds` is the predicted cost on one core; a `spike` is one that a node may feel, so it has to be accepted.
    """

    id: str
    title: str
    why: str
    action: str = ""
    targets: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    frees_at_most: int | None = None
    cpu_seconds: float = 0.0
    spike: bool = False
    bytes: int = 0
    risk: Risk = Risk.LOW
    harm: str = ""
    reversible: bool = True
    undo: str = ""

    @property
    def automatic(self) -> bool:
        return bool(self.action)


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in the order of least harm. `count` is how much there is to free, None where that can't be counted;
    `summary` is the plan in a sentence, `blind_spots` what it could not see."""

    target: str
    count: int | None
    summary: str
    steps: tuple[Step, ...] = ()
    blind_spots: tuple[str, ...] = ()


class Status(StrEnum):
    """What came of a step."""

    DONE = "done"
    NOT_NEEDED = "not-needed"
    NOT_ASKED = "not-asked"
    MANUAL = "manual"
    REFUSED = "refused"
    TIMED_OUT = "timed-out"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A step that was taken or left out, with the counts around it, its cost, and why when it isn't simply done."""

    step: Step
    status: Status
    before: int | None
    after: int | None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    core: int | None = None
    why: str = ""

    @property
    def freed(self) -> int | None:
        """How many fewer there are; never negative, as others may come meanwhile."""
        return None if self.before is None or self.after is None else max(0, self.before - self.after)


@dataclass(frozen=True, slots=True)
class Report:
    """How it was, what was done, how it is, and why something is left."""

    plan: Plan
    before: int | None
    after: int | None
    outcomes: tuple[Outcome, ...] = ()
    left_because: tuple[str, ...] = field(default=())
    interrupted: bool = False

"""Remedies: a plan of steps, the outcome of each, and the verification afterwards."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Risk(StrEnum):
    """The possible harm to others on the node."""

    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Measure(StrEnum):
    """A value that is measured before and after a fix."""

    ZOMBIES = "zombies"
    ZOMBIE_GROWTH = "zombie-growth"
    BUSIEST_CORE = "busiest-core"
    KERNEL_CORE = "kernel-core"
    THROTTLING = "throttling"
    RECLAIM = "reclaim"
    RESTARTS = "restarts"
    NIC_TIMEOUTS = "nic-timeouts"
    FORKS = "forks"
    RUN_QUEUE_WAIT = "run-queue-wait"


@dataclass(frozen=True, slots=True)
class Effect:
    """The expected effect of a step on a measure: `expected` is fall, stop (to zero), stay or rise. `subject` narrows
    it (the unit or container whose restarts are counted); empty: the whole node."""

    measure: Measure
    expected: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a plan. `action` names how it is carried out, on which `targets` (files, cgroups, swaps, processes)
    and with which `params`; `commands` are the equivalent for a person to type. A step without an action is left to a
    person. `parts` are the steps that it consists of, as far as they are known at planning time.

    `cpu_seconds` is the predicted cost on one core; a `spike` may be noticeable on the node, so it has to be accepted.
    `dependents` are units or containers that may rely on the target; `files` are those that it writes, path and
    content; `effects` say which measures should change, and how. `undo_commands` undo it by hand.
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
    dependents: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    effects: tuple["Effect", ...] = ()
    undo_commands: tuple[str, ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    parts: tuple["Step", ...] = ()

    @property
    def automatic(self) -> bool:
        return bool(self.action)


@dataclass(frozen=True, slots=True)
class NotIncluded:
    """Something that a plan for everything leaves out, and why; a plan for `target` includes it."""

    target: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps ordered by least harm. `count` is how much there is to free, None if that can't be counted; `summary` is
    the plan in a sentence, `blind_spots` what it could not see, `refusals` what is not done, and why; `not_included` is
    what is only done if it is named."""

    target: str
    count: int | None
    summary: str
    steps: tuple[Step, ...] = ()
    blind_spots: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    not_included: tuple[NotIncluded, ...] = ()


class Status(StrEnum):
    """The result of a step."""

    DONE = "done"
    NOT_NEEDED = "not-needed"
    NOT_REQUESTED = "not-requested"
    MANUAL = "manual"
    REFUSED = "refused"
    TIMED_OUT = "timed-out"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A step that was taken or skipped: the counts before and after, its cost, and the reason if not simply done."""

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
        """How many were freed; never negative, as others may appear meanwhile."""
        return None if self.before is None or self.after is None else max(0, self.before - self.after)


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of carrying out a step: a sentence worth knowing, and the figures behind it (JSON values)."""

    why: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """The counts before and after a plan against zombies, what was done, and why something is left. `memory_freed`
    (bytes) is the decrease of the kernel's unreclaimable slab and per-CPU memory meanwhile."""

    plan: Plan
    before: int | None
    after: int | None
    outcomes: tuple[Outcome, ...] = ()
    left_because: tuple[str, ...] = field(default=())
    interrupted: bool = False
    memory_freed: int | None = None


class Change(StrEnum):
    """How a measure changed."""

    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    WORSE = "worse"
    UNPROVEN = "not-enough-evidence"


@dataclass(frozen=True, slots=True)
class Stretch:
    """A measure over a period of time: its value (None: could not be measured), over how many seconds, from how many
    observations, and its source (recording or live)."""

    value: float | None
    seconds: float
    observations: int
    source: str


@dataclass(frozen=True, slots=True)
class Verified:
    """A measure before and after, the verdict, and its reason in a sentence. `as_expected` says whether it changed as
    the plan promised: a measure that should stop may have improved and yet continue."""

    effect: Effect
    unit: str
    before: Stretch
    after: Stretch
    change: Change
    why: str
    as_expected: bool = False


@dataclass(frozen=True, slots=True)
class Verification:
    """The verdict on every measure of a fix. Times are wall nanoseconds."""

    node: str
    fix: str
    target: str
    applied_at: int
    looked_from: int
    looked_until: int
    measures: tuple[Verified, ...]
    done: tuple[str, ...] = ()
    interrupted: bool = False
    blind_spots: tuple[str, ...] = ()

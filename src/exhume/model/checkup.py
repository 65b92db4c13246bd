"""Types of a checkup: what a node's counters show by themselves, without a recording."""

from dataclasses import dataclass, field
from enum import StrEnum

CHECKUP_VERSION = 2


class Level(StrEnum):
    """What a check came to. `unseen`: it could not be looked at."""

    WELL = "well"
    LOOK = "look"
    BAD = "bad"
    UNSEEN = "unseen"

    @property
    def rank(self) -> int:
        return (Level.WELL, Level.UNSEEN, Level.LOOK, Level.BAD).index(self)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a checkup: what was found, from where on it would matter, and what that means or what to do about it.
    `number` is the value for programs."""

    id: str
    title: str
    level: Level
    value: str
    limit: str = ""
    text: str = ""
    number: float | None = None


@dataclass(frozen=True, slots=True)
class QuotaCount:
    """A cgroup with a CPU quota, since it was made: periods in which it ran, and those in which it was stopped."""

    cgroup: str
    periods: int
    throttled: int


@dataclass(frozen=True, slots=True)
class Restarted:
    """A container or unit whose processes were all younger at the end of a look than the look was long."""

    name: str
    comm: str
    age_s: float


@dataclass(frozen=True, slots=True)
class Vitals:
    """What the files of /proc and /sys say at one moment. None where it could not be read; `unseen` says why, by the
    name of the field. Pressure is the share (0 to 1) of the last one and five minutes, by resource."""

    uptime_s: float
    memory_bytes: int | None = None
    dentries_negative: int | None = None
    mounts: int | None = None
    conntrack: int | None = None
    conntrack_max: int | None = None
    steal: float | None = None
    oom_kills: int | None = None
    tx_timeouts: dict[str, int] | None = None
    pressure: dict[str, tuple[float, float]] = field(default_factory=dict)
    quotas: list[QuotaCount] | None = None
    failed_units: list[str] | None = None
    unseen: dict[str, str] = field(default_factory=dict)

"""Who made the zombies: the recorded births, removals and ends of cgroups, paired and put under one pattern each.

A cgroup that was removed two seconds ago and was not released is a zombie. Its path names whoever leaked it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from exhume.diagnose.generalise import generalise
from exhume.model.clock import NANOS

# A clean removal is released within some 40 ms.
RELEASED_WITHIN_NS = 2 * NANOS
_HOUR_NS = 3600 * NANOS

# Columns of cgroup_events, with the wall time.
COLUMNS = ("wall", "op", "id", "path", "pid", "comm")


@dataclass(slots=True)
class Life:
    """What is known of one cgroup. Times are wall nanoseconds; `born` and its maker are unknown for one that was made
    before the recording began."""

    path: str
    born: int | None = None
    pid: int | None = None
    comm: str | None = None
    removed: int | None = None


@dataclass(slots=True)
class Leaker:
    """All cgroups of one pattern: how many were made and how many of them are zombies now, by whom, and from when to
    when those were removed. `lives` are the zombies, in the order of their removal."""

    pattern: str
    made: int = 0
    lives: list[Life] = field(default_factory=list)

    @property
    def zombies(self) -> int:
        return len(self.lives)

    @property
    def first(self) -> int:
        return self.lives[0].removed or 0

    @property
    def last(self) -> int:
        return self.lives[-1].removed or 0

    @property
    def per_hour(self) -> float | None:
        """How fast they came, between the first and the last; None for too few to tell."""
        span = self.last - self.first
        return (self.zombies - 1) * _HOUR_NS / span if self.zombies > 2 and span >= NANOS else None

    @property
    def creators(self) -> list[tuple[str, int]]:
        """The names of the processes that made them, the busiest first."""
        return Counter(life.comm for life in self.lives if life.comm).most_common()


@dataclass(frozen=True, slots=True)
class LeakReport:
    """Everybody who left zombies, those with the most first; and how many cgroups were made in all."""

    leakers: list[Leaker] = field(default_factory=list)
    zombies: int = 0
    made: int = 0


def find_leakers(events: Mapping[str, Sequence[object]], now: int) -> LeakReport:
    """Pair the events (columns of one hierarchy and one boot, in the order of time) as of a wall time."""
    alive: dict[int, Life] = {}
    leakers: dict[str, Leaker] = {}
    made = 0
    for wall, op, number, path, pid, comm in _rows(events):
        if op == "mkdir":
            made += 1
            alive[number] = Life(path, wall, pid, comm)
            _leaker(leakers, path).made += 1
        elif op == "rmdir":
            alive.setdefault(number, Life(path)).removed = wall
        elif op == "release":
            alive.pop(number, None)
    zombies = [life for life in alive.values() if life.removed is not None and life.removed <= now - RELEASED_WITHIN_NS]
    for life in sorted(zombies, key=lambda life: life.removed or 0):
        _leaker(leakers, life.path).lives.append(life)
    guilty = [leaker for leaker in leakers.values() if leaker.lives]
    guilty.sort(key=lambda leaker: (-leaker.zombies, leaker.pattern))
    return LeakReport(guilty, len(zombies), made)


def _leaker(leakers: dict[str, Leaker], path: str) -> Leaker:
    pattern = generalise(path)
    if pattern not in leakers:
        leakers[pattern] = Leaker(pattern)
    return leakers[pattern]


def _rows(events: Mapping[str, Sequence[object]]) -> Iterable[tuple[int, str, int, str, int | None, str | None]]:
    for wall, op, number, path, pid, comm in zip(*(events[name] for name in COLUMNS), strict=True):
        # Rows that only count (op = churn) name no cgroup.
        if isinstance(wall, int) and isinstance(number, int) and isinstance(path, str):
            yield (
                wall,
                str(op),
                number,
                path,
                pid if isinstance(pid, int) else None,
                comm if isinstance(comm, str) else None,
            )

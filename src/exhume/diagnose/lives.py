"""Things that come and go one after the other: cgroups made and removed in the same place, again and again."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from exhume.diagnose.generalise import generalise
from exhume.diagnose.rows import Rows
from exhume.model.clock import NANOS

# A unit that systemd numbers by itself, for a login or a command: each is another thing.
_TRANSIENT = re.compile(r"^(session-\d+|run-[ru]?[0-9a-f]+|user-runtime-dir@.*|user@.*)\.(scope|service)$")


@dataclass(slots=True)
class Life:
    """One of them: its path, and when it was made and removed (wall nanoseconds)."""

    path: str
    born: int
    ended: int


@dataclass(slots=True)
class Series:
    """Those of one place, in the order of their birth."""

    pattern: str
    maker: str | None
    hierarchy: int
    lives: list[Life] = field(default_factory=list)

    @property
    def pace_s(self) -> float:
        """Seconds between two births, in the middle."""
        return float(np.median(np.diff([life.born for life in self.lives]))) / NANOS

    @property
    def life_s(self) -> float:
        return float(np.median([life.ended - life.born for life in self.lives])) / NANOS

    @property
    def longest_pause_s(self) -> float:
        """From the end of one to the birth of the next, at most."""
        ends = np.maximum.accumulate([life.ended for life in self.lives])
        return max(0.0, float(np.max([b.born - e for b, e in zip(self.lives[1:], ends[:-1], strict=True)])) / NANOS)

    @property
    def at_once(self) -> float:
        """How many there were at a time, on average over those times when there was any."""
        total = sum(life.ended - life.born for life in self.lives)
        covered = 0
        reach = 0
        for life in self.lives:
            covered += max(0, life.ended - max(life.born, reach))
            reach = max(reach, life.ended)
        return total / covered if covered else 0.0

    @property
    def irregularity(self) -> float:
        """Deviation of the times between births from their mean, as a part of it: a crowd has 1 and more."""
        steps = np.diff([life.born for life in self.lives]).astype(np.float64)
        return float(steps.std() / steps.mean()) if len(steps) > 1 and steps.mean() > 0 else 0.0


def series_of_cgroups(events: Rows) -> list[Series]:
    """The series in rows of cgroup_events, one for each place: of several hierarchies the one that tells most."""
    born: dict[tuple[int, int], tuple[int, str, str | None]] = {}
    found: dict[tuple[int, str], Series] = {}
    columns = ("wall", "hierarchy", "op", "id", "path", "comm")
    rows = events.matching("op", "mkdir", "rmdir").listed(*columns)
    for wall, hierarchy, op, number, path, comm in sorted(rows, key=lambda row: row[0]):
        if number is None or path is None:
            continue
        if op == "mkdir":
            born[hierarchy, number] = (wall, path, comm)
        elif op == "rmdir" and (hierarchy, number) in born:
            began, name, maker = born.pop((hierarchy, number))
            place = place_of(name)
            if place is not None:
                series = found.setdefault((hierarchy, place), Series(place, maker, hierarchy))
                series.lives.append(Life(name, began, wall))
    return _fullest(found.values())


def place_of(path: str) -> str | None:
    """Where a thing is made, its own id left out: a pod's containers are one place, another pod's are another. None
    for what is new each time by its nature."""
    parent, _, leaf = path.rpartition("/")
    return None if _TRANSIENT.match(leaf) else f"{parent}/{generalise(leaf)}"


def _fullest(found: Iterable[Series]) -> list[Series]:
    best: dict[str, Series] = {}
    for series in found:
        series.lives.sort(key=lambda life: life.born)
        if series.pattern not in best or len(series.lives) > len(best[series.pattern].lives):
            best[series.pattern] = series
    return sorted(best.values(), key=lambda series: -len(series.lives))

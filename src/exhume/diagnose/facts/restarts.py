"""Restarts: programs, Docker containers and systemd services that end again and again, from events."""

from dataclasses import dataclass, replace

import numpy as np

from exhume.diagnose.evidence.rows import Rows
from exhume.model.clock import NANOS
from exhume.model.finding import Entity, EntityKind, Evidence
from exhume.model.tables import RESTART

DIED = "container-die"
UNIT_ENDED, UNIT_RESTARTED = "unit-ended", "unit-restarted"


@dataclass(frozen=True)
class Restarts:
    """A thing that ended again and again: its name, how often, and whether each end was a failure of a service (False
    where that isn't known, or where it may have been a helper's answer). `interval_s` is None for a program that was
    recorded once; `line` is the newest event about it. `runs` and `succeeded` are counted for units."""

    name: str
    times: float
    failed: bool
    interval_s: float | None
    line: str
    evidence: Evidence
    rows: Rows
    kind: EntityKind = EntityKind.PROCESS
    runs: int | None = None
    succeeded: int | None = None

    @property
    def is_container(self) -> bool:
        return self.kind is EntityKind.CONTAINER

    @property
    def is_unit(self) -> bool:
        return self.kind is EntityKind.UNIT

    @property
    def entity(self) -> Entity:
        return Entity(self.kind, "" if self.kind is EntityKind.PROCESS else self.name, self.name)

    @property
    def containers(self) -> frozenset[str]:
        """The container ids it had."""
        return frozenset(each for each in self.rows.texts("container").tolist() if each)


def find_restarts(events: Rows, least: float) -> list[Restarts]:
    """The things that ended at least that many times, in rows of events."""
    if not len(events):
        return []
    again = events.matching("kind", UNIT_RESTARTED)
    restarted = {name for name, rows in _by(again, "comm") if len(rows) >= least - 1}
    units = (_unit(rows, name) for name, rows in _by(events.matching("kind", UNIT_ENDED), "comm"))
    return [
        each
        for each in (
            # A unit that succeeds and is not restarted by systemd is started when it is needed.
            *(unit for unit in units if unit.failed or unit.name in restarted),
            *(_program(rows, name) for name, rows in _by(events.matching("kind", RESTART), "comm")),
            *(_container(rows, name) for name, rows in _by(events.matching("kind", DIED), "container_name")),
        )
        if each.times >= least
    ]


def _by(rows: Rows, column: str) -> list[tuple[str, Rows]]:
    names = sorted({name for name in rows.texts(column).tolist() if name}) if len(rows) else []
    return [(name, rows.matching(column, name)) for name in names]


def _program(rows: Rows, name: str) -> Restarts:
    times = rows.total("value") or 0.0
    span = (int(rows.wall.max()) - int(rows.wall.min())) / NANOS
    # The first row counts ends before it: they don't belong to the time between the rows.
    later = times - float(rows.numbers("value")[rows.wall.argmin()])
    pace = span / later if later > 0 and span > 0 else None
    failed = all(severity != "info" for severity in rows.texts("severity").tolist())
    match = (("kind", RESTART), ("comm", name))
    evidence = Evidence("events", "value", "sum", times, int(rows.wall.min()), int(rows.wall.max()) + 1, match=match)
    return Restarts(name, times, failed, pace, _newest(rows), evidence, rows)


def _unit(rows: Rows, name: str) -> Restarts:
    ended = _ended(rows, name, (("kind", UNIT_ENDED), ("comm", name)))
    well = int(np.sum(rows.numbers("value") == 0))
    return replace(ended, kind=EntityKind.UNIT, runs=len(rows), succeeded=well)


def _container(rows: Rows, name: str) -> Restarts:
    return replace(_ended(rows, name, (("kind", DIED), ("container_name", name))), kind=EntityKind.CONTAINER)


def _ended(rows: Rows, name: str, match: tuple[tuple[str, str], ...]) -> Restarts:
    """A thing whose ends are recorded with their exit codes."""
    pace = float(np.median(np.diff(np.sort(rows.wall)))) / NANOS if len(rows) > 1 else None
    codes = rows.numbers("value")
    failed = bool(np.all(~np.isnan(codes) & (codes != 0)))
    evidence = Evidence(
        "events", "kind", "count", len(rows), int(rows.wall.min()), int(rows.wall.max()) + 1, match=match
    )
    return Restarts(name, float(len(rows)), failed, pace, _newest(rows), evidence, rows)


def _newest(rows: Rows) -> str:
    return str(rows.texts("text")[rows.wall.argmax()])

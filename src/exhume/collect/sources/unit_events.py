"""Starts, ends and failures of systemd services, from systemd's signals on the bus.

Nothing is polled every second: systemd signals changes, and they are read without waiting. Only services that changed
are remembered, and only those are queried now and then, for changes that a lost connection may have missed.
"""

import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.collect.node_root import NodeRoot
from exhume.collect.source import NOTHING, Pace, TickRows, event_rows
from exhume.collect.systemd.bus import MANAGER, PROPERTIES, SERVICE, UNIT, Bus, BusError, Call, get_all
from exhume.collect.systemd.bus import properties as property_values
from exhume.model.clock import Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.tables import Events

STARTED, ENDED, FAILED, RESTARTED = "unit-started", "unit-ended", "unit-failed", "unit-restarted"
# A lost bus is retried at this interval, and each attempt may wait this long. The first attempt is made before the
# first tick, where it delays nothing; on a node that is already starved half a second may be too short.
_LOOK_EVERY_S = 30.0
_PATIENCE_S, _FIRST_PATIENCE_S = 0.5, 5.0
_QUERY_EVERY_S = 600.0
_MOST_ROWS = 256
_MOST_AT_ONCE = 32
# How many services are remembered, and how many of them are queried again.
_MOST_KNOWN = 1024
_MOST_QUERIED = 64
_EXITED = 1
_ESCAPED = re.compile(r"_([0-9a-f]{2})")
_FROM = "type='signal',sender='org.freedesktop.systemd1',"
_RULES = (
    f"{_FROM}interface='{MANAGER}',member='JobRemoved'",
    f"{_FROM}interface='{PROPERTIES}',member='PropertiesChanged',arg0='{SERVICE}'",
)
_JOBS = {
    "dependency": "was not started: a unit that it requires failed",
    "timeout": "was not started in time",
}


@dataclass(slots=True)
class _ServiceState:
    """The known state of a service; times are systemd's monotonic microseconds."""

    started: int = 0
    ended: int = 0
    restarts: int | None = None
    result: str = "success"


class UnitEventSource:
    """Rows of the events table; `comm` is the unit's name. `value` is an exit code (128 and more: a signal) or, for a
    restart, the number of restarts so far."""

    name = "systemd"

    def __init__(self, bus: Path | None = None) -> None:
        self._path = bus or NodeRoot().bus
        self._known: dict[str, _ServiceState] = {}
        self._calls: dict[int, tuple[str, str]] = {}
        self._look, self._query_again = Pace(_LOOK_EVERY_S), Pace(_QUERY_EVERY_S)
        # Earlier events are not reported.
        self._since = time.monotonic_ns() // 1000
        try:
            self._bus: Bus | None = _listening(self._path, _FIRST_PATIENCE_S)
        except BusError as error:
            remedy = f"run as root where systemd runs; in a container mount the node's {self._path} at the same place"
            raise SourceUnavailable(self.name, str(error), remedy) from None

    def read(self, tick: Tick) -> TickRows:
        try:
            if self._bus is None and self._look.due(tick.end):
                self._look.done(tick.end)
                self._bus = _listening(self._path, _PATIENCE_S)
                self._query(self._bus)
            if self._bus is None:
                return NOTHING
            if self._query_again.due(tick.end):
                self._query_again.done(tick.end)
                self._query(self._bus)
            rows = self._take(self._bus, tick)[:_MOST_ROWS]
        except BusError:
            self.close()
            return NOTHING
        return event_rows(rows)

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()
        self._bus = None
        self._calls.clear()

    def _take(self, bus: Bus, tick: Tick) -> list[Events]:
        rows: list[Events] = []
        for message in bus.signals():
            # Without a bus signals are not filtered, so those of other interfaces arrive as well.
            if message.member == "PropertiesChanged" and message.body[0] == SERVICE:
                now = {name: value for name, (_, value) in message.body[1].items()}
                rows += self._changed(message.path, now, tick)
            elif message.member == "JobRemoved" and message.body[2].endswith(".service") and message.body[3] in _JOBS:
                rows.append(_row(FAILED, tick.end, message.body[2], _JOBS[message.body[3]]))
        for number, answer in bus.answers().items():
            what, path = self._calls.pop(number, ("", ""))
            if not what or isinstance(answer, BusError):
                continue
            if what == SERVICE:
                rows += self._changed(path, property_values(answer), tick)
            elif answer[0][1] == "failed":
                result = self._known.get(path, _ServiceState()).result
                rows.append(_row(FAILED, tick.end, _name(path), f"failed ({result})"))
        return rows

    def _changed(self, path: str, now: dict[str, Any], tick: Tick) -> list[Events]:
        """Process new properties of a service."""
        name = _name(path)
        # Reinsert it, so that the service that changed last is dropped last.
        before = self._known.pop(path, None)
        known = before or _ServiceState(self._since, self._since)
        self._known[path] = known
        if len(self._known) > _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        rows: list[Events] = []
        started = int(now.get("ExecMainStartTimestampMonotonic", 0))
        is_new_start = started > known.started
        if is_new_start:
            known.started = started
            rows.append(_row(STARTED, started * 1000, name, "started", pid=now.get("ExecMainPID") or None))
        ended = int(now.get("ExecMainExitTimestampMonotonic", 0))
        if ended > known.ended:
            known.ended = ended
            rows.append(_end(name, ended * 1000, now))
        restarts = _restarts(known, name, now.get("NRestarts"), is_new_start, tick)
        result = str(now.get("Result", known.result))
        # After a daemon-reload systemd signals every unit, including those that failed long ago.
        news = rows or (before is not None and result != known.result)
        if result != "success" and news and self._bus is not None and (UNIT, path) not in self._calls.values():
            # Only its state shows whether systemd gave up on it or restarts it.
            self._calls[self._bus.ask(Call(path, PROPERTIES, "Get", "ss", (UNIT, "ActiveState")))] = (UNIT, path)
        known.result = result
        return sorted([*rows, *restarts], key=lambda row: row.time)

    def _query(self, bus: Bus) -> None:
        for path in list(self._known)[-_MOST_QUERIED:]:
            self._calls[bus.ask(get_all(path, SERVICE))] = (SERVICE, path)


def _listening(path: Path, patience_s: float) -> Bus:
    bus = Bus(path, patience_s)
    try:
        bus.listen(_RULES)
    except BusError:
        bus.close()
        raise
    bus.patience_s = _PATIENCE_S
    return bus


def _restarts(known: _ServiceState, name: str, count: int | None, is_new_start: bool, tick: Tick) -> list[Events]:
    """The restarts that were not recorded yet; for a service that was not followed so far, only the latest."""
    if count is None:
        return []
    before = known.restarts if known.restarts is not None else count - int(is_new_start and count > 0)
    known.restarts = count
    return [
        _row(RESTARTED, tick.end, name, f"was started again by systemd ({number} times by now)", float(number))
        for number in range(before + 1, count + 1)[-_MOST_AT_ONCE:]
    ]


def _name(path: str) -> str:
    """The unit of an object path on the bus, where characters other than letters and digits are hex-escaped."""
    escaped = path.rpartition("/")[2]
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), escaped)


def _end(name: str, moment: int, now: dict[str, Any]) -> Events:
    status = int(now.get("ExecMainStatus", 0))
    if now.get("ExecMainCode") == _EXITED:
        return _row(ENDED, moment, name, f"ended with code {status}", float(status))
    try:
        by = f"signal {status} ({signal.Signals(status).name})"
    except ValueError:
        by = f"signal {status}"
    return _row(ENDED, moment, name, f"was ended by {by}", float(128 + status))


def _row(  # noqa: PLR0917
    kind: str, moment: int, name: str, what: str, value: float | None = None, pid: int | None = None
) -> Events:
    severity = "warning" if kind == FAILED else "info"
    return Events(moment, UnitEventSource.name, kind, severity, f"unit {name} {what}", pid=pid, comm=name, value=value)

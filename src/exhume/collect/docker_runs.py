"""What the containers of an engine did, out of its own log of events."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from exhume.collect.docker_engine import Engine
from exhume.collect.runs import Run
from exhume.model.audit import Manager

_NANOS = 10**9
# Docker remembers no more of them.
_MEMORY = 256
_KINDS = ("start", "die", "kill", "stop")
# Podman's own word, in versions that don't translate it.
_SAME = {"died": "die"}


@dataclass(frozen=True, slots=True)
class _Event:
    at: int
    action: str
    code: int | None


@dataclass(frozen=True, slots=True)
class EventLog:
    """Events by container, oldest first; `reaches` is how far back the log goes for certain (wall nanoseconds)."""

    events: dict[str, list[_Event]] = field(default_factory=dict)
    reaches: int = 0


def read_events(engine: Engine, manager: Manager, since: int, now: int) -> EventLog:
    """The starts and ends from `since` to `now`. Raises EngineError."""
    # Docker keeps the answer open unless its end is told and has passed. Podman has a word for that, and with an end
    # some of its versions leave most of it out.
    end = {"stream": "false"} if manager is Manager.PODMAN else {"until": f"{now // _NANOS}.{now % _NANOS:09}"}
    # Asked for without a filter, so that it shows when the engine's memory was full.
    told = engine.lines("/events", since=since // _NANOS, **end)
    found: dict[str, list[_Event]] = defaultdict(list)
    for each in told:
        action = _SAME.get(str(each.get("Action")), str(each.get("Action")))
        actor = each.get("Actor") or {}
        if action in _KINDS and each.get("Type") == "container":
            found[str(actor.get("ID", ""))].append(_Event(_moment(each), action, _code(actor)))
    full = manager is not Manager.PODMAN and len(told) >= _MEMORY
    return EventLog(dict(found), _moment(told[0]) if full else 0)


def runs_of(log: EventLog, container: str) -> tuple[list[Run], bool]:
    """Its runs, oldest first, and whether somebody stopped it after the last start. A run that started before the log
    is left out."""
    runs: list[Run] = []
    asked = stopped = False
    for event in sorted(log.events.get(container, []), key=lambda event: event.at):
        if event.action == "start":
            runs.append(Run(event.at))
            asked = stopped = False
        elif event.action in ("kill", "stop"):
            asked = stopped = True
        elif event.action == "die" and runs and runs[-1].ended is None:
            # An end that was asked for is no failure.
            runs[-1] = Run(runs[-1].started, event.at, event.code, failed=event.code != 0 and not asked)
    return runs, stopped


def _moment(event: dict[str, Any]) -> int:
    return int(event.get("timeNano") or 0) or int(event.get("time") or 0) * _NANOS


def _code(actor: dict[str, Any]) -> int | None:
    attributes = actor.get("Attributes") or {}
    told = attributes.get("exitCode", attributes.get("containerExitCode"))
    return int(str(told)) if str(told).lstrip("-").isdigit() else None

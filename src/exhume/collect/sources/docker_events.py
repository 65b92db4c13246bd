"""Starts and ends of Docker's containers, with their names: an id in a cgroup's path says nothing once it is gone.

Docker streams them over its socket, which is read without ever waiting for it: a daemon that hangs holds nothing up.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

from exhume.collect.containers.docker import StreamedResponse, docker_socket
from exhume.collect.source import NOTHING, Pace, TickRows, event_rows
from exhume.model.clock import NANOS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.tables import Events
from exhume.procfs.host import Host

# Without Docker: how often to look whether it is there by now.
_LOOK_EVERY_S = 5.0
# Names are recorded again, so that they outlive the oldest rows of a recording that is kept short.
_LIST_EVERY_S = 12 * 3600.0
_MOST_ROWS = 256
_KINDS = {"start": "container-start", "die": "container-die", "oom": "container-oom"}
_MESSAGES = {"start": "started", "die": "ended with code {}", "oom": "ran out of memory"}


class DockerEventSource:
    """Rows of the events table (container-start, container-die, container-oom; container-seen for those that run)."""

    name = "docker"

    def __init__(self, host: Host, socket_path: Path | None = None) -> None:
        self._given = socket_path
        self._events: StreamedResponse | None = None
        self._list: StreamedResponse | None = None
        self._look, self._list_again = Pace(_LOOK_EVERY_S), Pace(_LIST_EVERY_S)
        path = docker_socket(socket_path)
        if path is not None and path.exists():
            try:
                StreamedResponse(path, "/_ping").close()
            except PermissionError:
                remedy = "run as root, or put this user into the group of that file"
                raise SourceUnavailable(self.name, f"{path} can't be opened", remedy) from None
            except OSError:
                # Not there yet: it is looked for again.
                return

    def read(self, tick: Tick) -> TickRows:
        if self._events is None and self._look.due(tick.end):
            self._look.done(tick.end)
            wanted = json.dumps({"type": ["container"], "event": list(_KINDS)})
            self._events = self._ask("/events", since=tick.wall // NANOS, filters=wanted)
        if self._events is None:
            return NOTHING
        if self._list is None and self._list_again.due(tick.end):
            self._list_again.done(tick.end)
            self._list = self._ask("/containers/json")
        return event_rows([*self._listed(tick), *self._happened(tick)][:_MOST_ROWS])

    def close(self) -> None:
        for answer in (self._events, self._list):
            if answer is not None:
                answer.close()
        self._events = self._list = None

    def _ask(self, question: str, **query: str | int) -> StreamedResponse | None:
        path = docker_socket(self._given)
        try:
            return StreamedResponse(path, question, **query) if path is not None else None
        except OSError:
            return None

    def _happened(self, tick: Tick) -> list[Events]:
        assert self._events is not None
        lines, ended = self._events.lines()
        if ended:
            # The daemon stopped, or it is another one by now.
            self._events.close()
            self._events = None
        return [row for line in lines if (row := _event(line, tick)) is not None]

    def _listed(self, tick: Tick) -> list[Events]:
        if self._list is None or not self._list.receive():
            return []
        body = self._list.body
        self._list.close()
        self._list = None
        with contextlib.suppress(ValueError):
            return [row for each in json.loads(body) if (row := _seen(each, tick)) is not None]
        return []


def _event(line: bytes, tick: Tick) -> Events | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    action, actor = str(event.get("Action", "")), event.get("Actor") or {}
    if action not in _KINDS:
        return None
    known = actor.get("Attributes") or {}
    code, moment = str(known.get("exitCode")), event.get("timeNano")
    row = _row(_KINDS[action], actor.get("ID"), known.get("name"), known.get("image"), _MESSAGES[action].format(code))
    if row is not None:
        # Docker's clock is the wall clock.
        row.time = tick.end - (tick.wall - moment) if isinstance(moment, int) else tick.start
        row.value = float(code) if action == "die" and code.isdigit() else None
    return row


def _seen(container: dict[str, Any], tick: Tick) -> Events | None:
    names = container.get("Names") or [""]
    row = _row("container-seen", container.get("Id"), names[0].lstrip("/"), container.get("Image"), "runs")
    if row is not None:
        row.time = tick.start
    return row


def _row(kind: str, number: Any, name: str | None, image: str | None, message: str) -> Events | None:
    if not number:
        return None
    severity = "warning" if kind == "container-oom" else "info"
    text = f"container {name or str(number)[:12]}{f' (image {image})' if image else ''} {message}"
    event = Events(0, DockerEventSource.name, kind, severity, text)
    event.container, event.container_name, event.image = number, name or None, image
    return event

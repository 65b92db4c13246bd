"""Starts and ends of Docker's containers, with their names: an id in a cgroup's path says nothing once it is gone.

Docker streams them over its socket, which is read without ever waiting for it: a daemon that hangs holds nothing up.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

from exhume.collect.containers.docker_stream import StreamedResponse, docker_socket, only
from exhume.collect.source import NOTHING, Pace, TickRows
from exhume.model.clock import Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.tables import Events, to_columns
from exhume.procfs.host import Host

# Without Docker: how often to look whether it is there by now.
_LOOK_EVERY_S = 5.0
# Names are recorded again, so that they outlive the oldest rows of a recording that is kept short.
_LIST_EVERY_S = 12 * 3600.0
_MOST_ROWS = 256
_KINDS = {"start": "container-start", "die": "container-die", "oom": "container-oom"}
_MESSAGES = {"start": "started", "oom": "ran out of memory"}


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
                raise SourceUnavailable(
                    self.name, f"{path} can't be opened", "run as root, or put this user into the group of that file"
                ) from None
            except OSError:
                # Not there yet: it is looked for again.
                return

    def read(self, tick: Tick) -> TickRows:
        if self._events is None and self._look.due(tick.end):
            self._look.done(tick.end)
            self._open(tick)
        if self._events is None:
            return NOTHING
        if self._list is None and self._list_again.due(tick.end):
            self._list_again.done(tick.end)
            self._list = self._ask("/containers/json")
        rows = [*self._listed(tick), *self._happened(tick)][:_MOST_ROWS]
        return {"events": to_columns("events", rows)} if rows else NOTHING

    def close(self) -> None:
        for answer in (self._events, self._list):
            if answer is not None:
                answer.close()
        self._events = self._list = None

    def _open(self, tick: Tick) -> None:
        wanted = only(type=["container"], event=list(_KINDS))
        self._events = self._ask("/events", since=tick.wall // 10**9, filters=wanted)

    def _ask(self, question: str, **query: str | int) -> StreamedResponse | None:
        path = docker_socket(self._given)
        if path is None:
            return None
        try:
            return StreamedResponse(path, question, **query)
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
        if self._list is None:
            return []
        ended = self._list.receive()
        if not ended:
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
    name, image = known.get("name"), known.get("image")
    code = known.get("exitCode")
    message = f"ended with code {code}" if action == "die" else _MESSAGES[action]
    moment = event.get("timeNano")
    # Docker's clock is the wall clock.
    time = tick.end - (tick.wall - moment) if isinstance(moment, int) else tick.start
    value = float(str(code)) if action == "die" and str(code).isdigit() else None
    return _row(_KINDS[action], time, actor.get("ID"), name, image, message, value)


def _seen(container: dict[str, Any], tick: Tick) -> Events | None:
    names = container.get("Names") or [""]
    return _row("container-seen", tick.start, container.get("Id"), names[0].lstrip("/"), container.get("Image"), "runs")


def _row(  # noqa: PLR0917
    kind: str,
    time: int,
    number: Any,
    name: str | None,
    image: str | None,
    message: str,
    value: float | None = None,
) -> Events | None:
    if not number:
        return None
    severity = "warning" if kind == "container-oom" else "info"
    text = f"container {name or str(number)[:12]}{f' (image {image})' if image else ''} {message}"
    event = Events(time, DockerEventSource.name, kind, severity, text, value=value)
    event.container, event.container_name, event.image = number, name or None, image
    return event

"""Whose log of what happened knows a container's last start: reported late, reported after the look, or forgotten."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.collect.socket_server import answering

from exhume.collect.containers.docker_services import docker_services
from exhume.model.audit import History, Manager

NUMBER = "c4" * 32
NANOS = 10**9


class Engine(BaseHTTPRequestHandler):
    """Answers as the Engine API does, of one container."""

    events: ClassVar[list[dict[str, Any]]] = []
    inspected: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        if self.path.startswith("/events"):
            body = "\n".join(map(json.dumps, self.events))
        elif self.path.startswith("/containers/json"):
            body = json.dumps([{"Id": NUMBER}])
        else:
            body = json.dumps(self.inspected) if self.path.endswith("/json") else ""
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if body:
            self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("engine") / "docker.sock"
    with answering(path, Engine):
        yield path


def past(engine: Path, starts_s: list[float], started_s: float) -> History:
    """Of one that lives for half a second each time and was started 7 times; times are seconds from now."""
    now = time.time_ns()

    def event(action: str, at_s: float, **more: str) -> dict[str, Any]:
        actor = {"ID": NUMBER, "Attributes": more}
        return {"Type": "container", "Action": action, "Actor": actor, "timeNano": now + round(at_s * NANOS)}

    Engine.events = [
        each for at in starts_s for each in (event("start", at), event("die", at + 0.5, exitCode="7")) if at < 0
    ]
    Engine.inspected = {
        "Id": NUMBER,
        "Created": moment(now - 300 * NANOS),
        "RestartCount": 6,
        "State": {
            "Status": "running",
            "Running": True,
            "StartedAt": moment(now + round(started_s * NANOS)),
            "FinishedAt": moment(now - NANOS),
        },
    }
    (service,) = docker_services(engine, Manager.DOCKER, log_lines=0).services
    assert service.history is not None
    return service.history


def moment(nanos: int) -> str:
    return datetime.fromtimestamp(nanos / NANOS, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_a_start_that_a_busy_engine_reported_seconds_later_is_in_the_log(engine: Path) -> None:
    reported = past(engine, [-90, -60, -30, -10], started_s=-14)
    assert (reported.starts, reported.failures) == (4, 4) and reported.age_pattern.startswith("never a second old")


def test_a_start_since_the_look_began_does_not_make_the_log_a_lost_one(engine: Path) -> None:
    reported = past(engine, [-90, -60, -30, -10], started_s=30)
    assert (reported.starts, reported.failures) == (4, 4) and reported.age_pattern.startswith("never a second old")


@pytest.mark.parametrize(("starts_s", "started_s"), [([-90, -60], -14), ([], -14), ([], 30)])
def test_where_the_log_was_lost_the_engine_s_count_has_to_do(
    engine: Path, starts_s: list[float], started_s: float
) -> None:
    reported = past(engine, starts_s, started_s)
    assert reported.starts == 7 and reported.age_pattern == ""

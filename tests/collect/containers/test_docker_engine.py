"""Questions to an engine that fails to answer: Podman does so where a container's process ends while it looks."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from tests.collect.socket_server import answering

from exhume.collect.containers.docker import Engine, EngineError

ENDED = {"message": "read /proc/30132/cgroup: no such process"}


class Failing(BaseHTTPRequestHandler):
    """Answers with `status` for the first `failures` times."""

    failures = 0
    status = 500
    asked: list[str]

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        type(self).asked.append(self.command)
        fails = len(self.asked) <= self.failures
        said = json.dumps(ENDED if fails else {"Id": "abc"}).encode()
        self.send_response(self.status if fails else 200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Quietly."""


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    Failing.failures, Failing.status, Failing.asked = 0, 500, []
    with answering(tmp_path / "engine.sock", Failing):
        yield Engine(tmp_path / "engine.sock")


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_failed_requests_are_retried(engine: Engine, failures: int) -> None:
    Failing.failures = failures
    assert engine.get("/containers/abc/json") == {"Id": "abc"}
    assert len(Failing.asked) == failures + 1


def test_one_that_fails_every_time_is_reported_with_its_reason(engine: Engine) -> None:
    Failing.failures = 100
    with pytest.raises(EngineError, match="500 read /proc/30132/cgroup: no such process") as reported:
        engine.get("/containers/abc/json")
    assert reported.value.status == 500 and len(Failing.asked) == 3


def test_missing_containers_are_requested_once(engine: Engine) -> None:
    Failing.failures, Failing.status = 100, 404
    with pytest.raises(EngineError):
        engine.get("/containers/abc/json")
    assert len(Failing.asked) == 1


def test_an_order_is_given_once(engine: Engine) -> None:
    Failing.failures = 1
    with pytest.raises(EngineError):
        engine.exchange("POST", "/containers/abc/stop", {}, None, 10.0)
    assert Failing.asked == ["POST"]

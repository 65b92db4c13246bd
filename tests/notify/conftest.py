"""Reports, ticks and a loopback server for webhooks."""

import http.server
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from exhume.collect.source import event_rows
from exhume.model.clock import NANOS, Tick
from exhume.model.tables import INCIDENT, RECORDER, Events
from exhume.notify.report import Mark, Report

WALL = 1_790_000_000 * NANOS
# For what takes a second where no other work has the cores.
PATIENCE_S = 90.0


def until(what: str, happened: Callable[[], object], patience: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience
    while not happened():
        assert time.monotonic() < deadline, f"did not happen within {patience:.0f} s: {what}"
        time.sleep(0.01)


@pytest.fixture
def eventually():
    return until


def finding(cause="softirq-storm", severity="critical", **others):
    return {
        "cause": cause,
        "severity": severity,
        "confidence": 0.9,
        "summary": f"{cause} on core 3",
        "scope": "node",
        "remedies": [{"command": "exhume fix plan x.service"}],
        **others,
    }


def report_of(*findings, marks=None, verdict="starved", node="node-1", **diagnosis):
    marks = marks or (Mark(5 * NANOS, WALL, "core", "core 3 has spent 2.0 s in the kernel so far", 3),)
    return Report(node, tuple(marks), {"version": 1, "verdict": verdict, "findings": list(findings), **diagnosis})


def incident_rows(time_ns: int, trigger: str = "core", **columns):
    return event_rows(
        [Events(time_ns, RECORDER, INCIDENT, "critical", f"marked {trigger}", trigger=trigger, **columns)]
    )


def tick_at(second: float) -> Tick:
    end = int(second * NANOS)
    return Tick(int(second), end - NANOS, end, WALL + end)


@pytest.fixture
def reports():
    return report_of, finding


@dataclass
class Receiver:
    """A loopback server: each request is kept; `answers` are used one after the other, the last one stays."""

    url: str = ""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    answers: list[Callable[[http.server.BaseHTTPRequestHandler], None]] = field(default_factory=list)


def answer(code: int, body: bytes = b"", **headers: str) -> Callable[[http.server.BaseHTTPRequestHandler], None]:
    def send(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return send


@pytest.fixture
def receiver():
    state = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.requests.append((dict(self.headers), body))
            each = state.answers.pop(0) if len(state.answers) > 1 else (state.answers or [answer(200)])[0]
            each(self)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield state
    server.shutdown()
    server.server_close()
    thread.join()

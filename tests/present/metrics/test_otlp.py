"""Pushes of the metrics: what a collector gets, and what one that is away or answers badly changes."""

import json
import math
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.present.metrics.ticks import Watched, cpu, facts

from exhume.model.errors import UsageError
from exhume.model.settings import OTLP
from exhume.present.metrics import otlp
from exhume.present.metrics.otlp import OtlpPusher, headers_from, otlp_payload


class Collector(HTTPServer):
    """Keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.server.headers.append(dict(self.headers))
        self.server.paths.append(self.path)
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def pusher(url: str, every_s: float = 60.0, **environment: str) -> OtlpPusher:
    watched = Watched().tick(cpu=cpu({"softirq": 1000}, {}))
    return OtlpPusher(OTLP.read(url) or "", watched.observer.read, facts(), every_s, environment)


def test_what_a_collector_gets(collector: Collector) -> None:
    assert pusher(collector.url, OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20abc, x=y").push() is None
    assert collector.paths == ["/v1/metrics"]
    assert collector.headers[0]["authorization"] == "Bearer abc"
    (resource,) = collector.bodies[0]["resourceMetrics"]
    found = {each["key"]: each["value"]["stringValue"] for each in resource["resource"]["attributes"]}
    assert found == {"service.name": "exhume", "service.version": "1.2.3", "host.name": "node-17"}
    metrics = {each["name"]: each for each in resource["scopeMetrics"][0]["metrics"]}
    stall = metrics["exhume_core_stall_seconds"]
    assert stall["unit"] == "s"
    assert stall["sum"]["isMonotonic"] is True
    assert stall["sum"]["aggregationTemporality"] == 2
    values = {p["attributes"][0]["value"]["stringValue"]: p["asDouble"] for p in stall["sum"]["dataPoints"]}
    assert values == {"0": 1, "1": 0}
    assert int(stall["sum"]["dataPoints"][0]["timeUnixNano"]) >= int(stall["sum"]["dataPoints"][0]["startTimeUnixNano"])
    assert metrics["exhume_cores"]["gauge"]["dataPoints"][0]["asDouble"] == 2
    assert "exhume_build_info" in metrics


def test_infinite_values_are_json() -> None:
    watched = Watched().tick(
        cgroups={"hierarchy": ["memory"], "parent": [""], "kernel": [5], "visible": [5], "dying": [0]}
    )
    text = json.dumps(otlp_payload(watched.observer.read(), facts(), 1, 2), allow_nan=False)
    assert '"Infinity"' in text
    assert math.inf not in json.loads(text).values()


def test_a_collector_that_refuses_or_is_away_is_named(collector: Collector) -> None:
    collector.status = 503
    assert "503" in (pusher(collector.url).push() or "")
    collector.status = 200
    assert pusher("http://127.0.0.1:1").push() is not None


def test_it_is_tried_again_less_and_less_often(monkeypatch: pytest.MonkeyPatch, collector: Collector) -> None:
    monkeypatch.setattr(otlp, "LONGEST_PAUSE_S", 0.4)
    collector.status = 500
    pushing = pusher(collector.url, every_s=0.05)
    pushing.start()
    try:
        deadline = time.monotonic() + 10
        while len(collector.bodies) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        collector.status = 200
        while len(collector.bodies) < 6 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(collector.bodies) >= 6
    finally:
        pushing.close()
    assert not pushing._thread.is_alive()


@pytest.mark.parametrize(
    "text", ["127.0.0.1:4318", "ftp://x", "http://", "http://x:99999", "http://[::1", "http://x:0"]
)
def test_addresses_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError):
        OTLP.read(text)


def test_the_usual_path_is_added_and_another_kept() -> None:
    assert OTLP.read("http://127.0.0.1:4318") == "http://127.0.0.1:4318/v1/metrics"
    assert OTLP.read("https://x/otlp/v1/metrics?a=b") == "https://x/otlp/v1/metrics?a=b"
    assert OTLP.read("") is None
    assert headers_from({}) == {}

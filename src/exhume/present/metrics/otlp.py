"""Pushes the metrics to an OpenTelemetry collector (OTLP over HTTP, JSON), from its own thread.

Only current values are sent: counters are cumulative, so a failed push loses only one data point. While a collector is
unreachable, pushes are retried with back-off, up to five minutes apart.
"""

import http.client
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import unquote, urlsplit

from exhume.model.facts import RecordingFacts
from exhume.present.metrics.families import COUNTER, Family
from exhume.present.metrics.values import Labels, Snapshot

EVERY_S = 15.0
LONGEST_PAUSE_S = 300.0
TIMEOUT_S = 10.0
# Headers for the collector, such as Authorization, in the format of OpenTelemetry's own exporters:
# name=value,name=value.
HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
_CUMULATIVE = 2
# Units in OpenTelemetry's notation (UCUM).
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1", "hertz": "Hz", "": "1"}
_MOST_RESPONSE = 4096

_log = logging.getLogger(__name__)


def otlp_payload(snapshot: Snapshot, facts: RecordingFacts, began_ns: int, now_ns: int) -> dict[str, Any]:
    """The body of an ExportMetricsServiceRequest; protobuf's JSON mapping encodes 64-bit numbers as strings."""
    metrics = []
    for family, series in snapshot:
        if not series:
            continue
        points = [_point(family, labels, value, began_ns, now_ns) for labels, value in series]
        data: dict[str, Any] = {"dataPoints": points}
        if family.kind == COUNTER:
            data |= {"aggregationTemporality": _CUMULATIVE, "isMonotonic": True}
        metrics.append(
            {
                "name": family.sample if family.kind != COUNTER else family.name,
                "description": family.help,
                "unit": _UNITS[family.unit],
                "sum" if family.kind == COUNTER else "gauge": data,
            }
        )
    resource = {"service.name": "exhume", "service.version": facts.exhume_version, "host.name": facts.node}
    scope = {"name": "exhume", "version": facts.exhume_version}
    return {
        "resourceMetrics": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeMetrics": [{"scope": scope, "metrics": metrics}],
            }
        ]
    }


def _point(family: Family, labels: Labels, value: float, began_ns: int, now_ns: int) -> dict[str, Any]:
    number = value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
    point: dict[str, Any] = {"timeUnixNano": str(now_ns), "asDouble": number}
    if family.kind == COUNTER:
        point["startTimeUnixNano"] = str(began_ns)
    if labels:
        point["attributes"] = _attributes(dict(zip(family.labels, labels, strict=True)))
    return point


def _attributes(values: Mapping[str, str]) -> list[dict[str, Any]]:
    # cgroup names are arbitrary bytes; those that are not UTF-8 were decoded with surrogates.
    return [
        {"key": key, "value": {"stringValue": value.encode("utf-8", "replace").decode()}}
        for key, value in values.items()
    ]


def headers_from(environment: Mapping[str, str]) -> dict[str, str]:
    """The collector headers set in the environment."""
    pairs = (part.partition("=") for part in environment.get(HEADERS_VARIABLE, "").split(",") if "=" in part)
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}


class OtlpPusher:
    """Pushes metrics until it is closed."""

    def __init__(
        self,
        url: str,
        read: Callable[[], Snapshot],
        facts: RecordingFacts,
        every_s: float = EVERY_S,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._url, self._read, self._facts, self._every_s = urlsplit(url), read, facts, every_s
        self._headers = {"content-type": "application/json", **headers_from(environment)}
        self._began_ns = time.time_ns()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop pushing, without waiting for a push in progress."""
        self._stop.set()
        self._thread.join(1.0)

    def push(self) -> str | None:
        """Send the current values; returns the reason as text if that fails."""
        payload = otlp_payload(self._read(), self._facts, self._began_ns, time.time_ns())
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        target = self._url.path + (f"?{self._url.query}" if self._url.query else "")
        try:
            with closing(kind(self._url.hostname or "", self._url.port, timeout=TIMEOUT_S)) as connection:
                connection.request("POST", target, json.dumps(payload), self._headers)
                response = connection.getresponse()
                response.read(_MOST_RESPONSE)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return str(error) or type(error).__name__
        return None if 200 <= response.status < 300 else f"it answered {response.status} {response.reason}"

    def _run(self) -> None:
        pause, reported = self._every_s, False
        while not self._stop.wait(pause):
            problem = self.push()
            if problem is None:
                pause, reported = self._every_s, False
                continue
            pause = min(pause * 2, max(LONGEST_PAUSE_S, self._every_s))
            if not reported:
                where = f"{self._url.scheme}://{self._url.hostname}:{self._url.port or ''}".rstrip(":")
                _log.warning("metrics can't be pushed to %s: %s; tried again", where, problem)
                reported = True

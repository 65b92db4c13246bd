"""Requests to servers that accept profiles over HTTP: Pyroscope's /ingest and its push API, Parca's WriteRaw, and
OpenTelemetry collectors (OTLP/HTTP). The path of the URL decides which one it is."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit, urlunsplit

from exhume.model.clock import NANOS, Window
from exhume.model.errors import UsageError
from exhume.model.facts import RecordingFacts

INGEST, PUSH, WRITE_RAW = "/ingest", "/push.v1.PusherService/Push", "/profiles/writeraw"
# The path where collectors accept profiles (receiver/otlpreceiver/config.go, defaultProfilesURLPath).
OTLP_PATH = "/v1development/profiles"
_BOUNDARY = "exhume-profile"
_NO_LABEL = re.compile(r"[^a-zA-Z0-9_]")
# Characters that would end a label in an application's name (Pyroscope, name{key=value,key=value}).
_NO_VALUE = re.compile(r"[{}=,\s]")


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A POST request that carries a profile."""

    url: str
    body: bytes
    content_type: str
    headers: dict[str, str] = field(default_factory=dict)


def request_for(url: str, form: str, content: bytes, window: Window, facts: RecordingFacts) -> HttpRequest:
    """Build the request that sends a profile to a server. Raises UsageError if the URL doesn't identify the kind of
    server, or if that server needs another format."""
    builder = _builder(url, form)
    return builder(url, content, window, facts)


def check_receiver(url: str, form: str) -> None:
    """Raise UsageError if a format can't be sent to a URL."""
    _builder(url, form)


_Builder = Callable[[str, bytes, Window, RecordingFacts], HttpRequest]


def _builder(url: str, form: str) -> _Builder:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise UsageError(f"--to {url}: is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise UsageError(f"--to {url}: write it as http://HOST:PORT/PATH, without a password; see --to-token-file")
    if form == "otlp":
        return _otlp
    if form != "pprof":
        raise UsageError(f"--to takes profiles: export pprof (Pyroscope, Parca) or otlp (OpenTelemetry), not {form}")
    for path, builder in ((INGEST, _ingest), (PUSH, _push), (WRITE_RAW, _write_raw)):
        if parts.path.rstrip("/").endswith(path):
            return builder
    raise UsageError(f"--to {url}: end it in {INGEST} or {PUSH} for Pyroscope, or in {WRITE_RAW} for Parca")


def _labels(facts: RecordingFacts) -> dict[str, str]:
    """Labels that distinguish nodes, with names that Prometheus allows."""
    own = {_NO_LABEL.sub("_", key): value for key, value in facts.labels.items()}
    return {**own, "service_name": "exhume", "node": facts.node}


def _ingest(url: str, content: bytes, window: Window, facts: RecordingFacts) -> HttpRequest:
    labels = ",".join(f"{key}={_NO_VALUE.sub('_', value)}" for key, value in _labels(facts).items())
    query = {
        "name": f"exhume{{{labels}}}",
        "from": window.since // NANOS,
        "until": -(-window.until // NANOS),
        "format": "pprof",
        "spyName": "exhume",
        "sampleRate": facts.rate_hz or 100,
    }
    parts = urlsplit(url)
    joined = "&".join(filter(None, (parts.query, urlencode(query))))
    types = {
        "samples": {"units": "samples", "display-name": "samples", "aggregation": "sum"},
        "cpu": {"units": "nanoseconds", "display-name": "cpu", "aggregation": "sum"},
    }
    body = b"".join(
        (
            _form_part("profile", "profile.pprof", content),
            _form_part("sample_type_config", "sample_type_config.json", json.dumps(types).encode()),
            f"--{_BOUNDARY}--\r\n".encode(),
        )
    )
    return HttpRequest(urlunsplit(parts._replace(query=joined)), body, f"multipart/form-data; boundary={_BOUNDARY}")


def _form_part(name: str, file: str, content: bytes) -> bytes:
    head = f'--{_BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"; filename="{file}"\r\n\r\n'
    return head.encode() + content + b"\r\n"


def _push(url: str, content: bytes, window: Window, facts: RecordingFacts) -> HttpRequest:
    labels = [{"name": key, "value": value} for key, value in {"__name__": "process_cpu", **_labels(facts)}.items()]
    sample = {"rawProfile": base64.b64encode(content).decode(), "ID": f"{facts.node}-{window.since}-{window.until}"}
    body = {"series": [{"labels": labels, "samples": [sample]}]}
    return HttpRequest(url, json.dumps(body).encode(), "application/json", {"Connect-Protocol-Version": "1"})


def _write_raw(url: str, content: bytes, _: Window, facts: RecordingFacts) -> HttpRequest:
    labels = [{"name": key, "value": value} for key, value in {"__name__": "exhume_cpu", **_labels(facts)}.items()]
    series = {"labels": {"labels": labels}, "samples": [{"rawProfile": base64.b64encode(content).decode()}]}
    # The profile needs no addresses: its functions have names.
    return HttpRequest(url, json.dumps({"series": [series], "normalized": True}).encode(), "application/json")


def _otlp(url: str, content: bytes, _: Window, __: RecordingFacts) -> HttpRequest:
    parts = urlsplit(url)
    whole = parts if parts.path.strip("/") else parts._replace(path=OTLP_PATH)
    return HttpRequest(urlunsplit(whole), content, "application/x-protobuf")

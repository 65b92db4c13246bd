"""Requests to servers that take profiles: the form that each one's API asks for."""

import base64
import json
from email.parser import BytesParser
from urllib.parse import parse_qs, urlsplit

import pytest

from exhume.interop.receivers import check_receiver, request_for
from exhume.model.clock import NANOS, Window
from exhume.model.errors import UsageError
from exhume.model.facts import RecordingFacts

WINDOW = Window(1_780_000_000 * NANOS + 5, 1_780_000_060 * NANOS + 7)
FACTS = RecordingFacts(
    "node 1,{x=y}", "1f0c5a9e" + "0" * 24, 2, "6.8", "x86_64", "cpu-clock", 97, labels={"pool/name": "gpu"}
)
PROFILE = bytes(range(256)) * 3


def test_pyroscope_ingest():
    request = request_for("http://h:4040/ingest?tenant=a", "pprof", PROFILE, WINDOW, FACTS)
    query = parse_qs(urlsplit(request.url).query)
    assert query["name"] == ["exhume{pool_name=gpu,service_name=exhume,node=node_1__x_y_}"]
    assert (query["from"], query["until"], query["format"]) == (["1780000000"], ["1780000061"], ["pprof"])
    assert query["tenant"] == ["a"] and urlsplit(request.url).path == "/ingest"
    head = f"Content-Type: {request.content_type}\r\n\r\n".encode()
    parts = {
        part.get_param("name", header="content-disposition"): part
        for part in BytesParser().parsebytes(head + request.body).get_payload()
    }
    types = json.loads(parts["sample_type_config"].get_payload(decode=True))
    assert types["cpu"]["units"] == "nanoseconds" and set(types) == {"cpu", "samples"}
    # The parser of e-mail changes line ends in bytes, so the part is looked for as it is.
    assert b'name="profile"; filename="profile.pprof"\r\n\r\n' + PROFILE + b"\r\n--" in request.body


def test_pyroscope_push():
    request = request_for("https://h/push.v1.PusherService/Push", "pprof", PROFILE, WINDOW, FACTS)
    (series,) = json.loads(request.body)["series"]
    labels = {label["name"]: label["value"] for label in series["labels"]}
    assert labels == {"__name__": "process_cpu", "service_name": "exhume", "node": FACTS.node, "pool_name": "gpu"}
    assert base64.b64decode(series["samples"][0]["rawProfile"]) == PROFILE
    assert request.content_type == "application/json"


def test_parca_write_raw():
    request = request_for("http://h:7070/profiles/writeraw", "pprof", PROFILE, WINDOW, FACTS)
    body = json.loads(request.body)
    (series,) = body["series"]
    assert {"name": "node", "value": FACTS.node} in series["labels"]["labels"]
    assert base64.b64decode(series["samples"][0]["rawProfile"]) == PROFILE


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:4318", "http://h:4318/v1development/profiles"),
        ("http://h:4318/", "http://h:4318/v1development/profiles"),
        ("https://h/otlp/v1/profiles", "https://h/otlp/v1/profiles"),
    ],
)
def test_otlp(url, expected):
    request = request_for(url, "otlp", PROFILE, WINDOW, FACTS)
    assert (request.url, request.body, request.content_type) == (expected, PROFILE, "application/x-protobuf")


@pytest.mark.parametrize(
    ("url", "form"),
    [
        ("h:4040/ingest", "pprof"),
        ("ftp://h/ingest", "pprof"),
        ("http:///ingest", "pprof"),
        ("http://user:password@h/ingest", "pprof"),
        ("http://h:port/ingest", "pprof"),
        ("http://h:4040", "pprof"),
        ("http://h:4040/ingest", "folded"),
        ("http://h:4040/ingest", "csv"),
    ],
)
def test_what_is_no_receiver(url, form):
    with pytest.raises(UsageError):
        check_receiver(url, form)

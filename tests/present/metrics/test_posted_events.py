"""Events that other programs post to the server of the metrics: who may, what is taken, and what clients can't do."""

import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.collect.fake_node import tick
from tests.present.metrics.test_server import TOKEN, get, serving

from exhume.collect.sources.job_events import MOST_PER_TICK, EventInbox, InboxEventSource
from exhume.model.clock import NANOS
from exhume.model.job_event import MAX_BYTES, JobEvent
from exhume.present.metrics import server as server_module
from exhume.present.metrics.server import Access, MetricsServer
from exhume.procfs.host import Host

EVENT = {"version": 1, "kind": "job-failed", "text": "train-7: NCCL timeout", "attributes": {"job": "train-7"}}
JSON = "application/json"


@pytest.fixture
def inbox() -> EventInbox:
    return EventInbox()


@pytest.fixture
def server(inbox: EventInbox) -> Iterator[MetricsServer]:
    yield from serving(inbox=inbox)


def post(server: MetricsServer, body: object = EVENT, path: str = "/events", **headers: str) -> int:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection("127.0.0.1", server.port or 0, timeout=10)
    named = {name.replace("_", "-"): value for name, value in {"content_type": JSON, **headers}.items()}
    connection.request("POST", path, data, named)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status


def test_an_event_is_a_row_of_the_next_tick(server: MetricsServer, inbox: EventInbox) -> None:
    source = InboxEventSource(Host(), inbox)
    assert source.read(tick(1)) == {}
    assert post(server) == 202
    rows = source.read(tick(2))["events"]
    assert (rows["source"], rows["kind"], rows["severity"]) == (["jobs"], ["job-failed"], ["error"])
    assert rows["text"] == ["train-7: NCCL timeout (job=train-7)"]
    assert source.read(tick(3)) == {}


def test_secrets_are_not_recorded(server: MetricsServer, inbox: EventInbox) -> None:
    post(server, {**EVENT, "text": "run --password=hunter2"})
    (text,) = InboxEventSource(Host(), inbox).read(tick(1))["events"]["text"]
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[" * 5000, 400),
        ({**EVENT, "version": 2}, 400),
        ({**EVENT, "kind": "incident"}, 400),
        ({**EVENT, "text": ""}, 400),
        ({**EVENT, "at": 5}, 400),
        ({**EVENT, "at": time.time_ns() + 3600 * NANOS}, 400),
        ({**EVENT, "attributes": {"x y": "1"}}, 400),
        (b'{"version": 1, "kind": "note", "text": "\\ud800 x"}', 202),
        (b" " * (MAX_BYTES + 1), 413),
    ],
)
def test_what_is_not_an_event_is_refused(server: MetricsServer, inbox: EventInbox, body: object, status: int) -> None:
    assert post(server, body) == status
    assert len(inbox.take(10)) == (status == 202)
    assert post(server) == 202, "the next one is taken"


def test_only_programs_may_post(server: MetricsServer, inbox: EventInbox) -> None:
    assert post(server, origin="http://localhost") == 403
    assert post(server, sec_fetch_site="cross-site") == 403
    assert post(server, content_type="text/plain") == 415
    assert post(server, host="evil.example") == 403
    assert post(server, content_type="application/json; charset=utf-8") == 202
    assert get(server, "/events")[0].status == 405
    assert {get(server, "/events", method)[0].status for method in ("OPTIONS", "HEAD", "PUT")} == {405}
    assert len(inbox.take(10)) == 1


def test_other_users_need_the_token(server: MetricsServer, inbox: EventInbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "owner_of_connection", lambda *_: os.geteuid() + 1000)
    assert post(server) == 403
    monkeypatch.setattr(server_module, "owner_of_connection", lambda *_: None)
    assert post(server) == 403
    for other in serving(Access(TOKEN, only_local_names=False), inbox):
        assert post(other) == 401
        assert post(other, authorization=f"Bearer {TOKEN}") == 202
    assert len(inbox.take(10)) == 1


def test_without_an_inbox_there_is_no_such_path() -> None:
    for server in serving():
        assert post(server) == 405
        assert get(server, "/events")[0].status == 404


def test_a_full_inbox_refuses(server: MetricsServer, inbox: EventInbox) -> None:
    event = JobEvent.decode(json.dumps(EVENT).encode())
    assert [inbox.put(event) for _ in range(2 * MOST_PER_TICK + 1)] == [True] * 2 * MOST_PER_TICK + [False]
    assert post(server) == 429
    source = InboxEventSource(Host(), inbox)
    counts = [len(source.read(tick(second)).get("events", {}).get("text", ())) for second in (1, 2, 3)]
    assert counts == [MOST_PER_TICK, MOST_PER_TICK, 0]
    assert post(server) == 202


def test_a_flood_is_refused_before_it_is_looked_at(
    server: MetricsServer, inbox: EventInbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    monkeypatch.setattr(server_module, "owner_of_connection", lambda *given: looks.append(given) or os.geteuid())
    began = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", server.port or 0, timeout=10)
    answers = []
    for _ in range(300):
        connection.request("POST", "/events", json.dumps(EVENT), {"Content-Type": JSON})
        response = connection.getresponse()
        response.read()
        answers.append((response.status, response.headers.get("retry-after")))
    connection.close()
    assert answers[:MOST_PER_TICK] == [(202, None)] * MOST_PER_TICK
    assert set(answers[MOST_PER_TICK:]) <= {(202, None), (429, "1")}
    # What is allowed again each second is accepted, up to what fits while nobody takes any.
    assert answers.count((202, None)) == min(len(looks), 2 * MOST_PER_TICK)
    assert MOST_PER_TICK <= len(looks) <= MOST_PER_TICK * (1 + time.monotonic() - began) + 1
    assert get(server)[0].status == 200


def raw(server: MetricsServer, *parts: bytes, pause_s: float = 0.0) -> bytes:
    """What comes back for bytes that are sent in parts."""
    with socket.create_connection(("127.0.0.1", server.port or 0), timeout=10) as client:
        for part in parts:
            client.sendall(part)
            time.sleep(pause_s)
        received = b""
        # Whose connection it is can be reported only while both ends are open.
        client.settimeout(0.5)
        with suppress(TimeoutError):
            while part := client.recv(65536):
                received += part
        return received


HEAD = b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_bodies_in_parts_and_of_unknown_length(server: MetricsServer, inbox: EventInbox) -> None:
    body = json.dumps(EVENT).encode()
    whole = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    assert b" 202 " in raw(server, *(whole[at : at + 20] for at in range(0, len(whole), 20)), pause_s=0.002)
    chunked = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
    assert b" 202 " in raw(server, chunked)
    waits = HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = raw(server, waits, body, pause_s=0.1)
    assert b" 100 " in answer and b" 202 " in answer
    assert len(inbox.take(10)) == 3


def test_a_body_without_an_end_is_cut_off(server: MetricsServer, inbox: EventInbox) -> None:
    chunk = b"1000\r\n" + b" " * 4096 + b"\r\n"
    assert b" 413 " in raw(server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 3)
    assert b" 413 " in raw(server, HEAD + b"Content-Length: 99999999999\r\n\r\n")
    for bad in (b"Content-Length: -1\r\n\r\n", b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n12345"):
        assert b" 400 " in raw(server, HEAD + bad)
    assert raw(server, HEAD + b"Content-Length: 50\r\n\r\n{") == b""
    assert not inbox.take(10)
    assert post(server) == 202


def test_clients_that_hang_in_the_middle_are_disconnected(inbox: EventInbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PATIENCE_S", 3.0)
    for server in serving(inbox=inbox):
        clients = [socket.create_connection(("127.0.0.1", server.port or 0), timeout=10) for _ in range(50)]
        for client in clients:
            client.sendall(HEAD + b"Content-Length: 500\r\n\r\n{")
        began = time.monotonic()
        assert post(server) == 202
        assert time.monotonic() - began < 2.0, "it waits for none of them"
        for client in clients:
            with pytest.raises(ConnectionResetError):
                client.recv(1)
            client.close()

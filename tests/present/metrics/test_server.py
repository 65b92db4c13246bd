"""The server of the metrics: what it answers, and what clients cannot do to it."""

import errno
import gzip
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.present.metrics.ticks import Watched, cpu

from exhume.collect.sources.job_events import EventInbox
from exhume.present.metrics import server as server_module
from exhume.present.metrics.exposition import OPENMETRICS_TYPE, PLAIN_TYPE, RenderedMetrics
from exhume.present.metrics.server import MOST_CONNECTIONS, Access, MetricsServer

TOKEN = "0123456789abcdef"


@pytest.fixture
def served() -> Iterator[MetricsServer]:
    yield from serving()


def serving(access: Access | None = None, inbox: EventInbox | None = None) -> Iterator[MetricsServer]:
    watched = Watched().tick(cpu=cpu(*[{"system": 1000}] * 96))
    server = MetricsServer("127.0.0.1", 0, RenderedMetrics(watched.observer.read), access, inbox)
    assert server.problem is None
    server.start()
    try:
        yield server
    finally:
        server.close()


def get(server: MetricsServer, path: str = "/metrics", method: str = "GET", **headers: str):
    connection = http.client.HTTPConnection("127.0.0.1", server.port or 0, timeout=10)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response, body


def received_by(client: socket.socket) -> int:
    """How much comes until the connection ends, or is reset."""
    received = 0
    with suppress(ConnectionResetError):
        while data := client.recv(65536):
            received += len(data)
    return received


def test_a_scrape(served: MetricsServer) -> None:
    response, body = get(served, accept="application/openmetrics-text", accept_encoding="identity")
    assert response.status == 200
    assert response.headers["content-type"] == OPENMETRICS_TYPE
    assert body.endswith(b"# EOF\n")
    response, body = get(served, accept_encoding="gzip")
    assert response.headers["content-type"] == PLAIN_TYPE
    assert response.headers["content-encoding"] == "gzip"
    assert b'exhume_core_stall_seconds_total{cpu="95"} 1\n' in gzip.decompress(body)


def test_a_connection_is_used_again(served: MetricsServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port or 0, timeout=10)
    for _ in range(3):
        connection.request("GET", "/metrics")
        assert len(connection.getresponse().read()) > 1000
    connection.request("HEAD", "/metrics")
    response = connection.getresponse()
    assert (response.status, response.read()) == (200, b"")
    assert int(response.headers["content-length"]) > 1000
    connection.request("GET", "/metrics")
    assert connection.getresponse().status == 200
    connection.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 200), ("GET", "/other", 404), ("POST", "/metrics", 405), ("HEAD", "/", 200)],
)
def test_other_requests(served: MetricsServer, method: str, path: str, status: int) -> None:
    assert get(served, path, method)[0].status == status


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9739", "127.0.0.1.evil.example"])
def test_on_loopback_other_names_are_refused(served: MetricsServer, host: str) -> None:
    assert get(served, host=host)[0].status == 403
    assert get(served, host="LOCALHOST:9739")[0].status == 200
    assert get(served, host="[::1]")[0].status == 200


def test_a_token_is_required_where_it_is_set() -> None:
    for server in serving(Access(TOKEN, only_local_names=False)):
        assert get(server, host="node-17:9739")[0].status == 401
        assert get(server, authorization=f"Bearer {TOKEN[:-1]}")[0].status == 401
        assert get(server, authorization=TOKEN)[0].status == 401
        assert get(server, authorization=f"Bearer {TOKEN}")[0].status == 200


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + b"x: " + b"y" * 40_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_what_is_no_request_ends_its_connection_alone(served: MetricsServer, data: bytes) -> None:
    answer = b""
    with socket.create_connection(("127.0.0.1", served.port or 0), 10) as client:
        try:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        except OSError as error:
            # It may be over before all of it was sent.
            assert error.errno in (errno.ENOTCONN, errno.ECONNRESET, errno.EPIPE)
    assert answer == b"" or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 2"))
    assert get(served)[0].status == 200


def test_a_request_after_another_without_waiting(served: MetricsServer) -> None:
    request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", served.port or 0), 10) as client:
        client.sendall(request * 2)
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.count(b"HTTP/1.1 200") == 1
    assert get(served)[0].status == 200


def test_hundreds_of_idle_connections_and_hanging_clients(served: MetricsServer) -> None:
    address = ("127.0.0.1", served.port or 0)
    clients = [socket.create_connection(address, 10) for _ in range(MOST_CONNECTIONS + 60)]
    try:
        for number, client in enumerate(clients):
            # Some send a part of a request, some a whole one and never read.
            if number % 3 == 0:
                with suppress(ConnectionError):
                    client.sendall(b"GET /metr" if number % 2 else b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert get(served)[0].status == 200
        assert get(served)[0].status == 200
        assert len(served._clients) <= MOST_CONNECTIONS
    finally:
        for client in clients:
            client.close()


def test_clients_that_take_too_long_are_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "PATIENCE_S", 1.0)
    body = b"x" * 8_000_000

    class Large:
        def get(self, **_: bool) -> bytes:
            return body

    server = MetricsServer("127.0.0.1", 0, Large())  # type: ignore[arg-type]
    server.start()
    try:
        slow = socket.create_connection(("127.0.0.1", server.port or 0), 10)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        part = socket.create_connection(("127.0.0.1", server.port or 0), 10)
        part.sendall(b"GET /metrics HT")
        # While one client reads nothing, another has its whole answer.
        assert len(get(server)[1]) == len(body)
        assert received_by(part) == 0
        # The rest is never sent: the connection ends before the length that was announced.
        time.sleep(1.5)
        assert received_by(slow) < len(body)
        slow.close()
        part.close()
    finally:
        server.close()


def test_a_hundred_scrapes_a_second_cost_little(served: MetricsServer) -> None:
    get(served)
    began = time.process_time()
    connection = http.client.HTTPConnection("127.0.0.1", served.port or 0, timeout=10)
    for _ in range(100):
        connection.request("GET", "/metrics", headers={"accept-encoding": "gzip"})
        assert connection.getresponse().read()
    connection.close()
    # The client's part included.
    assert time.process_time() - began < 0.5


def test_many_clients_at_once(served: MetricsServer) -> None:
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(get(served)[0].status)) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [200] * 40


def test_an_address_that_is_taken_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "RETRY_S", 0.1)
    first = next(taken := serving())
    watched = Watched().tick()
    second = MetricsServer("127.0.0.1", first.port or 0, RenderedMetrics(watched.observer.read))
    assert second.problem is not None
    assert "the port is taken" in second.problem
    assert second.port is None
    second.start()
    try:
        taken.close()
        deadline = time.monotonic() + 10
        while second.port is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert get(second)[0].status == 200
    finally:
        second.close()


def test_an_address_that_is_not_this_machines_is_reported() -> None:
    server = MetricsServer("192.0.2.1", 9739, RenderedMetrics(Watched().observer.read))
    assert server.problem is not None
    assert "192.0.2.1:9739" in server.problem
    server.start()
    server.close()


def test_closing_ends_the_thread_and_frees_the_port() -> None:
    server = next(generator := serving())
    port = server.port or 0
    generator.close()
    assert not server._thread.is_alive()
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))

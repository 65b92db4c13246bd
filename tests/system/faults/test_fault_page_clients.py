"""Clients that don't behave: the page's server answers the others, within its memory, and ends when it is asked to."""

import http.client
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from exhume.lab.synth import write_synthetic

pytestmark = [pytest.mark.slow, pytest.mark.alone]

COMMAND = [sys.executable, "-m", "exhume.cli.main", "serve", "--listen", "127.0.0.1:0", "--no-open"]
IDLE, TRICKLING, SLOW_READERS = 170, 170, 160
ANSWER_S = 1.0
END_S = 5.0
# The server's process holds up to 64 MB of unread responses, and 500 connections.
MORE_MEMORY_MB = 110
FOR_S = 15.0
ATTACKERS = 3
LARGE = "/api/export/html?since=0"
HOSTILE = (
    "/api/flame?since=-1",
    "/api/flame?since=nan&until=inf",
    "/api/flame?least=nan",
    "/api/flame?least=-1e308",
    "/api/flame?since=99999999999999999999999999",
    "/api/flame?since=8640000000000000&until=8640000000000000",
    "/api/flame?stack=((((((((((",
    "/api/flame?stack=(a*)*b",
    "/api/flame?cpus=0-999999999",
    "/api/flame?cpus=" + "0-65535," * 60 + "0",
    "/api/cores?cells=4000&since=0&until=8640000000000000",
    "/api/cores?cells=99999999",
    "/api/cores?comm=" + "x" * 60_000,
    "/api/subsecond?rows=1000&column_ms=100",
    "/api/cell?at=0&cpu=65535",
    "/api/events?limit=5000&text=%00%ff%fe",
    "/api/lanes?names=" + ",".join(["memcgs"] * 70),
    "/api/export/svg?" + "&".join(["root=x"] * 499),
    "/api/export/../../etc/passwd",
    "/api/diagnosis?incident=" + "9" * 500,
    "/%2e%2e/%2e%2e/etc/passwd",
    "/" + "a" * 70_000,
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("hostile") / "r"
    write_synthetic(directory, cores=16, hours=0.25, seed=3)
    return directory


@pytest.fixture
def server(directory) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*COMMAND, "--dir", str(directory)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def port_of(server: subprocess.Popen[str]) -> int:
    assert server.stdout is not None
    found = re.search(r":(\d+)/", server.stdout.readline())
    assert found is not None
    return int(found[1])


def status_of(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.putrequest("GET", path, skip_host=True)
        connection.putheader("host", "localhost")
        connection.endheaders()
        answer = connection.getresponse()
        answer.read()
        return answer.status
    finally:
        connection.close()


def own_mb(pid: int) -> float:
    """The proportional set size of a process."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1]) / 1000


def descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [each for child in children for each in (child, *descendants(child))]


class Memory:
    """The most that the server's process takes, and its workers together, while it is watched."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.server = self.workers = 0.0
        self.processes = 0

    def __enter__(self) -> "Memory":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            # A worker, or all of them, may end in between.
            with suppress(OSError, TypeError):
                workers = descendants(self._pid)
                self.processes = max(self.processes, len(workers))
                self.workers = max(self.workers, sum(own_mb(each) for each in workers))
                self.server = max(self.server, own_mb(self._pid))


class Crowd:
    """Connections that are idle, send a request a byte at a time, or ask for much and hardly read it; they connect
    again whenever they are closed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.ended = threading.Event()
        self.opened = self.closed = 0
        self._threads = [threading.Thread(target=self._keep, args=args) for args in self._kinds()]

    def __enter__(self) -> "Crowd":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        for thread in self._threads:
            thread.join(30)

    def _kinds(self):
        yield IDLE, b"", 0
        yield TRICKLING, b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", 0
        yield SLOW_READERS, b"", 1

    def _keep(self, count: int, head: bytes, read: int) -> None:
        """So many connections; each sends one byte, or reads one, every half second."""
        with ExitStack() as stack:
            mine = [self._connect(stack, head, read) for _ in range(count)]
            while not self.ended.wait(0.5):
                for place, connection in enumerate(mine):
                    try:
                        if head:
                            connection.send(b"x")
                        connection.settimeout(0.0)
                        with suppress(BlockingIOError):
                            if not connection.recv(1) and not read:
                                raise ConnectionResetError
                    except OSError:
                        self.closed += 1
                        connection.close()
                        mine[place] = self._connect(stack, head, read)

    def _connect(self, stack: ExitStack, head: bytes, read: int) -> socket.socket:
        connection = stack.enter_context(socket.socket())
        # What is not read stays on the server's side.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        with suppress(OSError):
            connection.connect(("127.0.0.1", self.port))
            self.opened += 1
            if read:
                # No two of them share an answer.
                query = f"{LARGE}&until={8_640_000_000_000_000 - random.getrandbits(40)}"
                connection.sendall(f"GET {query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            else:
                connection.sendall(head)
        return connection


def test_a_crowd_that_does_not_behave_keeps_no_one_waiting(server):
    port = port_of(server)
    assert status_of(port, "/api/recording") == status_of(port, "/api/cores?cells=1200") == 200
    time.sleep(2)
    before = own_mb(server.pid)
    # What each of these requests takes when it is the only one: the largest response has 36 MB, of which the server
    # holds several copies on its way from the worker to the socket.
    with Memory(server.pid) as alone:
        for path in (*HOSTILE, *HOSTILE, LARGE):
            status_of(port, path)
    statuses: dict[int, str] = {}
    taken, ending = [], threading.Event()
    with Crowd(port) as crowd, Memory(server.pid) as memory:

        def attack() -> None:
            while not crowd.ended.is_set():
                for path in HOSTILE:
                    with suppress(OSError, http.client.HTTPException):
                        status = status_of(port, path)
                        if not ending.is_set():
                            statuses.setdefault(status, path)

        attackers = [threading.Thread(target=attack) for _ in range(ATTACKERS)]
        for attacker in attackers:
            attacker.start()
        until = time.monotonic() + FOR_S
        while time.monotonic() < until:
            began = time.monotonic()
            assert status_of(port, "/") == status_of(port, "/api/recording") == 200
            taken.append((time.monotonic() - began) / 2)
            time.sleep(0.2)
        # It ends in time while all of them are connected.
        ending.set()
        began = time.monotonic()
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
        ended = time.monotonic() - began
        crowd.ended.set()
        for attacker in attackers:
            attacker.join(60)
    assert crowd.opened >= IDLE + TRICKLING + SLOW_READERS
    assert 500 not in statuses, statuses[500]
    assert 422 in statuses
    # One may be late: other work on the host.
    assert sorted(taken)[-2] < ANSWER_S
    # Each attacker may get the largest response, all at the same time.
    assert memory.server - before < MORE_MEMORY_MB + ATTACKERS * max(0, alone.server - before)
    # Each worker runs one request at a time, however many there are.
    assert memory.workers < memory.processes * alone.workers, (memory.processes, memory.workers, alone.workers)
    assert code == 0
    assert ended < END_S

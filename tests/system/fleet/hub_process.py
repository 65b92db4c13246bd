"""A hub as a process, and clients that send to it and remember what it acknowledged."""

import http.client
import os
import random
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

from tests.fleet.fleet_rows import batch, summaries

from exhume.fleet.tokens import Tokens
from exhume.model.isolation import isolated_environment, isolated_python


class HubProcess:
    """`exhume fleet hub` on a port of its own."""

    def __init__(self, lake: str, state: Path, *more: str, fold: str = "1s", tls: ssl.SSLContext | None = None) -> None:
        """`tls`: how to look whether it answers, where it has a certificate."""
        self._command = isolated_python(
            *("exhume.cli.main", "fleet", "hub", "--lake", lake, "--state", state, "--fold-every", fold), *more
        )
        self._process: subprocess.Popen[str] | None = None
        self._tls = tls
        self.port = 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        self._process = subprocess.Popen(
            [*self._command, "--bind", f"127.0.0.1:{self.port}"],
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
            text=True,
            env=isolated_environment(),
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.port = int(line.split(" for ")[0].rpartition(":")[2])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            connection = self.connect()
            try:
                connection.request("GET", "/v1/health")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                time.sleep(0.02)
            finally:
                connection.close()
        raise AssertionError("the hub does not answer")

    def connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        return http.client.HTTPSConnection("localhost", self.port, timeout=5, context=self._tls)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._wait()

    def stop(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        self._wait()

    def _wait(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        self._process.wait(30)
        self._process.stdout.close()


class Sender:
    """A node: sends batches in their order, each until it is acknowledged."""

    def __init__(self, node: str, state: Path, seed: int) -> None:
        self.node, self._token = node, Tokens(state).add(node)
        self._random = random.Random(seed)
        self._spool = f"{self._random.getrandbits(64):016x}"
        self.seq = 0
        self._first = int(time.time()) // 60 * 60_000_000 - 20 * 86_400_000_000
        self.acknowledged: list[int] = []
        self.attempts = 0

    def send(self, port: int, until: float) -> None:
        """Send until a moment. Answers that got lost are asked for again by sending again."""
        connection: http.client.HTTPConnection | None = None
        while time.monotonic() < until:
            minute = self._first + self.seq * 60_000_000
            body = batch(self.node, self.seq, self._spool, summaries=summaries(1, minute)).encode()
            self.attempts += 1
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                connection.request("POST", "/v1/batches", body, {"Authorization": f"Bearer {self._token}"})
                answer = connection.getresponse()
                answer.read()
            except (OSError, http.client.HTTPException):
                if connection is not None:
                    connection.close()
                connection = None
                time.sleep(0.01)
                continue
            if answer.status == 200:
                self.acknowledged.append(minute)
                self.seq += 1
            else:
                time.sleep(0.05)
        if connection is not None:
            connection.close()

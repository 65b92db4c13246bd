"""Servers on loopback: starting them, asking them, and what memory they took."""

import http.client
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.processes import EXHUME, BenchError

MEBI = 1 << 20


@dataclass(frozen=True, slots=True)
class Served:
    """A server that runs: where it answers, and its process."""

    address: str
    pid: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered, and the seconds until all of it was here."""

    seconds: float
    body: bytes


@contextmanager
def exhume_server(source: Path, command: Sequence[str] = ("serve", "--dir")) -> Iterator[Served]:
    """The page of a recording, or of what another command takes, until the block ends."""
    args = [str(EXHUME), *command, str(source), "--listen", "127.0.0.1:0", "--no-open"]
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(args, stdout=subprocess.PIPE, stderr=output, text=True) as server,
    ):
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            if not line.startswith("exhume: http"):
                output.seek(0)
                raise BenchError(f"the server did not start: {line}{output.read()[-500:]}")
            yield Served(line.removeprefix("exhume: ").strip(), server.pid)
        finally:
            server.terminate()
            server.wait(30)


def ask(address: str, path: str, timeout: float = 60.0) -> Answer:
    """One question on a connection of its own; any answer but 200 is an error."""
    place = urlsplit(address)
    began = time.perf_counter()
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise BenchError(f"{path} was answered with {answer.status}")
    return Answer(time.perf_counter() - began, body)


def highest_memory(pid: int) -> float:
    """The most resident memory that a process and its children ever had, in MB."""
    kilobytes = 0
    for one in with_descendants(pid):
        status = Path(f"/proc/{one}/status").read_text()
        kilobytes += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    return kilobytes * 1024 / MEBI


def with_descendants(pid: int) -> list[int]:
    """A process and all that it started, directly or not."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return [pid, *(one for child in children for one in with_descendants(child))]

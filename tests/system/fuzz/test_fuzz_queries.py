"""Random and hostile requests to the page's server as it is started: each is answered or refused, in bounded time and
memory, none with a server error. Requests are made with a seed, so that a failure can be repeated.

Longer with EXHUME_FUZZ_SECONDS; another sequence with EXHUME_FUZZ_SEED.
"""

import os
import random
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, quote_from_bytes, urlsplit

import pytest
from tests.diagnose.scenes import Scene
from tests.present.web.test_serve_command import descendants, link_of, started

from exhume.model.clock import MILLIS
from exhume.present.web.app import ENDPOINTS
from exhume.present.web.params import Rule
from exhume.store.read.recording import Recording

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("EXHUME_FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("EXHUME_FUZZ_SEED", "20261116"))
CASES = 300
# One answer takes milliseconds; the machine may be busy with other tests.
LONGEST_S = 20.0
# What one process of the server may hold. The recording has a few kilobytes.
MOST_KB = 400 << 10

STREAM = "live"
HOSTILE = (
    *("", "0", "-1", "1e308", "nan", "9" * 400, "0x10", "1,2,3", "0-65535", "0-9999999999", "3-1", ",,,", "-", "%"),
    *("\0", "\n\r\n", "../../etc/passwd", "' OR 1=1 --", "<script>", "\u202e\ufeff", "\U0001f4a9" * 100, "A" * 5000),
    *("(" * 500, "(a*)*b", "a{1000}{1000}", ".*" * 200, "[", "\\", "(?P<x>a)", "(?i)" + "x?" * 250, "null", "[]", "{}"),
)
METHODS = (*["GET"] * 20, "HEAD", "POST", "OPTIONS", "TRACE", "DELETE", "get", "G\0T", "A" * 300)
STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3}) ")


@dataclass(frozen=True)
class Server:
    """`exhume serve` over a small recording."""

    process: subprocess.Popen[str]
    port: int | None

    def send(self, request: bytes) -> bytes:
        """The answer to the bytes of a request, to the end of the connection. Raises TimeoutError."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=LONGEST_S) as connection:
            ends = time.monotonic() + LONGEST_S
            answer = bytearray()
            try:
                connection.sendall(request)
                if not request.endswith(b"\r\n\r\n"):
                    # The server waits for the rest of it otherwise. One that is complete would be given up.
                    connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(1 << 16):
                    answer += piece
                    if time.monotonic() > ends:
                        raise TimeoutError
            except (BrokenPipeError, ConnectionResetError):
                # A request that is refused before it was read to its end.
                pass
            return bytes(answer)

    def memory_kb(self) -> dict[int, int]:
        """The most memory that each process of the server has held."""
        found = {}
        for pid in (self.process.pid, *descendants(self.process.pid)):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if peak := re.search(r"VmHWM:\s+(\d+) kB", status):
                found[pid] = int(peak[1])
        return found


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("asked") / "r"
    scene = Scene(cores=2, seconds=20)
    scene.core(1, 5, 12, system=980, user=20)
    scene.stack(1, 5, 12, 0.98, "app", 7, ["entry_SYSCALL_64", "vfs_read"])
    scene.stack(0, 0, 20, 0.2, "web", 8, ["libc:main"])
    scene.event(6, "oom", "Out of memory: Killed process 7 (app)")
    scene.write(directory)
    return directory


@pytest.fixture
def server(recorded: Path) -> Iterator[Server]:
    with started("serve", "--dir", str(recorded), "--no-open", "--listen", "127.0.0.1:0") as process:
        yield Server(process, urlsplit(link_of(process)).port)


def value(chance: random.Random, rule: Rule, moment: int) -> str:
    """What a parameter accepts, or nearly does, or anything."""
    match chance.randrange(12):
        case 0:
            return chance.choice(HOSTILE)
        case 1:
            return str(chance.choice((rule.low, rule.high, rule.low - 1, rule.high + 1, rule.high * 10)))
        case _ if rule.choices:
            return chance.choice(rule.choices)
        case _ if rule.kind is int:
            about = moment + chance.randrange(-5_000, 30_000) if rule.high > moment else chance.randrange(100)
            return str(about)
        case _ if rule.kind is float:
            return str(chance.random())
        case _:
            return chance.choice(
                ("app", "web", "vfs_read", "0", "0-1", "1", "kernel", "main|vfs", "oom", "busy,psi", "x" * 400)
            )


def path(chance: random.Random, moment: int) -> str:
    endpoint = chance.choice([each for each in ENDPOINTS if each.path != STREAM])
    rules = endpoint.params.rules
    named = {
        name: quote(value(chance, rule, moment), safe="")
        for name, rule in rules.items()
        if f"{{{name}}}" in endpoint.path
    }
    chosen = [name for name in rules if name not in named and chance.random() < 0.4]
    pairs = [(name, quote(value(chance, rules[name], moment), safe="")) for name in chosen]
    match chance.randrange(10):
        case 0:
            pairs.append((quote(chance.choice(HOSTILE), safe=""), quote_from_bytes(chance.randbytes(40))))
        case 1:
            pairs = pairs * chance.choice((2, 50))
        case 2:
            return f"/api/{quote(chance.choice(HOSTILE), safe='./')}"
        case _:
            pass
    return f"/api/{endpoint.path.format(**named)}?" + "&".join(f"{name}={text}" for name, text in pairs)


def request(chance: random.Random, port: int | None, moment: int) -> bytes:
    """The bytes of a request: mostly a well-formed one, sometimes damaged."""
    head = (
        f"{chance.choice(METHODS)} {path(chance, moment)} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
    )
    match chance.randrange(12):
        case 0:
            head += f"X-Exhume-Request: {chance.choice(HOSTILE)}\r\n"
        case 1:
            head += (
                chance.choice(
                    ("Origin: http://[", "Cookie: " + "a=b; " * 500, "Range: bytes=5-1", "Content-Length: -1")
                )
                + "\r\n"
            )
        case 2:
            head += "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"
        case 3:
            head += "".join(f"X-{number}: {number}\r\n" for number in range(chance.choice((10, 2000))))
        case _:
            pass
    whole = bytearray((head + "\r\n").encode("utf-8", "replace"))
    if chance.randrange(10) == 0:
        del whole[-chance.randrange(1, 50) :]
        for _ in range(chance.choice((1, 4))):
            whole[chance.randrange(len(whole))] = chance.randrange(256)
    return bytes(whole)


def test_no_request_is_a_server_error_hangs_or_takes_the_memory(recorded: Path, server: Server) -> None:
    span = Recording.open(recorded).span()
    assert span is not None
    began, seed, statuses = time.monotonic(), SEED, Counter[int]()
    while seed < SEED + CASES or time.monotonic() - began < SECONDS:
        asked = request(random.Random(seed), server.port, span.since // MILLIS)
        answer = server.send(asked)
        found = STATUS.match(answer)
        status = int(found[1]) if found else 0
        statuses[status] += 1
        assert status < 500, (seed, asked, answer[:1000])
        assert server.process.poll() is None, (seed, asked)
        if seed % 20 == 0:
            held = server.memory_kb()
            assert max(held.values()) < MOST_KB, (seed, asked, held)
        seed += 1
    sys.stderr.write(f"queries: {seed - SEED} cases in {time.monotonic() - began:.0f} s: {dict(statuses)}\n")
    # Most are answered: requests that are all refused prove nothing about the handlers.
    assert statuses[200] > (seed - SEED) // 8
    assert statuses[422] > (seed - SEED) // 20
    alive = server.send(
        f"GET /api/recording HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n\r\n".encode()
    )
    assert alive.startswith(b"HTTP/1.1 200 ")

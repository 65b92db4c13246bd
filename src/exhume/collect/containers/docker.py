"""The Docker Engine API, of Docker or Podman, over its socket. `Engine` waits for answers within limits on time and
bytes; `StreamedResponse` reads what has arrived and never waits.

HTTP 1.0 without a library, since the body then ends with the connection: importing Python's client takes a twentieth of
the recorder's startup time.
"""

import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from exhume.model.errors import ExhumeError

DOCKER_SOCKET = Path("/var/run/docker.sock")
# The engine answers about a container only when no other operation on it is in progress: a container that is just being
# restarted takes seconds on a node that is short of CPU.
_TIMEOUT_S = 10.0
_MOST_BYTES = 64 << 20
_MOST_WAITING_BYTES = 16 << 20
_PART = 1 << 16
_TRIES = 3
_ASK_AGAIN_S = 0.05
_FAILED = 500
# Ids match this as well.
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_STATUS = re.compile(rb"HTTP/\S+ (\d{3}) ?([^\r\n]*)")
_END_OF_HEAD = b"\r\n\r\n"
_Answer = TypeVar("_Answer")


def docker_socket(given: Path | None = None) -> Path | None:
    """The socket to use: the given one, else DOCKER_HOST's, else the default; None when there is no Docker here."""
    if given is not None:
        return given
    address = os.environ.get("DOCKER_HOST", "")
    if address:
        return Path(address.removeprefix("unix://")) if address.startswith("unix://") else None
    return DOCKER_SOCKET if DOCKER_SOCKET.exists() else None


class EngineError(ExhumeError):
    """The engine could not be queried, or refused. `status` is its HTTP status; None if there was no answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Engine:
    """Requests to the engine at a socket. Every failure is an EngineError."""

    socket: Path
    timeout_s: float = _TIMEOUT_S

    def get(self, path: str, **query: str | int) -> Any:
        """Request a path; returns the decoded JSON."""
        return self._parsed(path, self.read(path, **query))

    def lines(self, path: str, **query: str | int) -> list[Any]:
        """The same for an answer with one JSON object per line."""
        return [self._parsed(path, line) for line in self.read(path, **query).splitlines() if line.strip()]

    def read(self, path: str, **query: str | int) -> bytes:
        """The raw bytes of an answer. A failed request is retried: a GET changes nothing."""
        return again_where_it_fails(lambda: self.exchange("GET", path, query, None, self.timeout_s)[1], _ASK_AGAIN_S)

    def exchange(
        self, method: str, path: str, query: dict[str, str | int], body: Any, timeout_s: float
    ) -> tuple[int, bytes]:
        """Send a request; returns the status and the body. Only exhume.control sends anything but GET."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(timeout_s)
                connection.connect(os.fspath(self.socket))
                connection.sendall(_request(method, path, query, body))
                answer = bytearray()
                while len(answer) < _MOST_BYTES and (part := connection.recv(_PART)):
                    answer += part
        except OSError as error:
            raise EngineError(f"{self.socket} does not answer: {error.strerror or error}") from None
        head, _, body = bytes(answer).partition(_END_OF_HEAD)
        line = _STATUS.match(head)
        if line is None:
            raise EngineError(f"{self.socket} does not answer: it closed the connection")
        status = int(line[1])
        # A redirect is not an answer: the Engine API has none for these requests.
        if status >= 300 and status != 304:
            raise EngineError(f"it answered {status} {_reason(body) or line[2].decode(errors='replace')}", status)
        return status, body

    def _parsed(self, path: str, body: bytes) -> Any:
        try:
            return json.loads(body)
        except ValueError:
            raise EngineError(f"{self.socket} answered {path} with something else than JSON") from None


def again_where_it_fails(attempt: Callable[[], _Answer], pause_s: float) -> _Answer:
    """Retry failures: an engine fails on a container that ends or restarts at that very moment."""
    tries_left = _TRIES
    while True:
        try:
            return attempt()
        except EngineError as error:
            tries_left -= 1
            if not tries_left or error.status != _FAILED:
                raise
        time.sleep(pause_s)


def container_path(container: str, *more: str) -> str:
    """The API's path of a container. Invalid names are refused here: engines treat an escaped slash as a slash, and
    would then address another container."""
    if not _NAME.fullmatch(container):
        raise EngineError(f"{container!r} can't be the name of a container")
    return "/".join(("/containers", container, *more))


class StreamedResponse:
    """The engine's answer to one request, as far as it has arrived; never waits. Raises OSError when
    nothing listens."""

    def __init__(self, path: Path, question: str, **query: str | int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            self._socket.connect(str(path))
            self._socket.sendall(_request("GET", question, query))
        except OSError:
            self._socket.close()
            raise
        self._content = b""
        self._in_body = False

    @property
    def body(self) -> bytes:
        return self._content if self._in_body else b""

    def receive(self) -> bool:
        """Read what has arrived; True when the answer is complete."""
        while len(self._content) < _MOST_WAITING_BYTES:
            try:
                part = self._socket.recv(_PART)
            except BlockingIOError:
                return False
            except OSError:
                return True
            if not part:
                return True
            self._content += part
            if not self._in_body and _END_OF_HEAD in self._content:
                head, _, self._content = self._content.partition(_END_OF_HEAD)
                self._in_body = True
                if (line := _STATUS.match(head)) is None or line[1] != b"200":
                    return True
        return True

    def lines(self) -> tuple[list[bytes], bool]:
        """The complete lines received, and whether the answer is complete."""
        ended = self.receive()
        if not self._in_body:
            return [], ended
        *whole, self._content = self._content.split(b"\n")
        return [line for line in whole if line.strip()], ended

    def close(self) -> None:
        self._socket.close()


def _request(method: str, path: str, query: Mapping[str, str | int], body: Any = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    lines = [f"{method} {path}?{urlencode(query)} HTTP/1.0" if query else f"{method} {path} HTTP/1.0", "Host: docker"]
    if body is not None:
        lines.append("Content-Type: application/json")
    if method != "GET":
        # An empty body is declared too: without a length some engines wait for one.
        lines.append(f"Content-Length: {len(content)}")
    return "\r\n".join(lines).encode() + _END_OF_HEAD + content


def _reason(body: bytes) -> str:
    """The error message of a refusal."""
    try:
        answer = json.loads(body)
    except ValueError:
        return ""
    return str(answer.get("message") or "") if isinstance(answer, dict) else ""

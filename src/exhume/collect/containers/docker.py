"""Client of the Docker Engine API, of Docker or Podman, with bounds on time and bytes."""

import http.client
import json
import os
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from exhume.model.errors import ExhumeError

# It answers about a container once nothing else is done to it: one that is just started again takes seconds on a
# node that is short of CPU.
_TIMEOUT_S = 10.0
_MOST_BYTES = 64 << 20
_TRIES = 3
_ASK_AGAIN_S = 0.05
_FAILED = 500
# Ids are names by this as well.
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_Answer = TypeVar("_Answer")


class EngineError(ExhumeError):
    """The engine could not be asked, or refused. `status` is its HTTP status; None where there was no answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Engine:
    """Requests to the engine at a socket. Whatever goes wrong is an EngineError."""

    socket: Path
    timeout_s: float = _TIMEOUT_S

    def get(self, path: str, **query: str | int) -> Any:
        """What it answers, out of JSON."""
        return self._parsed(path, self.read(path, **query))

    def lines(self, path: str, **query: str | int) -> list[Any]:
        """The same for an answer of one JSON object a line."""
        return [self._parsed(path, line) for line in self.read(path, **query).splitlines() if line.strip()]

    def read(self, path: str, **query: str | int) -> bytes:
        """The bytes that it answers. What failed is retried: a GET changes nothing."""
        return again_where_it_fails(lambda: self.exchange("GET", path, query, None, self.timeout_s)[1], _ASK_AGAIN_S)

    def exchange(
        self, method: str, path: str, query: dict[str, str | int], body: Any, timeout_s: float
    ) -> tuple[int, bytes]:
        """Send a request; return the status and the body. Only exhume.control sends anything but GET."""
        connection = _UnixConnection(self.socket, timeout_s)
        try:
            # A body that is not there is said so: without a length some engines wait for one.
            content = b"" if body is None else json.dumps(body).encode()
            headers = {"Content-Type": "application/json"} if body is not None else {}
            url = f"{path}?{urlencode(query)}" if query else path
            connection.request(method, url, content if method != "GET" else None, headers)
            answer = connection.getresponse()
            said = answer.read(_MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise EngineError(f"{self.socket} does not answer: {reason}") from None
        finally:
            connection.close()
        # To be sent elsewhere is no answer: no question of ours has another place.
        if answer.status >= 300 and answer.status != 304:
            raise EngineError(f"it answered {answer.status} {_reason(said) or answer.reason}", answer.status)
        return answer.status, said

    def _parsed(self, path: str, said: bytes) -> Any:
        try:
            return json.loads(said)
        except ValueError:
            raise EngineError(f"{self.socket} answered {path} with something else than JSON") from None


def again_where_it_fails(attempt: Callable[[], _Answer], pause_s: float) -> _Answer:
    """Engines fail on a container that ends, or starts again, in that very moment: the next one is another."""
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
    """The API's path of a container. What can't be a name is refused here: engines take an escaped slash for a slash,
    and then mean another container."""
    if not _NAME.fullmatch(container):
        raise EngineError(f"{container!r} can't be the name of a container")
    return "/".join(("/containers", container, *more))


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket file."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path, self._timeout_s = os.fspath(path), timeout_s

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self._timeout_s)
        self.sock.connect(self._path)


def _reason(said: bytes) -> str:
    """The sentence of an answer that refuses."""
    try:
        answer = json.loads(said)
    except ValueError:
        return ""
    return str(answer.get("message") or "") if isinstance(answer, dict) else ""

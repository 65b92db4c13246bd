"""Docker's socket, and responses of its API for a caller that may never wait: what came is taken as it is.

The recorder imports this module and not `docker`: Python's HTTP client costs a twentieth of its start.
"""

import json
import os
import socket
from pathlib import Path
from urllib.parse import urlencode

DOCKER_SOCKET = Path("/var/run/docker.sock")
_MOST_WAITING_BYTES = 16 << 20


def docker_socket(given: Path | None = None) -> Path | None:
    """The socket to ask: the one given, else DOCKER_HOST's, else the usual one; None where there is no Docker here."""
    if given is not None:
        return given
    address = os.environ.get("DOCKER_HOST", "")
    if address:
        return Path(address.removeprefix("unix://")) if address.startswith("unix://") else None
    return DOCKER_SOCKET if DOCKER_SOCKET.exists() else None


def only(**kinds: list[str]) -> str:
    """The API's `filters`."""
    return json.dumps(kinds)


class StreamedResponse:
    """What the engine answers to one question, as far as it has come, never waited for. HTTP 1.0: the body ends with
    the connection. Raises OSError where nothing listens."""

    def __init__(self, path: Path, question: str, **query: str | int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        url = f"{question}?{urlencode(query)}" if query else question
        try:
            self._socket.setblocking(False)
            self._socket.connect(str(path))
            self._socket.sendall(f"GET {url} HTTP/1.0\r\nHost: docker\r\n\r\n".encode())
        except OSError:
            self._socket.close()
            raise
        self._content = b""
        self._in_body = False

    @property
    def body(self) -> bytes:
        return self._content if self._in_body else b""

    def receive(self) -> bool:
        """Take what there is; True when there won't be more."""
        while len(self._content) < _MOST_WAITING_BYTES:
            try:
                part = self._socket.recv(1 << 16)
            except BlockingIOError:
                return False
            except OSError:
                return True
            if not part:
                return True
            self._content += part
            if not self._in_body and b"\r\n\r\n" in self._content:
                head, _, self._content = self._content.partition(b"\r\n\r\n")
                self._in_body = True
                if b" 200 " not in head.split(b"\r\n", 1)[0]:
                    return True
        return True

    def lines(self) -> tuple[list[bytes], bool]:
        """The whole lines that came, and whether it is over."""
        ended = self.receive()
        if not self._in_body:
            return [], ended
        *whole, self._content = self._content.split(b"\n")
        return [line for line in whole if line.strip()], ended

    def close(self) -> None:
        self._socket.close()

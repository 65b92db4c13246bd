"""A server of HTTP at a socket of the file system, as an engine of containers is one."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path


@contextmanager
def answering(path: Path, handler: type[BaseHTTPRequestHandler]) -> Iterator[None]:
    """A server answers there."""
    with socketserver.ThreadingUnixStreamServer(str(path), handler) as server:
        # BaseHTTPRequestHandler wants an address that it can print.
        server.get_request = lambda: (server.socket.accept()[0], ("local", 0))  # type: ignore[method-assign]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield
        server.shutdown()
        thread.join()

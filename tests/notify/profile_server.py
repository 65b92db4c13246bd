"""A server on loopback that takes profiles, or behaves as a test says."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class ProfileServer:
    """`answers` are status and headers of the requests to come, then 200; None is a request that is never answered."""

    url: str
    answers: list[tuple[int, dict[str, str]] | None] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)


@contextmanager
def profile_server(*answers: tuple[int, dict[str, str]] | None) -> Iterator[ProfileServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.received.append(Received(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            answer = state.answers.pop(0) if state.answers else (200, {})
            if answer is None:
                state.released.wait(30)
                return
            self.send_response(answer[0])
            for name, value in answer[1].items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = ProfileServer(f"http://127.0.0.1:{server.server_address[1]}", list(answers))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        state.released.set()
        server.shutdown()
        server.server_close()
        thread.join()

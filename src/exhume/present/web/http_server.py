"""uvicorn with limits: on connections, on the time for a request to arrive and for its response to be read, on the
memory of unread responses, and on the shutdown time."""

import asyncio
import logging
import resource
import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from exhume.model.errors import ExhumeError
from exhume.present.web.pool import WorkerPool

HEADER_TIMEOUT_S = 10.0
# A client must read at least MIN_READ_BYTES of its response in this time, and MAX_UNSENT_BYTES bounds the unread data
# of all responses together. Actual memory use is twice that: asyncio copies what could not be sent (selector_events.py,
# _SelectorSocketTransport.write), and the response itself is held until the copy is sent.
READ_TIMEOUT_S, MIN_READ_BYTES = 10.0, 64 << 10
MAX_UNSENT_BYTES = 32 << 20
MAX_CONNECTIONS = 2000
# asyncio accepts up to this many connections in one go (selector_events.py, _accept_connection), before any is
# examined.
BACKLOG = 64
# Descriptors other than counted connections: libraries, workers, and connections that were just accepted or aborted.
_OTHER_FILES = 64 + 2 * BACKLOG


class Connection(h11.Connection):
    """Sends the head of a response together with the beginning of its body: one system call, and one packet where
    both fit. Without a length the body may be a stream, whose client has to see the head at once."""

    _head: Sequence[bytes] = ()

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        """What `send` joins."""
        parts = super().send_with_data_passthrough(event)
        if parts is None:
            return None
        if type(event) is h11.Response and any(name == b"content-length" for name, _ in event.headers):
            self._head = parts
            return []
        if self._head:
            parts, self._head = [*self._head, *parts], ()
        return parts


class BoundedProtocol(H11Protocol):
    """Closes connections above the limits, connections whose request does not arrive in time, and connections whose
    client does not read the response."""

    max_connections = MAX_CONNECTIONS
    request_timeout_s = HEADER_TIMEOUT_S
    _peers: ClassVar[Counter[str]] = Counter()
    #: Connections whose client reads too slowly, the longest waiting first, with the timer of each.
    _slow: ClassVar[dict["BoundedProtocol", asyncio.TimerHandle]] = {}
    _request_timer: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = Connection(h11.SERVER)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._peer = self.client[0] if self.client else ""
        self._peers[self._peer] += 1
        # No client may use up all connections.
        if len(self.connections) > self.max_connections or self._peers[self._peer] > self.max_connections // 2:
            transport.abort()
        else:
            self._bound_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._bound_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peers[self._peer] -= 1
        if not self._peers[self._peer]:
            del self._peers[self._peer]
        for timer in (self._request_timer, self._slow.pop(self, None)):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _bound_request(self) -> None:
        """Set a single deadline for an incomplete request; data that arrives meanwhile does not extend it."""
        incomplete = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if incomplete and self._request_timer is None:
            self._request_timer = self.loop.call_later(self.request_timeout_s, self.transport.close)
        elif not incomplete and self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def pause_writing(self) -> None:
        """Bound the unread data, which is held in memory: the client reads more slowly than it is answered."""
        super().pause_writing()
        self._bound_answer()
        unsent = {each: each.transport.get_write_buffer_size() for each in self._slow}
        total = sum(unsent.values())
        for each, size in unsent.items():
            if total <= MAX_UNSENT_BYTES or each is self:
                break
            total -= size
            each.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        timer = self._slow.pop(self, None)
        if timer is not None:
            timer.cancel()

    def _bound_answer(self, before: int | None = None) -> None:
        """Close the connection if too little was read since `before` bytes were unsent, else check again later."""
        unsent = self.transport.get_write_buffer_size()
        if before is not None and before - unsent < MIN_READ_BYTES:
            self.transport.abort()
        else:
            self._slow[self] = self.loop.call_later(READ_TIMEOUT_S, self._bound_answer, unsent)


class LengthRequired:
    """ASGI middleware that refuses chunked requests and closes their connection. If a request has both a length and
    chunks, h11 keeps the connection open, which RFC 9112, 6.1 forbids: a proxy that goes by the length would take what
    follows for a part of this request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and any(name == b"transfer-encoding" for name, _ in scope["headers"]):
            app = PlainTextResponse("send a Content-Length, and no chunks", 411, {"connection": "close"})
        await app(scope, receive, send)


class BoundedServer(uvicorn.Server):
    """Stops on a signal, and immediately on a second one; the caller cleans up afterwards."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Requests that are cut off now are not errors.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self.force_exit = self.should_exit
        self.should_exit = True


class Server(BoundedServer):
    """The page's server: ends streams first, so that browsers see a regular end and no error."""

    def __init__(self, config: uvicorn.Config, app: Starlette) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._app.state.stop()
        super().handle_exit(sig, frame)


def run_server(
    app: Starlette, pool: WorkerPool, listener: socket.socket, tls_cert: Path | None, tls_key: Path | None
) -> None:
    """Serve until a signal arrives. Raises ExhumeError if the workers cannot run."""
    server = Server(_bounded(app, tls_cert, tls_key), app)

    def end() -> None:
        server.should_exit = True

    pool.on_failure = end
    server.run(sockets=[listener])
    if pool.failed:
        raise ExhumeError("the workers of the page ended; see the messages above, and start it again")


def serve_bounded(
    app: Starlette, listener: socket.socket, tls_cert: Path | None, tls_key: Path | None, request_timeout_s: float
) -> None:
    """Serve another application with the same limits until a signal arrives. `request_timeout_s` bounds how long its
    requests may take to arrive."""
    BoundedProtocol.request_timeout_s = request_timeout_s
    BoundedServer(_bounded(app, tls_cert, tls_key)).run(sockets=[listener])


def _bounded(app: Starlette, tls_cert: Path | None, tls_key: Path | None) -> uvicorn.Config:
    BoundedProtocol.max_connections = _connections()
    return uvicorn.Config(
        LengthRequired(app),
        http=BoundedProtocol,
        backlog=BACKLOG,
        # No logging configuration: uvicorn's loggers propagate to ours.
        log_config=None,
        access_log=False,
        server_header=False,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
        timeout_graceful_shutdown=2,
        lifespan="on",
        loop="asyncio",
        ws="none",
    )


def _connections() -> int:
    """As many connections as there are descriptors for: every accept(2) that fails with EMFILE would be logged."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(8, min(MAX_CONNECTIONS, soft - _OTHER_FILES))

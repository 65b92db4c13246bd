"""uvicorn with bounds: on connections, on the time that a request's headers take, and on the time to end."""

import asyncio
import logging
import resource
import socket
from pathlib import Path
from types import FrameType

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from exhume.model.errors import ExhumeError
from exhume.present.web.pool import WorkerPool

HEADER_TIMEOUT_S = 10.0
MAX_CONNECTIONS = 2000
# asyncio accepts so many connections at once (selector_events.py, _accept_connection), before any is looked at.
BACKLOG = 64
# Descriptors that are not counted connections: libraries, workers, and connections that were accepted or aborted last.
_OTHER_FILES = 64 + 2 * BACKLOG


class BoundedProtocol(H11Protocol):
    """Closes connections above the limit at once, and those whose request does not arrive in time."""

    max_connections = MAX_CONNECTIONS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:
            transport.abort()
            return
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        """While a request is incomplete there is one deadline, whatever arrives meanwhile."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._clear_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_TIMEOUT_S, self._expire)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _expire(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """Ends with a signal: streams end first, so that browsers see an end and no error. A second signal ends at once."""

    def __init__(self, config: uvicorn.Config, app: Starlette) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._app.state.api.status.stopping = True
        # Requests that are cut off now are no errors.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self.force_exit = self.should_exit
        self.should_exit = True


def run_server(
    app: Starlette, pool: WorkerPool, listener: socket.socket, tls_cert: Path | None, tls_key: Path | None
) -> None:
    """Serve until a signal comes. Raises ExhumeError where the workers can't run."""
    BoundedProtocol.max_connections = _connections()
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        backlog=BACKLOG,
        # None: its loggers propagate to ours.
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
    server = Server(config, app)

    def end() -> None:
        server.should_exit = True

    pool.on_failure = end
    server.run(sockets=[listener])
    if pool.failed:
        raise ExhumeError("the workers of the page ended; see the messages above, and start it again")


def _connections() -> int:
    """As many connections as there are descriptors for: accept(2) that fails with EMFILE would be logged each time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_CONNECTIONS + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(8, min(MAX_CONNECTIONS, soft - _OTHER_FILES))

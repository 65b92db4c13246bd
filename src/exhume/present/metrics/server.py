"""An HTTP server for the metrics and for events posted by other programs: one thread, non-blocking sockets, bounds on
everything a client can hold.

The recorder never waits for it and shares no lock with it. If the address is in use, only the metrics are affected,
and listening is retried.
"""

import errno
import hmac
import logging
import os
import selectors
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

import h11

from exhume.collect.sources.job_events import MOST_PER_TICK, EventInbox, check_time
from exhume.model.job_event import MAX_BYTES, BadEvent, JobEvent
from exhume.present.metrics.exposition import OPENMETRICS_TYPE, PLAIN_TYPE, RenderedMetrics, accepts_gzip, negotiate
from exhume.procfs.net_tcp import owner_of_connection

PATH, EVENTS_PATH = "/metrics", "/events"
# A scrape takes milliseconds. A client that needs longer to send its request or to read the response is disconnected.
PATIENCE_S = 10.0
IDLE_S = 75.0
MOST_CONNECTIONS = 256
MOST_REQUEST = 16 * 1024
RETRY_S = 5.0
_PAUSE_S = 0.05
_CHUNK = 64 * 1024
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_INDEX = b"exhume: metrics are at /metrics\n"
_JSON = "application/json"
_Answer = tuple[int, bytes, dict[str, str]]
_SLOW_DOWN: _Answer = (429, b"exhume: too many events, try again\n", {"retry-after": "1"})
_TOO_LONG: _Answer = (413, f"exhume: an event has at most {MAX_BYTES} bytes\n".encode(), {})

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may scrape: without a token, anyone who can reach the address. On loopback, requests with a Host other than
    this machine's names are refused, so that no web site can send them through a browser (DNS rebinding)."""

    token: str | None = None
    only_local_names: bool = True

    def refusal(self, headers: dict[str, str]) -> tuple[int, bytes] | None:
        """The status and text for a request that is refused; None for one that is allowed."""
        if self.only_local_names:
            host = headers.get("host", "")
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if name.lower() not in _LOOPBACK_NAMES:
                return 403, b"exhume: ask for localhost, 127.0.0.1 or [::1]\n"
        given = headers.get("authorization", "").partition(" ")
        if self.token is not None and not (
            given[0].lower() == "bearer" and hmac.compare_digest(given[2].strip().encode(), self.token.encode())
        ):
            return 401, b"exhume: a token is needed: send Authorization: Bearer TOKEN\n"
        return None


@dataclass(slots=True, eq=False)
class _Client:
    """One connection: its pending output, and when it is closed if nothing happens."""

    socket: socket.socket
    deadline: float
    protocol: h11.Connection = field(
        default_factory=lambda: h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_REQUEST)
    )
    pending: list[memoryview] = field(default_factory=list)
    closing: bool = False
    # The body of the event it is sending, None if it sends none; and the refusal, if it is already known.
    posted: bytearray | None = None
    refusal: "_Answer | None" = None


class MetricsServer:
    """Serves rendered metrics until it is closed, and accepts events if it has an inbox for them."""

    def __init__(
        self,
        host: str,
        port: int,
        metrics: RenderedMetrics,
        access: Access | None = None,
        inbox: EventInbox | None = None,
    ) -> None:
        self._address, self._metrics, self._access = (host, port), metrics, access or Access()
        self._inbox = inbox
        # Token bucket: events that may be examined now, refilled each second with as many as the recorder takes.
        self._events_left, self._events_counted = float(MOST_PER_TICK), time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._clients: dict[_Client, None] = {}
        self._wake, self._waker = socket.socketpair()
        self._listener: socket.socket | None = None
        # The first attempt is made here, so that its result can be reported.
        self.problem = self._listen()
        self._next_attempt = time.monotonic() + RETRY_S
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)

    @property
    def port(self) -> int | None:
        """The port of the listening socket; None while the address is unavailable."""
        return self._listener.getsockname()[1] if self._listener is not None else None

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop serving and close all connections."""
        with suppress(OSError):
            self._waker.send(b"x")
        if self._thread.ident is not None:
            self._thread.join(PATIENCE_S)
        self._waker.close()

    def _listen(self) -> str | None:
        """Start listening; returns the reason as text if that fails."""
        host, port = self._address
        try:
            kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
            listener = socket.socket(kind, socket.SOCK_STREAM)
        except OSError as error:
            return _sentence(host, port, error)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            return _sentence(host, port, error)
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ)
        return None

    def _serve(self) -> None:
        self._selector.register(self._wake, selectors.EVENT_READ)
        try:
            while True:
                ready = self._selector.select(self._timeout())
                for key, _ in ready:
                    if key.fileobj is self._wake:
                        return
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.data in self._clients:
                        self._advance(key.data)
                self._check_deadlines()
        finally:
            for client in list(self._clients):
                self._drop(client)
            for each in (self._listener, self._wake):
                if each is not None:
                    each.close()
            self._selector.close()

    def _timeout(self) -> float | None:
        """How long the server may sleep if no client does anything."""
        moments = [client.deadline for client in self._clients]
        if self._listener is None:
            moments.append(self._next_attempt)
        return max(0.05, min(moments) - time.monotonic()) if moments else None

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for client in [client for client in self._clients if client.deadline <= now]:
            self._abort(client)
        if self._listener is None and self._next_attempt <= now:
            self._next_attempt = now + RETRY_S
            if self._listen() is None:
                _log.warning("metrics are served now, at http://%s:%s%s", *self._address, PATH)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError:
            # The client disconnected already; or the process is out of descriptors, and accept would be tried again at
            # once.
            self._drop_oldest()
            time.sleep(_PAUSE_S)
            return
        connection.setblocking(False)
        if len(self._clients) >= MOST_CONNECTIONS:
            self._drop_oldest()
        client = _Client(connection, time.monotonic() + PATIENCE_S)
        self._clients[client] = None
        self._selector.register(connection, selectors.EVENT_READ, client)

    def _advance(self, client: _Client) -> None:
        """Read input, produce the response, send what fits."""
        try:
            if not client.pending:
                self._receive(client)
            if client.pending:
                self._transmit(client)
        except BlockingIOError:
            pass
        except (OSError, h11.RemoteProtocolError):
            self._drop(client)
            return
        if client.pending:
            self._selector.modify(client.socket, selectors.EVENT_WRITE, client)
        elif client.closing:
            self._drop(client)
        else:
            self._selector.modify(client.socket, selectors.EVENT_READ, client)

    def _transmit(self, client: _Client) -> None:
        """Send what the kernel accepts now, headers and body in one call."""
        sent = client.socket.sendmsg(client.pending)
        while client.pending and sent >= len(client.pending[0]):
            sent -= len(client.pending.pop(0))
        if client.pending:
            client.pending[0] = client.pending[0][sent:]
        else:
            client.deadline = time.monotonic() + IDLE_S

    def _receive(self, client: _Client) -> None:
        data = client.socket.recv(_CHUNK)
        protocol = client.protocol
        try:
            protocol.receive_data(data)
            while True:
                event = protocol.next_event()
                if isinstance(event, h11.Request):
                    self._respond(client, event)
                elif isinstance(event, h11.Data) and client.posted is not None:
                    client.posted += event.data
                    if len(client.posted) > MAX_BYTES:
                        client.posted = None
                        self._send(client, *_TOO_LONG)
                elif isinstance(event, h11.EndOfMessage) and client.posted is not None:
                    answer = client.refusal or self._take_event(bytes(client.posted))
                    client.posted = client.refusal = None
                    self._send(client, *answer)
                elif isinstance(event, h11.ConnectionClosed):
                    client.closing = True
                    return
                if event in (h11.NEED_DATA, h11.PAUSED):
                    break
        except h11.RemoteProtocolError as error:
            if protocol.our_state is h11.IDLE or protocol.our_state is h11.SEND_RESPONSE:
                self._send(client, error.error_status_hint, b"exhume: bad request\n", {})
            client.closing = True
            return
        # A client that pipelines requests gets this response, and then the connection is closed.
        if protocol.our_state is h11.DONE and protocol.their_state is h11.DONE and not protocol.trailing_data[0]:
            protocol.start_next_cycle()
        elif client.pending and client.posted is None:
            client.closing = True

    def _respond(self, client: _Client, request: h11.Request) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        refused = self._access.refusal(headers)
        target = request.target.decode("latin-1").partition("?")[0]
        if refused is not None:
            extra = {"www-authenticate": "Bearer"} if refused[0] == 401 else {}
            self._send(client, *refused, extra, head=request.method == b"HEAD")
        elif target == EVENTS_PATH and self._inbox is not None:
            self._begin_event(client, request.method, headers)
        elif request.method not in (b"GET", b"HEAD"):
            self._send(client, 405, b"exhume: send GET or HEAD\n", {"allow": "GET, HEAD"})
        elif target == PATH:
            openmetrics, compressed = (
                negotiate(headers.get("accept", "")),
                accepts_gzip(headers.get("accept-encoding", "")),
            )
            body = self._metrics.get(openmetrics=openmetrics, compressed=compressed)
            extra = {"content-type": OPENMETRICS_TYPE if openmetrics else PLAIN_TYPE, "vary": "accept, accept-encoding"}
            if compressed:
                extra["content-encoding"] = "gzip"
            self._send(client, 200, body, extra, head=request.method == b"HEAD")
        else:
            found = target == "/"
            self._send(client, 200 if found else 404, _INDEX, {}, head=request.method == b"HEAD")

    def _begin_event(self, client: _Client, method: bytes, headers: dict[str, str]) -> None:
        """Begin to receive an event. The body of a refused event is still read, so that the client gets to read the
        reason."""
        refused = self._refusal_of_event(client, method, headers)
        waits = client.protocol.they_are_waiting_for_100_continue
        if refused is not None and (waits or refused is _TOO_LONG or method != b"POST"):
            self._send(client, *refused, head=method == b"HEAD")
            return
        client.posted, client.refusal = bytearray(), refused
        if waits:
            go_on = client.protocol.send(h11.InformationalResponse(status_code=100, headers=[]))
            client.pending.append(memoryview(go_on or b""))

    def _refusal_of_event(self, client: _Client, method: bytes, headers: dict[str, str]) -> _Answer | None:
        if method != b"POST":
            return 405, b"exhume: send POST, with an event as JSON\n", {"allow": "POST"}
        if int(headers.get("content-length", "0")) > MAX_BYTES:
            return _TOO_LONG
        if not self._may_look():
            return _SLOW_DOWN
        if "origin" in headers or headers.get("sec-fetch-site", "none") != "none":
            # A web site made a browser post this. To send JSON, the browser would need a CORS preflight as well.
            return 403, b"exhume: events are not taken from web pages\n", {}
        if headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
            return 415, f"exhume: send it with Content-Type: {_JSON}\n".encode(), {}
        if self._access.token is None and not self._is_own_user(client):
            only = b"exhume: without a token events are taken from root and the recorder's user; "
            return 403, only + b"set EXHUME_METRICS_TOKEN\n", {}
        return None

    def _may_look(self) -> bool:
        """Whether an event is examined at all. Finding out which user sent it takes a list of all connections of the
        node: a flood of events, even from clients that may not post, must not use up the recorder's budget."""
        now = time.monotonic()
        more = (now - self._events_counted) * MOST_PER_TICK
        self._events_left, self._events_counted = min(float(MOST_PER_TICK), self._events_left + more), now
        if self._events_left < 1:
            return False
        self._events_left -= 1
        return True

    def _is_own_user(self, client: _Client) -> bool:
        """Whether the peer is root or the recorder's user: as on the unix socket, other users may not report events."""
        try:
            peer, here = client.socket.getpeername()[:2], client.socket.getsockname()[:2]
        except OSError:
            return False
        return owner_of_connection(peer, here) in (0, os.geteuid())

    def _take_event(self, body: bytes) -> _Answer:
        assert self._inbox is not None
        try:
            event = JobEvent.decode(body)
            check_time(event, time.time_ns())
        except BadEvent as error:
            return 400, f"exhume: {error}\n".encode(errors="replace"), {}
        return (202, b"", {}) if self._inbox.put(event) else _SLOW_DOWN

    def _send(self, client: _Client, status: int, body: bytes, headers: dict[str, str], *, head: bool = False) -> None:
        protocol = client.protocol
        fields = {"content-type": "text/plain; charset=utf-8", "content-length": str(len(body)), **headers}
        fields |= {"cache-control": "no-store", "x-content-type-options": "nosniff"}
        response = h11.Response(status_code=status, headers=list(fields.items()))
        client.pending.append(memoryview(protocol.send(response) or b""))
        if not head:
            # The cached bytes are shared, not copied, so a slow client costs no extra memory.
            client.pending.append(memoryview(body))
            protocol.send_with_data_passthrough(h11.Data(data=body))
        protocol.send(h11.EndOfMessage())
        client.pending = [each for each in client.pending if each]
        client.deadline = time.monotonic() + PATIENCE_S

    def _drop_oldest(self) -> None:
        """Drop the client whose deadline is next."""
        if self._clients:
            self._abort(min(self._clients, key=lambda client: client.deadline))

    def _abort(self, client: _Client) -> None:
        """Drop a client, along with the output that the kernel still buffers for it."""
        with suppress(OSError):
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._drop(client)

    def _drop(self, client: _Client) -> None:
        self._clients.pop(client, None)
        with suppress(KeyError, ValueError):
            self._selector.unregister(client.socket)
        client.socket.close()


def _sentence(host: str, port: int, error: OSError) -> str:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return f"metrics can't be served on {where}: the port is taken; tried again every {RETRY_S:.0f} s"
    reason = (error.strerror or str(error)).lower()
    return f"metrics can't be served on {where}: {reason}; tried again every {RETRY_S:.0f} s"

"""Events of other programs about jobs and deployments, from datagrams on a Unix socket of the recorder, or passed on by
the metrics server.

The group that may read recordings may also send. Neither the sender nor the recorder ever waits: the recorder reads
what is queued once a tick, up to a limit; beyond that the kernel's queue is full and sends fail.
"""

import os
import socket
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from exhume.collect.source import NOTHING, TickRows, event_rows
from exhume.model.clock import NANOS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.job_event import KINDS, MAX_BYTES, SOURCE, BadEvent, JobEvent
from exhume.model.ownership import PRIVATE_DIRECTORY, open_to_others
from exhume.model.redaction import redact_line
from exhume.model.tables import Events, Losses
from exhume.procfs.host import Host

NAME = "job-events"
MOST_PER_TICK = 64
# An event may be reported late, since a scheduler is polled only now and then. An event from the future has a wrong
# clock.
OLDEST_NS, FUTURE_NS = 24 * 3600 * NANOS, 5 * NANOS
_PRIVATE_SOCKET, _GROUP_SOCKET, _GROUP_DIRECTORY = 0o600, 0o660, 0o750


class JobSocket(NamedTuple):
    """The path of the socket, and the group whose members may send; None for root only."""

    path: Path
    group: int | None = None


class JobEventSource:
    """Rows of the events table, with the source `jobs`."""

    name = NAME

    def __init__(self, _host: Host, listen: JobSocket, *, keep_secrets: bool = False) -> None:
        """Raises SourceUnavailable when the socket cannot be created, or belongs to another recorder."""
        path = self._path = listen.path
        self._keep_secrets = keep_secrets
        self._malformed = self._ticked = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            self._bind(listen.group)
            self._made = path.lstat()
        except OSError as error:
            self._socket.close()
            reason = f"{path} can't be made ({error.strerror or error})"
            raise SourceUnavailable(NAME, reason, "name another socket with --events-socket, or none") from None
        except SourceUnavailable:
            self._socket.close()
            raise

    def _bind(self, group: int | None) -> None:
        folder = self._path.parent
        if not folder.exists():
            folder.mkdir(mode=PRIVATE_DIRECTORY)
            if group is not None:
                os.chown(folder, -1, group)
                folder.chmod(_GROUP_DIRECTORY)
        if open_to_others(folder):
            raise SourceUnavailable(
                NAME, f"{folder} can be written by others", "name a socket in a directory of root's own"
            )
        if self._path.is_socket():
            if _is_served(self._path):
                raise SourceUnavailable(
                    NAME, f"another recorder listens at {self._path}", "name another socket with --events-socket"
                )
            # Left over from a recorder that was killed.
            self._path.unlink()
        before = os.umask(0o177)
        try:
            self._socket.bind(os.fspath(self._path))
        finally:
            os.umask(before)
        if group is not None:
            os.chown(self._path, -1, group)
        self._path.chmod(_PRIVATE_SOCKET if group is None else _GROUP_SOCKET)

    def read(self, tick: Tick) -> TickRows:
        found, self._ticked = [], tick.start
        for _ in range(MOST_PER_TICK):
            try:
                datagram = self._socket.recv(MAX_BYTES + 1)
            except BlockingIOError:
                break
            try:
                # A longer datagram was truncated.
                if len(datagram) > MAX_BYTES:
                    raise BadEvent("too long")
                found.append(_row(JobEvent.decode(datagram), tick, keep_secrets=self._keep_secrets))
            except BadEvent:
                self._malformed += 1
        return event_rows(found) if found else NOTHING

    def take_losses(self) -> list[Losses]:
        count, self._malformed = self._malformed, 0
        if not count:
            return []
        text = f"{count} datagrams at {self._path} were no events; see exhume event add"
        return [Losses(self._ticked, NAME, "events-malformed", count, text)]

    def close(self) -> None:
        self._socket.close()
        with suppress(OSError):
            now = self._path.lstat()
            if stat.S_ISSOCK(now.st_mode) and (now.st_dev, now.st_ino) == (self._made.st_dev, self._made.st_ino):
                self._path.unlink()


class EventInbox:
    """Events that another thread passes on. It never waits: a full inbox refuses."""

    def __init__(self) -> None:
        self._events: deque[JobEvent] = deque()

    def put(self, event: JobEvent) -> bool:
        """Add an event; False when the inbox is full."""
        if len(self._events) >= 2 * MOST_PER_TICK:
            return False
        self._events.append(event)
        return True

    def take(self, most: int) -> list[JobEvent]:
        return [self._events.popleft() for _ in range(min(most, len(self._events)))]


class InboxEventSource:
    """The same rows, from the events in an inbox. Their time was checked when they arrived."""

    name = "job-events-http"

    def __init__(self, _host: Host, inbox: EventInbox, *, keep_secrets: bool = False) -> None:
        self._inbox, self._keep_secrets = inbox, keep_secrets

    def read(self, tick: Tick) -> TickRows:
        found = []
        for event in self._inbox.take(MOST_PER_TICK):
            # The wall clock may have been set between check and tick.
            with suppress(BadEvent):
                found.append(_row(event, tick, keep_secrets=self._keep_secrets))
        return event_rows(found) if found else NOTHING

    def close(self) -> None:
        """No resources to release."""


def check_time(event: JobEvent, now: int) -> int:
    """The wall-clock time of an event. Raises BadEvent when it is not within the last day."""
    at = now if event.at is None else event.at
    if not now - OLDEST_NS <= at <= now + FUTURE_NS:
        raise BadEvent("its time is not of the last day")
    return at


def _row(event: JobEvent, tick: Tick, *, keep_secrets: bool) -> Events:
    at = check_time(event, tick.wall)
    # The recording's clock begins at boot.
    moment = max(0, tick.end - max(0, tick.wall - at))
    text = event.line(keep_secrets=keep_secrets)
    job, member = (name if keep_secrets or name is None else redact_line(name) for name in (event.job, event.member))
    return Events(
        time=moment,
        source=SOURCE,
        kind=event.kind,
        severity=KINDS[event.kind],
        text=text,
        job=job,
        member=member,
    )


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return False
        return True

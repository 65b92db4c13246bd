"""systemd over D-Bus: method calls with a time limit, and signals that are read without waiting.

The socket is that of the bus, or systemd's own (/run/systemd/private, only for root), which needs no bus daemon;
systemctl uses the same. jeepney implements the protocol; the socket is ours, so a bus that hangs does not block us.
jeepney is imported when the first connection is made, so nothing else in exhume pays for it.
"""

import contextlib
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from exhume.model.errors import ExhumeError
from exhume.procfs.host import ProcFile
from exhume.procfs.schedstat import parse_task_schedstat

if TYPE_CHECKING:
    from jeepney import Message

SYSTEMD = "org.freedesktop.systemd1"
MANAGER_PATH = "/org/freedesktop/systemd1"
MANAGER = "org.freedesktop.systemd1.Manager"
UNIT = "org.freedesktop.systemd1.Unit"
SERVICE = "org.freedesktop.systemd1.Service"
PROPERTIES = "org.freedesktop.DBus.Properties"
_BUS = "org.freedesktop.DBus"
_BUS_PATH = "/org/freedesktop/DBus"
# The name of systemd's own socket (src/core/dbus.c, bus_init_private): there is no bus daemon, so no Hello and no
# filtering.
_PRIVATE = "private"
# How long to wait for an answer that systemd is not working on.
_PATIENCE_S = 10.0
# The limit for an answer that systemd may be working on: a unit that crash-loops keeps systemd busy forever. Measured
# on an emulated 6.1: 20 s for the list of 205 unit files.
LONGEST_S = 120.0
# How often systemd's CPU time is read, and the wait is reported.
_LOOK_EVERY_S = 1.0
# Calls in flight: enough to keep both ends busy, far below the limit of a bus.
_AT_ONCE = 32
# Queued signals; a client that falls behind loses the oldest.
_MOST_SIGNALS = 4096
# How much is read at a time without waiting: at most 4 MB in total.
_PART = 1 << 16
_MOST_PARTS = 64
_LONGEST_ANSWER = 8192
# The longest path that fits into a socket address.
_LONGEST_PATH = 107


class BusError(ExhumeError):
    """The bus is unreachable, or systemd answered with an error; `name` is the D-Bus error name, if there is one."""

    def __init__(self, sentence: str, name: str = "") -> None:
        super().__init__(sentence)
        self.name = name


class BusSilent(BusError):
    """There was no answer in time."""


# Called after each answer, and about once a second until then, with the method and the fraction of answers received; a
# wait counts as a part of its answer. 1.0: all received.
Waiting = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Call:
    """A method call: the object, the method and its arguments."""

    path: str
    interface: str
    method: str
    signature: str = ""
    body: tuple[Any, ...] = ()
    destination: str = SYSTEMD


@dataclass(frozen=True, slots=True)
class Signal:
    """A received signal."""

    path: str
    member: str
    body: tuple[Any, ...]


def get_all(path: str, interface: str) -> Call:
    """A call that gets all properties of an interface."""
    return Call(path, PROPERTIES, "GetAll", "s", (interface,))


def properties(answer: tuple[Any, ...]) -> dict[str, Any]:
    """The properties in the answer to GetAll, without the types."""
    return {name: value for name, (_, value) in answer[0].items()}


class Bus:
    """A connection to the system bus, with a time limit for each answer. Raises BusError when it cannot be made.

    With `systemd`, its directory below /proc, the wait for an answer is extended, up to LONGEST_S, while systemd's CPU
    time advances or anything arrives. (A Ping would show nothing: systemd has one thread, and answers in order.)
    """

    def __init__(
        self,
        path: Path,
        patience_s: float | None = None,
        systemd: Path | None = None,
        waiting: Waiting = lambda method, share: None,
    ) -> None:
        self._where = path
        self.patience_s = _PATIENCE_S if patience_s is None else patience_s
        self._systemd = systemd
        self._waiting = waiting
        self._received = 0
        self._signals: deque[Signal] = deque(maxlen=_MOST_SIGNALS)
        self._answers: dict[int, Message] = {}
        self._serial = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            from jeepney import Parser

            self._parser = Parser()
            self._authenticate()
            if self._where.name != _PRIVATE:
                self.call(Call(_BUS_PATH, _BUS, "Hello", destination=_BUS))
        except BusError:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def call(self, call: Call, patience_s: float | None = None) -> tuple[Any, ...]:
        """The answer to a call. Raises BusError when there is none, or when it is an error."""
        answer = self.call_many([call], patience_s)[0]
        if isinstance(answer, BusError):
            raise answer
        return answer

    def call_many(self, calls: Sequence[Call], patience_s: float | None = None) -> list[tuple[Any, ...] | BusError]:
        """The answers to many calls, in order; an answer may be an error. Raises BusError when the bus does not answer
        or closes the connection."""
        patience = self.patience_s if patience_s is None else patience_s
        # No other call is in flight: anything here arrived too late for its caller.
        self._answers.clear()
        asked = [self.ask(call) for call in calls[:_AT_ONCE]]
        answers: list[tuple[Any, ...] | BusError] = []
        for index, call in enumerate(calls):
            wait = self._wait(call.method, patience, index, len(calls))
            while asked[index] not in self._answers:
                self._socket.settimeout(wait.seconds())
                with contextlib.suppress(TimeoutError):
                    self._take()
            answers.append(_content(self._answers.pop(asked[index])))
            wait.report(1.0)
            if len(asked) < len(calls):
                asked.append(self.ask(calls[len(asked)]))
        return answers

    def listen(self, rules: Iterable[str]) -> None:
        """Subscribe to the signals that match one of these D-Bus rules, and make systemd send them."""
        for rule in rules if self._where.name != _PRIVATE else ():
            self.call(Call(_BUS_PATH, _BUS, "AddMatch", "s", (rule,), destination=_BUS))
        self.call(Call(MANAGER_PATH, MANAGER, "Subscribe"))

    def signals(self) -> list[Signal]:
        """The signals that have arrived, without waiting. Raises BusError when the connection was closed."""
        self._take_what_is_there()
        came = list(self._signals)
        self._signals.clear()
        return came

    def answers(self) -> dict[int, tuple[Any, ...] | BusError]:
        """The answers that have arrived, without waiting."""
        self._take_what_is_there()
        came = {serial: _content(message) for serial, message in self._answers.items()}
        self._answers.clear()
        return came

    def next_signal(self, deadline: float) -> Signal | None:
        """The next signal; None when `deadline` (monotonic seconds) passes first."""
        while not self._signals:
            self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
            try:
                self._take()
            except TimeoutError:
                return None
        return self._signals.popleft()

    def _authenticate(self) -> None:
        """Authenticate with the credentials that the kernel reports (EXTERNAL). No uid is claimed: in a container with
        a user namespace it would be the wrong one."""
        self._socket.settimeout(self.patience_s)
        try:
            self._connect()
            # In one piece, like systemd's own clients: it overlooks a message right after a BEGIN that arrives
            # separately.
            self._socket.sendall(b"\0AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n")
            answer = b""
            wait = self._wait("AUTH", self.patience_s)
            while answer.count(b"\r\n") < 2 and not answer.startswith(b"REJECTED") and len(answer) < _LONGEST_ANSWER:
                self._socket.settimeout(wait.seconds())
                with contextlib.suppress(TimeoutError):
                    part = self._socket.recv(1024)
                    if not part:
                        raise BusError(f"the D-Bus at {self._where} hung up: it does not let this user in")
                    answer += part
            if not (answer.startswith(b"DATA") and b"\r\nOK " in answer):
                raise BusError(f"the D-Bus at {self._where} does not let this user in: run as root")
            # systemd's own socket emits signals to a client from BEGIN on: the first may be in the same piece.
            self._feed(answer.split(b"\r\n", 2)[2])
        except (TimeoutError, BusSilent):
            raise BusSilent(f"the D-Bus at {self._where} does not answer") from None
        except FileNotFoundError:
            raise BusError(f"there is no D-Bus at {self._where}") from None
        except OSError as error:
            raise BusError(f"the D-Bus at {self._where} can't be reached: {error.strerror or error}") from None

    def _connect(self) -> None:
        path = os.fspath(self._where)
        if len(os.fsencode(path)) <= _LONGEST_PATH:
            self._socket.connect(path)
            return
        # Socket addresses are short; a path through a file descriptor always fits.
        directory = os.open(self._where.parent, os.O_PATH | os.O_CLOEXEC)
        try:
            self._socket.connect(f"/proc/self/fd/{directory}/{self._where.name}")
        finally:
            os.close(directory)

    def ask(self, call: Call) -> int:
        """Send a call without waiting; `answers` returns the answer later under this number."""
        from jeepney import DBusAddress, new_method_call

        if any(isinstance(each, str) and "\0" in each for each in call.body):
            raise BusError(f"{call.body!r} can't be the name of a unit")
        self._serial += 1
        address = DBusAddress(call.path, call.destination, call.interface)
        message = new_method_call(address, call.method, call.signature or None, call.body)
        try:
            self._socket.settimeout(self.patience_s)
            self._socket.sendall(message.serialise(serial=self._serial))
        except UnicodeError:
            raise BusError(f"{call.body!r} can't be the name of a unit") from None
        except OSError as error:
            raise self._gone(error) from None
        return self._serial

    def _wait(self, method: str, patience_s: float, index: int = 0, of: int = 1) -> "_Wait":
        longest = patience_s if self._systemd is None else max(patience_s, LONGEST_S)
        return _Wait(
            method, patience_s, longest, self._activity, lambda share: self._waiting(method, (index + share) / of)
        )

    def _activity(self) -> tuple[int, int]:
        """What changes while systemd works: its CPU time, and the bytes received. Zeros if systemd is not watched."""
        if self._systemd is None:
            return 0, 0
        # In a container with a pid namespace of its own, process 1 is a different one.
        is_systemd = ProcFile(self._systemd / "comm").read_or_none() == b"systemd\n"
        spent = parse_task_schedstat(ProcFile(self._systemd / "schedstat").read_or_none() or b"")
        return (spent.run_ns if is_systemd and spent is not None else 0), self._received

    def _take_what_is_there(self) -> None:
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MOST_PARTS):
                self._take()

    def _take(self) -> None:
        try:
            came = self._socket.recv(_PART)
        except (TimeoutError, BlockingIOError):
            raise
        except OSError as error:
            raise self._gone(error) from None
        if not came:
            raise self._gone(None)
        self._received += len(came)
        self._feed(came)

    def _feed(self, data: bytes) -> None:
        """Queue the signals and answers that these bytes complete."""
        from jeepney import HeaderFields, MessageType

        try:
            messages = self._parser.feed(data)
        except (KeyError, ValueError, struct.error) as error:
            raise BusError(f"the D-Bus at {self._where} sent what is not a message: {error}") from None
        for message in messages:
            fields, kind = message.header.fields, message.header.message_type
            if kind is MessageType.signal:
                self._signals.append(Signal(fields[HeaderFields.path], fields[HeaderFields.member], message.body))
            elif kind in (MessageType.method_return, MessageType.error):
                self._answers[fields[HeaderFields.reply_serial]] = message

    def _gone(self, error: OSError | None) -> BusError:
        reason = f": {error.strerror or error}" if error is not None else ""
        return BusError(f"the D-Bus at {self._where} closed the connection{reason}")


class _Wait:
    """A wait for one answer, in short steps; after each step it decides whether to continue."""

    def __init__(
        self,
        method: str,
        patience_s: float,
        longest_s: float,
        activity: Callable[[], object],
        report: Callable[[float], None],
    ) -> None:
        self.report = report
        self._method, self._patience_s, self._longest_s = method, patience_s, longest_s
        self._activity = activity
        self._began = self._advanced = self._looked = time.monotonic()
        self._every_s = min(_LOOK_EVERY_S, patience_s / 4)
        self._seen: object = None

    def seconds(self) -> float:
        """The timeout of the next step. Raises BusSilent when the wait is over."""
        now = time.monotonic()
        if self._seen is None:
            self._seen = self._activity()
        elif now >= self._looked + self._every_s:
            self._looked = now
            seen = self._activity()
            if seen != self._seen:
                self._seen, self._advanced = seen, now
            self.report(min((now - self._began) / self._longest_s, 0.99))
        end = min(self._advanced + self._patience_s, self._began + self._longest_s)
        if now >= end:
            raise BusSilent(f"systemd did not answer within {now - self._began:.0f} s ({self._method})")
        return max(min(end, self._looked + self._every_s) - now, 1e-3)


def _content(message: "Message") -> tuple[Any, ...] | BusError:
    from jeepney import HeaderFields, MessageType

    body: tuple[Any, ...] = message.body
    if message.header.message_type is not MessageType.error:
        return body
    name = str(message.header.fields.get(HeaderFields.error_name, ""))
    answer = str(body[0]) if body and isinstance(body[0], str) else name
    return BusError(answer, name)

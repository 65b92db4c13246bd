"""systemd over D-Bus: questions with answers in bounded time, and signals that are taken without waiting.

The socket is that of the bus, or systemd's own (/run/systemd/private, for root alone), which needs no bus daemon:
systemctl uses the same. jeepney speaks the protocol; the socket is ours, so that a bus that hangs holds nothing up.
jeepney is imported when the first connection is made: nothing else of exhume pays for it.
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
# systemd's own socket is called so (src/core/dbus.c, bus_init_private): no bus is behind it to greet, or to filter.
_PRIVATE = "private"
# An answer that systemd does not work on is waited for so long.
_PATIENCE_S = 10.0
# One that it may be working on is waited for no longer than this: a unit that crash-loops keeps systemd busy for ever.
# Measured on an emulated 6.1: 20 s for the list of 205 unit files.
LONGEST_S = 120.0
# How often systemd's CPU time is read, and the wait reported.
_LOOK_EVERY_S = 1.0
# Questions that are under way at once: enough to keep both ends busy, far below what a bus allows.
_AT_ONCE = 32
# Signals that were not taken yet; a client that falls behind loses the oldest.
_MOST_SIGNALS = 4096
# What is taken in at a time without waiting: at most 4 MB.
_PART = 1 << 16
_MOST_PARTS = 64
_LONGEST_ANSWER = 8192
# The longest path that fits into a socket's address.
_LONGEST_PATH = 107


class BusError(ExhumeError):
    """The bus can't be reached, or systemd answered with an error; `name` is D-Bus's name for it, if it has one."""

    def __init__(self, sentence: str, name: str = "") -> None:
        super().__init__(sentence)
        self.name = name


class BusSilent(BusError):
    """No answer in time."""


# Called after each answer, and about each second until then, with the method and the share of answers that came; a wait
# counts as a part of its answer. 1.0: all came.
Waiting = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Call:
    """A question: which method of which object, with what."""

    path: str
    interface: str
    method: str
    signature: str = ""
    body: tuple[Any, ...] = ()
    destination: str = SYSTEMD


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal, which comes without a call."""

    path: str
    member: str
    body: tuple[Any, ...]


def get_all(path: str, interface: str) -> Call:
    """Ask for all properties of an interface."""
    return Call(path, PROPERTIES, "GetAll", "s", (interface,))


def properties(answer: tuple[Any, ...]) -> dict[str, Any]:
    """What GetAll answered, without the types."""
    return {name: value for name, (_, value) in answer[0].items()}


class Bus:
    """A connection to the system's bus, with patience for each answer. Raises BusError where it can't be had.

    With `systemd`, its directory below /proc, an answer is waited for beyond that, up to LONGEST_S, while systemd's CPU
    time advances or anything comes in. (A Ping would show nothing: systemd has one thread, and answers in order.)
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
        """The answer to a question. Raises BusError where there is none, or where it is an error."""
        answer = self.call_many([call], patience_s)[0]
        if isinstance(answer, BusError):
            raise answer
        return answer

    def call_many(self, calls: Sequence[Call], patience_s: float | None = None) -> list[tuple[Any, ...] | BusError]:
        """The answers to many questions, in their order; an answer may be an error. Raises BusError where the bus stays
        silent or goes away."""
        patience = self.patience_s if patience_s is None else patience_s
        # Nothing else is under way: what is there came too late for those who asked.
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
        """From now on take the signals that match one of these rules of D-Bus, and let systemd send them."""
        for rule in rules if self._where.name != _PRIVATE else ():
            self.call(Call(_BUS_PATH, _BUS, "AddMatch", "s", (rule,), destination=_BUS))
        self.call(Call(MANAGER_PATH, MANAGER, "Subscribe"))

    def signals(self) -> list[Signal]:
        """What came meanwhile, without waiting. Raises BusError when the bus went away."""
        self._take_what_is_there()
        came = list(self._signals)
        self._signals.clear()
        return came

    def answers(self) -> dict[int, tuple[Any, ...] | BusError]:
        """What was answered meanwhile, without waiting."""
        self._take_what_is_there()
        came = {serial: _content(message) for serial, message in self._answers.items()}
        self._answers.clear()
        return came

    def next_signal(self, deadline: float) -> Signal | None:
        """The next one; None when `deadline` (monotonic seconds) passes first."""
        while not self._signals:
            self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
            try:
                self._take()
            except TimeoutError:
                return None
        return self._signals.popleft()

    def _authenticate(self) -> None:
        """Be let in as whom the kernel says we are. No number of a user is claimed: in a container with users of its
        own it would be the wrong one."""
        self._socket.settimeout(self.patience_s)
        try:
            self._connect()
            # In one piece, as systemd's own clients do: it overlooks a message right behind a BEGIN that comes alone.
            self._socket.sendall(b"\0AUTH EXTERNAL\r\nDATA\r\nBEGIN\r\n")
            said = b""
            wait = self._wait("AUTH", self.patience_s)
            while said.count(b"\r\n") < 2 and not said.startswith(b"REJECTED") and len(said) < _LONGEST_ANSWER:
                self._socket.settimeout(wait.seconds())
                with contextlib.suppress(TimeoutError):
                    part = self._socket.recv(1024)
                    if not part:
                        raise BusError(f"the D-Bus at {self._where} hung up: it does not let this user in")
                    said += part
            if not (said.startswith(b"DATA") and b"\r\nOK " in said):
                raise BusError(f"the D-Bus at {self._where} does not let this user in: run as root")
            # systemd's own socket emits signals to a client from BEGIN on: the first may follow in the same piece.
            self._feed(said.split(b"\r\n", 2)[2])
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
        # An address has little room: the way through a descriptor is always short.
        directory = os.open(self._where.parent, os.O_PATH | os.O_CLOEXEC)
        try:
            self._socket.connect(f"/proc/self/fd/{directory}/{self._where.name}")
        finally:
            os.close(directory)

    def ask(self, call: Call) -> int:
        """Ask without waiting for the answer, which `answers` has later under this number."""
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
        """What changes while systemd works: its CPU time, and how much came in. Nothing where it is not watched."""
        if self._systemd is None:
            return 0, 0
        # In a container with a process namespace of its own, the first process is another one.
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
        """Keep the signals and answers that these bytes complete."""
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
    """A wait for one answer, in short parts between which it is decided whether to go on."""

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
        """How long to wait before the next call of this. Raises BusSilent when the wait is over."""
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
    said = str(body[0]) if body and isinstance(body[0], str) else name
    return BusError(said, name)

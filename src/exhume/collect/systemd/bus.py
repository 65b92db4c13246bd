"""systemd over D-Bus: questions with answers in bounded time, and signals that are taken without waiting.

The socket is that of the bus, or systemd's own (/run/systemd/private, for root alone), which needs no bus daemon:
systemctl uses the same. jeepney speaks the protocol; the socket is ours, so that a bus that hangs holds nothing up.
jeepney is imported when the first connection is made: nothing else of exhume pays for it.
"""

import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from exhume.model.errors import ExhumeError

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
_PATIENCE_S = 10.0
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
    """A connection to the system's bus, with patience for each answer. Raises BusError where it can't be had."""

    def __init__(self, path: Path, patience_s: float = _PATIENCE_S) -> None:
        self._where = path
        self.patience_s = patience_s
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
        for index in range(len(calls)):
            deadline = time.monotonic() + patience
            while asked[index] not in self._answers:
                self._receive(deadline, calls[index].method)
            answers.append(_content(self._answers.pop(asked[index])))
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
            try:
                self._receive(deadline, "a signal")
            except BusSilent:
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
            while said.count(b"\r\n") < 2 and not said.startswith(b"REJECTED") and len(said) < _LONGEST_ANSWER:
                part = self._socket.recv(1024)
                if not part:
                    raise BusError(f"the D-Bus at {self._where} hung up: it does not let this user in")
                said += part
            if not (said.startswith(b"DATA") and b"\r\nOK " in said):
                raise BusError(f"the D-Bus at {self._where} does not let this user in: run as root")
        except TimeoutError:
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

    def _receive(self, deadline: float, waiting_for: str) -> None:
        """Take in what comes next, at the latest at `deadline`."""
        self._socket.settimeout(max(deadline - time.monotonic(), 1e-3))
        try:
            self._take()
        except TimeoutError:
            raise BusSilent(f"systemd did not answer in time ({waiting_for})") from None

    def _take_what_is_there(self) -> None:
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MOST_PARTS):
                self._take()

    def _take(self) -> None:
        from jeepney import HeaderFields, MessageType

        try:
            came = self._socket.recv(_PART)
        except (TimeoutError, BlockingIOError):
            raise
        except OSError as error:
            raise self._gone(error) from None
        if not came:
            raise self._gone(None)
        for message in self._parser.feed(came):
            fields, kind = message.header.fields, message.header.message_type
            if kind is MessageType.signal:
                self._signals.append(Signal(fields[HeaderFields.path], fields[HeaderFields.member], message.body))
            elif kind in (MessageType.method_return, MessageType.error):
                self._answers[fields[HeaderFields.reply_serial]] = message

    def _gone(self, error: OSError | None) -> BusError:
        reason = f": {error.strerror or error}" if error is not None else ""
        return BusError(f"the D-Bus at {self._where} closed the connection{reason}")


def _content(message: "Message") -> tuple[Any, ...] | BusError:
    from jeepney import HeaderFields, MessageType

    body: tuple[Any, ...] = message.body
    if message.header.message_type is not MessageType.error:
        return body
    name = str(message.header.fields.get(HeaderFields.error_name, ""))
    said = str(body[0]) if body and isinstance(body[0], str) else name
    return BusError(said, name)

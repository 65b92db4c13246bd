"""A systemd that answers late, or never: it is waited for as long as it works; what stays unanswered is reported."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from jeepney import HeaderFields, Message, MessageType, Parser, new_error, new_method_return

from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd import bus as bus_module
from exhume.collect.systemd.bus import MANAGER, MANAGER_PATH, Bus, BusSilent, Call
from exhume.collect.systemd.units import read_services

pytestmark = pytest.mark.slow
# A busy machine must not hold up a thread of ours for so long.
PATIENCE_S = 2.0
# Well over the patience.
SLOW_S = 4.5
LIST = Call(MANAGER_PATH, MANAGER, "ListUnits")
UNIT_PATH = "/org/freedesktop/systemd1/unit/loops_2eservice"
ROW = ("loops.service", "", "loaded", "activating", "auto-restart", "", UNIT_PATH, 0, "", "/")
PROPERTIES = {
    "org.freedesktop.systemd1.Unit": {
        "Id": ("s", "loops.service"),
        "LoadState": ("s", "loaded"),
        "ActiveState": ("s", "activating"),
        "SubState": ("s", "auto-restart"),
    },
    "org.freedesktop.systemd1.Service": {"NRestarts": ("u", 7), "Restart": ("s", "always")},
}
# Seconds until the answer, its signature and body; a signature of None: an error; no answer at all: None.
Reply = tuple[float, str | None, tuple[Any, ...]] | None


def answers(method: str, body: tuple[Any, ...]) -> Reply:
    """A systemd with one unit."""
    if method == "ListUnits":
        return 0.0, "a(ssssssouso)", ([ROW],)
    if method == "GetAll":
        return 0.0, "a{sv}", (PROPERTIES[body[0]],)
    return 0.0, "a(ss)", ([],)


class FakeSystemd(threading.Thread):
    """Systemd's own socket, and its process: one thread that answers in order, with CPU time that advances while
    `works`."""

    def __init__(self, root: Path, reply: Callable[[str, tuple[Any, ...]], Reply], *, works: bool) -> None:
        super().__init__()
        self._reply = reply
        self._works = works
        self._process = root / "proc/1"
        self._process.mkdir(parents=True)
        (self._process / "comm").write_text("systemd\n")
        self._ran = 0
        self._run()
        path = root / "run/systemd/private"
        path.parent.mkdir(parents=True)
        self._listening = socket.socket(socket.AF_UNIX)
        # An address has little room.
        directory = os.open(path.parent, os.O_PATH)
        self._listening.bind(f"/proc/self/fd/{directory}/private")
        os.close(directory)
        self._listening.listen()
        self._listening.settimeout(0.1)
        self.ended = threading.Event()

    def run(self) -> None:
        with self._listening:
            while not self.ended.is_set():
                with suppress(TimeoutError, ConnectionError):
                    connection, _ = self._listening.accept()
                    with connection:
                        connection.settimeout(0.1)
                        self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        greeting = b""
        while not greeting.endswith(b"BEGIN\r\n"):
            greeting += connection.recv(1)
        connection.sendall(b"DATA\r\nOK 0123456789abcdef0123456789abcdef\r\n")
        parser = Parser()
        while not self.ended.is_set():
            with suppress(TimeoutError):
                received = connection.recv(1 << 16)
                if not received:
                    return
                for message in parser.feed(received):
                    self._answer(connection, message)

    def _answer(self, connection: socket.socket, message: Message) -> None:
        fields = message.header.fields
        assert message.header.message_type is MessageType.method_call
        reply = self._reply(fields[HeaderFields.member], message.body)
        due = time.monotonic() + (reply[0] if reply is not None else 3600)
        while time.monotonic() < due and not self.ended.wait(0.01):
            if self._works:
                self._run()
        if reply is not None:
            _, signature, body = reply
            answer = (
                new_error(message, "org.example.Refused", "s", body)
                if signature is None
                else new_method_return(message, signature, body)
            )
            connection.sendall(answer.serialise(serial=message.header.serial))

    def _run(self) -> None:
        self._ran += 1_000_000
        part = self._process / "schedstat.new"
        part.write_text(f"{self._ran} 0 1\n")
        part.rename(self._process / "schedstat")


@contextmanager
def systemd(root: Path, reply: Callable[[str, tuple[Any, ...]], Reply] = answers, *, works: bool = True) -> Iterator:
    fake = FakeSystemd(root, reply, works=works)
    fake.start()
    try:
        yield
    finally:
        fake.ended.set()
        fake.join()


@contextmanager
def connected(root: Path, **options: Any) -> Iterator[Bus]:
    with Bus(root / "run/systemd/private", PATIENCE_S, systemd=root / "proc/1", **options) as bus:
        yield bus


def slow(method: str, body: tuple[Any, ...]) -> Reply:
    reply = answers(method, body)
    return reply if reply is None else (SLOW_S, *reply[1:])


def silent(method: str, body: tuple[Any, ...]) -> Reply:
    return None


def without_files(method: str, body: tuple[Any, ...]) -> Reply:
    return None if method == "ListUnitFilesByPatterns" else answers(method, body)


def refuses_files(method: str, body: tuple[Any, ...]) -> Reply:
    return (0.0, None, ("not today",)) if method == "ListUnitFilesByPatterns" else answers(method, body)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "_PATIENCE_S", PATIENCE_S)
    monkeypatch.setattr(bus_module, "LONGEST_S", 3 * PATIENCE_S)


def test_one_that_works_is_waited_for_and_the_wait_is_reported(tmp_path: Path) -> None:
    shares: list[tuple[str, float]] = []
    with systemd(tmp_path, slow), connected(tmp_path, waiting=lambda *share: shares.append(share)) as bus:
        assert bus.call(LIST) == ([ROW],)
    assert {method for method, _ in shares} == {"ListUnits"}
    assert len(shares) >= 3 and [share for _, share in shares] == sorted(share for _, share in shares)
    assert shares[-1][1] == 1.0


def test_each_of_many_answers_is_reported(tmp_path: Path) -> None:
    shares: list[float] = []
    with systemd(tmp_path), connected(tmp_path, waiting=lambda _, share: shares.append(share)) as bus:
        bus.call_many([LIST] * 4, patience_s=60)
    assert {0.25, 0.5, 0.75, 1.0} <= set(shares) and shares == sorted(shares)


def test_one_that_does_nothing_is_given_up_after_the_patience(tmp_path: Path) -> None:
    with systemd(tmp_path, silent, works=False), connected(tmp_path) as bus:
        began = time.monotonic()
        with pytest.raises(BusSilent, match="ListUnits"):
            bus.call(LIST)
    assert PATIENCE_S <= time.monotonic() - began < bus_module.LONGEST_S / 4


@pytest.mark.usefixtures("impatient")
def test_one_that_works_and_never_answers_is_given_up_at_the_bound(tmp_path: Path) -> None:
    with systemd(tmp_path, silent), connected(tmp_path) as bus:
        began = time.monotonic()
        with pytest.raises(BusSilent, match="ListUnits"):
            bus.call(LIST)
        assert time.monotonic() - began >= 3 * PATIENCE_S


def test_another_process_that_works_is_not_taken_for_systemd(tmp_path: Path) -> None:
    with systemd(tmp_path, silent), connected(tmp_path) as bus:
        (tmp_path / "proc/1/comm").write_text("exhume\n")
        with pytest.raises(BusSilent):
            bus.call(LIST)


def test_who_does_not_watch_systemd_waits_no_longer_than_said(tmp_path: Path) -> None:
    """The recorder must not be held up."""
    with systemd(tmp_path, slow), Bus(tmp_path / "run/systemd/private", PATIENCE_S) as bus, pytest.raises(BusSilent):
        bus.call(LIST)


@pytest.mark.parametrize(("reply", "says"), [(without_files, "ListUnitFilesByPatterns"), (refuses_files, "not today")])
@pytest.mark.usefixtures("impatient")
def test_without_unit_files_the_loaded_units_are_audited(
    tmp_path: Path, reply: Callable[[str, tuple[Any, ...]], Reply], says: str
) -> None:
    with systemd(tmp_path, reply):
        seen = read_services(NodeRoot(tmp_path))
    assert [(each.id, each.restarts, each.detail) for each in seen.services] == [("loops.service", 7, "auto-restart")]
    assert len([spot for spot in seen.blind_spots if says in spot]) == 1, seen.blind_spots


@pytest.mark.usefixtures("impatient")
def test_one_that_never_answers_is_the_only_blind_spot(tmp_path: Path) -> None:
    with systemd(tmp_path, silent):
        seen = read_services(NodeRoot(tmp_path))
    assert seen.services == []
    assert [spot.startswith("units were not looked at: ") for spot in seen.blind_spots] == [True]

"""The bus where there is no systemd behind it: silent, closed, or a real one without it. Nothing waits for long."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jeepney import DBusAddress, new_signal
from tests.parts import need, sampled

from exhume.collect.node_root import NodeRoot
from exhume.collect.sources.unit_events import UnitEventSource
from exhume.collect.systemd.bus import MANAGER, MANAGER_PATH, SYSTEMD, Bus, BusError, BusSilent, Call
from exhume.collect.systemd.units import read_services
from exhume.model.errors import SourceUnavailable

CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path={path}</listen>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy>
</busconfig>
"""


@pytest.fixture
def bus_path(tmp_path: Path) -> Iterator[Path]:
    """A real bus of our own, on which no service is."""
    path = tmp_path / "run/dbus/system_bus_socket"
    path.parent.mkdir(parents=True)
    config = tmp_path / "bus.conf"
    # The daemon takes no address of a hundred letters, which pytest's directories may have.
    with tempfile.TemporaryDirectory(prefix="exhume-bus-") as short:
        path.symlink_to(f"{short}/socket")
        config.write_text(CONFIG.format(path=f"{short}/socket"))
        daemon = subprocess.Popen(
            [need("dbus-daemon"), f"--config-file={config}", "--nofork", "--print-address"], stdout=subprocess.PIPE
        )
        assert daemon.stdout is not None
        assert daemon.stdout.readline().startswith(b"unix:")
        yield path
        daemon.terminate()
        daemon.communicate()


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Path]:
    """A server that accepts connections and never answers."""
    path = tmp_path / "run/dbus/system_bus_socket"
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.fspath(path))
        listening.listen()
        yield path


def test_no_socket_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BusError, match="there is no D-Bus at"):
        Bus(tmp_path / "nothing")


def test_a_socket_without_a_listener_is_reported(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(os.fspath(tmp_path / "stale"))
    with pytest.raises(BusError, match="can't be reached: Connection refused"):
        Bus(tmp_path / "stale")


def test_a_silent_one_is_not_waited_for(silent: Path) -> None:
    took = []
    # On a machine that is busy otherwise this test is held up, too, but not each time.
    while len(took) < 10 and not (took and took[-1] < 2):
        began = time.monotonic()
        with pytest.raises(BusSilent, match="does not answer"):
            Bus(silent, patience_s=0.2)
        took.append(time.monotonic() - began)
    assert took[-1] < 2, took


def _signal(member: str) -> bytes:
    """A signal of systemd, as bytes."""
    emitter = DBusAddress(MANAGER_PATH, SYSTEMD, MANAGER)
    return new_signal(emitter, member, "u", (7,)).serialise(serial=1)


@contextlib.contextmanager
def served_pieces(path: Path, *pieces: bytes) -> Iterator[None]:
    """A server that sends these pieces to its first client."""

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(0.05)
            connection.recv(1 << 16)
            ended.wait(60)

    ended = threading.Event()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.fspath(path))
        listening.listen()
        server = threading.Thread(target=serve)
        server.start()
        try:
            yield
        finally:
            ended.set()
            server.join()


@pytest.mark.parametrize("cut", [0, 9, 60])
def test_a_signal_right_behind_the_authentication_is_kept(tmp_path: Path, cut: int) -> None:
    """systemd's own socket emits from BEGIN on (sd-bus starts without a Hello there)."""
    path = tmp_path / "private"
    first, second = _signal("JobNew"), _signal("JobRemoved")
    answer = b"DATA\r\nOK 0123456789abcdef\r\n"
    with served_pieces(path, answer + first[:cut], first[cut:] + second), Bus(path, patience_s=60) as bus:
        came = [bus.next_signal(time.monotonic() + 60) for _ in range(2)]
    assert [signal.member for signal in came if signal is not None] == ["JobNew", "JobRemoved"]


def test_what_is_no_message_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "private"
    with (
        served_pieces(path, b"DATA\r\nOK 0123456789abcdef\r\n" + b"tail of a message, not its head"),
        pytest.raises(BusError, match="sent what is not a message"),
    ):
        Bus(path, patience_s=60)


def _hang_up(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    connection.close()


def test_one_that_hangs_up_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "rude"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(os.fspath(path))
        listening.listen()
        rude = threading.Thread(target=_hang_up, args=(listening,))
        rude.start()
        with pytest.raises(BusError, match=r"hung up|can't be reached"):
            Bus(path, patience_s=60)
        rude.join()


@pytest.mark.needs("dbus-daemon")
def test_without_systemd_an_error_says_so_and_the_connection_goes_on(bus_path: Path) -> None:
    with Bus(bus_path) as bus:
        for _ in range(2):
            with pytest.raises(BusError, match=r"org\.freedesktop\.systemd1") as raised:
                bus.call(Call("/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "ListUnits"))
            assert raised.value.name == "org.freedesktop.DBus.Error.ServiceUnknown"


@pytest.mark.needs("dbus-daemon")
def test_answers_come_in_the_order_of_the_questions(bus_path: Path) -> None:
    names = [f"test.name{number}" for number in range(100)]
    with Bus(bus_path) as bus:
        own = "org.freedesktop.DBus"
        for name in names[::2]:
            bus.call(Call("/org/freedesktop/DBus", own, "RequestName", "su", (name, 0), destination=own))
        asked = [Call("/org/freedesktop/DBus", own, "NameHasOwner", "s", (name,), destination=own) for name in names]
        assert bus.call_many(asked) == [(number % 2 == 0,) for number in range(100)]


@pytest.mark.root
@pytest.mark.needs("unshare")
def test_who_has_other_numbers_for_users_is_let_in_too(bus_path: Path) -> None:
    """A container with users of its own doesn't know its number outside, but the kernel reports the bus."""
    words = "import os, sys; from pathlib import Path; from exhume.collect.systemd.bus import Bus; assert os.getuid()"
    connect = [sys.executable, "-c", f"{words}; Bus(Path({os.fspath(bus_path)!r})).close()"]
    done = subprocess.run(["unshare", "--user", *connect], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.needs("dbus-daemon")
def test_a_path_too_long_for_an_address_is_reached(bus_path: Path, tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    deep.symlink_to(bus_path.parent)
    with Bus(deep / bus_path.name) as bus:
        own = "org.freedesktop.DBus"
        assert bus.call(Call("/org/freedesktop/DBus", own, "GetId", destination=own))[0]


@pytest.mark.needs("dbus-daemon")
def test_a_bus_that_dies_is_a_sentence(bus_path: Path) -> None:
    with Bus(bus_path, patience_s=60) as bus:
        own = "org.freedesktop.DBus"
        (pid,) = bus.call(
            Call("/org/freedesktop/DBus", own, "GetConnectionUnixProcessID", "s", (own,), destination=own)
        )
        os.kill(pid, 9)
        with pytest.raises(BusError, match="closed the connection"):
            while True:
                bus.signals()
                time.sleep(0.01)


@pytest.mark.needs("dbus-daemon")
def test_units_that_can_t_be_seen_are_a_blind_spot(bus_path: Path, tmp_path: Path) -> None:
    seen = read_services(NodeRoot(tmp_path))
    assert seen.services == []
    assert [each.startswith("units were not looked at: ") for each in seen.blind_spots] == [True]
    assert (
        read_services(NodeRoot(tmp_path / "elsewhere")).blind_spots[0].startswith("units were not looked at: there is")
    )


@pytest.mark.parametrize("module", sampled(["jeepney", "http.client", "grpc"]))
def test_the_recorder_does_not_pay_for_clients_that_it_may_never_need(module: str) -> None:
    script = (
        f"import exhume.collect.source_set, exhume.cli.main, sys; print(*(x for x in sys.modules if {module!r} in x))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


@pytest.mark.needs("dbus-daemon")
def test_the_recorder_says_what_would_bring_units_back(bus_path: Path, tmp_path: Path) -> None:
    for path in (bus_path, tmp_path / "nothing"):
        with pytest.raises(SourceUnavailable) as raised:
            UnitEventSource(path)
        assert raised.value.missing.source == "systemd"
        assert str(path) in raised.value.missing.remedy

"""What systemd hears of the recorder: ready once, alive with each tick, stopping."""

import socket

import pytest

from exhume.collect.systemd.notify import VARIABLE, SystemdNotifier
from exhume.model.clock import Tick

TICK = Tick(0, 0, 1, 1)


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(5)
        yield receiver


def test_ready_alive_stopping(manager):
    environment = {VARIABLE: manager.getsockname()}
    notifier = SystemdNotifier.from_environment(environment)
    assert environment == {}, "children must not inherit it"
    for _ in range(3):
        notifier.observe(TICK, {}, ())
    notifier.close()
    heard = [manager.recv(4096).decode().splitlines() for _ in range(4)]
    assert heard[0][0] == "READY=1" and heard[0][-1] == "WATCHDOG=1"
    assert heard[1:3] == [["WATCHDOG=1"]] * 2
    assert heard[3][0] == "STOPPING=1"


def test_an_abstract_address():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0exhume-test-notify")
        receiver.settimeout(5)
        notifier = SystemdNotifier("@exhume-test-notify")
        notifier.observe(TICK, {}, ())
        assert receiver.recv(4096).startswith(b"READY=1")
        notifier.close()


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/at/all", "@"])
def test_no_manager_or_one_that_is_gone_changes_nothing(address):
    notifier = SystemdNotifier.from_environment({VARIABLE: address})
    notifier.observe(TICK, {}, ())
    notifier.close()


def test_a_manager_that_does_not_read_holds_nothing_up(manager):
    notifier = SystemdNotifier(manager.getsockname())
    for _ in range(5000):
        notifier.observe(TICK, {}, ())
    notifier.close()

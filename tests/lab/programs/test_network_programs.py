"""The programs of the network scenarios, by a clock of the test's own."""

import socket

import pytest

from exhume.lab.programs import network

BURST, INTERVAL_US, SECONDS = 4, 500, 1.0


class Clock:
    """A clock that only sleeping and sending move; `slept` are the pauses."""

    def __init__(self, cost: float) -> None:
        self.now, self._cost = 100.0, cost
        self.sent: list[float] = []
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def sendto(self, *_: object) -> None:
        self.sent.append(self.now)
        self.now += self._cost

    def socket(self, *_: object) -> "Clock":
        return self

    def __enter__(self) -> "Clock":
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def sending(monkeypatch: pytest.MonkeyPatch):
    def sending(cost: float, interval_us: int) -> Clock:
        clock = Clock(cost)
        monkeypatch.setattr(network, "enter", lambda path: None)
        monkeypatch.setattr(network.time, "monotonic", clock.monotonic)
        monkeypatch.setattr(network.time, "sleep", clock.sleep)
        monkeypatch.setattr(socket, "socket", clock.socket)
        network.send_packets(str(SECONDS), "", "127.0.0.1", "1", "8", str(BURST), str(interval_us))
        monkeypatch.undo()
        return clock

    return sending


def test_bursts_begin_at_their_interval(sending) -> None:
    clock = sending(cost=50e-6, interval_us=INTERVAL_US)
    begins = clock.sent[::BURST]
    assert begins == pytest.approx([100 + number * INTERVAL_US / 1e6 for number in range(len(begins))])
    assert len(begins) == pytest.approx(SECONDS * 1e6 / INTERVAL_US, abs=1)


def test_a_sender_whose_calls_handle_the_packets_never_pauses(sending) -> None:
    """Else the core of a storm would be idle between two bursts."""
    clock = sending(cost=400e-6, interval_us=INTERVAL_US)
    assert not clock.slept
    assert len(clock.sent) == pytest.approx(SECONDS / 400e-6, abs=BURST)


def test_a_sender_without_an_interval_never_pauses(sending) -> None:
    assert not sending(cost=50e-6, interval_us=0).slept

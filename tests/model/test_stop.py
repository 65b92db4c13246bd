"""A request to stop: heard at once, also from a signal handler that interrupts the waiting thread."""

import os
import signal
import threading
import time

import pytest

from exhume.model.stop import Stop


@pytest.fixture
def stop():
    made = Stop()
    yield made
    made.close()


def test_waiting_ends_with_the_time(stop):
    began = time.monotonic()
    assert stop.wait(0.05) is False
    assert time.monotonic() - began >= 0.05
    assert stop.wait(-1) is False
    assert not stop.is_set()


def test_asking_twice_is_asking_once(stop):
    stop.set()
    stop.set()
    assert stop.is_set()
    assert stop.wait(60) is True


def test_a_signal_ends_the_waiting_at_once(stop):
    before = signal.signal(signal.SIGUSR1, lambda *_: stop.set())
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        began = time.monotonic()
        assert stop.wait(120) is True
        assert time.monotonic() - began < 60
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)

"""The kernel reports which processes failed, and only those."""

import subprocess
import time

import pytest
from tests.parts import missing

from exhume.collect.perf.netlink import ExitCodes

pytestmark = pytest.mark.root


@pytest.fixture
def codes():
    try:
        opened = ExitCodes()
    except OSError as error:
        missing(f"the kernel's process connector ({error})")
    yield opened
    opened.close()


def ended(script: str) -> int:
    with subprocess.Popen(["sh", "-c", script]) as process:
        process.wait()
    return process.pid


def drained(codes: ExitCodes, *awaited: int) -> dict[int, int]:
    """What is reported until these are: the end of a process is known to its parent before it is reported."""
    reported: dict[int, int] = {}
    patience = time.monotonic() + 30
    while not reported.keys() >= set(awaited):
        assert time.monotonic() < patience, reported
        time.sleep(0.01)
        reported |= codes.drain()
    return reported


def test_failures_are_reported_with_their_status_and_good_ends_are_not(codes: ExitCodes) -> None:
    good, failed, killed = ended("exit 0"), ended("exit 3"), ended("kill -9 $$")
    reported = drained(codes, failed, killed)
    assert (reported.get(failed), reported.get(killed), reported.get(good)) == (3 << 8, 9, None)
    assert failed not in codes.drain()


def test_threads_that_end_are_no_processes(codes: ExitCodes) -> None:
    script = "import threading, os; t = threading.Thread(target=lambda: None); t.start(); t.join(); os._exit(0)"
    with subprocess.Popen(["python3", "-c", script]) as process:
        process.wait()
    assert process.pid not in drained(codes, ended("exit 3"))

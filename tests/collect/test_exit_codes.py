"""The kernel tells which processes failed, and only those."""

import subprocess
import time

import pytest
from tests.parts import missing

from exhume.collect.exit_codes import ExitCodes

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


def test_failures_are_told_with_their_status_and_good_ends_are_not(codes: ExitCodes) -> None:
    good, failed, killed = ended("exit 0"), ended("exit 3"), ended("kill -9 $$")
    time.sleep(0.05)
    told = codes.drain()
    assert (told.get(failed), told.get(killed), told.get(good)) == (3 << 8, 9, None)
    assert failed not in codes.drain()


def test_threads_that_end_are_no_processes(codes: ExitCodes) -> None:
    script = "import threading, os; t = threading.Thread(target=lambda: None); t.start(); t.join(); os._exit(0)"
    with subprocess.Popen(["python3", "-c", script]) as process:
        process.wait()
    time.sleep(0.05)
    assert process.pid not in codes.drain()

"""A recorder at work: it and its threads have the priority that was asked for, and its page server has not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exhume.store.read.recording import Recording

PROGRAM = [sys.executable, "-m", "exhume.cli.main"]
pytestmark = pytest.mark.root


def nice_values(pid: int) -> set[int]:
    return {os.getpriority(os.PRIO_PROCESS, int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir()}


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_line(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


@pytest.mark.parametrize(("setting", "expected"), [("", -20), ("0", 0), ("-5", -5)])
def test_the_recorder_is_raised_and_its_page_is_not(tmp_path, setting, expected):
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EXHUME_")}
    environment |= {"EXHUME_DIR": str(tmp_path / "r"), "EXHUME_LISTEN": "127.0.0.1:0", "EXHUME_NICE": setting}
    recorder = subprocess.Popen(PROGRAM, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not list((tmp_path / "r").glob("live/*/cpu.arrows")):
            assert time.monotonic() < deadline and recorder.poll() is None
            time.sleep(0.05)
        assert nice_values(recorder.pid) == {expected}
        [page] = [pid for pid in children(recorder.pid) if "exhume.cli.page" in command_line(pid)]
        assert nice_values(page) == {usual}
    finally:
        recorder.send_signal(signal.SIGINT)
        recorder.wait(60)
    assert Recording.open(tmp_path / "r").facts.nice == expected
    info = subprocess.run(
        [*PROGRAM, "info", "--dir", str(tmp_path / "r"), "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(info.stdout)["nice"] == expected

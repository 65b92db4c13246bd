"""The lab as its users run it, scenarios that are played until they did what they say, and waiting."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from exhume.lab.stage import Stage

PROGRAM = [sys.executable, "-m", "exhume.cli.main", "lab"]
# For how long a scenario may be played until it did what it says: a slow machine takes its time, none takes all of it.
PATIENCE_S = 30.0


def exhume_lab(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *args], capture_output=True, text=True, timeout=120, check=False)


def until(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    """Whether it comes true in so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Happened(Exception):
    """What a scenario was played for."""


def play_until(playing: Stage, play: Callable[[Stage], None], happened: Callable[[], object]) -> bool:
    """Play a scenario until that happened, or until the time of its stage is over; whether it happened."""

    def look(done: float) -> None:
        if happened():
            raise Happened

    playing.progress = look
    try:
        play(playing)
    except Happened:
        return True
    return bool(happened())


def spent(pid: int) -> tuple[int, float, float]:
    """Of a process: the page faults that took no disk, and its seconds in user mode and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return int(fields[7]), int(fields[11]) / ticks, int(fields[12]) / ticks

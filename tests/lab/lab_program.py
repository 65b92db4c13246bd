"""The lab as its users run it, and waiting for what it does."""

import subprocess
import sys
import time
from collections.abc import Callable

PROGRAM = [sys.executable, "-m", "exhume.cli.main", "lab"]


def exhume_lab(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=60, check=False)


def until(condition: Callable[[], object], seconds: float = 15.0) -> bool:
    """Whether it comes true in so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True

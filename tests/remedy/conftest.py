"""Real zombies to free, and the program as its users run it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exhume.lab.zombies import ZombieLab, make_zombies
from exhume.model.errors import LabError

ATTEMPTS = 4


@contextmanager
def zombies(count: int, pin: str, work: Path) -> Iterator[ZombieLab]:
    """Exactly so many. Where other cgroups come or go while they are counted, they are made anew."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            lab = make_zombies(count, pin, work=work)
            break
        except LabError:
            if attempt == ATTEMPTS:
                raise
    with lab:
        yield lab


class Fix:
    """`exhume fix plan zombies` against one lab, with a work directory of its own."""

    def __init__(self, lab: ZombieLab, work_dir: Path) -> None:
        self.work_dir = work_dir
        self.words = ["fix", "plan", "zombies", "--below", str(lab.parent), "--search", str(lab.directory)]
        self.words += ["--work-dir", str(work_dir)]

    def __call__(self, *more: str, code: int = 0) -> dict:
        """What it prints with --json."""
        done = subprocess.run(self._command("--json", *more), capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def start(self, *more: str) -> subprocess.Popen:
        return subprocess.Popen(self._command(*more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def _command(self, *more: str) -> list[str]:
        # What a step costs goes by all that the machine happens to have cached; whether that is asked for is tested
        # elsewhere. Its workers stand behind everybody else: on a busy machine a step takes minutes.
        accepting = ("--accept-cost", "--max-time", "5m") if "--apply" in more else ()
        return [sys.executable, "-m", "exhume.cli.main", *self.words, *more, *accepting]


@pytest.fixture
def fix(tmp_path) -> Callable[[ZombieLab], Fix]:
    return lambda lab: Fix(lab, tmp_path / "fix")


@pytest.fixture
def lab_of(tmp_path):
    """Makes zombies below a cgroup and a directory of the lab's own."""
    return lambda count, pin: zombies(count, pin, tmp_path / "lab")


@pytest.fixture(autouse=True)
def no_settings_of_others(monkeypatch):
    for name in [name for name in os.environ if name.startswith("EXHUME_")]:
        monkeypatch.delenv(name)

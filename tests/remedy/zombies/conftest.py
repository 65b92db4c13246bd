"""Real zombies to free, and the program as its users run it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.schema_check import check_output

from exhume.lab.zombies import ZombieLab, make_zombies
from exhume.model.errors import LabError

ATTEMPTS = 4
# What a step costs depends on all that the machine has cached; whether that is confirmed is tested elsewhere. Workers
# run at the lowest priority: on a busy machine a step takes minutes.
_UNATTENDED = ("--yes", "--accept-cost", "--max-time", "5m", "--baseline", "0s")


@contextmanager
def zombies(count: int, pin: str, work: Path) -> Iterator[ZombieLab]:
    """Exactly so many. Where other cgroups come or go while they are counted, they are made again."""
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
    """`exhume fix plan zombies` and `exhume fix apply zombies` against one lab, with a work directory of its own."""

    def __init__(self, lab: ZombieLab, work_dir: Path) -> None:
        self.work_dir = work_dir
        self._scope = ["--below", str(lab.parent), "--search", str(lab.directory), "--work-dir", str(work_dir)]

    def plan(self, *more: str) -> dict:
        """What `plan --json` prints."""
        return self._run("plan", "zombies", *self._scope, *more)

    def apply(self, *more: str, code: int = 0) -> dict:
        """What `apply --json` prints about the one step that frees zombies."""
        fix = self._run("apply", "zombies", *self._scope, *_UNATTENDED, *more, code=code)
        assert fix["state"] == "applied"
        (step,) = (step for step in fix["steps"] if step["automatic"])
        assert (step["id"], step["mark"]) == ("free-zombies", "done")
        return step["details"]

    def listed(self) -> list[dict]:
        """The fixes of the ledger, the newest first."""
        return self._run("list", "--work-dir", str(self.work_dir))["fixes"]

    def rollback(self) -> dict:
        return self._run("rollback", "--work-dir", str(self.work_dir))

    def start(self) -> subprocess.Popen:
        """`apply`, while it runs."""
        command = self._command("apply", "zombies", *self._scope, *_UNATTENDED)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def left(self) -> set[str]:
        """What is in the work directory but the records of plans and fixes."""
        return {path.name for path in self.work_dir.iterdir()} - {"plans", "fixes"}

    def _run(self, *args: str, code: int = 0) -> dict:
        done = subprocess.run(self._command(*args, "--json"), capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == code, done.stderr
        check_output(("fix", *args, "--json"), done.stdout)
        return json.loads(done.stdout)

    def _command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "exhume.cli.main", "fix", *args]


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

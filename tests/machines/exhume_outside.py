"""The program as it is run beside a machine, with the machine's root mounted: what it says, and its exit code."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nspawn_machine import Machine

SOURCE = Path(__file__).resolve().parents[2] / "src"
PROGRAM = "import sys; from exhume.cli.main import run; sys.exit(run())"
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Said:
    """What a run of the program said."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.out, self.err
        return json.loads(self.out)


class Exhume:
    """The program with a work directory of its own, for one machine."""

    def __init__(self, machine: Machine, work: Path) -> None:
        self.machine = machine
        self.work = work

    def audit(self, *words: str) -> Said:
        return self.run("audit", "--root", os.fspath(self.machine.root), *words)

    def fix(self, verb: str, *words: str) -> Said:
        """plan, apply, rollback, verify or list, with this machine's root and the work directory."""
        where = ["--root", os.fspath(self.machine.root)] if verb in ("plan", "apply", "rollback", "verify") else []
        return self.run("fix", verb, *where, "--work-dir", os.fspath(self.work), *words)

    def run(self, *words: str) -> Said:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words],
            env={**os.environ, "PYTHONPATH": os.fspath(SOURCE), "COLUMNS": "160"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

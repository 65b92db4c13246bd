"""Exhume, killed at a moment of the test's choice."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from exhume_outside import SOURCE, Said
from nspawn_machine import Machine

PROGRAM = Path(__file__).with_name("killing_program.py")
KILLED = -9


class KilledExhume:
    """Use it as a context: the program for one machine, with a work directory."""

    def __init__(self, machine: Machine, work: Path) -> None:
        self.machine, self.work = machine, work
        self._out = work.with_name(f"{work.name}.out")
        self._program: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._program = subprocess.Popen(
            [sys.executable, os.fspath(PROGRAM)],
            env={**os.environ, "PYTHONPATH": os.fspath(SOURCE)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._program is not None
        self._program.communicate()

    def fix(self, verb: str, *words: str, kill_before: int = 0) -> Said:
        """`exhume fix`, killed right before this change to a disk (0: not at all)."""
        assert self._program and self._program.stdin and self._program.stdout
        root, work = os.fspath(self.machine.root), os.fspath(self.work)
        order = {
            "words": ["fix", verb, "--root", root, "--work-dir", work, *words],
            "places": [root, work],
            "kill_before": kill_before,
            "out": os.fspath(self._out),
        }
        print(json.dumps(order), file=self._program.stdin, flush=True)
        code = json.loads(self._program.stdout.readline())
        return Said(code, self._out.read_text(errors="replace"), "")

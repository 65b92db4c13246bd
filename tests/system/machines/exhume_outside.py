"""The program as it is run beside a machine, with the machine's root mounted: what it says, and its exit code."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.schema_check import check_output
from tests.system.machines.nspawn_machine import Machine

SOURCE = Path(__file__).resolve().parents[3] / "src"
PROGRAM = "import sys; from exhume.cli.main import run; sys.exit(run())"
KILLED = -9


@dataclass(frozen=True, slots=True)
class Said:
    """What a run of the program said."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.out, self.err
        return json.loads(self.out)


class Program:
    """Use it as a context. Runs the program again and again, without starting Python each time."""

    def __init__(self, scratch: Path) -> None:
        self._out, self._err = scratch / "out", scratch / "err"
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [sys.executable, os.fspath(Path(__file__).with_name("exhume_server.py"))],
            env={**os.environ, "PYTHONPATH": os.fspath(SOURCE), "COLUMNS": "160"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.communicate()

    def run(self, *words: str, kill_before: int = 0, places: tuple[str, ...] = ()) -> Said:
        """Run it with these words, killed right before this change below these places (0: not at all)."""
        assert self._server and self._server.stdin and self._server.stdout
        order = {"words": words, "places": places, "kill_before": kill_before}
        reported = {**order, "out": os.fspath(self._out), "err": os.fspath(self._err)}
        print(json.dumps(reported), file=self._server.stdin, flush=True)
        code = json.loads(self._server.stdout.readline())
        said = Said(code, self._out.read_text(errors="replace"), self._err.read_text(errors="replace"))
        if code >= 0:
            check_output(words, said.out)
        return said


class Exhume:
    """The program for one machine, with a work directory."""

    def __init__(self, program: Program, machine: Machine, work: Path) -> None:
        self._program, self.machine, self.work = program, machine, work

    def audit(self, *words: str) -> Said:
        return self._program.run("audit", "--root", os.fspath(self.machine.root), *words)

    def inventory(self, *words: str) -> Said:
        return self._program.run("inventory", "--root", os.fspath(self.machine.root), *words)

    def fix(self, verb: str, *words: str, kill_before: int = 0) -> Said:
        """`exhume fix` with this machine's root and the work directory, killed before its Nth change to either."""
        root, work = os.fspath(self.machine.root), os.fspath(self.work)
        where = ["--work-dir", work] if verb == "list" else ["--root", root, "--work-dir", work]
        return self._program.run("fix", verb, *where, *words, kill_before=kill_before, places=(root, work))

"""Processes that the lab starts, identified by pid and start time: a pid may be used again."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from exhume.lab.programs import page_holder, spinner, zombie_maker
from exhume.model.errors import LabError
from exhume.model.isolation import isolated_script
from exhume.procfs.pid_stat import parse_pid_stat

_HOLDER, _MAKER, _SPINNER = (Path(str(program.__file__)) for program in (page_holder, zombie_maker, spinner))
# On a busy machine a killed process takes seconds to end.
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Process:
    """A process by its number and its start (in ticks since boot)."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        started = _start_of(pid)
        return None if started is None else cls(pid, started)

    @property
    def alive(self) -> bool:
        return _start_of(self.pid) == self.started

    def kill(self) -> bool:
        """Kill it if it is still the same one; True once it is gone."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + _PATIENCE_S
        while self.alive and time.monotonic() < deadline:
            time.sleep(0.005)
        return not self.alive


class Started:
    """A program of the lab. It does nothing before its input comes, so that it can be recorded first, and it ends by
    itself when its starter is gone before that."""

    def __init__(self, program: Path, *args: str) -> None:
        # A session of its own: Ctrl-C is for its starter, which then ends it.
        self._popen = subprocess.Popen(
            isolated_script(program, *args),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            start_new_session=True,
        )
        process = Process.of(self._popen.pid)
        if process is None:
            raise LabError(f"cannot start {program.name}: {self.complaint()}")
        self.process = process

    def send(self, data: str) -> None:
        """Write its standard input, and close it."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._popen.stdin as stdin:
            stdin.write(data)

    def lines(self) -> Iterator[str]:
        """What it says, until it ends or says no more."""
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            yield line.rstrip("\n")

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def complaint(self) -> str:
        """Wait for its end; what it complained about, empty when all went well."""
        assert self._popen.stderr is not None
        said = self._popen.stderr.read().strip()
        code = self._popen.wait()
        return said.splitlines()[-1] if said else f"ended with code {code}" if code else ""

    def stop(self) -> None:
        self._popen.kill()
        self._popen.wait()
        for stream in (self._popen.stdout, self._popen.stderr):
            assert stream is not None
            stream.close()


def spinner_on(core: int, seconds: float, path: Path, data: str) -> Started:
    """A process that will keep one core busy with a file of a cgroup."""
    return Started(_SPINNER, str(core), str(seconds), os.fspath(path), data)


def maker_of_zombies() -> Started:
    """The process that makes zombies; it waits for its order."""
    return Started(_MAKER)


def holder_of(path: Path, kind: str) -> Started:
    """A process that will keep a file mapped (`mapped`) or locked into memory (`mlock`)."""
    return Started(_HOLDER, kind, os.fspath(path))


def _start_of(pid: int) -> int | None:
    """When a process started; None when there is none, or only what is left of one that ended."""
    try:
        stat = parse_pid_stat(Path(f"/proc/{pid}/stat").read_bytes())
    except OSError:
        return None
    return None if stat is None or stat.state in ("Z", "X") else stat.start

"""The real recorder as a process, watched from outside, and what its recordings are asked for."""

import json
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from exhume.cli import exit_codes
from exhume.model.clock import NANOS
from exhume.store.read.recording import Recording

PROGRAM = str(Path(sysconfig.get_path("scripts")) / "exhume")
# For what happens within a second or two where nobody else has the cores.
PATIENCE_S = 60.0
# How the recorder begins the line of a source that it can't use.
MISSING = "source unavailable: "


def until(what: str, happened: Callable[[], bool], patience: float = PATIENCE_S, every: float = 0.02) -> None:
    """Wait until it happened, looking so often; fails when it doesn't."""
    deadline = time.monotonic() + patience
    while not happened():
        assert time.monotonic() < deadline, f"did not happen within {patience:.0f} s: {what}"
        time.sleep(every)


class RecorderProcess:
    """`exhume record` at work, in a session of its own. What it says goes to files."""

    def __init__(
        self, directory: Path, said: Path, *options: str, under: Sequence[str] = (), stdout: int | None = None
    ) -> None:
        self.directory = directory
        self._said = {name: said.with_name(f"{said.name}.{name}") for name in ("out", "err")}
        with self._said["out"].open("wb") as out, self._said["err"].open("wb") as err:
            self.process = subprocess.Popen(
                [*under, PROGRAM, "record", "--dir", str(directory), *options],
                stdin=subprocess.DEVNULL,
                stdout=out if stdout is None else stdout,
                stderr=err,
                start_new_session=True,
            )
        self.pid = self.process.pid

    @property
    def out(self) -> str:
        return self._said["out"].read_text()

    @property
    def err(self) -> str:
        return self._said["err"].read_text()

    @property
    def missing(self) -> list[str]:
        """What it said it has to do without, a line each."""
        return [line.removeprefix(MISSING) for line in self.err.splitlines() if line.startswith(MISSING)]

    def recording(self) -> "RecorderProcess":
        """Wait until it records."""
        until("the recorder begins", lambda: "recording into" in self.out or self.ended)
        assert not self.ended, self.err
        return self

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def ticks(self, count: int, patience: float = PATIENCE_S) -> "RecorderProcess":
        """Wait until so many ticks from now can be read."""
        self.recording()
        now = monotonic()
        until(f"{count} ticks", lambda: self.ended or anchor_count(self.directory, now) >= count, patience, every=0.1)
        assert not self.ended, self.err
        return self

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; returns its exit code."""
        self.send(number)
        return self.wait()

    def wait(self, patience: float = PATIENCE_S) -> int:
        return self.process.wait(timeout=patience)

    @property
    def kept_waiting(self) -> int:
        """Nanoseconds, since it began, in which it could have run and others had the cores."""
        return self._on_cores()[1]

    @property
    def kept_busy(self) -> int:
        """Nanoseconds, since it began, in which it worked or waited for a core to work on."""
        return sum(self._on_cores())

    def _on_cores(self) -> tuple[int, int]:
        worked, waited, _ = Path(f"/proc/{self.pid}/schedstat").read_text().split()
        return int(worked), int(waited)

    def kill(self) -> None:
        """Whatever state it is in, it ends."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=PATIENCE_S)


def anchor_count(directory: Path, since: int = 0) -> int:
    """Ticks that can be read, of those that ended after `since`."""
    if not (directory / "recorder.lock").exists():
        return 0
    return sum(time > since for time in Recording.open(directory).read("anchors").column("time").to_pylist())


def rows(directory: Path, table: str, *columns: str) -> list[dict[str, Any]]:
    """Rows in the order of their time."""
    found = Recording.open(directory).read(table, None, ["time", *columns]).to_pylist()
    return sorted(found, key=lambda row: row["time"])


def losses(directory: Path) -> dict[str, int]:
    """What was lost, by kind."""
    counts: dict[str, int] = {}
    for loss in Recording.open(directory).losses():
        counts[loss.kind] = counts.get(loss.kind, 0) + loss.count
    return counts


def monotonic() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def seconds(nanos: int) -> float:
    return nanos / NANOS


def clean_words(process: RecorderProcess) -> None:
    """Nothing of the interpreter's own went to the person who started the recorder."""
    assert "Traceback" not in process.err, process.err
    assert "Exception" not in process.err, process.err


def fill(disk: Path) -> Path:
    """Leave no free page."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))
    return ballast


def until_rows_are_dropped(recorder: RecorderProcess) -> None:
    """However long it takes: what is free in the pages of its files is written first."""
    until("the disk is full", lambda: recorder.ended or "because the disk was full" in recorder.out)
    assert not recorder.ended, recorder.err


def share_sums(directory: Path) -> set[int]:
    """The sums of the shares of every core and tick: each has to be 1000, but for rounding."""
    states = ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "guest", "idle")
    return {sum(row[state] for state in states) for row in rows(directory, "cpu", *states)}


def exhume(*words: str | Path) -> dict[str, Any]:
    """What another command of the program says, as JSON."""
    command = [PROGRAM, *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode in (exit_codes.OK, exit_codes.FINDINGS), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def longest_gap(directory: Path) -> float:
    """Seconds between two ticks."""
    times = [row["time"] for row in rows(directory, "anchors")]
    return max(seconds(after - before) for before, after in pairwise(times))

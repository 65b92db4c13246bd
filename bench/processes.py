"""Starting, watching and stopping what is measured: CPU time and memory as the kernel counts them."""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
EXHUME = Path(sys.executable).with_name("exhume")


class BenchError(Exception):
    """A measurement that cannot be taken; the message is one line."""


class NotMeasured(BenchError):
    """A peer that has to be installed by hand is missing: the rest is measured without it."""

    def __init__(self, title: str, remedy: str) -> None:
        super().__init__(remedy)
        self.title = title


@dataclass(slots=True)
class Watched:
    """A process that is measured. CPU seconds include its threads, its children and their children, whether they run
    or were waited for."""

    name: str
    process: subprocess.Popen[bytes]
    output: Path
    rss: list[int] = field(default_factory=list)

    def cpu(self) -> float:
        return sum(self._times()) + sum(_cpu_of_tree(child) for child in _children(self.process.pid))

    def reaped(self) -> float:
        """CPU seconds of the children that ended and were waited for."""
        return sum(self._times()[2:])

    def _times(self) -> list[float]:
        return _times(self._proc("stat"))

    def note_rss(self) -> None:
        """Remember the resident memory of this moment, in bytes."""
        lines = [line for line in self._proc("status").splitlines() if line.startswith("VmRSS:")]
        if not lines:
            raise self._ended()
        self.rss.append(int(lines[0].split()[1]) * 1024)

    def _proc(self, name: str) -> str:
        try:
            return Path(f"/proc/{self.process.pid}/{name}").read_text()
        except OSError as error:
            raise self._ended() from error

    def _ended(self) -> BenchError:
        output = self.output.read_text(errors="replace")[-500:]
        return BenchError(f"{self.name} ended while it was measured: {output}")

    def finish(self, seconds: float = 60.0) -> float:
        """Ask it to stop if it has not, wait for it, and tell the CPU seconds of its whole life."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                self.process.returncode = os.waitstatus_to_exitcode(status)
                return usage.ru_utime + usage.ru_stime
            time.sleep(0.05)
        self.process.kill()
        raise BenchError(f"{self.name} did not stop within {seconds:.0f} s of being asked to")


def _times(stat: str) -> list[float]:
    """The user and system time of a process, and those of the children that it waited for (/proc/PID/stat)."""
    return [int(value) / TICKS for value in stat.rpartition(") ")[2].split()[11:15]]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def _cpu_of_tree(pid: int) -> float:
    try:
        own = sum(_times(Path(f"/proc/{pid}/stat").read_text()))
    except OSError:
        # It ended: its parent has its time, once it was waited for.
        return 0.0
    return own + sum(_cpu_of_tree(child) for child in _children(pid))


def start(name: str, command: list[str], output: Path) -> Watched:
    """Start it in a session of its own: the scheduler then weighs it against the load as it weighs a service of a node,
    not as one more process of the benchmark."""
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
    # In its own session it does not hear Ctrl-C; whatever ends the benchmark ends it too.
    atexit.register(process.kill)
    return Watched(name, process, output)


def start_exhume(directory: Path, rate: int, *more: str) -> Watched:
    args = [str(EXHUME), "record", "--dir", str(directory), "--rate", str(rate), *more]
    return start("exhume record", args, directory.with_suffix(".log"))


def start_perf(data: Path, rate: int, *more: str) -> Watched:
    args = ["perf", "record", "-F", str(rate), "-g", "-a", *more, "-o", str(data)]
    return start("perf record", args, data.with_suffix(".log"))


def start_mpstat(log: Path) -> Watched:
    return start("mpstat", ["mpstat", "-P", "ALL", "1"], log)


def watch(seconds: float, *watched: Watched) -> list[float]:
    """Look on for so long, noting memory each second; returns the CPU seconds that each took in between."""
    before = [process.cpu() for process in watched]
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(1.0, left))
        for process in watched:
            process.note_rss()
    return [process.cpu() - start for process, start in zip(watched, before, strict=True)]

"""Workers: jobs of a remedy in a process of their own, on one core, bounded in time."""

import errno
import json
import os
import resource
import select
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.model.errors import ExhumeError
from exhume.model.isolation import isolated_environment, isolated_python
from exhume.model.stop import Stop

# A worker that is told to end while the kernel is busy for it ends when the kernel next looks.
_LOOK_EVERY_S = 0.1
# On a starved machine a process takes seconds before it does anything; that is no time of its job.
_BEGIN_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a job: `complete` is False when its time was over or a stop was asked for; `reached` is how many of
    its parts it had told of by then. An `error` is the number that the kernel gave, with its words."""

    complete: bool
    reached: int
    seconds: float
    cpu_seconds: float
    error: int = 0
    words: str = ""


class JobFailed(ExhumeError):
    """A job that had to succeed did not."""


@dataclass(frozen=True, slots=True)
class Crew:
    """How workers are started: on which core, and in which cgroup (none: the caller's)."""

    stop: Stop
    core: int | None = None
    home: Path | None = None

    def run(self, job: dict[str, Any], seconds: float | None, *, heed_stop: bool = True) -> Done:
        """Do a job, for so long at most from when it is begun (None: until it is done)."""
        began, cpu = time.monotonic(), _children_cpu()
        words = {**job, "core": self.core, "home": os.fspath(self.home) if self.home else None, "caller": os.getpid()}
        # A session of its own: Ctrl-C on the terminal is for the caller, who ends what can be ended.
        worker = subprocess.Popen(
            isolated_python("exhume.remedy.jobs"),
            env=isolated_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        with worker.stdin as to:
            to.write(json.dumps(words).encode())
        told, cut = bytearray(), False
        until = None if seconds is None else began + _BEGIN_WITHIN_S
        fd = worker.stdout.fileno()
        with worker.stdout:
            while True:
                over = until is not None and time.monotonic() >= until
                if not cut and (over or (heed_stop and self.stop.is_set())):
                    worker.terminate()
                    cut = True
                if select.select([fd], [], [], _LOOK_EVERY_S)[0]:
                    chunk = os.read(fd, 4096)
                    if not chunk:
                        break
                    if not told and seconds is not None:
                        until = time.monotonic() + seconds
                    told += chunk
        code = worker.wait()
        return _done(told.decode(errors="replace"), code, cut, time.monotonic() - began, _children_cpu() - cpu)

    def must(self, job: dict[str, Any], doing: str) -> Done:
        """Do a job to its end, whatever is asked for meanwhile. Raises JobFailed when it can't be done."""
        done = self.run(job, None, heed_stop=False)
        if done.error or not done.complete:
            raise JobFailed(f"{doing}: {done.words}")
        return done


def _done(told: str, code: int, cut: bool, seconds: float, cpu_seconds: float) -> Done:
    reached = 0
    for line in told.splitlines():
        kind, _, rest = line.partition(" ")
        if kind.isdigit():
            reached = int(kind)
        elif kind == "error":
            number, _, words = rest.partition(" ")
            if int(number) == errno.EINTR:
                return Done(False, reached, seconds, cpu_seconds)
            return Done(True, reached, seconds, cpu_seconds, int(number), words)
    if code == 0:
        return Done(True, reached, seconds, cpu_seconds)
    if cut:
        return Done(False, reached, seconds, cpu_seconds)
    return Done(False, reached, seconds, cpu_seconds, errno.ECHILD, f"the worker ended with {code}")


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

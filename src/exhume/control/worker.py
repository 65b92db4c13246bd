"""Workers: jobs that change the node, each in a separate process, on one core, bounded in time."""

import errno
import json
import os
import resource
import select
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from exhume.model.errors import ExhumeError
from exhume.model.isolation import isolated_environment, isolated_python
from exhume.model.stop import Stop
from exhume.procfs.host import Host, ProcFile
from exhume.procfs.stat import CPU_STATES, parse_cpu_times

# How often to check on a worker; inside the kernel, it exits when the kernel next checks for signals.
_POLL_S = 0.1
# On a starved machine a process takes seconds to start; this does not count towards its job's time.
_START_WITHIN_S = 30.0
# A worker that is still in the kernel this long after its signal waits for a disk (D state).
SIGNALLED_S = 2.0
# How long the idle time of cores is sampled.
_SAMPLE_S = 0.2


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job: `complete` is False if it timed out or a stop was requested; `reached` is how many of its
    parts it had reported by then. `error` is the kernel's errno, with its message. `left` is the pid of a worker that
    is still in the kernel (0: none), and exits as soon as it leaves it."""

    complete: bool
    reached: int
    seconds: float
    cpu_seconds: float
    error: int = 0
    message: str = ""
    left: int = 0


class JobFailed(ExhumeError):
    """A job that had to succeed failed."""


class JobTimeout(JobFailed):
    """A job that had to succeed did not finish in time."""


# Workers that were left behind: kept so that they are reaped once they exit (subprocess._cleanup).
_left_behind: "list[subprocess.Popen[bytes]]" = []


@dataclass(frozen=True, slots=True)
class Workers:
    """Starts workers on a given core and in a given cgroup (None: the caller's)."""

    stop: Stop
    core: int | None = None
    cgroup: Path | None = None

    def run(
        self, job: dict[str, Any], seconds: float | None, *, stoppable: bool = True, leave_after: float | None = None
    ) -> JobResult:
        """Do a job, for at most `seconds` from when it begins (None: no limit). A worker that its signal does not end
        is left behind `leave_after` seconds after the signal, or sooner if a stop is requested; None waits for it,
        because what follows relies on its end."""
        began, cpu = time.monotonic(), _children_cpu()
        cgroup = os.fspath(self.cgroup) if self.cgroup else None
        request = {**job, "core": self.core, "cgroup": cgroup, "caller": os.getpid()}
        # A separate session: Ctrl-C on the terminal is meant for the caller, which ends what can be ended.
        worker = subprocess.Popen(
            isolated_python("exhume.control.jobs"),
            env=isolated_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert worker.stdin is not None
        assert worker.stdout is not None
        with worker.stdin as stdin:
            stdin.write(json.dumps(request).encode())
        output = bytearray()
        cut: float | None = None
        until = None if seconds is None else began + _START_WITHIN_S
        fd = worker.stdout.fileno()
        with worker.stdout:
            while True:
                now = time.monotonic()
                over = until is not None and now >= until
                if cut is None and (over or (stoppable and self.stop.is_set())):
                    worker.terminate()
                    cut = now
                patience = SIGNALLED_S if self.stop.is_set() else leave_after
                if leave_after is not None and cut is not None and now - cut >= (patience or 0.0):
                    _left_behind.append(worker)
                    done = _result(output.decode(errors="replace"), -signal.SIGTERM, True, now - began, 0.0)
                    return replace(done, left=worker.pid)
                if select.select([fd], [], [], _POLL_S)[0]:
                    chunk = os.read(fd, 4096)
                    if not chunk:
                        break
                    if not output and seconds is not None:
                        until = time.monotonic() + seconds
                    output += chunk
        code = worker.wait()
        text, took = output.decode(errors="replace"), time.monotonic() - began
        return _result(text, code, cut is not None, took, _children_cpu() - cpu)

    def must(self, job: dict[str, Any], failure: str) -> JobResult:
        """Do a job to its end, even if a stop is requested meanwhile. Raises JobFailed if it fails."""
        done = self.run(job, None, stoppable=False)
        if done.error or not done.complete:
            raise JobFailed(f"{failure}: {done.message}")
        return done


def _result(output: str, code: int, cut: bool, seconds: float, cpu_seconds: float) -> JobResult:
    reached, error, message = 0, 0, ""
    for line in output.splitlines():
        kind, _, rest = line.partition(" ")
        if kind.isdigit():
            reached = int(kind)
        elif kind == "error":
            number, _, message = rest.partition(" ")
            error = int(number)
    if error == errno.EINTR or (cut and code and not error):
        return JobResult(False, reached, seconds, cpu_seconds)
    if code and not error:
        return JobResult(False, reached, seconds, cpu_seconds, errno.ECHILD, f"the worker ended with {code}")
    return JobResult(True, reached, seconds, cpu_seconds, error, message)


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def idlest_core(host: Host, allowed: set[int] | None = None, sample_s: float = _SAMPLE_S) -> int | None:
    """Return the core that idled most over a short sample, among those this process may use; None if unknown."""
    usable = os.sched_getaffinity(0) if allowed is None else allowed
    stat = ProcFile(host.proc / "stat")
    samples = []
    for wait_s in (0.0, sample_s):
        time.sleep(wait_s)
        content = stat.read_or_none()
        if not content:
            return None
        cores, times = parse_cpu_times(content)
        idle = times[:, [CPU_STATES.index("idle"), CPU_STATES.index("iowait")]].sum(axis=1)
        samples.append(dict(zip(cores.tolist(), idle.tolist(), strict=True)))
    before, after = samples
    idled = {core: after[core] - before[core] for core in before.keys() & after.keys() & usable}
    # On a tie take the last core: by default, interrupts go to the first ones.
    return max(idled, key=lambda core: (idled[core], core), default=None)

"""Where a scenario plays: on which core, for how long, under which names; and the programs it starts there.

Programs are files of the standard library only, in lab/programs/. They run under a name of the stage's choosing (the
name of the link they are started through), on a core of its choosing, and die with the process that started them.
"""

import contextlib
import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from exhume.lab.leftovers import Leftovers
from exhume.lab.processes import Process
from exhume.lab.traces import DEFAULT_WORK
from exhume.model.errors import LabError

PROGRAMS = Path(__file__).parent / "programs"
_PR_SET_PDEATHSIG = 1
_NAMES = ("ingest", "batcher", "collector", "sidecar", "indexer", "uploader", "shipper", "gateway", "relay", "planner")


@dataclass
class Stage:
    """One run. `cores` are all that may be used, `core` the one where it is to happen."""

    core: int
    cores: list[int]
    seconds: float
    rng: random.Random
    name: str
    leftovers: Leftovers
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    progress: Callable[[float], None] = lambda done: None

    @property
    def directory(self) -> Path:
        """For the scenario's own files; it is removed with all that is in it."""
        return self.leftovers.directory

    def start(
        self, program: str, *words: str, name: str | None = None, core: int | None = None, nice: int = 0
    ) -> subprocess.Popen[bytes]:
        """Start a program of lab/programs/, on one core where one is given."""
        link = self.python_named(name or self.name)
        started = subprocess.Popen(
            [link, "-I", "-S", PROGRAMS / f"{program}.py", *words],
            cwd="/",
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: _prepare(core, nice),  # noqa: PLW1509 (the lab has no threads)
        )
        process = Process.of(started.pid)
        if process is not None:
            self.leftovers.note("process", pid=process.pid, started=process.started)
        self.running.append(started)
        return started

    def wait(self, seconds: float | None = None) -> None:
        """Let it play: until the time is up, or a program ended with an error."""
        length = self.seconds if seconds is None else seconds
        began = time.monotonic()
        while (done := time.monotonic() - began) < length:
            for each in self.running:
                if each.poll() not in (None, 0, -signal.SIGKILL, -signal.SIGTERM):
                    raise LabError(f"{each.args!r} ended with code {each.returncode}")
            self.progress(min(1.0, done / length))
            time.sleep(0.05)

    def stop(self) -> None:
        """End the programs that still run."""
        for each in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)
            each.wait()
        self.running.clear()

    def python_named(self, name: str) -> Path:
        """The interpreter under another name: what it runs is called so."""
        link = self.directory / "bin" / name
        if not link.is_symlink():
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(os.path.realpath(sys.executable))
        return link


@contextlib.contextmanager
def stage(
    scenario: str,
    *,
    seconds: float,
    core: int | None = None,
    name: str | None = None,
    seed: int | None = None,
    work: Path | None = None,
    progress: Callable[[float], None] = lambda done: None,
) -> Iterator[Stage]:
    """Set a stage, and clear it afterwards whatever happens. What isn't given is drawn by lot."""
    rng = random.Random(seed)
    cores = sorted(os.sched_getaffinity(0))
    if core is not None and core not in cores:
        raise LabError(f"there is no core {core} here; the cores are {', '.join(map(str, cores))}")
    directory = (work or DEFAULT_WORK).absolute() / f"{scenario}-{os.getpid()}-{rng.getrandbits(24):06x}"
    leftovers = Leftovers.begin(directory)
    playing = Stage(
        core=rng.choice(cores) if core is None else core,
        cores=cores,
        seconds=seconds,
        rng=rng,
        name=name or f"{rng.choice(_NAMES)}-{rng.getrandbits(12):03x}",
        leftovers=leftovers,
        progress=progress,
    )
    try:
        yield playing
    finally:
        playing.stop()
        failed = leftovers.undo()
        if failed:
            raise LabError(f"not all could be removed: {'; '.join(failed)}; run exhume lab clean again later")


def _prepare(core: int | None, nice: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if core is not None:
        os.sched_setaffinity(0, {core})
    if nice:
        os.nice(nice)

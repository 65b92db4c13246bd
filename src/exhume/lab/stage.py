"""Where a scenario plays (its core, length, names and programs), how it is run, and the resources that it needs.

Programs are files in lab/programs/ that only need the standard library. They run under a name that the stage chooses
(the name of the link they are started through), on a core that it chooses, and die with the process that started them:
the kernel ends each of them with it, and a keeper that outlives it ends the processes that they started.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path

from exhume.lab.leftovers import DEFAULT_WORK, Leftovers, OwnCgroup, Process
from exhume.lab.programs.keeper import MARK, end_marked
from exhume.model.errors import LabError, UsageError
from exhume.model.isolation import INTERPRETER, SCRIPT_FLAGS, isolated_script
from exhume.model.process import end_with
from exhume.procfs.cpulist import possible_cpus
from exhume.procfs.flat_keyed import parse_meminfo
from exhume.procfs.host import Host

PROGRAMS = Path(__file__).parent / "programs"
_STOPPING_S = 30.0
# A program that the stage or the scenario itself killed did not fail.
_ENDS_WELL = (None, 0, -signal.SIGKILL, -signal.SIGTERM)
_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
# Suffix of the names of other work next to the trouble, which is not to blame.
PEER = "-peer"
_NAMES = ("ingest", "batcher", "collector", "sidecar", "indexer", "uploader", "shipper", "gateway", "relay", "planner")
SHORTEST_S, LONGEST_S = 1.0, 600.0
LONGEST_NAME = 15  # of which the kernel keeps no more
_KIB = 1024
# Measured: slab and page of each, and the counters on each CPU.
_BYTES_EACH = 18 * _KIB
_BYTES_EACH_PER_CPU = 2 * _KIB
_LEAST_LEFT = 256 << 20
_SHARE_LEFT = 0.1

Play = Callable[["Stage"], None]


@dataclass(frozen=True)
class Scenario:
    """A pathology on demand, and the decorator of the function that plays it: the scenario has the function's name, and
    so does its cause by default.

    `cause` is what a diagnosis has to find (nothing on a `healthy` machine; if its work is `heavy`, a warning is no
    mistake). `prepare` sets up what must exist before the trouble begins, `play` is the trouble itself. `on_core`: the
    trouble is on the stage's core and no other; `memory`: its peak in bytes; `prepared_early`: the preparation is over
    before a recording begins (otherwise it is part of the recording's calm time).
    """

    summary: str
    prepare: Play | None = None
    _: KW_ONLY
    cause: str = ""
    healthy: bool = False
    heavy: bool = False
    seconds: float = 10.0
    on_core: bool = False
    memory: int = 0
    prepared_early: bool = True
    name: str = ""
    play: Play = lambda stage: None

    def __call__(self, play: Play) -> "Scenario":
        name = play.__name__.replace("_", "-")
        return replace(self, name=name, cause="" if self.healthy else self.cause or name, play=play)


@dataclass
class Stage:
    """One run. `cores` are all cores that may be used, `core` is the one where the trouble happens; `cgroup` is the
    memory cgroup created for it, if any."""

    core: int
    cores: list[int]
    seconds: float
    rng: random.Random
    name: str
    leftovers: Leftovers
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    progress: Callable[[float], None] = lambda done: None
    cgroup: Path = Path()

    @property
    def directory(self) -> Path:
        """A directory for the scenario's files; it is removed with all its contents."""
        return self.leftovers.directory

    @property
    def programs(self) -> list[str]:
        """The names of its processes."""
        return [link.name for link in (self.directory / "bin").glob("*")]

    @property
    def owners(self) -> list[str]:
        """What a diagnosis may blame: the names of its processes, except for other work next to them, and its
        cgroups."""
        cgroups = [Path(each.path).name for each in self.leftovers.changes if isinstance(each, OwnCgroup)]
        return [name for name in self.programs if PEER not in name] + cgroups

    def start(
        self, program: str, *args: object, name: str | None = None, core: int | None = None, nice: int = 0
    ) -> subprocess.Popen[bytes]:
        """Start a program of lab/programs/ ("module.program"), on one core if given."""
        starter = os.getpid()
        started = subprocess.Popen(
            [self.python_named(name or self.name), *SCRIPT_FLAGS, *program_argv(program), *map(str, args)],
            cwd="/",
            env=os.environ | {MARK: self.directory.name},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: _prepare(starter, core, nice),  # noqa: PLW1509 (the lab has no threads)
        )
        self.running.append(started)
        if nice:
            # If the kernel groups processes by session (autogroup), the nice value of the group is the one that counts.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                Path(f"/proc/{started.pid}/autogroup").write_text(str(nice))
        if process := Process.of(started.pid):
            self.leftovers.add(process)
        return started

    def run(self, program: str, *args: object, core: int | None = None, nice: int = 0) -> None:
        """Run one program for the whole time; its first argument is the duration in seconds."""
        self.start(program, self.seconds, *args, core=core, nice=nice)
        self.wait()

    def wait(self, seconds: float | None = None) -> None:
        """Let the scenario play until the time is up or a program ends with an error."""
        length = self.seconds if seconds is None else seconds
        began = time.monotonic()
        while (done := time.monotonic() - began) < length:
            for each in self.running:
                if each.poll() not in _ENDS_WELL:
                    raise LabError(f"{_program_of(each)} ended with code {each.returncode}")
            self.progress(min(1.0, done / length))
            time.sleep(0.05)

    def stop(self) -> list[str]:
        """End the running programs and what they started; return a message for those that don't end."""
        for each in self.running:
            # Otherwise its pid may have been reused; what it left behind is ended by its mark.
            if each.poll() is None:
                os.killpg(each.pid, signal.SIGKILL)
        stuck = []
        for each in self.running:
            try:
                each.wait(_STOPPING_S)
            except subprocess.TimeoutExpired:
                stuck.append(f"{_program_of(each)} ({each.pid})")
        self.running.clear()
        stuck += map(str, end_marked(self.directory.name))
        return [f"{', '.join(stuck)} can't be ended: stuck in the kernel"] if stuck else []

    def python_named(self, name: str) -> Path:
        """A link to the interpreter with another name, which becomes the name of what it runs."""
        link = self.directory / "bin" / name
        if not link.is_symlink():
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(os.path.realpath(INTERPRETER))
        return link


def program_argv(program: str) -> list[str]:
    """The script and first argument that run `module.program` of lab/programs/."""
    module, name = program.split(".")
    return [str(PROGRAMS / f"{module}.py"), name]


def wait_until(what: str, happened: Callable[[], object], patience: float = 60.0) -> None:
    """Wait until something has happened. Raises LabError if it doesn't."""
    deadline = time.monotonic() + patience
    while not happened():
        if time.monotonic() > deadline:
            raise LabError(f"not within {patience:.0f} s: {what}")
        time.sleep(0.05)


@contextlib.contextmanager
def stage(
    scenario: str,
    *,
    seconds: float,
    core: int | None = None,
    name: str | None = None,
    seed: int | None = None,
    work: Path | None = None,
) -> Iterator[Stage]:
    """Set a stage, and clear it afterwards in any case. Values that aren't given are random."""
    rng = random.Random(seed)
    cores = sorted(os.sched_getaffinity(0))
    if core is not None and core not in cores:
        raise LabError(f"there is no core {core} here; the cores are {', '.join(map(str, cores))}")
    # The directory's name is not random: two runs with the same seed may be in progress at the same time.
    directory = (work or DEFAULT_WORK).absolute() / f"{scenario}-{os.getpid()}-{time.monotonic_ns():x}"
    # It ends all processes of the run when this process is gone.
    keeper = subprocess.Popen(
        isolated_script(PROGRAMS / "keeper.py", directory.name),
        cwd="/",
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with keeper:
        playing = Stage(
            core=rng.choice(cores) if core is None else core,
            cores=cores,
            seconds=seconds,
            rng=rng,
            name=name or f"{rng.choice(_NAMES)}-{rng.getrandbits(12):03x}",
            leftovers=Leftovers.begin(directory),
        )
        try:
            yield playing
        finally:
            # Signals that request an end wait until the cleanup is done; it takes seconds at most.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            try:
                failed = playing.stop() + playing.leftovers.undo()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if failed:
                raise LabError(f"not all could be removed: {'; '.join(failed)}; run exhume lab clean again later")


class Started:
    """A program that is in the journal before it does anything: it waits for its input, and ends by itself if its
    starter is gone before that. Its output is read, and it may outlive its starter."""

    def __init__(self, leftovers: Leftovers, program: str, *args: object) -> None:
        self._leftovers = leftovers
        # A session of its own: Ctrl-C goes to its starter, which then ends it.
        self._popen = subprocess.Popen(
            isolated_script(*program_argv(program), *map(str, args)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            start_new_session=True,
        )
        process = Process.of(self._popen.pid)
        if process is None:
            raise LabError(f"cannot start {program}: {self.complaint()}")
        self.process = process
        leftovers.add(process)

    def send(self, data: str) -> None:
        """Write to its standard input and close it."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._popen.stdin as stdin:
            stdin.write(data)

    def lines(self) -> Iterator[str]:
        """Yield the lines it prints until it ends or closes its output."""
        assert self._popen.stdout is not None
        return map(str.rstrip, self._popen.stdout)

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def complaint(self) -> str:
        """Wait for its end; return its error output, empty if all went well."""
        assert self._popen.stderr is not None
        stderr = self._popen.stderr.read().strip()
        code = self._popen.wait()
        return stderr.splitlines()[-1] if stderr else f"ended with code {code}" if code else ""

    def close(self) -> None:
        """End it and close its pipes."""
        with self._popen as process:
            process.kill()
        self._leftovers.undo_some([self.process], [])


def refuse_unfit(scenario: Scenario) -> None:
    """Raise LabError, with a sentence, if this machine can't play the scenario."""
    if os.geteuid() != 0:
        raise LabError(f"{scenario.name} is made for real, which needs root; run it with sudo")
    if scenario.memory:
        what, advice = f"{scenario.name} takes up to", "try again when there is more"
        _refuse_without_memory(scenario.memory, what, advice, Host())


def perform(
    scenario: Scenario,
    *,
    seconds: float | None = None,
    core: int | None = None,
    name: str | None = None,
    seed: int | None = None,
    work: Path | None = None,
    progress: Callable[[str, float], None] = lambda doing, done: None,
) -> Stage:
    """Play a scenario; values that aren't given are random. Returns the stage that it was played on, cleared."""
    length = scenario.seconds if seconds is None else seconds
    if not SHORTEST_S <= length <= LONGEST_S:
        raise UsageError(f"a scenario lasts from {SHORTEST_S:.0f} to {LONGEST_S:.0f} seconds")
    if name is not None and (not name or len(name.encode()) > LONGEST_NAME or not name.isprintable() or "/" in name):
        raise UsageError(f"{name!r} is no name for a process: up to {LONGEST_NAME} characters, no slashes")
    refuse_unfit(scenario)
    with stage(scenario.name, seconds=length, core=core, name=name, seed=seed, work=work) as playing:
        if scenario.prepare is not None:
            playing.progress = lambda done: progress(f"preparing {scenario.name}", done)
            scenario.prepare(playing)
        playing.progress = lambda done: progress(scenario.name, done)
        scenario.play(playing)
    return playing


def refuse_without_room(count: int, disk_bytes: int, work: Path, host: Host | None = None) -> None:
    """Raise LabError unless this many zombies leave a tenth of the memory and of the disk to others."""
    host = host or Host()
    # The kernel has counters for every possible CPU.
    cpus = len(possible_cpus(host) or ()) or os.cpu_count() or 1
    needed = count * (_BYTES_EACH + _BYTES_EACH_PER_CPU * cpus)
    _refuse_without_memory(needed, f"{count:,} zombies take", "ask for fewer", host)
    place = next(path for path in (work, *work.parents) if path.exists())
    disk = shutil.disk_usage(place)
    if disk_bytes > disk.free - disk.total * _SHARE_LEFT:
        raise LabError(f"{place} has no room for {disk_bytes >> 20:,} MiB; choose another directory with --work")


def _refuse_without_memory(needed: int, what: str, advice: str, host: Host) -> None:
    memory = parse_meminfo((host.proc / "meminfo").read_bytes())
    spare = memory["MemAvailable"] - max(_LEAST_LEFT, int(memory["MemTotal"] * _SHARE_LEFT))
    if needed > spare:
        raise LabError(
            f"{what} {needed >> 20:,} MiB of memory, and {max(spare, 0) >> 20:,} MiB can be spared; {advice}"
        )


def _program_of(process: subprocess.Popen[bytes]) -> str:
    """The name of a program as given to `Stage.start`; dockerd has no script."""
    assert isinstance(process.args, list)
    argv = list(map(str, process.args))
    return argv[len(SCRIPT_FLAGS) + 2] if argv[1 : len(SCRIPT_FLAGS) + 1] == list(SCRIPT_FLAGS) else argv[0]


def _prepare(starter: int, core: int | None, nice: int) -> None:
    if not end_with(starter):
        # The starter died before the kernel was asked to end this process with it.
        os._exit(1)
    # Signals that the starter blocks during cleanup must not stay blocked in its programs.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    if core is not None:
        os.sched_setaffinity(0, {core})
    if nice:
        os.nice(nice)

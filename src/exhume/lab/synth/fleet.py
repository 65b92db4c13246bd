"""Who runs on a synthetic node: processes with their threads, containers and pods, and how the cores share them."""

from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt

from exhume.lab.synth.programs import KERNEL, PROGRAMS, Program
from exhume.model.clock import NANOS
from exhume.model.tables import Processes

# Drawing a thread for a core is one look into a table of this many equal parts.
QUANTILES = 4_096
FIRST_PID = 1_180
# Short-lived processes take pids from here on, this many a second.
SHORT_PID = 400_000
SHORT_PIDS_A_SECOND = 37
PID_LIMIT = 4_000_000


@dataclass(frozen=True, slots=True)
class Fleet:
    """Threads are numbered; `draw[core, q]` is the thread at quantile q of a core's work. A thread of a short-lived
    program stands for all its processes: its pid is made up when it runs."""

    comms: list[str]
    processes: list[Processes]
    pid: npt.NDArray[np.int32]
    tid: npt.NDArray[np.int32]
    comm: npt.NDArray[np.int32]
    program: npt.NDArray[np.int32]
    short: npt.NDArray[np.bool_]
    draw: npt.NDArray[np.int32]
    kubelet_thread: int


class _Crowd:
    def __init__(self, rng: np.random.Generator, uptime: int) -> None:
        self.rng = rng
        self.uptime = uptime
        self.comms: dict[str, int] = {}
        self.processes: list[Processes] = []
        self.threads: list[tuple[int, int, int, int]] = []
        # For each thread: its share of the busy time, and the one core that it is bound to (-1: any).
        self.shares: list[float] = []
        self.bound: list[int] = []
        self.next_pid = FIRST_PID

    def thread(self, ids: tuple[int, int], comm: str, program: int, share: float, core: int = -1) -> None:
        self.threads.append((*ids, self.comms.setdefault(comm, len(self.comms)), program))
        self.shares.append(share)
        self.bound.append(core)

    def process(self, program: Program) -> int:
        pid = self.next_pid
        self.next_pid += int(self.rng.integers(1 + len(program.threads), 40 + len(program.threads)))
        self.processes.append(describe(program, pid, self.rng, int(self.uptime * self.rng.uniform(0.001, 0.9))))
        return pid


def describe(program: Program, pid: int, rng: np.random.Generator, start: int) -> Processes:
    """The row of one process, with the container and pod that its cgroup path names."""
    if program.language == KERNEL:
        return Processes(0, pid, 2, 0, program.comm, None, "/")
    container = rng.bytes(32).hex()
    command, unit = f"{program.path} --worker={pid}", f"/system.slice/{program.comm}.service"
    row = Processes(0, pid, 1, start, program.comm, command, unit)
    if program.pod:
        row.pod = str(UUID(bytes=rng.bytes(16)))
        row.container, row.runtime = container, "containerd"
        row.cgroup = f"/kubepods/burstable/pod{row.pod}/{container}"
        row.pod_name = f"default/{program.comm}-{row.pod[-5:]}"
        row.container_name = f"{row.pod_name}/{program.comm}"
    elif program.short and program.comm == "amazon-ecs-agent":
        row.container, row.runtime, row.cgroup = container, "docker", f"/docker/{container}"
    return row


def build_fleet(cores: int, seed: int, uptime: int) -> Fleet:
    rng = np.random.default_rng([seed, 4])
    crowd = _Crowd(rng, uptime)
    for number, program in enumerate(PROGRAMS):
        _add_program(crowd, number, program, cores)
    threads = np.array(crowd.threads, np.int32)
    pid, tid, comm, program_of = threads.T.copy()
    short = np.array([PROGRAMS[number].short for number in program_of], np.bool_)
    kubelet = next(i for i, program in enumerate(PROGRAMS) if program.comm == "kubelet")
    return Fleet(
        list(crowd.comms),
        crowd.processes,
        pid,
        tid,
        comm,
        program_of,
        short,
        _shares_by_core(crowd, cores),
        int(np.flatnonzero(program_of == kubelet)[3]),
    )


def _add_program(crowd: _Crowd, number: int, program: Program, cores: int) -> None:
    if program.language == KERNEL and program.processes == 0:
        for core in range(cores):
            pid = {"swapper": 0, "ksoftirqd": 15 + 6 * core, "kworker": 16 + 6 * core}[program.comm]
            comm = f"kworker/{core}:1" if program.comm == "kworker" else f"{program.comm}/{core}"
            # A bound thread's share is a share of its own core.
            crowd.thread((pid, pid), comm, number, program.share, core)
            if pid:
                crowd.processes.append(Processes(0, pid, 2, 0, comm, None, "/"))
        return
    if program.short:
        crowd.thread((0, 0), program.comm, number, program.share)
        return
    names = program.threads or (program.comm,)
    # The first threads of a process do most of its work.
    weights = 1.0 / np.arange(1, len(names) + 1)
    for share in crowd.rng.dirichlet(np.full(program.processes, 3.0)) * program.share:
        pid = crowd.process(program)
        for place, (name, weight) in enumerate(zip(names, weights / weights.sum(), strict=True)):
            crowd.thread((pid, pid + place), name, number, float(share * weight))


def _shares_by_core(crowd: _Crowd, cores: int) -> npt.NDArray[np.int32]:
    """Every thread has cores that it likes: the scheduler keeps it where its caches are warm."""
    shares, bound = np.array(crowd.shares), np.array(crowd.bound)
    draw = np.empty((cores, QUANTILES), np.int32)
    middle = (np.arange(QUANTILES) + 0.5) / QUANTILES
    for core in range(cores):
        liking = np.where(bound < 0, crowd.rng.lognormal(-1.1, 1.5, len(shares)), 1.0)
        weights = np.where((bound < 0) | (bound == core), shares * liking, 0.0)
        edges = np.cumsum(weights / weights.sum())
        draw[core] = np.minimum(np.searchsorted(edges, middle), len(shares) - 1)
    return draw


def short_pids(times: npt.NDArray[np.int64], start: int) -> npt.NDArray[np.int32]:
    """The pids of processes that were started at these moments: they rise with time, as a kernel hands them out."""
    elapsed = (times - start) / NANOS * SHORT_PIDS_A_SECOND
    return (SHORT_PID + elapsed.astype(np.int64) % (PID_LIMIT - SHORT_PID)).astype(np.int32)

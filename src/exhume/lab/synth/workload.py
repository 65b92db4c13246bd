"""The workload of a synthetic Kubernetes node: its programs, processes, threads, containers and pods."""

from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt

from exhume.model.clock import NANOS
from exhume.model.tables import Processes

GO = "go"
PYTHON = "python"
JAVA = "java"
NATIVE = "native"
KERNEL = "kernel"


# Threads of a process with names of their own.
NAMED_THREADS = {
    "python3": ("pt_main_thread", "pt_autograd_0", "pt_data_worker", "cuda-EvtHandlr"),
    "ray::RolloutWor": ("worker.io", "server.poll0", "jemalloc_bg_thd"),
    "raylet": ("server.poll0", "client.poll1", "plasma.store"),
    "gcs_server": ("server.poll0",),
    "java": ("C2 CompilerThre", "G1 Conc#0", "GC Thread#3", "kafka-network-t", "http-nio-8080-e"),
    "envoy": ("wrk:worker_0", "wrk:worker_1", "wrk:worker_2"),
    "redis-server": ("bio_lazy_free", "io_thd_1"),
    "fluentd": ("flush_thread_0", "enqueue_thread"),
    "dcgm-exporter": ("cache_mgr_main",),
    "rcu_sched": ("jbd2/nvme0n1p1-", "khugepaged", "kcompactd0"),
}


@dataclass(frozen=True, slots=True)
class Program:
    """One kind of process: how many there are, how much of the busy time is theirs, and what their stacks look like.

    `share` is relative to the others. `threads` of a process have its name, besides NAMED_THREADS. `enters` names the
    kernel paths that it takes (keys of SYSCALLS; kernel threads: of KERNEL_THREADS), `in_kernel` is how often. `short`
    processes live for moments: each burst is a new pid.
    """

    comm: str
    language: str
    share: float
    stacks: int
    processes: int
    threads: int
    path: str
    enters: str
    in_kernel: float = 1.0
    pod: bool = False
    short: bool = False

    @property
    def thread_names(self) -> tuple[str, ...]:
        return (self.comm,) * self.threads + NAMED_THREADS.get(self.comm, ())


_SHIM, _JOURNAL = "/usr/bin/containerd-shim-runc-v2", "/usr/lib/systemd/systemd-journald"
_IPTABLES, _RAY = "/usr/sbin/xtables-legacy-multi", "ray::RolloutWor"
PROGRAMS: tuple[Program, ...] = (
    Program("python3", PYTHON, 34.0, 5200, 16, 1, "/opt/conda/bin/python3", "gpu memory wait read", 0.16, pod=True),
    Program(_RAY, PYTHON, 16.0, 3400, 48, 1, "/opt/conda/bin/python3", "socket memory wait read", 0.22, pod=True),
    Program("raylet", NATIVE, 4.0, 1500, 2, 1, "/opt/ray/raylet", "socket wait files memory", 0.40, pod=True),
    Program("gcs_server", NATIVE, 1.0, 500, 1, 1, "/opt/ray/gcs_server", "socket wait", 0.35, pod=True),
    Program("java", JAVA, 7.0, 2600, 4, 1, "/usr/lib/jvm/bin/java", "socket wait memory read", 0.25, pod=True),
    Program("envoy", NATIVE, 3.5, 1200, 6, 1, "/usr/local/bin/envoy", "socket wait", 0.55, pod=True),
    Program("redis-server", NATIVE, 1.5, 400, 3, 1, "/usr/bin/redis-server", "socket wait", 0.50, pod=True),
    Program("kubelet", GO, 0.7, 900, 1, 12, "/usr/bin/kubelet", "read files wait", 0.55),
    Program("containerd", GO, 1.2, 700, 1, 10, "/usr/bin/containerd", "socket wait files tasks", 0.45),
    Program("containerd-shim", GO, 0.6, 300, 60, 3, _SHIM, "wait tasks", 0.55),
    Program("node_exporter", GO, 0.6, 500, 1, 6, "/bin/node_exporter", "read files wait", 0.65, pod=True),
    Program("cilium-agent", GO, 1.1, 700, 1, 8, "/usr/bin/cilium-agent", "socket wait files", 0.45, pod=True),
    Program("kube-proxy", GO, 0.3, 250, 1, 4, "/usr/local/bin/kube-proxy", "socket wait", 0.50, pod=True),
    Program("agent", GO, 1.0, 600, 1, 8, "/opt/datadog-agent/bin/agent", "read files socket", 0.50, pod=True),
    Program("fluentd", NATIVE, 1.4, 600, 1, 1, "/usr/bin/ruby", "read write socket", 0.35, pod=True),
    Program("dcgm-exporter", GO, 0.5, 300, 1, 1, "/usr/bin/dcgm-exporter", "gpu wait", 0.60, pod=True),
    Program("systemd", NATIVE, 0.3, 250, 1, 1, "/usr/lib/systemd/systemd", "read files wait", 0.55),
    Program("systemd-journal", NATIVE, 0.3, 160, 1, 1, _JOURNAL, "write wait", 0.60),
    Program("dockerd", GO, 0.4, 300, 1, 6, "/usr/bin/dockerd", "socket wait tasks", 0.50),
    Program("runc", GO, 0.9, 500, 1, 1, "/usr/bin/runc", "tasks files memory", 0.70, short=True),
    Program("amazon-ecs-agent", GO, 0.3, 200, 1, 1, "/agent", "socket files tasks", 0.55, short=True),
    Program("iptables", NATIVE, 0.4, 150, 1, 1, _IPTABLES, "socket tasks", 0.75, short=True),
    Program("sh", NATIVE, 0.5, 200, 1, 1, "/bin/dash", "tasks files memory", 0.75, short=True),
    Program("ksoftirqd", KERNEL, 0.8, 60, 0, 1, "", "ksoftirqd"),
    Program("kworker", KERNEL, 0.8, 80, 0, 1, "", "kworker"),
    Program("kswapd0", KERNEL, 0.3, 40, 1, 1, "", "kswapd"),
    Program("rcu_sched", KERNEL, 0.4, 40, 1, 1, "", "housekeeping"),
    Program("swapper", KERNEL, 2.0, 80, 0, 1, "", ""),
)


# Drawing a thread for a core is one look into a table of this many equal parts.
QUANTILES = 4_096
FIRST_PID = 1_180
# Short-lived processes take pids from here on, this many a second.
SHORT_PID = 400_000
SHORT_PIDS_A_SECOND = 37
PID_LIMIT = 4_000_000


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


class Fleet:
    """Threads are numbered; `draw[core, q]` is the thread at quantile q of a core's work. A thread of a short-lived
    program stands for all its processes: its pid is made up when it runs."""

    def __init__(self, cores: int, seed: int, uptime: int) -> None:
        rng = np.random.default_rng([seed, 4])
        comms: dict[str, int] = {}
        processes: list[Processes] = []
        # Of each thread: pid, tid, name and program; its share of the busy time, and the one core that it is bound to
        # (-1: any).
        ids: list[tuple[int, int, int, int]] = []
        shares: list[float] = []
        bound: list[int] = []

        def add_thread(pids: tuple[int, int], comm: str, number: int, share: float, core: int = -1) -> None:
            ids.append((*pids, comms.setdefault(comm, len(comms)), number))
            shares.append(share)
            bound.append(core)

        next_pid = FIRST_PID
        for number, program in enumerate(PROGRAMS):
            if program.short:
                add_thread((0, 0), program.comm, number, program.share)
            elif program.processes == 0:
                for core in range(cores):
                    pid = {"swapper": 0, "ksoftirqd": 15 + 6 * core, "kworker": 16 + 6 * core}[program.comm]
                    comm = f"kworker/{core}:1" if program.comm == "kworker" else f"{program.comm}/{core}"
                    # A bound thread's share is a share of its own core.
                    add_thread((pid, pid), comm, number, program.share, core)
                    if pid:
                        processes.append(Processes(0, pid, 2, 0, comm, None, "/"))
            else:
                names = program.thread_names
                # The first threads of a process do most of its work.
                weights = 1.0 / np.arange(1, len(names) + 1)
                for share in rng.dirichlet(np.full(program.processes, 3.0)) * program.share:
                    pid, next_pid = next_pid, next_pid + int(rng.integers(1 + len(names), 40 + len(names)))
                    processes.append(describe(program, pid, rng, int(uptime * rng.uniform(0.001, 0.9))))
                    for place, (name, weight) in enumerate(zip(names, weights / weights.sum(), strict=True)):
                        add_thread((pid, pid + place), name, number, float(share * weight))
        self.comms, self.processes = list(comms), processes
        self.pid, self.tid, self.comm, self.program = np.array(ids, np.int32).T.copy()
        self.short = np.array([PROGRAMS[number].short for number in self.program], np.bool_)
        self.draw = _draw_by_core(np.array(shares), np.array(bound), cores, rng)
        kubelet = next(i for i, program in enumerate(PROGRAMS) if program.comm == "kubelet")
        self.kubelet_thread = int(np.flatnonzero(self.program == kubelet)[3])


def _draw_by_core(
    shares: npt.NDArray[np.float64], bound: npt.NDArray[np.int64], cores: int, rng: np.random.Generator
) -> npt.NDArray[np.int32]:
    """Every thread has cores that it likes: the scheduler keeps it where its caches are warm."""
    draw = np.empty((cores, QUANTILES), np.int32)
    for core in range(cores):
        liking = np.where(bound < 0, rng.lognormal(-1.1, 1.5, len(shares)), 1.0)
        draw[core] = quantile_table(np.where((bound < 0) | (bound == core), shares * liking, 0.0), QUANTILES)
    return draw


def quantile_table(weights: npt.NDArray[np.float64], quantiles: int) -> npt.NDArray[np.int64]:
    """Which of the weighted things lies in the middle of each of so many equal parts."""
    edges = np.cumsum(weights / weights.sum())
    middle = (np.arange(quantiles) + 0.5) / quantiles
    return np.minimum(np.searchsorted(edges, middle), len(weights) - 1)


def short_pids(times: npt.NDArray[np.int64], start: int) -> npt.NDArray[np.int32]:
    """The pids of processes that were started at these moments: they rise with time, as a kernel hands them out."""
    elapsed = (times - start) / NANOS * SHORT_PIDS_A_SECOND
    return (SHORT_PID + elapsed.astype(np.int64) % (PID_LIMIT - SHORT_PID)).astype(np.int32)

"""The workload of a synthetic Kubernetes node: its programs, processes, threads, containers and pods."""

from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt

from exhume.model.clock import NANOS
from exhume.model.tables import Processes

# Threads of a process that have their own names.
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
    """One kind of process: how many there are, their share of the busy time, and what their stacks look like.

    `share` is relative to the others. `threads` of a process have its name, in addition to NAMED_THREADS. `in_kernel`
    is how often it is in the kernel. `command` is its command line, unless that is its path with `args`. `short`
    processes are very short-lived: each burst has a new pid. `unit` is the systemd unit that it runs in, if that has a
    different name.
    """

    comm: str
    share: float
    stacks: int
    processes: int
    threads: int
    path: str
    in_kernel: float = 1.0
    args: str = ""
    command: str = ""
    pod: bool = False
    short: bool = False
    unit: str = ""

    @property
    def kernel(self) -> bool:
        return not self.path

    @property
    def cgroup(self) -> str:
        """Its cgroup if it is in no container."""
        unit = self.unit or f"{self.comm}.service"
        return f"/{unit}" if unit.endswith(".scope") else f"/system.slice/{unit}"

    @property
    def thread_names(self) -> tuple[str, ...]:
        return (self.comm,) * self.threads + NAMED_THREADS.get(self.comm, ())


_CONDA, _RAY, _RAY_CORE = (
    "/opt/conda/bin/python3.11",
    "ray::RolloutWor",
    "/opt/conda/lib/python3.11/site-packages/ray/core",
)
_RAYLET, _GCS = f"{_RAY_CORE}/src/ray/raylet/raylet", f"{_RAY_CORE}/src/ray/gcs/gcs_server"
_JVM, _SHIM = "/usr/lib/jvm/java-17-openjdk-amd64/bin/java", "/usr/bin/containerd-shim-runc-v2"
_DATADOG, _JOURNAL = "/opt/datadog-agent/bin/agent/agent", "/usr/lib/systemd/systemd-journald"
_DCGM, _IPTABLES = "/usr/bin/dcgm-exporter", "/usr/sbin/xtables-legacy-multi"
_NAMESPACE = "--namespace k8s.io --address /run/containerd/containerd.sock"
PROGRAMS: tuple[Program, ...] = (
    Program("python3", 34.0, 5200, 16, 1, _CONDA, 0.16, command="python3 /app/train.py --config llama.yaml", pod=True),
    Program(_RAY, 16.0, 3400, 48, 1, _CONDA, 0.22, command="ray::RolloutWorker.sample", pod=True),
    Program("raylet", 4.0, 1500, 2, 1, _RAYLET, 0.40, command=f"{_RAYLET} --node_manager_port=0", pod=True),
    Program("gcs_server", 1.0, 500, 1, 1, _GCS, 0.35, command=f"{_GCS} --gcs_server_port=6379", pod=True),
    Program("java", 7.0, 2600, 4, 1, _JVM, 0.25, command="java -Xmx8g -jar /app/feature-service.jar", pod=True),
    Program("envoy", 3.5, 1200, 6, 1, "/usr/local/bin/envoy", 0.55, command="envoy -c /etc/envoy/envoy.yaml", pod=True),
    Program("redis-server", 1.5, 400, 3, 1, "/usr/bin/redis-server", 0.50, command="redis-server *:6379", pod=True),
    Program("kubelet", 0.7, 900, 1, 12, "/usr/bin/kubelet", 0.55, args="--config=/etc/kubernetes/kubelet/kubelet.yaml"),
    Program("containerd", 1.2, 700, 1, 10, "/usr/bin/containerd", 0.45),
    Program("containerd-shim", 0.6, 300, 60, 3, _SHIM, 0.55, args=_NAMESPACE, unit="containerd.service"),
    Program("node_exporter", 0.6, 500, 1, 6, "/bin/node_exporter", 0.65, args="--path.rootfs=/host", pod=True),
    Program("cilium-agent", 1.1, 700, 1, 8, "/usr/bin/cilium-agent", 0.45, args="--config-dir=/tmp/cilium", pod=True),
    Program("kube-proxy", 0.3, 250, 1, 4, "/usr/local/bin/kube-proxy", 0.50, args="--v=2", pod=True),
    Program("agent", 1.0, 600, 1, 8, _DATADOG, 0.50, args="run", pod=True),
    Program(
        "fluentd", 1.4, 600, 1, 1, "/usr/bin/ruby2.7", 0.35, args="/usr/local/bin/fluentd -c /fluentd.conf", pod=True
    ),
    Program("dcgm-exporter", 0.5, 300, 1, 1, _DCGM, 0.60, args="-f /etc/dcgm-exporter/default.csv", pod=True),
    Program(
        "systemd", 0.3, 250, 1, 1, "/usr/lib/systemd/systemd", 0.55, args="--system --deserialize 41", unit="init.scope"
    ),
    Program("systemd-journal", 0.3, 160, 1, 1, _JOURNAL, 0.60, unit="systemd-journald.service"),
    Program("dockerd", 0.4, 300, 1, 6, "/usr/bin/dockerd", 0.50, args="-H fd://", unit="docker.service"),
    Program(
        "runc", 0.9, 500, 1, 1, "/usr/bin/runc", 0.70, args="create --bundle .", short=True, unit="containerd.service"
    ),
    Program("amazon-ecs-agent", 0.3, 200, 1, 1, "/agent", 0.55, short=True, unit="ecs.service"),
    Program(
        "iptables", 0.4, 150, 1, 1, _IPTABLES, 0.75, args="-w 5 -S KUBE-SERVICES", short=True, unit="kubelet.service"
    ),
    Program(
        "sh",
        0.5,
        200,
        1,
        1,
        "/usr/bin/dash",
        0.75,
        args="-c /usr/local/bin/healthcheck",
        short=True,
        unit="cron.service",
    ),
    Program("ksoftirqd", 0.8, 60, 0, 1, ""),
    Program("kworker", 0.8, 80, 0, 1, ""),
    Program("kswapd0", 0.3, 40, 1, 1, ""),
    Program("rcu_sched", 0.4, 40, 1, 1, ""),
    Program("swapper", 2.0, 80, 0, 1, ""),
)


@dataclass(frozen=True, slots=True)
class Role:
    """Threads of one program with the same name: they run the same code."""

    program: Program
    comm: str
    stacks: int


def _roles() -> tuple[Role, ...]:
    """The first threads of a process do most of its work, and have most of its stacks."""
    roles = []
    for program in PROGRAMS:
        names = dict.fromkeys(program.thread_names)
        roles += [Role(program, name, max(20, program.stacks // (2**place))) for place, name in enumerate(names)]
    return tuple(roles)


ROLES = _roles()


# Drawing a thread for a core is one lookup in a table with this many equal parts.
QUANTILES = 4_096
FIRST_PID = 1_180
# Short-lived processes get pids from here on, this many per second.
SHORT_PID = 400_000
SHORT_PIDS_A_SECOND = 37
PID_LIMIT = 4_000_000


def describe(program: Program, pid: int, rng: np.random.Generator, start: int) -> Processes:
    """The row of one process, with the container and pod that its cgroup path names."""
    if program.kernel:
        return Processes(0, pid, 2, 0, program.comm, None, "/")
    container = rng.bytes(32).hex()
    command = program.command or f"{program.path} {program.args}".rstrip()
    row = Processes(0, pid, 1, start, program.comm, command, program.cgroup)
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
    """The threads of the node, numbered; `draw[core, q]` is the thread at quantile q of a core's work. A thread of a
    short-lived program stands for all its processes: its pid is made up when it runs."""

    def __init__(self, cores: int, seed: int, uptime: int) -> None:
        rng = np.random.default_rng([seed, 4])
        comms: dict[str, int] = {}
        processes: list[Processes] = []
        # For each thread: pid, tid, name, program and role; its share of the busy time, and the core it is bound to
        # (-1: any).
        ids: list[tuple[int, int, int, int, int]] = []
        roles = {(role.program.comm, role.comm): place for place, role in enumerate(ROLES)}
        shares: list[float] = []
        bound: list[int] = []

        def add_thread(pids: tuple[int, int], comm: str, number: int, share: float, core: int = -1) -> None:
            program = PROGRAMS[number].comm
            role = roles.get((program, comm), roles[program, program])
            ids.append((*pids, comms.setdefault(comm, len(comms)), number, role))
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
        self.pid, self.tid, self.comm, self.program, self.role = np.array(ids, np.int32).T.copy()
        self.short = np.array([PROGRAMS[number].short for number in self.program], np.bool_)
        self.draw = _draw_by_core(np.array(shares), np.array(bound), cores, rng)
        kubelet = next(i for i, program in enumerate(PROGRAMS) if program.comm == "kubelet")
        self.kubelet_thread = int(np.flatnonzero(self.program == kubelet)[3])


def _draw_by_core(
    shares: npt.NDArray[np.float64], bound: npt.NDArray[np.int64], cores: int, rng: np.random.Generator
) -> npt.NDArray[np.int32]:
    """Every thread has preferred cores: the scheduler keeps it where its caches are warm."""
    draw = np.empty((cores, QUANTILES), np.int32)
    for core in range(cores):
        liking = np.where(bound < 0, rng.lognormal(-1.1, 1.5, len(shares)), 1.0)
        draw[core] = quantile_table(np.where((bound < 0) | (bound == core), shares * liking, 0.0), QUANTILES)
    return draw


def quantile_table(weights: npt.NDArray[np.float64], quantiles: int) -> npt.NDArray[np.int64]:
    """For each of this many equal parts, the weighted item at its middle."""
    edges = np.cumsum(weights / weights.sum())
    middle = (np.arange(quantiles) + 0.5) / quantiles
    return np.minimum(np.searchsorted(edges, middle), len(weights) - 1)


def short_pids(times: npt.NDArray[np.int64], start: int) -> npt.NDArray[np.int32]:
    """The pids of processes started at these times: they increase with time, as a kernel assigns them."""
    elapsed = (times - start) / NANOS * SHORT_PIDS_A_SECOND
    return (SHORT_PID + elapsed.astype(np.int64) % (PID_LIMIT - SHORT_PID)).astype(np.int32)

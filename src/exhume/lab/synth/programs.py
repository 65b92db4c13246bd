"""The programs of a busy Kubernetes node: data for the processes and stacks of a synthetic recording."""

from dataclasses import dataclass

GO = "go"
PYTHON = "python"
JAVA = "java"
NATIVE = "native"
KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class Program:
    """One kind of process: how many there are, how much of the busy time is theirs, and what their stacks look like.

    `share` is relative to the others. `threads` are the names of a process's threads. `enters` names the kernel paths
    that it takes (keys of SYSCALLS; kernel threads: of KERNEL_THREADS). `short` processes live for moments: each burst
    is a new pid.
    """

    comm: str
    language: str
    share: float
    stacks: int
    processes: int = 1
    threads: tuple[str, ...] = ()
    path: str = ""
    enters: tuple[str, ...] = ("read", "socket", "wait", "files")
    in_kernel: float = 0.25
    pod: bool = False
    short: bool = False


PROGRAMS: tuple[Program, ...] = (
    Program(
        "python3",
        PYTHON,
        34.0,
        5200,
        16,
        ("python3", "pt_main_thread", "pt_autograd_0", "pt_data_worker", "cuda-EvtHandlr"),
        "/opt/conda/bin/python3",
        ("gpu", "memory", "wait", "read"),
        0.16,
        pod=True,
    ),
    Program(
        "ray::RolloutWor",
        PYTHON,
        16.0,
        3400,
        48,
        ("ray::RolloutWor", "worker.io", "server.poll0", "jemalloc_bg_thd"),
        "/opt/conda/bin/python3",
        ("socket", "memory", "wait", "read"),
        0.22,
        pod=True,
    ),
    Program(
        "raylet",
        NATIVE,
        4.0,
        1500,
        2,
        ("raylet", "server.poll0", "client.poll1", "plasma.store"),
        "/opt/ray/raylet",
        ("socket", "wait", "files", "memory"),
        0.40,
        pod=True,
    ),
    Program(
        "gcs_server",
        NATIVE,
        1.0,
        500,
        1,
        ("gcs_server", "server.poll0"),
        "/opt/ray/gcs_server",
        ("socket", "wait"),
        0.35,
        pod=True,
    ),
    Program(
        "java",
        JAVA,
        7.0,
        2600,
        4,
        ("java", "C2 CompilerThre", "G1 Conc#0", "GC Thread#3", "kafka-network-t", "http-nio-8080-e"),
        "/usr/lib/jvm/bin/java",
        ("socket", "wait", "memory", "read"),
        0.25,
        pod=True,
    ),
    Program(
        "envoy",
        NATIVE,
        3.5,
        1200,
        6,
        ("envoy", "wrk:worker_0", "wrk:worker_1", "wrk:worker_2"),
        "/usr/local/bin/envoy",
        ("socket", "wait"),
        0.55,
        pod=True,
    ),
    Program(
        "redis-server",
        NATIVE,
        1.5,
        400,
        3,
        ("redis-server", "bio_lazy_free", "io_thd_1"),
        "/usr/bin/redis-server",
        ("socket", "wait"),
        0.50,
        pod=True,
    ),
    Program("kubelet", GO, 0.7, 900, 1, ("kubelet",) * 12, "/usr/bin/kubelet", ("read", "files", "wait"), 0.55),
    Program(
        "containerd",
        GO,
        1.2,
        700,
        1,
        ("containerd",) * 10,
        "/usr/bin/containerd",
        ("socket", "wait", "files", "tasks"),
        0.45,
    ),
    Program(
        "containerd-shim",
        GO,
        0.6,
        300,
        60,
        ("containerd-shim",) * 3,
        "/usr/bin/containerd-shim-runc-v2",
        ("wait", "tasks"),
        0.55,
    ),
    Program(
        "node_exporter",
        GO,
        0.6,
        500,
        1,
        ("node_exporter",) * 6,
        "/bin/node_exporter",
        ("read", "files", "wait"),
        0.65,
        pod=True,
    ),
    Program(
        "cilium-agent",
        GO,
        1.1,
        700,
        1,
        ("cilium-agent",) * 8,
        "/usr/bin/cilium-agent",
        ("socket", "wait", "files"),
        0.45,
        pod=True,
    ),
    Program(
        "kube-proxy",
        GO,
        0.3,
        250,
        1,
        ("kube-proxy",) * 4,
        "/usr/local/bin/kube-proxy",
        ("socket", "wait"),
        0.50,
        pod=True,
    ),
    Program(
        "agent",
        GO,
        1.0,
        600,
        1,
        ("agent",) * 8,
        "/opt/datadog-agent/bin/agent",
        ("read", "files", "socket"),
        0.50,
        pod=True,
    ),
    Program(
        "fluentd",
        NATIVE,
        1.4,
        600,
        1,
        ("fluentd", "flush_thread_0", "enqueue_thread"),
        "/usr/bin/ruby",
        ("read", "write", "socket"),
        0.35,
        pod=True,
    ),
    Program(
        "dcgm-exporter",
        GO,
        0.5,
        300,
        1,
        ("dcgm-exporter", "cache_mgr_main"),
        "/usr/bin/dcgm-exporter",
        ("gpu", "wait"),
        0.60,
        pod=True,
    ),
    Program("systemd", NATIVE, 0.3, 250, 1, ("systemd",), "/usr/lib/systemd/systemd", ("read", "files", "wait"), 0.55),
    Program(
        "systemd-journal",
        NATIVE,
        0.3,
        160,
        1,
        ("systemd-journal",),
        "/usr/lib/systemd/systemd-journald",
        ("write", "wait"),
        0.60,
    ),
    Program("dockerd", GO, 0.4, 300, 1, ("dockerd",) * 6, "/usr/bin/dockerd", ("socket", "wait", "tasks"), 0.50),
    Program("runc", GO, 0.9, 500, 1, (), "/usr/bin/runc", ("tasks", "files", "memory"), 0.70, short=True),
    Program("amazon-ecs-agent", GO, 0.3, 200, 1, (), "/agent", ("socket", "files", "tasks"), 0.55, short=True),
    Program(
        "iptables", NATIVE, 0.4, 150, 1, (), "/usr/sbin/xtables-legacy-multi", ("socket", "tasks"), 0.75, short=True
    ),
    Program("sh", NATIVE, 0.5, 200, 1, (), "/bin/dash", ("tasks", "files", "memory"), 0.75, short=True),
    Program("ksoftirqd", KERNEL, 0.8, 60, 0, (), "", ("ksoftirqd",), 1.0),
    Program("kworker", KERNEL, 0.8, 80, 0, (), "", ("kworker",), 1.0),
    Program("kswapd0", KERNEL, 0.3, 40, 1, ("kswapd0",), "", ("kswapd",), 1.0),
    Program(
        "rcu_sched",
        KERNEL,
        0.4,
        40,
        1,
        ("rcu_sched", "jbd2/nvme0n1p1-", "khugepaged", "kcompactd0"),
        "",
        ("housekeeping",),
        1.0,
    ),
    Program("swapper", KERNEL, 2.0, 80, 0, (), "", (), 1.0),
)

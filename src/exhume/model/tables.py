"""The tables of a recording. Each dataclass is one table: its fields are the columns, their order and their types.

The store derives its Arrow schemas from here, docs/FORMAT.md is checked against it, and sources build their
rows with it. `time` is CLOCK_MONOTONIC nanoseconds of the boot named in the segment; for a row that describes
an interval it is the interval's start. Counters are differences over that interval, never running totals.
A value that could not be read is None, never 0.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

U8 = Annotated[int, "uint8"]
U16 = Annotated[int, "uint16"]
U32 = Annotated[int, "uint32"]
U64 = Annotated[int, "uint64"]
I32 = Annotated[int, "int32"]
I64 = Annotated[int, "int64"]
F64 = Annotated[float, "float64"]
Text = Annotated[str, "string"]
IdList = Annotated[Sequence[int], "list<uint64>"]

# A batch of rows, column by column: lists or numpy arrays of equal length.
Columns = Mapping[str, Any]


@dataclass(slots=True)
class Cpu:
    """One core over one tick, shares in permille of the interval."""

    time: I64
    cpu: U16
    span_ms: U32
    user: U16
    nice: U16
    system: U16
    irq: U16
    softirq: U16
    iowait: U16
    steal: U16
    guest: U16
    idle: U16
    wait_ns: U64 | None = None
    switches: U32 | None = None
    net_rx: U32 | None = None
    net_tx: U32 | None = None


@dataclass(slots=True)
class Sampling:
    """What the stack sampler saw on one core in one tick; idle samples are counted here and not stored."""

    time: I64
    cpu: U16
    busy: U32
    idle: U32
    lost: U32


@dataclass(slots=True)
class Samples:
    """One stack sample, to the millisecond. `weight_us` is the CPU time that it stands for."""

    time_ms: I64
    cpu: U16
    pid: I32
    tid: I32
    comm: Text
    stack: U64
    weight_us: U32


@dataclass(slots=True)
class Stacks:
    """A stack, named by the hash of its frames; root first."""

    stack: U64
    frames: IdList


@dataclass(slots=True)
class Frames:
    """A frame, named by the hash of kind, module and name. kind: kernel, user, jit."""

    frame: U64
    kind: Text
    module: Text
    name: Text


@dataclass(slots=True)
class Processes:
    """A process when the recorder first saw it run (again after an exec, and when a thread of it that keeps a core has
    another scheduling policy than before). `policy` is Linux's number: 0 ordinary, 1 FIFO, 2 RR, 3 batch, 5 idle,
    6 deadline. `pod_name` is namespace/pod and `container_name` namespace/pod/container, for what Kubernetes runs."""

    time: I64
    pid: I32
    ppid: I32 | None = None
    start: I64 | None = None
    comm: Text | None = None
    cmdline: Text | None = None
    cgroup: Text | None = None
    container: Text | None = None
    pod: Text | None = None
    runtime: Text | None = None
    policy: U8 | None = None
    rt_priority: U8 | None = None
    pod_name: Text | None = None
    container_name: Text | None = None


@dataclass(slots=True)
class Cgroups:
    """Cgroup counts of a hierarchy (parent is empty) or of the subtree below a parent."""

    time: I64
    hierarchy: Text
    parent: Text
    kernel: U64 | None = None
    visible: U64 | None = None
    dying: U64 | None = None


@dataclass(slots=True)
class CgroupEvents:
    """The birth (mkdir), removal (rmdir) and end (release) of a cgroup. `created` counts by inode
    arithmetic where there are no tracepoints (op = churn)."""

    time: I64
    hierarchy: I32
    op: Text
    id: U64 | None = None
    level: I32 | None = None
    path: Text | None = None
    pid: I32 | None = None
    comm: Text | None = None
    created: U64 | None = None


@dataclass(slots=True)
class Throttling:
    """A cgroup with a CPU quota, in a tick in which it was throttled. `quota` is what it may use, in cores.

    A throttling that began in one tick and ended in a later one is counted in the first, its time in the other."""

    time: I64
    cgroup: Text
    periods: U32
    throttled: U32
    throttled_ns: U64
    quota: F64 | None = None


@dataclass(slots=True)
class Node:
    """The node as a whole over one tick. psi_* is stalled microseconds; memory is in KiB; the slow
    counts (mounts, net_namespaces) are filled every ten seconds."""

    time: I64
    span_ms: U32
    psi_cpu_some: U64 | None = None
    psi_memory_some: U64 | None = None
    psi_memory_full: U64 | None = None
    psi_io_some: U64 | None = None
    psi_io_full: U64 | None = None
    running: U32 | None = None
    blocked: U32 | None = None
    forks: U64 | None = None
    switches: U64 | None = None
    interrupts: U64 | None = None
    load1: F64 | None = None
    pgfault: U64 | None = None
    pgmajfault: U64 | None = None
    pgscan_kswapd: U64 | None = None
    pgscan_direct: U64 | None = None
    pgsteal_kswapd: U64 | None = None
    pgsteal_direct: U64 | None = None
    allocstall: U64 | None = None
    compact_stall: U64 | None = None
    compact_fail: U64 | None = None
    compact_migrate_scanned: U64 | None = None
    thp_fault_alloc: U64 | None = None
    thp_collapse_alloc: U64 | None = None
    thp_split_page: U64 | None = None
    numa_pte_updates: U64 | None = None
    numa_pages_migrated: U64 | None = None
    pswpin: U64 | None = None
    pswpout: U64 | None = None
    pgpgin: U64 | None = None
    pgpgout: U64 | None = None
    oom_kill: U64 | None = None
    workingset_refault: U64 | None = None
    drop_pagecache: U64 | None = None
    drop_slab: U64 | None = None
    mem_total: U64 | None = None
    mem_free: U64 | None = None
    mem_available: U64 | None = None
    cached: U64 | None = None
    dirty: U64 | None = None
    writeback: U64 | None = None
    shmem: U64 | None = None
    slab_reclaimable: U64 | None = None
    slab_unreclaimable: U64 | None = None
    percpu: U64 | None = None
    kernel_stack: U64 | None = None
    swap_total: U64 | None = None
    swap_free: U64 | None = None
    dentries: U64 | None = None
    dentries_unused: U64 | None = None
    dentries_negative: U64 | None = None
    inodes: U64 | None = None
    mounts: U32 | None = None
    conntrack: U64 | None = None
    conntrack_max: U64 | None = None
    net_namespaces: U64 | None = None


@dataclass(slots=True)
class Softnet:
    """A core's network receive backlog over one tick."""

    time: I64
    cpu: U16
    processed: U32
    dropped: U32
    squeezed: U32


@dataclass(slots=True)
class Interrupts:
    """Interrupts of one line on one core in one tick. `device` and `queue` are set for NIC queues;
    `affinity` is the effective affinity list."""

    time: I64
    irq: Text
    name: Text
    cpu: U16
    count: U32
    device: Text | None = None
    queue: U16 | None = None
    affinity: Text | None = None


@dataclass(slots=True)
class Threads:
    """A per-core kernel thread: time it ran and time it waited to run, in one tick, and the number of time slices in
    which it ran."""

    time: I64
    tid: I32
    comm: Text
    cpu: U16
    run_ns: U64
    wait_ns: U64
    slices: U32 | None = None


@dataclass(slots=True)
class RunDelays:
    """A thread that was sampled on a full core which several threads share: time it ran and time it waited to run, in
    one tick. `cpu` is where it was last sampled, `affinity` the list of cores that it may use; `cgroup` and `cpuset`
    are its paths in the hierarchies of the cpu and the cpuset controller. At most 64 threads a tick; a wait is counted
    in the tick in which it ends."""

    time: I64
    tid: I32
    pid: I32
    comm: Text
    cpu: U16
    run_ns: U64
    wait_ns: U64
    nice: I32 | None = None
    policy: U8 | None = None
    affinity: Text | None = None
    cgroup: Text | None = None
    cpuset: Text | None = None


@dataclass(slots=True)
class CgroupCpu:
    """What a cgroup with threads in `run_delays` may use, when it was first seen there in a segment and when that
    changed. `shares` is cpu.shares; on v2 cpu.weight in the same unit (1024 is a request of one core in Kubernetes).
    `quota` is in cores, null without a limit; `cores` is the list of cores of its cpuset."""

    time: I64
    cgroup: Text
    shares: U64 | None = None
    quota: F64 | None = None
    cores: Text | None = None


@dataclass(slots=True)
class Events:
    """Something that happened: a kernel-log line, a NIC timeout, a restart, an incident mark.

    `kernel_us` is the kernel's own stamp of a log line; `time` is that stamp brought to CLOCK_MONOTONIC (the
    kernel log uses another clock, which drifts from it). Events of containers have their id, name and
    image; those of a pod are named namespace/pod/container and have the pod's uid, its name (namespace/pod) and its
    owner (`deployment/web`), which the cluster's API knows best (kind `pod-owner`). `comm` is the name of a program
    or, in events of systemd, of a unit. `trigger` is what an incident was marked for: core, ksoftirqd, dying-cgroups,
    or the kind of a log line. `exit_code` is how a restarted program ends: its code, or its signal as a negative
    number. `job` is the id of the job that a reported failure is about, `member` the node on which it happened, where
    the sender reported it."""

    time: I64
    source: Text
    kind: Text
    severity: Text
    text: Text
    cpu: U16 | None = None
    pid: I32 | None = None
    comm: Text | None = None
    device: Text | None = None
    queue: U16 | None = None
    value: F64 | None = None
    kernel_us: I64 | None = None
    sequence: U64 | None = None
    container: Text | None = None
    container_name: Text | None = None
    image: Text | None = None
    pod: Text | None = None
    pod_name: Text | None = None
    owner: Text | None = None
    trigger: Text | None = None
    exit_code: I32 | None = None
    job: Text | None = None
    member: Text | None = None


@dataclass(slots=True)
class InventorySections:
    """What the node is made of: one row for a section of the inventory when it was read, at the start of the recording,
    when it changed, and once an hour. `content` is the section as JSON, null where it could not be read; `missing` is a
    JSON list of what is missing of it, each with its reason. A bundle begins with the newest row of each section."""

    time: I64
    section: Text
    content: Text | None = None
    missing: Text | None = None


@dataclass(slots=True)
class Losses:
    """Something that was not recorded, and why."""

    time: I64
    source: Text
    kind: Text
    count: U64
    text: Text
    cpu: U16 | None = None


@dataclass(slots=True)
class Self:
    """The recorder's own cost over one tick."""

    time: I64
    span_ms: U32
    user_us: U32
    system_us: U32
    rss_kb: U32
    rate_hz: U32
    samples: U32
    tick_us: U32
    written_bytes: U64
    ring_fill: U16


@dataclass(slots=True)
class SourceCost:
    """CPU time that one source took over some ticks, at most ten; also what the recorder does besides: `store`, `loop`,
    each observer, `background` (other threads), `children` (processes that ended), `symbols` (the process that reads
    them)."""

    time: I64
    span_ms: U32
    source: Text
    cpu_us: U32


@dataclass(slots=True)
class Anchors:
    """Monotonic and wall time of the same moment."""

    time: I64
    wall: I64


# How much a share of a core's state counts among those of others: programs are what a node is for.
STATE_WEIGHTS = {"user": 0.55}

KERNEL_STATES = ("system", "irq", "softirq")
#: A core is held by the kernel at this much of its own time: a program that is busy runs in user mode as well.
HELD_PERMILLE = 950
# Where the kernel had less of the second itself, the hypervisor holds the core.
_LEAST_HELD_PERMILLE = 500


def is_held(kernel: Any, stolen: Any) -> Any:
    """Whether the kernel held a core, by what it and the hypervisor had of the second: permille, numbers or wide
    arrays. Of the time that the hypervisor left: else a guest that loses some of each second is never held."""
    return (kernel * 1000 >= HELD_PERMILLE * (1000 - stolen)) & (kernel >= _LEAST_HELD_PERMILLE)


# A thread that waits longer than this without a pause stands still: a TCP sender repeats what is not acknowledged by
# then (include/net/tcp.h, TCP_RTO_MIN).
STOOD_STILL_NS = 200_000_000
# How long a fair scheduler lets each waiting thread run at most before it is another's turn: a slice of 3 ms
# (kernel/sched/fair.c, sysctl_sched_base_slice), which ends at a timer tick: every 10 ms with CONFIG_HZ=100.
_SLICE_NS = 10_000_000
# For a core of which the queue is not known: with five threads waiting.
_TURN_NS = 5 * _SLICE_NS


def stood_still(waited_ns: int, run_ns: int, slices: int | None, span_ns: int, queue: float | None) -> bool:
    """Whether a per-core kernel thread waited long without a pause, by its row of a tick of `span_ns` and the number of
    threads that waited for that core on average. The waits of a thread that takes turns with others add up to most of a
    second, although each is short: then their mean is no longer than a turn. One long wait raises the mean, with many
    short ones behind it as well. Without a number of slices, it may have been one wait."""
    if waited_ns < STOOD_STILL_NS:
        return False
    # What can't have passed within the tick is one wait, which began before it.
    if slices is None or waited_ns + run_ns - span_ns >= STOOD_STILL_NS:
        return True
    turn = _TURN_NS if queue is None else max(1.0, queue) * _SLICE_NS
    return waited_ns / max(slices, 1) > turn


def longest_wait(waited_ns: int, run_ns: int, slices: int | None, span_ns: int, queue: float | None) -> float:
    """The longest wait (ns) of a per-core kernel thread, by the same row: all that it waited if it stood still, and the
    mean of its waits if it took turns. Without a number of slices, all that it waited."""
    if slices is None or stood_still(waited_ns, run_ns, slices, span_ns, queue):
        return float(waited_ns)
    return waited_ns / max(slices, 1)


def queue_of(rows: Iterable[Columns], core: int, nanos: int) -> float | None:
    """The number of threads that waited for a core in a tick, on average, by its row of `cpu`; None if not known."""
    for cpu in rows:
        waits = cpu.get("wait_ns")
        for each, waited in zip(cpu["cpu"], waits if waits is not None else (), strict=False):
            if each == core and waited is not None:
                return float(waited) / max(nanos, 1)
    return None


TABLES: dict[str, type] = {
    "cpu": Cpu,
    "sampling": Sampling,
    "samples": Samples,
    "stacks": Stacks,
    "frames": Frames,
    "processes": Processes,
    "cgroups": Cgroups,
    "cgroup_events": CgroupEvents,
    "throttling": Throttling,
    "node": Node,
    "softnet": Softnet,
    "interrupts": Interrupts,
    "threads": Threads,
    "run_delays": RunDelays,
    "cgroup_cpu": CgroupCpu,
    "events": Events,
    "inventory": InventorySections,
    "losses": Losses,
    "self": Self,
    "source_cost": SourceCost,
    "anchors": Anchors,
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: `kind` is the Arrow name of its type."""

    name: str
    kind: str
    nullable: bool


@cache
def columns_of(table: str) -> tuple[Column, ...]:
    """The columns of a table, read off its dataclass."""
    hints = get_type_hints(TABLES[table], include_extras=True)
    return tuple(_column(field.name, hints[field.name]) for field in fields(TABLES[table]))


def _column(name: str, hint: Any) -> Column:
    nullable = get_origin(hint) is UnionType or NoneType in get_args(hint)
    if nullable:
        hint = next(arg for arg in get_args(hint) if arg is not NoneType)
    return Column(name, hint.__metadata__[0], nullable)


def to_columns(table: str, rows: Iterable[Any]) -> Columns:
    """Rows (dataclass instances of one table) turned into columns."""
    names, values_of = _row_reader(table)
    columns = list(zip(*map(values_of, rows), strict=True))
    return dict(zip(names, map(list, columns), strict=True)) if columns else {name: [] for name in names}


@cache
def _row_reader(table: str) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The names of a table's columns, and what takes their values out of a row."""
    names = tuple(column.name for column in columns_of(table))
    return names, attrgetter(*names)


KERNEL_LOG = "kernel-log"
INCIDENT = "incident"
RECORDER = "recorder"
RESTART = "restart"
# Owners of pods, as the cluster's API has them.
API_SOURCE, POD_OWNER = "kubernetes", "pod-owner"
# What an incident is marked for, besides kinds of log lines.
HOT_CORE, WAITING_KSOFTIRQD, DYING_CGROUPS = "core", "ksoftirqd", "dying-cgroups"
NIC_TX_TIMEOUT = "nic-tx-timeout"
# Losses whose count is the sampler's new rate, in Hz.
RATE_CHANGES = ("rate-lowered", "rate-raised", "rate-refused")


def loss_total(kind: str, count: int) -> int:
    """What a loss adds to the sum of its kind: of changes of the rate, each is one."""
    return 1 if kind in RATE_CHANGES else count

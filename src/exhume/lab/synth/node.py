"""Node-wide tables of a synthetic recording: cgroups, network, memory."""

import numpy as np
import numpy.typing as npt

from exhume.lab.synth.sampling import SampledMinute
from exhume.lab.synth.workload import SHORT_PID, SHORT_PIDS_A_SECOND
from exhume.lab.synth.world import (
    DEVICE,
    LEAKED_A_MINUTE,
    MINUTE_S,
    NIC_QUEUES,
    RATE_HZ,
    VISIBLE,
    World,
    core_seconds,
    dead_cgroups,
)
from exhume.model.clock import MILLIS, NANOS
from exhume.model.tables import CgroupEvents, Cgroups, Columns, to_columns

HIERARCHY = "memory"
HIERARCHY_ID = 4
COUNT_EVERY_S = 10
PARENTS = {"/kubepods": 176, "/system.slice": 47, "/docker": 1}


def cgroup_counts(world: World, starts: npt.NDArray[np.int64]) -> Columns:
    """What the kernel tracks against what can be seen, as a whole and for the subtrees below the root."""
    rows = []
    for start in starts[::COUNT_EVERY_S].tolist():
        dead = dead_cgroups(world.plan, start)
        rows.append(Cgroups(start, HIERARCHY, "", VISIBLE + dead, VISIBLE, dead))
        rows += [Cgroups(start, HIERARCHY, parent, None, count, None) for parent, count in PARENTS.items()]
    return to_columns("cgroups", rows)


def cgroup_events(world: World, minute: int, starts: npt.NDArray[np.int64]) -> Columns:
    """The agent's containers, made and removed but never released, and a pod's that end as they should."""
    rng = np.random.default_rng([world.seed, 8, minute])
    begin, end = int(starts[0]), int(starts[-1]) + NANOS
    rows: list[CgroupEvents] = []
    every = MINUTE_S * NANOS // LEAKED_A_MINUTE
    made = minute * (LEAKED_A_MINUTE + 1)
    for number, born in enumerate(range(begin, end, every)):
        rows += _life(world, f"/docker/{rng.bytes(32).hex()}", made + number, (born, born + 3 * NANOS))
    pod = f"/kubepods/burstable/pod{rng.bytes(16).hex()}/{rng.bytes(32).hex()}"
    removed = begin + 3 * NANOS
    rows += _life(world, pod, made + LEAKED_A_MINUTE, (begin + NANOS, removed, removed + 40 * MILLIS))
    # A life that the end of the minute cuts off is left out: no reader expects a part of one.
    rows = sorted((row for row in rows if row.time < end), key=lambda row: row.time)
    return to_columns("cgroup_events", rows)


def _life(world: World, path: str, number: int, moments: tuple[int, ...]) -> list[CgroupEvents]:
    """Birth, removal and end of one cgroup; a dead one that stays has no third moment."""
    # On v1 each memory cgroup moves the inode of the next one by 32.
    inode, level = 2_200_000 + 32 * number, path.count("/")
    pid = SHORT_PID + (moments[0] - world.timeline.start) // NANOS * SHORT_PIDS_A_SECOND
    actors = (("mkdir", pid, "runc"), ("rmdir", pid + 3, "runc"), ("release", 16, "kworker/0:1"))
    return [
        CgroupEvents(time, HIERARCHY_ID, op, inode, level, path, by, comm)
        for time, (op, by, comm) in zip(moments, actors, strict=False)
    ]


FIRST_IRQ = 72
IntArray = npt.NDArray[np.int64]


def held_ns(world: World, starts: IntArray) -> IntArray:
    """seconds x cores: how long the incident held the core."""
    held = np.zeros((len(starts), world.cores), np.int64)
    held[:, world.plan.cpu] = [world.plan.overlap(int(start), int(start) + NANOS) for start in starts]
    return held


def waited_ns(world: World, starts: IntArray) -> IntArray:
    """seconds x cores: what waited for the held core; the kernel counts a wait in the moment in which it ends."""
    waited = np.zeros((len(starts), world.cores), np.int64)
    ends_at = (world.plan.stop - int(starts[0])) // NANOS
    if 0 <= ends_at < len(starts):
        waited[ends_at, world.plan.cpu] = world.plan.stop - world.plan.start
    return waited


def softnet(world: World, sampled: SampledMinute, starts: IntArray, rng: np.random.Generator) -> Columns:
    free = 1.0 - held_ns(world, starts) / NANOS
    processed = (sampled.softirq * rng.integers(300, 900, free.shape) * free).astype(np.int64).ravel()
    return {
        **core_seconds(world, starts),
        "processed": processed,
        "dropped": np.zeros(free.size, np.uint32),
        "squeezed": (rng.random(free.size) < 0.002).astype(np.uint32),
    }


def interrupts(world: World, sampled: SampledMinute, starts: IntArray, rng: np.random.Generator) -> Columns:
    queues = np.arange(NIC_QUEUES)
    free = (1.0 - held_ns(world, starts) / NANOS)[:, world.queue_core]
    heat = sampled.softirq[:, world.queue_core] * 40 + 25
    count = (heat * rng.uniform(0.5, 1.5, free.shape) * free).astype(np.int64)
    second, queue = np.nonzero(count)
    names = np.array([f"{DEVICE}-Tx-Rx-{number}" for number in queues])
    cores = world.queue_core[queue]
    return {
        "time": starts[second],
        "irq": np.char.mod("%d", FIRST_IRQ + queue).tolist(),
        "name": names[queue].tolist(),
        "cpu": cores,
        "count": count[second, queue],
        "device": [DEVICE] * len(queue),
        "queue": queue,
        "affinity": np.char.mod("%d", cores).tolist(),
    }


KIB_PER_GIB = 1 << 20
# What a dead memory cgroup keeps: slab that can't be reclaimed, and per-CPU memory on every core.
SLAB_KIB_PER_DEAD = 11.9
PERCPU_KIB_PER_DEAD = 2
# Counted only every ten seconds, because counting them costs.
SLOW_EVERY_S = 10


def node(world: World, sampled: SampledMinute, starts: npt.NDArray[np.int64], rng: np.random.Generator) -> Columns:
    seconds = len(starts)
    busy = (RATE_HZ - sampled.idle).sum(axis=1) / RATE_HZ
    dead = np.array([dead_cgroups(world.plan, start) for start in starts.tolist()])

    def around(mean: float | npt.NDArray[np.float64], spread: float = 0.2) -> npt.NDArray[np.int64]:
        return np.maximum(0, mean * rng.normal(1.0, spread, seconds)).astype(np.int64)

    def none() -> npt.NDArray[np.int64]:
        return np.zeros(seconds, np.int64)

    total = max(4, world.cores * 8) * KIB_PER_GIB
    percpu = dead * PERCPU_KIB_PER_DEAD * world.cores + 2048 * world.cores
    slab = (dead * SLAB_KIB_PER_DEAD).astype(np.int64) + KIB_PER_GIB
    cached = around(total * 0.35, 0.002)
    free = np.maximum(total // 50, total - cached - percpu - slab - around(total * 0.4, 0.01))
    # Reclaim comes in bursts, in a few seconds of a minute.
    scanned = np.where(rng.random(seconds) < 0.05, around(8_000.0, 0.5), 0)
    refaults = scanned // 20
    slow = np.arange(seconds) % SLOW_EVERY_S == 0
    return {
        "time": starts,
        "span_ms": np.full(seconds, 1000),
        "psi_cpu_some": around(busy * 900),
        "psi_memory_some": scanned // 30,
        "psi_memory_full": scanned // 90,
        "psi_io_some": around(3_000.0, 0.5),
        "psi_io_full": around(1_200.0, 0.5),
        "running": around(busy + 1),
        "blocked": (rng.random(seconds) < 0.1).astype(np.int64),
        "forks": around(37.0),
        "switches": around(busy * 3_200),
        "interrupts": around(busy * 2_400),
        "load1": np.round(busy * rng.normal(1.0, 0.02, seconds), 2),
        "pgfault": around(busy * 4_000),
        "pgmajfault": (rng.random(seconds) < 0.05).astype(np.int64),
        "pgscan_kswapd": scanned,
        "pgscan_direct": none(),
        "pgsteal_kswapd": (scanned * 0.93).astype(np.int64),
        "pgsteal_direct": none(),
        "allocstall": none(),
        "compact_stall": none(),
        "compact_fail": none(),
        "compact_migrate_scanned": scanned // 8,
        "thp_fault_alloc": around(busy * 2),
        "thp_collapse_alloc": none(),
        "thp_split_page": none(),
        "numa_pte_updates": around(busy * 300),
        "numa_pages_migrated": around(busy * 5),
        "pswpin": none(),
        "pswpout": none(),
        "pgpgin": around(9_000.0, 0.5),
        "pgpgout": around(21_000.0, 0.5),
        "oom_kill": none(),
        "workingset_refault": refaults,
        "drop_pagecache": none(),
        "drop_slab": none(),
        "mem_total": np.full(seconds, total),
        "mem_free": free,
        "mem_available": free + cached * 8 // 10,
        "cached": cached,
        "dirty": around(180_000.0),
        "writeback": around(500.0, 0.8),
        "shmem": around(total * 0.02, 0.001),
        "slab_reclaimable": around(2.5 * KIB_PER_GIB, 0.002),
        "slab_unreclaimable": slab,
        "percpu": percpu,
        "kernel_stack": around(90_000.0, 0.01),
        "swap_total": none(),
        "swap_free": none(),
        "dentries": around(4_800_000.0, 0.001),
        "dentries_unused": around(4_100_000.0, 0.001),
        "dentries_negative": around(900_000.0, 0.002),
        "inodes": around(1_900_000.0, 0.001),
        "mounts": [int(count) if now else None for count, now in zip(around(640.0, 0.01), slow, strict=True)],
        "conntrack": around(48_000.0, 0.01),
        "conntrack_max": np.full(seconds, 262_144),
        "net_namespaces": [int(count) if now else None for count, now in zip(around(74.0, 0.01), slow, strict=True)],
    }

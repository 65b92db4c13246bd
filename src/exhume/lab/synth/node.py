"""The node as a whole, second by second: memory that fills with dead cgroups, faults that follow the load."""

import numpy as np
import numpy.typing as npt

from exhume.lab.synth.incident import dead_cgroups
from exhume.lab.synth.sampling import SampledMinute
from exhume.lab.synth.world import RATE_HZ, World
from exhume.model.tables import Columns

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

"""Cgroups of a synthetic node: an agent that restarts forever leaves a dead one behind each time."""

import numpy as np
import numpy.typing as npt

from exhume.lab.synth.fleet import SHORT_PID, SHORT_PIDS_A_SECOND
from exhume.lab.synth.incident import LEAKED_A_MINUTE, VISIBLE, dead_cgroups
from exhume.lab.synth.timeline import MINUTE_S
from exhume.lab.synth.world import World
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
    # A life that the end of the minute cuts off is not told: nobody leans on its halves.
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

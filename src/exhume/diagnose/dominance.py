"""How much of each core one process has, second by second: a core that is always full may change hands."""

import numpy as np

from exhume.diagnose.rows import Floats
from exhume.model.clock import NANOS
from exhume.model.window import Window
from exhume.store.read.recording import Recording

# Reading more samples than this only to find the seconds to look at would take longer than the look itself.
MOST_SAMPLES = 2_000_000
_PID_BITS = 32


def shares_of_the_largest(recording: Recording, context: Window, seconds: int) -> Floats | None:
    """The share of the process that has most, by core (row) and second; None without samples, or with too many."""
    facts = recording.facts
    if seconds * max(1, facts.cores) * max(1, facts.rate_hz) > MOST_SAMPLES:
        return None
    rows = recording.read("samples", context, ["cpu", "pid", "weight_us", "wall"])
    if not rows.num_rows:
        return None
    cpu, pid, wall = (rows.column(name).to_numpy().astype(np.int64) for name in ("cpu", "pid", "wall"))
    weight = rows.column("weight_us").to_numpy().astype(np.float64) / 1e6
    known = pid > 0
    cpu, pid, wall, weight = cpu[known], pid[known], wall[known], weight[known]
    if not len(cpu):
        return None
    bins = np.clip((wall - context.since) // NANOS, 0, seconds - 1)
    distinct, members = np.unique((cpu * seconds + bins) << _PID_BITS | pid, return_inverse=True)
    sums = np.bincount(members, weight, len(distinct))
    largest = np.zeros((int(cpu.max()) + 1) * seconds)
    np.maximum.at(largest, distinct >> _PID_BITS, sums)
    return np.minimum(largest, 1.0).reshape(-1, seconds)

"""The stack samples of one synthetic minute, and what they say about each core and second."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exhume.lab.synth.stacks import QUANTILES as STACK_QUANTILES
from exhume.lab.synth.stacks import SOFTIRQ, SYSTEM, USER
from exhume.lab.synth.workload import QUANTILES as THREAD_QUANTILES
from exhume.lab.synth.workload import short_pids
from exhume.lab.synth.world import MINUTE_S, RATE_HZ, World
from exhume.model.clock import MILLIS, NANOS
from exhume.model.tables import Columns

# A thread keeps its core for about three samples (30 ms) before another has its turn.
TURNOVER = 0.35
WEIGHT_US = round(1_000_000 / RATE_HZ)


class SampledMinute:
    """Samples in the order of seconds, then cores. The counts of `user`, `system`, `softirq` and `idle` are
    seconds x cores; `short_threads` are the threads of the short-lived processes that were caught, by pid."""

    def __init__(self, world: World, minute: int, rng: np.random.Generator) -> None:
        fleet, catalogue, seconds = world.fleet, world.catalogue, world.timeline.seconds_in(minute)
        instants = seconds * RATE_HZ
        ticks = np.arange(instants, dtype=np.int64) * NANOS // RATE_HZ
        times = world.timeline.start_of(minute) + ticks[None, :] + world.phase[:, None]

        # A turn is a stretch of samples in which one thread, or none, has the core.
        begins = rng.random((world.cores, instants), np.float32) < TURNOVER
        begins[:, 0] = True
        heads = np.flatnonzero(begins)
        core_of_turn = heads // instants
        busy = world.load.busy(minute * MINUTE_S, seconds, rng)[core_of_turn, heads % instants // RATE_HZ]
        thread_of_turn = fleet.draw[core_of_turn, rng.integers(0, THREAD_QUANTILES, len(heads))]
        thread_of_turn = np.where(rng.random(len(heads), np.float32) < busy, thread_of_turn, -1)
        pid_of_turn = short_pids(times.ravel()[heads], world.timeline.start)
        turn = (np.cumsum(begins.ravel(), dtype=np.int32) - 1).reshape(begins.shape)

        held = np.zeros(times.shape, np.bool_)
        core = world.plan.cpu
        held[core] = (world.plan.start <= times[core]) & (times[core] < world.plan.stop)
        thread = thread_of_turn[turn]
        thread[held] = fleet.kubelet_thread

        def by_second(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return values.reshape(world.cores, seconds, RATE_HZ).transpose(1, 0, 2).ravel()

        everyone = by_second(thread)
        caught = np.flatnonzero(everyone >= 0)
        threads = everyone[caught]
        stack = catalogue.draw[fleet.program[threads], rng.integers(0, STACK_QUANTILES, len(threads))].astype(np.int64)
        walking = np.flatnonzero(by_second(held)[caught])
        # Most samples of the walk are in its innermost loop.
        depth = (rng.random(len(walking)) ** 3 * len(catalogue.zombie_walk)).astype(np.int64)
        stack[walking] = catalogue.zombie_walk[depth]

        short = fleet.short[threads]
        pid = np.where(short, pid_of_turn[by_second(turn)[caught]], fleet.pid[threads])
        cell = caught // RATE_HZ
        self.samples: Columns = {
            "time_ms": by_second(times)[caught] // MILLIS,
            "cpu": (cell % world.cores).astype(np.uint16),
            "pid": pid,
            "tid": np.where(short, pid, fleet.tid[threads]),
            "comm": pa.array(fleet.comms).take(pa.array(fleet.comm[threads])),
            "stack": catalogue.stack_ids[stack],
            "weight_us": np.full(len(caught), WEIGHT_US, np.uint32),
        }
        self.rows_by_second = np.bincount(cell // world.cores, minlength=seconds)
        self.stacks = np.unique(stack)
        self.user, self.system, self.softirq = (
            np.bincount(cell[catalogue.kind[stack] == kind], minlength=seconds * world.cores).reshape(seconds, -1)
            for kind in (USER, SYSTEM, SOFTIRQ)
        )
        self.idle = RATE_HZ - self.user - self.system - self.softirq
        self.short_threads = dict(zip(pid[short].tolist(), threads[short].tolist(), strict=True))

"""The network of a synthetic node: each queue's interrupts go to one core, and stop while that core is held."""

import numpy as np
import numpy.typing as npt

from exhume.lab.synth.incident import DEVICE
from exhume.lab.synth.sampling import SampledMinute
from exhume.lab.synth.world import NIC_QUEUES, World, core_seconds
from exhume.model.clock import NANOS
from exhume.model.tables import Columns

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

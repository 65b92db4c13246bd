"""Everything about a synthetic node that holds for the whole recording: built once from the seed, the same anywhere."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exhume import __version__
from exhume.lab.synth.catalogue import Catalogue, build_catalogue
from exhume.lab.synth.fleet import Fleet, build_fleet
from exhume.lab.synth.incident import QUEUE, Plan, plan_incident
from exhume.lab.synth.load import Load, build_load
from exhume.lab.synth.programs import PROGRAMS
from exhume.lab.synth.timeline import Timeline
from exhume.model.facts import RecordingFacts

RATE_HZ = 97
NIC_QUEUES = 32


@dataclass(frozen=True, slots=True)
class World:
    cores: int
    seed: int
    timeline: Timeline
    catalogue: Catalogue
    fleet: Fleet
    load: Load
    plan: Plan
    facts: RecordingFacts
    # When in its period each core is sampled, in nanoseconds, and which core serves each queue of the network card.
    phase: npt.NDArray[np.int64]
    queue_core: npt.NDArray[np.int64]

    def rng(self, minute: int) -> np.random.Generator:
        """Each minute draws from its own well, so minutes can be written in any order and by several processes."""
        return np.random.default_rng([self.seed, 10, minute])


def build_world(cores: int, seconds: int, seed: int) -> World:
    timeline = Timeline(seconds)
    plan = plan_incident(timeline, cores, seed)
    rng = np.random.default_rng([seed, 6])
    queue_core = rng.permutation(max(cores, NIC_QUEUES))[:NIC_QUEUES] % cores
    # The queue that is reset is the one whose core is held.
    queue_core[QUEUE] = plan.cpu
    return World(
        cores,
        seed,
        timeline,
        build_catalogue(PROGRAMS, seed),
        build_fleet(cores, seed, timeline.start),
        build_load(cores, seconds, seed),
        plan,
        RecordingFacts(
            node=f"synthetic-{seed}",
            boot_id=rng.bytes(16).hex(),
            cores=cores,
            kernel="5.4.0-synthetic",
            arch="x86_64",
            event_source="cycles",
            rate_hz=RATE_HZ,
            exhume_version=__version__,
        ),
        rng.integers(0, 1_000_000_000 // RATE_HZ, cores),
        queue_core,
    )


def core_seconds(world: World, starts: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[np.generic]]:
    """The columns that tables with a row for each core and second begin with."""
    cores = np.arange(world.cores, dtype=np.uint16)
    return {"time": np.repeat(starts, world.cores), "cpu": np.tile(cores, len(starts))}

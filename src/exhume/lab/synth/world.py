"""What is common to a whole synthetic recording: its timeline, its load, the planted incident, the node."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exhume import __version__
from exhume.lab.synth.stacks import Catalogue
from exhume.lab.synth.workload import Fleet
from exhume.model.clock import NANOS
from exhume.model.facts import RecordingFacts

# 2025-03-03T18:00:00Z: fixed, so that the same seed writes the same bytes on any day.
WALL_START = 1_741_024_800 * NANOS
UPTIME = 7 * 86_400 * NANOS + 5_417 * NANOS + 250_000_000
MINUTE_S = 60


@dataclass(frozen=True, slots=True)
class Timeline:
    """`seconds` ticks of one second each, cut into minutes; the last minute may be shorter."""

    seconds: int
    start: int = UPTIME

    @property
    def minutes(self) -> int:
        return -(-self.seconds // MINUTE_S)

    def seconds_in(self, minute: int) -> int:
        return min(MINUTE_S, self.seconds - minute * MINUTE_S)

    def start_of(self, minute: int) -> int:
        return self.start + minute * MINUTE_S * NANOS

    def wall(self, time: int) -> int:
        return time - self.start + WALL_START


# A read of memory.numa_stat walks every memory cgroup and holds its core this long; the driver notices at its watchdog.
LENGTH_NS = 6_600 * NANOS // 1000
NOTICED_NS = 6_596 * NANOS // 1000
RESET_NS = NOTICED_NS + 312 * NANOS // 1000
QUEUE = 5
DEVICE = "eth0"
DRIVER = f"ena 0000:00:05.0 {DEVICE}: "

TRACKED = 68_680
VISIBLE = 240
# The crash-looping agent leaves this many dead cgroups per minute.
LEAKED_A_MINUTE = 8
# systemd starts the agent's unit at this pace.
RESTART_EVERY_NS = MINUTE_S * NANOS // LEAKED_A_MINUTE


@dataclass(frozen=True, slots=True)
class Incident:
    """What was planted, so that a test can look for it. Times are wall-clock nanoseconds; the span is half-open."""

    cpu: int
    pid: int
    tid: int
    comm: str
    since: int
    until: int
    log_time: int
    function: str = "mem_cgroup_nr_lru_pages"
    queue: int = QUEUE
    cgroups_tracked: int = TRACKED
    cgroups_visible: int = VISIBLE


@dataclass(frozen=True, slots=True)
class Plan:
    """The same incident on the recording's own clock (monotonic nanoseconds)."""

    cpu: int
    start: int
    stop: int

    def overlap(self, since: int, until: int) -> int:
        """How much of [since, until) the incident takes, in nanoseconds."""
        return max(0, min(self.stop, until) - max(self.start, since))

    def dead_cgroups(self, time: int) -> int:
        """The number of dead memory cgroups at a time: it grows with each restart of the agent."""
        minutes = (time - self.start) / (60 * NANOS)
        return max(0, TRACKED - VISIBLE + int(minutes * LEAKED_A_MINUTE))

    def log_lines(self) -> list[tuple[int, str]]:
        """The kernel's log lines about it, with the kernel's own times."""
        noticed, reset = self.start + NOTICED_NS, self.start + RESET_NS
        paused = f"TX q {QUEUE} is paused for too long (threshold 5000000). "
        done = "Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.11.0g"
        return [
            (noticed, f"{DRIVER}{paused}Time since last napi {NOTICED_NS // 1000} usec. napi scheduled: 1"),
            (noticed + 11_000, f"{DRIVER}napi handler hasn't been called for a long time but is scheduled"),
            (reset, f"{DRIVER}{done}"),
        ]


def plan_incident(timeline: Timeline, cores: int, seed: int) -> Plan:
    """Choose a core and a time in the middle of the recording from the seed alone, with a quiet second before it,
    within one minute (minutes are written separately). In a recording that is too short, it is at the start of its
    minute."""
    rng = np.random.default_rng([seed, 3])
    cpu = int(rng.integers(cores))
    minute = int(timeline.minutes * rng.uniform(0.2, 0.8))
    room = timeline.seconds_in(minute) * NANOS - RESET_NS - 2 * NANOS
    into = 0 if room <= 0 else NANOS + int(room * rng.random())
    start = timeline.start_of(minute) + into
    return Plan(cpu, start, start + LENGTH_NS)


DAY_S = 86_400
MEAN_BUSY = 0.41
# A training job runs for about this long; between two jobs its cores are idle for a moment.
JOB_S = 2_400
LULL_S = 45


class Load:
    """The busy share of every core in every second of the recording."""

    def __init__(self, cores: int, seconds: int, seed: int) -> None:
        rng = np.random.default_rng([seed, 5])
        moment = np.arange(seconds, dtype=np.float64)
        rhythm = 1.0 + 0.25 * np.sin(2 * np.pi * (moment / DAY_S + rng.random()))
        for job_start in np.cumsum(rng.exponential(JOB_S, int(seconds / JOB_S * 2) + 1)):
            rhythm[int(job_start) : int(job_start) + LULL_S] *= 0.45
        by_core = rng.lognormal(-0.08, 0.4, cores)
        self._by_second = (MEAN_BUSY * rhythm / rhythm.mean()).astype(np.float32)
        self._by_core = (by_core / by_core.mean()).astype(np.float32)

    def busy(self, first: int, seconds: int, rng: np.random.Generator) -> npt.NDArray[np.float32]:
        """The busy shares (cores x seconds), with random variation added to each second."""
        level = self._by_core[:, None] * self._by_second[None, first : first + seconds]
        noise = rng.gamma(6.0, 1 / 6.0, level.shape).astype(np.float32)
        busy: npt.NDArray[np.float32] = np.clip(level * noise, 0.01, 0.98)
        return busy


RATE_HZ = 97
NIC_QUEUES = 32


class World:
    """The node. `phase` is the time within its period at which each core is sampled, in nanoseconds; `queue_core` is
    the core that serves each queue of the network card."""

    def __init__(self, cores: int, seconds: int, seed: int) -> None:
        self.cores, self.seed = cores, seed
        self.timeline = Timeline(seconds)
        self.catalogue = Catalogue(seed)
        self.fleet = Fleet(cores, seed, self.timeline.start)
        self.load = Load(cores, seconds, seed)
        self.plan = plan_incident(self.timeline, cores, seed)
        rng = np.random.default_rng([seed, 6])
        self.queue_core = rng.permutation(max(cores, NIC_QUEUES))[:NIC_QUEUES] % cores
        # The queue that is reset is the one whose core is held.
        self.queue_core[QUEUE] = self.plan.cpu
        self.facts = RecordingFacts(
            node=f"synthetic-{seed}",
            boot_id=rng.bytes(16).hex(),
            cores=cores,
            kernel="5.4.0-synthetic",
            arch="x86_64",
            event_source="cycles",
            rate_hz=RATE_HZ,
            exhume_version=__version__,
        )
        self.phase = rng.integers(0, 1_000_000_000 // RATE_HZ, cores)

    def rng(self, minute: int) -> np.random.Generator:
        """A separate random generator per minute, so that minutes can be written in any order and by several
        processes."""
        return np.random.default_rng([self.seed, 10, minute])

"""The incident planted in a synthetic recording: one core is held by a kernel loop until a network queue is reset."""

from dataclasses import dataclass

import numpy as np

from exhume.lab.synth.timeline import Timeline
from exhume.model.clock import NANOS

# A read of memory.numa_stat walks every memory cgroup and holds its core this long; the driver notices at its watchdog.
LENGTH_NS = 6_600 * NANOS // 1000
NOTICED_NS = 6_596 * NANOS // 1000
RESET_NS = NOTICED_NS + 312 * NANOS // 1000
QUEUE = 5
DEVICE = "eth0"
DRIVER = f"ena 0000:00:05.0 {DEVICE}: "

TRACKED = 68_680
VISIBLE = 240
# The crash-looping agent leaves this many dead cgroups a minute.
LEAKED_A_MINUTE = 8


@dataclass(frozen=True, slots=True)
class Incident:
    """What was planted, so that a test can look for it. Times are wall-clock nanoseconds; the span is half-open."""

    cpu: int
    pid: int
    tid: int
    comm: str
    function: str
    since: int
    until: int
    log_time: int
    queue: int
    cgroups_tracked: int
    cgroups_visible: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The same incident on the recording's own clock (monotonic nanoseconds)."""

    cpu: int
    start: int
    stop: int

    def overlap(self, since: int, until: int) -> int:
        """How much of [since, until) the incident takes, in nanoseconds."""
        return max(0, min(self.stop, until) - max(self.start, since))


def plan_incident(timeline: Timeline, cores: int, seed: int) -> Plan:
    """A core and a moment in the middle of the recording, by the seed alone, with a quiet second before it and inside
    one minute (minutes are written apart). One that is too short for that has it at the start of its minute."""
    rng = np.random.default_rng([seed, 3])
    cpu = int(rng.integers(cores))
    minute = int(timeline.minutes * rng.uniform(0.2, 0.8))
    room = timeline.seconds_in(minute) * NANOS - RESET_NS - 2 * NANOS
    into = 0 if room <= 0 else NANOS + int(room * rng.random())
    start = timeline.start_of(minute) + into
    return Plan(cpu, start, start + LENGTH_NS)


def dead_cgroups(plan: Plan, time: int) -> int:
    """Dead memory cgroups at a moment: they grow with each restart of the agent."""
    minutes = (time - plan.start) / (60 * NANOS)
    return max(0, TRACKED - VISIBLE + int(minutes * LEAKED_A_MINUTE))


def log_lines(plan: Plan) -> list[tuple[int, str]]:
    """What the kernel says about it, at the kernel's own times."""
    noticed, reset = plan.start + NOTICED_NS, plan.start + RESET_NS
    paused = f"TX q {QUEUE} is paused for too long (threshold 5000000). "
    return [
        (noticed, f"{DRIVER}{paused}Time since last napi {NOTICED_NS // 1000} usec. napi scheduled: 1"),
        (noticed + 11_000, f"{DRIVER}napi handler hasn't been called for a long time but is scheduled"),
        (
            reset,
            f"{DRIVER}Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.11.0g",
        ),
    ]

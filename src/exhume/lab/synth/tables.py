"""Build all tables of one synthetic minute, as columns. The kernel's counters are consistent with the samples."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exhume.collect.incidents import IncidentMarks
from exhume.collect.perf.restarts import LEAST_LIVES, Life, Loop, restart_event
from exhume.collect.sources.container_events import DockerEventSource
from exhume.collect.sources.kmsg import KernelLogSource
from exhume.collect.sources.kmsg_signatures import PLAIN_KIND, recognise
from exhume.collect.sources.unit_events import ENDED, RESTARTED, STARTED, UnitEventSource
from exhume.lab.synth.inventory import inventory_rows
from exhume.lab.synth.stacks import QUANTILES as STACK_QUANTILES
from exhume.lab.synth.stacks import SOFTIRQ, SYSTEM, USER
from exhume.lab.synth.workload import PROGRAMS, SHORT_PID, SHORT_PIDS_A_SECOND, describe, short_pids
from exhume.lab.synth.workload import QUANTILES as THREAD_QUANTILES
from exhume.lab.synth.world import (
    DEVICE,
    LEAKED_A_MINUTE,
    MINUTE_S,
    NIC_QUEUES,
    RATE_HZ,
    RESTART_EVERY_NS,
    VISIBLE,
    World,
)
from exhume.model.clock import MILLIS, NANOS, Tick
from exhume.model.tables import CgroupEvents, Cgroups, Columns, Events, Processes, to_columns

# A thread keeps its core for about three samples (30 ms) before another one gets its turn.
TURNOVER = 0.35
WEIGHT_US = round(1_000_000 / RATE_HZ)


class SampledMinute:
    """Samples in order of seconds, then cores. The counts `user`, `system`, `softirq` and `idle` are seconds x cores;
    `short_threads` are the sampled threads of short-lived processes, by pid."""

    def __init__(self, world: World, minute: int, rng: np.random.Generator) -> None:
        fleet, catalogue, seconds = world.fleet, world.catalogue, world.timeline.seconds_in(minute)
        instants = seconds * RATE_HZ
        ticks = np.arange(instants, dtype=np.int64) * NANOS // RATE_HZ
        times = world.timeline.start_of(minute) + ticks[None, :] + world.phase[:, None]

        # A turn is a series of samples in which one thread, or none, has the core.
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
        stack = catalogue.draw[fleet.role[threads], rng.integers(0, STACK_QUANTILES, len(threads))].astype(np.int64)
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


IntArray = npt.NDArray[np.int64]

HIERARCHY, HIERARCHY_ID = "memory", 4
# Counted only every ten seconds, because counting is expensive.
COUNT_EVERY_S = 10
PARENTS = {"/kubepods": 176, "/system.slice": 47, "/docker": 1}
FIRST_IRQ = 72
# The agent's container, which Docker runs; its exit code, and the time after which its cgroup is removed.
AGENT, IMAGE, AGENT_CODE, AGENT_LIVES_NS = "ecs-agent", "amazon/amazon-ecs-agent:latest", 5, 3 * NANOS
# The unit that runs the agent, its script, and the client that the script waits for: how long before the container's
# cgroup each starts, and how long after its removal both are gone. No sampled process has one of their pids.
UNIT, SCRIPT, CLIENT = "ecs.service", "ecs-agent-start", f"docker run --rm --name {AGENT} {IMAGE}"
SCRIPT_BEFORE_NS, CLIENT_BEFORE_NS, UNIT_AFTER_NS = 200 * MILLIS, 190 * MILLIS, 20 * MILLIS
UNIT_PID = SHORT_PID - 100_000
KIB_PER_GIB = 1 << 20
# What a dead memory cgroup keeps: unreclaimable slab, and per-CPU memory on every core.
SLAB_KIB_PER_DEAD = 11.9
PERCPU_KIB_PER_DEAD = 2
# Node counters that don't change.
STILL = (
    *("pgscan_direct", "pgsteal_direct", "allocstall", "compact_stall", "compact_fail", "thp_collapse_alloc"),
    *("thp_split_page", "pswpin", "pswpout", "oom_kill", "drop_pagecache", "drop_slab", "swap_total", "swap_free"),
)

# How the recorder's CPU time is divided among its sources, and the seconds that one row covers.
SOURCE_SHARES = {"stacks": 0.55, "store": 0.2, "cpu": 0.08, "node": 0.08, "interrupts": 0.05, "loop": 0.04}
COSTED_S = 10


class Minute:
    """One minute of a recording. `held` and `waited` are seconds x cores in nanoseconds: how long the incident held the
    core, and what waited for it (the kernel counts a wait when it ends)."""

    def __init__(self, world: World, minute: int) -> None:
        self.world, self.minute, self.rng = world, minute, world.rng(minute)
        self.seconds = world.timeline.seconds_in(minute)
        self.starts = world.timeline.start_of(minute) + np.arange(self.seconds, dtype=np.int64) * NANOS
        self.begin, self.end = int(self.starts[0]), int(self.starts[-1]) + NANOS
        self.sampled = SampledMinute(world, minute, self.rng)
        plan = world.plan
        self.held = np.zeros((self.seconds, world.cores), np.int64)
        self.held[:, plan.cpu] = [plan.overlap(start, start + NANOS) for start in self.starts.tolist()]
        self.waited = np.zeros_like(self.held)
        if self.begin <= plan.stop < self.end:
            self.waited[(plan.stop - self.begin) // NANOS, plan.cpu] = plan.stop - plan.start
        # The first columns of tables with a row for each core and second.
        cores = np.arange(world.cores, dtype=np.uint16)
        self.cells: Columns = {"time": np.repeat(self.starts, world.cores), "cpu": np.tile(cores, self.seconds)}

    def tables(self) -> Iterator[tuple[str, Columns]]:
        """Yield each table with its columns, in the order in which they use the minute's random numbers."""
        yield "samples", self.sampled.samples
        yield from self.stacks_and_frames()
        yield "processes", self.processes()
        lost = np.zeros(self.held.size, np.uint32)
        busy = (RATE_HZ - self.sampled.idle).ravel()
        yield "sampling", {**self.cells, "busy": busy, "idle": self.sampled.idle.ravel(), "lost": lost}
        watched = {"cpu": self.cpu(), "threads": self.threads(), "events": self.events(), "cgroups": self.cgroups()}
        if self.begin <= self.world.plan.start <= self.starts[-1]:
            # Run the recorder's own incident detection on the minute, so that the same marks are set.
            watched["events"] = self.with_marks(watched)
        yield from watched.items()
        yield "softnet", self.softnet()
        yield "interrupts", self.interrupts()
        yield "node", self.node()
        yield "cgroup_events", self.cgroup_events()
        yield "throttling", self.throttling()
        yield from self.competition()
        if self.minute % MINUTE_S == 17:
            # A tick that is late by milliseconds loses nothing; an overwritten log line is lost.
            row = {"time": [self.begin], "source": ["kernel-log"], "kind": ["log-gap"], "count": [1]}
            yield "losses", {**row, "text": ["the kernel overwrote a line of its log before it was read"]}
        if (inventory := inventory_rows(self.world, self.minute)) is not None:
            yield "inventory", inventory
        own = self.own_cost()
        yield "self", own
        yield "source_cost", self.source_cost(own)
        ends = self.starts + NANOS
        yield "anchors", {"time": ends, "wall": ends + self.world.timeline.wall(0)}

    def stacks_and_frames(self) -> Iterator[tuple[str, Columns]]:
        catalogue, used = self.world.catalogue, self.sampled.stacks
        starts = catalogue.offsets[used]
        lengths = (catalogue.offsets[used + 1] - starts).astype(np.int32)
        offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
        # The concatenated indices start, start + 1, ... of every span.
        spans = np.repeat(starts - offsets[:-1], lengths) + np.arange(int(lengths.sum()), dtype=np.int64)
        flat = catalogue.flat[spans]
        frames = pa.ListArray.from_arrays(pa.array(offsets), pa.array(catalogue.frame_ids[flat]))
        yield "stacks", {"stack": catalogue.stack_ids[used], "frames": frames}
        needed = np.unique(flat)
        kinds, modules, names = map(list, zip(*(catalogue.frames[i] for i in needed.tolist()), strict=True))
        yield "frames", {"frame": catalogue.frame_ids[needed], "kind": kinds, "module": modules, "name": names}

    def processes(self) -> Columns:
        rows, agents = list(self.world.fleet.processes), self.agent_containers(self.churn())
        # Seeded by the pid, so that a process that lives across two minutes has the same description in both.
        for pid, thread in sorted(self.sampled.short_threads.items()):
            program = PROGRAMS[self.world.fleet.program[thread]]
            row = describe(program, pid, np.random.default_rng([self.world.seed, 7, pid]), self.begin)
            if row.runtime == "docker":
                # The agent runs in the newest container.
                begun = self.begin + (pid - SHORT_PID) * NANOS // SHORT_PIDS_A_SECOND % (MINUTE_S * NANOS)
                row.container = [number for born, number in agents if born <= begun][-1]
                row.cgroup = f"/docker/{row.container}"
            rows.append(row)
        known = {**to_columns("processes", rows), "time": [self.begin] * len(rows)}
        of_unit = to_columns("processes", list(self.unit_processes()))
        return {name: [*values, *of_unit[name]] for name, values in known.items()}

    def unit_processes(self) -> Iterator[Processes]:
        """The unit's script and its client, which the recorder describes because they are restarted."""
        for born in self.unit_runs():
            started, script = born - SCRIPT_BEFORE_NS, self.unit_pid(born)
            command = f"/bin/sh /usr/libexec/{SCRIPT}"
            if self.begin <= started < self.end and self.lives_until(born):
                yield Processes(started, script, 1, started, SCRIPT, command, f"/system.slice/{UNIT}")
                client = born - CLIENT_BEFORE_NS
                yield Processes(client, script + 1, script, client, "docker", CLIENT, f"/system.slice/{UNIT}")

    def cpu(self) -> Columns:
        sampled, rng, cells = self.sampled, self.rng, self.held.size
        user, system, softirq = (
            (count * 1000 // RATE_HZ).ravel() for count in (sampled.user, sampled.system, sampled.softirq)
        )
        free = 1000 - user - system - softirq
        irq = np.minimum(free, rng.integers(0, 3, cells))
        iowait = np.minimum(free - irq, (rng.random(cells) ** 6 * 40).astype(np.int64))
        busy = (RATE_HZ - sampled.idle).ravel()
        quiet = (self.held > NANOS // 2).ravel()
        return {
            **self.cells,
            **dict.fromkeys(("nice", "steal", "guest"), np.zeros(cells, np.uint16)),
            "span_ms": np.full(cells, 1000, np.uint32),
            "user": user,
            "system": system,
            "irq": irq,
            "softirq": softirq,
            "iowait": iowait,
            "idle": free - irq - iowait,
            "wait_ns": (rng.gamma(1.2, 150_000, cells) * busy).astype(np.int64) + 2 * self.waited.ravel(),
            "switches": np.where(quiet, 1, busy * 31 + rng.integers(40, 400, cells)),
            "net_rx": np.where(quiet, 0, sampled.softirq.ravel() * 180 + rng.integers(0, 60, cells)),
            "net_tx": np.where(quiet, 0, sampled.softirq.ravel() // 4),
        }

    def threads(self) -> Columns:
        """The ksoftirqd of each core, in the seconds in which it ran or waited."""
        held, rng = self.held.ravel(), self.rng
        run = (self.sampled.softirq.ravel() * rng.integers(50_000, 900_000, held.size)).astype(np.int64)
        run[held > 0] = 0
        wait = np.where(run > 0, rng.gamma(1.5, 200_000, held.size).astype(np.int64), 0) + self.waited.ravel()
        moved = np.flatnonzero((run > 0) | (wait > 0))
        cores = moved % self.world.cores
        return {
            "time": self.starts[moved // self.world.cores],
            "tid": 15 + 6 * cores,
            "comm": [f"ksoftirqd/{core}" for core in cores.tolist()],
            "cpu": cores,
            "run_ns": run[moved],
            "wait_ns": wait[moved],
            # Some 0.3 ms of work each time; a single one after the incident.
            "slices": 1 + run[moved] // 300_000,
        }

    def events(self) -> Columns:
        rng = self.rng
        lines = [(time, text) for time, text in self.world.plan.log_lines() if self.begin <= time < self.end]
        for _ in range(int(rng.poisson(1.5))):
            name = rng.bytes(4).hex()
            renamed = rng.random() < 0.5
            text = f"eth0: renamed from veth{name}" if renamed else f"cni0: port 7(veth{name}) entered blocking state"
            lines.append((int(rng.integers(self.begin, self.end)), text))
        rows = []
        for place, (time, text) in enumerate(sorted(lines)):
            known = recognise(text)
            row = Events(time, KernelLogSource.name, PLAIN_KIND, "info", text)
            # The log of a busy day: at most a hundred lines per minute, numbered across minutes.
            row.kernel_us, row.sequence = time // 1000, 20_000 + self.minute * 100 + place
            if known is not None:
                row.kind, row.severity = known.kind, known.severity
                for name, value in known.fields.items():
                    setattr(row, name, value)
            rows.append(row)
        rows += [*self.container_events(), *self.unit_events(), *self.restart_events()]
        return to_columns("events", sorted(rows, key=lambda row: row.time))

    def container_events(self) -> Iterator[Events]:
        """Docker's events about the agent's containers: each starts, and ends with the agent's error."""
        for born, number in self.agent_containers(self.churn()):
            for time, kind, message in (
                (born + 150 * MILLIS, "container-start", "started"),
                (born + AGENT_LIVES_NS - 150 * MILLIS, "container-die", f"ended with code {AGENT_CODE}"),
            ):
                if time < self.end:
                    row = Events(
                        time, DockerEventSource.name, kind, "info", f"container {AGENT} (image {IMAGE}) {message}"
                    )
                    row.container, row.container_name, row.image = number, AGENT, IMAGE
                    row.value = float(AGENT_CODE) if kind == "container-die" else None
                    yield row

    def unit_runs(self) -> range:
        """When each container is created whose unit may start or end within the minute."""
        return range(self.begin - RESTART_EVERY_NS, self.end + RESTART_EVERY_NS, RESTART_EVERY_NS)

    def unit_pid(self, born: int) -> int:
        return UNIT_PID + 2 * ((born - self.world.timeline.start) // RESTART_EVERY_NS)

    def unit_events(self) -> Iterator[Events]:
        """systemd's signals about the unit: each run ends with the agent's exit code."""
        for born in self.unit_runs():
            started, ended = born - SCRIPT_BEFORE_NS, born + AGENT_LIVES_NS + UNIT_AFTER_NS
            number = born // RESTART_EVERY_NS
            again = f"was started again by systemd ({number} times by now)"
            # A restart is noticed at the end of a tick.
            noticed = started + (self.begin - started) % NANOS
            for time, kind, message, value, pid in (
                (started, STARTED, "started", None, self.unit_pid(born)),
                (noticed, RESTARTED, again, float(number), None),
                (ended, ENDED, f"ended with code {AGENT_CODE}", float(AGENT_CODE), None),
            ):
                if self.begin <= time < self.end and time > self.world.timeline.start:
                    row = Events(time, UnitEventSource.name, kind, "info", f"unit {UNIT} {message}")
                    row.pid, row.comm, row.value = pid, UNIT, value
                    yield row

    def restart_events(self) -> Iterator[Events]:
        """The client, which fails each time with the script around it, as the recorder sees it from its exits."""
        for born in self.unit_runs():
            lives = self.lives_until(born)
            if lives and self.begin <= lives[-1].ended < self.end:
                # Each row has the lives since the last one.
                new = len(lives) if len(lives) == LEAST_LIVES else 1
                yield restart_event(Loop(SCRIPT, 1, deque(lives, 8), new, parent_name="systemd"))

    def lives_until(self, born: int) -> list[Life]:
        """The unit's runs since the recording began, the last one being that of a container; empty if they are too few
        for a loop."""
        first = self.world.timeline.start + RESTART_EVERY_NS
        lives = [
            Life(
                self.unit_pid(each),
                each - SCRIPT_BEFORE_NS,
                each + AGENT_LIVES_NS + UNIT_AFTER_NS,
                AGENT_CODE << 8,
                ("docker", self.unit_pid(each) + 1),
            )
            for each in range(max(first, born - 8 * RESTART_EVERY_NS), born + 1, RESTART_EVERY_NS)
        ]
        return lives if len(lives) >= LEAST_LIVES else []

    def churn(self) -> np.random.Generator:
        """The random numbers of the cgroups created in the minute, which two tables name."""
        return np.random.default_rng([self.world.seed, 8, self.minute])

    def agent_containers(self, rng: np.random.Generator) -> list[tuple[int, str]]:
        """When each of the agent's containers is created, and its id."""
        return [(born, rng.bytes(32).hex()) for born in range(self.begin, self.end, RESTART_EVERY_NS)]

    def with_marks(self, watched: dict[str, Columns]) -> Columns:
        """The minute's events with the incident marks that a recorder would have added, second by second."""
        marks = IncidentMarks()
        columns = {name: list(values) for name, values in watched["events"].items()}
        for index, start in enumerate(self.starts.tolist()):
            rows = {}
            for table, all_rows in watched.items():
                times = np.asarray(all_rows["time"], np.int64)
                inside = np.flatnonzero((start <= times) & (times < start + NANOS)).tolist()
                if inside:
                    rows[table] = {name: [values[i] for i in inside] for name, values in all_rows.items()}
            added = marks.observe(Tick(index, start, start + NANOS, 0), [rows]).get("events", {"time": []})
            for name in columns:
                columns[name] += added.get(name, [None] * len(added["time"]))
        return columns

    def cgroups(self) -> Columns:
        """What the kernel tracks compared with what is visible, in total and for the subtrees below the root."""
        rows = []
        for start in self.starts[::COUNT_EVERY_S].tolist():
            dead = self.world.plan.dead_cgroups(start)
            rows.append(Cgroups(start, HIERARCHY, "", VISIBLE + dead, VISIBLE, dead))
            rows += [Cgroups(start, HIERARCHY, parent, None, count, None) for parent, count in PARENTS.items()]
        return to_columns("cgroups", rows)

    def softnet(self) -> Columns:
        free = 1.0 - self.held / NANOS
        processed = (self.sampled.softirq * self.rng.integers(300, 900, free.shape) * free).astype(np.int64).ravel()
        squeezed = (self.rng.random(free.size) < 0.002).astype(np.uint32)
        return {**self.cells, "processed": processed, "dropped": np.zeros(free.size, np.uint32), "squeezed": squeezed}

    def interrupts(self) -> Columns:
        queue_core = self.world.queue_core
        free = (1.0 - self.held / NANOS)[:, queue_core]
        heat = self.sampled.softirq[:, queue_core] * 40 + 25
        count = (heat * self.rng.uniform(0.5, 1.5, free.shape) * free).astype(np.int64)
        second, queue = np.nonzero(count)
        names = np.array([f"{DEVICE}-Tx-Rx-{number}" for number in range(NIC_QUEUES)])
        cores = queue_core[queue]
        return {
            "time": self.starts[second],
            "irq": np.char.mod("%d", FIRST_IRQ + queue).tolist(),
            "name": names[queue].tolist(),
            "cpu": cores,
            "count": count[second, queue],
            "device": [DEVICE] * len(queue),
            "queue": queue,
            "affinity": np.char.mod("%d", cores).tolist(),
        }

    def node(self) -> Columns:
        rng, seconds = self.rng, self.seconds
        busy = (RATE_HZ - self.sampled.idle).sum(axis=1) / RATE_HZ
        dead = np.array([self.world.plan.dead_cgroups(start) for start in self.starts.tolist()])

        def around(mean: float | npt.NDArray[np.float64], spread: float = 0.2) -> IntArray:
            return np.maximum(0, mean * rng.normal(1.0, spread, seconds)).astype(np.int64)

        def seldom(mean: float) -> list[int | None]:
            counts = around(mean, 0.01).tolist()
            return [count if second % COUNT_EVERY_S == 0 else None for second, count in enumerate(counts)]

        total = max(4, self.world.cores * 8) * KIB_PER_GIB
        percpu = dead * PERCPU_KIB_PER_DEAD * self.world.cores + 2048 * self.world.cores
        slab = (dead * SLAB_KIB_PER_DEAD).astype(np.int64) + KIB_PER_GIB
        cached = around(total * 0.35, 0.002)
        free = np.maximum(total // 50, total - cached - percpu - slab - around(total * 0.4, 0.01))
        # Reclaim comes in bursts, in a few seconds of a minute.
        scanned = np.where(rng.random(seconds) < 0.05, around(8_000.0, 0.5), 0)
        return {
            **dict.fromkeys(STILL, np.zeros(seconds, np.int64)),
            "time": self.starts,
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
            "pgsteal_kswapd": (scanned * 0.93).astype(np.int64),
            "compact_migrate_scanned": scanned // 8,
            "thp_fault_alloc": around(busy * 2),
            "numa_pte_updates": around(busy * 300),
            "numa_pages_migrated": around(busy * 5),
            "pgpgin": around(9_000.0, 0.5),
            "pgpgout": around(21_000.0, 0.5),
            "workingset_refault": scanned // 20,
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
            "dentries": around(4_800_000.0, 0.001),
            "dentries_unused": around(4_100_000.0, 0.001),
            "dentries_negative": around(900_000.0, 0.002),
            "inodes": around(1_900_000.0, 0.001),
            "mounts": seldom(640.0),
            "conntrack": around(48_000.0, 0.01),
            "conntrack_max": np.full(seconds, 262_144),
            "net_namespaces": seldom(74.0),
        }

    def cgroup_events(self) -> Columns:
        """The agent's containers, created and removed but never released, and containers of a pod that end properly."""
        rng = self.churn()
        rows: list[CgroupEvents] = []
        made = self.minute * (LEAKED_A_MINUTE + 1)
        for number, (born, container) in enumerate(self.agent_containers(rng)):
            rows += self.cgroup_life(f"/docker/{container}", made + number, (born, born + AGENT_LIVES_NS))
        pod = f"/kubepods/burstable/pod{rng.bytes(16).hex()}/{rng.bytes(32).hex()}"
        removed = self.begin + 3 * NANOS
        moments = (self.begin + NANOS, removed, removed + 40 * MILLIS)
        rows += self.cgroup_life(pod, made + LEAKED_A_MINUTE, moments)
        # A life that the end of the minute would cut off is left out, as no reader expects a part of one.
        rows = sorted((row for row in rows if row.time < self.end), key=lambda row: row.time)
        return to_columns("cgroup_events", rows)

    def cgroup_life(self, path: str, number: int, moments: tuple[int, ...]) -> list[CgroupEvents]:
        """Creation, removal and release of one cgroup; a dead one that stays has no third time."""
        # On v1 each memory cgroup moves the inode of the next one by 32.
        inode, level = 2_200_000 + 32 * number, path.count("/")
        pid = SHORT_PID + (moments[0] - self.world.timeline.start) // NANOS * SHORT_PIDS_A_SECOND
        actors = (("mkdir", pid, "runc"), ("rmdir", pid + 3, "runc"), ("release", 16, "kworker/0:1"))
        return [
            CgroupEvents(time, HIERARCHY_ID, op, inode, level, path, by, comm)
            for time, (op, by, comm) in zip(moments, actors, strict=False)
        ]

    def throttling(self) -> Columns:
        pods = [row.cgroup for row in self.world.fleet.processes if row.pod is not None][::7]
        hit = np.argwhere(self.rng.random((self.seconds, len(pods))) < 0.06)
        throttled = self.rng.integers(1, 8, len(hit))
        return {
            "time": self.starts[hit[:, 0]],
            "cgroup": [pods[i] for i in hit[:, 1].tolist()],
            "periods": np.full(len(hit), 10),
            "throttled": throttled,
            "throttled_ns": throttled * self.rng.integers(1_000_000, 40_000_000, len(hit)),
        }

    def competition(self) -> Iterator[tuple[str, Columns]]:
        """The threads of a few pods that share a full core in some seconds, and what their cgroups may use."""
        pods = [row for row in self.world.fleet.processes if row.pod is not None][::17]
        hit = np.argwhere(self.rng.random((self.seconds, len(pods))) < 0.1)
        chosen = [pods[i] for i in hit[:, 1].tolist()]
        run = self.rng.integers(100_000_000, 500_000_000, len(hit))
        pids, paths = [row.pid for row in chosen], [row.cgroup for row in chosen]
        yield (
            "run_delays",
            {
                "time": self.starts[hit[:, 0]],
                "tid": pids,
                "pid": pids,
                "comm": [row.comm or "" for row in chosen],
                "cpu": self.rng.integers(0, self.world.cores, len(hit)),
                "run_ns": run,
                "wait_ns": (run * self.rng.uniform(0.02, 0.4, len(hit))).astype(np.int64),
                "nice": [0] * len(hit),
                "policy": [0] * len(hit),
                "affinity": [f"0-{self.world.cores - 1}"] * len(hit),
                "cgroup": paths,
                "cpuset": paths,
            },
        )
        distinct = list(dict.fromkeys(paths))
        columns: Columns = {"time": [self.begin] * len(distinct), "cgroup": distinct, "shares": [256] * len(distinct)}
        yield "cgroup_cpu", columns

    def own_cost(self) -> Columns:
        rows, rng, seconds = self.sampled.rows_by_second, self.rng, self.seconds
        return {
            "time": self.starts,
            "span_ms": np.full(seconds, 1000),
            "user_us": 6_000 + rows + rng.integers(0, 900, seconds),
            "system_us": 2_500 + rng.integers(0, 500, seconds),
            "rss_kb": 82_000 + rng.integers(0, 2_000, seconds),
            "rate_hz": np.full(seconds, RATE_HZ),
            "samples": rows,
            "tick_us": 9_000 + rows + rng.integers(0, 3_000, seconds),
            "written_bytes": rows * 40 + 20_000,
            "ring_fill": rng.integers(20, 60, seconds),
        }

    def source_cost(self, own: Columns) -> Columns:
        """The CPU time of the minute, divided as on a real node: one row of ten seconds for each source."""
        used = own["user_us"] + own["system_us"]
        begins = np.arange(0, self.seconds, COSTED_S)
        spent = np.add.reduceat(used, begins)
        spans = np.diff(np.append(begins, self.seconds)) * 1000
        sources = list(SOURCE_SHARES)
        shares = np.array(list(SOURCE_SHARES.values()))
        return {
            "time": np.repeat(self.starts[begins], len(sources)),
            "span_ms": np.repeat(spans, len(sources)),
            "source": sources * len(begins),
            "cpu_us": (spent[:, None] * shares).astype(np.uint32).ravel(),
        }

"""All tables of one synthetic minute, as columns. Whatever the samples say, the counters of the kernel agree with."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exhume.collect.incidents import IncidentMarks
from exhume.collect.sources.kmsg import KernelLogSource
from exhume.collect.sources.kmsg_signatures import PLAIN_KIND, recognise
from exhume.lab.synth.node import cgroup_counts, cgroup_events, held_ns, interrupts, node, softnet, waited_ns
from exhume.lab.synth.sampling import SampledMinute, sample_minute
from exhume.lab.synth.workload import PROGRAMS, describe
from exhume.lab.synth.world import MINUTE_S, RATE_HZ, World, core_seconds, log_lines
from exhume.model.clock import NANOS, Tick
from exhume.model.tables import Columns, Events, to_columns

IntArray = npt.NDArray[np.int64]


def minute_tables(world: World, minute: int) -> Iterator[tuple[str, Columns, IntArray | None]]:
    """Each table with its columns; for samples also how many rows each second has, as the recorder commits them."""
    rng = world.rng(minute)
    seconds = world.timeline.seconds_in(minute)
    starts = world.timeline.start_of(minute) + np.arange(seconds, dtype=np.int64) * NANOS
    sampled = sample_minute(world, minute, rng)
    yield "samples", sampled.samples, sampled.rows_by_second
    yield "stacks", _stacks(world, sampled.stacks), None
    yield "frames", _frames(world, sampled.stacks), None
    yield "processes", _processes(world, sampled, int(starts[0])), None
    yield "sampling", _sampling(world, sampled, starts), None
    watched = {
        "cpu": _cpu(world, sampled, starts, rng),
        "threads": _threads(world, sampled, starts, rng),
        "events": _events(world, minute, starts, rng),
        "cgroups": cgroup_counts(world, starts),
    }
    if starts[0] <= world.plan.start <= starts[-1]:
        # The recorder's own eyes look at the incident's minute: what it would have marked is marked.
        watched["events"] = _with_marks(watched, starts)
    for table, columns in watched.items():
        yield table, columns, None
    yield "softnet", softnet(world, sampled, starts, rng), None
    yield "interrupts", interrupts(world, sampled, starts, rng), None
    yield "node", node(world, sampled, starts, rng), None
    yield "cgroup_events", cgroup_events(world, minute, starts), None
    yield "throttling", _throttling(world, starts, rng), None
    yield "losses", _losses(minute, starts, rng), None
    yield "self", _self(sampled, starts, rng), None
    ends = starts + NANOS
    yield "anchors", {"time": ends, "wall": ends + world.timeline.wall(0)}, None


def _stacks(world: World, used: IntArray) -> Columns:
    catalogue = world.catalogue
    lengths = (catalogue.offsets[used + 1] - catalogue.offsets[used]).astype(np.int32)
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    flat = catalogue.flat[_spans(catalogue.offsets[used], lengths)]
    frames = pa.ListArray.from_arrays(pa.array(offsets), pa.array(catalogue.frame_ids[flat]))
    return {"stack": catalogue.stack_ids[used], "frames": frames}


def _spans(starts: IntArray, lengths: npt.NDArray[np.int32]) -> IntArray:
    """The indexes start, start + 1, .. of every span, one after another."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)


def _frames(world: World, used: IntArray) -> Columns:
    catalogue = world.catalogue
    lengths = (catalogue.offsets[used + 1] - catalogue.offsets[used]).astype(np.int32)
    needed = np.unique(catalogue.flat[_spans(catalogue.offsets[used], lengths)])
    kinds, modules, names = zip(*(catalogue.frames[i] for i in needed.tolist()), strict=True)
    return {"frame": catalogue.frame_ids[needed], "kind": list(kinds), "module": list(modules), "name": list(names)}


def _processes(world: World, sampled: SampledMinute, start: int) -> Columns:
    rows = list(world.fleet.processes)
    # Seeded by the pid, so that a process that lives across a minute is described alike in both.
    for pid, thread in sorted(sampled.short_threads.items()):
        program = PROGRAMS[world.fleet.program[thread]]
        rows.append(describe(program, pid, np.random.default_rng([world.seed, 7, pid]), start))
    columns = dict(to_columns("processes", rows))
    columns["time"] = [start] * len(rows)
    return columns


def _sampling(world: World, sampled: SampledMinute, starts: IntArray) -> Columns:
    busy = RATE_HZ - sampled.idle
    lost = np.zeros(busy.size, np.uint32)
    return core_seconds(world, starts) | {"busy": busy.ravel(), "idle": sampled.idle.ravel(), "lost": lost}


def _cpu(world: World, sampled: SampledMinute, starts: IntArray, rng: np.random.Generator) -> Columns:
    def permille(count: IntArray) -> IntArray:
        return (count * 1000 // RATE_HZ).ravel()

    user, system, softirq = (permille(count) for count in (sampled.user, sampled.system, sampled.softirq))
    free = 1000 - user - system - softirq
    irq = np.minimum(free, rng.integers(0, 3, user.size))
    iowait = np.minimum(free - irq, (rng.random(user.size) ** 6 * 40).astype(np.int64))
    busy = (RATE_HZ - sampled.idle).ravel()
    nothing = np.zeros(user.size, np.uint16)
    quiet = (held_ns(world, starts) > NANOS // 2).ravel()
    return {
        **core_seconds(world, starts),
        "span_ms": np.full(user.size, 1000, np.uint32),
        "user": user,
        "nice": nothing,
        "system": system,
        "irq": irq,
        "softirq": softirq,
        "iowait": iowait,
        "steal": nothing,
        "guest": nothing,
        "idle": free - irq - iowait,
        "wait_ns": (rng.gamma(1.2, 150_000, user.size) * busy).astype(np.int64) + 2 * waited_ns(world, starts).ravel(),
        "switches": np.where(quiet, 1, busy * 31 + rng.integers(40, 400, user.size)),
        "net_rx": np.where(quiet, 0, sampled.softirq.ravel() * 180 + rng.integers(0, 60, user.size)),
        "net_tx": np.where(quiet, 0, sampled.softirq.ravel() // 4),
    }


def _threads(world: World, sampled: SampledMinute, starts: IntArray, rng: np.random.Generator) -> Columns:
    """ksoftirqd of each core, in the seconds in which it ran or waited."""
    held = held_ns(world, starts).ravel()
    run = (sampled.softirq.ravel() * rng.integers(50_000, 900_000, held.size)).astype(np.int64)
    run[held > 0] = 0
    wait = np.where(run > 0, rng.gamma(1.5, 200_000, held.size).astype(np.int64), 0) + waited_ns(world, starts).ravel()
    moved = np.flatnonzero((run > 0) | (wait > 0))
    cores = moved % world.cores
    return {
        "time": starts[moved // world.cores],
        "tid": 15 + 6 * cores,
        "comm": [f"ksoftirqd/{core}" for core in cores.tolist()],
        "cpu": cores,
        "run_ns": run[moved],
        "wait_ns": wait[moved],
    }


def _throttling(world: World, starts: IntArray, rng: np.random.Generator) -> Columns:
    pods = [row.cgroup for row in world.fleet.processes if row.pod is not None][::7]
    hit = np.argwhere(rng.random((len(starts), len(pods))) < 0.06)
    throttled = rng.integers(1, 8, len(hit))
    return {
        "time": starts[hit[:, 0]],
        "cgroup": [pods[i] for i in hit[:, 1].tolist()],
        "periods": np.full(len(hit), 10),
        "throttled": throttled,
        "throttled_ns": throttled * rng.integers(1_000_000, 40_000_000, len(hit)),
    }


def _events(world: World, minute: int, starts: IntArray, rng: np.random.Generator) -> Columns:
    begin, end = int(starts[0]), int(starts[-1]) + NANOS
    lines = [(time, text) for time, text in log_lines(world.plan) if begin <= time < end]
    for _ in range(int(rng.poisson(1.5))):
        name = rng.bytes(4).hex()
        renamed = rng.random() < 0.5
        text = f"eth0: renamed from veth{name}" if renamed else f"cni0: port 7(veth{name}) entered blocking state"
        lines.append((int(rng.integers(begin, end)), text))
    rows = []
    for place, (time, text) in enumerate(sorted(lines)):
        known = recognise(text)
        row = Events(time, KernelLogSource.name, PLAIN_KIND, "info", text)
        # A log of a busy day: at most a hundred lines a minute, numbered across minutes.
        row.kernel_us, row.sequence = time // 1000, 20_000 + minute * 100 + place
        if known is not None:
            row.kind, row.severity = known.kind, known.severity
            for name, value in known.fields.items():
                setattr(row, name, value)
        rows.append(row)
    return to_columns("events", rows)


def _with_marks(watched: dict[str, Columns], starts: IntArray) -> Columns:
    """The minute's events with the incident marks that a recorder would have added, second by second."""
    marks = IncidentMarks()
    columns = {name: list(values) for name, values in watched["events"].items()}
    for index, start in enumerate(starts.tolist()):
        tick = Tick(index, start, start + NANOS, 0)
        rows = {table: _between(table_columns, start, start + NANOS) for table, table_columns in watched.items()}
        added = marks.observe(tick, [{table: part for table, part in rows.items() if len(part["time"])}])
        new = added.get("events", {"time": []})
        for name in columns:
            columns[name] += new.get(name, [None] * len(new["time"]))
    return columns


def _between(columns: Columns, since: int, until: int) -> Columns:
    times = np.asarray(columns["time"], np.int64)
    inside = np.flatnonzero((since <= times) & (times < until)).tolist()
    return {name: [values[i] for i in inside] for name, values in columns.items()}


def _losses(minute: int, starts: IntArray, rng: np.random.Generator) -> Columns:
    if minute % MINUTE_S != 17:
        return {}
    late = int(rng.integers(20, 90))
    return {
        "time": starts[:1],
        "source": ["loop"],
        "kind": ["late-tick"],
        "count": [1],
        "text": [f"the tick came {late} ms late"],
    }


def _self(sampled: SampledMinute, starts: IntArray, rng: np.random.Generator) -> Columns:
    rows = sampled.rows_by_second
    return {
        "time": starts,
        "span_ms": np.full(len(starts), 1000),
        "user_us": 6_000 + rows + rng.integers(0, 900, len(starts)),
        "system_us": 2_500 + rng.integers(0, 500, len(starts)),
        "rss_kb": 82_000 + rng.integers(0, 2_000, len(starts)),
        "rate_hz": np.full(len(starts), RATE_HZ),
        "samples": rows,
        "tick_us": 9_000 + rows + rng.integers(0, 3_000, len(starts)),
        "written_bytes": rows * 40 + 20_000,
        "ring_fill": rng.integers(20, 60, len(starts)),
    }

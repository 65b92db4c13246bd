"""Write synthetic lakes: the minutes, attributes, incidents and failed jobs of a fleet, with a planted cause.

Nodes with the planted attributes run an agent that leaks memory cgroups from boot on; after six to eight days a walk
over them takes five seconds, and incidents begin. Other attributes correlate with the planted ones to some degree, and
some nodes are mislabelled. Sick nodes may come in clusters (racks, jobs, rollout waves) that share most of their other
attributes, without a cause or in addition to one. What was planted is written next to the lake, never into it.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from exhume.fleet.lake import encodings
from exhume.fleet.schema import ATTRIBUTES, INCIDENTS, JOBS, SUMMARIES, LakeTable
from exhume.model.clock import NANOS
from exhume.model.errors import LabError, UsageError, os_reason
from exhume.model.job_event import JOB_FAILED

HOUR_US, DAY_US, MINUTE_US = 3_600_000_000, 86_400_000_000, 60_000_000
# Measured, plus a margin: refuse before a disk is full, not after.
BYTES_PER_NODE_DAY, SPARE_BYTES = 80_000, 256 << 20
# A walk over all cgroups that takes this long stops a network card (net/sched/sch_generic.c, dev_watchdog).
_STALL_S = 5.0
# Days of uptime until then, cgroups leaked per hour, and hours between incidents from then on.
_DAYS, _LEAK_PER_HOUR, _HOURS_BETWEEN = (6.0, 8.0), (300.0, 500.0), 8.0
# Days of uptime of the nodes when the lake begins, and days between two boots.
_UPTIME_DAYS, _LIFE_DAYS = 12.0, (12.0, 16.0)
# The first push of attributes is this many days before the first minute of the lake.
_HISTORY_DAYS = 10
_COSTLY = 10_000
_PLANTED = "zombie-memcgs"
OTHER_CAUSES = ("cfs-throttling", "memory-shortage", "softirq-storm", "user-hog", "writeback-storm", _PLANTED)
# Share of nodes with other trouble of their own.
_OTHER_TROUBLE = 0.01
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What to write. `until` (wall nanoseconds) is the end of the lake, at a full hour; `sick` is the share of nodes
    with incidents, from the planted cause or, without one, at random; `noise` is the share of mislabelled nodes."""

    nodes: int
    days: float
    until: int
    seed: int = 1
    sick: float = 0.2
    cause: bool = True
    noise: float = 0.02
    # Plant the incident of an agent that starts where the bootstrap did not fail: an image in a zone. Otherwise, any
    # attributes.
    agent: bool = True
    jobs: int = 212
    # The kind of clusters (see CLUSTERS) in which trouble without a cause comes, and their mean number of nodes;
    # without a kind, it comes at random.
    clusters: str = ""
    cluster_size: int = 20

    def __post_init__(self) -> None:
        """Raises UsageError."""
        if self.clusters and not (2 <= self.cluster_size <= self.nodes / 2 and self.clusters in CLUSTERS):
            raise UsageError("clusters have two nodes or more, and there are two or more of them")
        if not 1 <= self.nodes <= 1_000_000 or not 1 / 24 <= self.days <= 400:
            raise UsageError("a synthetic fleet needs 1 to 1,000,000 nodes and an hour to 400 days")
        if not 0 <= self.sick <= 0.6 or not 0 <= self.noise <= 0.2:
            raise UsageError("--sick takes a share between 0 and 0.6")


@dataclass(frozen=True, slots=True)
class Truth:
    """What was planted: the attributes, if any; the attributes that correlate with them; how many nodes have them, and
    how many are sick."""

    conditions: dict[str, str]
    confounders: dict[str, float]
    members: int
    sick: int
    seed: int
    # The attribute that names the clusters, and its values that are sick without a cause.
    clustered_by: str = ""
    sick_clusters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FleetSummary:
    """What was written."""

    directory: Path
    truth_file: Path
    truth: Truth
    nodes: int
    rows: int
    bytes: int
    files: int


# Attributes of nodes, with the weights of their values.
_GIVEN: dict[str, dict[str, float]] = {
    "zone": {"a": 3, "b": 3, "c": 2},
    "image": {"ami-0a11": 4, "ami-0b22": 3, "ami-0c33": 2, "ami-0d44": 1},
    "kernel": {"5.10.205-195": 4, "5.10.210-201": 3, "6.1.79-99": 3},
    "instance_type": {"p4d.24xlarge": 4, "p5.48xlarge": 2, "c6i.8xlarge": 3, "m6i.4xlarge": 3},
    "pool": {"train": 4, "serve": 3, "batch": 2, "dev": 1},
    "nic.driver": {"ena 2.8.9g": 5, "ena 2.10.0g": 3, "ena 2.12.3g": 2},
    "nic.firmware": {"0.0.1": 6, "0.0.2": 2, "0.0.3": 2},
    "os": {"amzn 2": 5, "amzn 2023": 4, "ubuntu 22.04": 2},
    "cgroup.version": {"1": 4, "2": 6},
    "sysctl.net.core.somaxconn": {"4096": 8, "128": 2},
    "sysctl.vm.swappiness": {"60": 7, "10": 3},
    "module.nvidia": {"535.129": 4, "550.54": 4, "absent": 3},
    "module.efa": {"loaded": 5, "absent": 5},
    "label.team": {f"team-{number}": 1.0 for number in range(12)},
    "label.rack": {f"rack-{number:02d}": 1.0 for number in range(40)},
    "container.image.fluentbit": {"2.31": 4, "2.32": 4, "3.0": 1},
    "container.image.node-exporter": {"1.6.1": 7, "1.7.0": 3},
    **{
        f"package.{name}": {"1.0-1": 6.0, "1.1-1": 3.0, "2.0-1": 1.0}
        for name in ("containerd", "docker", "kubelet", "chrony", "openssl", "systemd", "jemalloc", "nccl", "ssm-agent")
    },
}
# What may be planted at random: one attribute or two.
_SINGLE = ("image", "kernel", "nic.firmware", "nic.driver", "package.containerd", "package.kubelet", "instance_type")
_PAIRS = (("image", "zone"), ("kernel", "instance_type"), ("image", "pool"), ("zone", "nic.firmware"), ("os", "zone"))
# Attributes that a rollout changes at a boot.
_ROLLED_OUT = ("image", "kernel", "os", "nic.driver", "nic.firmware", "package.containerd", "package.kubelet")
# Packages that are updated on some nodes during the time of the lake, and their new version.
_UPDATES, _UPDATED = ("package.chrony", "package.systemd"), "2.1-1"


@dataclass(frozen=True, slots=True)
class ClusterKind:
    """A kind of cluster: the attribute that names it, and the attributes that nearly all of its nodes share. `rollout`:
    clusters follow each other in time, and so do their versions."""

    key: str
    nested: tuple[str, ...]
    rollout: bool = False


_PACKAGES = tuple(key for key in _GIVEN if key.startswith("package."))
CLUSTERS = {
    "rack": ClusterKind(
        "label.rack",
        (
            *("zone", "image", "instance_type", "pool", "nic.driver", "nic.firmware", "label.team"),
            *("module.nvidia", "module.efa", "sysctl.vm.swappiness"),
        ),
    ),
    "job": ClusterKind(
        "label.job",
        (
            *("pool", "label.team", "instance_type", "module.nvidia", "module.efa", "package.nccl"),
            *("package.jemalloc", "container.image.fluentbit", "container.image.node-exporter"),
        ),
    ),
    "wave": ClusterKind(
        "label.wave",
        ("image", "kernel", "os", "nic.driver", "nic.firmware", "cgroup.version", *_PACKAGES),
        rollout=True,
    ),
}
# How often nodes have the attributes of their cluster, and the share of sick nodes in a sick cluster.
_LOYAL, _GRIP = (0.92, 1.0), (0.5, 1.0)
# The incidents of a cluster come within this many hours.
_TOGETHER_HOURS = 6
# With this many clusters on either side, a planted attribute may correspond to whole clusters; with fewer, the two
# could not be distinguished.
_SIDES = 8
# Share of nodes with clustered trouble in addition to a planted cause.
_CLUSTERED_TROUBLE = 0.05

# Names of leaking units; they have no influence on anything.
_AGENTS = ("ecs-agent", "log-shipper", "inventory-agent", "metrics-relay", "patch-runner")


class World:
    """A fleet: everything about its nodes except the minutes themselves."""

    def __init__(self, plan: FleetPlan) -> None:
        self.plan = plan
        self.rng = np.random.default_rng(plan.seed)
        self.until = plan.until // 1000 // HOUR_US * HOUR_US
        self.hours = max(1, round(plan.days * 24))
        self.since = self.until - self.hours * HOUR_US
        rng, count = self.rng, plan.nodes
        self.names = [f"node-{number:06d}.{rng.integers(1 << 32):08x}" for number in range(count)]
        self.life_us = (rng.uniform(*_LIFE_DAYS, count) * DAY_US).astype(np.int64)
        self.boot_us = self.since - (rng.uniform(0, _UPTIME_DAYS, count) * DAY_US).astype(np.int64)
        self.days_until = rng.uniform(*_DAYS, count)
        self.leak_per_hour = rng.uniform(*_LEAK_PER_HOUR, count)
        self.cost_us = _STALL_S * 1e6 / (self.leak_per_hour * 24 * self.days_until)
        self.agent = "ecs-agent" if plan.agent else str(rng.choice(_AGENTS))
        self.given = {key: self._drawn(values) for key, values in _GIVEN.items()}
        self.changed: dict[str, npt.NDArray[np.object_]] = {}
        self.confounders: dict[str, float] = {}
        self.conditions: dict[str, str] = {}
        self.members: Bools = np.zeros(count, bool)
        self.cluster: Ints = np.zeros(count, np.int64)
        self.sick_clusters: Ints = np.empty(0, np.int64)
        if plan.clusters:
            self.cluster = self._cluster(CLUSTERS[plan.clusters])
        if plan.cause:
            self.conditions, self.members = self._plant()
        self._add_states()
        self.incidents = self._incidents()

    def _drawn(self, values: dict[str, float]) -> npt.NDArray[np.object_]:
        weights = np.array(list(values.values()))
        drawn: npt.NDArray[np.object_] = self.rng.choice(
            np.array(list(values), object), self.plan.nodes, p=weights / weights.sum()
        )
        return drawn

    def _cluster(self, kind: ClusterKind) -> Ints:
        """Assign the nodes to clusters, and give the nodes of a cluster the same attributes."""
        plan, rng = self.plan, self.rng
        count = max(2, round(plan.nodes / plan.cluster_size))
        weights = rng.gamma(4.0, 1.0, count)
        cluster = rng.choice(count, plan.nodes, p=weights / weights.sum())
        word = kind.key.removeprefix("label.")
        self.given[kind.key] = np.array([f"{word}-{number:03d}" for number in range(count)], object)[cluster]
        if kind.rollout and not plan.cause:
            # If a cause depends on uptime, everything that correlates with the age of a wave would seem to be part of
            # it.
            begun = np.sort(rng.uniform(0, _UPTIME_DAYS, count))[::-1] * DAY_US
            booted = self.since - begun[cluster].astype(np.int64) + rng.integers(0, HOUR_US, plan.nodes)
            # Every node is up when the lake begins.
            self.boot_us = np.minimum(booted, self.since)
        for key in kind.nested:
            values = np.array(list(_GIVEN[key]), object)
            if kind.rollout:
                cuts = np.sort(rng.random(len(values) - 1))
                places = np.searchsorted(cuts, (np.arange(count) + 0.5) / count)
            else:
                parts = np.array(list(_GIVEN[key].values()))
                places = rng.choice(len(values), count, p=parts / parts.sum())
            loyal = rng.random(plan.nodes) < rng.uniform(*_LOYAL)
            if kind.rollout and key in _ROLLED_OUT:
                # Until then they had the values of the wave before.
                before = np.concatenate((places[:1], places[:-1]))
                renewed = loyal & (before != places)[cluster]
                self.changed[key] = _choice(renewed, values[before[cluster]], None)
            self.given[key] = np.where(loyal, values[places[cluster]], self.given[key])
        return cluster

    def _clustered_trouble(self, share: float) -> Bools:
        """Nodes that are sick without a cause: most of the nodes of some clusters, at least two."""
        rng, sizes = self.rng, np.bincount(self.cluster)
        grip = rng.uniform(*_GRIP, len(sizes))
        order = rng.permutation(np.flatnonzero(sizes >= 2))
        sick = np.cumsum(sizes[order] * grip[order])
        enough = max(2, int(np.searchsorted(sick, share * self.plan.nodes)) + 1)
        self.sick_clusters = np.sort(order[:enough])
        found: Bools = np.isin(self.cluster, self.sick_clusters) & (rng.random(self.plan.nodes) < grip[self.cluster])
        return found

    def _plant(self) -> tuple[dict[str, str], Bools]:
        """Give the planted attributes to as many nodes as needed for the requested share to become sick."""
        plan, rng = self.plan, self.rng
        ripens = float((self._crossing() < self.until).mean())
        share = min(0.85, plan.sick / max(ripens, 0.05))
        if plan.agent:
            keys: tuple[str, ...] = ("image", "zone")
        else:
            keys = _PAIRS[rng.integers(len(_PAIRS))] if rng.random() < 0.5 else (str(rng.choice(_SINGLE)),)
        conditions, parts = {}, []
        # Each attribute of a pair applies to about the same number of nodes.
        split = rng.uniform(0.4, 0.6)
        shares = (share,) if len(keys) == 1 else (share**split, share ** (1 - split))
        for key, part in zip(keys, shares, strict=True):
            values = list(_GIVEN[key])
            value = values[min(1, len(values) - 1)] if plan.agent else str(rng.choice(values))
            has = rng.random(plan.nodes) < part
            clusters = int(self.cluster.max()) + 1
            if plan.clusters and min(part, 1 - part) * clusters >= _SIDES and rng.random() < 0.5:
                has = (rng.random(clusters) < part)[self.cluster]
            others = self._drawn({each: weight for each, weight in _GIVEN[key].items() if each != value})
            if key in _ROLLED_OUT:
                # These nodes had another value until their present boot.
                self.changed[key] = _choice(has, others, None)
            self.given[key] = np.where(has, value, others)
            conditions[key] = value
            parts.append(has)
        members = np.logical_and.reduce(parts)
        own = CLUSTERS[plan.clusters].key if plan.clusters else ""
        free = [key for key in _GIVEN if key not in keys and key != own]
        for key in rng.choice(np.array(free), int(rng.integers(3, 6)), replace=False).tolist():
            copied = [*parts, members][rng.integers(len(parts) + 1)]
            fidelity = float(rng.uniform(0.6, 0.93))
            self.confounders[key] = round(fidelity, 3)
            follows = rng.random(plan.nodes) < fidelity
            value = str(rng.choice(list(_GIVEN[key])))
            others = self._drawn({each: weight for each, weight in _GIVEN[key].items() if each != value})
            self.given[key] = np.where(follows, np.where(copied, value, others), self.given[key])
        return conditions, members

    def _add_states(self) -> None:
        """Add units and the bootstrap state, as they follow from what was planted."""
        plan, rng, unit = self.plan, self.rng, f"unit.{self.agent.removesuffix('-agent')}.service"
        count = plan.nodes
        for number in range(4):
            self.given[f"unit.worker-{number}.service"] = np.where(
                rng.random(count) < 0.97, "active", "failed/exit-code"
            )
        if not plan.cause:
            self.given[unit] = np.where(rng.random(count) < 0.5, "active", "inactive/never-started")
            return
        has_image = self.given[next(iter(self.conditions))] == next(iter(self.conditions.values()))
        self.given[unit] = np.where(self.members, "failed/crash-loop", "inactive/never-started")
        self.given[f"{unit}.restarts"] = np.where(self.members, "100+", "0")
        # If the agent's image runs in another zone, its bootstrap failed.
        self.given["bootstrap"] = np.where(has_image & ~self.members & (len(self.conditions) > 1), "failed", "ok")

    def _crossing(self) -> Ints:
        """The time of each node's first incident if it leaked; far in the future if that is not within the lake."""
        ripe = (self.days_until * DAY_US).astype(np.int64)
        never = np.iinfo(np.int64).max
        found = np.full(self.plan.nodes, never)
        # The boot during which the lake begins, and the next one.
        for boot in (0, 1):
            begin = self.boot_us + boot * self.life_us
            crossing = np.maximum(begin + ripe, self.since + 1)
            inside = (crossing < np.minimum(begin + self.life_us, self.until)) & (begin + self.life_us > self.since)
            found = np.where((found == never) & inside, crossing, found)
        return found

    def uptime_us(self, moments: Ints, nodes: Ints) -> tuple[Ints, Ints]:
        """Each node's boot number at a given time, and its uptime."""
        return np.divmod(moments - self.boot_us[nodes], self.life_us[nodes])

    def dying(self, nodes: Ints, uptime_us: Ints) -> Floats:
        leaked = self.leak_per_hour[nodes] * uptime_us / HOUR_US
        return np.where(self.members[nodes], leaked, 12.0 + nodes % 40)

    def _incidents(self) -> dict[str, Any]:
        """Node, time and cause of every incident, in order of time."""
        plan, rng = self.plan, self.rng
        trouble: Bools = np.zeros(plan.nodes, bool)
        if plan.clusters:
            trouble = self._clustered_trouble(min(_CLUSTERED_TROUBLE, plan.sick / 2) if plan.cause else plan.sick)
        sick = self.members if plan.cause else trouble if plan.clusters else rng.random(plan.nodes) < plan.sick
        sick = sick & (rng.random(plan.nodes) >= plan.noise)
        wrong = ~sick & (rng.random(plan.nodes) < plan.noise)
        nodes: list[Ints] = []
        moments: list[Ints] = []
        if plan.cause:
            ripe = (self.days_until * DAY_US).astype(np.int64)
            for boot in range(0, 2 + int(plan.days // _LIFE_DAYS[0])):
                begin = self.boot_us + boot * self.life_us
                own = np.flatnonzero(sick)
                starts = (begin + ripe)[own]
                gaps = rng.exponential(_HOURS_BETWEEN * HOUR_US, (len(own), 64)).astype(np.int64)
                gaps[:, 0] = 0
                every = starts[:, None] + np.cumsum(gaps, axis=1)
                kept = (every >= self.since) & (every < np.minimum(begin + self.life_us, self.until)[own][:, None])
                rows, columns = np.nonzero(kept)
                nodes.append(own[rows])
                moments.append(every[rows, columns])
        else:
            wrong |= sick
        # A node has one kind of other trouble; a mislabelled one has the planted kind.
        kinds = rng.integers(0, len(OTHER_CAUSES), plan.nodes)
        if plan.cause:
            kinds[wrong] = OTHER_CAUSES.index(_PLANTED)
            wrong |= ~sick & (rng.random(plan.nodes) < _OTHER_TROUBLE)
        if plan.clusters:
            # Either one kind of trouble for all clusters, or one kind each; never the planted one.
            clusters = int(self.cluster.max()) + 1
            troubles = rng.integers(0, len(OTHER_CAUSES) - 1, 1 if rng.random() < 0.5 else clusters)
            trouble &= ~self.members
            kinds[trouble] = np.resize(troubles, clusters)[self.cluster[trouble]]
            wrong |= trouble & plan.cause
        own = np.repeat(np.flatnonzero(wrong), rng.integers(1, 4, int(wrong.sum())))
        nodes.append(own)
        moments.append(rng.integers(self.since, self.until, len(own)))
        if plan.clusters:
            together = rng.integers(self.since, self.until - 1, int(self.cluster.max()) + 1)
            near = together[self.cluster[own]] + (rng.random(len(own)) * _TOGETHER_HOURS * HOUR_US).astype(np.int64)
            moments[-1] = np.where(trouble[own], np.minimum(near, self.until - 1), moments[-1])
        planted = np.repeat([True, False], [sum(map(len, nodes[:-1])), len(own)])
        node, moment = np.concatenate(nodes), np.concatenate(moments)
        kind = kinds[node]
        order = np.argsort(moment, kind="stable")
        return {
            "node": node[order],
            "moment": moment[order],
            "planted": planted[order],
            "kind": kind[order],
            "length": rng.integers(6, 20, len(node))[order],
            "core": rng.integers(0, 96, len(node))[order],
        }

    @cached_property
    def truth(self) -> Truth:
        planted = self.incidents["node"][self.incidents["planted"]]
        key = CLUSTERS[self.plan.clusters].key if self.plan.clusters else ""
        names = self.given[key] if key else np.empty(0, object)
        sick = np.unique(names[np.isin(self.cluster, self.sick_clusters)].astype(str)) if key else ()
        return Truth(
            self.conditions,
            self.confounders,
            int(self.members.sum()),
            len(np.unique(planted)),
            self.plan.seed,
            key,
            tuple(str(each) for each in sick),
        )


def write_fleet(directory: Path, plan: FleetPlan, progress: Progress | None = None) -> FleetSummary:
    """Write a lake; the same plan writes the same rows on any machine. Raises LabError if the directory is not empty or
    the disk has too little room."""
    _check_room(directory, plan)
    world = World(plan)
    rows = done = 0
    try:
        rows += _write(directory, ATTRIBUTES, _attributes(world))
        rows += _write(directory, INCIDENTS, [_incident_rows(world)])
        rows += _write(directory, JOBS, [_job_rows(world)])
        noise = _Noise(world)
        with ThreadPoolExecutor(min(4, len(os.sched_getaffinity(0)))) as pool:
            for written in pool.map(lambda hour: _write_hour(directory, world, noise, hour), range(world.hours)):
                rows, done = rows + written, done + 1
                if progress is not None:
                    progress(done, world.hours)
        truth = directory.with_name(f"{directory.name}.truth.json")
        truth.write_text(json.dumps(asdict(world.truth)) + "\n")
    except OSError as error:
        raise LabError(f"can't write to {directory}: {os_reason(error)}") from error
    files = list(directory.rglob("*.parquet"))
    size = sum(path.stat().st_size for path in files)
    return FleetSummary(directory, truth, world.truth, plan.nodes, rows, size, len(files))


def _check_room(directory: Path, plan: FleetPlan) -> None:
    if directory.exists() and any(directory.iterdir()):
        raise LabError(f"{directory} is not empty; name a new directory for the synthetic lake")
    existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    wanted = int(plan.nodes * plan.days * BYTES_PER_NODE_DAY) + SPARE_BYTES
    free = shutil.disk_usage(existing).free
    if free < wanted:
        raise LabError(
            f"{plan.nodes:,} nodes and {plan.days:g} days take up to {wanted / 1e9:.1f} GB, and {existing} has "
            f"{free / 1e9:.1f} GB free; make room, or ask for fewer nodes or days"
        )


def _write(directory: Path, table: LakeTable, parts: "Iterator[dict[str, Any]] | list[dict[str, Any]]") -> int:
    """Write rows into the partitions of their times."""
    total = 0
    for number, columns in enumerate(parts):
        moments: Ints = columns[table.time]
        days = moments // DAY_US
        for day in np.unique(days).tolist():
            rows = np.flatnonzero(days == day)
            part = {
                name: values.take(pa.array(rows)) if isinstance(values, pa.Array) else values[rows]
                for name, values in columns.items()
            }
            _write_file(directory / table.name / _date(day * DAY_US), table, part, number)
            total += len(rows)
    return total


def _date(moment: int) -> str:
    return f"date={datetime.fromtimestamp(moment / 1e6, UTC):%Y-%m-%d}"


def _write_file(folder: Path, table: LakeTable, columns: dict[str, Any], number: int = 0) -> None:
    """Write a file like those that `exhume fleet compact` makes of an hour or a day."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays, fields = [], []
    for field in table.schema:
        if field.name in columns:
            values = columns[field.name]
            if not isinstance(values, pa.Array):
                values = pa.array(values, field.type) if values.dtype == object else pa.array(values).cast(field.type)
            arrays.append(values)
            fields.append(pa.field(field.name, values.type, field.nullable))
    made = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
    path = folder / f"compact-{number:016x}.parquet"
    pq.write_table(
        made,
        path,
        compression="zstd",
        compression_level=1,
        store_schema=False,
        row_group_size=1 << 20,
        write_statistics=["node", table.time],
        **encodings(table, made.schema),
    )


def _attributes(world: World) -> Iterator[dict[str, Any]]:
    """All keys at the first push, the changed ones at the boot, and all of them once a day."""
    count = world.plan.nodes
    names = pa.array(world.names)
    everyone = np.arange(count)
    first = world.since - _HISTORY_DAYS * DAY_US
    minute = everyone % 1440 * MINUTE_US
    # A node that booted before its history began had the same values all the time.
    rolled = world.boot_us > first + DAY_US
    identity = {
        "serial": np.array([f"sn{number:010d}" for number in everyone], object),
        "label.address": np.array([f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in everyone.tolist()], object),
    }
    keys = {**world.given, **identity}
    # Unrelated updates: of one node in twenty, at any time.
    updates = {
        key: world.rng.integers(world.since, world.since + 20 * (world.until - world.since), count)
        for key in _UPDATES
        if key not in world.changed
    }

    def rows(key: str, nodes: Ints, moments: Ints, values: npt.NDArray[np.object_]) -> dict[str, Any]:
        texts = pa.array(values, pa.string()).dictionary_encode()
        repeated = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(nodes), np.int32)), pa.array([key]))
        node = pa.DictionaryArray.from_arrays(pa.array(nodes.astype(np.int32)), names)
        return {"node": node, "at": moments, "key": repeated, "value": texts}

    days = [first, *range(world.since // DAY_US * DAY_US, world.until, DAY_US)]
    for day in days:
        parts = []
        for key, values in keys.items():
            then = values
            if key in updates:
                then = _choice(updates[key] <= day + minute, _UPDATED, values)
            elif key in world.changed:
                before = (world.changed[key] != None) & rolled & (world.boot_us > day + minute)  # noqa: E711
                then = np.where(before, world.changed[key], values)
            parts.append(rows(key, everyone, day + minute, then))
        kept = [_within(part, world.until) for part in parts]
        yield _joined(kept)
    for key, before in world.changed.items():
        own = np.flatnonzero((before != None) & rolled)  # noqa: E711
        if len(own):
            yield rows(key, own, world.boot_us[own], world.given[key][own])
    for key, moments in updates.items():
        own = np.flatnonzero(moments < world.until)
        if len(own):
            yield rows(key, own, moments[own], np.full(len(own), _UPDATED, object))


def _within(part: dict[str, Any], until: int) -> dict[str, Any]:
    kept = np.flatnonzero(part["at"] < until)
    return {
        name: values[kept] if isinstance(values, np.ndarray) else values.take(pa.array(kept))
        for name, values in part.items()
    }


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in parts[0]:
        values = [part[name] for part in parts]
        if isinstance(values[0], np.ndarray):
            found[name] = np.concatenate(values)
        else:
            found[name] = pa.chunked_array(values).unify_dictionaries().combine_chunks()
    return found


def _incident_rows(world: World) -> dict[str, Any]:
    made = world.incidents
    node, moment, planted = made["node"], made["moment"], made["planted"]
    unit = f"{world.agent.removesuffix('-agent')}.service"
    zombies = planted | (np.array(OTHER_CAUSES, object)[made["kind"]] == _PLANTED)
    cause = np.where(planted, _PLANTED, np.array(OTHER_CAUSES, object)[made["kind"]])
    remedies = [
        {
            "id": "disable-unit",
            "text": f"stop {unit}, which leaks them, and keep it from being started again",
            "target": unit,
            "command": f"exhume fix plan {unit}",
            "risk": "medium",
            "reversible": True,
        }
    ]
    finding = json.dumps({"cause": _PLANTED, "severity": "critical", "remedies": remedies})
    other = json.dumps({"severity": "warning", "remedies": []})
    number = np.arange(len(node))
    return {
        "node": np.array(world.names, object)[node],
        "at": moment,
        "id": np.array([f"{each:08x}" for each in number.tolist()], object),
        "until": moment + made["length"] * 1_000_000,
        "cause": cause.astype(object),
        "severity": _choice(planted, "critical", "warning"),
        "confidence": np.where(planted, 0.93, 0.7),
        "core": made["core"],
        "function": _choice(zombies, "mem_cgroup_nr_lru_pages", None),
        "process": _choice(zombies, "kubelet", "python3"),
        "culprit": _choice(zombies, "kubelet.service", None),
        "leaker": _choice(planted, world.agent, None),
        "lost_core_s": made["length"].astype(np.float64),
        "summary": np.where(planted, "kubelet walks zombies of an agent that crash-loops", "a busy core").astype(
            object
        ),
        "finding": _choice(planted, finding, other),
    }


def _job_rows(world: World) -> dict[str, Any]:
    """Failed jobs with members on eight nodes, most of them right after a planted incident."""
    rng, plan, made = world.rng, world.plan, world.incidents
    planted = np.flatnonzero(made["planted"])
    node, moment, job = [], [], []
    for number in range(plan.jobs):
        members = rng.choice(plan.nodes, min(8, plan.nodes), replace=False)
        at = int(rng.integers(world.since, world.until))
        if len(planted) and rng.random() < 0.8:
            row = int(rng.choice(planted))
            members[0] = made["node"][row]
            at = int(made["moment"][row]) + int(rng.integers(5, 50)) * 1_000_000
        node += [world.names[each] for each in members.tolist()]
        moment += (at + rng.integers(0, 3_000_000, len(members))).tolist()
        job += [f"train-{number}"] * len(members)
    kind = np.full(len(job), JOB_FAILED, object)
    return {
        "node": np.array(node, object),
        "at": np.minimum(np.array(moment, np.int64), world.until - 1),
        "job": np.array(job, object),
        "kind": kind,
        "reason": np.full(len(job), "object fetch timed out", object),
    }


def _choice(mask: Bools, one: Any, other: Any) -> npt.NDArray[np.object_]:
    """Texts or None, chosen by a mask."""
    return np.where(mask, np.array(one, object), np.array(other, object))


class _Noise:
    """Random values for the minutes, generated once and read from another offset for each hour and column, as a lake
    has three billion of them."""

    def __init__(self, world: World) -> None:
        rng, length = np.random.default_rng(world.plan.seed + 1), max(1 << 16, 2 * 60 * world.plan.nodes)
        self.length = 60 * world.plan.nodes
        self.seed = world.plan.seed
        length = self.length + (1 << 16)
        self.shares = {
            name: (rng.gamma(2.0, scale, length).clip(0, 1) / step).round().astype(np.float32) * np.float32(step)
            for name, scale, step in (("high", 0.2, 0.01), ("low", 0.02, 0.005), ("rare", 0.004, 0.01))
        }
        self.counts = rng.poisson(1.5, length).astype(np.uint16)

    def offsets(self, hour: int) -> Iterator[int]:
        rng = np.random.default_rng([self.seed, hour])
        while True:
            yield int(rng.integers(1 << 16))


# Columns by their kind of noise.
_NOISE = {
    "busiest_share": "high",
    "busy_share": "high",
    "kernel_share": "low",
    "runqueue_wait_s": "high",
    "pressure_cpu": "low",
    "pressure_memory": "rare",
    "pressure_io": "low",
    "throttled_s": "low",
    "reclaim_share": "rare",
    "ksoftirqd_wait_s": "rare",
    "recorder_cpu": "low",
}


def _write_hour(directory: Path, world: World, noise: _Noise, hour: int) -> int:
    """Write the minutes of all nodes in an hour, by node and minute."""
    count, begin = world.plan.nodes, world.since + hour * HOUR_US
    rows, offsets = 60 * count, noise.offsets(hour)
    node = np.repeat(np.arange(count), 60)
    minute = np.tile(begin + np.arange(60) * MINUTE_US, count)
    boot, uptime = world.uptime_us(minute + MINUTE_US, node)
    dying = world.dying(node, uptime)
    walks = np.flatnonzero(dying > _COSTLY)
    cost = np.full(rows, np.nan, np.float32)
    cost[walks] = (world.cost_us[node[walks]] * 20).round() / 20
    boots = int(boot.max()) + 1
    ids = pa.array([f"{n:08x}{b:04x}{world.plan.seed & 0xFFFF:020x}" for n in range(count) for b in range(boots)])
    columns: dict[str, Any] = {
        "node": pa.DictionaryArray.from_arrays(pa.array(node.astype(np.int32)), pa.array(world.names)),
        "minute": minute,
        "boot_id": pa.DictionaryArray.from_arrays(pa.array((node * boots + boot).astype(np.int32)), ids),
        "uptime_s": (uptime // 1_000_000).astype(np.float32),
        "cores": np.full(rows, 96, np.uint16),
        "covered_s": np.full(rows, 60.0, np.float32),
        "busiest_core": (node % 96).astype(np.uint16),
        "busiest_state": pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["user"])),
        "memcgs_dying": dying.astype(np.uint32),
        "memcgs_tracked": (dying + 240).astype(np.uint32),
        "cgroups_made": noise.counts[next(offsets) :][:rows].astype(np.uint32),
        "cgroups_leaked": np.where(world.members[node], world.leak_per_hour[node] / 60, 0.0).astype(np.uint32),
        "container_restarts": np.where(world.members[node], 6, 0).astype(np.uint16),
        "cost_per_zombie_us": pa.array(cost, from_pandas=True),
        "lost_s": np.zeros(rows, np.float32),
    }
    for name, kind in _NOISE.items():
        columns[name] = noise.shares[kind][next(offsets) :][:rows]
    for name in ("stall_s", "longest_stall_s"):
        columns[name] = np.zeros(rows, np.float32)
    for name in ("nic_timeouts", "nic_resets", "unit_restarts", "oom_kills", "incidents"):
        columns[name] = np.zeros(rows, np.uint16)
    made = world.incidents
    low, high = np.searchsorted(made["moment"], (begin, begin + HOUR_US))
    place = made["node"][low:high] * 60 + (made["moment"][low:high] - begin) // MINUTE_US
    columns["incidents"][place] = 1
    columns["stall_s"][place] = columns["longest_stall_s"][place] = made["length"][low:high]
    columns["nic_resets"][place[made["planted"][low:high]]] = 1
    _write_file(directory / SUMMARIES.name / _date(begin) / f"hour={begin // HOUR_US % 24:02d}", SUMMARIES, columns)
    return rows


def last_full_hour(now: int) -> int:
    """The end of a lake that is written now (wall nanoseconds)."""
    return now // (3600 * NANOS) * 3600 * NANOS

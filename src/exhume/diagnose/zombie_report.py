"""The report on dying cgroups (zombies): a census of the node now, and what was recorded about it."""

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exhume.collect.cgroup.census import take_census
from exhume.collect.cgroup.layout import hierarchies
from exhume.collect.cgroup.pins import classify, likely_pins
from exhume.collect.cgroup.residuals import find_residuals
from exhume.collect.containers.docker import docker_socket
from exhume.collect.containers.identity import ContainerIdentity, identify
from exhume.collect.containers.names import ContainerName, container_names
from exhume.diagnose.facts.leaks import COLUMNS, Leaker, LeakReport, find_leakers
from exhume.diagnose.growth import (
    RECORDING,
    SAMPLING,
    THRESHOLDS,
    WATCHING,
    Growth,
    Thresholds,
    growth_between,
    held_by_each,
)
from exhume.model.clock import NANOS, SystemClock, Window, read_boot_id
from exhume.model.errors import RecordingError
from exhume.model.stop import Stop
from exhume.model.text import count
from exhume.model.zombies import Census, HierarchyCensus, ParentResidual, PinReport
from exhume.procfs.host import Host

if TYPE_CHECKING:
    # Importing pyarrow takes 0.2 s, and a node without a recording doesn't need it.
    from exhume.store.read.recording import Recording

WELL, GROWING, MANY, UNKNOWN = "well", "growing", "many", "unknown"
# Together with the start of the program, well under a second.
SAMPLE_S = 0.4
RESIDUAL_S, PINS_S = 2.5, 5.0
GROWTH_NS, LONGEST_GROWTH_NS = 3600 * NANOS, 24 * 3600 * NANOS
CREATORS_LOOKED_UP = 8
LIVES_LOOKED_UP = 5
# Two hours at one count every two seconds.
WATCHED_AT_MOST = 3600

Points = dict[str, list[tuple[int, int]]]
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Creator:
    """The process that created one of a leaker's last zombies, as recorded."""

    pid: int
    comm: str | None
    cmdline: str | None
    parent_comm: str | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why the zombies exist. `leaks` and `recorded`, the window that was read, need a recording of this boot."""

    parents: list[ParentResidual]
    pins: PinReport
    leaks: LeakReport | None = None
    recorded: Window | None = None
    names: Mapping[str, ContainerName] = field(default_factory=dict)
    creators: Mapping[str, Creator] = field(default_factory=dict)
    blind_spots: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a node's zombies. `level` is well, growing, many or unknown."""

    level: str
    summary: str
    reasons: list[str] = field(default_factory=list)
    thresholds: Thresholds = THRESHOLDS

    @property
    def is_finding(self) -> bool:
        return self.level in (GROWING, MANY)


@dataclass(frozen=True, slots=True)
class ZombieReport:
    """A census at a wall time, with its verdict. Growth is by (hierarchy, controller)."""

    node: str
    wall: int
    census: Census
    verdict: Verdict
    growth: Mapping[tuple[str, str], Growth] = field(default_factory=dict)
    blind_spots: list[str] = field(default_factory=list)
    explanation: Explanation | None = None


class RecordedBoot:
    """The recording of this node's current boot if there is one; otherwise `note` is the reason."""

    recording: "Recording | None" = None
    note = ""

    def __init__(self, host: Host, directory: Path) -> None:
        self.host = host
        self.now = SystemClock().wall_ns()
        self._booted = self.now - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if not directory.is_dir():
            self.note = f"there is no recording in {directory}"
            return
        from exhume.store.read.recording import Recording

        try:
            recording = Recording.open(directory)
            boot = recording.facts.boot_id
        except RecordingError as error:
            self.note = str(error)
            return
        if boot == read_boot_id(host.proc):
            self.recording = recording
        else:
            self.note = f"the recording in {directory} is of another boot or node; it is not used"

    def window(self, nanos: int) -> Window:
        """The last nanoseconds, clamped to this boot."""
        return Window(max(self.now - nanos, self._booted), self.now + NANOS)

    def counts(self) -> Points:
        """Recorded counts of dying cgroups by hierarchy: of the last hour or, failing that, of the last day."""
        if self.recording is None:
            return {}
        for nanos in (GROWTH_NS, LONGEST_GROWTH_NS):
            rows = self.recording.read("cgroups", self.window(nanos), ["wall", "hierarchy", "parent", "dying"])
            found: Points = {}
            columns = (rows.column(name).to_pylist() for name in ("wall", "hierarchy", "parent", "dying"))
            for wall, hierarchy, parent, dying in sorted(zip(*columns, strict=True), key=lambda row: row[0]):
                if parent == "" and dying is not None:
                    found.setdefault(hierarchy, []).append((wall, dying))
            if found:
                return found
        return {}

    def kernel_memory(self) -> list[tuple[int, int]]:
        """Recorded unreclaimable slab and per-CPU memory of the whole kernel (bytes) at wall times, over the last
        hour."""
        if self.recording is None:
            return []
        columns = ("wall", "slab_unreclaimable", "percpu")
        rows = self.recording.read("node", self.window(GROWTH_NS), list(columns))
        listed = zip(*(rows.column(name).to_pylist() for name in columns), strict=True)
        return sorted((wall, (slab + percpu) * 1024) for wall, slab, percpu in listed if None not in (slab, percpu))


def zombie_report(host: Host, boot: RecordedBoot) -> ZombieReport:
    """Count the zombies of the node and judge their number and growth."""
    recorded = boot.counts()
    enough = any(points[-1][0] - points[0][0] > GROWTH_NS // 60 for points in recorded.values())
    census = take_census(host, 0.0 if enough else SAMPLE_S)
    wall = SystemClock().wall_ns()
    growth = _growth(census, recorded, wall)
    census = _with_memory(census, recorded, boot.kernel_memory())
    notes = [boot.note] if boot.note else []
    return ZombieReport(platform.node(), wall, census, judge(census, growth), growth, notes)


def watched_reports(host: Host, every_s: float, stop: Stop) -> Iterator[ZombieReport]:
    """Yield a report every few seconds until the stop is set; growth is over the time watched."""
    points: Points = {}
    while not stop.is_set():
        began = time.monotonic()
        census = take_census(host)
        wall = SystemClock().wall_ns()
        growth: dict[tuple[str, str], Growth] = {}
        for each in census.hierarchies:
            if each.dying is None:
                continue
            seen = points.setdefault(f"{each.name} {each.controller}", [])
            seen.append((wall, each.dying))
            del seen[: max(0, len(seen) - WATCHED_AT_MOST)]
            change = growth_between(seen, WATCHING, every_s / 2)
            if change is not None:
                growth[each.name, each.controller] = change
        yield ZombieReport(platform.node(), wall, census, judge(census, growth), growth)
        stop.wait(every_s - (time.monotonic() - began))


def explain(
    report: ZombieReport, host: Host, boot: RecordedBoot, *, since: int, socket: Path | None, progress: Progress
) -> ZombieReport:
    """Return the report with its explanation; the recording is read from the wall time `since` on."""
    residuals = find_residuals(host, lambda share: progress("reading cgroups", share), RESIDUAL_S)
    pins = likely_pins(
        host, residuals.parents, progress=lambda share: progress("looking for pins", share), seconds=PINS_S
    )
    explanation = Explanation(
        classify(residuals.parents, pins, report.census.dying), pins, blind_spots=list(residuals.blind_spots)
    )
    if boot.recording is not None:
        progress("reading the recording", 0.0)
        explanation = _with_leakers(explanation, report, boot, since, socket)
    return replace(report, explanation=explanation)


def _with_memory(census: Census, recorded: Points, memory: Sequence[tuple[int, int]]) -> Census:
    """The census with the kernel memory that zombies hold, derived from how it changed with their number, as far back
    as it was recorded."""

    def measured(each: HierarchyCensus) -> HierarchyCensus:
        counts = [point for point in recorded.get(each.name, []) if memory and point[0] >= memory[0][0]]
        cost = held_by_each(counts, memory) if each.controller == "memory" and each.dying is not None else None
        if cost is None or each.dying is None:
            return each
        whole = (census.slab_bytes or 0) + (census.percpu_bytes or 0)
        return replace(each, memory_bytes=min(round(cost.value * each.dying), whole or 1 << 62), memory_measured=True)

    return replace(census, hierarchies=[measured(each) for each in census.hierarchies])


def _growth(census: Census, recorded: Points, wall: int) -> dict[tuple[str, str], Growth]:
    found: dict[tuple[str, str], Growth] = {}
    for each in census.hierarchies:
        if each.dying is None:
            continue
        # The recorder counts memory cgroups; on v2, where controllers are not counted separately, all of them.
        points = recorded.get(each.name, []) if each.controller in ("memory", "all") else []
        growth = growth_between([*points, (wall, each.dying)], RECORDING)
        if growth is None and each.growth_per_hour is not None and each.sampled_s:
            gained = round(each.growth_per_hour * each.sampled_s / 3600)
            since = wall - int(each.sampled_s * NANOS)
            growth = Growth(each.growth_per_hour, each.sampled_s, each.dying - gained, each.dying, since, SAMPLING)
        if growth is not None:
            found[each.name, each.controller] = growth
    return found


def _memory_counts(report: ZombieReport, boot: RecordedBoot) -> list[tuple[int, int]]:
    """Zombies at wall times, recorded and now; empty if only a part of the hierarchy is mounted, as events cover all of
    it."""
    memory = report.census.memory
    whole = {str(each.path) for each in hierarchies(boot.host) if each.whole}
    if memory is None or memory.dying is None or memory.path not in whole:
        return []
    return [*boot.counts().get(memory.name, []), (report.wall, memory.dying)]


def _with_leakers(
    explanation: Explanation, report: ZombieReport, boot: RecordedBoot, since: int, socket: Path | None
) -> Explanation:
    import pyarrow.compute as pc

    recording, memory = boot.recording, report.census.memory
    span = recording.span() if recording is not None else None
    if recording is None or span is None or memory is None or memory.number is None:
        return explanation
    window = Window(since, span.until).clamp(span)
    rows = recording.read("cgroup_events", window, [*COLUMNS, "hierarchy"])
    rows = rows.filter(pc.equal(rows.column("hierarchy"), memory.number)).sort_by("wall")
    events = {name: rows.column(name).to_pylist() for name in COLUMNS}
    leaks = find_leakers(events, span.until, _memory_counts(report, boot))
    names = container_names(docker_socket(socket), since // NANOS)
    ids = {each for leaker in leaks.leakers for life in leaker.lives if (each := identify(life.path)) is not None}
    spots = [*explanation.blind_spots, *names.blind_spots, *_gaps(recording, window, rows.num_rows)]
    if leaks.unseen:
        gone = count(leaks.unseen, "removed cgroup")
        spots.append(f"{gone} went without a recorded release: taken for those that were removed first")
    return replace(
        explanation,
        leaks=leaks,
        recorded=window,
        names=recorded_names(recording, window, ids) | names.names,
        creators=_creators(recording, leaks.leakers[:CREATORS_LOOKED_UP]),
        blind_spots=spots,
    )


def recorded_names(recording: "Recording", window: Window, wanted: Set[ContainerIdentity]) -> dict[str, ContainerName]:
    """Names of containers that may be gone by now, by id; a container whose own name was not recorded gets its
    pod's."""
    from exhume.diagnose.evidence.rows import Rows

    events = Rows("events", recording.read("events", window, ["container", "container_name", "image"]))
    columns = ["container", "container_name", "pod", "pod_name"]
    processes = Rows("processes", recording.read("processes", window, columns))
    named = events.pairs("container", "container_name") | processes.pairs("container", "container_name")
    images, pods = events.pairs("container", "image"), processes.pairs("pod", "pod_name")
    found: dict[str, ContainerName] = {}
    for identity in wanted:
        container = identity.container
        name = named.get(container) or pods.get(identity.pod)
        if container is not None and name is not None:
            found[container] = ContainerName(name, images.get(container), "recording")
    return found


def _gaps(recording: "Recording", window: Window, events: int) -> list[str]:
    """Reasons why the recorded lives of cgroups may be incomplete."""
    found = []
    lost = sum(loss.count for loss in recording.losses(window) if loss.kind == "lost-task-records")
    if lost:
        found.append(f"{lost:,} task records were lost, maybe removals of cgroups: some leakers may have fewer zombies")
    missing = sum(gap.seconds for gap in recording.gaps(window))
    if missing >= 1:
        found.append(f"nothing was recorded in {missing:,.0f} of the {window.seconds:,.0f} seconds that were read")
    if not events:
        found.append("the recording has no cgroup events: tracefs was not readable, or no cgroup was made")
    behind = (SystemClock().wall_ns() - window.until) / NANOS
    if behind > 10:
        found.append(f"the recording ended {behind:,.0f} s ago; zombies created since are not attributed")
    return found


def _creators(recording: "Recording", leakers: list[Leaker]) -> Mapping[str, Creator]:
    """For each leaker, a recorded process that created one of its last zombies: the latest of those about which most is
    known. A short-lived process may exit before its command line is read."""
    found = {}
    for leaker in leakers:
        creators = []
        for life in [life for life in reversed(leaker.lives) if life.pid and life.born][:LIVES_LOOKED_UP]:
            pid, born = life.pid or 0, life.born or 0
            around = Window(born - 60 * NANOS, born + 2 * NANOS)
            rows = recording.read("processes", around, ["wall", "pid", "ppid", "comm", "cmdline"]).to_pylist()
            process = last_seen(rows, pid, around.until) or {"cmdline": None, "ppid": None}
            parent = last_seen(rows, process["ppid"], around.until) if process["ppid"] else None
            creators.append(Creator(pid, life.comm, process["cmdline"], parent["comm"] if parent else None))
        if creators:
            found[leaker.pattern] = max(creators, key=lambda each: (bool(each.cmdline), bool(each.parent_comm)))
    return found


def last_seen(rows: list[dict[str, Any]], pid: int, until: int) -> dict[str, Any] | None:
    """The last row of a pid before a moment, ignoring rows taken while it exits, which have no name any more."""
    from exhume.collect.perf.tasks import EXITING

    known = [row for row in rows if row["pid"] == pid and row["wall"] <= until and row["comm"] != EXITING]
    return max(known, key=lambda row: row["wall"], default=None)


def judge(census: Census, growth: Mapping[tuple[str, str], Growth], thresholds: Thresholds = THRESHOLDS) -> Verdict:
    """The verdict on a census; growth is by (hierarchy, controller)."""
    if not any(each.controller == "memory" and each.dying is not None for each in census.hierarchies):
        notes = [*dict.fromkeys(each.note for each in census.hierarchies if each.note), *census.blind_spots]
        return Verdict(UNKNOWN, "memory cgroups can't be counted here", notes[:1], thresholds)
    limit = f"{thresholds.many:,}"
    many = [each for each in census.hierarchies if (each.dying or 0) >= thresholds.many]
    reasons = [f"{_zombies(each)}: {limit} is where a cloud vendor advises to act" for each in many]
    growing = []
    for each in census.hierarchies:
        change = growth.get((each.name, each.controller))
        if change is not None and change.ended is not None:
            over = change.ended
            gained, took, ago = count(over.gained, "more zombie"), _hours(over.seconds / 3600), change.seconds / 3600
            reasons.append(f"{gained} in {took}, {over.per_second:,.1f} a second; that ended {_hours(ago)} ago")
        if change is None or change.last - change.first < thresholds.least_growth:
            continue
        hours = hours_until(each.dying or 0, change, thresholds)
        if hours is None or hours <= thresholds.horizon_hours:
            growing.append((change.per_hour, each))
            ahead = "" if hours is None else f"; {limit} would be reached in {_hours(hours)}"
            gained = count(change.last - change.first, "more zombie")
            reasons.append(f"{gained} in {_hours(change.seconds / 3600)}{ahead}")
    most = max(census.hierarchies, key=lambda each: each.dying or 0)
    if many:
        also = next((f", and growing by {pace:,.0f} an hour" for pace, each in growing if each is most), "")
        return Verdict(MANY, f"{_zombies(most)}{also}", reasons, thresholds)
    if growing:
        pace, each = max(growing, key=lambda pair: pair[0])
        return Verdict(GROWING, f"{_zombies(each)}, growing by {pace:,.0f} an hour", reasons, thresholds)
    well = f"{_zombies(most) if most.dying else 'no zombies'}: nothing unusual"
    if (most.dying or 0) > thresholds.normal:
        well = f"{_zombies(most)}: more than usual, fewer than {limit}, and not growing by much"
    return Verdict(WELL, well, [], thresholds)


def hours_until(dying: int, growth: Growth, thresholds: Thresholds) -> float | None:
    """Hours until there are `many` at this pace; None if the growth does not lead there."""
    if growth.per_hour <= 0 or dying >= thresholds.many:
        return None
    return (thresholds.many - dying) / growth.per_hour


def _zombies(each: HierarchyCensus) -> str:
    what = ("zombie memory cgroup", "") if each.controller == "memory" else ("zombie cgroup", f" of {each.controller}")
    return count(each.dying or 0, f"{what[0]}{what[1]}", f"{what[0]}s{what[1]}")


def _hours(hours: float) -> str:
    if hours >= 1:
        return f"{hours:.0f} h" if hours >= 10 else f"{hours:.1f} h"
    return f"{hours * 60:.0f} min" if hours * 60 >= 1 else f"{hours * 3600:.1f} s"

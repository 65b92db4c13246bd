"""Everything that a cause may look at: the recorded rows of a focus and of its baseline. No cause reads files."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from exhume.diagnose.evidence.load import CORE_TAKEN, OWNED, Load, measure_load, seconds_by_core
from exhume.diagnose.evidence.rows import Mask, Rows
from exhume.diagnose.evidence.samples import Names, Samples
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Culprit
from exhume.model.tables import POD_OWNER, is_held
from exhume.store.read.recording import Recording

if TYPE_CHECKING:
    from exhume.diagnose.symptoms import Symptom

# A container may have been started long before it caused trouble.
NAMES_S = 24 * 3600.0
# Processes are many more than events of containers.
_NAMED_PROCESSES_S = 600.0
# A process is in a load's hold when so much of its own time goes there.
_HELD = 0.5
# It does nothing else when it is so much: then its turn on a core without idle time counts for twice as much.
_NOTHING_ELSE, _TURN, _IDLE, _SHORTEST_S = 0.7, 0.5, 0.1, 0.2
# What a process wants is known after so many seconds.
_FOLLOWED_S = 2.0
# However many queue: less of a core slows no one by itself.
_LEAST_TURN = 0.3


@dataclass(frozen=True, slots=True)
class KnownProcess:
    """What was recorded of a process."""

    pid: int
    comm: str | None
    cmdline: str | None
    cgroup: str | None
    container: str | None
    pod: str | None


@dataclass(frozen=True, slots=True)
class ContainerName:
    """A container's name and image, and the event that has them."""

    name: str
    image: str | None
    at: int
    kind: str
    text: str
    pod: str | None = None


@dataclass(frozen=True, slots=True)
class CoreHold:
    """How tight a hold a load has: `seconds` in which one core, or one process over all cores, gave so much of a core's
    time to it; `owner_part` is the part of its largest owner's own time.

    The sum over all cores says little on a large node: a hundred cores that give a hundredth each are a healthy node,
    one core that gives itself whole is not. And a core that others want too gives a program only its turn."""

    seconds: float = 0.0
    owner_part: float = 0.0


@dataclass
class Case:
    """One focus. `explained` are the samples that the causes `found` so far account for; the last ones see the rest."""

    recording: Recording
    focus: Window
    baseline: Window
    explained: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    found: tuple[str, ...] = ()
    # Computed once: several causes need them.
    symptoms: "list[Symptom] | None" = None
    # The requested time, of which the focus is a part; None where a moment was requested.
    window: Window | None = None

    def __post_init__(self) -> None:
        self.facts = self.recording.facts
        self.cores = max(1, self.facts.cores)
        self._tables: dict[tuple[str, Window], Rows] = {}

    def now(self, table: str) -> Rows:
        """The rows of a table in the focus."""
        return self.read(table, self.focus)

    def before(self, table: str) -> Rows:
        """The rows of a table in the baseline; none where there is no baseline."""
        return self.read(table, self.baseline)

    def recorded(self, table: str, seconds: float) -> Rows:
        """The rows of a table in so many seconds up to the end of the focus: for slow counts and growth."""
        return self.read(table, Window(self.focus.until - round(seconds * 1e9), self.focus.until))

    def around(self, table: str, seconds: float) -> Rows:
        """The rows of a table in so many seconds before the end of the focus and after it, within the requested time:
        for what is too slow to show in a focus."""
        return self.read(table, Window(self.focus.until - round(seconds * 1e9), self.end_within(seconds)))

    def end_within(self, seconds: float) -> int:
        """The end of the requested and recorded time, so many seconds after the focus at most."""
        span = self.recording.span()
        if self.window is None or span is None:
            return self.focus.until
        last = min(self.window.until, span.until, self.focus.until + round(seconds * 1e9))
        return max(self.focus.until, last)

    def read(self, table: str, window: Window) -> Rows:
        key = (table, window)
        if key not in self._tables:
            self._tables[key] = Rows(table, self.recording.read(table, window))
        return self._tables[key]

    @cached_property
    def samples(self) -> Samples:
        """The stack samples of baseline and focus."""
        return Samples.read(self.recording, self.focus, also=self.baseline)

    @cached_property
    def has_stacks(self) -> bool:
        """Whether stacks were sampled in the focus: without them no function can be named."""
        return bool(self.samples.within(self.focus).any())

    @cached_property
    def queue(self) -> float:
        """Threads that wait for each core, on average over the focus. Where the kernel doesn't count that, by pressure
        and the threads that are runnable at each tick, of which the recorder is one."""
        rows, node = self.now("cpu"), self.now("node")
        waited, spans = rows.total("wait_ns"), rows.total("span_ms")
        if waited is not None and spans:
            return waited / NANOS / (spans / 1000)
        stalled, running = node.per_second("psi_cpu_some"), node.middle("running")
        if stalled is None or running is None:
            return 0.0
        return min(1.0, stalled / 1e6) * max(0.0, running - 1 - self.cores) / self.cores

    @property
    def turn(self) -> float:
        """What is left of a core for one load, where threads queue for every core: 1 where fewer than one does."""
        return min(1.0, max(_LEAST_TURN, 2 / (1 + self.queue)))

    def load(self, functions: Iterable[str] | Names, *, cpus: Collection[int] | None = None) -> Load:
        """The CPU time in stacks that hold one of these functions of the kernel."""
        names = functions if isinstance(functions, Names) else Names.of(functions)
        return self.load_of(self.samples.holding(names), cpus=cpus)

    def load_of(self, mask: Mask, *, cpus: Collection[int] | None = None) -> Load:
        """The CPU time in masked samples."""
        if cpus is not None:
            mask = mask & np.isin(self.samples.cpu, list(cpus))
        return measure_load(self.samples, mask, self.focus, self.baseline)

    def part_in(self, load: Load, names: Names) -> float:
        """The part of a load (0 to 1) in stacks that hold one of these functions of the kernel."""
        samples = self.samples
        total = samples.time(load.mask)
        return samples.time(load.mask & samples.holding(names)) / total if total else 0.0

    def hold(self, load: Load, share: float = CORE_TAKEN) -> CoreHold:
        """The hold of a load, where `share` of a core's second counts as held."""
        samples = self.samples
        if not load.mask.any():
            return CoreHold()
        if load.owner is None:
            return CoreHold(self._held_seconds(load.mask, share, by_core=True, turn=1.0))
        own = (samples.pid == load.owner.pid) & samples.within(self.focus)
        part = samples.time(own & load.mask) / max(samples.time(own), 1.0)
        turn = _TURN if part >= _NOTHING_ELSE else 1.0
        on_one = self._held_seconds(load.mask, share, by_core=True, turn=turn)
        wandering = self._held_seconds(load.mask & own, share, by_core=False, turn=turn) if part >= _HELD else 0.0
        return CoreHold(max(on_one, wandering), part)

    def wanted(self, load: Load) -> float:
        """Cores' worth that the largest owner of a load would spend on it if it never had to wait for a core, in the
        time in which it was followed; 0 where it does other things most of the time, or was followed too shortly."""
        samples, owner = self.samples, load.owner
        rows = self.now("run_delays")
        rows = rows.where(rows.numbers("pid") == (None if owner is None else owner.pid))
        if owner is None or not len(rows):
            return 0.0
        own = (samples.pid == owner.pid) & samples.within(self.focus)
        part = samples.time(own & load.mask) / max(samples.time(own), 1.0)
        # A row has what was counted in the second up to it.
        seconds = 1.0 + (rows.wall.max() - rows.wall.min()) / NANOS
        wanted = ((rows.total("run_ns") or 0.0) + (rows.total("wait_ns") or 0.0)) / NANOS
        return float(part * wanted / seconds) if part >= _HELD and seconds >= _FOLLOWED_S else 0.0

    def _held_seconds(self, mask: Mask, share: float, *, by_core: bool, turn: float) -> float:
        """Seconds of the focus in which a core (or all together) gave at least that share, or that part of it where the
        core (or the idlest of all) had no time left."""
        if not mask.any():
            return 0.0
        cells = seconds_by_core(self.samples, mask, self.focus)
        cells = cells if by_core else cells.sum(axis=0, keepdims=True)
        places, count = cells.shape
        # The last second of a focus may be a part of one.
        lengths = np.clip(self.focus.seconds - np.arange(count), _SHORTEST_S, 1.0)
        rows = self.now("cpu")
        second = np.round((rows.wall - self.focus.since) / NANOS).astype(np.int64)
        place = rows.cpu if by_core else np.zeros(len(rows), np.int64)
        known = (second >= 0) & (second < count) & (place < places)
        idle = np.full((places, count), -1.0)
        np.maximum.at(idle, (place[known], second[known]), rows.sums(("idle", "iowait"))[known] / 1000)
        full = (idle >= 0) & (idle <= _IDLE)
        return float(lengths[(cells / lengths >= np.where(full, share * turn, share)).any(axis=0)].sum())

    @cached_property
    def processes(self) -> dict[int, KnownProcess]:
        """Every process that was recorded near the focus, by pid."""
        columns = ("pid", "comm", "cmdline", "cgroup", "container", "pod")
        # The rows come in the order of time: the newest image of a process wins.
        return {row[0]: KnownProcess(*row) for row in self.now("processes").listed(*columns)}

    @cached_property
    def container_names(self) -> dict[str, ContainerName]:
        """Names of containers by id, as recorded up to the end of the requested time."""
        columns = ("container", "container_name", "image", "wall", "kind", "text", "pod")
        rows = self.around("events", NAMES_S).listed(*columns)
        return {number: ContainerName(name, *rest) for number, name, *rest in rows if number and name is not None}

    @cached_property
    def pod_names(self) -> dict[str, str]:
        """Names of pods (namespace/name) by uid, from processes and from events of containers."""
        return self._names("pod")

    @cached_property
    def pod_owners(self) -> dict[str, str]:
        """What keeps pods alive (`deployment/web`) by uid, from events of containers; the cluster's API knows best."""
        events = self.around("events", NAMES_S)
        return events.pairs("pod", "owner") | events.matching("kind", POD_OWNER).pairs("pod", "owner")

    @cached_property
    def names_in_pods(self) -> dict[str, str]:
        """Names of containers of pods (namespace/pod/container) by container id."""
        return self._names("container")

    def _names(self, kind: str) -> dict[str, str]:
        """From the events for what is gone already; the names of containers outside pods are no names in pods."""
        events = self.around("events", NAMES_S)
        events = events.where(np.array([pod is not None for pod in events.texts("pod").tolist()], np.bool_))
        processes = self.recorded("processes", _NAMED_PROCESSES_S + self.focus.seconds)
        return events.pairs(kind, f"{kind}_name") | processes.pairs(kind, f"{kind}_name")

    def command(self, pid: int, width: int = 120) -> str | None:
        """The command line of a process, cut to a width."""
        known = self.processes.get(pid)
        return known.cmdline[:width] if known is not None and known.cmdline else None

    def culprit(self, load: Load, function: str | None = None) -> Culprit:
        """The owner of a load, with what is known of that process. Where many processes share it, only the core, the
        function and a name that most of them have are known."""
        owner = load.main_owner
        if owner is not None:
            return self.culprit_of(owner.pid, owner.comm, load.cpu, function)
        parts: dict[str, float] = {}
        for each in load.owners:
            parts[each.comm] = parts.get(each.comm, 0.0) + each.part
        comm = max(parts, key=lambda name: parts[name], default=None)
        shared = comm is not None and parts[comm] >= OWNED
        return Culprit(cpu=load.cpu, comm=comm if shared else None, function=function)

    def culprit_of(self, pid: int, comm: str | None, cpu: int | None, function: str | None = None) -> Culprit:
        """A process as the culprit, with what is known of it."""
        known = self.processes.get(pid)
        if known is None:
            return Culprit(cpu, pid, comm, function=function)
        return Culprit(cpu, pid, comm, known.cmdline, known.cgroup, known.container, known.pod, function)

    def core_held(self, states: Collection[str], cpu: int | None = None) -> bool:
        """Whether a core was held in these states for a second of the focus: for what the hypervisor left of it."""
        rows = self.now("cpu") if cpu is None else self.now("cpu").on(cpu)
        return bool(is_held(rows.sums(tuple(states)), rows.numbers("steal")).any())

    def core_share(self, states: Collection[str], cpu: int | None = None) -> tuple[float, int | None, int]:
        """The largest share (0 to 1) of one core-second in these states, its core and its wall time."""
        rows = self.now("cpu") if cpu is None else self.now("cpu").on(cpu)
        if not len(rows):
            return 0.0, None, self.focus.since
        shares = rows.sums(tuple(states))
        best = int(np.argmax(shares))
        return float(shares[best]) / 1000, int(rows.cpu[best]), int(rows.wall[best])

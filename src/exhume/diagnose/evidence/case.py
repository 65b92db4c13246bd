"""Everything a cause may look at: the recorded rows of a focus and of its baseline. Causes read no files themselves."""

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
# There are many more processes than container events, so look back less far.
_NAMED_PROCESSES_S = 600.0
# A load holds a process if at least this fraction of the process's own time goes to it.
_HELD = 0.5
# A process that spends this fraction of its time on a load does nothing else: on a core without idle time, `_TURN` of
# the required share is then enough for a second to count as held.
_NOTHING_ELSE, _TURN, _IDLE, _SHORTEST_S = 0.7, 0.5, 0.1, 0.2
# It takes this many seconds to know how much CPU time a process wants.
_FOLLOWED_S = 2.0
# Lower bound of the turn, however many threads queue: less of a core slows no other thread by itself.
_LEAST_TURN = 0.3


@dataclass(frozen=True, slots=True)
class KnownProcess:
    """What was recorded about a process."""

    pid: int
    comm: str | None
    cmdline: str | None
    cgroup: str | None
    container: str | None
    pod: str | None


@dataclass(frozen=True, slots=True)
class ContainerName:
    """A container's name and image, and the event that contains them."""

    name: str
    image: str | None
    at: int
    kind: str
    text: str
    pod: str | None = None


@dataclass(frozen=True, slots=True)
class CoreHold:
    """How long a load held a core: the `seconds` in which one core, or one process over all cores, spent at least the
    given share of a core's time on it; `owner_part` is the fraction of its largest owner's own time.

    The sum over all cores says little on a large node: a hundred cores that spend a hundredth each on it are healthy,
    one core that spends all its time is not. On a core that others also want, a program gets only its turn."""

    seconds: float = 0.0
    owner_part: float = 0.0


@dataclass
class Case:
    """One focus. `explained` are the samples that the causes in `found` account for so far; the last causes see the
    rest."""

    recording: Recording
    focus: Window
    baseline: Window
    explained: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    found: tuple[str, ...] = ()
    # Computed once, as several causes need them.
    symptoms: "list[Symptom] | None" = None
    # The requested window, which contains the focus; None if a moment was requested.
    window: Window | None = None

    def __post_init__(self) -> None:
        self.facts = self.recording.facts
        self.cores = max(1, self.facts.cores)
        self._tables: dict[tuple[str, Window], Rows] = {}

    def now(self, table: str) -> Rows:
        """The rows of a table in the focus."""
        return self.read(table, self.focus)

    def before(self, table: str) -> Rows:
        """The rows of a table in the baseline; empty if there is no baseline."""
        return self.read(table, self.baseline)

    def recorded(self, table: str, seconds: float) -> Rows:
        """The rows of a table in this many seconds up to the end of the focus: for slow counts and growth."""
        return self.read(table, Window(self.focus.until - round(seconds * 1e9), self.focus.until))

    def around(self, table: str, seconds: float) -> Rows:
        """The rows of a table within this many seconds before and after the end of the focus, within the requested
        window: for what changes too slowly to show in a focus."""
        return self.read(table, Window(self.focus.until - round(seconds * 1e9), self.end_within(seconds)))

    def end_within(self, seconds: float) -> int:
        """This many seconds after the end of the focus, but not beyond the requested and recorded time."""
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
        """The stack samples of the baseline and the focus."""
        return Samples.read(self.recording, self.focus, also=self.baseline)

    @cached_property
    def has_stacks(self) -> bool:
        """Whether the focus has stack samples: without them no function can be named."""
        return bool(self.samples.within(self.focus).any())

    @cached_property
    def queue(self) -> float:
        """Mean number of threads waiting per core over the focus."""
        return self.queue_in(self.focus)

    def queue_in(self, window: Window) -> float:
        """Mean number of threads waiting per core in a part of the focus. If the kernel doesn't count run delay, it is
        estimated from pressure and the runnable threads at each tick, one of which is the recorder."""
        rows, node = self.now("cpu").within(window), self.now("node").within(window)
        waited, spans = rows.total("wait_ns"), rows.total("span_ms")
        if waited is not None and spans:
            return waited / NANOS / (spans / 1000)
        stalled, running = node.per_second("psi_cpu_some"), node.middle("running")
        if stalled is None or running is None:
            return 0.0
        return min(1.0, stalled / 1e6) * max(0.0, running - 1 - self.cores) / self.cores

    @property
    def turn(self) -> float:
        """The part of a core that one load can get while threads queue for every core: 1 if fewer than one thread
        does."""
        return min(1.0, max(_LEAST_TURN, 2 / (1 + self.queue)))

    def load(self, functions: Iterable[str] | Names, *, cpus: Collection[int] | None = None) -> Load:
        """The CPU time in stacks that contain one of these kernel functions."""
        names = functions if isinstance(functions, Names) else Names.of(functions)
        return self.load_of(self.samples.holding(names), cpus=cpus)

    def load_of(self, mask: Mask, *, cpus: Collection[int] | None = None) -> Load:
        """The CPU time of the masked samples."""
        if cpus is not None:
            mask = mask & np.isin(self.samples.cpu, list(cpus))
        return measure_load(self.samples, mask, self.focus, self.baseline)

    def part_in(self, load: Load, names: Names) -> float:
        """The fraction (0 to 1) of a load in stacks that contain one of these kernel functions."""
        samples = self.samples
        total = samples.time(load.mask)
        return samples.time(load.mask & samples.holding(names)) / total if total else 0.0

    def hold(self, load: Load, share: float = CORE_TAKEN) -> CoreHold:
        """The core hold of a load; a second counts as held from this `share` of a core on."""
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
        """Cores' worth of time that the largest owner of a load would spend on it if it never had to wait for a core,
        over the time it was followed; 0 if it mostly does other things or was followed too briefly."""
        samples, owner = self.samples, load.owner
        rows = self.now("run_delays")
        rows = rows.where(rows.numbers("pid") == (None if owner is None else owner.pid))
        if owner is None or not len(rows):
            return 0.0
        own = (samples.pid == owner.pid) & samples.within(self.focus)
        part = samples.time(own & load.mask) / max(samples.time(own), 1.0)
        # A row has what was counted in the second before it.
        seconds = 1.0 + (rows.wall.max() - rows.wall.min()) / NANOS
        wanted = ((rows.total("run_ns") or 0.0) + (rows.total("wait_ns") or 0.0)) / NANOS
        return float(part * wanted / seconds) if part >= _HELD and seconds >= _FOLLOWED_S else 0.0

    def _held_seconds(self, mask: Mask, share: float, *, by_core: bool, turn: float) -> float:
        """Seconds of the focus in which a core (or all cores together) spent at least `share` on it, or `turn` times
        that share if the core (or the idlest of all) had no idle time left."""
        if not mask.any():
            return 0.0
        cells = seconds_by_core(self.samples, mask, self.focus)
        cells = cells if by_core else cells.sum(axis=0, keepdims=True)
        places, count = cells.shape
        # The last second of a focus may be incomplete.
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
        """All processes recorded near the focus, by pid."""
        columns = ("pid", "comm", "cmdline", "cgroup", "container", "pod")
        # Rows are in order of time: the newest image of a process wins.
        return {row[0]: KnownProcess(*row) for row in self.now("processes").listed(*columns)}

    @cached_property
    def container_names(self) -> dict[str, ContainerName]:
        """Container names by id, as recorded up to the end of the requested window."""
        columns = ("container", "container_name", "image", "wall", "kind", "text", "pod")
        rows = self.around("events", NAMES_S).listed(*columns)
        return {number: ContainerName(name, *rest) for number, name, *rest in rows if number and name is not None}

    @cached_property
    def pod_names(self) -> dict[str, str]:
        """Pod names (namespace/name) by uid, from processes and container events."""
        return self._names("pod")

    @cached_property
    def pod_owners(self) -> dict[str, str]:
        """Controllers of pods (`deployment/web`) by uid, from container events; the cluster's API knows best."""
        events = self.around("events", NAMES_S)
        return events.pairs("pod", "owner") | events.matching("kind", POD_OWNER).pairs("pod", "owner")

    @cached_property
    def names_in_pods(self) -> dict[str, str]:
        """Names of containers in pods (namespace/pod/container) by container id."""
        return self._names("container")

    def _names(self, kind: str) -> dict[str, str]:
        """Names from events also cover what is gone already; containers outside of pods have no name in a pod."""
        events = self.around("events", NAMES_S)
        events = events.where(np.array([pod is not None for pod in events.texts("pod").tolist()], np.bool_))
        processes = self.recorded("processes", _NAMED_PROCESSES_S + self.focus.seconds)
        return events.pairs(kind, f"{kind}_name") | processes.pairs(kind, f"{kind}_name")

    def command(self, pid: int, width: int = 120) -> str | None:
        """The command line of a process, truncated to a width."""
        known = self.processes.get(pid)
        return known.cmdline[:width] if known is not None and known.cmdline else None

    def culprit(self, load: Load, function: str | None = None) -> Culprit:
        """The owner of a load as the culprit. If many processes share the load, only the core, the function and the
        name that most of the processes have are known."""
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
        """A process as the culprit, with what is known about it."""
        known = self.processes.get(pid)
        if known is None:
            return Culprit(cpu, pid, comm, function=function)
        return Culprit(cpu, pid, comm, known.cmdline, known.cgroup, known.container, known.pod, function)

    def core_held(self, states: Collection[str], cpu: int | None = None) -> bool:
        """Whether these states held a core for a second of the focus, that is, took all that the hypervisor left of
        it."""
        rows = self.now("cpu") if cpu is None else self.now("cpu").on(cpu)
        return bool(is_held(rows.sums(tuple(states)), rows.numbers("steal")).any())

    def core_share(self, states: Collection[str], cpu: int | None = None) -> tuple[float, int | None, int]:
        """The largest share (0 to 1) of one core-second spent in these states, with its core and wall time."""
        rows = self.now("cpu") if cpu is None else self.now("cpu").on(cpu)
        if not len(rows):
            return 0.0, None, self.focus.since
        shares = rows.sums(tuple(states))
        best = int(np.argmax(shares))
        return float(shares[best]) / 1000, int(rows.cpu[best]), int(rows.wall[best])

"""Everything that a cause may look at: the recorded rows of a focus and of its baseline. No cause reads files."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from exhume.diagnose.evidence.load import OWNED, Load, measure_load, no_load
from exhume.diagnose.evidence.rows import Mask, Rows
from exhume.diagnose.evidence.samples import Names, Samples
from exhume.diagnose.focus import Focus
from exhume.model.clock import Window
from exhume.model.finding import Culprit
from exhume.store.read.recording import Recording

if TYPE_CHECKING:
    from exhume.diagnose.symptoms import Symptom

KERNEL_STATES = ("system", "irq", "softirq")


@dataclass(frozen=True, slots=True)
class KnownProcess:
    """What was recorded of a process."""

    pid: int
    comm: str | None
    cmdline: str | None
    cgroup: str | None
    container: str | None
    pod: str | None


@dataclass
class Case:
    """One focus of a recording. `explained` are the samples that the causes `found` so far account for: the last
    causes examine what is left."""

    recording: Recording
    focus: Window
    baseline: Window
    explained: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    found: tuple[str, ...] = ()
    # Computed once: several causes need them.
    symptoms: "list[Symptom] | None" = None

    @classmethod
    def of(cls, recording: Recording, focus: Focus) -> "Case":
        return cls(recording, focus.window, focus.baseline)

    def __post_init__(self) -> None:
        self.facts = self.recording.facts
        self._tables: dict[tuple[str, Window], Rows] = {}

    # Rows

    def now(self, table: str) -> Rows:
        """The rows of a table in the focus."""
        return self._rows(table, self.focus)

    def before(self, table: str) -> Rows:
        """The rows of a table in the baseline; none where there is no baseline."""
        return self._rows(table, self.baseline)

    def recorded(self, table: str, seconds: float) -> Rows:
        """The rows of a table in so many seconds up to the end of the focus: for slow counts and growth."""
        since = self.focus.until - round(seconds * 1e9)
        return self._rows(table, Window(since, self.focus.until))

    def _rows(self, table: str, window: Window) -> Rows:
        key = (table, window)
        if key not in self._tables:
            self._tables[key] = Rows(table, self.recording.read(table, window))
        return self._tables[key]

    # Stacks

    @cached_property
    def samples(self) -> Samples:
        """The stack samples of baseline and focus."""
        return Samples.read(self.recording, self.focus, also=self.baseline)

    @cached_property
    def has_stacks(self) -> bool:
        """Whether stacks were samples in the focus: without them no function can be named."""
        return bool(self.samples.within(self.focus).any())

    def load(self, functions: Iterable[str] | Names, *, cpus: Collection[int] | None = None) -> Load:
        """The CPU time in stacks that hold one of these functions of the kernel."""
        names = functions if isinstance(functions, Names) else Names.of(functions)
        return self.load_of(self.samples.holding(names), cpus=cpus)

    def load_of(self, mask: Mask, *, cpus: Collection[int] | None = None) -> Load:
        """The CPU time in masked samples."""
        if not len(self.samples):
            return no_load()
        if cpus is not None:
            mask = mask & self.samples.on(cpus)
        return measure_load(self.samples, mask, self.focus, self.baseline)

    def part_in(self, load: Load, names: Names) -> float:
        """The part of a load (0 to 1) in stacks that hold one of these functions of the kernel."""
        samples = self.samples
        total = float(samples.weight[load.mask].sum())
        return float(samples.weight[load.mask & samples.holding(names)].sum()) / total if total else 0.0

    # Processes

    @cached_property
    def _processes(self) -> dict[int, KnownProcess]:
        columns = ("pid", "comm", "cmdline", "cgroup", "container", "pod")
        # The rows come in the order of time: the newest image of a process wins.
        return {row[0]: KnownProcess(*row) for row in self.now("processes").listed(*columns)}

    @cached_property
    def processes(self) -> list[KnownProcess]:
        """Every process that was recorded near the focus, the newest image of each."""
        return list(self._processes.values())

    @cached_property
    def pod_names(self) -> dict[str, str]:
        """Names of pods (namespace/name) by uid, from processes near the focus."""
        return self._names("pod")

    @cached_property
    def names_in_pods(self) -> dict[str, str]:
        """Names of containers of pods (namespace/pod/container) by container id."""
        return self._names("container")

    def _names(self, kind: str) -> dict[str, str]:
        listed = self.now("processes").listed(kind, f"{kind}_name")
        return {number: name for number, name in listed if number is not None and name is not None}

    def process(self, pid: int) -> KnownProcess | None:
        return self._processes.get(pid)

    def culprit(self, load: Load, function: str | None = None) -> Culprit:
        """The owner of a load, with what is known of that process. Where many processes share it, only the core, the
        function and a name that most of them have are known."""
        owner = load.main_owner
        if owner is None:
            return Culprit(cpu=load.cpu, comm=_common_comm(load), function=function)
        known = self.process(owner.pid)
        if known is None:
            return Culprit(cpu=load.cpu, pid=owner.pid, comm=owner.comm, function=function)
        return Culprit(
            load.cpu, owner.pid, owner.comm, known.cmdline, known.cgroup, known.container, known.pod, function
        )

    # Cores

    @cached_property
    def cores(self) -> int:
        return max(1, self.facts.cores)

    def core_share(self, states: Collection[str], cpu: int | None = None) -> tuple[float, int | None, int]:
        """The largest share (0 to 1) of one core-second in these states, its core and its wall time."""
        rows = self.now("cpu")
        if cpu is not None:
            rows = rows.where(rows.cpu == cpu)
        if not len(rows):
            return 0.0, None, self.focus.since
        shares = rows.sums(tuple(states))
        best = int(np.argmax(shares))
        return float(shares[best]) / 1000, int(rows.cpu[best]), int(rows.wall[best])


def _common_comm(load: Load) -> str | None:
    """The name that most owners of a load share."""
    parts: dict[str, float] = {}
    for owner in load.owners:
        parts[owner.comm] = parts.get(owner.comm, 0.0) + owner.part
    best = max(parts, key=lambda comm: parts[comm], default=None)
    return best if best is not None and parts[best] >= OWNED else None

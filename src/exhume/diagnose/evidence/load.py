"""CPU time of one kind of stack: how much, where, when, whose, and whether it is new."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.evidence.rows import Floats, Ints, Mask
from exhume.diagnose.evidence.samples import Samples
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Entity, process_entity

# A core counts as taken in a second if at least this share of it went to one thing.
CORE_TAKEN = 0.7
# A rate differs from the baseline if it exceeds it by this many standard errors and by this factor.
SURELY = 4.0
BY_MUCH = 1.5
# A process owns a load from this fraction on; below, the load belongs to many processes.
OWNED = 1 / 3


@dataclass(frozen=True, slots=True)
class NamedProcess:
    """A process as named by samples."""

    pid: int
    comm: str

    @property
    def entity(self) -> Entity:
        return process_entity(self.comm, self.pid)


@dataclass(frozen=True, slots=True)
class Owner(NamedProcess):
    """A process and its fraction (0 to 1) of a load."""

    part: float


@dataclass(frozen=True, slots=True)
class Load:
    """The CPU time of the masked samples. Shares are fractions of one core's time: 1.0 is a whole core.

    `cores`: cores' worth over the focus, and `before` over the baseline (None without one); `peak`: the largest share
    of one core in one second, on `cpu` at wall time `at`; `together`: the largest sum over all cores in one second;
    `taken_s`: seconds in which it took a whole core or more, on one core or migrating between several; `core_s`:
    seconds in which it took `cpu` alone; `part`: its fraction of all sampled time in the focus; `significance`:
    standard errors between focus and baseline; `new_there`: whether `cpu` and the load's owner on it stand out from
    their own baseline, even if the sum over the node does not.
    """

    samples: int
    cores: float
    before: float | None
    peak: float
    cpu: int | None
    at: int
    together: float
    taken_s: float
    part: float
    significance: float
    owners: tuple[Owner, ...]
    mask: Mask
    core_s: float = 0.0
    new_there: bool = False

    @property
    def second(self) -> tuple[int, int]:
        """The worst second of the load (wall nanoseconds, half-open)."""
        return self.at, self.at + NANOS

    @property
    def values(self) -> dict[str, object]:
        """The values for messages about the load."""
        return {name: getattr(self, name) for name in ("peak", "cpu", "cores", "before", "together")}

    @property
    def owner(self) -> Owner | None:
        """The process with the largest part of the load."""
        return self.owners[0] if self.owners else None

    @property
    def main_owner(self) -> Owner | None:
        """The largest owner if the load is its own; None if many processes share it."""
        return self.owner if self.owner is not None and self.owner.part >= OWNED else None

    @property
    def risen(self) -> float:
        """Cores' worth above the baseline; the whole load if there is no baseline."""
        return self.cores - (self.before or 0.0)

    @property
    def is_new(self) -> bool:
        """Whether the load stands out from the baseline (always true without a baseline)."""
        return self.before is None or stands_out(self.significance, self.cores, self.before) or self.new_there


def stands_out(significance: float, now: float, before: float) -> bool:
    """Whether a rate differs from the baseline both significantly and by much."""
    return significance >= SURELY and now >= BY_MUCH * before


def measure_load(samples: Samples, mask: Mask, focus: Window, baseline: Window) -> Load:
    """Measure the masked samples of the focus; those of the baseline only serve as the comparison."""
    if not len(samples):
        return Load(0, 0.0, None, 0.0, None, 0, 0.0, 0.0, 0.0, 0.0, (), np.zeros(0, np.bool_))
    chosen = mask & samples.within(focus)
    # A cause has few of the samples of a large node: indices are much smaller than a mask.
    places = np.flatnonzero(chosen)
    total, used = samples.time_within(focus), samples.time(places)
    peak, cpu, at, together, taken, core_s = _peaks(samples, places, focus)
    before, errors, new_there = None, 0.0, False
    if not baseline.empty:
        earlier = np.flatnonzero(mask & samples.within(baseline))
        before = samples.time(earlier) / 1e6 / baseline.seconds
        errors = significance(len(places), focus.seconds, len(earlier), baseline.seconds)
        if cpu is not None:
            new_there = _new_there(samples, places, earlier, cpu, focus, baseline)
    return Load(
        samples=len(places),
        cores=used / 1e6 / max(focus.seconds, 1e-9),
        before=before,
        peak=peak,
        cpu=cpu,
        at=at,
        together=together,
        taken_s=taken,
        part=used / total if total else 0.0,
        significance=errors,
        owners=_owners(samples, places, used),
        mask=chosen,
        core_s=core_s,
        new_there=new_there,
    )


def significance(now: int, seconds: float, before: int, earlier: float) -> float:
    """Standard errors between two sample rates. A count of zero is uncertain by one sample, too."""
    error = np.sqrt(max(now, 1) / seconds**2 + max(before, 1) / earlier**2)
    return float((now / seconds - before / earlier) / error)


def _new_there(  # noqa: PLR0917
    samples: Samples, now: Ints, earlier: Ints, cpu: int, focus: Window, baseline: Window
) -> bool:
    """Whether a core got a load it did not have before, from a process that did not have it either: a load that only
    migrated is not new."""
    there = now[samples.cpu[now] == cpu]
    distinct, counts = np.unique(samples.pid[there], return_counts=True)
    whose, main = samples.pid, distinct[int(np.argmax(counts))]
    if not (samples.pid[earlier] == main).any():
        # A process that did not exist before may be one of many short-lived ones: then their name identifies them.
        whose, main = samples.comm, samples.comm[there[samples.pid[there] == main][0]]
    parts = (
        (there, earlier[samples.cpu[earlier] == cpu]),
        (now[whose[now] == main], earlier[whose[earlier] == main]),
    )
    return all(
        stands_out(
            significance(len(after), focus.seconds, len(before), baseline.seconds),
            samples.time(after) / focus.seconds,
            samples.time(before) / baseline.seconds,
        )
        for after, before in parts
    )


def _peaks(samples: Samples, chosen: Ints, focus: Window) -> tuple[float, int | None, int, float, float, float]:
    if not len(chosen):
        return 0.0, None, focus.since, 0.0, 0.0, 0.0
    cells = seconds_by_core(samples, chosen, focus)
    # The last second of a focus may be incomplete.
    lengths = np.minimum(1.0, np.maximum(0.2, focus.seconds - np.arange(cells.shape[1])))
    taken_s = ((cells / lengths >= CORE_TAKEN) * lengths).sum(axis=1)
    # Choose the core that was taken longest or, if none was, the core with the fullest second; then its fullest second.
    cpu = int(np.argmax(taken_s)) if taken_s.max() > 0 else int(np.argmax(cells)) // cells.shape[1]
    second = int(np.argmax(cells[cpu]))
    sums = cells.sum(axis=0)
    taken = float(lengths[sums / lengths >= CORE_TAKEN].sum())
    peak, at = min(1.0, float(cells[cpu, second])), focus.since + second * NANOS
    return peak, cpu, at, float(sums.max()), taken, float(taken_s[cpu])


def seconds_by_core(samples: Samples, chosen: Mask | Ints, focus: Window) -> Floats:
    """Seconds of the chosen samples (a mask or indices) by core (row) and second of the focus, up to the last core and
    second with any."""
    seconds, cpu = (samples.wall[chosen] - focus.since) // NANOS, samples.cpu[chosen]
    cores, count = int(cpu.max()) + 1, int(seconds.max()) + 1
    cells = np.bincount(cpu * count + seconds, samples.weight[chosen] / 1e6, cores * count)
    return cells.astype(np.float64).reshape(cores, count)


def _owners(samples: Samples, chosen: Ints, used: float, most: int = 5) -> tuple[Owner, ...]:
    if not used:
        return ()
    comms = len(samples.comms)
    distinct, members = np.unique(samples.pid[chosen] * comms + samples.comm[chosen], return_inverse=True)
    weights = np.bincount(members, samples.weight[chosen])
    keys = [(i, *divmod(int(distinct[i]), comms)) for i in np.argsort(-weights)[:most].tolist()]
    return tuple(Owner(pid, samples.comms[comm], float(weights[i]) / used) for i, pid, comm in keys)

"""CPU time that one kind of stacks took: how much, where, when, whose, and whether that is new."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.rows import Floats, Ints, Mask
from exhume.diagnose.sampled import Sampled
from exhume.model.clock import NANOS
from exhume.model.window import Window

# A core counts as taken in a second when so much of it went to one thing.
TAKEN = 0.7


@dataclass(frozen=True, slots=True)
class Owner:
    """A process and its part of a load (0 to 1)."""

    pid: int
    comm: str
    part: float


@dataclass(frozen=True, slots=True)
class Load:
    """What the masked samples amount to. Shares are parts of one core's time: 1.0 is one core, whole.

    `cores`: cores' worth over the focus, and `before` over the baseline (None without one); `peak`: the largest share
    of one core in one second, on `cpu` at wall time `at`; `together`: the largest sum over all cores in one second;
    `taken_s`: seconds in which it took a whole core or more, on one core or wandering over several; `part`: its part of
    all sampled time in the focus; `significance`: standard errors between focus and baseline.
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

    @property
    def owner(self) -> Owner | None:
        return self.owners[0] if self.owners else None

    @property
    def risen(self) -> float:
        """Cores' worth more than in the baseline; all of it where there is none."""
        return self.cores - (self.before or 0.0)

    @property
    def is_new(self) -> bool:
        """Whether it stands out from the baseline (always, where there is none to compare with)."""
        return self.before is None or (self.significance >= 4 and self.cores >= 1.5 * self.before)


def measure_load(sampled: Sampled, mask: Mask, focus: Window, baseline: Window) -> Load:
    """Sum the masked samples; only those of the focus count, those of the baseline are what they are held against."""
    now = sampled.within(focus)
    chosen = mask & now
    weight = sampled.weight[chosen]
    total = float(sampled.weight[now].sum())
    used = float(weight.sum())
    peak, cpu, at, together, taken = _peaks(sampled, chosen, focus)
    cores = used / 1e6 / max(focus.seconds, 1e-9)
    before, errors = None, 0.0
    if not baseline.empty:
        earlier = mask & sampled.within(baseline)
        before = float(sampled.weight[earlier].sum()) / 1e6 / baseline.seconds
        errors = significance(int(chosen.sum()), focus.seconds, int(earlier.sum()), baseline.seconds)
    return Load(
        samples=int(chosen.sum()),
        cores=cores,
        before=before,
        peak=peak,
        cpu=cpu,
        at=at,
        together=together,
        taken_s=taken,
        part=used / total if total else 0.0,
        significance=errors,
        owners=_owners(sampled, chosen, used),
        mask=chosen,
    )


def no_load() -> Load:
    """Nothing, as where there are no samples."""
    return Load(0, 0.0, None, 0.0, None, 0, 0.0, 0.0, 0.0, 0.0, (), np.zeros(0, np.bool_))


def significance(now: int, seconds: float, before: int, earlier: float) -> float:
    """How many standard errors lie between two rates of samples. Even nothing at all is known only to one sample."""
    error = np.sqrt(max(now, 1) / seconds**2 + max(before, 1) / earlier**2)
    return float((now / seconds - before / earlier) / error)


def _peaks(sampled: Sampled, chosen: Mask, focus: Window) -> tuple[float, int | None, int, float, float]:
    if not chosen.any():
        return 0.0, None, focus.since, 0.0, 0.0
    seconds: Ints = (sampled.wall[chosen] - focus.since) // NANOS
    cpu = sampled.cpu[chosen]
    weight = sampled.weight[chosen] / 1e6
    count = int(seconds.max()) + 1
    cells: Floats = np.bincount(cpu * count + seconds, weight).astype(np.float64)
    best = int(np.argmax(cells))
    sums: Floats = np.bincount(seconds, weight, count).astype(np.float64)
    # The last second of a focus may be a part of one.
    lengths = np.minimum(1.0, np.maximum(0.2, focus.seconds - np.arange(count)))
    taken = float(lengths[sums / lengths >= TAKEN].sum())
    return (
        min(1.0, float(cells[best])),
        best // count,
        focus.since + (best % count) * NANOS,
        float(sums.max()),
        taken,
    )


def _owners(sampled: Sampled, chosen: Mask, used: float, most: int = 5) -> tuple[Owner, ...]:
    if not used:
        return ()
    keys = sampled.pid[chosen] * len(sampled.comms) + sampled.comm[chosen]
    distinct, members = np.unique(keys, return_inverse=True)
    weights = np.bincount(members, sampled.weight[chosen])
    order = np.argsort(-weights)[:most].tolist()
    return tuple(
        Owner(
            int(distinct[i] // len(sampled.comms)),
            sampled.comms[int(distinct[i] % len(sampled.comms))],
            float(weights[i]) / used,
        )
        for i in order
    )

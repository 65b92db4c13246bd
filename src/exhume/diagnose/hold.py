"""How tight a hold a load has: on one core, or on one process wherever that runs.

The sum over all cores says little on a large node: a hundred cores that give a hundredth each are a healthy node, one
core that gives itself whole is not.
"""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.case import Case
from exhume.diagnose.load import TAKEN, Load
from exhume.diagnose.rows import Mask
from exhume.model.clock import NANOS

# A process is in the load's hold when so much of its own time goes there.
HELD = 0.5
_SHORTEST_S = 0.2


@dataclass(frozen=True, slots=True)
class Hold:
    """`seconds` in which one core, or one process over all cores, gave so much of a core's time to the load;
    `owner_part` is the part of its largest owner's own time."""

    seconds: float
    owner_part: float


def hold_of(case: Case, load: Load, share: float = TAKEN) -> Hold:
    """The hold of a load, where `share` of a core's second counts as held."""
    sampled = case.sampled
    if not load.mask.any():
        return Hold(0.0, 0.0)
    on_one = _seconds(case, load.mask, share, by_core=True)
    if load.owner is None:
        return Hold(on_one, 0.0)
    own = (sampled.pid == load.owner.pid) & sampled.within(case.focus)
    part = float(sampled.weight[own & load.mask].sum()) / max(float(sampled.weight[own].sum()), 1.0)
    wandering = _seconds(case, load.mask & own, share, by_core=False) if part >= HELD else 0.0
    return Hold(max(on_one, wandering), part)


def _seconds(case: Case, mask: Mask, share: float, *, by_core: bool) -> float:
    """Seconds of the focus in which a core (or all together) gave at least that share."""
    sampled = case.sampled
    if not mask.any():
        return 0.0
    second = (sampled.wall[mask] - case.focus.since) // NANOS
    count = int(second.max()) + 1
    place = sampled.cpu[mask] if by_core else np.zeros(len(second), np.int64)
    cells = np.bincount(place * count + second, sampled.weight[mask] / 1e6, (int(place.max()) + 1) * count)
    most = cells.reshape(-1, count).max(axis=0)
    # The last second of a focus may be a part of one.
    lengths = np.clip(case.focus.seconds - np.arange(count), _SHORTEST_S, 1.0)
    return float(lengths[most / lengths >= share].sum())

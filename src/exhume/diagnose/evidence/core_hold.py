"""How tight a hold a load has: on one core, or on one process wherever that runs.

The sum over all cores says little on a large node: a hundred cores that give a hundredth each are a healthy node, one
core that gives itself whole is not. And a core that others want too gives a program only its turn.
"""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import CORE_TAKEN, Load
from exhume.diagnose.evidence.rows import Floats, Mask
from exhume.model.clock import NANOS

# A process is in the load's hold when so much of its own time goes there.
HELD = 0.5
# It does nothing else when it is so much: then its turn on a core without idle time counts for twice as much.
NOTHING_ELSE = 0.7
TURN = 0.5
_IDLE = 0.1
_SHORTEST_S = 0.2


@dataclass(frozen=True, slots=True)
class CoreHold:
    """`seconds` in which one core, or one process over all cores, gave so much of a core's time to the load;
    `owner_part` is the part of its largest owner's own time."""

    seconds: float
    owner_part: float


def core_hold(case: Case, load: Load, share: float = CORE_TAKEN) -> CoreHold:
    """The hold of a load, where `share` of a core's second counts as held."""
    samples = case.samples
    if not load.mask.any():
        return CoreHold(0.0, 0.0)
    if load.owner is None:
        return CoreHold(_seconds(case, load.mask, share, by_core=True, turn=1.0), 0.0)
    own = (samples.pid == load.owner.pid) & samples.within(case.focus)
    part = float(samples.weight[own & load.mask].sum()) / max(float(samples.weight[own].sum()), 1.0)
    turn = TURN if part >= NOTHING_ELSE else 1.0
    on_one = _seconds(case, load.mask, share, by_core=True, turn=turn)
    wandering = _seconds(case, load.mask & own, share, by_core=False, turn=turn) if part >= HELD else 0.0
    return CoreHold(max(on_one, wandering), part)


def _seconds(case: Case, mask: Mask, share: float, *, by_core: bool, turn: float) -> float:
    """Seconds of the focus in which a core (or all together) gave at least that share, or that part of it where the
    core had no time left."""
    samples = case.samples
    if not mask.any():
        return 0.0
    second = (samples.wall[mask] - case.focus.since) // NANOS
    count = int(second.max()) + 1
    place = samples.cpu[mask] if by_core else np.zeros(len(second), np.int64)
    places = int(place.max()) + 1
    cells = np.bincount(place * count + second, samples.weight[mask] / 1e6, places * count).reshape(places, count)
    # The last second of a focus may be a part of one.
    lengths = np.clip(case.focus.seconds - np.arange(count), _SHORTEST_S, 1.0)
    wanted = np.where(_idle(case, places, count, by_core=by_core) <= _IDLE, share * turn, share)
    return float(lengths[(cells / lengths >= wanted).any(axis=0)].sum())


def _idle(case: Case, places: int, count: int, *, by_core: bool) -> Floats:
    """The idle part of each core (or the idlest of all) in each second; all of it where it isn't known."""
    rows = case.now("cpu")
    idle: Floats = np.ones((places, count))
    if not len(rows):
        return idle
    second = np.round((rows.wall - case.focus.since) / NANOS).astype(np.int64)
    place = rows.cpu if by_core else np.zeros(len(rows), np.int64)
    known = (second >= 0) & (second < count) & (place < places)
    seen = np.full((places, count), -1.0)
    np.maximum.at(seen, (place[known], second[known]), rows.sums(("idle", "iowait"))[known] / 1000)
    return np.where(seen >= 0, seen, idle)

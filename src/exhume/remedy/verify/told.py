"""Restarts before a fix as the manager's own records tell of them: they reach back further than anybody looked."""

from itertools import pairwise

from exhume.model.audit import History
from exhume.model.clock import NANOS
from exhume.model.remedy import Effect
from exhume.remedy.verify.observed import Observed

# So much of the past is looked at, as of a recording; where it holds too few of them, all that is known.
RECENT_S = 600.0
# So many restarts tell how often they come.
ENOUGH = 5
# More observations than these tell no more.
_MOST = 600


def told_restarts(effect: Effect, history: History, now: int) -> Observed | None:
    """What the records tell; None where they tell of no restart. `now` is in wall nanoseconds."""
    moments = sorted(moment for moment in history.restarted_at if moment <= now)
    if len(moments) > 1:
        return _counted(effect, history, moments, now)
    if not history.restarts_per_hour or history.hours <= 0:
        return None
    # Evened out over their time: only the count matters.
    seconds = history.hours * 3600.0
    restarts = float(round(history.restarts_per_hour * history.hours))
    return Observed(effect, history.source, now - round(seconds * NANOS), now, (restarts,), (seconds,))


def _counted(effect: Effect, history: History, moments: list[int], now: int) -> Observed:
    """Second by second (or in longer steps), so that it shows how they are spread."""
    since = now - round(RECENT_S * NANOS)
    if sum(moment > since for moment in moments) < ENOUGH:
        since = now - round(history.hours * 3600 * NANOS)
    # Where it began only then, how often it comes is told by what came after the first, over the time since.
    since = max(since, moments[0])
    counted = [moment for moment in moments if moment > since]
    steps = max(1, min(_MOST, (now - since) // NANOS))
    edges = [since + (now - since) * step // steps for step in range(steps + 1)]
    values = [0.0] * steps
    for moment in counted:
        values[min(steps - 1, (moment - since) * steps // max(1, now - since))] += 1
    spans = tuple((later - earlier) / NANOS for earlier, later in pairwise(edges))
    return Observed(effect, history.source, since, now, tuple(values), spans)

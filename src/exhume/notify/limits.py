"""Rate limits of notifications: one per cause in a given time, and a limit for all causes together."""

from collections.abc import Iterable
from dataclasses import dataclass, field

# A recurring cause is the same trouble until it has been quiet for QUIET_S; lasting trouble is repeated at REMINDER_S.
QUIET_S = 300.0
REMINDER_S = 3600.0
# Limit for all causes together: this many reports in this time.
MOST, WITHIN_S = 6, 600.0
# Limit for diagnoses: each takes a second of CPU or more.
DIAGNOSES, DIAGNOSIS_EVERY_S = 3, 60.0
# How many cores and devices are diagnosed one by one while a trigger goes on: on a large node it may wander over all.
MOST_PLACES = 3


class TokenBucket:
    """A token bucket: up to `capacity` at once, then one per refill period."""

    def __init__(self, capacity: int, refill_s: float) -> None:
        self._capacity, self._refill_s = capacity, refill_s
        self._tokens, self._at = float(capacity), 0.0

    def wait_s(self, now: float) -> float:
        """Seconds until a token is available."""
        self._fill(now)
        return max(0.0, (1.0 - self._tokens) * self._refill_s)

    def take(self, now: float, amount: float = 1.0) -> bool:
        """Take tokens if enough are left, and return whether they were. An amount above the capacity takes all."""
        self._fill(now)
        amount = min(amount, float(self._capacity))
        if self._tokens < amount:
            return False
        self._tokens -= amount
        return True

    def _fill(self, now: float) -> None:
        self._tokens = min(float(self._capacity), self._tokens + max(0.0, now - self._at) / self._refill_s)
        self._at = now


@dataclass(slots=True)
class _Ongoing:
    """A trigger that is marked repeatedly: its diagnosed cause, when it was last marked, when the next diagnosis is
    due, and the places that were diagnosed."""

    cause: str
    seen: float
    pause_s: float
    due: float
    places: set[object] = field(default_factory=set)


class DiagnosisPace:
    """Decides which marks are diagnosed. Ongoing trouble has the same cause each time: it is diagnosed again after a
    pause, which doubles each time. Anything new is diagnosed at once: another trigger, another core or device, and a
    trigger that was quiet for a while. Marks are given by their trigger and place; times are monotonic seconds."""

    def __init__(self, first_s: float = DIAGNOSIS_EVERY_S, longest_s: float = REMINDER_S) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._ongoing: dict[str, _Ongoing] = {}

    def due(self, marks: Iterable[tuple[str, object]], now: float) -> bool:
        """Whether to diagnose these marks, which were just made."""
        # All marks must be recorded, so don't stop at the first that is due.
        found = [self._is_due(trigger, place, now) for trigger, place in marks]
        return any(found)

    def _is_due(self, trigger: str, place: object, now: float) -> bool:
        known = self._ongoing.get(trigger)
        if known is None:
            return True
        if now - known.seen >= QUIET_S:
            del self._ongoing[trigger]
            return True
        known.seen = now
        return now >= known.due or (place not in known.places and len(known.places) < MOST_PLACES)

    def diagnosed(self, marks: Iterable[tuple[str, object]], cause: str, now: float) -> None:
        """Record the cause that marks were diagnosed with."""
        for trigger, place in marks:
            known = self._ongoing.get(trigger)
            if known is None or known.cause != cause:
                known = self._ongoing[trigger] = _Ongoing(cause, now, self._first_s, now + self._first_s)
            elif now >= known.due:
                known.pause_s = min(2 * known.pause_s, self._longest_s)
                known.due = now + known.pause_s
            known.places.add(place)

    def cause_of(self, trigger: str) -> str | None:
        """The cause that an ongoing trigger was last diagnosed with."""
        known = self._ongoing.get(trigger)
        return known.cause if known is not None else None


@dataclass(slots=True)
class _Episode:
    """The latest episode of a cause: when it was reported and last seen, and how often since the report."""

    reported: float
    seen: float
    repeats: int = 0


class ReportLimits:
    """Decides which incidents are reported. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._episodes: dict[str, _Episode] = {}
        self._all = TokenBucket(MOST, WITHIN_S / MOST)

    def admit(self, cause: str, now: float) -> int | None:
        """How often the cause occurred unreported since its last report; None if this one is not to be reported."""
        episode = self._episodes.get(cause)
        if episode is not None:
            quiet = now - episode.seen
            episode.seen = now
            if quiet < QUIET_S and now - episode.reported < REMINDER_S:
                episode.repeats += 1
                return None
        if not self._all.take(now):
            if episode is not None:
                episode.repeats += 1
            return None
        repeats = episode.repeats if episode is not None else 0
        self._episodes[cause] = _Episode(now, now)
        return repeats

    def repeat(self, cause: str, now: float) -> None:
        """Count an occurrence of an ongoing cause, without a report."""
        episode = self._episodes.get(cause)
        if episode is not None:
            episode.seen = now
            episode.repeats += 1

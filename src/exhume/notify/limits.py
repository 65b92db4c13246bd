"""Rate limits of notifications: one of each cause in a while, and a bound on all of them together."""

from dataclasses import dataclass

# A cause that comes again is the same trouble until it has been quiet for this long; long ones are repeated this often.
QUIET_S = 300.0
REMINDER_S = 3600.0
# Of all causes together, so many in this time.
MOST, WITHIN_S = 6, 600.0
# Diagnoses: each takes a second of CPU or more.
DIAGNOSES, DIAGNOSIS_EVERY_S = 3, 60.0


class TokenBucket:
    """So many at once, then one each time a token comes back."""

    def __init__(self, capacity: int, refill_s: float) -> None:
        self._capacity, self._refill_s = capacity, refill_s
        self._tokens, self._at = float(capacity), 0.0

    def wait_s(self, now: float) -> float:
        """Seconds until there is a token."""
        self._fill(now)
        return max(0.0, (1.0 - self._tokens) * self._refill_s)

    def take(self, now: float) -> bool:
        self._fill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _fill(self, now: float) -> None:
        self._tokens = min(float(self._capacity), self._tokens + max(0.0, now - self._at) / self._refill_s)
        self._at = now


@dataclass(slots=True)
class _Episode:
    """The last of a cause: when it was reported, when it was last there, and how often since the report."""

    reported: float
    seen: float
    repeats: int = 0


class ReportLimits:
    """Decides which incidents are reported. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._episodes: dict[str, _Episode] = {}
        self._all = TokenBucket(MOST, WITHIN_S / MOST)
        self.suppressed = 0

    def admit(self, cause: str, now: float) -> int | None:
        """How often the cause came unreported since its last report; None where this one is not to be reported."""
        episode = self._episodes.get(cause)
        if episode is not None:
            quiet = now - episode.seen
            episode.seen = now
            if quiet < QUIET_S and now - episode.reported < REMINDER_S:
                self._suppress(episode)
                return None
        if not self._all.take(now):
            self._suppress(episode)
            return None
        repeats = episode.repeats if episode is not None else 0
        self._episodes[cause] = _Episode(now, now)
        return repeats

    def _suppress(self, episode: _Episode | None) -> None:
        self.suppressed += 1
        if episode is not None:
            episode.repeats += 1

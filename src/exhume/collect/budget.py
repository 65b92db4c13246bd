"""The recorder's budget: it is kept by sampling less often, never by going dark."""

from collections import deque
from dataclasses import dataclass

AVERAGED_TICKS = 30
# The first seconds read symbol tables and every process anew; they say nothing about the cost of going on.
SETTLING_TICKS = 10
LOWEST_HZ = 11
# Only well below the budget is the rate raised again, or it would swing.
RAISE_BELOW = 0.4


@dataclass(frozen=True, slots=True)
class RateChange:
    """A new sampling rate, and why."""

    rate_hz: int
    reason: str


class Budget:
    """Watches what the recorder costs and says when the rate has to change."""

    def __init__(self, cpu_share: float, rate_hz: int) -> None:
        self._share = cpu_share
        self._wanted = rate_hz
        self._rate = rate_hz
        self._spent: deque[tuple[float, float]] = deque(maxlen=AVERAGED_TICKS)
        self._settling = SETTLING_TICKS

    def observe(self, cpu_seconds: float, seconds: float) -> RateChange | None:
        """One tick's cost. Returns the rate to go on with when it has to change."""
        if self._settling:
            self._settling -= 1
            return None
        self._spent.append((cpu_seconds, seconds))
        if len(self._spent) < AVERAGED_TICKS:
            return None
        share = sum(cpu for cpu, _ in self._spent) / max(sum(length for _, length in self._spent), 1e-9)
        if share > self._share and self._rate > LOWEST_HZ:
            return self._change(max(LOWEST_HZ, self._rate // 2), share, "over")
        if share < self._share * RAISE_BELOW and self._rate < self._wanted:
            return self._change(min(self._wanted, self._rate * 2), share, "well within")
        return None

    def _change(self, rate_hz: int, share: float, how: str) -> RateChange:
        reason = (
            f"the recorder used {share:.1%} of one core, {how} its budget of {self._share:.1%}: "
            f"sampling at {rate_hz} Hz instead of {self._rate} Hz"
        )
        self._rate = rate_hz
        self._spent.clear()
        return RateChange(rate_hz, reason)

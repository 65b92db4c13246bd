"""The increments of the kernel's counters between two reads: some wrap at 32 bits, some restart from zero."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

_WRAP = 1 << 32
# A larger step means that the counter was reset (a core that came back), not that it wrapped around.
_IMPLAUSIBLE = 1 << 31


def step_of_u32(now: int, before: int) -> int:
    """The increment of a 32-bit counter, across a wrap-around; -1 for a counter that was reset."""
    step = (now - before) % _WRAP
    return step if step < _IMPLAUSIBLE else -1


def steps_of_u32(now: NDArray[np.int64], before: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same for many counters at once."""
    steps = (now - before) % _WRAP
    steps[steps >= _IMPLAUSIBLE] = -1
    return steps


class Differences:
    """The increments of named counters since the last read; none for one that is new or went backwards."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def since(self, now: Mapping[str, int]) -> dict[str, int]:
        before, self._before = self._before, {**self._before, **now}
        return {name: value - before[name] for name, value in now.items() if name in before and value >= before[name]}

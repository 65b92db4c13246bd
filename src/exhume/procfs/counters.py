"""What the kernel's counters advanced by between two reads: some wrap at 32 bits, some start again."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

_WRAP = 1 << 32
# A larger step is a counter that was reset (a core that came back), not one that wrapped around.
_IMPLAUSIBLE = 1 << 31


def step_of_u32(now: int, before: int) -> int:
    """What a 32-bit counter advanced by, across its wrap-around; -1 for one that was reset."""
    step = (now - before) % _WRAP
    return step if step < _IMPLAUSIBLE else -1


def steps_of_u32(now: NDArray[np.int64], before: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same for many counters at once."""
    steps = (now - before) % _WRAP
    steps[steps >= _IMPLAUSIBLE] = -1
    return steps


class Differences:
    """What named counters advanced by since the last read; nothing for one that is new or went backwards."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def since(self, now: Mapping[str, int]) -> dict[str, int]:
        before, self._before = self._before, {**self._before, **now}
        return {name: value - before[name] for name, value in now.items() if name in before and value >= before[name]}

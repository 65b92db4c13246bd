"""The kernel's counters: named ones in `name value` files (vmstat, meminfo), and what counters advanced by."""

from collections.abc import Mapping, Sequence

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


class NamedCounters:
    """Picks columns out of a file of names and values, one pair (and perhaps a unit) to a line.

    The names and their order stay the same until the next boot, so the lines are looked up once and looked up again
    only when the file no longer has the expected number of lines. A column is the sum of the lines that it names; it
    is left out where the kernel has none of them.
    """

    def __init__(self, columns: Mapping[str, Sequence[str]]) -> None:
        self._wanted = {column: [name.encode() for name in names] for column, names in columns.items()}
        self._layout = (-1, b"")
        self._lines: list[tuple[str, list[int]]] = []

    def read(self, content: bytes) -> dict[str, int]:
        lines = content.split(b"\n")
        layout = (len(lines), lines[-2].split(b" ", 1)[0] if len(lines) > 1 else b"")
        if layout != self._layout:
            self._find(lines)
            self._layout = layout
        values = {}
        for column, at in self._lines:
            value = int(lines[at[0]].split()[1])
            for other in at[1:]:
                value += int(lines[other].split()[1])
            values[column] = value
        return values

    def _find(self, lines: list[bytes]) -> None:
        position = {fields[0]: index for index, line in enumerate(lines) if len(fields := line.split()) >= 2}
        found = {
            column: [position[name] for name in names if name in position] for column, names in self._wanted.items()
        }
        self._lines = [(column, at) for column, at in found.items() if at]


class Differences:
    """What each counter advanced by since the last time; nothing for one that is new or went backwards."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def since(self, now: Mapping[str, int]) -> dict[str, int]:
        before, self._before = self._before, {**self._before, **now}
        return {name: value - before[name] for name, value in now.items() if name in before and value >= before[name]}

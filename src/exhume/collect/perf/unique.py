"""unique, group_indices and isin for integers: numpy's own load its masked arrays when first called, which costs 40 ms
and 4 MB at the recorder's start."""

from collections.abc import Collection
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

_Number = TypeVar("_Number", np.int32, np.int64, np.uint32, np.uint64)


class Unique(NamedTuple):
    """The distinct values in ascending order, where each first stands, and for every place which of them it holds."""

    values: npt.NDArray[np.uint64]
    first: npt.NDArray[np.int64]
    which: npt.NDArray[np.int64]


def unique(values: npt.NDArray[np.uint64]) -> Unique:
    """The distinct values of an array."""
    order, begins = _sorted_runs(values)
    which = np.empty(len(values), dtype=np.int64)
    which[order] = np.cumsum(begins) - 1
    first = order[begins]
    return Unique(values[first], first, which)


def group_indices(values: npt.NDArray[_Number]) -> list[npt.NDArray[np.int64]]:
    """Where each distinct value stands: one array of places a value, each in ascending order."""
    if not len(values):
        return []
    order, begins = _sorted_runs(values)
    return np.split(order, np.flatnonzero(begins)[1:])


def isin(values: npt.NDArray[_Number], chosen: Collection[int]) -> npt.NDArray[np.bool_]:
    """Which of the values are among the chosen ones."""
    if not chosen:
        return np.zeros(len(values), dtype=np.bool_)
    table = np.fromiter(chosen, dtype=np.uint64, count=len(chosen))
    table.sort()
    at = np.minimum(np.searchsorted(table, values), len(table) - 1)
    found: npt.NDArray[np.bool_] = table[at] == values
    return found


def _sorted_runs(values: npt.NDArray[_Number]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The stable order that sorts the values, and where in it a new value begins."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    begins = np.ones(len(values), dtype=np.bool_)
    begins[1:] = ordered[1:] != ordered[:-1]
    return order, begins

"""The nodes of an hour in a fixed order, and their attributes as columns over that order."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from exhume.present.fleet.lake import HOUR_MS, ROSTER_KEY, Hour, KeyRows, LakeHandle, day_of


@dataclass(frozen=True, slots=True)
class Roster:
    """The nodes that sent summaries in an hour and the known nodes that sent none, sorted by name. `places` maps each
    node of the hour to its index."""

    names: list[str]
    places: npt.NDArray[np.int64]
    fingerprint: str

    @property
    def silent(self) -> int:
        return len(self.names) - len(self.places)

    @classmethod
    def of(cls, handle: LakeHandle, at: int, hour: Hour) -> "Roster":
        known = _known_nodes(handle, at)
        names = sorted({*hour.places, *known})
        place = {name: i for i, name in enumerate(names)}
        places = np.array([place[name] for name in hour.places], np.int64)
        digest = hashlib.blake2b("\n".join(names).encode("utf-8", "replace"), digest_size=12)
        return cls(names, places, digest.hexdigest())


@dataclass(frozen=True, slots=True)
class Column:
    """An attribute of each node of a roster: an index into `values` plus one, or 0 if the node lacks the attribute."""

    values: list[str]
    codes: npt.NDArray[np.uint32]


def _known_nodes(handle: LakeHandle, at: int) -> set[str]:
    """Nodes whose inventory arrived on this day or the day before, up to the end of the hour."""
    found: set[str] = set()
    for rows in days_of(handle, at, [ROSTER_KEY]).get(ROSTER_KEY, []):
        there = rows.at < (at + HOUR_MS) * 1000
        found.update(rows.nodes[i] for i in np.unique(rows.node[there]))
    return found


def days_of(handle: LakeHandle, at: int, keys: Sequence[str] | None) -> dict[str, list[KeyRows]]:
    """The attribute changes up to the end of an hour's day, oldest first. All keys are sent once a day, so the
    previous day has the values that did not change since; if that day is missing, the last one before it is used."""
    day = day_of(at)
    found: dict[str, list[KeyRows]] = {}
    days = handle.days("attributes")
    for each in [*[other for other in days if other < day][-1:], day]:
        for key, rows in handle.rows_of(each, keys).items():
            found.setdefault(key, []).append(rows)
    return found


class Places:
    """Lookup from lists of node names to indices. All keys of a day share one list, so each list is looked up once."""

    def __init__(self, names: Sequence[str]) -> None:
        self.count = len(names)
        self._place = {name: i for i, name in enumerate(names)}
        self._known: dict[int, tuple[list[str], npt.NDArray[np.int64]]] = {}

    def of(self, nodes: list[str]) -> npt.NDArray[np.int64]:
        """The index of each node; `count` for nodes that are not in the list."""
        # The list itself is kept too: while it is alive, no other object can have its id().
        if id(nodes) not in self._known:
            found = np.array([self._place.get(name, self.count) for name in nodes], np.int64)
            self._known[id(nodes)] = nodes, found
        return self._known[id(nodes)][1]


def column_of(days: Sequence[KeyRows], at: int, places: Places) -> Column:
    """One attribute of the roster's nodes at the end of an hour."""
    texts = sorted({text for rows in days for text in rows.values})
    code = {text: i + 1 for i, text in enumerate(texts)}
    codes = np.zeros(places.count, np.uint32)
    for rows in days:
        there = rows.at < (at + HOUR_MS) * 1000
        where = places.of(rows.nodes)[rows.node[there]]
        # The last entry is for removed attributes (index -1).
        value = np.array([*(code[text] for text in rows.values), 0], np.uint32)[rows.value[there]]
        known = where < places.count
        # Assigned in time order, so that the last of several changes of a node wins.
        codes[where[known]] = value[known]
    used = np.unique(codes[codes > 0])
    smaller = np.zeros(len(texts) + 1, np.uint32)
    smaller[used] = np.arange(1, len(used) + 1)
    return Column([texts[i - 1] for i in used], smaller[codes])

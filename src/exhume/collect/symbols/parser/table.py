"""A program's functions as compact arrays: which symbol covers an address.

Twelve bytes per symbol and no Python objects, since a recorder that watches a whole node holds millions of them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
Unsigned = npt.NDArray[np.unsignedinteger[Any]]
Bools = npt.NDArray[np.bool_]

# Code without a size in the symbol table (hand-written assembly) extends to the next symbol, but no further than this:
# the longer the gap, the likelier it contains a nameless function.
UNSIZED_REACH = 4096
# How many symbols back to search for one that encloses an address.
_MAX_NESTED = 64
# How many names of one function are compared, before and after the one that was hit.
_MAX_ALIASES = 64
_AT_ONCE = 32768
# Enough bits for the position of each symbol of the largest table (elf.py, MAX_SYMBOLS).
_PLACE_BITS = 20


@dataclass(slots=True)
class RawSymbols:
    """Code symbols as the file lists them. `room` is how far an unsized symbol may extend in its section; `rank`
    decides between two names at one address (higher wins, below 16)."""

    start: U64
    size: npt.NDArray[np.uint32]
    room: npt.NDArray[np.uint16]
    rank: npt.NDArray[np.uint8]
    name: npt.NDArray[np.uint32]

    @classmethod
    def none(cls) -> "RawSymbols":
        return cls(
            np.empty(0, np.uint64),
            np.empty(0, np.uint32),
            np.empty(0, np.uint16),
            np.empty(0, np.uint8),
            np.empty(0, np.uint32),
        )

    @classmethod
    def concatenate(cls, parts: "list[RawSymbols]") -> "RawSymbols":
        parts = parts or [cls.none()]
        return cls(
            np.concatenate([part.start for part in parts]),
            np.concatenate([part.size for part in parts]),
            np.concatenate([part.room for part in parts]),
            np.concatenate([part.rank for part in parts]),
            np.concatenate([part.name for part in parts]),
        )

    def select(self, which: "Bools | npt.NDArray[np.intp]") -> "RawSymbols":
        return RawSymbols(self.start[which], self.size[which], self.room[which], self.rank[which], self.name[which])

    def __len__(self) -> int:
        return len(self.start)


class Spans:
    """Address ranges sorted by start and identified by index. Ranges may be nested."""

    __slots__ = ("_ends", "_limit", "_reach", "_starts", "base")

    def __init__(self, base: int, starts: Unsigned, ends: Unsigned) -> None:
        """Starts and ends are relative to the base and have the same type."""
        self.base = base
        self._starts = starts
        self._ends = ends
        self._limit = 2 ** (8 * starts.itemsize)
        # The furthest end of all ranges up to here: shows whether an earlier range may enclose an address. Only tables
        # with nested ranges need it.
        nested = bool(np.any(ends[:-1] > starts[1:]))
        self._reach = np.maximum.accumulate(ends) if nested else None

    @classmethod
    def of(cls, starts: U64, ends: U64) -> "Spans":
        """Make spans of sorted addresses; they take half the bytes when they are close together."""
        base = int(starts[0]) if len(starts) else 0
        top = int(ends.max()) - base if len(starts) else 0
        narrow = np.dtype(np.uint32 if top < 2**32 else np.uint64)
        return cls(base, (starts - np.uint64(base)).astype(narrow), (ends - np.uint64(base)).astype(narrow))

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def nbytes(self) -> int:
        reach = 0 if self._reach is None else self._reach.nbytes
        return self._starts.nbytes + self._ends.nbytes + reach

    @property
    def arrays(self) -> tuple[Unsigned, Unsigned]:
        return self._starts, self._ends

    def start(self, index: int) -> int:
        return self.base + int(self._starts[index])

    def find(self, addresses: U64) -> npt.NDArray[np.intp]:
        """The index of the innermost range that covers each address; -1 for none."""
        if not len(self):
            return np.full(len(addresses), -1, np.intp)
        # Few numpy calls, since most lookups are for a handful of addresses. An address below the base wraps around to
        # a number beyond all ends.
        relative = addresses - np.uint64(self.base)
        wanted = np.minimum(relative, np.uint64(self._limit - 1)).astype(self._starts.dtype)
        at: npt.NDArray[np.intp] = self._starts.searchsorted(wanted, side="right") - 1
        beyond = (at < 0) | (self._ends[at] <= relative)
        if self._reach is not None:
            inside = np.flatnonzero(beyond & (at >= 0) & (self._reach[at] > relative))
            if len(inside):
                at[inside] = self._enclosing(at[inside], relative[inside])
                beyond[inside] = at[inside] < 0
        at[beyond] = -1
        return at

    def _enclosing(self, at: npt.NDArray[np.intp], relative: U64) -> npt.NDArray[np.intp]:
        """The nearest earlier range that covers each address; -1 when there is none nearby.

        Each step back is made for all addresses at once, so a table in which every range is nested takes no longer.
        """
        outer = at.copy()
        left = np.arange(len(at))
        for _ in range(_MAX_NESTED):
            left = left[self._ends[outer[left]] <= relative[left]]
            if not len(left):
                return outer
            outer[left] -= 1
            left = left[outer[left] >= 0]
        outer[left] = -1
        return outer

    def enclose(self, starts: U64, ends: U64) -> Bools:
        """Which of these ranges lie wholly inside a span (where spans nest, some may be missed)."""
        enclosed = np.zeros(len(starts), np.bool_)
        for first in range(0, len(starts), _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            at = self.find(starts[part])
            found = np.flatnonzero(at >= 0)
            enclosed[first + found] = self._ends[at[found]] >= ends[part][found] - np.uint64(self.base)
        return enclosed

    def same(self, one: int, other: int) -> bool:
        return bool(self._starts[one] == self._starts[other] and self._ends[one] == self._ends[other])


class FunctionTable:
    """Functions sorted by address. A symbol is identified by its index; `names` are offsets into a string table."""

    __slots__ = ("names", "spans")

    def __init__(self, spans: Spans, names: npt.NDArray[np.uint32]) -> None:
        self.spans = spans
        self.names = names

    @classmethod
    def of(cls, symbols: RawSymbols) -> "FunctionTable":
        symbols, ends = _bounded(_best_of_each_address(symbols))
        return cls(Spans.of(symbols.start, ends), symbols.name)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def nbytes(self) -> int:
        return self.spans.nbytes + self.names.nbytes

    def find(self, addresses: U64) -> npt.NDArray[np.intp]:
        """The index of the innermost symbol that covers each address; -1 where none does."""
        return self.spans.find(addresses)

    def aliases(self, index: int) -> range:
        """The indexes of all symbols with the same start and end (equally good names)."""
        first = last = index
        while first > max(index - _MAX_ALIASES, 0) and self.spans.same(first - 1, index):
            first -= 1
        while last + 1 < min(index + _MAX_ALIASES, len(self)) and self.spans.same(last + 1, index):
            last += 1
        return range(first, last + 1)


def _best_of_each_address(symbols: RawSymbols) -> RawSymbols:
    """Sorted by address, with only the best ranked symbols of each address."""
    if not len(symbols):
        return symbols
    symbols = symbols.select(_order(symbols))
    last = np.append(symbols.start[1:] != symbols.start[:-1], True)
    if last.all():
        return symbols
    best = symbols.rank[last]
    group = np.cumsum(last) - last  # how many addresses come before
    return symbols.select(symbols.rank == best[group])


def _order(symbols: RawSymbols) -> npt.NDArray[np.intp]:
    """Indexes of symbols ordered by address, rank and position in the file."""
    relative = symbols.start - symbols.start.min()
    if len(symbols) > 1 << _PLACE_BITS or int(relative.max()) >> (60 - _PLACE_BITS):
        return np.argsort(symbols.start * np.uint64(16) + symbols.rank, kind="stable")
    # Packed into one number each: sorting those takes a fraction of the time of an indirect sort.
    keys = relative << np.uint64(4) | symbols.rank
    keys = keys << np.uint64(_PLACE_BITS) | np.arange(len(keys), dtype=np.uint64)
    keys.sort()
    places: npt.NDArray[np.intp] = (keys & np.uint64((1 << _PLACE_BITS) - 1)).astype(np.intp)
    return places


def _bounded(symbols: RawSymbols) -> tuple[RawSymbols, U64]:
    """Symbols and their ends. Unsized symbols end at the next symbol; those inside a sized symbol are labels rather
    than functions, and are dropped."""
    sized = symbols.size > 0
    ends = symbols.start + symbols.size
    if sized.all():
        return symbols, ends
    if sized.any():
        outer_starts = symbols.start[sized]
        outer_reach = np.maximum.accumulate(ends[sized])
        at = np.searchsorted(outer_starts, symbols.start, side="right") - 1
        label = ~sized & (at >= 0) & (outer_reach[np.maximum(at, 0)] > symbols.start)
        symbols, sized, ends = symbols.select(~label), sized[~label], ends[~label]
    following = np.searchsorted(symbols.start, symbols.start, side="right")
    next_start = np.append(symbols.start, np.uint64(2**64 - 1))[following]
    return symbols, np.where(sized, ends, np.minimum(next_start, symbols.start + symbols.room))

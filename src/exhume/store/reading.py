"""How far reading has come: who reads many segments says how many there are, and when each is done."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

_Item = TypeVar("_Item")


class _Told:
    """Who wants to know, in a process that works for one question at a time; others set nothing."""

    further: Callable[[int, int], None] | None = None


def tell_reading(further: Callable[[int, int], None] | None) -> None:
    """Who is told of segments: how many more were read, and how many more there are to read."""
    _Told.further = further


def counted(items: Sequence[_Item]) -> Iterator[_Item]:
    """The same items; each is told as read when the next one is asked for."""
    further = _Told.further
    if further is None:
        yield from items
        return
    further(0, len(items))
    for item in items:
        yield item
        further(1, 0)

"""Work that nobody waits for any more ends before it opens the next file."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from exhume.model.errors import ExhumeError


class GivenUp(ExhumeError):
    """Whoever asked went away."""


class _Asking:
    """Whether the work of this process is still wanted. One process works for one question at a time; a process that
    works for several at once, or for a person at a terminal, sets nothing."""

    given_up: Callable[[], bool] | None = None


def ask_before_each_file(given_up: Callable[[], bool] | None) -> None:
    """What tells whether this process's present work is wanted no longer; None where it always is."""
    _Asking.given_up = given_up


def check_wanted() -> None:
    """Raises GivenUp where nobody waits any more."""
    if _Asking.given_up is not None and _Asking.given_up():
        raise GivenUp("nobody waits for this answer any more")


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

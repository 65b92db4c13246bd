"""Work that nobody waits for any more ends before it opens the next file."""

from collections.abc import Callable

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

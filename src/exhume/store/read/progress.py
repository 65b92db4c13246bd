"""Cancellation and progress of reads. Both belong to a context; a cancelled read ends before it opens the next file.

Threads don't inherit a context: those that read have to come from `reader_threads`.
"""

from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

from exhume.model.errors import ExhumeError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_Item = TypeVar("_Item")

_is_cancelled: ContextVar[Callable[[], bool] | None] = ContextVar("is_cancelled", default=None)
_progress: ContextVar[Callable[[int, int], None] | None] = ContextVar("progress", default=None)


class Cancelled(ExhumeError):
    """The job that a read was for was cancelled."""


def set_cancel_check(is_cancelled: Callable[[], bool] | None) -> None:
    """Have this called before each file is read; None where reads can't be cancelled."""
    _is_cancelled.set(is_cancelled)


def raise_if_cancelled() -> None:
    """Raises Cancelled once the cancel check says so."""
    is_cancelled = _is_cancelled.get()
    if is_cancelled is not None and is_cancelled():
        raise Cancelled("the job was cancelled")


def set_progress_callback(progress: Callable[[int, int], None] | None) -> None:
    """Have this called with the number of segments read, and to be read, since the last call; None for no reports."""
    _progress.set(progress)


def track(items: Sequence[_Item]) -> Iterator[_Item]:
    """The same items; each is reported as read when the next one is requested."""
    progress = _progress.get()
    if progress is None:
        yield from items
        return
    progress(0, len(items))
    for item in items:
        yield item
        progress(1, 0)


def reader_threads() -> "ThreadPoolExecutor":
    """Threads that read under the cancel check of the caller. Two: decoding releases the GIL for most of its time, and
    the node may be busy."""
    # Not for the recorder, which has its overviews made from core_grid: the module takes a third of a megabyte.
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(2, initializer=set_cancel_check, initargs=(_is_cancelled.get(),))

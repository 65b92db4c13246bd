"""Cancellation and progress of reads. Both are context variables; a cancelled read ends before it opens the next file.

Threads don't inherit a context, so threads that read have to come from `reader_threads`.
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
    """The job that a read belonged to was cancelled."""


def set_cancel_check(is_cancelled: Callable[[], bool] | None) -> None:
    """Set the check that is called before each file is read; None if reads can't be cancelled."""
    _is_cancelled.set(is_cancelled)


def raise_if_cancelled() -> None:
    """Raise Cancelled if the cancel check returns true."""
    is_cancelled = _is_cancelled.get()
    if is_cancelled is not None and is_cancelled():
        raise Cancelled("the job was cancelled")


def set_progress_callback(progress: Callable[[int, int], None] | None) -> None:
    """Set the callback that gets the number of segments read, and to be read, since its last call; None for none."""
    _progress.set(progress)


def track(items: Sequence[_Item]) -> Iterator[_Item]:
    """Yield the items; each one is reported as read when the next is requested."""
    progress = _progress.get()
    if progress is None:
        yield from items
        return
    progress(0, len(items))
    for item in items:
        yield item
        progress(1, 0)


def reader_threads() -> "ThreadPoolExecutor":
    """Threads that read with the caller's cancel check. Two: decoding releases the GIL most of the time, and the node
    may be busy."""
    # Imported late: the recorder computes overviews with core_grid, and the module takes a third of a megabyte.
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(2, initializer=set_cancel_check, initargs=(_is_cancelled.get(),))

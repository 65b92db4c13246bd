"""Answers by segment, remembered: a sealed segment never changes, so nothing is read from it twice for one question."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

from exhume.store.index import Segment
from exhume.store.names import SegmentName

MOST_BYTES = 256 << 20
# What is counted for an answer that does not say how large it is.
_SMALL = 1000
# Decoding leaves Python's lock for most of its time, and a node that is looked at may be busy: two threads.
_THREADS = 2
# From so many segments on, processes read ahead, so many segments at a time.
_WORTH_PROCESSES = 60
_PART = 30


_Answer = TypeVar("_Answer")


class PerSegment:
    """The longest unused answers go first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._held: OrderedDict[tuple[SegmentName, Hashable], Any] = OrderedDict()
        self._bytes = 0
        self._most = most_bytes
        self._lock = threading.Lock()
        self._turns: dict[Hashable, threading.Lock] = {}
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="segments")

    def answers(
        self, segments: Sequence[Segment], question: Hashable, make: Callable[[Segment], _Answer]
    ) -> list[_Answer]:
        """What each segment answers. One that is still being written is asked anew every time."""
        # Two who ask the same at the same time don't read it twice: the second waits, and finds it.
        with self._turn(question):
            return self._answered(segments, question, make)

    def prepare(
        self, segments: Sequence[Segment], question: Hashable, make: Callable[[Sequence[Segment]], list[Any]]
    ) -> None:
        """Begin to read the answers of sealed segments in processes of their own, by `make`, which is given some at a
        time. Few segments are not worth it."""
        sealed = [segment for segment in segments if segment.sealed]
        if len(sealed) < _WORTH_PROCESSES:
            return
        # Forked while this process has no other threads yet: nothing of what they read is needed twice.
        workers = ProcessPoolExecutor(_THREADS, mp_context=get_context("fork"))
        parts = [sealed[place : place + _PART] for place in range(0, len(sealed), _PART)]
        futures = [workers.submit(make, part) for part in parts]
        turn = self._turn(question)
        turn.acquire()

        def take() -> None:
            try:
                for part, future in zip(parts, futures, strict=True):
                    for segment, answer in zip(part, future.result(), strict=True):
                        self._remember((segment.name, question), answer)
            except BrokenExecutor:
                # Killed, or no memory for it: what is missing is read when it is asked for.
                return
            finally:
                turn.release()
                workers.shutdown(wait=False)

        threading.Thread(target=take, name="read-ahead", daemon=True).start()

    def _turn(self, question: Hashable) -> threading.Lock:
        with self._lock:
            return self._turns.setdefault(question, threading.Lock())

    def _answered(
        self, segments: Sequence[Segment], question: Hashable, make: Callable[[Segment], _Answer]
    ) -> list[_Answer]:
        keys = [(segment.name, question) for segment in segments]
        with self._lock:
            known = {key: self._held[key] for key in keys if key in self._held}
            for key in known:
                self._held.move_to_end(key)
        missing = [segment for segment, key in zip(segments, keys, strict=True) if key not in known]
        for segment, answer in zip(missing, self._threads.map(make, missing), strict=True):
            key = (segment.name, question)
            known[key] = answer
            if segment.sealed:
                self._remember(key, answer)
        return [known[key] for key in keys]

    def _remember(self, key: tuple[SegmentName, Hashable], answer: object) -> None:
        with self._lock:
            if key in self._held:
                return
            self._held[key] = answer
            self._bytes += _size(answer)
            while self._bytes > self._most and len(self._held) > 1:
                (_, question), gone = self._held.popitem(last=False)
                self._bytes -= _size(gone)
                self._turns.pop(question, None)


def _size(answer: object) -> int:
    return int(getattr(answer, "nbytes", 0)) + _SMALL

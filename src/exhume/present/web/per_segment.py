"""Answers by segment, remembered: a sealed segment never changes, so nothing is read from it twice for one question."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from exhume.present.web.ahead import Ahead
from exhume.present.web.readers import Ask, Readers
from exhume.store.format.names import SegmentName
from exhume.store.read.index import Segment
from exhume.store.read.progress import GivenUp, check_wanted

MOST_BYTES = 256 << 20
# What is counted for an answer that does not say how large it is.
_SMALL = 1000
# So many segments are read by one piece of work: enough to be worth sending, few enough to take turns.
_LEAST, _MOST, _PIECES = 3, 20, 6
# Of what is small in every segment.
_LEAST_OF_SMALL = 20

_Answer = TypeVar("_Answer")
Key = tuple[SegmentName, Hashable]


class PerSegment:
    """What readers found out about segments. The longest unused answers go first."""

    def __init__(self, readers: Readers, most_bytes: int = MOST_BYTES) -> None:
        self._readers = readers
        self._held: OrderedDict[Key, Any] = OrderedDict()
        self._coming: dict[Key, Future[Any]] = {}
        self._bytes = 0
        self._most = most_bytes
        self._lock = threading.Lock()
        self._nobodys = readers.ask()
        self._prepared: list[Any] = []

    def answers(
        self,
        segments: Sequence[Segment],
        question: Hashable,
        make: Callable[[Sequence[Segment]], list[_Answer]],
        ask: Ask | None = None,
    ) -> list[_Answer]:
        """What each segment answers, as `make` (which other processes can be sent) finds out for some at a time. One
        that is still being written is asked anew every time. Raises GivenUp where `ask` was given up."""
        ask = ask or self._nobodys
        while True:
            try:
                return [
                    found.result() if isinstance(found, Future) else found
                    for found in self._begun(segments, question, make, ask)
                ]
            except GivenUp:
                # Two who ask the same don't read it twice; where the first goes away, the second goes on.
                if ask.given_up:
                    raise
                # In a process that reads for one question everything is given up with that question.
                check_wanted()

    def begin(
        self,
        segments: Sequence[Segment],
        question: Hashable,
        make: Callable[[Sequence[Segment]], list[Any]],
        ask: Ask | None = None,
    ) -> None:
        """Have the answers of sealed segments begun, few pieces of them, as they are small; whoever asks for several
        does not wait for one after the other."""
        sealed = [segment for segment in segments if segment.sealed]
        self._begun(sealed, question, make, ask or self._nobodys, _LEAST_OF_SMALL, counted=False)

    def prepare(
        self, segments: Sequence[Segment], question: Hashable, make: Callable[[Sequence[Segment]], list[Any]]
    ) -> None:
        """Have processes of their own begin to find out the answers of sealed segments; `take_prepared` has to follow.
        Whoever asks for them meanwhile waits for them."""
        ahead = Ahead([segment for segment in segments if segment.sealed], make)
        parts = [[(segment, Future[Any]()) for segment in part] for part in ahead.parts]
        self._coming |= {(segment.name, question): future for part in parts for segment, future in part}
        self._prepared.append((ahead, parts, question, make))

    def take_prepared(self) -> None:
        """Take what the processes find out, in a thread."""
        for prepared in self._prepared:
            threading.Thread(target=self._take, args=prepared, name="ahead", daemon=True).start()
        self._prepared = []

    def _take(
        self,
        ahead: Ahead,
        parts: list[list[tuple[Segment, "Future[Any]"]]],
        question: Hashable,
        make: Callable[[Sequence[Segment]], list[Any]],
    ) -> None:
        for part, answers in zip(parts, ahead.found(), strict=True):
            if answers is None:
                working = self._readers.submit(self._nobodys, make, [segment for segment, _ in part])
                working.add_done_callback(partial(self._arrived, part, question))
                continue
            done: Future[Any] = Future()
            done.set_result(answers)
            self._arrived(part, question, done)

    def _begun(
        self,
        segments: Sequence[Segment],
        question: Hashable,
        make: Callable[[Sequence[Segment]], list[Any]],
        ask: Ask,
        least: int = _LEAST,
        *,
        counted: bool = True,
    ) -> list[Any]:
        """The answer of each segment, or its future; `counted` among those that the question waits for."""
        found: list[Any] = []
        missing: list[tuple[Segment, Future[Any]]] = []
        with self._lock:
            for segment in segments:
                key = (segment.name, question)
                if key in self._held:
                    self._held.move_to_end(key)
                    found.append(self._held[key])
                    continue
                future = self._coming.get(key)
                if future is None:
                    future = Future()
                    missing.append((segment, future))
                    if segment.sealed:
                        self._coming[key] = future
                found.append(future)
        if counted:
            ask.wait_for([each for each in found if isinstance(each, Future)])
        size = min(_MOST, max(least, -(-len(missing) // _PIECES)))
        for place in range(0, len(missing), size):
            part = missing[place : place + size]
            working = self._readers.submit(ask, make, [segment for segment, _ in part])
            working.add_done_callback(partial(self._arrived, part, question))
        return found

    def _arrived(self, part: list[tuple[Segment, "Future[Any]"]], question: Hashable, done: "Future[Any]") -> None:
        error = done.exception()
        answers = [None] * len(part) if error is not None else done.result()
        with self._lock:
            for (segment, _), answer in zip(part, answers, strict=True):
                if segment.sealed:
                    del self._coming[segment.name, question]
                    if error is None:
                        self._remember((segment.name, question), answer)
        for (_, future), answer in zip(part, answers, strict=True):
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)

    def _remember(self, key: Key, answer: object) -> None:
        self._held[key] = answer
        self._bytes += _size(answer)
        while self._bytes > self._most and len(self._held) > 1:
            _, gone = self._held.popitem(last=False)
            self._bytes -= _size(gone)


def _size(answer: object) -> int:
    return int(getattr(answer, "nbytes", 0)) + _SMALL

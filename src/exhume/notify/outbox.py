"""Outboxes: a bounded queue with a delivery thread, with back-off and jitter. Putting an entry never blocks."""

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from exhume.model.process import usual_priority
from exhume.notify.report import Report

_log = logging.getLogger(__name__)

FIRST_WAIT_S = 2.0
LONGEST_WAIT_S = 300.0
# The longest wait that is granted to a receiver (Retry-After).
LONGEST_ASKED_S = 600.0
# Older entries have lost their use, and must not delay newer ones.
MAX_AGE_S = 3600.0
MAX_ENTRIES = 32

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of an attempt: delivered, to be retried, or rejected for good. `retry_after_s` is the wait that the
    receiver requests, `problem` describes the failure in a sentence, `code` is the receiver's status, if it replied."""

    delivered: bool
    retry: bool = False
    problem: str = ""
    retry_after_s: float = 0.0
    code: int | None = None


class Backoff:
    """Exponential back-off up to a limit, with jitter: nodes that lost the same server must not all come back at
    once."""

    def __init__(self, first_s: float = FIRST_WAIT_S, longest_s: float = LONGEST_WAIT_S) -> None:
        self._first, self._longest = first_s, longest_s
        self._next = first_s

    def next_s(self, at_least_s: float = 0.0) -> float:
        """The next wait; if the server requests a longer one, that is used, within limits."""
        wait = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._next * 2, self._longest)
        return max(wait, min(at_least_s, LONGEST_ASKED_S))

    def reset(self) -> None:
        self._next = self._first


class Outbox(Generic[T]):
    """Delivers entries in order, in a separate thread. When the queue is full, the oldest entry is dropped. Logs one
    warning when a receiver becomes unreachable, and another message when it is back."""

    def __init__(
        self,
        name: str,
        deliver: Callable[[T], Delivery],
        *,
        most: int = MAX_ENTRIES,
        max_age_s: float = MAX_AGE_S,
        backoff: Backoff | None = None,
    ) -> None:
        self.name = name
        self._deliver, self._max_age_s = deliver, max_age_s
        self._entries: deque[tuple[float, T]] = deque(maxlen=most)
        self._changed = threading.Condition()
        self._closing = self._failing = False
        self._backoff = backoff or Backoff()
        self.dropped = self.delivered = 0
        self._thread = threading.Thread(target=self._run, name=f"notify-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, entry: T) -> None:
        """Add an entry without blocking."""
        with self._changed:
            self.dropped += len(self._entries) == self._entries.maxlen
            self._entries.append((time.monotonic(), entry))
            self._changed.notify()

    def close(self, grace_s: float) -> None:
        """Deliver the remaining entries within this time, then stop."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(grace_s)
        if self._entries:
            _log.warning("%s: %d notifications were not delivered before the recorder ended", self.name, self.pending)

    @property
    def pending(self) -> int:
        return len(self._entries)

    def _run(self) -> None:
        usual_priority(threading.get_native_id())
        while (found := self._take()) is not None:
            put_at, entry = found
            delivery = self._deliver(entry)
            if delivery.delivered:
                self._succeed()
            elif delivery.retry and time.monotonic() - put_at < self._max_age_s:
                self._fail(delivery, put_at, entry)
                if self._closing:
                    return
            else:
                self.dropped += 1
                self._warn(f"{delivery.problem}; this notification is dropped")

    def _take(self) -> tuple[float, T] | None:
        with self._changed:
            while not self._entries and not self._closing:
                self._changed.wait()
            return self._entries.popleft() if self._entries else None

    def _succeed(self) -> None:
        self.delivered += 1
        self._backoff.reset()
        if self._failing:
            self._failing = False
            _log.warning("%s: delivers again", self.name)

    def _fail(self, delivery: Delivery, put_at: float, entry: T) -> None:
        """Put the entry back at the front, unless newer ones need its place, and wait."""
        self._warn(f"{delivery.problem}; retried with back-off")
        until = time.monotonic() + self._backoff.next_s(delivery.retry_after_s)
        with self._changed:
            if len(self._entries) == self._entries.maxlen:
                self.dropped += 1
            else:
                self._entries.appendleft((put_at, entry))
            while not self._closing and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)

    def _warn(self, problem: str) -> None:
        if not self._failing:
            self._failing = True
            _log.warning("%s: %s", self.name, problem)
        else:
            _log.info("%s: %s", self.name, problem)


class OutboxSink:
    """A sink whose reports wait in an outbox until delivered; `_cancel` ends the child of a delivery."""

    limited = True

    def __init__(self, name: str, send: Callable[[Report], Delivery], backoff: Backoff | None = None) -> None:
        self._cancel = threading.Event()
        self.outbox: Outbox[Report] = Outbox(name, send, backoff=backoff)

    def start(self) -> None:
        self.outbox.start()

    def deliver(self, report: Report) -> None:
        self.outbox.put(report)

    def close(self, grace_s: float) -> None:
        self.outbox.close(grace_s)
        self._cancel.set()

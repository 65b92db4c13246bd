"""Outboxes: a bounded queue and a thread that delivers from it, with back-off and jitter. Nothing that puts waits."""

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
# The longest wait that a receiver may ask for (Retry-After).
LONGEST_ASKED_S = 600.0
# What is older has lost its use, and must not keep newer ones waiting.
MAX_AGE_S = 3600.0
MAX_ENTRIES = 32

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Delivery:
    """How an attempt ended: delivered, to be retried, or refused for good. `retry_after_s` is what the receiver asks
    for, `problem` says in a sentence what went wrong, `code` is the receiver's answer, where it answered."""

    delivered: bool
    retry: bool = False
    problem: str = ""
    retry_after_s: float = 0.0
    code: int | None = None


class Backoff:
    """Waits that double, up to a bound, each with a random part: many nodes that lost the same server come back one
    after the other."""

    def __init__(self, first_s: float = FIRST_WAIT_S, longest_s: float = LONGEST_WAIT_S) -> None:
        self._first, self._longest = first_s, longest_s
        self._next = first_s

    def next_s(self, at_least_s: float = 0.0) -> float:
        """The next wait; a server that asks for a longer one gets it, within bounds."""
        wait = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._next * 2, self._longest)
        return max(wait, min(at_least_s, LONGEST_ASKED_S))

    def reset(self) -> None:
        self._next = self._first


class Outbox(Generic[T]):
    """Delivers what is put into it, in order, in a thread of its own. When it is full, the oldest goes; a receiver that
    is away is warned about once, and once more when it is back."""

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
        """Add an entry without waiting."""
        with self._changed:
            self.dropped += len(self._entries) == self._entries.maxlen
            self._entries.append((time.monotonic(), entry))
            self._changed.notify()

    def close(self, grace_s: float) -> None:
        """Deliver what is there within this time, then end."""
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
        """Put it back at the front, unless newer ones need its place, and wait."""
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
    """A sink whose reports wait in an outbox until they are delivered; `_cancel` ends the child of a delivery."""

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

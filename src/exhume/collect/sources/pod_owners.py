"""Owners of pods according to the cluster's API, which is queried in a separate thread."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from exhume.collect.source import NOTHING, TickRows, event_rows
from exhume.model.clock import NANOS, Tick
from exhume.model.tables import API_SOURCE, POD_OWNER, Events
from exhume.procfs.host import Host

# How many pods are remembered; the oldest are dropped first.
MOST_PODS = 4096
MOST_PER_TICK = 256
# Recorded again, so that the newest part of a recording has them.
_AGAIN_NS = 3600 * NANOS


class PodOwner(NamedTuple):
    """A pod by its uid and name (namespace/name), and its owner (`deployment/web`)."""

    pod: str
    name: str
    owner: str


class PodOwners:
    """The known owners. `learn` is called in a different thread than the rest, and neither waits for the other."""

    def __init__(self) -> None:
        self._known: dict[str, PodOwner] = {}
        self._new: deque[PodOwner] = deque(maxlen=MOST_PODS)

    def __contains__(self, pod: object) -> bool:
        return pod in self._known

    @property
    def pods(self) -> list[str]:
        """The uids of the known pods."""
        return list(self._known)

    def of(self, pod: str | None) -> str | None:
        """The owner of a pod."""
        known = self._known.get(pod or "")
        return known.owner if known is not None else None

    def learn(self, found: Iterable[PodOwner]) -> None:
        """Add what the API returned."""
        known = dict(self._known)
        for each in found:
            if known.pop(each.pod, None) != each:
                self._new.append(each)
            known[each.pod] = each
        # A single assignment: the recorder's thread sees either the old or the new mapping.
        self._known = dict(list(known.items())[-MOST_PODS:])

    def repeat(self) -> None:
        """Make all of them available to `take` again."""
        self._new.extend(self._known.values())

    def take(self, most: int) -> list[PodOwner]:
        """Owners that were learnt and not yet taken, oldest first."""
        return [self._new.popleft() for _ in range(min(most, len(self._new)))]


class PodOwnerSource:
    """Rows of the events table (pod-owner), one per pod."""

    name = API_SOURCE

    def __init__(self, _host: Host, owners: PodOwners) -> None:
        self._owners = owners
        self._next: int | None = None

    def read(self, tick: Tick) -> TickRows:
        if self._next is None or tick.end >= self._next:
            if self._next is not None:
                self._owners.repeat()
            self._next = tick.end + _AGAIN_NS
        rows = [_row(each, tick) for each in self._owners.take(MOST_PER_TICK)]
        return event_rows(rows) if rows else NOTHING

    def close(self) -> None:
        """No resources to release."""


def _row(known: PodOwner, tick: Tick) -> Events:
    event = Events(tick.start, API_SOURCE, POD_OWNER, "info", f"pod {known.name} belongs to {known.owner}")
    event.pod, event.pod_name, event.owner = known.pod, known.name, known.owner
    return event

"""The taint policy: off by default, limited to a share of the nodes of a zone, with delays before adding and
removing."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

TAINT_KEY = "exhume.dev/cpu-starved"
ZONE_LABEL = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class TaintPolicy:
    """When a node is tainted: after its condition CPUStarved has held for `after_ns`, if at that time no more than
    `share` of the nodes of its zone are tainted. The taint is removed `keep_ns` after the condition cleared."""

    effect: str
    share: float
    after_ns: int
    keep_ns: int


class TaintState:
    """Whether this node should have the taint. Times are monotonic nanoseconds."""

    def __init__(self, policy: TaintPolicy) -> None:
        self._policy = policy
        self._starved_since: int | None = None
        self._clear_since: int | None = None
        self.wanted = False

    def observe(self, starved: bool, now: int) -> bool:
        """Apply the state of the condition; returns whether the wanted taint changed."""
        before = self.wanted
        if starved:
            self._clear_since = None
            self._starved_since = now if self._starved_since is None else self._starved_since
            self.wanted = self.wanted or now - self._starved_since >= self._policy.after_ns
        else:
            self._starved_since = None
            self._clear_since = now if self._clear_since is None else self._clear_since
            self.wanted = self.wanted and now - self._clear_since < self._policy.keep_ns
        return self.wanted != before

    def adopt(self, now: int) -> None:
        """Adopt a taint that the node already has: it is removed like one of this recorder's own."""
        if not self.wanted:
            self.wanted, self._clear_since = True, now


def may_have_taint(node: str, zone: Iterable[tuple[str, str]], nodes: int, share: float) -> bool:
    """Whether a node may have the taint. `zone` has the nodes of its zone that have or want it, each with the time it
    was added: the oldest keep it, so of two nodes that taint themselves at the same time one removes it again."""
    room = int(nodes * share)
    return node in [name for _, name in sorted((added, name) for name, added in zone)][:room]


def taint_added(taints: Iterable[Any]) -> str | None:
    """When our taint was added (RFC 3339, empty if not recorded); None if the node does not have it."""
    for taint in taints:
        if taint.key == TAINT_KEY:
            return str(taint.timeAdded or "")
    return None

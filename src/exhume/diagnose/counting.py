"""Definitions of what is counted, shared by all consumers: the metrics of a recorder and the summaries of a fleet."""

from collections.abc import Hashable

from exhume.model.clock import NANOS

# Functions in which an allocation reclaims memory directly: mm/vmscan.c, mm/memcontrol.c. Some were renamed.
DIRECT_RECLAIM = frozenset(
    (
        *("try_to_free_pages", "try_to_free_mem_cgroup_pages", "node_reclaim", "__node_reclaim", "reclaim_high"),
        *("mem_cgroup_handle_over_high", "__mem_cgroup_handle_over_high"),
    )
)
# A clean removal of a cgroup is released within some 40 ms (measured on 6.18); on a node under load it may take
# seconds.
LEAKED_AFTER_NS = 10 * NANOS

NIC_EVENT = "nic-"
# A reset is logged when it begins and when it ends; count it when it ends.
NIC_RESET = "nic-reset"
_NOT_TIMEOUTS = frozenset(
    (NIC_RESET, "nic-reset-triggered", "nic-napi-core", "nic-health", "nic-missing-interrupt", "nic-queue-kicked")
)
_MOST_ENDED = 1024


def is_nic_timeout(kind: str) -> bool:
    """Whether an event of this kind is a transmit timeout."""
    return kind.startswith(NIC_EVENT) and kind not in _NOT_TIMEOUTS


class ContainerRestarts:
    """Counts a container's start as a restart if a container of the same name has ended before."""

    def __init__(self) -> None:
        self._ended: dict[Hashable, None] = {}

    def end(self, name: Hashable) -> None:
        self._ended[name] = None
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def start(self, name: Hashable) -> bool:
        """Record a start; return whether it is a restart."""
        return self._ended.pop(name, self) is None

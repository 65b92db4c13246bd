"""Which network queue an interrupt belongs to.

Drivers put the queue into the interrupt's name, each in its way; the interface is told by the device that owns the
interrupt (sysfs lists them), since an interface may have been renamed after its interrupts were named.
"""

import os
import re
from dataclasses import dataclass

from exhume.collect.host import Host, subdirectories

_PCI = r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]"

# Names that hold a queue number whatever the interface is called.
_QUEUE_NAMES = tuple(
    re.compile(pattern)
    for pattern in (
        # ena, ixgbe, igb, bnxt, vmxnet3, tg3; with the driver first: i40e, ice, iavf, idpf, hns3
        r"(?P<owner>[^\s@]+?)-(?i:tx-?rx|rx-?tx|rx|tx|fp|q|ntfy-block)[-.]?(?P<queue>\d+)$",
        # mlx5, mlx4, mana, gve: by the device's address
        rf"(?:mlx5_comp|mlx4-|mana_q|gve-ntfy-blk)(?P<queue>\d+)@(?:pci:)?(?P<address>{_PCI})$",
        # virtio-net
        r"(?P<address>virtio\d+)-(?:input|output)\.(?P<queue>\d+)$",
    )
)
# mlx5 (older), sfc: the interface and a number, which only an interface known by that name can confirm
_NAME_AND_NUMBER = re.compile(r"(?P<interface>[^\s@]+)-(?P<queue>\d+)$")


@dataclass(frozen=True, slots=True)
class NicQueue:
    """A queue of an interface."""

    device: str
    queue: int


class NicQueues:
    """Looks up interrupts. `refresh` takes in interfaces that came, went or were renamed."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._by_irq: dict[str, str] = {}
        self._by_address: dict[str, str] = {}
        self._interfaces: frozenset[str] = frozenset()
        self.refresh()

    def refresh(self) -> None:
        self._by_irq, self._by_address = {}, {}
        root = self._host.sys / "class/net"
        self._interfaces = frozenset(subdirectories(root))
        for interface in sorted(self._interfaces):
            device = root / interface / "device"
            if not device.exists():
                continue
            address = device.resolve()
            self._by_address.setdefault(address.name, interface)
            # A virtio device has its interrupts on the PCI device above it.
            for owner in (address, address.parent) if address.name.startswith("virtio") else (address,):
                for irq in _names_of(owner / "msi_irqs"):
                    self._by_irq.setdefault(irq, interface)

    def find(self, irq: str, name: str) -> NicQueue | None:
        """The queue of an interrupt; None for one that is not a network queue's, or that can't be told."""
        for pattern in _QUEUE_NAMES:
            if match := pattern.match(name):
                groups = match.groupdict()
                device = self._by_irq.get(irq) or self._by_address.get(groups.get("address") or "")
                device = device or self._named(groups.get("owner") or "")
                return NicQueue(device, int(match["queue"])) if device else None
        match = _NAME_AND_NUMBER.match(name)
        if match and match["interface"] in self._interfaces:
            return NicQueue(match["interface"], int(match["queue"]))
        return None

    def _named(self, owner: str) -> str | None:
        """An interface by its name or its device's address, with or without the driver's name before it."""
        for name in (owner, owner.partition("-")[2]):
            if name in self._interfaces:
                return name
            if name in self._by_address:
                return self._by_address[name]
        return None


def _names_of(directory: os.PathLike[str]) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(directory)]
    except OSError:
        return []

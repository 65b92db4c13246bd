"""Interrupts by core from /proc/interrupts, and the network queues that they belong to.

The file is read every second if that is cheap; otherwise only network queues are, and the rest in turns. Drivers put
the queue number into the interrupt's name, each in its own way; the interface is that of the device that owns the
interrupt (sysfs lists them), since an interface may have been renamed after its interrupts were named.
"""

import contextlib
import re
import time
from dataclasses import dataclass
from typing import Any

from exhume.collect.source import Pace, TickRows, table_rows
from exhume.model.clock import MILLIS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.procfs.counters import step_of_u32
from exhume.procfs.host import Host, ProcFile, subdirectories
from exhume.procfs.interrupts import parse_header, parse_label, parse_row

_PCI = r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]"

# Names that contain a queue number whatever the interface is called.
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
    """Finds the queue of an interrupt. `refresh` picks up interfaces that were added, removed or renamed."""

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
            # The interrupts of a virtio device belong to the PCI device above it.
            for owner in (address, address.parent) if address.name.startswith("virtio") else (address,):
                with contextlib.suppress(OSError):
                    for irq in (owner / "msi_irqs").iterdir():
                        self._by_irq.setdefault(irq.name, interface)

    def find(self, irq: str, text: str) -> NicQueue | None:
        """The queue of an interrupt; None when it is not a network queue's, or cannot be identified."""
        for pattern in _QUEUE_NAMES:
            if match := pattern.match(text):
                groups = match.groupdict()
                device = self._by_irq.get(irq) or self._by_address.get(groups.get("address") or "")
                # By interface name or device address, with or without the driver's name before it.
                owner = groups.get("owner") or ""
                for name in (owner, owner.partition("-")[2]) if not device else ():
                    device = device or (name if name in self._interfaces else self._by_address.get(name))
                return NicQueue(device, int(match["queue"])) if device else None
        match = _NAME_AND_NUMBER.match(text)
        if match and match["interface"] in self._interfaces:
            return NicQueue(match["interface"], int(match["queue"]))
        return None


Row = tuple[Any, ...]

_CHEAP_NS = MILLIS // 2
_QUEUES_EACH_SECOND = 64
# The kernel's own interrupts (timer, rescheduling, ...) are recorded only when a core has a storm of them.
_STORM_PER_S = 5000


@dataclass(slots=True)
class _Line:
    """One interrupt: the text of its row at the last read, and what is known about it."""

    text: bytes = b""
    counts: list[int] | None = None
    name: str = ""
    nic: NicQueue | None = None
    affinity: str | None = None
    per_core: ProcFile | None = None
    since: int = 0


class InterruptSource:
    """Rows of the interrupts table for counts that changed. A row begins where the interrupt was last read."""

    name = "interrupts"

    def __init__(self, host: Host) -> None:
        self._host = host
        self._file = ProcFile(host.proc / "interrupts")
        self._nics = NicQueues(host)
        self._lines: dict[str, _Line] = {}
        self._header = b""
        self._cpus: tuple[int, ...] = ()
        self._cheap = True
        self._turn = Pace(10.0)
        self._affinity_turn = Pace(10.0)
        if self._file.read_or_none() is None:
            raise SourceUnavailable(self.name, f"{self._file.path} can't be read", "mount procfs at /proc")

    def read(self, tick: Tick) -> TickRows:
        rows: list[Row] = []
        if self._affinity_turn.due(tick.end):
            self._nics.refresh()
            for label, line in self._lines.items():
                self._identify(label, line)
            self._affinity_turn.done(tick.end)
        if self._turn.due(tick.end) or self._cheap:
            began, first = time.thread_time_ns(), not self._lines
            self._read_all(tick, rows)
            # The first read has to parse every line, so its cost is not representative.
            self._cheap = first or time.thread_time_ns() - began < _CHEAP_NS
            self._turn.done(tick.end)
        else:
            self._read_queues(tick, rows)
        names = ("time", "irq", "name", "cpu", "count", "device", "queue", "affinity")
        return table_rows("interrupts", names, rows)

    def close(self) -> None:
        self._file.close()
        for line in self._lines.values():
            if line.per_core:
                line.per_core.close()

    def _read_all(self, tick: Tick, rows: list[Row]) -> None:
        content = self._file.read_or_none()
        if content is None:
            return
        header, *texts = content.split(b"\n")
        if header != self._header:
            # Cores went online or offline: the columns changed, so every count starts from scratch.
            self._header, self._cpus = header, parse_header(header)
            for line in self._lines.values():
                line.text, line.counts = b"", None
        there = set()
        for text in texts:
            label = parse_label(text)
            if not label:
                continue
            there.add(label)
            line = self._lines.setdefault(label, _Line())
            if text != line.text:
                self._take(label, line, text, tick, rows)
                line.text = text
            line.since = tick.end
        for label in self._lines.keys() - there:
            gone = self._lines.pop(label)
            if gone.per_core:
                gone.per_core.close()

    def _take(self, label: str, line: _Line, text: bytes, tick: Tick, rows: list[Row]) -> None:
        row = parse_row(text, len(self._cpus))
        if row is None:
            return
        if row.name != line.name:
            # The number was reassigned to another device.
            line.name, line.counts = row.name, None
            self._identify(label, line)
        rows += self._moved(label, line, row.counts, tick)

    def _moved(self, label: str, line: _Line, counts: list[int], tick: Tick) -> list[Row]:
        before, line.counts = line.counts, counts
        if before is None:
            return []
        least = 1 if label.isdigit() else int(_STORM_PER_S * max((tick.end - line.since) / 1e9, 0.001))
        device, queue = (line.nic.device, line.nic.queue) if line.nic else (None, None)
        # One by one: most lines have the same counts as before on most cores.
        return [
            (line.since, label, line.name, cpu, step, device, queue, line.affinity)
            for cpu, now, then in zip(self._cpus, counts, before, strict=True)
            if now != then and (step := step_of_u32(now, then)) >= least
        ]

    def _read_queues(self, tick: Tick, rows: list[Row]) -> None:
        """Read only the network queues, from /sys/kernel/irq/N/per_cpu_count: a number for each possible core
        (kernel/irq/irqdesc.c, per_cpu_count_show)."""
        queues = [(label, line) for label, line in self._lines.items() if line.nic]
        for label, line in queues[:_QUEUES_EACH_SECOND]:
            if line.per_core is None:
                line.per_core = ProcFile(self._host.sys / "kernel/irq" / label / "per_cpu_count")
            content = line.per_core.read_or_none()
            if content is None:
                continue
            every = list(map(int, content.split(b",")))
            if self._cpus and self._cpus[-1] < len(every):
                rows += self._moved(label, line, [every[cpu] for cpu in self._cpus], tick)
                line.text = b""
                line.since = tick.end

    def _identify(self, label: str, line: _Line) -> None:
        line.nic = self._nics.find(label, line.name) if label.isdigit() else None
        line.affinity = None
        for name in ("effective_affinity_list", "smp_affinity_list") if line.nic else ():
            content = ProcFile(self._host.proc / "irq" / label / name).read_or_none()
            if content and content.strip():
                line.affinity = content.strip().decode("ascii", "replace")
                return

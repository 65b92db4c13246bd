"""Interrupts of devices by core, from the lines that were counted in a focus."""

import re
from dataclasses import dataclass

import numpy as np

from exhume.diagnose.evidence.case import Case
from exhume.model.finding import Evidence

# A queue's number at the end of an interrupt's name, with what leads up to it: eth0-TxRx-3, nvme0q7, virtio1-input.0.
_KINDS = "tx-?rx|rx-?tx|tx|rx|input|output|queue|comp|q|ch|fp|mgmnt|config|req"
_QUEUE = re.compile(rf"(?:(?:[-_.:@ ]?(?:{_KINDS}))+[-_.:@]?\d*|[-_.:@]\d+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DeviceInterrupts:
    """A device's interrupts in the focus: how many, by core, and how many lines carried them."""

    device: str
    total: float
    by_core: dict[int, float]
    lines_on: dict[int, int]
    lines: int
    evidence: Evidence

    @property
    def cpu(self) -> int:
        return max(self.by_core, key=lambda cpu: self.by_core[cpu])

    @property
    def part(self) -> float:
        """The part of them that its busiest core took."""
        return self.by_core[self.cpu] / self.total if self.total else 0.0


def device_name(name: str, device: str | None) -> str:
    """The device of an interrupt: the NIC where it is known, else the name without the queue."""
    return device or _QUEUE.sub("", name) or name


def device_interrupts(case: Case) -> list[DeviceInterrupts]:
    """All devices with interrupts in the focus, the busiest first. The kernel's own (timer, IPI) are left out."""
    rows = case.now("interrupts")
    counts: dict[str, dict[tuple[str, int], float]] = {}
    for irq, name, cpu, count, device in rows.listed("irq", "name", "cpu", "count", "device"):
        if irq.isdigit():
            lines = counts.setdefault(device_name(name, device), {})
            lines[irq, cpu] = lines.get((irq, cpu), 0.0) + count
    since, until = (int(rows.wall.min()), int(rows.wall.max()) + 1) if len(rows) else (0, 0)
    found = [_device(device, lines, since, until) for device, lines in counts.items()]
    return sorted(found, key=lambda each: -each.total)


def _device(device: str, lines: dict[tuple[str, int], float], since: int, until: int) -> DeviceInterrupts:
    by_core: dict[int, float] = {}
    members: dict[int, set[str]] = {}
    for (irq, cpu), count in lines.items():
        by_core[cpu] = by_core.get(cpu, 0.0) + count
        members.setdefault(cpu, set()).add(irq)
    irq, cpu = max(lines, key=lambda each: lines[each])
    quote = Evidence(
        "interrupts", "count", "sum", lines[irq, cpu], since, until, cpu, (("irq", irq),), unit="interrupts"
    )
    return DeviceInterrupts(
        device=device,
        total=float(np.sum(list(lines.values()))),
        by_core=by_core,
        lines_on={cpu: len(irqs) for cpu, irqs in members.items()},
        lines=len({irq for irq, _ in lines}),
        evidence=quote,
    )

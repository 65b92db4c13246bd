"""Where packets come from: devices by their interrupts, or the local process that sends them."""

import re
from dataclasses import dataclass

import numpy as np

from exhume.diagnose.evidence.builder import EvidenceBuilder
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_named_share
from exhume.diagnose.evidence.samples import Names
from exhume.model.finding import Culprit, Evidence, Role, process_entity

# The suffix of an interrupt's name that ends in the queue number: eth0-TxRx-3, nvme0q7, virtio1-input.0.
_KINDS = "tx-?rx|rx-?tx|tx|rx|input|output|queue|comp|q|ch|fp|mgmnt|config|req"
_QUEUE = re.compile(rf"(?:(?:[-_.:@ ]?(?:{_KINDS}))+[-_.:@]?\d*|[-_.:@]\d+)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DeviceInterrupts:
    """A device's interrupts in the focus, by core, and the interrupt lines. `part` is the fraction that went to
    `cpu`."""

    device: str
    cpu: int
    part: float
    total: float
    by_core: dict[int, float]
    lines_on: dict[int, int]
    lines: int
    evidence: Evidence


def device_name(name: str, device: str | None) -> str:
    """The device of an interrupt: the NIC if it is known, otherwise the interrupt's name without the queue."""
    return device or _QUEUE.sub("", name) or name


def device_interrupts(case: Case) -> list[DeviceInterrupts]:
    """All devices with interrupts in the focus, the busiest first, without the kernel's own (timer, IPI)."""
    rows = case.now("interrupts")
    counts: dict[str, dict[tuple[str, int], float]] = {}
    for irq, name, cpu, count, device in rows.listed("irq", "name", "cpu", "count", "device"):
        if irq.isdigit():
            lines = counts.setdefault(device_name(name, device), {})
            lines[irq, cpu] = lines.get((irq, cpu), 0.0) + count
    return sorted((_device(each, lines, rows.span) for each, lines in counts.items()), key=lambda each: -each.total)


def _device(device: str, lines: dict[tuple[str, int], float], span: tuple[int, int]) -> DeviceInterrupts:
    by_core: dict[int, float] = {}
    members: dict[int, set[str]] = {}
    for (irq, cpu), count in lines.items():
        by_core[cpu] = by_core.get(cpu, 0.0) + count
        members.setdefault(cpu, set()).add(irq)
    irq, cpu = max(lines, key=lambda each: lines[each])
    quote = Evidence("interrupts", "count", "sum", lines[irq, cpu], *span, cpu, (("irq", irq),), unit="interrupts")
    total, busiest = float(np.sum(list(lines.values()))), max(by_core, key=lambda cpu: by_core[cpu])
    return DeviceInterrupts(
        device=device,
        cpu=busiest,
        part=by_core[busiest] / total if total else 0.0,
        total=total,
        by_core=by_core,
        lines_on={cpu: len(irqs) for cpu, irqs in members.items()},
        lines=len({irq for irq, _ in lines}),
        evidence=quote,
    )


@dataclass(frozen=True, slots=True)
class Sender:
    """The process whose sending grew most; `load` is the time it spent on that."""

    comm: str
    culprit: Culprit
    load: Load
    evidence: Evidence

    def describe(self, builder: EvidenceBuilder, strength: float | str = 0.0) -> None:
        """Add the link that names the sender."""
        who = process_entity(self.comm)
        builder.add(Role.CULPRIT, "sender", self.evidence, strength=strength, load=self.load, who=who)


def local_sender(case: Case, functions: tuple[str, ...], least_cores: float) -> Sender | None:
    """Find the sender of a storm; None if no local process sends enough, or more than before.

    A process that packets only interrupt is not a sender: its stack must contain the send call."""
    samples = case.samples
    sending = samples.holding(Names.of(functions))
    if not sending.any():
        return None
    # Choose the name whose sending grew most: others may send all the time.
    rates = []
    for window in (case.focus, case.baseline):
        mask = sending & samples.within(window)
        weights = np.bincount(samples.comm[mask], samples.weight[mask], len(samples.comms))
        rates.append(weights / max(window.seconds, 1e-9))
    comm = samples.comms[int(np.argmax(rates[0] if case.baseline.empty else rates[0] - rates[1]))]
    load = case.load_of(sending & samples.of_comms([comm]))
    if load.cores < least_cores or not load.is_new:
        return None
    culprit = case.culprit(load) if load.main_owner is not None else Culprit(cpu=load.cpu, comm=comm)
    return Sender(comm, culprit, load, quote_named_share(load, comm, functions))

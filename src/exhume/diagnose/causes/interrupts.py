"""Interrupt work on one core: softirq storms, and devices whose interrupts all go to one core."""

from dataclasses import dataclass, replace

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.hot_path import on_hot_cores, severity_on_core
from exhume.diagnose.evidence.impact import has_symptom, severity_of
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column, quote_core, quote_load
from exhume.diagnose.evidence.samples import plain_name
from exhume.diagnose.facts.irqs import DeviceInterrupts, device_interrupts
from exhume.diagnose.facts.owners import CgroupOwner, fit_remedies, owner_of
from exhume.diagnose.facts.senders import local_sender
from exhume.model.clock import NANOS
from exhume.model.finding import (
    Culprit,
    Entity,
    EntityKind,
    Evidence,
    Remedy,
    Role,
    RuledOut,
    Severity,
    process_entity,
)

SOFTIRQ = catalogue()["softirq-storm"]
IRQ = catalogue()["irq-imbalance"]
# Softirq vectors by the functions below the dispatcher (include/linux/interrupt.h, enum of NR_SOFTIRQS).
VECTORS = (
    "network-receive",
    "network-transmit",
    "timers",
    "high-resolution-timers",
    "rcu-callbacks",
    "tasklets",
    "block-completions",
    "load-balancing",
)
NETWORK = VECTORS[:2]
NO_DEVICE = "IFACE"
NO_CULPRIT = Culprit()
VIRTUAL = ("veth", "bridge", "tunnel", "tap", "loopback")
INTERRUPTED = ("irq", "softirq")


def _device(name: str) -> Entity:
    return Entity(EntityKind.DEVICE, name, name)


# Softirqs


@dataclass(frozen=True, slots=True)
class PacketSource:
    """Where packets come from: a process of this node, by way of a kind of virtual device, or a network device."""

    culprit: Culprit = NO_CULPRIT
    target: str = NO_DEVICE
    sender: Entity | None = None
    device: Entity | None = None
    local: bool = False
    virtual: str | None = None


@examines(SOFTIRQ)
def softirq_storm(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if not case.has_stacks:
        return _softirqs_by_counters(builder, case)
    load = on_hot_cores(case, SOFTIRQ.functions, SOFTIRQ.limit("core_share"))
    if load.peak < SOFTIRQ.limit("core_share"):
        return builder.rule_out("share", peak=load.peak)
    if not load.is_new and load.peak < SOFTIRQ.limit("always_share"):
        return builder.rule_out("usual", peak=load.peak, cpu=load.cpu)
    parts = {name: case.part_in(load, SOFTIRQ.group(name)) for name in VECTORS}
    vector = max(parts, key=lambda name: parts[name])
    function = _deepest(case, load) or SOFTIRQ.groups[vector][0]
    most, whole = SOFTIRQ.limit("most_strength"), SOFTIRQ.limit("whole_core")
    values = {"peak": load.peak, "cpu": load.cpu, "vector": vector.replace("-", " "), "function": function}
    quote = quote_load(case, load, SOFTIRQ.functions)
    builder.add(Role.MECHANISM, "load", quote, strength=min(most, most * load.peak / whole), at=load.at, values=values)
    if parts[vector] < SOFTIRQ.limit("main_part"):
        builder.doubt("mixed")
    _add_softirq_counters(builder, case, load.cpu)
    source = _packet_source(builder, case, load) if vector in NETWORK else PacketSource()
    return builder.found(
        severity_on_core(case, load),
        "summary",
        culprit=replace(source.culprit, cpu=load.cpu, function=function),
        load=load,
        remedies=_softirq_remedies(vector, source.target, owner_of(case, source.culprit.cgroup)),
        sender=source.sender,
        device=source.device,
        local=source.local,
        virtual=source.virtual,
        values=values,
    )


def _deepest(case: Case, load: Load) -> str | None:
    """The function nearest to the leaf that at least half of the load goes through, without the dispatchers."""
    samples = case.samples
    held = dict(samples.inclusive(load.mask))
    total = float(samples.weight[load.mask].sum())
    stacks = np.bincount(samples.stack[load.mask], samples.weight[load.mask])
    path = [plain_name(name) for name in samples.frames_of(int(np.argmax(stacks)))]
    plumbing, least = SOFTIRQ.group("plumbing"), SOFTIRQ.limit("main_part") * total
    through = [name for name in path if held.get(name, 0.0) >= least and name not in plumbing]
    # Frames above the softirq belong to the interrupted task.
    entered = next((i for i, name in enumerate(path) if name in SOFTIRQ.names), 0)
    below = [name for name in through if name in path[entered:]]
    return below[-1] if below else None


def _add_softirq_counters(builder: EvidenceBuilder, case: Case, cpu: int | None) -> None:
    """What the core's own counters say."""
    core = case.now("cpu")
    core = core.where(core.cpu == cpu)
    counted = quote_column(core, "softirq", "max", "permille", cpu)
    if counted is not None and float(counted.value) >= 1000 * SOFTIRQ.limit("core_share"):
        share = float(counted.value) / 1000
        builder.add(Role.SYMPTOM, "counted", counted, strength="counted", cpu=cpu, share=share)
    for column in ("dropped", "squeezed"):
        rows = case.now("softnet")
        rows = rows.where(rows.cpu == cpu) if len(rows) else rows
        quote = quote_column(rows, column, "max", "a second", cpu)
        if quote is not None and float(quote.value) >= SOFTIRQ.limit(column):
            builder.add(Role.SYMPTOM, column, quote, strength="backlogged", count=float(quote.value), cpu=cpu)
    ran = _ksoftirqd(case, cpu)
    if ran is not None:
        builder.add(Role.MECHANISM, "ksoftirqd", ran, strength="backlogged", cpu=cpu, ran=float(ran.value) / NANOS)


def _ksoftirqd(case: Case, cpu: int | None) -> Evidence | None:
    comm = f"ksoftirqd/{cpu}"
    quote = quote_column(case.now("threads").matching("comm", comm), "run_ns", "max", "ns", cpu)
    if quote is None or float(quote.value) < SOFTIRQ.limit("ksoftirqd_ran") * NANOS:
        return None
    return replace(quote, match=(("comm", comm),))


def _packet_source(builder: EvidenceBuilder, case: Case, load: Load) -> PacketSource:
    if case.part_in(load, SOFTIRQ.group("backlog")) >= SOFTIRQ.limit("main_part"):
        virtual = _virtual_device(case, load)
        sender = local_sender(case, SOFTIRQ.groups["send"], SOFTIRQ.limit("sender_cores"))
        if sender is not None:
            sender.describe(builder, "sender")
            return PacketSource(sender.culprit, sender=process_entity(sender.comm), virtual=virtual)
        builder.doubt("no-sender")
        return PacketSource(local=virtual is not None, virtual=virtual)
    here = [each for each in device_interrupts(case) if each.cpu == load.cpu]
    if not here:
        return PacketSource()
    device = max(here, key=lambda each: each.by_core[each.cpu])
    named, count = _device(device.device), device.by_core[device.cpu]
    builder.add(Role.CULPRIT, "device", device.evidence, strength="device", device=named, count=count, cpu=load.cpu)
    return PacketSource(target=device.device, device=named)


def _virtual_device(case: Case, load: Load) -> str | None:
    """The kind of virtual device that the packets take, by its functions; None where none shows."""
    parts = {kind: case.part_in(load, SOFTIRQ.group(kind)) for kind in VIRTUAL}
    best = max(parts, key=lambda kind: parts[kind])
    return best if parts[best] >= SOFTIRQ.limit("device_part") else None


def _softirq_remedies(vector: str, target: str, owner: CgroupOwner) -> tuple[Remedy, ...]:
    return fit_remedies(SOFTIRQ.remedies if vector in NETWORK else SOFTIRQ.remedies[-1:], owner, target)


def _softirqs_by_counters(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    """Without stacks: the core's own count of softirq time, which is all there is."""
    share, cpu, at = case.core_share(("softirq",))
    if share < SOFTIRQ.limit("core_share"):
        return builder.rule_out("uncounted", share=share)
    rows = case.now("cpu")
    own = rows.where(rows.cpu == cpu)
    busy = own.numbers("softirq") >= 1000 * SOFTIRQ.limit("core_share")
    seconds = float(own.numbers("span_ms")[busy].sum()) / 1000
    quote = quote_core("softirq", share, cpu, at)
    builder.add(Role.MECHANISM, "counted", quote, strength="counted_alone", at=at, share=share, cpu=cpu)
    _add_softirq_counters(builder, case, cpu)
    severe = seconds >= SOFTIRQ.limit("seconds") and has_symptom(case, cpu)
    return builder.found(
        Severity.CRITICAL if severe else Severity.WARNING,
        "summary-counted",
        culprit=Culprit(cpu=cpu),
        weight=seconds,
        remedies=_softirq_remedies(NETWORK[0], NO_DEVICE, CgroupOwner()),
        cpu=cpu,
    )


# Interrupts of a device


@dataclass(frozen=True, slots=True)
class OtherCores:
    """The other cores: the median share in interrupts and idle, and the idlest core with its best second."""

    interrupted: float
    idle: float
    evidence: Evidence


@examines(IRQ)
def irq_imbalance(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if case.cores < IRQ.limit("least_cores"):
        return builder.rule_out("one-core")
    device = _on_one_core(case)
    if device is None:
        return builder.rule_out("spread")
    cpu, named = device.cpu, _device(device.device)
    load = case.load(IRQ.names, cpus=[cpu])
    share, _, at = case.core_share(INTERRUPTED, cpu)
    share = max(share, load.peak)
    if share < IRQ.limit("core_share"):
        return builder.rule_out("little", device=named, cpu=cpu, share=share)
    if case.part_in(load, IRQ.group("local")) >= IRQ.limit("local_part"):
        return builder.rule_out("local", device=named, cpu=cpu)
    others = _other_cores(case, cpu)
    if others is None or others.interrupted > IRQ.limit("others_share") or others.idle < IRQ.limit("others_idle"):
        return builder.rule_out("all-busy")
    lines = device.lines_on[cpu]
    builder.add(
        Role.ROOT_CAUSE,
        "interrupts",
        device.evidence,
        strength="several_lines" if lines > 1 else "one_line",
        part=device.part,
        device=named,
        rate=device.by_core[cpu] / max(case.focus.seconds, 1e-9),
        lines=lines,
        all_lines=device.lines,
        cpu=cpu,
    )
    if lines == 1 and device.lines > 1:
        builder.doubt("one-queue")
    _add_interrupt_time(builder, case, cpu, load, at)
    values = {"interrupted": others.interrupted, "idle": others.idle}
    builder.add(Role.MECHANISM, "others", others.evidence, strength="others", values=values)
    if case.has_stacks:
        severity = severity_of(case, load)
    else:
        severe = share >= IRQ.limit("lost") and has_symptom(case, cpu)
        severity = Severity.CRITICAL if severe else Severity.WARNING
    return builder.found(
        severity,
        "summary",
        culprit=Culprit(cpu=cpu, function=case.samples.nearest(load.mask, IRQ.names) if load.samples else None),
        load=load if case.has_stacks else None,
        weight=None if case.has_stacks else share * case.focus.seconds,
        remedies=aim(IRQ.remedies, device.device),
        device=named,
        cpu=cpu,
        share=share,
    )


def _on_one_core(case: Case) -> DeviceInterrupts | None:
    """The busiest device whose interrupts go to one core."""
    least = IRQ.limit("least_rate") * case.focus.seconds
    for device in device_interrupts(case):
        if device.part >= IRQ.limit("on_one_core") and device.by_core[device.cpu] >= least:
            return device
    return None


def _other_cores(case: Case, cpu: int) -> OtherCores | None:
    rows = case.now("cpu")
    rows = rows.where(rows.cpu != cpu) if len(rows) else rows
    if not len(rows):
        return None
    cpus = np.unique(rows.cpu)
    cores = [rows.where(rows.cpu == each) for each in cpus.tolist()]
    interrupted = float(np.median([each.sums(INTERRUPTED).mean() for each in cores])) / 1000
    idles = np.array([each.numbers("idle").mean() for each in cores])
    best = int(np.argmax(idles))
    highest, focus = cores[best].highest("idle") or 0.0, case.focus
    quote = Evidence("cpu", "idle", "max", highest, focus.since, focus.until, int(cpus[best]), unit="permille")
    return OtherCores(interrupted, float(np.median(idles)) / 1000, quote)


def _add_interrupt_time(builder: EvidenceBuilder, case: Case, cpu: int, load: Load, at: int) -> None:
    """The core's time in interrupts: in stacks, and by its own count."""
    if load.peak >= IRQ.limit("core_share"):
        samples = case.samples
        polling = load.mask & (samples.holding(IRQ.group("poll")) | samples.holding(IRQ.group("hard")))
        by_device = bool(polling.sum() >= IRQ.limit("device_part") * load.mask.sum())
        strength = "device_work" if by_device else "other_work"
        quote = quote_load(case, load, IRQ.functions)
        builder.add(Role.MECHANISM, "load", quote, strength=strength, at=load.at, peak=load.peak, cpu=cpu)
    counted, _, moment = case.core_share(("softirq",), cpu)
    if counted >= IRQ.limit("core_share"):
        quote = quote_core("softirq", counted, cpu, moment)
        builder.add(Role.SYMPTOM, "counted", quote, strength="counted", at=at, cpu=cpu, share=counted)

"""Interrupt work on one core: softirq storms, and devices whose interrupts all go to one core."""

from dataclasses import replace

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column, quote_core, quote_share
from exhume.diagnose.evidence.stack_cause import on_hot_cores
from exhume.diagnose.facts.owners import CgroupOwner, fit_remedies, owner_of
from exhume.diagnose.facts.packets import device_interrupts, local_sender
from exhume.diagnose.symptoms import has_symptom, severity_of, severity_on_core
from exhume.model.clock import NANOS
from exhume.model.finding import Culprit, Entity, EntityKind, Evidence, Role, RuledOut, Severity, process_entity

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
VIRTUAL = ("veth", "bridge", "tunnel", "tap", "loopback")
INTERRUPTED = ("irq", "softirq")


@examines(SOFTIRQ)
def softirq_storm(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if not case.has_stacks:
        return _softirqs_by_counters(builder, case)
    # A ksoftirqd gets its turn like any other thread.
    least = SOFTIRQ.limit("core_share") * case.turn
    load = on_hot_cores(case, SOFTIRQ.functions, least)
    if load.peak < least:
        return builder.rule_out("share", peak=load.peak)
    if not load.is_new and load.peak < SOFTIRQ.limit("always_share"):
        return builder.rule_out("usual", peak=load.peak, cpu=load.cpu)
    parts = {name: case.part_in(load, SOFTIRQ.group(name)) for name in VECTORS}
    vector = max(parts, key=lambda name: parts[name])
    # The function nearest to the leaf that has at least half of the load, without the dispatchers. Frames above the
    # softirq belong to the interrupted task.
    path, through = case.samples.main_path(load.mask, SOFTIRQ.limit("main_part"))
    entered, plumbing = next((i for i, name in enumerate(path) if name in SOFTIRQ.names), 0), SOFTIRQ.group("plumbing")
    below = [name for name in through if name in path[entered:] and name not in plumbing]
    function = below[-1] if below else SOFTIRQ.groups[vector][0]
    most, whole = SOFTIRQ.limit("most_strength"), SOFTIRQ.limit("whole_core") * case.turn
    values: dict[str, object] = {"vector": vector.replace("-", " "), "function": function}
    strength = min(most, most * load.peak / whole)
    quote = quote_share(case, load, SOFTIRQ.functions)
    builder.add(Role.MECHANISM, "load", quote, strength=strength, load=load, values=values)
    if parts[vector] < SOFTIRQ.limit("main_part"):
        builder.doubt("mixed")
    _add_softirq_counters(builder, case, load.cpu)
    culprit, target, source = Culprit(), NO_DEVICE, dict[str, object]()
    if vector in NETWORK:
        culprit, target, source = _packet_source(builder, case, load)
    values |= {"sender": None, "device": None, "local": False, "virtual": None, **source}
    remedies = SOFTIRQ.remedies if vector in NETWORK else SOFTIRQ.remedies[-1:]
    remedies = fit_remedies(remedies, owner_of(case, culprit.cgroup), target)
    severity, culprit = severity_on_core(case, load), replace(culprit, cpu=load.cpu, function=function)
    return builder.found(severity, "summary", culprit=culprit, load=load, remedies=remedies, values=values)


def _add_softirq_counters(builder: EvidenceBuilder, case: Case, cpu: int | None) -> None:
    """Add what the core's own counters show."""
    counted = quote_column(case.now("cpu").on(cpu), "softirq", "max", "permille", cpu)
    if counted is not None and float(counted.value) >= 1000 * SOFTIRQ.limit("core_share"):
        share = float(counted.value) / 1000
        builder.add(Role.SYMPTOM, "counted", counted, strength="counted", cpu=cpu, share=share)
    for column in ("dropped", "squeezed"):
        quote = quote_column(case.now("softnet").on(cpu), column, "max", "a second", cpu)
        if quote is not None and float(quote.value) >= SOFTIRQ.limit(column):
            builder.add(Role.SYMPTOM, column, quote, strength="backlogged", count=float(quote.value), cpu=cpu)
    comm = f"ksoftirqd/{cpu}"
    ran = quote_column(case.now("threads").matching("comm", comm), "run_ns", "max", "ns", cpu, (("comm", comm),))
    if ran is not None and float(ran.value) >= SOFTIRQ.limit("ksoftirqd_ran") * NANOS:
        builder.add(Role.MECHANISM, "ksoftirqd", ran, strength="backlogged", cpu=cpu, ran=float(ran.value) / NANOS)


def _packet_source(builder: EvidenceBuilder, case: Case, load: Load) -> tuple[Culprit, str, dict[str, object]]:
    """Where packets come from: a local process (through a kind of virtual device), or a network device. Returns the
    culprit, the target of remedies and the values for the summary."""
    if case.part_in(load, SOFTIRQ.group("backlog")) >= SOFTIRQ.limit("main_part"):
        parts = {kind: case.part_in(load, SOFTIRQ.group(kind)) for kind in VIRTUAL}
        best = max(parts, key=lambda kind: parts[kind])
        virtual = best if parts[best] >= SOFTIRQ.limit("device_part") else None
        sender = local_sender(case, SOFTIRQ.groups["send"], SOFTIRQ.limit("sender_cores"))
        if sender is not None:
            sender.describe(builder, "sender")
            return sender.culprit, NO_DEVICE, {"sender": process_entity(sender.comm), "virtual": virtual}
        builder.doubt("no-sender")
        return Culprit(), NO_DEVICE, {"local": virtual is not None, "virtual": virtual}
    here = [each for each in device_interrupts(case) if each.cpu == load.cpu]
    if not here:
        return Culprit(), NO_DEVICE, {}
    device = max(here, key=lambda each: each.by_core[each.cpu])
    named, count = Entity(EntityKind.DEVICE, device.device, device.device), device.by_core[device.cpu]
    builder.add(Role.CULPRIT, "device", device.evidence, strength="device", device=named, count=count, cpu=load.cpu)
    return Culprit(), device.device, {"device": named}


def _softirqs_by_counters(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    """Without stacks, the core's softirq time is the only evidence."""
    share, cpu, at = case.core_share(("softirq",))
    if share < SOFTIRQ.limit("core_share"):
        return builder.rule_out("uncounted", share=share)
    own = case.now("cpu").on(cpu)
    busy = own.numbers("softirq") >= 1000 * SOFTIRQ.limit("core_share")
    seconds = float(own.numbers("span_ms")[busy].sum()) / 1000
    quote = quote_core("softirq", share, cpu, at)
    builder.add(Role.MECHANISM, "counted", quote, strength="counted_alone", share=share, cpu=cpu)
    _add_softirq_counters(builder, case, cpu)
    severe = seconds >= SOFTIRQ.limit("seconds") and has_symptom(case, cpu)
    severity, culprit = Severity.CRITICAL if severe else Severity.WARNING, Culprit(cpu=cpu)
    remedies = fit_remedies(SOFTIRQ.remedies, CgroupOwner(), NO_DEVICE)
    return builder.found(severity, "summary-counted", culprit=culprit, weight=seconds, remedies=remedies, cpu=cpu)


@examines(IRQ)
def irq_imbalance(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if case.cores < IRQ.limit("least_cores"):
        return builder.rule_out("one-core")
    least, on_one = IRQ.limit("least_rate") * case.focus.seconds, IRQ.limit("on_one_core")
    busy = (each for each in device_interrupts(case) if each.part >= on_one and each.by_core[each.cpu] >= least)
    device = next(busy, None)
    if device is None:
        return builder.rule_out("spread")
    cpu, named = device.cpu, Entity(EntityKind.DEVICE, device.device, device.device)
    load = case.load(IRQ.names, cpus=[cpu])
    share, _, at = case.core_share(INTERRUPTED, cpu)
    share = max(share, load.peak)
    if share < IRQ.limit("core_share"):
        return builder.rule_out("little", device=named, cpu=cpu, share=share)
    if case.part_in(load, IRQ.group("local")) >= IRQ.limit("local_part"):
        return builder.rule_out("local", device=named, cpu=cpu)
    rows = case.now("cpu")
    others = [rows.on(each) for each in np.unique(rows.cpu).tolist() if each != cpu]
    # The median share of the other cores spent in interrupts and idle, and the idlest core with its best second.
    interrupted = float(np.median([each.sums(INTERRUPTED).mean() for each in others])) / 1000 if others else 1.0
    idles = [float(each.numbers("idle").mean()) for each in others]
    idle = float(np.median(idles)) / 1000 if others else 0.0
    if interrupted > IRQ.limit("others_share") or idle < IRQ.limit("others_idle"):
        return builder.rule_out("all-busy")
    idlest = others[int(np.argmax(idles))]
    lines, all_lines = device.lines_on[cpu], device.lines
    rate = device.by_core[cpu] / max(case.focus.seconds, 1e-9)
    values: dict[str, object] = {"part": device.part, "rate": rate, "device": named, "cpu": cpu}
    values |= {"lines": lines, "all_lines": all_lines}
    strength = "several_lines" if lines > 1 else "one_line"
    builder.add(Role.ROOT_CAUSE, "interrupts", device.evidence, strength=strength, values=values)
    if lines == 1 and all_lines > 1:
        builder.doubt("one-queue")
    _add_interrupt_time(builder, case, cpu, load, at)
    highest, focus = idlest.highest("idle") or 0.0, case.focus
    quote = Evidence("cpu", "idle", "max", highest, focus.since, focus.until, int(idlest.cpu[0]), unit="permille")
    builder.add(Role.MECHANISM, "others", quote, strength="others", interrupted=interrupted, idle=idle)
    culprit = Culprit(cpu=cpu, function=case.samples.nearest(load.mask, IRQ.names))
    values, target = {"device": named, "cpu": cpu, "share": share}, device.device
    if case.has_stacks:
        severity = severity_of(case, load)
        return builder.found(severity, "summary", culprit=culprit, load=load, target=target, values=values)
    severe = case.core_held(INTERRUPTED, cpu) and has_symptom(case, cpu)
    severity, weight = Severity.CRITICAL if severe else Severity.WARNING, share * case.focus.seconds
    return builder.found(severity, "summary", culprit=culprit, weight=weight, target=target, values=values)


def _add_interrupt_time(builder: EvidenceBuilder, case: Case, cpu: int, load: Load, at: int) -> None:
    """Add the core's time in interrupts: from stacks, and from its own counters."""
    if load.peak >= IRQ.limit("core_share"):
        samples = case.samples
        polling = load.mask & (samples.holding(IRQ.group("poll")) | samples.holding(IRQ.group("hard")))
        by_device = bool(polling.sum() >= IRQ.limit("device_part") * load.mask.sum())
        quote = quote_share(case, load, IRQ.functions)
        builder.add(
            Role.MECHANISM, "load", quote, strength="device_work" if by_device else "other_work", load=load, cpu=cpu
        )
    counted, _, moment = case.core_share(("softirq",), cpu)
    if counted >= IRQ.limit("core_share"):
        quote = quote_core("softirq", counted, cpu, moment)
        builder.add(Role.SYMPTOM, "counted", quote, strength="counted", at=at, cpu=cpu, share=counted)

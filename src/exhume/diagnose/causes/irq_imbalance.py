"""All interrupts of a device go to one core, which has its hands full with them while the others idle."""

from dataclasses import replace

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.impact import has_symptom, severity_of
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_load
from exhume.diagnose.facts.irqs import DeviceInterrupts, device_interrupts
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity

CAUSE = catalogue()["irq-imbalance"]
INTERRUPTED = ("irq", "softirq")


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    if case.cores < CAUSE.limit("least_cores"):
        return builder.rule_out("there is one core only: interrupts have nowhere else to go")
    device = _lopsided(case)
    if device is None:
        return builder.rule_out("no busy device has its interrupts on one core only")
    cpu = device.cpu
    load = case.load(CAUSE.names, cpus=[cpu])
    share, _, at = case.core_share(INTERRUPTED, cpu)
    share = max(share, load.peak)
    if share < CAUSE.limit("core_share"):
        return builder.rule_out(f"{device.device}'s interrupts all go to core {cpu}, but take only {share:.0%} of it")
    local = _local_part(case, load)
    if local >= CAUSE.limit("local_part"):
        return builder.rule_out(f"core {cpu} works on packets that are sent on this node, not on {device.device}'s")
    others = _others(case, cpu)
    if others is None or others[0] > CAUSE.limit("others_share") or others[1] < CAUSE.limit("others_idle"):
        return builder.rule_out("the other cores are busy as well: it is not about which core gets the interrupts")
    rate = device.by_core[cpu] / max(case.focus.seconds, 1e-9)
    lines = device.lines_on[cpu]
    which = f"{rate:,.0f} a second, {lines} of its {device.lines} lines"
    text = f"{device.part:.0%} of {device.device}'s interrupts ({which}) went to core {cpu}"
    builder.add(Role.ROOT_CAUSE, text, device.evidence, strength=0.65 if lines > 1 else 0.5)
    if lines == 1 and device.lines > 1:
        builder.doubt("one queue brings all of it in: it may be one connection, which no affinity can spread")
    _time(case, builder, cpu, load, at)
    idle = Evidence("cpu", "idle", "max", others[2], case.focus.since, case.focus.until, others[3], unit="permille")
    text = f"the other cores spend {others[0]:.0%} in interrupts and are {others[1]:.0%} idle (the middle one of them)"
    builder.add(Role.MECHANISM, text, idle, strength=0.2)
    if not case.has_stacks:
        load = replace(load, cpu=cpu)
        severity = Severity.CRITICAL if share >= 0.95 and has_symptom(case, cpu) else Severity.WARNING
    else:
        severity = severity_of(case, load)
    return builder.found(
        severity,
        f"{device.device}'s interrupts all go to core {cpu}, which spends {share:.0%} on them while others idle",
        culprit=Culprit(cpu=cpu, function=case.samples.nearest(load.mask, CAUSE.names) if load.samples else None),
        load=load if case.has_stacks else None,
        weight=None if case.has_stacks else share * case.focus.seconds,
        remedies=aim(CAUSE.remedies, device.device),
    )


def _lopsided(case: Case) -> DeviceInterrupts | None:
    """The busiest device whose interrupts go to one core."""
    least = CAUSE.limit("least_rate") * case.focus.seconds
    for device in device_interrupts(case):
        if device.part >= CAUSE.limit("on_one_core") and device.by_core[device.cpu] >= least:
            return device
    return None


def _local_part(case: Case, load: Load) -> float:
    """The part of the interrupt work that is packets from this very node, or handed over by another core."""
    sampled = case.samples
    if not load.samples:
        return 0.0
    local = load.mask & sampled.holding(CAUSE.named("local"))
    return float(sampled.weight[local].sum()) / max(float(sampled.weight[load.mask].sum()), 1e-9)


def _others(case: Case, cpu: int) -> tuple[float, float, float, int] | None:
    """Of the other cores: the middle one's share in interrupts, and idle; then the idlest's best and which it is."""
    rows = case.now("cpu")
    rows = rows.where(rows.cpu != cpu) if len(rows) else rows
    if not len(rows):
        return None
    cpus = np.unique(rows.cpu)
    mine = [rows.where(rows.cpu == each) for each in cpus.tolist()]
    interrupted = float(np.median([each.sums(INTERRUPTED).mean() for each in mine])) / 1000
    idles = np.array([each.numbers("idle").mean() for each in mine])
    best = int(np.argmax(idles))
    highest = mine[best].highest("idle") or 0.0
    return interrupted, float(np.median(idles)) / 1000, highest, int(cpus[best])


def _time(case: Case, builder: EvidenceBuilder, cpu: int, load: Load, at: int) -> None:
    """The core's time in interrupts: in stacks, and by its own count."""
    if load.peak >= CAUSE.limit("core_share"):
        polling = load.mask & (case.samples.holding(CAUSE.named("poll")) | case.samples.holding(CAUSE.named("hard")))
        device_work = bool(polling.sum() >= 0.3 * load.mask.sum())
        told = quote_load(case, load, CAUSE.functions)
        text = f"interrupts and what they bring took {load.peak:.0%} of a second of core {cpu}"
        builder.add(Role.MECHANISM, text, told, strength=0.6 if device_work else 0.3, at=load.at)
    counted, _, moment = case.core_share(("softirq",), cpu)
    if counted >= CAUSE.limit("core_share"):
        told = Evidence("cpu", "softirq", "max", round(counted * 1000), moment, moment + 1, cpu, unit="permille")
        builder.add(Role.SYMPTOM, f"core {cpu} counted {counted:.0%} of a second as softirq", told, strength=0.3, at=at)

"""A core does little but softirqs: packets, timers or callbacks come faster than it works them off."""

from dataclasses import replace

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.hot_path import on_hot_cores, severity_on_core
from exhume.diagnose.evidence.impact import has_symptom
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column, quote_load
from exhume.diagnose.evidence.samples import plain_name
from exhume.diagnose.facts.irqs import device_interrupts
from exhume.diagnose.facts.owners import CgroupOwner, fit_remedies, owner_of
from exhume.diagnose.facts.senders import local_sender
from exhume.model.clock import NANOS
from exhume.model.finding import Culprit, Evidence, Remedy, Role, RuledOut, Severity

CAUSE = catalogue()["softirq-storm"]
GROUPS = CAUSE.more_functions or {}
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
NO_DEVICE = "IFACE"
VIRTUAL = ("veth", "bridge", "tunnel", "tap", "loopback")


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    if not case.has_stacks:
        return _by_counters(case, builder)
    load = on_hot_cores(case, CAUSE.functions, CAUSE.limit("core_share"))
    if load.peak < CAUSE.limit("core_share"):
        return builder.rule_out(f"softirqs took at most {load.peak:.0%} of a core")
    if not load.is_new and load.peak < CAUSE.limit("always_share"):
        return builder.rule_out(f"softirqs took {load.peak:.0%} of core {load.cpu}, as they did before")
    vector, functions, part = _vector(case, load)
    deepest = _deepest(case, load)
    what = vector.replace("-", " ")
    text = f"softirqs took {load.peak:.0%} of a second of core {load.cpu}, mostly {what} ({deepest or functions[0]})"
    told = quote_load(case, load, CAUSE.functions)
    builder.add(Role.MECHANISM, text, told, strength=min(0.8, 0.8 * load.peak / 0.7), at=load.at)
    if part < 0.5:
        builder.doubt("no single kind of softirq makes up most of it")
    _counters(case, builder, load.cpu)
    culprit, target, source = Culprit(cpu=load.cpu), NO_DEVICE, ""
    if vector.startswith("network"):
        culprit, target, source = _source(case, builder, load)
    summary = f"core {load.cpu} is taken by softirqs ({what}){source}"
    return builder.found(
        severity_on_core(case, load),
        summary,
        culprit=replace(culprit, cpu=load.cpu, function=deepest or functions[0]),
        load=load,
        remedies=_remedies(vector, target, owner_of(case, culprit.cgroup)),
    )


def _vector(case: Case, load: Load) -> tuple[str, tuple[str, ...], float]:
    """Which kind of softirq it is, by the functions below the dispatcher, and its part of the load."""
    total = float(case.samples.weight[load.mask].sum())
    parts = {}
    for name in VECTORS:
        mask = load.mask & case.samples.holding(CAUSE.named(name))
        parts[name] = float(case.samples.weight[mask].sum()) / max(total, 1e-9)
    best = max(parts, key=lambda name: parts[name])
    return best, GROUPS[best], parts[best]


def _deepest(case: Case, load: Load) -> str | None:
    """The function nearest to the leaf that at least half of the load goes through, without the dispatchers."""
    sampled = case.samples
    held = dict(sampled.inclusive(load.mask))
    total = float(sampled.weight[load.mask].sum())
    stacks = np.bincount(sampled.stack[load.mask], sampled.weight[load.mask])
    path = [plain_name(name) for name in sampled.frames_of(int(np.argmax(stacks)))]
    plumbing = CAUSE.named("plumbing")
    through = [name for name in path if held.get(name, 0.0) >= 0.5 * total and name not in plumbing]
    # What is above the softirq is who was interrupted, not what it does.
    entered = next((i for i, name in enumerate(path) if name in CAUSE.names), 0)
    below = [name for name in through if name in path[entered:]]
    return below[-1] if below else None


def _counters(case: Case, builder: EvidenceBuilder, cpu: int | None) -> None:
    """What the core's own counters say to it."""
    core = case.now("cpu")
    core = core.where(core.cpu == cpu)
    counted = quote_column(core, "softirq", "max", "permille", cpu)
    if counted is not None and float(counted.value) >= 1000 * CAUSE.limit("core_share"):
        text = f"core {cpu} counted {float(counted.value) / 10:.0f}% of a second as softirq"
        builder.add(Role.SYMPTOM, text, counted, strength=0.4)
    for column, text in (
        ("dropped", "packets were dropped because core {cpu}'s backlog was full"),
        ("squeezed", "times core {cpu} ran out of budget with packets left over"),
    ):
        rows = case.now("softnet")
        rows = rows.where(rows.cpu == cpu) if len(rows) else rows
        told = quote_column(rows, column, "max", "a second", cpu)
        if told is not None and float(told.value) >= CAUSE.limit(column):
            builder.add(Role.SYMPTOM, f"{float(told.value):,.0f} {text.format(cpu=cpu)}", told, strength=0.25)
    ran = _ksoftirqd(case, cpu)
    if ran is not None:
        text = f"ksoftirqd/{cpu} ran {float(ran.value) / NANOS:.1f} s of a second: they don't fit between other work"
        builder.add(Role.MECHANISM, text, ran, strength=0.25)


def _ksoftirqd(case: Case, cpu: int | None) -> Evidence | None:
    comm = f"ksoftirqd/{cpu}"
    rows = case.now("threads").matching("comm", comm)
    told = quote_column(rows, "run_ns", "max", "ns", cpu)
    if told is None or float(told.value) < CAUSE.limit("ksoftirqd_ran") * NANOS:
        return None
    return replace(told, match=(("comm", comm),))


def _source(case: Case, builder: EvidenceBuilder, load: Load) -> tuple[Culprit, str, str]:
    """Where the packets come from: a process on this node, by way of a virtual device, or from outside by a NIC."""
    sampled = case.samples
    backlog = load.mask & sampled.holding(CAUSE.named("backlog"))
    local = float(sampled.weight[backlog].sum()) / max(float(sampled.weight[load.mask].sum()), 1e-9)
    if local >= 0.5:
        way = _way(case, load)
        sender = local_sender(case, GROUPS["send"], CAUSE.limit("sender_cores"))
        if sender is not None:
            builder.add(Role.CULPRIT, sender.text, sender.evidence, strength=0.3, at=sender.load.at)
            return sender.culprit, NO_DEVICE, f": packets that {sender.comm} sends on this node{way}"
        builder.doubt("the packets come by way of a core's backlog, and no process here was seen to send them")
        return Culprit(), NO_DEVICE, f": packets of this node{way}" if way else ""
    here = [each for each in device_interrupts(case) if each.cpu == load.cpu]
    if here:
        device = max(here, key=lambda each: each.by_core[each.cpu])
        count = device.by_core[device.cpu]
        text = f"{device.device} brings them in: {count:,.0f} of its interrupts went to core {load.cpu}"
        builder.add(Role.CULPRIT, text, device.evidence, strength=0.2)
        return Culprit(), device.device, f": packets that come in by {device.device}"
    return Culprit(), NO_DEVICE, ""


def _way(case: Case, load: Load) -> str:
    """The kind of virtual device that the packets take, by its functions; nothing where it doesn't show."""
    sampled = case.samples
    total = max(float(sampled.weight[load.mask].sum()), 1e-9)
    parts = {}
    for kind in VIRTUAL:
        held = load.mask & sampled.holding(CAUSE.named(kind))
        parts[kind] = float(sampled.weight[held].sum()) / total
    best = max(parts, key=lambda kind: parts[kind])
    return f", by way of {best} devices" if parts[best] >= CAUSE.limit("device_part") else ""


def _remedies(vector: str, target: str, whose: CgroupOwner) -> tuple[Remedy, ...]:
    chosen = CAUSE.remedies if vector.startswith("network") else CAUSE.remedies[-1:]
    return fit_remedies(chosen, whose, target)


def _by_counters(case: Case, builder: EvidenceBuilder) -> Found | RuledOut:
    """Without stacks: the core's own count of softirq time, which is all there is."""
    share, cpu, at = case.core_share(("softirq",))
    if share < CAUSE.limit("core_share"):
        return builder.rule_out(f"cores counted at most {share:.0%} of a second as softirq")
    rows = case.now("cpu")
    own = rows.where(rows.cpu == cpu)
    busy = own.numbers("softirq") >= 1000 * CAUSE.limit("core_share")
    seconds = float(own.numbers("span_ms")[busy].sum()) / 1000
    told = Evidence("cpu", "softirq", "max", round(share * 1000), at, at + 1, cpu, unit="permille")
    builder.add(Role.MECHANISM, f"softirqs took {share:.0%} of a second of core {cpu}", told, strength=0.55, at=at)
    _counters(case, builder, cpu)
    severity = Severity.CRITICAL if seconds >= 2 and has_symptom(case, cpu) else Severity.WARNING
    summary = f"core {cpu} is taken by softirqs"
    return builder.found(
        severity,
        summary,
        culprit=Culprit(cpu=cpu),
        weight=seconds,
        remedies=_remedies("network", NO_DEVICE, CgroupOwner()),
    )

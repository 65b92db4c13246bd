"""The network stack: connection tracking under pressure, long or churning rule sets, IPVS estimation, and network
namespaces that are created and removed by the dozens per second."""

import re
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from exhume.diagnose.catalogue import Cause, catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import log_lines, quote_column, quote_event
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.evidence.stack_cause import HotPath, hot_path
from exhume.diagnose.facts.forecasts import count_forecast, memory_forecast
from exhume.diagnose.facts.lifetimes import find_short_lived
from exhume.diagnose.facts.owners import fit_remedies, owner_of, stop_remedies
from exhume.diagnose.facts.packets import local_sender
from exhume.diagnose.symptoms import severity_of, severity_on_core
from exhume.model.clock import NANOS
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity, process_entity

CONNTRACK = catalogue()["conntrack-pressure"]
RULES = catalogue()["iptables-churn"]
IPVS = catalogue()["ipvs-estimation"]
NAMESPACES = catalogue()["netns-cleanup"]


def _strength(case: Case, cause: Cause, share: float) -> float:
    """The weight of a signature by its share of a core, or of the part of a core that it can get while threads queue
    for it."""
    whole = case.turn * cause.limit("whole_core")
    return min(cause.limit("most_strength"), share / whole * cause.limit("share_strength"))


def _add_actor(builder: EvidenceBuilder, key: str, path: HotPath, strength: str) -> Culprit:
    """Name the process behind a path."""
    values = {"who": path.process, "function": path.function}
    builder.add(Role.CULPRIT, key, path.evidence, strength=strength, load=path.load, values=values)
    return path.culprit


@examines(CONNTRACK)
def conntrack_pressure(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    filled = _add_fill(builder, case)
    # The kernel logs that it drops packets because the table is full.
    lines = log_lines(case, CONNTRACK.log, after_ns=2 * NANOS)
    for line in lines[:1]:
        builder.add(Role.SYMPTOM, "log", quote_event(line), strength="logged", line=line.text)
    path, dropped, filling = _add_tracking(builder, case), bool(lines), filled >= CONNTRACK.limit("filling")
    if path is None and not dropped and not filling:
        return builder.rule_out("idle", filled=filled or None)
    severity = Severity.WARNING if filled >= CONNTRACK.limit("full") else Severity.INFO
    severity = Severity.CRITICAL if dropped else severity
    culprit, function, load = Culprit(), None, None
    if path is not None:
        function, load = path.function, path.load
        severity = max(severity, severity_on_core(case, load), key=lambda each: each.rank)
        culprit = _tracking_culprit(builder, case, path)
    listing = function in CONNTRACK.group("listing")
    values: dict[str, object] = {"dropped": dropped, "filled": filled if filling and not dropped else None}
    values |= {"both": path is not None and (dropped or filling), "peak": None, "cpu": None}
    values |= {"listing": function if listing else None, "tracking": None if listing else function}
    values |= load.values if load is not None else {}
    remedies = stop_remedies(CONNTRACK.remedies, owner_of(case, culprit.cgroup))
    weight = CONNTRACK.limit("dropped_weight") if dropped and path is None else None
    return builder.found(
        severity,
        "summary",
        culprit=culprit,
        load=load,
        remedies=remedies,
        weight=weight,
        forecast=count_forecast(case, "connections", "conntrack", case.now("node").newest("conntrack_max")),
        values=values,
    )


def _add_fill(builder: EvidenceBuilder, case: Case) -> float:
    """The highest fill level of the table, as a fraction of its size."""
    rows = case.recorded("node", case.focus.seconds + CONNTRACK.limit("lookback_s"))
    limit, node = quote_column(rows, "conntrack_max", "last"), case.now("node")
    counts = node.numbers("conntrack")
    if limit is None or not limit.value or np.isnan(counts).all():
        return 0.0
    best, size = int(np.nanargmax(counts)), float(limit.value)
    most, at = float(counts[best]), int(node.wall[best])
    if most / size >= CONNTRACK.limit("filling"):
        quote = Evidence("node", "conntrack", "max", most, at, at + 1, unit="connections")
        strength = "table_full" if most / size >= CONNTRACK.limit("full") else "table_filling"
        builder.add(Role.ROOT_CAUSE, "fill", quote, limit, strength=strength, most=most, size=size)
    return most / size


def _add_tracking(builder: EvidenceBuilder, case: Case) -> HotPath | None:
    """The time in connection tracking. Pressure on the table shows in functions that a healthy table hardly needs."""
    share = CONNTRACK.limit("pressure_share") * case.turn
    pressed = hot_path(case, CONNTRACK.groups["pressure"], share=share)
    path = hot_path(case, CONNTRACK.functions, share=share)
    if path is None or not path.load.is_new:
        return None
    under_pressure = pressed is not None and pressed.load.peak >= share
    if not under_pressure and path.load.peak < CONNTRACK.limit("core_share") * case.turn:
        return None
    path.describe(builder, _strength(case, CONNTRACK, path.load.peak))
    if pressed is not None and under_pressure:
        key, load = "listed" if pressed.function in CONNTRACK.group("listing") else "searched", pressed.load
        builder.add(Role.ROOT_CAUSE, key, pressed.evidence, strength="pressed", load=load, function=pressed.function)
    return path


def _tracking_culprit(builder: EvidenceBuilder, case: Case, path: HotPath) -> Culprit:
    """The process that lists the table or opens the connections; a process that packets merely interrupt has no part in
    it."""
    listing = hot_path(case, CONNTRACK.groups["listing"])
    if listing is not None and listing.load.cores >= CONNTRACK.limit("listing_part") * path.load.cores:
        return _add_actor(builder, "lister", listing, "lister")
    sender = local_sender(case, CONNTRACK.groups["opening"], CONNTRACK.limit("sender_cores"))
    if sender is None:
        worker = path.process is not None and path.process.name.startswith("kworker/")
        return path.culprit if worker else Culprit(cpu=path.load.cpu, function=path.function)
    sender.describe(builder)
    return replace(sender.culprit, cpu=path.load.cpu, function=path.function)


@examines(RULES)
def iptables_churn(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if not case.has_stacks:
        return builder.rule_out("no-stacks-sampled")
    least = RULES.limit("core_share") * case.turn
    path = hot_path(case, RULES.functions, share=least)
    if path is None or path.load.peak < least or not path.load.is_new:
        return builder.rule_out("share", peak=0.0 if path is None else path.load.peak)
    load = path.load
    path.describe(builder, _strength(case, RULES, load.peak))
    cores = sorted(set(case.samples.cpu[load.mask].tolist()))
    walk = hot_path(case, RULES.groups["walk"], cpus=cores)
    writer = hot_path(case, RULES.groups["replace"])
    if writer is not None and writer.load.peak < RULES.limit("noted_share"):
        writer = None
    culprit = path.culprit if writer is None else _add_actor(builder, "writer", writer, "writer")
    walked = walk is not None and walk.load.cores >= RULES.limit("main_part") * load.cores
    if walk is not None and walked:
        builder.add(Role.ROOT_CAUSE, "walked", walk.evidence, strength="walked", load=walk.load, function=walk.function)
        if writer is None or writer.load.cores < RULES.limit("main_part") * walk.load.cores:
            # The sender of the packets. A process that packets from elsewhere interrupt has no part in it.
            sender = local_sender(case, RULES.groups["opening"], RULES.limit("noted_share"))
            culprit = Culprit()
            if sender is not None:
                sender.describe(builder)
                culprit = sender.culprit
            culprit = replace(culprit, cpu=walk.load.cpu)
    severity, key = severity_on_core(case, load), "summary-walked" if walked else "summary-replaced"
    culprit, function = replace(culprit, function=path.function), path.function
    target = str(writer.process) if writer is not None and writer.process else "PROGRAM"
    return builder.found(severity, key, culprit=culprit, load=load, target=target, function=function)


@examines(IPVS)
def ipvs_estimation(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if not case.has_stacks:
        return builder.rule_out("no-stacks-sampled")
    path = hot_path(case, IPVS.functions, share=IPVS.limit("core_share"))
    if path is None or path.load.peak < IPVS.limit("core_share"):
        return builder.rule_out("share", peak=0.0 if path is None else path.load.peak)
    load = path.load
    # Only IPVS has these functions, so the confidence depends on how large their load is.
    path.describe(builder, min(IPVS.limit("most"), IPVS.limit("least") + IPVS.limit("by_share") * load.peak))
    builder.add(Role.ROOT_CAUSE, "visits", path.evidence, at=load.at, cores=case.cores)
    severity = severity_of(case, load)
    if severity is Severity.INFO and load.peak >= IPVS.limit("long_share"):
        # It is idle between its turns, so its mean is low; but during a turn nothing else ran on that core.
        severity = Severity.WARNING
    return builder.found(severity, "summary", culprit=path.culprit, load=load, function=path.function)


@examines(NAMESPACES)
def netns_cleanup(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    path, cleaner = hot_path(case, NAMESPACES.functions), hot_path(case, NAMESPACES.groups["cleaner"])
    family = _made_by_children(case)
    # Processes that are started only to create a namespace are part of its cost.
    load = None if path is None else path.load if family is None else case.load_of(path.load.mask | family.mask)
    grown, together = _add_count(builder, case), 0.0 if load is None else load.together
    cleaning = cleaner is not None and cleaner.load.together >= case.turn * NAMESPACES.limit("cleaner_share")
    hot = cleaning or together >= case.turn * NAMESPACES.limit("core_share")
    if path is None or load is None or not hot or not path.load.is_new:
        if not case.has_stacks and grown >= NAMESPACES.limit("backlog"):
            # Without stacks, a growing count is the only evidence: worth reporting as info.
            return builder.found(Severity.INFO, "grown", grown=grown)
        return builder.rule_out("share", together=together)
    most, whole = NAMESPACES.limit("most_strength"), case.turn * NAMESPACES.limit("whole_core")
    path.describe(builder, min(most, most * together / whole))
    if cleaner is not None:
        busy = cleaner.load.peak >= NAMESPACES.limit("cleaner_share")
        # The name of the worker thread without its current work item.
        worker = None if cleaner.process is None else process_entity(re.split("[-+]", cleaner.process.name)[0])
        strength = "cleaner_busy" if busy else "cleaner_seen"
        builder.add(Role.MECHANISM, "cleaner", cleaner.evidence, strength=strength, at=cleaner.load.at, worker=worker)
    maker = hot_path(case, NAMESPACES.groups["maker"])
    if maker is not None:
        culprit, who = _add_actor(builder, "maker", maker, "maker"), maker.process
    else:
        builder.doubt("no-maker")
        culprit, who = Culprit(path.load.cpu, path.culprit.pid, path.culprit.comm, function=path.function), None
    if family is not None:
        per_s, part = family.makers / case.focus.seconds, family.part
        builder.add(Role.CULPRIT, "children", strength="children", load=family.load, per_s=per_s, part=part)
    owner, target = owner_of(case, culprit.cgroup), str(who) if who else "an unknown process"
    remedies = fit_remedies(NAMESPACES.remedies, owner, target)
    values = {"who": who, "function": path.function, "peak": path.load.peak, "cpu": path.load.cpu}
    severity = max(severity_on_core(case, path.load), severity_of(case, load), key=lambda each: each.rank)
    # Each namespace has its own tables for every protocol, and per-CPU counters (net/core/net_namespace.c, setup_net).
    ahead = memory_forecast(case, "namespaces", "net_namespaces", ("slab_unreclaimable", "percpu"))
    return builder.found(
        severity, "summary", culprit=culprit, load=load, remedies=remedies, forecast=ahead, values=values
    )


@dataclass(frozen=True, slots=True)
class _Children:
    """Short-lived processes that one parent starts, each to create a namespace: all their time with that of the parent,
    how many of them were sampled while creating one, and the fraction of their time that this takes."""

    load: Load
    makers: int
    part: float

    @property
    def mask(self) -> Mask:
        return self.load.mask


def _made_by_children(case: Case) -> _Children | None:
    """The children that create most namespaces; None if a few long-lived processes do, or if the children do much
    else."""
    if not case.has_stacks:
        return None
    samples, brief = case.samples, find_short_lived(case)
    making = samples.holding(NAMESPACES.group("maker")) & brief.mask
    pids = np.unique(samples.pid[making]).tolist()
    parents = Counter(brief.started_by.get(pid, 0) for pid in pids)
    parents.pop(0, None)
    parent, makers = next(iter(parents.most_common(1)), (0, 0))
    if makers < NAMESPACES.limit("makers_per_s") * case.focus.seconds:
        return None
    mask = np.isin(samples.pid, brief.pids_of(parent)) & samples.within(case.focus)
    part = samples.time(making & mask) / max(samples.time(mask), 1.0)
    return _Children(case.load_of(mask), makers, part) if part >= NAMESPACES.limit("making_part") else None


def _add_count(builder: EvidenceBuilder, case: Case) -> float:
    """The increase in namespaces compared with some time ago; many of them, or a growing number, support the cause."""
    rows = case.recorded("node", NAMESPACES.limit("lookback_s"))
    quote, least = quote_column(rows, "net_namespaces", "max", "namespaces"), rows.lowest("net_namespaces")
    if quote is None or least is None:
        builder.doubt("uncounted", "uncounted_factor")
        return 0.0
    most = float(quote.value)
    if most >= NAMESPACES.limit("many") or most - least >= NAMESPACES.limit("backlog"):
        builder.add(Role.ROOT_CAUSE, "count", quote, strength="counted", most=most, grown=most - least)
    return most - least

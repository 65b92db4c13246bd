"""Netfilter: connection tracking under pressure, long or churning rules, and IPVS estimation."""

from dataclasses import replace

import numpy as np

from exhume.diagnose.catalogue import Cause, catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.hot_path import HotPath, hot_path, on_hot_cores, severity_on_core
from exhume.diagnose.evidence.impact import severity_of
from exhume.diagnose.evidence.quotes import log_lines, quote_event
from exhume.diagnose.facts.owners import owner_of, stop_remedies
from exhume.diagnose.facts.senders import local_sender
from exhume.model.clock import NANOS
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity

CONNTRACK = catalogue()["conntrack-pressure"]
RULES = catalogue()["iptables-churn"]
IPVS = catalogue()["ipvs-estimation"]


def _on_hot_cores(case: Case, cause: Cause, functions: tuple[str, ...], share: str) -> HotPath | None:
    return hot_path(case, functions, on_hot_cores(case, functions, cause.limit(share)))


def _strength(cause: Cause, share: float) -> float:
    """The weight of a signature, by its share of a core."""
    return min(cause.limit("most_strength"), share / cause.limit("whole_core") * cause.limit("share_strength"))


# Connection tracking


@examines(CONNTRACK)
def conntrack_pressure(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    filled = _add_fill(builder, case)
    dropped = _add_log(builder, case)
    path = _add_tracking(builder, case)
    if path is None and not dropped and filled < CONNTRACK.limit("filling"):
        return builder.rule_out("idle", filled=filled or None)
    severity = Severity.INFO
    if dropped:
        severity = Severity.CRITICAL
    elif filled >= CONNTRACK.limit("full"):
        severity = Severity.WARNING
    culprit = Culprit()
    if path is not None:
        severity = max(severity, severity_on_core(case, path.load), key=lambda each: each.rank)
        culprit = _tracking_culprit(builder, case, path)
    function = None if path is None else path.function
    return builder.found(
        severity,
        "summary",
        culprit=culprit,
        load=None if path is None else path.load,
        remedies=stop_remedies(CONNTRACK.remedies, owner_of(case, culprit.cgroup)),
        weight=CONNTRACK.limit("dropped_weight") if dropped and path is None else None,
        dropped=dropped,
        filled=filled if filled >= CONNTRACK.limit("filling") and not dropped else None,
        both=path is not None and (dropped or filled >= CONNTRACK.limit("filling")),
        listing=function if function in CONNTRACK.group("listing") else None,
        tracking=None if function in CONNTRACK.group("listing") else function,
        peak=None if path is None else path.load.peak,
        cpu=None if path is None else path.load.cpu,
    )


def _add_fill(builder: EvidenceBuilder, case: Case) -> float:
    """The highest fill of the table, as a part of its size."""
    rows = case.recorded("node", case.focus.seconds + CONNTRACK.limit("lookback_s"))
    size = rows.newest("conntrack_max")
    node = case.now("node")
    counts = node.numbers("conntrack") if len(node) else np.zeros(0)
    if not size or not (~np.isnan(counts)).any():
        return 0.0
    best = int(np.nanargmax(counts))
    most, at = float(counts[best]), int(node.wall[best])
    filled = most / size
    if filled >= CONNTRACK.limit("filling"):
        quote = Evidence("node", "conntrack", "max", most, at, at + 1, unit="connections")
        limit = Evidence("node", "conntrack_max", "last", size, int(rows.wall.min()), int(rows.wall.max()) + 1)
        strength = "table_full" if filled >= CONNTRACK.limit("full") else "table_filling"
        builder.add(Role.ROOT_CAUSE, "fill", quote, limit, strength=strength, at=at, most=most, size=size)
    return filled


def _add_log(builder: EvidenceBuilder, case: Case) -> bool:
    """Whether the kernel logged that it drops packets because the table is full."""
    lines = log_lines(case, CONNTRACK.log, after_ns=2 * NANOS)
    for line in lines[:1]:
        builder.add(Role.SYMPTOM, "log", quote_event(line), strength="logged", at=line.wall, line=line.text)
    return bool(lines)


def _add_tracking(builder: EvidenceBuilder, case: Case) -> HotPath | None:
    """The time in tracking. A table under pressure shows in functions that a healthy one hardly needs."""
    pressed = _on_hot_cores(case, CONNTRACK, CONNTRACK.groups["pressure"], "pressure_share")
    path = _on_hot_cores(case, CONNTRACK, CONNTRACK.functions, "pressure_share")
    if path is None or not path.load.is_new:
        return None
    under_pressure = pressed is not None and pressed.load.peak >= CONNTRACK.limit("pressure_share")
    if not under_pressure and path.load.peak < CONNTRACK.limit("core_share"):
        return None
    path.describe(builder, _strength(CONNTRACK, path.load.peak))
    if pressed is not None and under_pressure:
        builder.add(
            Role.ROOT_CAUSE,
            "listed" if pressed.function in CONNTRACK.group("listing") else "searched",
            pressed.evidence,
            strength="pressed",
            at=pressed.load.at,
            function=pressed.function,
            peak=pressed.load.peak,
        )
    return path


def _tracking_culprit(builder: EvidenceBuilder, case: Case, path: HotPath) -> Culprit:
    """The process that lists the table or opens the connections; one that packets only interrupt has no part in it."""
    listing = hot_path(case, CONNTRACK.groups["listing"])
    if listing is not None and listing.load.cores >= CONNTRACK.limit("listing_part") * path.load.cores:
        values = {"who": listing.process, "function": listing.function}
        builder.add(Role.CULPRIT, "lister", listing.evidence, strength="lister", at=listing.load.at, values=values)
        return listing.culprit
    sender = local_sender(case, CONNTRACK.groups["opening"], CONNTRACK.limit("sender_cores"))
    if sender is None:
        worker = path.process is not None and path.process.name.startswith("kworker/")
        return path.culprit if worker else Culprit(cpu=path.load.cpu, function=path.function)
    sender.describe(builder)
    return replace(sender.culprit, cpu=path.load.cpu, function=path.function)


# Rules


@examines(RULES)
def iptables_churn(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if not case.has_stacks:
        return builder.rule_out("no-stacks-sampled")
    path = _on_hot_cores(case, RULES, RULES.functions, "core_share")
    if path is None or path.load.peak < RULES.limit("core_share") or not path.load.is_new:
        return builder.rule_out("share", peak=0.0 if path is None else path.load.peak)
    load = path.load
    path.describe(builder, _strength(RULES, load.peak))
    cores = sorted(set(case.samples.cpu[load.mask].tolist()))
    walk = hot_path(case, RULES.groups["walk"], case.load(RULES.groups["walk"], cpus=cores))
    writer = hot_path(case, RULES.groups["replace"])
    if writer is not None and writer.load.peak < RULES.limit("noted_share"):
        writer = None
    culprit, walked = path.culprit, False
    if writer is not None:
        culprit = writer.culprit
        values = {"who": writer.process, "function": writer.function}
        builder.add(Role.CULPRIT, "writer", writer.evidence, strength="writer", at=writer.load.at, values=values)
    if walk is not None and walk.load.cores >= RULES.limit("main_part") * load.cores:
        walked = True
        at = walk.load.at
        builder.add(Role.ROOT_CAUSE, "walked", walk.evidence, strength="walked", at=at, function=walk.function)
        if writer is None or writer.load.cores < RULES.limit("main_part") * walk.load.cores:
            culprit = _packet_sender(builder, case, walk)
    return builder.found(
        severity_on_core(case, load),
        "summary-walked" if walked else "summary-replaced",
        culprit=replace(culprit, function=path.function),
        load=load,
        remedies=aim(RULES.remedies, str(writer.process) if writer is not None and writer.process else "PROGRAM"),
        function=path.function,
        peak=load.peak,
        cpu=load.cpu,
    )


def _packet_sender(builder: EvidenceBuilder, case: Case, walk: HotPath) -> Culprit:
    """The sender of the packets. A process that packets from elsewhere interrupt has no part in it."""
    sender = local_sender(case, RULES.groups["opening"], RULES.limit("noted_share"))
    if sender is None:
        return Culprit(cpu=walk.load.cpu)
    sender.describe(builder)
    return replace(sender.culprit, cpu=walk.load.cpu)


# IPVS


@examines(IPVS)
def ipvs_estimation(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if not case.has_stacks:
        return builder.rule_out("no-stacks-sampled")
    path = _on_hot_cores(case, IPVS, IPVS.functions, "core_share")
    if path is None or path.load.peak < IPVS.limit("core_share"):
        return builder.rule_out("share", peak=0.0 if path is None else path.load.peak)
    load = path.load
    # Only IPVS has these functions: the confidence depends on their part of the trouble.
    path.describe(builder, min(IPVS.limit("most"), IPVS.limit("least") + IPVS.limit("by_share") * load.peak))
    builder.add(Role.ROOT_CAUSE, "visits", path.evidence, at=load.at, cores=case.cores)
    severity = severity_of(case, load)
    if severity is Severity.INFO and load.peak >= IPVS.limit("long_share"):
        # It is idle between its turns, so its mean is low; but for so long nothing else ran on that core.
        severity = Severity.WARNING
    values = {"function": path.function, "peak": load.peak, "cpu": load.cpu}
    return builder.found(severity, "summary", culprit=path.culprit, load=load, values=values)

"""The table of tracked connections is full, or is being searched, emptied or listed all the time."""

from dataclasses import replace

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.hot_path import HotPath, hot_path, on_hot_cores, severity_on_core
from exhume.diagnose.facts.owners import owner_of, stop_remedies
from exhume.diagnose.facts.senders import local_sender
from exhume.model.clock import NANOS
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity
from exhume.model.window import Window

CAUSE = catalogue()["conntrack-pressure"]
PRESSURE = (CAUSE.more_functions or {})["pressure"]
LISTING = (CAUSE.more_functions or {})["listing"]
LISTS = CAUSE.named("listing")
SEND = (CAUSE.more_functions or {})["send"]


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    filled = _table(case, builder)
    dropped = _log(case, builder)
    path = _stacks(case, builder)
    if path is None and not dropped and filled < CAUSE.limit("filling"):
        known = f"{filled:.0%} full" if filled else "not full as far as is known"
        return builder.rule_out(f"the table is {known}, and tracking connections took little time")
    severity = Severity.INFO
    if dropped:
        severity = Severity.CRITICAL
    elif filled >= CAUSE.limit("full"):
        severity = Severity.WARNING
    culprit = Culprit()
    if path is not None:
        own = severity_on_core(case, path.load)
        severity = max(severity, own, key=lambda each: each.rank)
        culprit = _culprit(case, builder, path)
    return builder.found(
        severity,
        _summary(filled, dropped, path),
        culprit=culprit,
        load=None if path is None else path.load,
        remedies=stop_remedies(CAUSE.remedies, owner_of(case, culprit.cgroup)),
        weight=10.0 if dropped and path is None else None,
    )


def _summary(filled: float, dropped: bool, path: HotPath | None) -> str:
    told = []
    if dropped:
        told.append("the table of tracked connections is full and packets of new ones are dropped")
    elif filled >= CAUSE.limit("filling"):
        told.append(f"the table of tracked connections is {filled:.0%} full")
    if path is not None:
        share = f"{path.function} took {path.load.peak:.0%} of a second of core {path.load.cpu}"
        what = "listing" if path.function in LISTS else "tracking"
        told.append(f"{what} connections burns CPU time: {share}")
    return "; ".join(told)


def _table(case: Case, builder: EvidenceBuilder) -> float:
    """How full the table was at the most, in parts of its size."""
    rows = case.recorded("node", case.focus.seconds + CAUSE.limit("lookback_s"))
    size = rows.newest("conntrack_max")
    counts = case.now("node").numbers("conntrack") if len(case.now("node")) else np.zeros(0)
    if size is None or not size or not (~np.isnan(counts)).any():
        return 0.0
    best = int(np.nanargmax(counts))
    most, at = float(counts[best]), int(case.now("node").wall[best])
    filled = most / size
    if filled >= CAUSE.limit("filling"):
        told = Evidence("node", "conntrack", "max", most, at, at + 1, unit="connections")
        limit = Evidence("node", "conntrack_max", "last", size, int(rows.wall.min()), int(rows.wall.max()) + 1)
        strength = 0.65 if filled >= CAUSE.limit("full") else 0.5
        text = f"{most:,.0f} connections are tracked, of {size:,.0f} that there is room for"
        builder.add(Role.ROOT_CAUSE, text, told, limit, strength=strength, at=at)
    return filled


def _log(case: Case, builder: EvidenceBuilder) -> bool:
    """Whether the kernel said that it drops packets for want of room."""
    near = Window(case.focus.since - 2 * NANOS, case.focus.until + 2 * NANOS)
    lines = [event for event in case.recording.events(near) if event.kind in CAUSE.log]
    if lines:
        first = lines[0]
        match = (("kind", first.kind),)
        told = Evidence("events", "text", "first", first.text, first.wall, first.wall + 1, match=match)
        builder.add(Role.SYMPTOM, f"the kernel log says: {first.text}", told, strength=0.85, at=first.wall)
    return bool(lines)


def _stacks(case: Case, builder: EvidenceBuilder) -> HotPath | None:
    """The time in tracking; a table under pressure shows by functions that a healthy one hardly needs."""
    pressed = hot_path(case, PRESSURE, on_hot_cores(case, PRESSURE, CAUSE.limit("pressure_share")))
    path = hot_path(case, CAUSE.functions, on_hot_cores(case, CAUSE.functions, CAUSE.limit("pressure_share")))
    if path is None or not path.load.is_new:
        return None
    under_pressure = pressed is not None and pressed.load.peak >= CAUSE.limit("pressure_share")
    if not under_pressure and path.load.peak < CAUSE.limit("core_share"):
        return None
    load = path.load
    builder.add(Role.MECHANISM, path.text, path.evidence, strength=min(0.8, load.peak / 0.7 * 0.8), at=load.at)
    if pressed is not None and under_pressure:
        why = "somebody lists the table" if pressed.function in LISTS else "the kernel looks for room, or for the dead"
        text = f"{pressed.function} took {pressed.load.peak:.0%} of a core: {why}"
        builder.add(Role.ROOT_CAUSE, text, pressed.evidence, strength=0.5, at=pressed.load.at)
    return path


def _culprit(case: Case, builder: EvidenceBuilder, path: HotPath) -> Culprit:
    """Who lists the table, or opens the connections; a process that packets only interrupt has no part in it."""
    cpu = path.load.cpu
    listing = hot_path(case, LISTING)
    if listing is not None and listing.load.cores >= 0.5 * path.load.cores:
        text = f"{listing.doing('reads', 'read')} the whole table ({listing.function})"
        builder.add(Role.CULPRIT, text, listing.evidence, strength=0.3, at=listing.load.at)
        return listing.culprit
    sender = local_sender(case, SEND, CAUSE.limit("core_share") / 10)
    if sender is None:
        worker = path.who is not None and path.who.startswith("kworker/")
        return path.culprit if worker else Culprit(cpu=cpu, function=path.function)
    builder.add(Role.CULPRIT, sender.text, sender.evidence, at=sender.load.at)
    return replace(sender.culprit, cpu=cpu, function=path.function)

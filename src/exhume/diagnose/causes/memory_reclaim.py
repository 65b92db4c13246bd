"""Memory is short, in a cgroup or on the node, and whoever needs a page frees others first, on its own time."""

from dataclasses import dataclass

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.core_hold import core_hold
from exhume.diagnose.evidence.impact import hurts_others, severity_of
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column, quote_load
from exhume.diagnose.facts.owners import owner_of, process_words
from exhume.model.finding import Culprit, Evidence, Remedy, Role, RuledOut, Severity

CAUSE = catalogue()["memory-reclaim"]
LIMIT, NODE, BACKGROUND = "limit", "node", "background"


@dataclass(frozen=True, slots=True)
class Pressure:
    """What the node's counters say: the share of the time in which somebody waited for memory, and pages that were
    scanned on the time of whoever asked, by the second, now and before."""

    stalled: float
    scanned: float
    scanned_before: float
    evidence: tuple[Evidence, ...]

    @property
    def risen(self) -> bool:
        limit = CAUSE.limit("scanned_per_second")
        return self.scanned >= limit and self.scanned >= CAUSE.limit("rise") * self.scanned_before


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    load = case.load(CAUSE.names)
    pressure = _pressure(case)
    stalled = pressure.stalled >= CAUSE.limit("stalled")
    hot = load.peak >= CAUSE.limit("core_share") or load.cores >= CAUSE.limit("node_share") * case.cores
    if not hot and not (not case.has_stacks and (stalled or pressure.risen)):
        return builder.rule_out(
            f"at most {load.peak:.0%} of a core went to reclaim, and somebody waited for memory "
            f"{pressure.stalled:.0%} of the time"
        )
    kind = _kind(case)
    culprit = _tell_load(builder, case, load, kind) if hot else Culprit()
    if pressure.evidence:
        builder.add(
            Role.MECHANISM, _pressure_words(pressure), *pressure.evidence, strength=_pressure_strength(pressure)
        )
    whole = _with_page_ins(case, load, pressure)
    whose = owner_of(case, culprit.cgroup)
    _tell_shortage(builder, case, kind, culprit)
    summary, target = _summary(kind, culprit, whose.words), whose.target or culprit.cgroup or ""
    return builder.found(
        _severity(case, whole, pressure, kind), summary, culprit=culprit, load=whole, remedies=_remedies(kind, target)
    )


def _kind(case: Case) -> str:
    """Which shortage takes most of the time: of a cgroup at its limit, or of the node (on the time of whoever asks, or
    of the kernel's own thread)."""
    loads = {kind: case.load(CAUSE.named(kind)).cores for kind in (LIMIT, NODE, BACKGROUND)}
    return max(loads, key=lambda kind: loads[kind]) if any(loads.values()) else NODE


def _tell_load(builder: EvidenceBuilder, case: Case, load: Load, kind: str) -> Culprit:
    own = case.load(CAUSE.named(kind))
    own = own if own.samples else load
    function = case.samples.nearest(own.mask, CAUSE.names) or CAUSE.functions[0]
    culprit = case.culprit(own, function)
    before = "" if load.before is None else f", {load.before:.2f} before"
    # One whose time goes there whole gets less than a core when it has to share it.
    owned = core_hold(case, load).owner_part
    strong = load.peak >= CAUSE.limit("core_share_strong") or owned >= CAUSE.limit("own_part")
    builder.add(
        Role.MECHANISM,
        f"{process_words(culprit)} spent {own.peak:.0%} of a second of core {own.cpu} freeing pages "
        f"({function}; {load.cores:.2f} cores in all{before})",
        quote_load(case, own, (CAUSE.more_functions or {})[kind] if own is not load else CAUSE.functions),
        strength=CAUSE.limit("strong") if strong else CAUSE.limit("fair"),
        at=own.at,
    )
    return culprit


def _with_page_ins(case: Case, load: Load, pressure: Pressure) -> Load:
    """The load with the rest of the kernel time of whoever it belongs to, where much of that goes to reclaim and
    somebody waits: what is freed has to be brought in again, and that is the same trouble."""
    owner = load.owner
    if owner is None or owner.part < 1 / 3 or pressure.stalled < CAUSE.limit("stalled"):
        return load
    sampled = case.samples
    own = (sampled.pid == owner.pid) & sampled.in_kernel & sampled.within(case.focus)
    freeing = float(sampled.weight[own & load.mask].sum())
    if freeing < CAUSE.limit("freeing_part") * float(sampled.weight[own].sum()):
        return load
    return case.load_of(sampled.holding(CAUSE.names) | ((sampled.pid == owner.pid) & sampled.in_kernel))


def _pressure(case: Case) -> Pressure:
    now, before = case.now("node"), case.before("node")
    if not len(now):
        return Pressure(0.0, 0.0, 0.0, ())
    told = [quote_column(now, "psi_memory_some", "sum", "us"), quote_column(now, "pgscan_direct", "sum", "pages")]
    earlier = before.per_second("pgscan_direct") if len(before) else None
    return Pressure(
        (now.per_second("psi_memory_some") or 0.0) / 1e6,
        now.per_second("pgscan_direct") or 0.0,
        earlier or 0.0,
        tuple(each for each in told if each is not None and each.value),
    )


def _pressure_words(pressure: Pressure) -> str:
    scanned = f", and {pressure.scanned:,.0f} pages a second were scanned on their time" if pressure.scanned else ""
    return f"somebody waited for memory {pressure.stalled:.0%} of the time{scanned}"


def _pressure_strength(pressure: Pressure) -> float:
    if pressure.stalled >= CAUSE.limit("stalled_much") or pressure.risen:
        return CAUSE.limit("fair")
    return CAUSE.limit("weak") if pressure.stalled >= CAUSE.limit("stalled") else 0.0


def _tell_shortage(builder: EvidenceBuilder, case: Case, kind: str, culprit: Culprit) -> None:
    rows = case.now("node")
    available = quote_column(rows, "mem_available", "min", "KiB") if len(rows) else None
    total = quote_column(rows, "mem_total", "max", "KiB") if len(rows) else None
    told = tuple(each for each in (available, total) if each is not None)
    share = None
    if available is not None and total is not None and float(total.value) > 0:
        share = float(available.value) / float(total.value)
    left = "" if share is None else f"; {share:.0%} of the node's memory was available"
    if kind == LIMIT:
        where = culprit.cgroup or "a cgroup that was not recorded"
        told = (quote_load(case, case.load(CAUSE.named(LIMIT)), (CAUSE.more_functions or {})[LIMIT]), *told)
        builder.add(Role.ROOT_CAUSE, f"{where} is at its own memory limit{left}", *told, strength=CAUSE.limit("weak"))
    elif share is not None and share < CAUSE.limit("available"):
        text = f"the node is short of memory: {share:.0%} of it was available"
        builder.add(Role.ROOT_CAUSE, text, *told, strength=CAUSE.limit("fair"))
    elif kind == NODE and share is not None:
        builder.doubt(f"{share:.0%} of the node's memory was available", CAUSE.limit("unexplained"))


def _is_short(case: Case) -> bool:
    """Whether little of the node's memory was available at some time."""
    rows = case.now("node")
    available, total = (rows.lowest("mem_available"), rows.highest("mem_total")) if len(rows) else (None, None)
    return available is not None and bool(total) and available < CAUSE.limit("available") * (total or 1.0)


def _severity(case: Case, load: Load, pressure: Pressure, kind: str) -> Severity:
    severity = severity_of(case, load)
    stalled = pressure.stalled >= CAUSE.limit("stalled_much")
    if kind == BACKGROUND and not stalled and not _is_short(case) and not hurts_others(case, load.cpu):
        # The kernel's own thread keeps ahead of a busy page cache: that is its work, and nobody waits for it.
        whole = load.peak >= CAUSE.limit("whole_core")
        return min(severity, Severity.WARNING if whole else Severity.INFO, key=lambda each: each.rank)
    return Severity.WARNING if severity is Severity.INFO and stalled else severity


def _summary(kind: str, culprit: Culprit, whose: str) -> str:
    who = process_words(culprit)
    if kind == LIMIT:
        where = whose or culprit.cgroup or "its cgroup"
        return f"{who} keeps freeing pages because {where} is at its memory limit"
    if kind == BACKGROUND:
        return f"{who} keeps a core busy freeing pages for a node that is short of memory"
    return f"{who} has to free pages before it gets any: the node is short of memory"


def _remedies(kind: str, target: str) -> tuple[Remedy, ...]:
    wanted = ("raise-limit",) if kind == LIMIT else ("find-hog",)
    return aim(tuple(each for each in CAUSE.remedies if each.id in (*wanted, "see-pressure")), target or "it")

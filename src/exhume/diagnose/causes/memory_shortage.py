"""Shortage of memory, in a cgroup or on the node: reclaim on the caller's time, and repeated OOM kills."""

import re
from collections import Counter
from dataclasses import dataclass

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.core_hold import core_hold
from exhume.diagnose.evidence.impact import hurts_others, severity_of
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column, quote_event, quote_load
from exhume.diagnose.facts.owners import fit_remedies, owner_of
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Culprit, Entity, EntityKind, Evidence, Role, RuledOut, Severity, process_entity

RECLAIM = catalogue()["memory-reclaim"]
OOM = catalogue()["oom-thrash"]
LIMIT, NODE, BACKGROUND = "limit", "node", "background"


def _cgroup(path: str | None) -> Entity | None:
    return None if path is None else Entity(EntityKind.CGROUP, path, path)


# Reclaim


@dataclass(frozen=True, slots=True)
class Pressure:
    """The node's counters: the share of the time in which tasks stalled for memory (PSI), and pages scanned by direct
    reclaim, a second, now and before."""

    stalled: float
    scanned: float
    scanned_before: float
    evidence: tuple[Evidence, ...]

    @property
    def risen(self) -> bool:
        least = RECLAIM.limit("scanned_per_second")
        return self.scanned >= least and self.scanned >= RECLAIM.limit("rise") * self.scanned_before

    @property
    def strength(self) -> float:
        if self.stalled >= RECLAIM.limit("stalled_much") or self.risen:
            return RECLAIM.limit("fair")
        return RECLAIM.limit("weak") if self.stalled >= RECLAIM.limit("stalled") else 0.0


@examines(RECLAIM)
def memory_reclaim(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    load = case.load(RECLAIM.names)
    pressure = _pressure(case)
    stalled = pressure.stalled >= RECLAIM.limit("stalled")
    hot = load.peak >= RECLAIM.limit("core_share") or load.cores >= RECLAIM.limit("node_share") * case.cores
    if not hot and not (not case.has_stacks and (stalled or pressure.risen)):
        return builder.rule_out("share", peak=load.peak, stalled=pressure.stalled)
    kind = _shortage(case)
    culprit = _add_reclaim(builder, case, load, kind) if hot else Culprit()
    if pressure.evidence:
        values = {"stalled": pressure.stalled, "scanned": pressure.scanned or None}
        builder.add(Role.MECHANISM, "pressure", *pressure.evidence, strength=pressure.strength, values=values)
    whole = _with_page_ins(case, load, pressure)
    owner = owner_of(case, culprit.cgroup)
    _add_shortage(builder, case, kind, culprit)
    advice = "raise-limit" if kind == LIMIT else "find-hog"
    fitting = tuple(each for each in RECLAIM.remedies if each.id in (advice, "see-pressure"))
    return builder.found(
        _reclaim_severity(case, whole, pressure, kind),
        f"summary-{kind}",
        culprit=culprit,
        load=whole,
        remedies=aim(fitting, owner.target or culprit.cgroup or "it"),
        who=culprit.process,
        where=owner or _cgroup(culprit.cgroup),
    )


def _shortage(case: Case) -> str:
    """Which shortage takes most of the time: of a cgroup at its limit, or of the node (in direct reclaim, or in
    kswapd)."""
    loads = {kind: case.load(RECLAIM.group(kind)).cores for kind in (LIMIT, NODE, BACKGROUND)}
    return max(loads, key=lambda kind: loads[kind]) if any(loads.values()) else NODE


def _add_reclaim(builder: EvidenceBuilder, case: Case, load: Load, kind: str) -> Culprit:
    own = case.load(RECLAIM.group(kind))
    functions = RECLAIM.groups[kind] if own.samples else RECLAIM.functions
    own = own if own.samples else load
    function = case.samples.nearest(own.mask, RECLAIM.names) or RECLAIM.functions[0]
    culprit = case.culprit(own, function)
    # A process that does nothing else gets less than a core when it has to share it.
    owned = core_hold(case, load).owner_part
    strong = load.peak >= RECLAIM.limit("core_share_strong") or owned >= RECLAIM.limit("own_part")
    builder.add(
        Role.MECHANISM,
        "reclaim",
        quote_load(case, own, functions),
        strength="strong" if strong else "fair",
        at=own.at,
        who=culprit.process,
        peak=own.peak,
        cpu=own.cpu,
        function=function,
        cores=load.cores,
        before=load.before,
    )
    return culprit


def _with_page_ins(case: Case, load: Load, pressure: Pressure) -> Load:
    """The load with the rest of its owner's kernel time, where much of that is reclaim and tasks stall: pages that are
    freed have to be read in again, which is the same trouble."""
    owner = load.main_owner
    if owner is None or pressure.stalled < RECLAIM.limit("stalled"):
        return load
    samples = case.samples
    own = (samples.pid == owner.pid) & samples.in_kernel & samples.within(case.focus)
    freeing = float(samples.weight[own & load.mask].sum())
    if freeing < RECLAIM.limit("freeing_part") * float(samples.weight[own].sum()):
        return load
    return case.load_of(samples.holding(RECLAIM.names) | ((samples.pid == owner.pid) & samples.in_kernel))


def _pressure(case: Case) -> Pressure:
    now, before = case.now("node"), case.before("node")
    if not len(now):
        return Pressure(0.0, 0.0, 0.0, ())
    quotes = [quote_column(now, "psi_memory_some", "sum", "us"), quote_column(now, "pgscan_direct", "sum", "pages")]
    earlier = before.per_second("pgscan_direct") if len(before) else None
    return Pressure(
        (now.per_second("psi_memory_some") or 0.0) / 1e6,
        now.per_second("pgscan_direct") or 0.0,
        earlier or 0.0,
        tuple(each for each in quotes if each is not None and each.value),
    )


def _add_shortage(builder: EvidenceBuilder, case: Case, kind: str, culprit: Culprit) -> None:
    rows = case.now("node")
    available = quote_column(rows, "mem_available", "min", "KiB") if len(rows) else None
    total = quote_column(rows, "mem_total", "max", "KiB") if len(rows) else None
    quotes = tuple(each for each in (available, total) if each is not None)
    share = None
    if available is not None and total is not None and float(total.value) > 0:
        share = float(available.value) / float(total.value)
    if kind == LIMIT:
        quotes = (quote_load(case, case.load(RECLAIM.group(LIMIT)), RECLAIM.groups[LIMIT]), *quotes)
        values = {"cgroup": _cgroup(culprit.cgroup), "available": share}
        builder.add(Role.ROOT_CAUSE, "at-limit", *quotes, strength="weak", values=values)
    elif share is not None and share < RECLAIM.limit("available"):
        builder.add(Role.ROOT_CAUSE, "node-short", *quotes, strength="fair", available=share)
    elif kind == NODE and share is not None:
        builder.doubt("available", "unexplained", available=share)


def _is_short(case: Case) -> bool:
    """Whether little of the node's memory was available at some time."""
    rows = case.now("node")
    available, total = (rows.lowest("mem_available"), rows.highest("mem_total")) if len(rows) else (None, None)
    return available is not None and bool(total) and available < RECLAIM.limit("available") * (total or 1.0)


def _reclaim_severity(case: Case, load: Load, pressure: Pressure, kind: str) -> Severity:
    severity = severity_of(case, load)
    stalled = pressure.stalled >= RECLAIM.limit("stalled_much")
    if kind == BACKGROUND and not stalled and not _is_short(case) and not hurts_others(case, load.cpu):
        # kswapd keeps ahead of a busy page cache: that is its work, and no task waits for it.
        whole = load.peak >= RECLAIM.limit("whole_core")
        return min(severity, Severity.WARNING if whole else Severity.INFO, key=lambda each: each.rank)
    return Severity.WARNING if severity is Severity.INFO and stalled else severity


# OOM kills

# mm/oom_kill.c, dump_oom_summary (since 5.0): a cgroup's limit is named before the victim's cgroup.
_SUMMARY = re.compile(
    r"oom-kill:constraint=(?P<constraint>\w+),.*?(?:oom_memcg=(?P<limit>[^,]+),)?"
    r"task_memcg=(?P<cgroup>[^,]+),task=(?P<comm>.*),pid=(?P<pid>\d+)"
)
# mm/memcontrol.c, mem_cgroup_print_oom_info before 5.0: only a cgroup's limit is logged.
_LIMIT_LINE = re.compile(r"Task in (?P<cgroup>/.*) killed as a result of limit of (?P<limit>/.*)")
_WHOLE_NODE, _ONE_CGROUP = "CONSTRAINT_NONE", "CONSTRAINT_MEMCG"
_KILL = "oom-kill"


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill in the log. Times are wall nanoseconds."""

    at: int
    comm: str | None
    pid: int | None


@dataclass(frozen=True, slots=True)
class Kills:
    """All kills of a window: those in the log, the cgroup whose limit was hit most, the node's own count, and the
    seconds in which that rose."""

    logged: list[Kill]
    cgroup: str | None
    constraint: str | None
    counted: int
    seconds: int
    evidence: tuple[Evidence, ...]

    @property
    def number(self) -> int:
        # The log is rate-limited, the count is not; without one source the other has to do.
        return max(len(self.logged), self.counted)

    @property
    def bouts(self) -> int:
        """How often the kernel had to kill: one time may take all processes of a cgroup."""
        return max(len({kill.at // NANOS for kill in self.logged}), self.seconds)

    @property
    def victim(self) -> str | None:
        """The process name that was killed most often."""
        names = Counter(kill.comm for kill in self.logged if kill.comm)
        return names.most_common(1)[0][0] if names else None

    def times(self, comm: str | None) -> int:
        """How often a name was killed: processes that died together count once."""
        return len({kill.at // NANOS for kill in self.logged if kill.comm is not None and kill.comm == comm})


@examines(OOM)
def oom_thrash(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    # A node that is short of everything writes its log late.
    now = find_kills(case, Window(case.focus.since - NANOS, case.focus.until + NANOS))
    lately_s = OOM.limit("lately_s")
    lately = find_kills(case, Window(case.focus.until - round(lately_s * NANOS), case.focus.until + NANOS))
    if not now.number:
        return builder.rule_out("none")
    load = _victims_load(case, now)
    # The one that is killed now; others may have been killed more often before.
    comm = now.victim or lately.victim
    times = lately.times(comm)
    cgroup = now.cgroup or lately.cgroup
    _add_kills(builder, case, now, lately)
    _add_killing(builder, case, load)
    owner = owner_of(case, cgroup)
    victim = next((kill for kill in reversed(lately.logged) if kill.comm == comm), None)
    values = {"who": None if comm is None else process_entity(comm), "times": times, "where": owner or _cgroup(cgroup)}
    if times >= OOM.limit("repeated"):
        node = (now.constraint or lately.constraint) == _WHOLE_NODE
        key = "repeated-node" if node else "repeated-limit"
        builder.add(Role.ROOT_CAUSE, key, *lately.evidence[-1:], strength="fair", values=values)
    culprit = Culprit(
        cpu=load.cpu if load.samples else None,
        pid=victim.pid if victim else None,
        comm=comm,
        cgroup=cgroup,
        container=owner.container,
        pod=owner.pod,
    )
    return builder.found(
        _kill_severity(now, lately),
        "summary",
        culprit=culprit,
        load=load,
        weight=max(load.cores * case.focus.seconds, float(now.number)),
        remedies=fit_remedies(OOM.remedies, owner, owner.target or cgroup or comm or "it"),
        kills=lately.number,
        minutes=lately_s / 60,
        values=values,
    )


def find_kills(case: Case, window: Window) -> Kills:
    """The kills of a window (it may reach back before the focus), from the log and from the node's count."""
    logged: list[Kill] = []
    limits: Counter[str] = Counter()
    constraints: Counter[str] = Counter()
    evidence: list[Evidence] = []
    for event in case.recording.events(window):
        if event.kind == _KILL:
            logged.append(Kill(event.wall, event.comm, event.pid))
            if not evidence or evidence[0].since != event.wall:
                # Of several at one moment the first is quoted, as that is what the quote finds again.
                evidence = [quote_event(event)]
        elif summary := _SUMMARY.search(event.text):
            constraints[summary["constraint"]] += 1
            limits[summary["limit"] or summary["cgroup"]] += 1
        elif line := _LIMIT_LINE.match(event.text):
            constraints[_ONE_CGROUP] += 1
            limits[line["limit"]] += 1
    rows = case.recorded("node", (case.focus.until - window.since) / NANOS).within(window)
    counted = quote_column(rows, "oom_kill", "sum") if len(rows) else None
    if counted is not None and counted.value:
        evidence.insert(0, counted)
    return Kills(
        logged,
        limits.most_common(1)[0][0] if limits else None,
        constraints.most_common(1)[0][0] if constraints else None,
        int(counted.value) if counted is not None else 0,
        int((rows.numbers("oom_kill") > 0).sum()) if len(rows) else 0,
        tuple(evidence),
    )


def _victims_load(case: Case, kills: Kills) -> Load:
    """The time of the victims: in the kernel it goes to faults, reclaim and their exit."""
    if not case.has_stacks:
        return case.load(OOM.names)
    victims = {kill.comm for kill in kills.logged if kill.comm}
    samples = case.samples
    return case.load_of((samples.of_comms(victims) & samples.in_kernel) | samples.holding(OOM.names))


def _add_killing(builder: EvidenceBuilder, case: Case, load: Load) -> None:
    """What the kills cost, where that is much."""
    functions = (*OOM.functions, *OOM.groups["reclaim"])
    own = case.load(functions)
    if load.together < OOM.limit("core_share") or not own.samples:
        return
    function = case.samples.nearest(load.mask, OOM.names)
    quote = quote_load(case, own, functions)
    builder.add(Role.MECHANISM, "killing", quote, strength="weak", cores=load.cores, function=function)


def _add_kills(builder: EvidenceBuilder, case: Case, now: Kills, lately: Kills) -> None:
    often = lately.bouts >= OOM.limit("repeated")
    values = {"now": now.number, "seconds": case.focus.seconds, "kills": lately.number}
    minutes = OOM.limit("lately_s") / 60
    quotes = lately.evidence or now.evidence
    builder.add(Role.SYMPTOM, "kills", *quotes, strength="strong" if often else "fair", minutes=minutes, values=values)
    if not lately.logged:
        builder.doubt("no-log", "unlogged_factor")


def _kill_severity(now: Kills, lately: Kills) -> Severity:
    if now.bouts >= OOM.limit("repeated"):
        return Severity.CRITICAL
    return Severity.WARNING if lately.bouts >= OOM.limit("repeated") else Severity.INFO

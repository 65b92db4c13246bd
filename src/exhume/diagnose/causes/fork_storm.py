"""Processes are started and end by the thousand: the kernel is busy with their birth and death instead of work."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.impact import severity_of
from exhume.diagnose.evidence.load import CORE_TAKEN, Load
from exhume.diagnose.evidence.quotes import quote_column, quote_load
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.facts.lifetimes import ShortLived, find_short_lived
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity

CAUSE = catalogue()["fork-storm"]


@dataclass(frozen=True, slots=True)
class Forker:
    """Whoever keeps starting processes."""

    pid: int
    name: str
    children: int
    part: float


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    node = case.now("node")
    rate = float(np.nanmax(node.rates("forks"))) if len(node) and node.highest("forks") is not None else None
    if rate is not None and rate < CAUSE.limit("least_forks"):
        return builder.rule_out(f"at most {rate:.0f} processes and threads were started in a second")
    if not case.has_stacks:
        return _by_counter(builder, rate)
    family = find_short_lived(case)
    sampled = case.samples
    births = sampled.holding(CAUSE.names) & ~_long_deaths(case)
    load = case.load_of(births | _settling(case, family))
    if case.load_of(births).cores < CAUSE.limit("births_part") * load.cores:
        return builder.rule_out("brief processes used memory, but it was not their birth and death that took the time")
    if not _is_concentrated(case, load, family):
        return builder.rule_out(f"birth and death of processes took {load.together:.0%} of a core over all cores")
    if load.cores < CAUSE.limit("lasting_share") and load.taken_s < CAUSE.limit("seconds"):
        return builder.rule_out(f"birth and death of processes took {load.together:.0%} of a core, for a moment")
    part = _part_of_their_time(case, load, family)
    if part < CAUSE.limit("own_part"):
        return builder.rule_out(f"those that were started did work: their birth and death is {part:.0%} of their time")
    return _found(builder, load, family, part, rate)


def _found(builder: EvidenceBuilder, load: Load, family: ShortLived, part: float, rate: float | None) -> Found:
    case = builder.case
    function = case.samples.nearest(load.mask & case.samples.holding(CAUSE.names), CAUSE.names)
    where = f"core {load.cpu}" if load.peak >= CAUSE.limit("core_share") else "several cores"
    whole = min(1.0, load.together)
    builder.add(
        Role.MECHANISM,
        f"starting and ending processes took {load.together:.1f} cores at its height, most of all on {where}; "
        f"it is {part:.0%} of all that those processes and their parents did",
        quote_load(case, case.load(CAUSE.functions), CAUSE.functions),
        strength=CAUSE.limit("strength") * min(1.0, whole / CAUSE.limit("whole_core")),
        at=load.at,
    )
    _tell_rate(builder, rate)
    forker = _forker(case, family)
    if forker is not None:
        _tell_forker(builder, forker)
    else:
        builder.doubt("nobody was found who starts most of them")
    storm = _storm(case, load, family, forker)
    severity = severity_of(case, storm)
    if severity is Severity.INFO and forker is not None and _own(case, storm, family, forker).cores >= CORE_TAKEN:
        # One parent's doing, though it wanders over many cores.
        severity = Severity.WARNING
    if load.before is not None and not load.is_new:
        builder.doubt("it was much the same before: this node may be meant to do that")
        severity = Severity.WARNING if severity is Severity.CRITICAL else severity
    culprit = _culprit(case, load, forker, function)
    told = "" if rate is None else f" ({rate:,.0f} a second)"
    who = f"{forker.name} starts" if forker is not None and forker.part >= CAUSE.limit("forker_part") else "there are"
    summary = f"{who} processes by the thousand{told}: their birth and death takes {load.together:.1f} cores"
    if rate is not None and rate < CAUSE.limit("many_forks"):
        summary = f"{who} processes that cost a lot to start{told}: birth and death takes {load.together:.1f} cores"
    return builder.found(
        severity,
        summary,
        culprit=culprit,
        load=storm,
        remedies=aim(CAUSE.remedies, _target(culprit)),
    )


def _settling(case: Case, family: ShortLived) -> Mask:
    """What brief processes do in the kernel is the price of their birth where each does next to nothing; of those that
    do more only their faults and mappings are."""
    sampled = case.samples
    kernel = family.brief & sampled.in_kernel
    started = case.now("node").total("forks") if len(case.now("node")) else None
    each = float(sampled.weight[family.brief].sum()) / 1e6 / started if started else 1.0
    return kernel if each <= CAUSE.limit("moment_s") else kernel & sampled.holding(CAUSE.named("settling"))


def _is_concentrated(case: Case, load: Load, family: ShortLived) -> bool:
    """Whether it takes one core, or is one parent's doing, or a good part of the node: spread thin over many cores and
    programs it is what a node does."""
    least = CAUSE.limit("core_share")
    if load.peak >= least or load.together >= max(least, CAUSE.limit("node_part") * case.cores):
        return True
    forker = _forker(case, family)
    if forker is None or forker.part < CAUSE.limit("forker_part"):
        return False
    return _own(case, load, family, forker).together >= least


def _own(case: Case, load: Load, family: ShortLived, forker: Forker) -> Load:
    """The part of a load that is one parent's and its children's."""
    return case.load_of(load.mask & np.isin(case.samples.pid, family.pids_of(forker.pid)))


def _storm(case: Case, load: Load, family: ShortLived, forker: Forker | None) -> Load:
    """All that goes with it: what the brief ones did as programs, and whoever has nothing to do but to start them."""
    mask = load.mask | family.brief
    if forker is not None and forker.part >= CAUSE.limit("forker_part"):
        mask = mask | (case.samples.pid == forker.pid)
    return case.load_of(mask)


def _long_deaths(case: Case) -> Mask:
    """Processes that take long to end have much memory to give back: one such death is no storm."""
    sampled = case.samples
    dying = sampled.holding(CAUSE.named("ending"))
    pids, members = np.unique(sampled.pid[dying], return_inverse=True)
    spent = np.bincount(members, sampled.weight[dying], len(pids)) / 1e6
    return dying & np.isin(sampled.pid, pids[(spent >= CAUSE.limit("long_death_s")) & (pids > 0)])


def _part_of_their_time(case: Case, load: Load, family: ShortLived) -> float:
    """How much of what the brief ones and their parents did was birth and death. A compiler's short lives are mostly
    work; a storm's are not."""
    sampled = case.samples
    everybody = family.everybody | load.mask
    total = float(sampled.weight[everybody].sum())
    return float(sampled.weight[load.mask].sum()) / total if total else 0.0


def _tell_rate(builder: EvidenceBuilder, rate: float | None) -> None:
    case = builder.case
    told = quote_column(case.now("node"), "forks", "max")
    if rate is None or told is None:
        builder.doubt("how many processes were started was not recorded")
        return
    usual = case.before("node").per_second("forks") if len(case.before("node")) else None
    before = "" if usual is None else f", {usual:,.0f} a second before"
    new = usual is None or rate >= CAUSE.limit("rise") * usual
    many = rate >= CAUSE.limit("many_forks")
    strength = CAUSE.limit("rate_strength") if many and new else CAUSE.limit("weak_strength") if many or new else 0.0
    builder.add(
        Role.MECHANISM, f"{rate:,.0f} processes and threads were started in a second{before}", told, strength=strength
    )


def _forker(case: Case, family: ShortLived) -> Forker | None:
    """Whoever started most of the brief ones."""
    if not family.parents:
        return None
    pid, children = family.parents[0]
    known = case.process(pid)
    name = (known.comm if known is not None else None) or f"process {pid}"
    return Forker(pid, name, children, children / sum(count for _, count in family.parents))


def _tell_forker(builder: EvidenceBuilder, forker: Forker) -> None:
    case = builder.case
    rows = case.now("processes").within(case.focus)
    own = rows.where(rows.numbers("ppid") == forker.pid)
    told: tuple[Evidence, ...] = ()
    if len(own):
        told = (
            Evidence(
                "processes",
                "pid",
                "count",
                len(own),
                int(own.wall.min()),
                int(own.wall.max()) + 1,
                match=(("ppid", str(forker.pid)),),
            ),
        )
    text = f"{forker.name} ({forker.pid}) is behind {forker.part:.0%} of the brief processes that were sampled"
    known = case.process(forker.pid)
    if known is not None and known.cmdline:
        text += f": {known.cmdline[:120]}"
    builder.add(Role.CULPRIT, text, *told, strength=CAUSE.limit("weak_strength") * forker.part)


def _culprit(case: Case, load: Load, forker: Forker | None, function: str | None) -> Culprit:
    if forker is None or forker.part < CAUSE.limit("forker_part"):
        return case.culprit(load, function)
    known = case.process(forker.pid)
    if known is None:
        return Culprit(load.cpu, forker.pid, forker.name, function=function)
    return Culprit(load.cpu, forker.pid, forker.name, known.cmdline, known.cgroup, known.container, known.pod, function)


def _target(culprit: Culprit) -> str:
    return str(culprit.pid) if culprit.pid is not None else "PID"


def _by_counter(builder: EvidenceBuilder, rate: float | None) -> Found | RuledOut:
    """Without stacks: the node's count against the size of the node, and cores that are busy in the kernel."""
    case = builder.case
    if rate is None:
        return builder.rule_out("neither stacks nor the number of forks were recorded")
    usual = case.before("node").per_second("forks") if len(case.before("node")) else None
    share, cpu, at = case.core_share(("system",))
    busy = share >= CAUSE.limit("busy_core")
    many = rate >= CAUSE.limit("many_forks")
    if not many or not busy or usual is None or rate < CAUSE.limit("rise") * usual:
        return builder.rule_out(f"{rate:,.0f} forks a second, and no core that is lost to them")
    told = quote_column(case.now("node"), "forks", "max")
    assert told is not None
    builder.add(
        Role.MECHANISM,
        f"{rate:,.0f} processes and threads were started in a second, {usual:,.0f} before",
        told,
        strength=CAUSE.limit("rate_strength"),
    )
    core = Evidence("cpu", "system", "max", round(share * 1000), at, at + 1, cpu, unit="permille")
    builder.add(Role.MECHANISM, f"core {cpu} spent {share:.0%} of a second in the kernel", core, strength=0.2)
    summary = f"{rate:,.0f} processes are started in a second while core {cpu} is busy in the kernel"
    return builder.found(
        Severity.WARNING, summary, culprit=Culprit(cpu=cpu), weight=1.0, remedies=aim(CAUSE.remedies, "PID")
    )

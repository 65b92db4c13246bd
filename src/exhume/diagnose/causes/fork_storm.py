"""Processes start and end by the thousand: the kernel is busy with fork, exec and exit instead of their work."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.impact import severity_of
from exhume.diagnose.evidence.load import CORE_TAKEN, Load
from exhume.diagnose.evidence.quotes import quote_column, quote_core, quote_load
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.facts.lifetimes import ShortLived, find_short_lived
from exhume.model.finding import Culprit, Entity, Evidence, Role, RuledOut, Severity, process_entity

CAUSE = catalogue()["fork-storm"]
_COMMAND_WIDTH = 120


@dataclass(frozen=True, slots=True)
class Forker:
    """The process that starts most of the short-lived ones, and its part of them."""

    pid: int
    comm: str
    part: float

    @property
    def entity(self) -> Entity:
        return process_entity(self.comm, self.pid)

    @property
    def is_main(self) -> bool:
        return self.part >= CAUSE.limit("forker_part")


@examines(CAUSE)
def fork_storm(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    node = case.now("node")
    rate = float(np.nanmax(node.rates("forks"))) if len(node) and node.highest("forks") is not None else None
    if rate is not None and rate < CAUSE.limit("least_forks"):
        return builder.rule_out("few", rate=rate)
    if not case.has_stacks:
        return _by_counter(builder, case, rate)
    brief = find_short_lived(case)
    births = case.samples.holding(CAUSE.names) & ~_long_deaths(case)
    load = case.load_of(births | _settling(case, brief))
    if case.load_of(births).cores < CAUSE.limit("births_part") * load.cores:
        return builder.rule_out("other-work")
    if not _is_concentrated(case, load, brief):
        return builder.rule_out("spread", together=load.together)
    if load.cores < CAUSE.limit("lasting_share") and load.taken_s < CAUSE.limit("seconds"):
        return builder.rule_out("moment", together=load.together)
    part = _part_of_their_time(case, load, brief)
    if part < CAUSE.limit("own_part"):
        return builder.rule_out("useful", part=part)
    return _found(builder, case, load, brief, part, rate)


def _found(  # noqa: PLR0917
    builder: EvidenceBuilder, case: Case, load: Load, brief: ShortLived, part: float, rate: float | None
) -> Found:
    function = case.samples.nearest(load.mask & case.samples.holding(CAUSE.names), CAUSE.names)
    whole = min(1.0, load.together)
    builder.add(
        Role.MECHANISM,
        "load",
        quote_load(case, case.load(CAUSE.functions), CAUSE.functions),
        strength=CAUSE.limit("strength") * min(1.0, whole / CAUSE.limit("whole_core")),
        at=load.at,
        together=load.together,
        cpu=load.cpu if load.peak >= CAUSE.limit("core_share") else None,
        part=part,
    )
    _add_rate(builder, case, rate)
    forker = _forker(case, brief)
    if forker is not None:
        _add_forker(builder, case, forker)
    else:
        builder.doubt("no-parent")
    storm = _storm(case, load, brief, forker)
    severity = severity_of(case, storm)
    if severity is Severity.INFO and forker is not None and _own(case, storm, brief, forker).cores >= CORE_TAKEN:
        # One parent's doing, though it moves over many cores.
        severity = Severity.WARNING
    if load.before is not None and not load.is_new:
        builder.doubt("not-new")
        severity = Severity.WARNING if severity is Severity.CRITICAL else severity
    culprit = _culprit(case, load, forker, function)
    costly = rate is not None and rate < CAUSE.limit("many_forks")
    return builder.found(
        severity,
        "summary-costly" if costly else "summary",
        culprit=culprit,
        load=storm,
        remedies=aim(CAUSE.remedies, str(culprit.pid) if culprit.pid is not None else "PID"),
        who=forker.entity if forker is not None and forker.is_main else None,
        rate=rate,
        together=load.together,
    )


def _settling(case: Case, brief: ShortLived) -> Mask:
    """Kernel time of short-lived processes is the price of their birth where each does next to nothing; of those that
    do more only their faults and mappings are."""
    samples = case.samples
    kernel = brief.mask & samples.in_kernel
    started = case.now("node").total("forks") if len(case.now("node")) else None
    each = float(samples.weight[brief.mask].sum()) / 1e6 / started if started else 1.0
    return kernel if each <= CAUSE.limit("moment_s") else kernel & samples.holding(CAUSE.group("settling"))


def _is_concentrated(case: Case, load: Load, brief: ShortLived) -> bool:
    """Whether it takes one core, or is one parent's doing, or a good part of the node: spread thin over many cores and
    programs it is what a node does."""
    least = CAUSE.limit("core_share")
    if load.peak >= least or load.together >= max(least, CAUSE.limit("node_part") * case.cores):
        return True
    forker = _forker(case, brief)
    return forker is not None and forker.is_main and _own(case, load, brief, forker).together >= least


def _own(case: Case, load: Load, brief: ShortLived, forker: Forker) -> Load:
    """The part of a load that is one parent's and its children's."""
    return case.load_of(load.mask & np.isin(case.samples.pid, brief.pids_of(forker.pid)))


def _storm(case: Case, load: Load, brief: ShortLived, forker: Forker | None) -> Load:
    """All that goes with it: what the short-lived processes did as programs, and a parent that does nothing else."""
    mask = load.mask | brief.mask
    if forker is not None and forker.is_main:
        mask = mask | (case.samples.pid == forker.pid)
    return case.load_of(mask)


def _long_deaths(case: Case) -> Mask:
    """Processes that take long to exit have much memory to free: one such exit is no storm."""
    samples = case.samples
    dying = samples.holding(CAUSE.group("ending"))
    pids, members = np.unique(samples.pid[dying], return_inverse=True)
    spent = np.bincount(members, samples.weight[dying], len(pids)) / 1e6
    return dying & np.isin(samples.pid, pids[(spent >= CAUSE.limit("long_death_s")) & (pids > 0)])


def _part_of_their_time(case: Case, load: Load, brief: ShortLived) -> float:
    """How much of the time of the short-lived processes and their parents was birth and death. A compiler's short lives
    are mostly work; a storm's are not."""
    samples = case.samples
    all_of_them = brief.with_parents | load.mask
    total = float(samples.weight[all_of_them].sum())
    return float(samples.weight[load.mask].sum()) / total if total else 0.0


def _add_rate(builder: EvidenceBuilder, case: Case, rate: float | None) -> None:
    quote = quote_column(case.now("node"), "forks", "max")
    if rate is None or quote is None:
        builder.doubt("uncounted")
        return
    usual = _usual_rate(case)
    new = usual is None or rate >= CAUSE.limit("rise") * usual
    many = rate >= CAUSE.limit("many_forks")
    strength = "rate_strength" if many and new else "weak_strength" if many or new else 0.0
    builder.add(Role.MECHANISM, "rate", quote, strength=strength, rate=rate, before=usual)


def _usual_rate(case: Case) -> float | None:
    return case.before("node").per_second("forks") if len(case.before("node")) else None


def _forker(case: Case, brief: ShortLived) -> Forker | None:
    """The parent of most short-lived processes."""
    if not brief.parents:
        return None
    pid, children = brief.parents[0]
    known = case.process(pid)
    comm = (known.comm if known is not None else None) or f"process {pid}"
    return Forker(pid, comm, children / sum(count for _, count in brief.parents))


def _add_forker(builder: EvidenceBuilder, case: Case, forker: Forker) -> None:
    rows = case.now("processes").within(case.focus)
    own = rows.where(rows.numbers("ppid") == forker.pid)
    quotes: tuple[Evidence, ...] = ()
    if len(own):
        since, until = int(own.wall.min()), int(own.wall.max()) + 1
        match = (("ppid", str(forker.pid)),)
        quotes = (Evidence("processes", "pid", "count", len(own), since, until, match=match),)
    known = case.process(forker.pid)
    command = known.cmdline[:_COMMAND_WIDTH] if known is not None and known.cmdline else None
    strength = CAUSE.limit("weak_strength") * forker.part
    values = {"who": forker.entity, "part": forker.part, "command": command}
    builder.add(Role.CULPRIT, "parent", *quotes, strength=strength, values=values)


def _culprit(case: Case, load: Load, forker: Forker | None, function: str | None) -> Culprit:
    if forker is None or not forker.is_main:
        return case.culprit(load, function)
    known = case.process(forker.pid)
    if known is None:
        return Culprit(load.cpu, forker.pid, forker.comm, function=function)
    return Culprit(load.cpu, forker.pid, forker.comm, known.cmdline, known.cgroup, known.container, known.pod, function)


def _by_counter(builder: EvidenceBuilder, case: Case, rate: float | None) -> Found | RuledOut:
    """Without stacks: the node's count against the size of the node, and cores that are busy in the kernel."""
    if rate is None:
        return builder.rule_out("unrecorded")
    usual = _usual_rate(case)
    share, cpu, at = case.core_share(("system",))
    busy = share >= CAUSE.limit("busy_core")
    many = rate >= CAUSE.limit("many_forks")
    if not many or not busy or usual is None or rate < CAUSE.limit("rise") * usual:
        return builder.rule_out("no-busy-core", rate=rate)
    quote = quote_column(case.now("node"), "forks", "max")
    assert quote is not None
    builder.add(Role.MECHANISM, "rate", quote, strength="rate_strength", rate=rate, before=usual)
    core = quote_core("system", share, cpu, at)
    builder.add(Role.MECHANISM, "kernel", core, strength="core_strength", cpu=cpu, share=share)
    remedies, values = aim(CAUSE.remedies, "PID"), {"rate": rate, "cpu": cpu}
    culprit = Culprit(cpu=cpu)
    return builder.found(
        Severity.WARNING, "summary-counted", culprit=culprit, weight=1.0, remedies=remedies, values=values
    )

"""A program maps, touches and frees memory over and over: its time goes to page faults."""

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import KERNEL_STATES, Case
from exhume.diagnose.evidence.core_hold import CoreHold, core_hold
from exhume.diagnose.evidence.impact import has_symptom
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import present_functions, quote_column, quote_share
from exhume.diagnose.evidence.rates import node_rate, rise_of
from exhume.diagnose.evidence.stack_cause import describe_load, target_of
from exhume.model.clock import NANOS
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity

CAUSE = catalogue()["page-fault-storm"]
# What else can be at work inside a fault.
_INSIDE = ("reclaim", "compaction", "numa", "reading")
# The page size where the recording has none; some aarch64 kernels have 16 or 64 KiB.
_PAGE = 4096
# Bytes of one entry of a page table, which is one page itself.
_ENTRY = 8


@examines(CAUSE)
def page_fault_storm(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if not case.has_stacks:
        return _from_counters(builder, case)
    samples = case.samples
    # Starting and ending processes touches and frees memory as well, but that is another cause.
    load = case.load_of(samples.holding(CAUSE.names) & ~samples.holding(CAUSE.group("births")))
    hold = core_hold(case, load, CAUSE.limit("core_share"))
    if hold.seconds < CAUSE.limit("least_seconds"):
        return builder.rule_out("share", peak=load.peak)
    alone = _of_one_process(case, load)
    if alone is not None:
        # What happens next to it, on the same node, is another matter.
        load, hold = alone
    against = _inside(builder, case, load)
    if against is None and alone is None:
        against = _killed(builder, case) or _births(builder, case, load)
    return against or _found(builder, case, load, hold)


def _inside(builder: EvidenceBuilder, case: Case, load: Load) -> RuledOut | None:
    """What the faults themselves wait for, where that is the cause."""
    for group in _INSIDE:
        part = case.part_in(load, CAUSE.group(group))
        if part >= CAUSE.limit("inside"):
            return builder.rule_out(f"inside-{group}", part=part)
    return None


def _of_one_process(case: Case, load: Load) -> tuple[Load, CoreHold] | None:
    """The part of one process, where that alone holds a core, lasts from beginning to end and starts no others: then
    the faults are neither those of starting processes nor of one that is killed and restarted."""
    if load.owner is None:
        return None
    samples = case.samples
    its = (samples.pid == load.owner.pid) & samples.within(case.focus)
    births = float(samples.weight[its & samples.holding(CAUSE.group("births"))].sum())
    if births >= CAUSE.limit("births_part") * float(samples.weight[its].sum()):
        return None
    own = case.load_of(load.mask & its)
    hold = core_hold(case, own, CAUSE.limit("core_share"))
    if hold.seconds < CAUSE.limit("least_seconds"):
        return None
    lasting = len(_seconds_of(case, own)) >= CAUSE.limit("lasting") * len(_seconds_of(case, load))
    return (own, hold) if lasting else None


def _seconds_of(case: Case, load: Load) -> set[int]:
    return set((case.samples.wall[load.mask] // NANOS).tolist())


def _killed(builder: EvidenceBuilder, case: Case) -> RuledOut | None:
    kills = node_rate(case, "oom_kill")
    if kills is not None and kills.evidence.value:
        return builder.rule_out("oom-kills", kills=kills.evidence.value)
    return None


def _births(builder: EvidenceBuilder, case: Case, load: Load) -> RuledOut | None:
    """Whether the faults are those of starting processes: each takes hundreds to come up."""
    forks = rise_of(case, "forks")
    if forks >= CAUSE.limit("births") and forks * CAUSE.limit("faults_per_birth") >= _touched(case) / _page(case):
        return builder.rule_out("births", forks=forks)
    pids = len(set(case.samples.pid[load.mask].tolist()))
    if load.samples / max(pids, 1) < CAUSE.limit("samples_per_process"):
        return builder.rule_out("brief-processes", processes=pids)
    return None


def _found(builder: EvidenceBuilder, case: Case, load: Load, hold: CoreHold) -> Found:
    samples = case.samples
    functions = present_functions(case, CAUSE.names)
    function = samples.nearest(load.mask, CAUSE.group("named")) or samples.nearest(load.mask, CAUSE.names)
    owner = load.main_owner
    describe_load(builder, load, functions, strength="held" if hold.seconds >= CAUSE.limit("seconds") else "brief")
    _add_counters(builder, case, load)
    returned = case.part_in(load, CAUSE.group("freeing"))
    if returned >= CAUSE.limit("freeing"):
        quote = quote_share(case, load, present_functions(case, CAUSE.group("freeing")))
        builder.add(Role.ROOT_CAUSE, "freeing", quote, strength="freed", at=load.at, part=returned)
    if owner is not None:
        quote = quote_share(case, load, functions, owner.pid)
        values = {"who": owner.entity, "part": owner.part, "own_part": hold.owner_part}
        builder.add(Role.CULPRIT, "owner", quote, at=load.at, values=values)
    filling = returned < CAUSE.limit("freeing") and _is_filling(case)
    severity = _severity(case, load, hold, filling=filling)
    if filling:
        builder.doubt("filling", "filling_factor")
    culprit = case.culprit(load, function)
    values = {"who": None if owner is None else owner.entity, "cpu": load.cpu, "filling": filling}
    remedies = aim(CAUSE.remedies, target_of(culprit))
    return builder.found(severity, "summary", culprit=culprit, load=load, remedies=remedies, values=values)


def _severity(case: Case, load: Load, hold: CoreHold, *, filling: bool) -> Severity:
    if filling or hold.seconds < CAUSE.limit("seconds"):
        return Severity.INFO
    symptom = has_symptom(case, load.cpu)
    if not load.is_new:
        # It has been so all along: the node works like this.
        return Severity.WARNING if symptom else Severity.INFO
    return Severity.CRITICAL if symptom and load.taken_s >= CAUSE.limit("seconds") else Severity.WARNING


def _add_counters(builder: EvidenceBuilder, case: Case, load: Load) -> None:
    faults = node_rate(case, "pgfault", "faults")
    huge = rise_of(case, "thp_fault_alloc")
    if faults is None:
        builder.doubt("uncounted")
        return
    # A core that does nothing else takes some hundred thousand faults a second, or some thousand of huge pages.
    worth = faults.rise / CAUSE.limit("faults_per_core") + huge / CAUSE.limit("huge_faults_per_core")
    enough = worth >= max(load.risen, 0.0) * CAUSE.limit("counted") and worth > 0
    far = faults.is_far_above(CAUSE.limit("rise"))
    strength = ("counted_far" if far else "counted_usual") if enough else 0.0
    builder.add(Role.MECHANISM, "faults", faults.evidence, strength=strength, rate=faults)
    if not enough and load.is_new:
        builder.doubt("too-few", "too_few_factor")


def _is_filling(case: Case) -> bool:
    """Whether memory in use grew by about what was touched: a program that starts up, not one that goes round."""
    rows = case.now("node")
    available = rows.numbers("mem_available") if len(rows) else None
    if available is None or len(available) < 2:
        return False
    grown = float(available[0] - available[-1]) * 1024 / case.focus.seconds
    touched = _touched(case)
    return touched > 0 and grown >= CAUSE.limit("filling") * touched


def _touched(case: Case) -> float:
    """Bytes that were touched for the first time, a second, over what is usual."""
    page = _page(case)
    huge = page * (page // _ENTRY)
    return rise_of(case, "pgfault") * page + rise_of(case, "thp_fault_alloc") * huge


def _page(case: Case) -> int:
    return case.facts.page_bytes or _PAGE


def _from_counters(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    """Without stacks: a core in the kernel, and faults enough to fill it."""
    faults = node_rate(case, "pgfault", "faults")
    share, cpu, _ = case.core_share(KERNEL_STATES)
    if faults is None or share < CAUSE.limit("kernel_share"):
        return builder.rule_out("idle")
    worth = faults.rise / CAUSE.limit("faults_of_a_core")
    if worth < CAUSE.limit("core_share") or not faults.is_far_above(CAUSE.limit("rise")):
        return builder.rule_out("few", rate=faults)
    if rise_of(case, "forks") * CAUSE.limit("faults_per_birth") >= faults.rise:
        return builder.rule_out("births-counted")
    if rise_of(case, "pgscan_direct") > 0 or rise_of(case, "oom_kill") > 0:
        return builder.rule_out("short")
    builder.add(Role.MECHANISM, "faults", faults.evidence, strength="counted_far", rate=faults)
    builder.add(Role.MECHANISM, "kernel", *_quote_system(case, cpu), strength="counted_usual", cpu=cpu, share=share)
    severity = Severity.INFO if _is_filling(case) else Severity.WARNING
    weight = worth * case.focus.seconds
    return builder.found(severity, "summary-counted", culprit=Culprit(cpu=cpu), weight=weight, cpu=cpu)


def _quote_system(case: Case, cpu: int | None) -> tuple[Evidence, ...]:
    rows = case.now("cpu")
    quote = quote_column(rows.where(rows.cpu == cpu), "system", "max", "permille", cpu)
    return () if quote is None else (quote,)

"""A program maps, touches and gives back memory over and over: its time goes to page faults."""

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import KERNEL_STATES, Case
from exhume.diagnose.evidence.core_hold import CoreHold, core_hold
from exhume.diagnose.evidence.impact import has_symptom
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import present_functions, quote_column, quote_share, told_load
from exhume.diagnose.evidence.rates import node_rate, rise_of
from exhume.model.clock import NANOS
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity

CAUSE = catalogue()["page-fault-storm"]
# What else can be at work inside a fault, and what it is called.
_INSIDE = {
    "reclaim": "freeing memory (reclaim)",
    "compaction": "moving pages about (compaction)",
    "numa": "NUMA hinting faults",
    "reading": "reading files in",
}
# The size of a page where the recording doesn't tell it; some kernels for aarch64 have 16 or 64 KiB.
_PAGE = 4096
# Of one entry of a page table, which is a page by itself.
_ENTRY = 8


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    if not case.has_stacks:
        return _from_counters(case, builder)
    sampled = case.samples
    # Being born and dying touches and frees memory as well, but that is what processes are for.
    load = case.load_of(sampled.holding(CAUSE.names) & ~sampled.holding(CAUSE.named("births")))
    hold = core_hold(case, load, CAUSE.limit("core_share"))
    if hold.seconds < CAUSE.limit("least_seconds"):
        return builder.rule_out(f"page faults took at most {load.peak:.0%} of a core, and no process for long")
    alone = _of_one_process(case, load)
    if alone is not None:
        # What goes on beside it, on the same node, is another matter.
        load, hold = alone
    against = _inside(case, load) or (None if alone is not None else _killed(case) or _births(case, load))
    if against:
        return builder.rule_out(against)
    return _found(case, builder, load, hold)


def _inside(case: Case, load: Load) -> str | None:
    """What the faults themselves wait for, when that is the greater trouble."""
    for group, words in _INSIDE.items():
        part = _part(case, load, group)
        if part >= CAUSE.limit("inside"):
            return f"{part:.0%} of the time in page faults is {words}: the faults are only where it shows"
    return None


def _of_one_process(case: Case, load: Load) -> tuple[Load, CoreHold] | None:
    """The part of one process, where that alone has a hold, goes on from beginning to end and starts no others: then
    the faults are neither those of processes that come up nor of one that is killed and started again."""
    if load.owner is None:
        return None
    sampled = case.samples
    its = (sampled.pid == load.owner.pid) & sampled.within(case.focus)
    births = float(sampled.weight[its & sampled.holding(CAUSE.named("births"))].sum())
    if births >= CAUSE.limit("births_part") * float(sampled.weight[its].sum()):
        return None
    own = case.load_of(load.mask & its)
    hold = core_hold(case, own, CAUSE.limit("core_share"))
    if hold.seconds < CAUSE.limit("least_seconds"):
        return None
    lasting = len(_seconds_of(case, own)) >= CAUSE.limit("lasting") * len(_seconds_of(case, load))
    return (own, hold) if lasting else None


def _seconds_of(case: Case, load: Load) -> set[int]:
    return set((case.samples.wall[load.mask] // NANOS).tolist())


def _killed(case: Case) -> str | None:
    kills = node_rate(case, "oom_kill")
    if kills is not None and kills.evidence.value:
        return f"processes were killed for memory meanwhile ({kills.evidence.value:.0f}): memory is short"
    return None


def _births(case: Case, load: Load) -> str | None:
    """Whether the faults are those of processes that are started: each takes hundreds to come up."""
    forks = rise_of(case, "forks")
    if forks >= CAUSE.limit("births") and forks * CAUSE.limit("faults_per_birth") >= _touched(case) / _page(case):
        return f"{forks:,.0f} processes a second were started, which alone makes that many page faults"
    pids = len(set(case.samples.pid[load.mask].tolist()))
    if load.samples / max(pids, 1) < CAUSE.limit("samples_per_process"):
        return f"the page faults are those of {pids:,} processes that each ran for a moment only"
    return None


def _found(case: Case, builder: EvidenceBuilder, load: Load, hold: CoreHold) -> Found:
    sampled = case.samples
    names = present_functions(case, CAUSE.names)
    function = sampled.nearest(load.mask, CAUSE.named("telling")) or sampled.nearest(load.mask, CAUSE.names)
    owner = load.owner
    single = owner is not None and owner.part >= 1 / 3
    who = owner.comm if owner is not None and single else "many processes"
    builder.add(
        Role.MECHANISM,
        told_load(load, "page faults"),
        quote_share(case, load, names),
        strength=0.8 if hold.seconds >= CAUSE.limit("seconds") else 0.5,
        at=load.at,
    )
    _add_counters(case, builder, load)
    returned = _part(case, load, "giving_back")
    if returned >= CAUSE.limit("giving_back"):
        text = f"{returned:.0%} of that time goes to giving memory back: what is touched is soon freed and touched anew"
        giving = present_functions(case, CAUSE.named("giving_back"))
        builder.add(Role.ROOT_CAUSE, text, quote_share(case, load, giving), strength=0.2, at=load.at)
    if owner is not None and single:
        text = f"{who} (pid {owner.pid}) has {owner.part:.0%} of it; that is {hold.owner_part:.0%} of its own CPU time"
        builder.add(Role.CULPRIT, text, quote_share(case, load, names, owner.pid), at=load.at)
    filling = returned < CAUSE.limit("giving_back") and _is_filling(case)
    severity = _severity(case, load, hold, filling=filling)
    if filling:
        builder.doubt("the memory in use grew by what was touched: it may only be a program that fills its memory", 0.6)
    summary = f"{who} spends its time on core {load.cpu} in page faults" + ("" if not filling else ", filling memory")
    culprit = case.culprit(load, function)
    target = culprit.container or (str(culprit.pid) if culprit.pid is not None else who)
    return builder.found(severity, summary, culprit=culprit, load=load, remedies=aim(CAUSE.remedies, target))


def _severity(case: Case, load: Load, hold: CoreHold, *, filling: bool) -> Severity:
    if filling or hold.seconds < CAUSE.limit("seconds"):
        return Severity.INFO
    felt = has_symptom(case, load.cpu)
    if not load.is_new:
        # It has been so all along: whoever lives with it doesn't call it starvation.
        return Severity.WARNING if felt else Severity.INFO
    return Severity.CRITICAL if felt and load.taken_s >= CAUSE.limit("seconds") else Severity.WARNING


def _add_counters(case: Case, builder: EvidenceBuilder, load: Load) -> None:
    faults = node_rate(case, "pgfault", "faults")
    huge = rise_of(case, "thp_fault_alloc")
    if faults is None:
        builder.doubt("page faults were not counted", 0.9)
        return
    # A core that does nothing else takes some hundred thousand faults a second, or some thousand of huge pages.
    worth = faults.rise / CAUSE.limit("faults_per_core") + huge / CAUSE.limit("huge_faults_per_core")
    enough = worth >= max(load.risen, 0.0) * CAUSE.limit("counted") and worth > 0
    strength = 0.5 if enough and faults.is_far_above(CAUSE.limit("rise")) else 0.2 if enough else 0.0
    builder.add(Role.MECHANISM, f"page faults on the node: {faults.text}", faults.evidence, strength=strength)
    if not enough and load.is_new:
        builder.doubt("the counted page faults don't account for the time that stacks show in them", 0.8)


def _is_filling(case: Case) -> bool:
    """Whether memory in use grew by about what was touched: a program that comes up, not one that goes round."""
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


def _part(case: Case, load: Load, group: str) -> float:
    """The part of a load in a group of functions."""
    sampled = case.samples
    total = float(sampled.weight[load.mask].sum())
    return float(sampled.weight[load.mask & sampled.holding(CAUSE.named(group))].sum()) / max(total, 1.0)


def _from_counters(case: Case, builder: EvidenceBuilder) -> Found | RuledOut:
    """Without stacks: a core in the kernel, and faults enough to fill it."""
    faults = node_rate(case, "pgfault", "faults")
    share, cpu, _ = case.core_share(KERNEL_STATES)
    if faults is None or share < CAUSE.limit("kernel_share"):
        return builder.rule_out("no core was busy in the kernel")
    worth = faults.rise / CAUSE.limit("faults_of_a_core")
    if worth < CAUSE.limit("core_share") or not faults.is_far_above(CAUSE.limit("rise")):
        return builder.rule_out(f"there were {faults.text} page faults")
    if rise_of(case, "forks") * CAUSE.limit("faults_per_birth") >= faults.rise:
        return builder.rule_out("as many page faults as starting processes makes")
    if rise_of(case, "pgscan_direct") > 0 or rise_of(case, "oom_kill") > 0:
        return builder.rule_out("memory was short: the page faults had to free some first")
    builder.add(Role.MECHANISM, f"page faults on the node: {faults.text}", faults.evidence, strength=0.5)
    builder.add(
        Role.MECHANISM, f"core {cpu} spent {share:.0%} of a second in the kernel", *_busy(case, cpu), strength=0.2
    )
    severity = Severity.INFO if _is_filling(case) else Severity.WARNING
    summary = f"page faults, enough to keep a core busy; core {cpu} was in the kernel meanwhile"
    return builder.found(severity, summary, culprit=Culprit(cpu=cpu), weight=worth * case.focus.seconds)


def _busy(case: Case, cpu: int | None) -> tuple[Evidence, ...]:
    rows = case.now("cpu")
    told = quote_column(rows.where(rows.cpu == cpu), "system", "max", "permille", cpu)
    return () if told is None else (told,)

"""The kernel moves pages about to make large ones, on the time of whoever asked for memory."""

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.core_hold import core_hold
from exhume.diagnose.evidence.impact import has_symptom
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import present_functions, quote_share, told_load
from exhume.diagnose.evidence.rates import node_rate
from exhume.model.finding import Role, RuledOut, Severity

CAUSE = catalogue()["compaction-thp"]
# Who asks for it, by the functions on the way to it: the first that holds most of the time is told.
_WAYS = {
    "by_hand": "somebody asks the kernel to compact all memory (vm.compact_memory)",
    "huge_pages": "khugepaged collapses small pages into huge ones",
    "background": "kcompactd works ahead of demand, because large pieces of free memory have run out",
    "contiguous": "a contiguous range is made free (huge page pool, device memory)",
    "direct": "whoever asks for a large piece of memory has to make it first (direct compaction)",
}


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    stalls = node_rate(case, "compact_stall", "stalls")
    scanned = node_rate(case, "compact_migrate_scanned", "pages")
    if not case.has_stacks:
        if stalls is None or stalls.rise < CAUSE.limit("stalls") or not stalls.is_far_above(CAUSE.limit("rise")):
            return builder.rule_out("no stacks, and allocations hardly ever stalled for compaction")
        builder.add(
            Role.MECHANISM, f"allocations had to compact memory first, {stalls.text}", stalls.evidence, strength=0.6
        )
        severity = Severity.WARNING if stalls.now >= CAUSE.limit("many_stalls") else Severity.INFO
        return builder.found(severity, "allocations stall because memory has to be compacted for them")
    load = case.load(CAUSE.names)
    hold = core_hold(case, load, CAUSE.limit("core_share"))
    if hold.seconds < CAUSE.limit("least_seconds"):
        return builder.rule_out(f"compaction took at most {load.peak:.0%} of a core")
    names = present_functions(case, CAUSE.names)
    builder.add(
        Role.MECHANISM,
        told_load(load, "compaction"),
        quote_share(case, load, names),
        strength=0.8 if hold.seconds >= CAUSE.limit("seconds") else 0.5,
        at=load.at,
    )
    if stalls is not None and stalls.evidence.value:
        strength = 0.5 if stalls.rise >= CAUSE.limit("stalls") else 0.2
        builder.add(
            Role.MECHANISM,
            f"allocations had to compact memory first, {stalls.text}",
            stalls.evidence,
            strength=strength,
        )
    if scanned is not None:
        enough = scanned.rise >= CAUSE.limit("scanned_per_core") * max(load.risen, 0.0) and scanned.rise > 0
        builder.add(
            Role.MECHANISM,
            f"pages looked at to move them: {scanned.text}",
            scanned.evidence,
            strength=0.5 if enough else 0.0,
        )
    else:
        builder.doubt("this kernel doesn't count the pages that compaction looks at", 0.95)
    return _conclude(case, builder, load, hold.seconds)


def _conclude(case: Case, builder: EvidenceBuilder, load: Load, held: float) -> Found:
    culprit = case.culprit(load, case.samples.nearest(load.mask, CAUSE.named("telling")))
    who = culprit.comm or "many processes"
    names, why = _way(case, load)
    builder.add(Role.ROOT_CAUSE, why, quote_share(case, load, names), at=load.at)
    if culprit.pid is not None:
        text = f"it runs on the time of {who} (pid {culprit.pid})"
        builder.add(Role.CULPRIT, text, quote_share(case, load, names, culprit.pid), at=load.at)
    felt = has_symptom(case, load.cpu)
    severity = Severity.INFO
    if held >= CAUSE.limit("seconds") and (load.is_new or felt):
        taken = load.is_new and felt and load.taken_s >= CAUSE.limit("seconds")
        severity = Severity.CRITICAL if taken else Severity.WARNING
    target = culprit.container or (str(culprit.pid) if culprit.pid is not None else who)
    summary = f"memory compaction holds core {load.cpu} on the time of {who}: {why}"
    return builder.found(severity, summary, culprit=culprit, load=load, remedies=aim(CAUSE.remedies, target))


def _way(case: Case, load: Load) -> tuple[tuple[str, ...], str]:
    """The functions that lead to most of it, and what they mean."""
    sampled = case.samples
    for group, words in _WAYS.items():
        part = case.load_of(load.mask & sampled.holding(CAUSE.named(group)))
        if part.cores >= 0.5 * load.cores:
            return present_functions(case, CAUSE.named(group)), words
    names = present_functions(case, CAUSE.names)
    return names, "large pieces of free memory have run out"

"""The kernel moves pages about to make large ones, on the time of whoever asked for memory."""

from exhume.diagnose.case import Case
from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.felt import is_felt
from exhume.diagnose.hold import hold_of
from exhume.diagnose.load import Load
from exhume.diagnose.quoted import present, share_in, told_load
from exhume.diagnose.rates import node_rate
from exhume.diagnose.sheet import Found, Sheet, aimed
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
    sheet = Sheet(case, CAUSE)
    stalls = node_rate(case, "compact_stall", "stalls")
    scanned = node_rate(case, "compact_migrate_scanned", "pages")
    if not case.has_stacks:
        if stalls is None or stalls.rise < CAUSE.limit("stalls") or not stalls.is_far_above(CAUSE.limit("rise")):
            return sheet.rule_out("no stacks, and allocations hardly ever stalled for compaction")
        sheet.add(
            Role.MECHANISM, f"allocations had to compact memory first, {stalls.text}", stalls.evidence, strength=0.6
        )
        severity = Severity.WARNING if stalls.now >= CAUSE.limit("many_stalls") else Severity.INFO
        return sheet.found(severity, "allocations stall because memory has to be compacted for them")
    load = case.load(CAUSE.names)
    hold = hold_of(case, load, CAUSE.limit("core_share"))
    if hold.seconds < CAUSE.limit("least_seconds"):
        return sheet.rule_out(f"compaction took at most {load.peak:.0%} of a core")
    names = present(case, CAUSE.names)
    sheet.add(
        Role.MECHANISM,
        told_load(load, "compaction"),
        share_in(case, load, names),
        strength=0.8 if hold.seconds >= CAUSE.limit("seconds") else 0.5,
        at=load.at,
    )
    if stalls is not None and stalls.evidence.value:
        strength = 0.5 if stalls.rise >= CAUSE.limit("stalls") else 0.2
        sheet.add(
            Role.MECHANISM,
            f"allocations had to compact memory first, {stalls.text}",
            stalls.evidence,
            strength=strength,
        )
    if scanned is not None:
        enough = scanned.rise >= CAUSE.limit("scanned_per_core") * max(load.risen, 0.0) and scanned.rise > 0
        sheet.add(
            Role.MECHANISM,
            f"pages looked at to move them: {scanned.text}",
            scanned.evidence,
            strength=0.5 if enough else 0.0,
        )
    else:
        sheet.doubt("this kernel doesn't count the pages that compaction looks at", 0.95)
    return _conclude(case, sheet, load, hold.seconds)


def _conclude(case: Case, sheet: Sheet, load: Load, held: float) -> Found:
    culprit = case.culprit(load, case.sampled.nearest(load.mask, CAUSE.named("telling")))
    who = culprit.comm or "many processes"
    names, why = _way(case, load)
    sheet.add(Role.ROOT_CAUSE, why, share_in(case, load, names), at=load.at)
    if culprit.pid is not None:
        text = f"it runs on the time of {who} (pid {culprit.pid})"
        sheet.add(Role.CULPRIT, text, share_in(case, load, names, culprit.pid), at=load.at)
    felt = is_felt(case, load.cpu)
    severity = Severity.INFO
    if held >= CAUSE.limit("seconds") and (load.is_new or felt):
        taken = load.is_new and felt and load.taken_s >= CAUSE.limit("seconds")
        severity = Severity.CRITICAL if taken else Severity.WARNING
    target = culprit.container or (str(culprit.pid) if culprit.pid is not None else who)
    summary = f"memory compaction holds core {load.cpu} on the time of {who}: {why}"
    return sheet.found(severity, summary, culprit=culprit, load=load, remedies=aimed(CAUSE.remedies, target))


def _way(case: Case, load: Load) -> tuple[tuple[str, ...], str]:
    """The functions that lead to most of it, and what they mean."""
    sampled = case.sampled
    for group, words in _WAYS.items():
        part = case.load_of(load.mask & sampled.holding(CAUSE.named(group)))
        if part.cores >= 0.5 * load.cores:
            return present(case, CAUSE.named(group)), words
    names = present(case, CAUSE.names)
    return names, "large pieces of free memory have run out"

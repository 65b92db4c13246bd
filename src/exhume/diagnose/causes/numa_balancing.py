"""The kernel unmaps pages to see who uses them and moves them between nodes, and that costs more than it brings."""

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.core_hold import core_hold
from exhume.diagnose.evidence.impact import has_symptom
from exhume.diagnose.evidence.load import CORE_TAKEN
from exhume.diagnose.evidence.quotes import present_functions, quote_share, told_load
from exhume.diagnose.evidence.rates import node_rate
from exhume.model.finding import Role, RuledOut, Severity

CAUSE = catalogue()["numa-balancing"]


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    updates = node_rate(case, "numa_pte_updates", "pages")
    moved = node_rate(case, "numa_pages_migrated", "pages")
    if updates is not None and not updates.evidence.value:
        return builder.rule_out("NUMA balancing unmapped nothing in this time")
    if not case.has_stacks:
        many = updates is not None and updates.rise >= CAUSE.limit("updates") * case.cores
        if updates is None or not many or not updates.is_far_above(CAUSE.limit("rise")):
            return builder.rule_out("no stacks, and NUMA balancing did no more than usual")
        text = f"NUMA balancing unmapped {updates.text} pages"
        builder.add(Role.MECHANISM, text, updates.evidence, strength=0.5)
        return builder.found(Severity.INFO, "NUMA balancing is much busier than before")
    load = case.load(CAUSE.names)
    hold = core_hold(case, load, CAUSE.limit("core_share"))
    if hold.seconds < CAUSE.limit("seconds"):
        return builder.rule_out(f"NUMA balancing took at most {load.peak:.0%} of a core, and not for long")
    names = present_functions(case, CAUSE.names)
    builder.add(
        Role.MECHANISM,
        told_load(load, "NUMA balancing"),
        quote_share(case, load, names),
        strength=0.75,
        at=load.at,
    )
    if updates is None:
        builder.doubt("NUMA balancing is not counted on this kernel", 0.8)
    else:
        far = updates.is_far_above(CAUSE.limit("rise"))
        text = f"it unmapped {updates.text} pages to see who uses them"
        builder.add(Role.MECHANISM, text, updates.evidence, strength=0.5 if far else 0.3)
    if moved is not None and moved.evidence.value:
        builder.add(Role.MECHANISM, f"and moved {moved.text} to another node", moved.evidence, strength=0.2)
    culprit = case.culprit(load, case.samples.nearest(load.mask, CAUSE.names))
    who = culprit.comm or "many processes"
    if culprit.pid is not None:
        text = f"the time is that of {who} (pid {culprit.pid}), {hold.owner_part:.0%} of all it used"
        builder.add(Role.CULPRIT, text, quote_share(case, load, names, culprit.pid), at=load.at)
    felt = has_symptom(case, load.cpu)
    taken = core_hold(case, load, CORE_TAKEN).seconds >= CAUSE.limit("seconds")
    severity = Severity.CRITICAL if taken and felt and load.is_new else Severity.WARNING
    if not load.is_new and not felt:
        severity = Severity.INFO
    summary = f"NUMA balancing takes {load.peak:.0%} of core {load.cpu} from {who}"
    target = culprit.container or (str(culprit.pid) if culprit.pid is not None else who)
    return builder.found(severity, summary, culprit=culprit, load=load, remedies=aim(CAUSE.remedies, target))

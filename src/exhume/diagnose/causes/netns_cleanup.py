"""Network namespaces are created and dropped by the dozen a second: setup and cleanup take cores, and a lock."""

import re

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.hot_path import HotPath, hot_path, severity_on_core
from exhume.diagnose.evidence.quotes import quote_column
from exhume.diagnose.facts.owners import fit_remedies, owner_of
from exhume.model.finding import Culprit, Role, RuledOut, Severity, process_entity

CAUSE = catalogue()["netns-cleanup"]


@examines(CAUSE)
def netns_cleanup(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    path = hot_path(case, CAUSE.functions)
    cleaner = hot_path(case, CAUSE.groups["cleaner"])
    grown = _add_count(builder, case)
    if path is None or not _is_hot(path, cleaner):
        if not case.has_stacks and grown >= CAUSE.limit("backlog"):
            # Without stacks a growing count is all there is: worth knowing, no more.
            return builder.found(Severity.INFO, "grown", grown=grown)
        return builder.rule_out("share", together=0.0 if path is None else path.load.together)
    load = path.load
    most, whole = CAUSE.limit("most_strength"), CAUSE.limit("whole_core")
    path.describe(builder, min(most, most * load.together / whole))
    if cleaner is not None:
        busy = cleaner.load.peak >= CAUSE.limit("cleaner_share")
        strength, at = "cleaner_busy" if busy else "cleaner_seen", cleaner.load.at
        builder.add(Role.MECHANISM, "cleaner", cleaner.evidence, strength=strength, at=at, worker=_worker(cleaner))
    maker = hot_path(case, CAUSE.groups["maker"])
    culprit, who = path.culprit, None
    if maker is not None:
        culprit, who = maker.culprit, maker.process
        values = {"who": who, "function": maker.function}
        builder.add(Role.CULPRIT, "maker", maker.evidence, strength="maker", at=maker.load.at, values=values)
    else:
        builder.doubt("no-maker")
        culprit = Culprit(cpu=load.cpu, pid=path.culprit.pid, comm=path.culprit.comm, function=path.function)
    return builder.found(
        severity_on_core(case, load),
        "summary",
        culprit=culprit,
        load=load,
        remedies=fit_remedies(
            CAUSE.remedies, owner_of(case, culprit.cgroup), str(who) if who else "an unknown process"
        ),
        who=who,
        function=path.function,
        peak=load.peak,
        cpu=load.cpu,
    )


def _is_hot(path: HotPath, cleaner: HotPath | None) -> bool:
    if not path.load.is_new:
        return False
    cleaning = cleaner is not None and cleaner.load.together >= CAUSE.limit("cleaner_share")
    return cleaning or path.load.together >= CAUSE.limit("core_share")


def _add_count(builder: EvidenceBuilder, case: Case) -> float:
    """How many namespaces more there are than some time ago; many, or a growing number, support the cause."""
    rows = case.recorded("node", CAUSE.limit("lookback_s"))
    most, least = rows.highest("net_namespaces"), rows.lowest("net_namespaces")
    quote = quote_column(rows, "net_namespaces", "max", "namespaces")
    if quote is None or most is None or least is None:
        builder.doubt("uncounted", "uncounted_factor")
        return 0.0
    grown = most - least
    if most >= CAUSE.limit("many") or grown >= CAUSE.limit("backlog"):
        builder.add(Role.ROOT_CAUSE, "count", quote, strength="counted", most=most, grown=grown)
    return grown


def _worker(cleaner: HotPath) -> object:
    """The worker, without the job that its name shows."""
    return None if cleaner.process is None else process_entity(re.split("[-+]", cleaner.process.name)[0])

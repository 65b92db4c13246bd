"""Network namespaces are made and dropped by the dozen a second: setup and cleanup take cores, and a lock."""

import re

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.hot_path import HotPath, hot_path, severity_on_core
from exhume.diagnose.evidence.quotes import quote_column
from exhume.diagnose.facts.owners import fit_remedies, owner_of
from exhume.model.finding import Culprit, Role, RuledOut, Severity

CAUSE = catalogue()["netns-cleanup"]
CLEANER = (CAUSE.more_functions or {})["cleaner"]
MAKER = (CAUSE.more_functions or {})["maker"]


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    path = hot_path(case, CAUSE.functions)
    cleaner = hot_path(case, CLEANER)
    grown = _count(case, builder)
    if path is None or not _is_hot(path, cleaner):
        if not case.has_stacks and grown >= CAUSE.limit("backlog"):
            # Without stacks a growing count is all there is: worth knowing, no more.
            return builder.found(Severity.INFO, f"{grown:,.0f} more network namespaces than before")
        together = 0.0 if path is None else path.load.together
        return builder.rule_out(f"network namespaces came and went for at most {together:.0%} of a core")
    load = path.load
    builder.add(Role.MECHANISM, path.text, path.evidence, strength=min(0.8, 0.8 * load.together / 0.7), at=load.at)
    if cleaner is not None:
        builder.add(
            Role.MECHANISM,
            f"{_worker(cleaner)} takes namespaces down, all of them one after the other, in cleanup_net",
            cleaner.evidence,
            strength=0.4 if cleaner.load.peak >= CAUSE.limit("cleaner_share") else 0.2,
            at=cleaner.load.at,
        )
    maker = hot_path(case, MAKER)
    culprit, who = path.culprit, None
    if maker is not None:
        culprit, who = maker.culprit, maker.who
        builder.add(
            Role.CULPRIT,
            f"{maker.doing('makes', 'make')} new network namespaces ({maker.function})",
            maker.evidence,
            strength=0.3,
            at=maker.load.at,
        )
    else:
        builder.doubt("nobody was seen making namespaces in this time: who dropped them is not known")
        culprit = Culprit(cpu=load.cpu, pid=path.culprit.pid, comm=path.culprit.comm, function=path.function)
    maker_told = f"{who} makes and drops" if who else "somebody makes and drops"
    summary = f"{maker_told} network namespaces: {path.function} took {load.peak:.0%} of core {load.cpu}"
    return builder.found(
        severity_on_core(case, load),
        summary,
        culprit=culprit,
        load=load,
        remedies=fit_remedies(CAUSE.remedies, owner_of(case, culprit.cgroup), who or "whoever makes them"),
    )


def _is_hot(path: HotPath, cleaner: HotPath | None) -> bool:
    if not path.load.is_new:
        return False
    cleaning = cleaner is not None and cleaner.load.together >= CAUSE.limit("cleaner_share")
    return cleaning or path.load.together >= CAUSE.limit("core_share")


def _count(case: Case, builder: EvidenceBuilder) -> float:
    """How many more namespaces there are than some time ago; many, or a growing number, speak for it."""
    rows = case.recorded("node", CAUSE.limit("lookback_s"))
    most, least = rows.highest("net_namespaces"), rows.lowest("net_namespaces")
    told = quote_column(rows, "net_namespaces", "max", "namespaces")
    if told is None or most is None or least is None:
        builder.doubt("network namespaces were not counted (that needs root)", 0.95)
        return 0.0
    grown = most - least
    if most >= CAUSE.limit("many") or grown >= CAUSE.limit("backlog"):
        text = (
            f"the kernel held {most:,.0f} network namespaces, {grown:,.0f} more than at the least: cleanup falls behind"
        )
        builder.add(Role.ROOT_CAUSE, text, told, strength=0.5)
    return grown


def _worker(cleaner: HotPath) -> str:
    """The worker's name, without the job that it does or did last."""
    return "a worker" if cleaner.who is None else re.split("[-+]", cleaner.who)[0]

"""IPVS adds up its statistics over all services and cores, in one go."""

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.hot_path import hot_path, on_hot_cores
from exhume.diagnose.evidence.impact import severity_of
from exhume.model.finding import Role, RuledOut, Severity

CAUSE = catalogue()["ipvs-estimation"]


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    if not case.has_stacks:
        return builder.rule_out("no stacks were sampled: the estimation timer can't be told from other softirqs")
    path = hot_path(case, CAUSE.functions, on_hot_cores(case, CAUSE.functions, CAUSE.limit("core_share")))
    if path is None:
        return builder.rule_out("no stack holds IPVS's estimation")
    load = path.load
    if load.peak < CAUSE.limit("core_share"):
        return builder.rule_out(f"IPVS's estimation took at most {load.peak:.0%} of a core")
    # Nobody but IPVS has these functions: how sure it is depends on how much of the trouble they are.
    builder.add(Role.MECHANISM, path.text, path.evidence, strength=min(0.9, 0.6 + 0.4 * load.peak), at=load.at)
    builder.add(
        Role.ROOT_CAUSE,
        f"IPVS visits every service on every one of {case.cores} cores, every two seconds, whether anybody asks or not",
        path.evidence,
        at=load.at,
    )
    severity = severity_of(case, load)
    if severity is Severity.INFO and load.peak >= CAUSE.limit("long_share"):
        # It is idle between its turns, so its mean is low; but for so long nothing else ran on that core.
        severity = Severity.WARNING
    summary = f"IPVS estimation ({path.function}) took {load.peak:.0%} of a second of core {load.cpu}"
    return builder.found(severity, summary, culprit=path.culprit, load=load)

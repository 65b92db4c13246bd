"""Cores spin for a lock instead of working."""

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.impact import hurts_others
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_load
from exhume.diagnose.evidence.samples import Names
from exhume.model.finding import Role, RuledOut, Severity

CAUSE = catalogue()["spinlock-contention"]


@examines(CAUSE)
def spinlock_contention(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if not case.has_stacks:
        return builder.rule_out("no-stacks-sampled")
    samples = case.samples
    spinning = case.load(CAUSE.names)
    if spinning.together < CAUSE.limit("reported") or spinning.cores < CAUSE.limit("reported_mean"):
        return builder.rule_out("share", together=spinning.together)
    function = samples.nearest(spinning.mask, CAUSE.names) or CAUSE.functions[0]
    # The caller of the functions that take a lock is where the lock is.
    sites = samples.callers(spinning.mask, Names.of((*CAUSE.functions, *CAUSE.groups["wrappers"])))
    top = sites[0][0] if sites else None
    part = sites[0][1] / max(1.0, sum(weight for _, weight in sites)) if sites else 0.0
    site = top if part >= CAUSE.limit("one_site") else None
    who = case.culprit(spinning).process
    strong = spinning.together >= CAUSE.limit("strong_share") and spinning.taken_s >= CAUSE.limit("seconds")
    builder.add(
        Role.MECHANISM,
        "spinning",
        quote_load(case, spinning, CAUSE.functions),
        strength="strong" if strong else "medium",
        at=spinning.at,
        cores=spinning.cores,
        before=spinning.before,
        function=function,
        site=site,
    )
    if site is not None:
        at_site = case.load(Names.of([site]))
        values = {"part": part, "site": site, "who": who, "peak": at_site.peak}
        quote = quote_load(case, at_site, (site,))
        builder.add(Role.CULPRIT, "site", quote, strength="weak", at=at_site.at, values=values)
    else:
        builder.doubt("no-site", "no_site_factor")
    if not spinning.is_new:
        builder.doubt("not-new", "not_new_factor")
    return builder.found(
        _severity(case, spinning),
        "summary",
        culprit=case.culprit(spinning, site or function),
        load=spinning,
        remedies=aim(CAUSE.remedies, top or function),
        who=who,
        function=function,
        site=site,
    )


def _severity(case: Case, spinning: Load) -> Severity:
    # Some spinning is part of a large busy node: it has to be much of one core, or of all that is done.
    much = spinning.core_s >= CAUSE.limit("seconds") or spinning.part >= CAUSE.limit("slowed_part")
    if not spinning.is_new or not much or spinning.cores < CAUSE.limit("slowed_mean"):
        return Severity.INFO
    if spinning.taken_s >= CAUSE.limit("seconds") and hurts_others(case, spinning.cpu):
        return Severity.CRITICAL
    return Severity.WARNING

"""Cores spin for a lock instead of working."""

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.impact import hurts_others
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_load
from exhume.diagnose.evidence.samples import Names
from exhume.model.finding import Role, RuledOut, Severity

CAUSE = catalogue()["spinlock-contention"]


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    if not case.has_stacks:
        return builder.rule_out("no stacks were sampled: who spins can't be seen")
    sampled = case.samples
    spinning = case.load(CAUSE.names)
    if spinning.together < CAUSE.limit("told") or spinning.cores < CAUSE.limit("told_mean"):
        return builder.rule_out(f"cores spun for locks for at most {spinning.together:.0%} of a core")
    function = sampled.nearest(spinning.mask, CAUSE.names) or CAUSE.functions[0]
    sites = sampled.callers(spinning.mask, _around())
    site, part = (sites[0][0], _part(sites)) if sites else ("", 0.0)
    # Several processes of one name are told by it.
    who = case.culprit(spinning).comm or "many processes"
    where = f" for the lock that {site} takes" if site and part >= CAUSE.limit("one_site") else ""
    before = "" if spinning.before is None else f" ({spinning.before:.2f} before)"
    strong = spinning.together >= CAUSE.limit("strong_share") and spinning.taken_s >= CAUSE.limit("seconds")
    builder.add(
        Role.MECHANISM,
        f"{spinning.cores:.2f} cores' worth of time{before} went to spinning in {function}{where}",
        quote_load(case, spinning, CAUSE.functions),
        strength=CAUSE.limit("strong") if strong else CAUSE.limit("medium"),
        at=spinning.at,
    )
    if where:
        at_site = case.load(Names.of([site]))
        builder.add(
            Role.CULPRIT,
            f"{part:.0%} of it under {site}, which {who} had {at_site.peak:.0%} of a core in, waiting or working",
            quote_load(case, at_site, (site,)),
            strength=CAUSE.limit("weak"),
            at=at_site.at,
        )
    else:
        builder.doubt("no single lock stands out", CAUSE.limit("no_site_factor"))
    if not spinning.is_new:
        builder.doubt("it was like that before as well", CAUSE.limit("not_new_factor"))
    summary = f"{who} {'spin' if who == 'many processes' else 'spins'} in {function}{where} instead of working"
    return builder.found(
        _severity(case, spinning),
        summary,
        culprit=case.culprit(spinning, site if where else function),
        load=spinning,
        remedies=aim(CAUSE.remedies, site or function),
    )


def _around() -> Names:
    """The functions that take a lock: the one that called them is where the lock is."""
    return Names.of((*CAUSE.functions, *(CAUSE.more_functions or {})["wrappers"]))


def _part(sites: list[tuple[str, float]]) -> float:
    return sites[0][1] / max(1.0, sum(weight for _, weight in sites))


def _severity(case: Case, spinning: Load) -> Severity:
    # Some spinning is part of a large busy node: it has to be much of one core, or of all that is done.
    much = spinning.core_s >= CAUSE.limit("seconds") or spinning.part >= CAUSE.limit("slowed_part")
    if not spinning.is_new or not much or spinning.cores < CAUSE.limit("slowed_mean"):
        return Severity.INFO
    if spinning.taken_s >= CAUSE.limit("seconds") and hurts_others(case, spinning.cpu):
        return Severity.CRITICAL
    return Severity.WARNING

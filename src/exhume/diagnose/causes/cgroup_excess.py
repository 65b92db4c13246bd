"""Thousands of live cgroups, and somebody who walks them all."""

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.core_hold import core_hold
from exhume.diagnose.evidence.impact import severity_of
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_share
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.facts.cgroup_counts import CgroupCounts, cgroup_counts
from exhume.diagnose.facts.owners import process_words
from exhume.model.finding import Role, RuledOut, Severity

CAUSE = catalogue()["cgroup-excess"]
UNCOUNTED = "how many of the kernel's cgroups are alive was not counted yet"


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    counts = max(cgroup_counts(case), key=_number, default=None)
    if counts is None:
        return builder.rule_out("cgroups were not counted in this time")
    if _number(counts) < CAUSE.limit("many"):
        return builder.rule_out(f"{_number(counts):,} cgroups: no more than usual")
    walk = case.load_of(_walking(case))
    hot = _is_hot(case, walk)
    if counts.visible is None and not hot:
        return builder.rule_out(f"{UNCOUNTED}, and nobody was seen to walk them")
    _tell_counts(builder, counts)
    return _hot(builder, case, counts, walk) if hot else _dormant(builder, counts)


def _is_hot(case: Case, walk: Load) -> bool:
    """Whether somebody was busy with them: by a core's time, or by its own where it has to share the core."""
    if walk.peak >= CAUSE.limit("core_share"):
        return True
    return walk.peak >= CAUSE.limit("shared_core") and core_hold(case, walk).owner_part >= CAUSE.limit("own_part")


def _number(counts: CgroupCounts) -> int:
    """The live ones; all that the kernel has where those were not counted."""
    return (counts.visible if counts.visible is not None else counts.kernel) or 0


def _tell_counts(builder: EvidenceBuilder, counts: CgroupCounts) -> None:
    seen = counts.visible is not None
    text = f"{_number(counts):,} cgroups {'can be seen' if seen else 'are'} in the {counts.hierarchy} hierarchy"
    evidence = counts.evidence("visible" if seen else "kernel")
    builder.add(Role.ROOT_CAUSE, text, evidence, strength=CAUSE.limit("counted"), at=counts.at)


def _walking(case: Case) -> Mask:
    """The samples in files of cgroups. Files of sysfs lie in the same kind of file system, and are not meant."""
    return case.samples.holding(CAUSE.names) & ~case.samples.holding(CAUSE.named("sysfs"))


def _hot(builder: EvidenceBuilder, case: Case, counts: CgroupCounts, walk: Load) -> Found:
    function = case.samples.nearest(walk.mask, CAUSE.names) or CAUSE.functions[0]
    culprit = case.culprit(walk, function)
    # One whose time goes there whole gets less than a core when it has to share it.
    owned = core_hold(case, walk).owner_part
    strong = walk.peak >= CAUSE.limit("core_share_strong") or owned >= CAUSE.limit("own_part")
    builder.add(
        Role.MECHANISM,
        f"{process_words(culprit)} spent {walk.peak:.0%} of a second of core {walk.cpu} in files of cgroups "
        f"({function})",
        quote_share(case, walk, CAUSE.functions),
        strength=CAUSE.limit("strong") if strong else CAUSE.limit("fair"),
        at=walk.at,
    )
    if counts.visible is None:
        builder.doubt(UNCOUNTED, CAUSE.limit("uncounted_factor"))
    whole = _with_own_time(case, walk)
    severity = severity_of(case, whole)
    summary = f"{process_words(culprit)} walks {_number(counts):,} live cgroups again and again"
    return builder.found(severity, summary, culprit=culprit, load=whole)


def _with_own_time(case: Case, walk: Load) -> Load:
    """The walk with the rest of the walker's time: what it reads it also has to look for and to read through."""
    owner = walk.owner
    if owner is None or owner.part < 1 / 3:
        return walk
    sampled = case.samples
    own = (sampled.pid == owner.pid) & sampled.within(case.focus)
    used = float(sampled.weight[own].sum())
    walked = float(sampled.weight[own & walk.mask].sum())
    if walked < CAUSE.limit("walker_part") * used:
        return walk
    return case.load_of(np.logical_or(_walking(case), sampled.pid == owner.pid))


def _dormant(builder: EvidenceBuilder, counts: CgroupCounts) -> Found:
    """Many cgroups, and nobody who was seen to pay for them."""
    builder.support(CAUSE.limit("fair"))
    summary = f"{_number(counts):,} live cgroups: whatever walks them pays for each, and nothing did in this time"
    return builder.found(Severity.INFO, summary, weight=0.0)

"""Audit rules match so many calls that writing their records is what the node does."""

import re

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.core_hold import core_hold
from exhume.diagnose.evidence.impact import has_symptom
from exhume.diagnose.evidence.load import CORE_TAKEN
from exhume.diagnose.evidence.quotes import present_functions, quote_share, told_load
from exhume.diagnose.evidence.rows import Rows
from exhume.model.finding import Evidence, Role, RuledOut, Severity

CAUSE = catalogue()["audit-storm"]
# What the kernel says when records come faster than they are taken away: whoever makes them then has to wait, or they
# are lost.
_OVERRUN = re.compile(r"audit: (?:backlog limit exceeded|rate limit exceeded|audit_backlog=\d+ > |audit_lost=\d+)")


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    overrun = _overrun(case)
    load = case.load(CAUSE.names)
    hold = core_hold(case, load, CAUSE.limit("core_share"))
    takes_core = hold.seconds >= CAUSE.limit("seconds")
    if not takes_core and overrun is None:
        return builder.rule_out(f"auditing took at most {load.peak:.0%} of a core, and the log says nothing of it")
    names = present_functions(case, CAUSE.names)
    if load.samples:
        builder.add(
            Role.MECHANISM,
            told_load(load, "auditing"),
            quote_share(case, load, names),
            strength=0.8 if takes_core else 0.3,
            at=load.at,
        )
    if overrun is not None:
        text = f"records come faster than they are taken away; the kernel log says: {overrun.value}"
        builder.add(Role.SYMPTOM, text, overrun, strength=0.6)
    part = load.cores and case.load_of(load.mask & case.samples.holding(CAUSE.named("writing"))).cores / load.cores
    if part >= 0.5:
        writing = present_functions(case, CAUSE.named("writing"))
        text = f"{part:.0%} of it writes records: a rule matches, again and again"
        builder.add(Role.ROOT_CAUSE, text, quote_share(case, load, writing), strength=0.2, at=load.at)
    elif load.samples:
        builder.add(Role.ROOT_CAUSE, "most of it goes through the rules without writing: there are many of them")
    culprit = case.culprit(load, case.samples.nearest(load.mask, CAUSE.names) if load.samples else None)
    who = culprit.comm or "many processes"
    if culprit.pid is not None:
        text = f"the calls are those of {who} (pid {culprit.pid}), {hold.owner_part:.0%} of the time it used"
        builder.add(Role.CULPRIT, text, quote_share(case, load, names, culprit.pid), at=load.at)
    felt = has_symptom(case, load.cpu)
    severity = Severity.WARNING if takes_core and (load.is_new or felt) else Severity.INFO
    if overrun is not None and takes_core:
        severity = Severity.WARNING
    if core_hold(case, load, CORE_TAKEN).seconds >= CAUSE.limit("seconds") and felt and load.is_new:
        severity = Severity.CRITICAL
    summary = f"audit rules match the calls of {who}: {load.cores:.2f} cores go to their records"
    target = culprit.container or (str(culprit.pid) if culprit.pid is not None else who)
    return builder.found(severity, summary, culprit=culprit, load=load, remedies=aim(CAUSE.remedies, target))


def _overrun(case: Case) -> Evidence | None:
    rows: Rows = case.now("events")
    if not len(rows):
        return None
    told = rows.where(np.array([bool(_OVERRUN.search(text)) for text in rows.texts("text")], np.bool_))
    if not len(told):
        return None
    wall, text, kind = told.listed("wall", "text", "kind")[0]
    return Evidence("events", "text", "first", text, wall, wall + 1, match=(("kind", kind),))

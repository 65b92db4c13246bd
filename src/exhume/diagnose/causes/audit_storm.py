"""Audit rules match so many calls that writing their records is what the node does."""

import re

import numpy as np

from exhume.diagnose.case import Case
from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.felt import is_felt
from exhume.diagnose.hold import hold_of
from exhume.diagnose.load import TAKEN
from exhume.diagnose.quoted import present, share_in, told_load
from exhume.diagnose.rows import Rows
from exhume.diagnose.sheet import Found, Sheet, aimed
from exhume.model.finding import Evidence, Role, RuledOut, Severity

CAUSE = catalogue()["audit-storm"]
# What the kernel says when records come faster than they are taken away: whoever makes them then has to wait, or they
# are lost.
_OVERRUN = re.compile(r"audit: (?:backlog limit exceeded|rate limit exceeded|audit_backlog=\d+ > |audit_lost=\d+)")


def examine(case: Case) -> Found | RuledOut:
    sheet = Sheet(case, CAUSE)
    overrun = _overrun(case)
    load = case.load(CAUSE.names)
    hold = hold_of(case, load, CAUSE.limit("core_share"))
    takes_core = hold.seconds >= CAUSE.limit("seconds")
    if not takes_core and overrun is None:
        return sheet.rule_out(f"auditing took at most {load.peak:.0%} of a core, and the log says nothing of it")
    names = present(case, CAUSE.names)
    if load.samples:
        sheet.add(
            Role.MECHANISM,
            told_load(load, "auditing"),
            share_in(case, load, names),
            strength=0.8 if takes_core else 0.3,
            at=load.at,
        )
    if overrun is not None:
        text = f"records come faster than they are taken away; the kernel log says: {overrun.value}"
        sheet.add(Role.SYMPTOM, text, overrun, strength=0.6)
    part = load.cores and case.load_of(load.mask & case.sampled.holding(CAUSE.named("writing"))).cores / load.cores
    if part >= 0.5:
        writing = present(case, CAUSE.named("writing"))
        text = f"{part:.0%} of it writes records: a rule matches, again and again"
        sheet.add(Role.ROOT_CAUSE, text, share_in(case, load, writing), strength=0.2, at=load.at)
    elif load.samples:
        sheet.add(Role.ROOT_CAUSE, "most of it goes through the rules without writing: there are many of them")
    culprit = case.culprit(load, case.sampled.nearest(load.mask, CAUSE.names) if load.samples else None)
    who = culprit.comm or "many processes"
    if culprit.pid is not None:
        text = f"the calls are those of {who} (pid {culprit.pid}), {hold.owner_part:.0%} of the time it used"
        sheet.add(Role.CULPRIT, text, share_in(case, load, names, culprit.pid), at=load.at)
    felt = is_felt(case, load.cpu)
    severity = Severity.WARNING if takes_core and (load.is_new or felt) else Severity.INFO
    if overrun is not None and takes_core:
        severity = Severity.WARNING
    if hold_of(case, load, TAKEN).seconds >= CAUSE.limit("seconds") and felt and load.is_new:
        severity = Severity.CRITICAL
    summary = f"audit rules match the calls of {who}: {load.cores:.2f} cores go to their records"
    target = culprit.container or (str(culprit.pid) if culprit.pid is not None else who)
    return sheet.found(severity, summary, culprit=culprit, load=load, remedies=aimed(CAUSE.remedies, target))


def _overrun(case: Case) -> Evidence | None:
    rows: Rows = case.now("events")
    if not len(rows):
        return None
    told = rows.where(np.array([bool(_OVERRUN.search(text)) for text in rows.texts("text")], np.bool_))
    if not len(told):
        return None
    wall, text, kind = told.listed("wall", "text", "kind")[0]
    return Evidence("events", "text", "first", text, wall, wall + 1, match=(("kind", kind),))

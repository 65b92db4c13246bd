"""Audit rules match so many system calls that the node mostly writes audit records."""

import re

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder
from exhume.diagnose.evidence.case import Case, CoreHold
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import present_functions, quote_share
from exhume.diagnose.evidence.stack_cause import StackCause
from exhume.model.finding import Evidence, Role, Severity

CAUSE = catalogue()["audit-storm"]
# kernel/audit.c, audit_log_start and audit_log_lost: records come faster than auditd reads them, so callers wait or
# records are lost.
_OVERRUN = re.compile(r"audit: (?:backlog limit exceeded|rate limit exceeded|audit_backlog=\d+ > |audit_lost=\d+)")


class AuditStorm(StackCause):
    def is_present(self, case: Case, hold: CoreHold) -> bool:
        return hold.seconds >= CAUSE.limit("seconds") or _overrun(case) is not None

    def collect(self, builder: EvidenceBuilder, case: Case, load: Load) -> dict[str, object]:
        overrun = _overrun(case)
        if overrun is not None:
            builder.add(Role.SYMPTOM, "overrun", overrun, strength="overrun", line=overrun.value)
        part = case.part_in(load, CAUSE.group("writing"))
        if part >= CAUSE.limit("writing_part"):
            quote = quote_share(case, load, present_functions(case, CAUSE.group("writing")))
            builder.add(Role.ROOT_CAUSE, "writing", quote, strength="writing", at=load.at, part=part)
        elif load.samples:
            builder.add(Role.ROOT_CAUSE, "filtering")
        return {}

    def severity(self, case: Case, load: Load, hold: CoreHold) -> Severity:
        severity = super().severity(case, load, hold)
        overran = hold.seconds >= CAUSE.limit("seconds") and _overrun(case) is not None
        return Severity.WARNING if overran and severity is Severity.INFO else severity


def _overrun(case: Case) -> Evidence | None:
    for wall, text, kind in case.now("events").listed("wall", "text", "kind"):
        if _OVERRUN.search(text):
            return Evidence("events", "text", "first", text, wall, wall + 1, match=(("kind", kind),))
    return None


examines(CAUSE)(AuditStorm(CAUSE).examine)

"""The hypervisor gave this machine's time to others."""

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.rows import Rows
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity

CAUSE = catalogue()["cpu-steal"]


@examines(CAUSE)
def cpu_steal(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    rows = case.now("cpu")
    if not len(rows):
        return builder.rule_out("uncounted")
    cpu, share, seconds = _worst(rows)
    if share < CAUSE.limit("reported"):
        return builder.rule_out("share", share=share)
    own = rows.where(rows.cpu == cpu)
    most = own.highest("steal") or 0
    since, until = int(own.wall.min()), int(own.wall.max()) + 1
    highest = Evidence("cpu", "steal", "max", most, since, until, cpu, unit="permille")
    values = {"cpu": cpu, "share": share, "worst": most / 1000}
    # The kernel counts it as it is: there is little to doubt.
    builder.add(Role.MECHANISM, "stolen", _quote_mean(own, cpu), highest, strength="strong", values=values)
    before = case.before("cpu")
    before = before.where(before.cpu == cpu) if len(before) else before
    if len(before):
        quote = _quote_mean(before, cpu)
        builder.add(Role.CULPRIT, "before", quote, share=float(quote.value) / 1000)
    if seconds >= CAUSE.limit("starved_seconds") and share >= CAUSE.limit("starved"):
        severity = Severity.CRITICAL
    else:
        severity = Severity.WARNING if seconds >= CAUSE.limit("seconds") else Severity.INFO
    cores = len(np.unique(rows.cpu[rows.numbers("steal") >= 1000 * CAUSE.limit("slowed")]))
    return builder.found(
        severity,
        "summary",
        culprit=Culprit(cpu=cpu),
        weight=share * case.focus.seconds,
        cpu=cpu,
        worst=most / 1000,
        cores=cores if cores > 1 else None,
    )


def _worst(rows: Rows) -> tuple[int, float, float]:
    """The core that lost most, its stolen part, and the seconds in which work there was slowed."""
    shares = {
        cpu: float(rows.where(rows.cpu == cpu).numbers("steal").mean()) / 1000 for cpu in np.unique(rows.cpu).tolist()
    }
    cpu = max(shares, key=lambda each: shares[each])
    own = rows.where(rows.cpu == cpu)
    slowed = own.numbers("steal") >= 1000 * CAUSE.limit("slowed")
    return cpu, shares[cpu], float(own.numbers("span_ms")[slowed].sum()) / 1000


def _quote_mean(rows: Rows, cpu: int) -> Evidence:
    since, until = int(rows.wall.min()), int(rows.wall.max()) + 1
    value = round(float(rows.numbers("steal").mean()), 3)
    return Evidence("cpu", "steal", "mean", value, since, until, cpu, unit="permille")

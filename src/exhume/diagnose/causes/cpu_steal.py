"""The hypervisor gave this machine's time to others."""

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.rows import Rows
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity

CAUSE = catalogue()["cpu-steal"]


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    rows = case.now("cpu")
    if not len(rows):
        return builder.rule_out("no core was measured")
    cpu, share, seconds = _worst(rows)
    if share < CAUSE.limit("told"):
        return builder.rule_out(f"the host took at most {share:.0%} of a core")
    own = rows.where(rows.cpu == cpu)
    since, until = int(own.wall.min()), int(own.wall.max()) + 1
    mean = round(float(own.numbers("steal").mean()), 3)
    most = own.highest("steal") or 0
    builder.add(
        Role.MECHANISM,
        f"the host kept core {cpu} from running for {share:.0%} of the time, and {most / 1000:.0%} of its worst second",
        Evidence("cpu", "steal", "mean", mean, since, until, cpu, unit="permille"),
        Evidence("cpu", "steal", "max", most, since, until, cpu, unit="permille"),
        # The kernel counts it as it is: there is little to doubt.
        strength=CAUSE.limit("strong"),
    )
    before = _before(case, cpu)
    if before is not None:
        builder.add(Role.CULPRIT, f"before it was {float(before.value) / 10:.0f}%", before)
    cores = _cores_hit(rows)
    where = f"core {cpu}" if cores == 1 else f"{cores} cores, most from core {cpu}"
    if seconds >= CAUSE.limit("starved_seconds") and share >= CAUSE.limit("starved"):
        severity = Severity.CRITICAL
    elif seconds >= CAUSE.limit("seconds"):
        severity = Severity.WARNING
    else:
        severity = Severity.INFO
    summary = f"the host takes time from {where}: up to {most / 1000:.0%} of a second"
    return builder.found(severity, summary, culprit=Culprit(cpu=cpu), weight=share * case.focus.seconds)


def _worst(rows: Rows) -> tuple[int, float, float]:
    """The core that lost most, its stolen part, and the seconds in which that was felt."""
    shares = {
        cpu: float(rows.where(rows.cpu == cpu).numbers("steal").mean()) / 1000 for cpu in np.unique(rows.cpu).tolist()
    }
    cpu = max(shares, key=lambda each: shares[each])
    own = rows.where(rows.cpu == cpu)
    felt = own.numbers("steal") >= 1000 * CAUSE.limit("felt")
    return cpu, shares[cpu], float(own.numbers("span_ms")[felt].sum()) / 1000


def _cores_hit(rows: Rows) -> int:
    hit = rows.numbers("steal") >= 1000 * CAUSE.limit("felt")
    return max(1, len(np.unique(rows.cpu[hit])))


def _before(case: Case, cpu: int) -> Evidence | None:
    rows = case.before("cpu")
    own = rows.where(rows.cpu == cpu) if len(rows) else rows
    if not len(own):
        return None
    since, until = int(own.wall.min()), int(own.wall.max()) + 1
    value = round(float(own.numbers("steal").mean()), 3)
    return Evidence("cpu", "steal", "mean", value, since, until, cpu, unit="permille")

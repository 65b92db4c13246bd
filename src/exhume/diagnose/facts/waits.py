"""Run-queue waits: of all threads of a core, and of its ksoftirqd."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.rows import Rows
from exhume.model.clock import NANOS
from exhume.model.finding import Evidence


@dataclass(frozen=True, slots=True)
class CoreWaits:
    """Seconds that threads waited for one core in each second: now, before (0 without a baseline), and the middle of
    the other cores now (None where there is no other)."""

    cpu: int
    now: float
    before: float
    elsewhere: float | None
    evidence: Evidence


def waits_of_cores(rows: Rows) -> dict[int, float]:
    """Seconds that threads waited for each core, in each second; without the cores of which it isn't known."""
    if not len(rows):
        return {}
    waits = rows.numbers("wait_ns")
    known = ~np.isnan(waits)
    cpus = rows.cpu[known]
    seconds = np.bincount(cpus, rows.numbers("span_ms")[known]) / 1000
    waited = np.bincount(cpus, waits[known]) / NANOS
    return {cpu: float(waited[cpu] / seconds[cpu]) for cpu in np.flatnonzero(seconds).tolist()}


def core_waits(case: Case, cpu: int) -> CoreWaits | None:
    """The waits for a core; None where the kernel doesn't report them."""
    rows = case.now("cpu")
    now = waits_of_cores(rows)
    if cpu not in now:
        return None
    own = rows.where(rows.cpu == cpu)
    quote = Evidence(
        "cpu", "wait_ns", "sum", own.total("wait_ns") or 0, int(own.wall.min()), int(own.wall.max()) + 1, cpu, unit="ns"
    )
    others = [waited for core, waited in now.items() if core != cpu]
    elsewhere = float(np.median(others)) if others else None
    return CoreWaits(cpu, now[cpu], waits_of_cores(case.before("cpu")).get(cpu, 0.0), elsewhere, quote)


def softirq_wait(case: Case, cpu: int | None) -> tuple[float, Evidence] | None:
    """The longest time (s) that the ksoftirqd of a core (of any, without one) waited to run; None where none did."""
    best: tuple[float, Evidence] | None = None
    for wall, comm, core, waited in case.now("threads").listed("wall", "comm", "cpu", "wait_ns"):
        if comm.startswith("ksoftirqd/") and cpu in (None, core) and waited > (best[0] * NANOS if best else 0):
            quote = Evidence("threads", "wait_ns", "max", waited, wall, wall + 1, core, (("comm", comm),), unit="ns")
            best = (waited / NANOS, quote)
    return best

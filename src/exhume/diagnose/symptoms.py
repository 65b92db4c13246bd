"""Symptoms in a focus: lines in the kernel log, cores lost to the kernel, threads that had to wait."""

from dataclasses import dataclass

import numpy as np

from exhume.collect.sources.kmsg_signatures import STARVATION_KINDS
from exhume.diagnose import messages
from exhume.diagnose.evidence.case import KERNEL_STATES, Case
from exhume.diagnose.evidence.ordinary import is_by_design, is_ordinary
from exhume.diagnose.evidence.quotes import log_lines, quote_core, quote_event
from exhume.diagnose.evidence.rows import Rows
from exhume.diagnose.facts.waits import waits_of_cores
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Evidence, Link, Role, Severity
from exhume.model.tables import INCIDENT

HOT = 0.95
HOT_S = 2.0
KSOFTIRQD_WAIT_S = 0.5
STOLEN = 0.2
# Threads waiting for a core, in seconds a second, and how much more than before that has to be.
WAITING = 1.0
WAITING_RISE = 3.0


@dataclass(frozen=True, slots=True)
class Symptom:
    """One symptom. `cpu` is the core it points to, where it points to one."""

    kind: str
    severity: Severity
    at: int
    text: str
    evidence: tuple[Evidence, ...] = ()
    cpu: int | None = None

    @property
    def link(self) -> Link:
        return Link(Role.SYMPTOM, self.at, self.text, self.evidence, _code(self.kind))


def _code(kind: str) -> str:
    return f"symptom.{kind}"


def _text(kind: str, **values: object) -> str:
    return messages.render(_code(kind), values)


def find_symptoms(case: Case) -> list[Symptom]:
    """All symptoms of a focus, the most severe first."""
    if case.symptoms is None:
        case.symptoms = _find_symptoms(case)
    return case.symptoms


def _find_symptoms(case: Case) -> list[Symptom]:
    found = [*_log_lines(case), *_hot_cores(case), *_starved_softirqs(case), *_stolen(case), *_waiting(case)]
    return sorted(found, key=lambda symptom: (-symptom.severity.rank, _ORDER.index(symptom.kind), symptom.at))


_ORDER = ("log", "hot-core", "ksoftirqd", "steal", "waiting")


def _log_lines(case: Case) -> list[Symptom]:
    found: dict[tuple[str, int | None], Symptom] = {}
    for event in log_lines(case, tuple(STARVATION_KINDS)):
        if event.kind == INCIDENT:
            continue
        cpu = event.cpu
        queue: tuple[Evidence, ...] = ()
        if cpu is None and event.queue is not None:
            cpu, queue = core_of_queue(case, event.device, event.queue)
        text = _text("log", line=event.text, queue_cpu=cpu if queue else None)
        # The kernel warns of some things long before work is starved.
        severity = Severity.CRITICAL if event.severity == "critical" else Severity.WARNING
        symptom = Symptom("log", severity, event.wall, text, (quote_event(event), *queue), cpu)
        found.setdefault((event.kind, event.queue), symptom)
    return list(found.values())


def core_of_queue(case: Case, device: str | None, queue: int) -> tuple[int | None, tuple[Evidence, ...]]:
    """The core that a NIC queue's interrupts go to, from the interrupts that were counted near the focus."""
    rows = case.recorded("interrupts", case.focus.seconds + 120)
    if not len(rows):
        return None, ()
    mask = rows.numbers("queue") == queue
    match = [("queue", str(queue))]
    named = mask & (rows.texts("device") == device)
    if device is not None and named.any():
        mask = named
        match.append(("device", device))
    rows = rows.where(mask)
    if not len(rows):
        return None, ()
    counts = np.bincount(rows.cpu, rows.numbers("count"))
    cpu = int(np.argmax(counts))
    since, until = int(rows.wall.min()), int(rows.wall.max()) + 1
    return cpu, (Evidence("interrupts", "count", "sum", float(counts[cpu]), since, until, cpu, tuple(match)),)


def _hot_cores(case: Case) -> list[Symptom]:
    rows = case.now("cpu")
    found = []
    hot = rows.cpu[rows.sums(KERNEL_STATES) >= HOT * 1000]
    for cpu in np.unique(hot).tolist():
        own = rows.where(rows.cpu == cpu)
        seconds, since, until = _longest_run(own)
        if seconds < HOT_S:
            continue
        span = Window(since, until)
        inside = own.within(span)
        column = max(KERNEL_STATES, key=lambda state: inside.total(state) or 0)
        quote = Evidence("cpu", column, "max", inside.highest(column) or 0, since, until, cpu, unit="permille")
        share = float(inside.sums(KERNEL_STATES).mean()) / 1000
        text = _text("hot-core", cpu=cpu, seconds=seconds, share=share)
        # A program that reads files or serves a network starves no other by that alone.
        here = case.samples.within(span) & (case.samples.cpu == cpu)
        severity = Severity.INFO if is_ordinary(case, here) or is_by_design(case, here) else Severity.CRITICAL
        found.append(Symptom("hot-core", severity, since, text, (quote,), cpu))
    return found


def _longest_run(own: Rows) -> tuple[float, int, int]:
    """The longest stretch of a core's seconds in the kernel: its length, begin and end (wall)."""
    order = np.argsort(own.wall)
    shares = own.sums(KERNEL_STATES)[order] / 1000
    spans = own.numbers("span_ms")[order] / 1000
    walls = own.wall[order]
    best = (0.0, 0, 0)
    length, since = 0.0, 0
    for share, span, wall in zip(shares.tolist(), spans.tolist(), walls.tolist(), strict=True):
        if share < HOT:
            length = 0.0
            continue
        since = since if length else wall
        length += span
        if length > best[0]:
            best = (length, since, wall + round(span * NANOS))
    return best


def _starved_softirqs(case: Case) -> list[Symptom]:
    rows = case.now("threads")
    found = []
    for wall, comm, cpu, waited in rows.listed("wall", "comm", "cpu", "wait_ns"):
        if comm.startswith("ksoftirqd/") and waited > KSOFTIRQD_WAIT_S * NANOS:
            quote = Evidence("threads", "wait_ns", "max", waited, wall, wall + 1, cpu, (("comm", comm),), unit="ns")
            text = _text("ksoftirqd", comm=comm, waited=waited / NANOS, cpu=cpu)
            found.append(Symptom("ksoftirqd", Severity.CRITICAL, wall, text, (quote,), cpu))
    return found[:4]


def _stolen(case: Case) -> list[Symptom]:
    share, cpu, at = case.core_share(("steal",))
    if share < STOLEN or cpu is None:
        return []
    text = _text("steal", share=share, cpu=cpu)
    return [Symptom("steal", Severity.WARNING, at, text, (quote_core("steal", share, cpu, at),), cpu)]


def _waiting(case: Case) -> list[Symptom]:
    """Cores that threads had to wait for, much more than before."""
    now, before = waits_of_cores(case.now("cpu")), waits_of_cores(case.before("cpu"))
    if not now:
        return []
    cpu = max(now, key=lambda each: now[each] - before.get(each, 0.0))
    usual = before.get(cpu, 0.0)
    if now[cpu] < WAITING or now[cpu] < WAITING_RISE * usual:
        return []
    others = [waited for core, waited in now.items() if core != cpu]
    if others and now[cpu] < WAITING_RISE * float(np.median(others)):
        # Where threads wait for every core the node is overcommitted, and no single core is to blame.
        return []
    rows = case.now("cpu")
    rows = rows.where(rows.cpu == cpu)
    since, until = int(rows.wall.min()), int(rows.wall.max()) + 1
    quote = Evidence("cpu", "wait_ns", "sum", rows.total("wait_ns") or 0, since, until, cpu, unit="ns")
    text = _text("waiting", waited=now[cpu], cpu=cpu, before=usual)
    return [Symptom("waiting", Severity.WARNING, since, text, (quote,), cpu)]

"""Symptoms in a focus (kernel log lines, cores lost to the kernel, threads that had to wait), and impact: whether other
work suffers from what happens on a core, which turns a load into starvation."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from exhume.collect.sources.kmsg_signatures import STARVATION_KINDS
from exhume.diagnose import messages
from exhume.diagnose.catalogue import catalogue, thresholds
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import CORE_TAKEN, Load
from exhume.diagnose.evidence.quotes import log_lines, quote_core, quote_event
from exhume.diagnose.evidence.rows import Mask, Rows
from exhume.diagnose.evidence.samples import Names
from exhume.diagnose.facts.core_hogs import core_waits, find_core_hogs, softirq_waits, waits_of_cores
from exhume.model.clock import MILLIS, NANOS, Window
from exhume.model.finding import SYMPTOM_CODE, Evidence, Link, Role, Severity
from exhume.model.tables import INCIDENT, KERNEL_STATES, is_held

_ORDER = ("log", "hot-core", "ksoftirqd", "steal", "waiting")
_WAITS = ("ksoftirqd", "waiting")
_NO_MORE = Names.of(())


@dataclass(frozen=True, slots=True)
class Symptom:
    """One symptom. `cpu` is the core it points to, if any; `span` is the time in which it arose (wall nanoseconds,
    half-open); `event` is the kind of its log line."""

    kind: str
    severity: Severity
    at: int
    text: str
    evidence: tuple[Evidence, ...] = ()
    cpu: int | None = None
    span: tuple[int, int] = (0, 0)
    event: str = ""

    @property
    def link(self) -> Link:
        return Link(Role.SYMPTOM, self.at, self.text, self.evidence, f"{SYMPTOM_CODE}{self.kind}")


def _limit(name: str) -> float:
    return float(thresholds("symptoms")[name])


def _symptom(  # noqa: PLR0917
    kind: str, severity: Severity, at: int, span: Window, quotes: Iterable[Evidence], cpu: int | None, **values: object
) -> Symptom:
    text = messages.render(f"{SYMPTOM_CODE}{kind}", {"cpu": cpu, **values})
    return Symptom(kind, severity, at, text, tuple(quotes), cpu, (span.since, span.until))


def find_symptoms(case: Case) -> list[Symptom]:
    """Find all symptoms of a focus, the most severe first."""
    if case.symptoms is None:
        found = [*_log_lines(case), *_hot_cores(case), *_starved_softirqs(case), *_stolen(case), *_waiting(case)]
        found.sort(key=lambda symptom: (-symptom.severity.rank, _ORDER.index(symptom.kind), symptom.at))
        case.symptoms = found
    return case.symptoms


def _log_lines(case: Case) -> list[Symptom]:
    found: dict[tuple[str, int | None], Symptom] = {}
    for event in log_lines(case, tuple(STARVATION_KINDS)):
        if event.kind == INCIDENT:
            continue
        cpu, queue = event.cpu, None
        if cpu is None and event.queue is not None:
            queue = _quote_queue(case, event.device, event.queue)
            cpu = queue.cpu if queue is not None else None
        # The kernel warns of some conditions long before work is starved.
        severity = Severity.CRITICAL if event.severity == "critical" else Severity.WARNING
        quotes = [quote_event(event), *([queue] if queue else [])]
        queue_cpu = cpu if queue else None
        # Empty if the line comes before the focus: nothing in the focus caused it then.
        span = Window(event.wall - round(_limit("logged_s") * NANOS), event.wall + NANOS).clamp(case.focus)
        symptom = _symptom("log", severity, event.wall, span, quotes, cpu, line=event.text, queue_cpu=queue_cpu)
        found.setdefault((event.kind, event.queue), replace(symptom, event=event.kind))
    return list(found.values())


def _quote_queue(case: Case, device: str | None, queue: int) -> Evidence | None:
    """The core that served a NIC queue's interrupts, from the interrupt counts near the focus."""
    rows = case.recorded("interrupts", case.focus.seconds + 120)
    rows = rows.where(rows.numbers("queue") == queue)
    match = [("queue", str(queue))]
    named = rows.texts("device") == device
    if device is not None and named.any():
        rows = rows.where(named)
        match.append(("device", device))
    if not len(rows):
        return None
    counts = np.bincount(rows.cpu, rows.numbers("count"))
    cpu = int(np.argmax(counts))
    return Evidence("interrupts", "count", "sum", float(counts[cpu]), *rows.span, cpu, tuple(match))


def _hot_cores(case: Case) -> list[Symptom]:
    rows = case.now("cpu")
    found = []
    for cpu in np.unique(rows.cpu[_held(rows)]).tolist():
        own = rows.on(cpu)
        seconds, since, until = _longest_run(own)
        if seconds < _limit("hot_s"):
            continue
        span = Window(since, until)
        inside = own.within(span)
        column = max(KERNEL_STATES, key=lambda state: inside.total(state) or 0)
        quote = Evidence("cpu", column, "max", inside.highest(column) or 0, since, until, cpu, unit="permille")
        share = float(inside.sums(KERNEL_STATES).mean()) / 1000
        # Reading files or serving a network doesn't starve other work by itself.
        here = case.samples.within(span) & (case.samples.cpu == cpu)
        usual = is_ordinary(case, here) or is_by_design(case, here) or _many_use_files(case, here)
        severity = Severity.INFO if usual else Severity.CRITICAL
        found.append(_symptom("hot-core", severity, since, span, [quote], cpu, seconds=seconds, share=share))
    return found


def _many_use_files(case: Case, mask: Mask) -> bool:
    """Whether most of the masked kernel time went to files, by many processes of which none held the core: a build, an
    unpacking, a backup."""
    walking = catalogue()["unknown-kernel-path"].group("walking")
    among = mask & case.samples.in_kernel
    return is_ordinary(case, mask, walking) and not find_core_hogs(case, seconds=_limit("hot_s"), among=among)


def _held(rows: Rows) -> Mask:
    """The core-seconds in which the kernel took what the hypervisor left of the core."""
    held: Mask = is_held(rows.sums(KERNEL_STATES), rows.numbers("steal"))
    return held


def _longest_run(own: Rows) -> tuple[float, int, int]:
    """The longest stretch of seconds in which the kernel held the core: its length in seconds, begin and end (wall)."""
    held, spans = _held(own), own.numbers("span_ms") / 1000
    best = (0.0, 0, 0)
    length, since = 0.0, 0
    for i in np.argsort(own.wall).tolist():
        wall, span = int(own.wall[i]), float(spans[i])
        if not held[i]:
            length = 0.0
            continue
        since = since if length else wall
        length += span
        if length > best[0]:
            best = (length, since, wall + round(span * NANOS))
    return best


def _starved_softirqs(case: Case) -> list[Symptom]:
    """The ksoftirqds that waited long: critical if one stood still, a warning if it was late by taking turns."""
    found = []
    for each in softirq_waits(case):
        if each.waited > _limit("ksoftirqd_wait_s") * NANOS:
            severity = Severity.CRITICAL if each.turns is None else Severity.WARNING
            # A wait is counted in the second in which it ends.
            span = Window(each.wall - each.waited, each.wall + NANOS)
            mean = None if each.turns is None else each.waited / each.turns / MILLIS
            values = {"comm": each.comm, "waited": each.waited / NANOS, "turns": each.turns, "each": mean}
            quotes = [quote for quote in (each.evidence, each.evidence_of_turns) if quote is not None]
            found.append(_symptom("ksoftirqd", severity, each.wall, span, quotes, each.cpu, **values))
    return sorted(found, key=lambda symptom: -symptom.severity.rank)[:4]


def _stolen(case: Case) -> list[Symptom]:
    share, cpu, at = case.core_share(("steal",))
    if share < _limit("stolen") or cpu is None:
        return []
    span, quote = Window(at, at + NANOS), quote_core("steal", share, cpu, at)
    return [_symptom("steal", Severity.WARNING, at, span, [quote], cpu, share=share)]


def _waiting(case: Case) -> list[Symptom]:
    """The core that threads had to wait for much more than before."""
    now, before = waits_of_cores(case.now("cpu")), waits_of_cores(case.before("cpu"))
    if not now:
        return []
    cpu = max(now, key=lambda each: now[each] - before.get(each, 0.0))
    waits, rise = core_waits(case, cpu), _limit("waiting_rise")
    if waits is None or waits.now < max(_limit("waiting"), rise * waits.before):
        return []
    if waits.elsewhere is not None and waits.now < rise * waits.elsewhere:
        # If threads wait for every core, the node is overcommitted and no single core is to blame.
        return []
    at, values = waits.evidence.since, {"waited": waits.now, "before": waits.before}
    return [_symptom("waiting", Severity.WARNING, at, case.focus, [waits.evidence], cpu, **values)]


def is_by_design(case: Case, mask: Mask) -> bool:
    """Whether most of the masked kernel time went to work that is meant to fill a core, for example checking disks."""
    unknown = catalogue()["unknown-kernel-path"]
    return _is_mostly(case, mask, case.samples.holding(unknown.group("by_design")))


def is_ordinary(case: Case, mask: Mask, more: Names = _NO_MORE, *, to_itself: bool = False) -> bool:
    """Whether most of the masked kernel time went to ordinary system calls, or to the functions in `more`. `to_itself`
    includes packets that a node sends to itself, whose softirqs run in the sender's own call."""
    unknown, samples = catalogue()["unknown-kernel-path"], case.samples
    aside = ~samples.holding(_outweighing())
    if to_itself:
        aside |= samples.holding(unknown.group("to_itself"))
    return _is_mostly(case, mask, (samples.holding(unknown.group("ordinary")) | samples.holding(more)) & aside)


def _is_mostly(case: Case, mask: Mask, part: Mask) -> bool:
    chosen = mask & case.samples.in_kernel
    total = case.samples.time(chosen)
    least = catalogue()["unknown-kernel-path"].limit("ordinary_part")
    return case.has_stacks and total > 0 and case.samples.time(chosen & part) >= least * total


@cache
def _outweighing() -> Names:
    return Names.of(name for cause in catalogue().values() if cause.outweighs_ordinary for name in cause.functions)


def is_made_by(case: Case, symptom: Symptom, mask: Mask, states: Collection[str] = ()) -> bool:
    """Whether a symptom was caused by the masked samples or, if there are none, by these states of the core: they ran
    on the symptom's core during its span. A log line that points to no core may be caused by anything that took most of
    a second of any core before the line. A core that the kernel held for seconds is not the work of one of them."""
    samples, span = case.samples, Window(*symptom.span)
    if symptom.cpu is None:
        if mask.any():
            here = mask & samples.within(span)
            cpus, walls, weights = samples.cpu[here], samples.wall[here], samples.weight[here] / 1e6
        else:
            rows = case.now("cpu").within(span)
            cpus, walls, weights = rows.cpu, rows.wall, rows.sums(tuple(states)) / 1000 * rows.numbers("span_ms") / 1000
        places = cpus * (span.nanos // NANOS + 1) + (walls - span.since) // NANOS
        return bool(np.bincount(places, weights).max(initial=0.0) >= _limit("made_second"))
    if symptom.kind == "steal":
        return "steal" in states
    if mask.any():
        here = samples.within(span) & (samples.cpu == symptom.cpu)
        walls, weights, total = samples.wall[here & mask], samples.weight[here & mask] / 1e6, samples.time(here) / 1e6
    elif states:
        rows = case.now("cpu").on(symptom.cpu).within(span)
        spans = rows.numbers("span_ms") / 1000
        walls, weights = rows.wall, rows.sums(tuple(states)) / 1000 * spans
        total = float((spans * (1 - rows.sums(("idle", "iowait")) / 1000)).sum())
    else:
        return False
    if not len(walls):
        return False
    if float(weights.sum()) >= _limit("made_part") * total:
        return True
    fullest = float(np.bincount((walls - span.since) // NANOS, weights).max())
    return symptom.kind != "hot-core" and fullest >= _limit("made_second")


def _pointing_to(case: Case, cpu: int | None, mask: Mask | None) -> list[Symptom]:
    """The symptoms that point to a core or to none in particular, or all of them if no core is given. With a mask, only
    those caused by the masked samples."""
    near = [each for each in find_symptoms(case) if cpu is None or each.cpu in (None, cpu)]
    return near if mask is None else [each for each in near if is_made_by(case, each, mask)]


def has_symptom(case: Case, cpu: int | None, mask: Mask | None = None) -> bool:
    """Whether a critical symptom (a log line, a core lost to the kernel, a starved ksoftirqd) points to this core and,
    with a mask, was caused by these samples."""
    return any(each.severity is Severity.CRITICAL for each in _pointing_to(case, cpu, mask))


def hurts_others(case: Case, cpu: int | None, mask: Mask | None = None) -> bool:
    """Whether other work is known to suffer from what happens on this core: its ksoftirqd stood still, its threads
    waited, or a critical log line points to it. A busy core is not enough, nor is a log line that is only a warning,
    nor a ksoftirqd that gets its turns."""
    return bool(_harm(case, cpu, mask))


def waits_in_turn(case: Case, cpu: int | None, mask: Mask | None = None) -> bool:
    """Whether the work that suffers only waited while threads queued for every core, which any work makes it do."""
    harm = _harm(case, cpu, mask)
    return all(each.kind in _WAITS and case.queue_in(Window(*each.span)) >= 1 for each in harm)


def _harm(case: Case, cpu: int | None, mask: Mask | None) -> list[Symptom]:
    near = _pointing_to(case, cpu, mask)
    grave = {("log", Severity.CRITICAL), ("ksoftirqd", Severity.CRITICAL)}
    return [each for each in near if each.kind == "waiting" or (each.kind, each.severity) in grave]


def severity_of(case: Case, load: Load) -> Severity:
    """The severity of a load. A load that takes one core and has symptoms is critical, regardless of the number of
    cores. A load that is spread over the node or migrates counts by its share of the node, or by what one process
    spends on it."""
    spread, long = load.cores / case.cores, _limit("critical_s")
    owned = load.cores * load.owner.part if load.owner is not None else 0.0
    critical = load.core_s >= long or (load.taken_s >= long and spread >= _limit("much_of_the_node"))
    if critical and has_symptom(case, load.cpu if load.core_s >= long else None, load.mask):
        return Severity.CRITICAL
    if load.core_s >= _limit("warning_s") or owned >= CORE_TAKEN or spread >= _limit("some_of_the_node"):
        return Severity.WARNING
    return Severity.INFO


def severity_on_core(case: Case, load: Load) -> Severity:
    """The severity of a load; a load that is most of its core's kernel time is as severe as all of that time."""
    alone = severity_of(case, load)
    if load.cpu is None:
        return alone
    whole = case.load_of(case.samples.in_kernel, cpus=[load.cpu])
    if case.load_of(load.mask, cpus=[load.cpu]).cores < _limit("most_of_the_core") * whole.cores:
        return alone
    return max(alone, severity_of(case, whole), key=lambda severity: severity.rank)

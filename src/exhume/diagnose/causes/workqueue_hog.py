"""A work item of the kernel keeps a worker on one core for long."""

from dataclasses import replace

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.impact import hurts_others
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_load
from exhume.diagnose.evidence.samples import Names
from exhume.diagnose.symptoms import LOG_SLACK_NS
from exhume.model.clock import NANOS
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity
from exhume.model.window import Window
from exhume.store.read.events import EventView

CAUSE = catalogue()["workqueue-hog"]


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    lines = _lines(case)
    work = _busiest(case)
    if work is None or work[1].core_s < CAUSE.limit("seconds"):
        share = 0.0 if work is None else work[1].peak
        named = next((line for line in lines if work is not None and line.comm == work[0]), None)
        if lines and (not case.has_stacks or named is not None or share >= CAUSE.limit("supported")):
            return _told(builder, case, named or lines[0], work)
        return builder.rule_out(f"no work item took more than {share:.0%} of a core, and not for long")
    function, load = work
    before = "" if load.before is None else f" ({load.before:.2f} cores before, {load.cores:.2f} now)"
    builder.add(
        Role.MECHANISM,
        f"a worker of the kernel ran {function} on core {load.cpu} for {load.core_s:.0f} s{before}",
        quote_load(case, load, (function,)),
        strength=CAUSE.limit("strong"),
        at=load.at,
    )
    if not load.is_new:
        builder.doubt("it was like that before as well", CAUSE.limit("not_new_factor"))
    told = [line for line in lines if line.comm in (None, function)]
    for line in told[:1]:
        builder.add(
            Role.SYMPTOM, f"the kernel says so itself: {line.text}", _quoted(line), strength=CAUSE.limit("line")
        )
    severity = Severity.INFO
    if load.is_new or told:
        severity = Severity.CRITICAL if told or hurts_others(case, load.cpu) else Severity.WARNING
    summary = f"the work item {function} keeps core {load.cpu}, and other work of that core waits behind it"
    return builder.found(
        severity,
        summary,
        culprit=case.culprit(load, function),
        load=load,
        remedies=aim(CAUSE.remedies, function),
    )


def _busiest(case: Case) -> tuple[str, Load] | None:
    """The work function that took most time, and its load."""
    if not case.has_stacks:
        return None
    sampled = case.samples
    working = sampled.holding(CAUSE.names)
    functions = sampled.callees(working & sampled.within(case.focus), CAUSE.names)
    if not functions:
        return None
    function = functions[0][0]
    return function, case.load_of(working & sampled.holding(Names.of([function])))


def _told(builder: EvidenceBuilder, case: Case, line: EventView, work: tuple[str, Load] | None) -> Found:
    """The log speaks of a hog; the stacks don't show it, or show less than a core."""
    text = f"the kernel says: {line.text}"
    builder.add(Role.MECHANISM, text, _quoted(line), strength=CAUSE.limit("line"))
    function = line.comm or (work[0] if work else None)
    load = work[1] if work is not None else None
    if load is not None and work is not None:
        builder.add(
            Role.CULPRIT, f"workers had {load.peak:.0%} of a core", quote_load(case, load, (work[0],)), at=load.at
        )
    culprit = Culprit(function=function) if load is None else replace(case.culprit(load), function=function)
    # The kernel tells a few hundredths of a second; a lockup is half a minute.
    severity = Severity.CRITICAL if line.severity == "critical" else Severity.INFO
    summary = f"the work item {function or '(not named)'} held a worker for long, by the kernel's own count"
    return builder.found(severity, summary, culprit=culprit, weight=1.0, remedies=aim(CAUSE.remedies, function or "it"))


def _lines(case: Case) -> list[EventView]:
    near = Window(case.focus.since - 2 * NANOS, case.focus.until + LOG_SLACK_NS)
    return [event for event in case.recording.events(near) if event.kind in CAUSE.log]


def _quoted(line: EventView) -> Evidence:
    return Evidence("events", "text", "first", line.text, line.wall, line.wall + 1, match=(("kind", line.kind),))

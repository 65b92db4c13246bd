"""A work item of the kernel keeps a worker on one core for long."""

from dataclasses import replace

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.impact import hurts_others
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import log_lines, quote_event, quote_load
from exhume.diagnose.evidence.samples import Names
from exhume.model.finding import Culprit, Role, RuledOut, Severity
from exhume.store.read.events import EventView

CAUSE = catalogue()["workqueue-hog"]


@examines(CAUSE)
def workqueue_hog(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    lines = log_lines(case, CAUSE.log)
    work = _busiest(case)
    if work is None or work[1].core_s < CAUSE.limit("seconds"):
        share = 0.0 if work is None else work[1].peak
        named = next((line for line in lines if work is not None and line.comm == work[0]), None)
        if lines and (not case.has_stacks or named is not None or share >= CAUSE.limit("supported")):
            return _logged(builder, case, named or lines[0], work)
        return builder.rule_out("share", share=share)
    function, load = work
    builder.add(
        Role.MECHANISM,
        "work",
        quote_load(case, load, (function,)),
        strength="strong",
        at=load.at,
        function=function,
        cpu=load.cpu,
        seconds=load.core_s,
        before=load.before,
        cores=load.cores,
    )
    if not load.is_new:
        builder.doubt("not-new", "not_new_factor")
    own = [line for line in lines if line.comm in (None, function)]
    for line in own[:1]:
        builder.add(Role.SYMPTOM, "log", quote_event(line), strength="line", line=line.text)
    severity = Severity.INFO
    if load.is_new or own:
        severity = Severity.CRITICAL if own or hurts_others(case, load.cpu) else Severity.WARNING
    return builder.found(
        severity,
        "summary",
        culprit=case.culprit(load, function),
        load=load,
        remedies=aim(CAUSE.remedies, function),
        function=function,
        cpu=load.cpu,
    )


def _busiest(case: Case) -> tuple[str, Load] | None:
    """The work function that took most time, and its load."""
    if not case.has_stacks:
        return None
    samples = case.samples
    working = samples.holding(CAUSE.names)
    functions = samples.callees(working & samples.within(case.focus), CAUSE.names)
    if not functions:
        return None
    function = functions[0][0]
    return function, case.load_of(working & samples.holding(Names.of([function])))


def _logged(builder: EvidenceBuilder, case: Case, line: EventView, work: tuple[str, Load] | None) -> Found:
    """The log reports a hog; the stacks don't show it, or show less than a core."""
    builder.add(Role.MECHANISM, "log", quote_event(line), strength="line", line=line.text)
    function = line.comm or (work[0] if work else None)
    load = work[1] if work is not None else None
    if load is not None and work is not None:
        quote = quote_load(case, load, (work[0],))
        builder.add(Role.CULPRIT, "workers", quote, at=load.at, peak=load.peak)
    culprit = Culprit(function=function) if load is None else replace(case.culprit(load), function=function)
    # The kernel reports hogs of some hundredths of a second; a lockup is half a minute.
    severity = Severity.CRITICAL if line.severity == "critical" else Severity.INFO
    remedies = aim(CAUSE.remedies, function or "it")
    return builder.found(severity, "summary-logged", culprit=culprit, weight=1.0, remedies=remedies, function=function)

"""The views of a diagnosis and of a checkup: the texts shared by terminal, page and JSON, and the JSON itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo
from itertools import accumulate
from typing import Any

from exhume.model.clock import NANOS, Window
from exhume.model.facts import MissingSource
from exhume.model.finding import (
    ACCOUNTING_VERSION,
    CHECKUP_VERSION,
    DIAGNOSIS_VERSION,
    Accounting,
    Check,
    Diagnosis,
    Evidence,
    Finding,
    JobFailure,
    Level,
    Link,
    Remedy,
    Role,
    RuledOut,
    Scope,
    Severity,
    TimeKind,
    TimeRow,
    Verdict,
)
from exhume.model.text import count, duration, percent
from exhume.model.times import format_clock, format_day, format_offset
from exhume.present.events_view import visible
from exhume.present.serializer import Shape, Shapes, to_json

ROLE_LABELS = {role: role.value.replace("_", " ") for role in Role}
# The lower bound of each confidence label.
_CONFIDENCES = ((0.9, "almost certain"), (0.75, "likely"), (0.5, "plausible"), (0.0, "possible"))
_VERDICTS = {
    Verdict.STARVED: "work was starved",
    Verdict.DEGRADED: "work was slowed",
    Verdict.HEALTHY: "nothing starved or slowed this node",
    Verdict.UNKNOWN: "too little was recorded to tell",
}
_OF_SEVERITY = {Severity.CRITICAL: Level.BAD, Severity.WARNING: Level.LOOK, Severity.INFO: Level.WELL}
_OF_VERDICT = {Verdict.STARVED: Level.BAD, Verdict.DEGRADED: Level.LOOK}
FUNCTIONS_WIDTH = 40
LONGEST_QUOTE = 160
LONG_NS = 2 * NANOS
# Shorter waits are not worth a table.
LEAST_WAITING_S = 0.1


def verdict_text(diagnosis: Diagnosis) -> str:
    """The verdict in a sentence."""
    severe = [finding for finding in diagnosis.findings if finding.severity is not Severity.INFO]
    if severe and severe[0].scope is Scope.WORKLOAD:
        # The verdict is about the node: time that no finding explains is not necessarily caused by the workload.
        return f"{_VERDICTS[diagnosis.verdict]}{_unexplained(diagnosis)}; {visible(severe[0].summary)}"
    if severe:
        return visible(severe[0].summary)
    return f"{_VERDICTS[diagnosis.verdict]}{_unexplained(diagnosis)}"


def _unexplained(diagnosis: Diagnosis) -> str:
    return ", and no known cause accounts for it" if diagnosis.verdict in _OF_VERDICT else ""


def remedy_cost_text(remedy: Remedy) -> str:
    """What a remedy may cost: `medium risk, can be undone`."""
    if remedy.read_only:
        return "changes nothing"
    return f"{remedy.risk} risk, {'can be undone' if remedy.reversible else 'cannot be undone'}"


def confidence_text(confidence: float) -> str:
    """The label of a confidence: `almost certain`."""
    return next(word for least, word in _CONFIDENCES if confidence >= least)


def span_text(window: Window, zone: tzinfo | None) -> str:
    """A time span as text: `2026-03-01 03:14:07 – 03:14:13 UTC`; the end has a date only if it is on another day."""
    if window.empty:
        return "none"
    write = format_clock if window.nanos >= LONG_NS else clock_text
    begin, end = write(window.since, zone), write(window.until, zone)
    days = [format_day(moment, zone) for moment in (window.since, window.until)]
    end = end if days[0] == days[1] else f"{days[1]} {end}"
    return f"{days[0]} {begin} – {end} {format_offset(window.since, zone)}"


def clock_text(moment: int, zone: tzinfo | None) -> str:
    """A time of day, with milliseconds unless it is a whole second."""
    return format_clock(moment, zone, digits=3 if moment % NANOS >= NANOS // 1000 else 0)


def focus_text(diagnosis: Diagnosis, zone: tzinfo | None) -> str:
    """The part of the requested window that the findings are about, and the baseline it was compared with."""
    window, focus, baseline = (Window(*each) for each in (diagnosis.window, diagnosis.focus, diagnosis.baseline))
    text = span_text(focus, zone)
    # No-break spaces keep a duration on one line.
    lengths = [duration(each.nanos).replace(" ", "\u00a0") for each in (focus, window, baseline)]
    if focus != window:
        text += f" ({lengths[0]} that stand out of {lengths[1]})"
    if baseline.empty:
        return f"{text}, no baseline: there is no calm time near it"
    return f"{text}, baseline: {lengths[2]} of calm from {format_clock(baseline.since, zone)} on"


def failure_text(failure: JobFailure, zone: tzinfo | None) -> str:
    """`03:14:41 job-failed: train-7: NCCL timeout (34 s after user-hog began)`."""
    after = duration(round(failure.after_s) * NANOS)
    return (
        f"{clock_text(failure.at, zone)} {failure.kind}: {visible(failure.text)} ({after} after {failure.cause} began)"
    )


def time_lines(accounting: Accounting) -> list[tuple[str, str, Sequence[TimeRow]]]:
    """The tables of where the time went, one line per breakdown: its subject, its kind, and its rows."""
    cpu, waiting = accounting.cpu, accounting.waiting
    lines = [
        (f"{cpu.total_s:,.1f} core-seconds", "", cpu.by_state),
        ("", "by cause", cpu.by_cause if any(row.kind is TimeKind.CAUSE for row in cpu.by_cause) else ()),
        ("", "by owner", cpu.by_owner),
    ]
    if waiting.total_s >= LEAST_WAITING_S:
        about = "about " if accounting.estimated else ""
        lines += [
            (f"{about}{waiting.total_s:,.1f} s of waiting", "", waiting.by_state),
            ("", "by cause", waiting.by_cause),
            ("", "by owner", waiting.by_owner),
        ]
    return [line for line in lines if line[2]]


def time_text(row: TimeRow) -> str:
    """One row of a breakdown, in a few characters: `user 65%`."""
    name = row.id if row.kind is TimeKind.CAUSE else row.name
    return f"{visible(name)} {percent(row.share, 0) if row.share >= 0.005 else '<1%'}"


def value_text(evidence: Evidence) -> str:
    """A value with its unit, formatted for people."""
    value, unit = evidence.value, evidence.unit
    if isinstance(value, str):
        return f"“{shortened(visible(value), LONGEST_QUOTE)}”"
    if evidence.how == "share":
        return percent(value, 0 if value >= 0.1 else 1)
    if unit == "permille":
        return percent(value / 1000, 0)
    if unit == "ns":
        return duration(round(value))
    if unit == "us":
        return duration(round(value * 1000))
    number = f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:,.2f}"
    return f"{number} {unit}".rstrip()


def where_text(evidence: Evidence, zone: tzinfo | None) -> str:
    """Where to find a value: column, aggregation, core, any other row filters, times."""
    taken = {
        "share": "share of the core's time" if evidence.cpu is not None else "share of all cores' time",
        "count": "number of rows",
    }.get(evidence.how, f"{evidence.how} of {evidence.column}")
    return ", ".join([taken, *_narrowed(evidence), _times(evidence, zone)])


def evidence_parts(evidence: Evidence, zone: tzinfo | None, *, quoted: str = "") -> list[str]:
    """One piece of evidence, in parts that belong on a line. Text that is already in `quoted` is not repeated."""
    how, value, column = evidence.how, evidence.value, f"{evidence.table}.{evidence.column}"
    single = how in ("first", "last") and isinstance(value, str)
    subjects = {"share": evidence.table, "count": f"{evidence.table}, rows:"}
    what = subjects.get(how, column if single else f"{column} {how}")
    if not (isinstance(value, str) and value and visible(value) in quoted):
        what += f" {value_text(evidence)}"
    return [what, *_narrowed(evidence), _times(evidence, zone, rounded=True)]


def _narrowed(evidence: Evidence) -> list[str]:
    parts = []
    if evidence.functions:
        # Only as many function names as can be read at a glance, but at least one.
        lengths = accumulate(map(len, evidence.functions))
        shown = max(1, sum(length <= FUNCTIONS_WIDTH for length in lengths))
        more = len(evidence.functions) - shown
        parts.append(f"stacks with {', '.join(evidence.functions[:shown])}" + (f" or {more} more" if more > 0 else ""))
    if evidence.cpu is not None:
        parts.append(f"core {evidence.cpu}")
    return parts + [f"{column} = {visible(text)}" if text else f"{column} empty" for column, text in evidence.match]


def _times(evidence: Evidence, zone: tzinfo | None, *, rounded: bool = False) -> str:
    """The time range of a value. Long ranges are shown without milliseconds; `where` has the exact times."""
    since, until = evidence.since, evidence.until
    if rounded and until - since >= LONG_NS:
        return f"{format_clock(since, zone)}–{format_clock(until, zone)}"
    # A single row is identified by the nanosecond at which it begins.
    if until - since <= NANOS // 1000:
        return f"at {clock_text(since, zone)}"
    return f"{clock_text(since, zone)}–{clock_text(until, zone)}"


def shortened(text: str, width: int) -> str:
    """A text on one line, cut to `width` characters."""
    return text if len(text) <= width else text[: max(1, width - 1)].rstrip() + "…"


def diagnosis_json(diagnosis: Diagnosis, zone: tzinfo | None, *, millis: bool = False) -> dict[str, Any]:
    """The documented shape of `exhume diagnose --json`. With `millis`, as the page and the HTML report need it, every
    time is also given in milliseconds."""
    found: dict[str, Any] = to_json(diagnosis, zone, _SHAPES, millis=millis)
    return {"version": DIAGNOSIS_VERSION, **found}


def _diagnosis_keys(diagnosis: Diagnosis, _: tzinfo | None) -> dict[str, Any]:
    baseline = Window(*diagnosis.baseline)
    return {
        "window": Window(*diagnosis.window),
        "focus": Window(*diagnosis.focus),
        "baseline": None if baseline.empty else baseline,
        "sentence": verdict_text(diagnosis),
        "blind_spots": [spot.text for spot in diagnosis.blind_spots],
    }


_SHAPES: Shapes = {
    Diagnosis: Shape(add=_diagnosis_keys),
    Finding: Shape(
        add=lambda finding, _: {
            "why_not_sure": [doubt.text for doubt in finding.doubts],
            "doubts": [doubt.code for doubt in finding.doubts],
            "focus": Window(*finding.focus),
        }
    ),
    Accounting: Shape(
        omit=("text",), add=lambda accounting, _: {"version": ACCOUNTING_VERSION, "sentence": accounting.text}
    ),
    Link: Shape(omit=("entities",)),
    Evidence: Shape(
        add=lambda evidence, zone: {"where": where_text(evidence, zone), "match": dict(evidence.match)},
    ),
    Remedy: Shape(
        omit=("template", "names_target"),
        add=lambda remedy, _: {
            "fix_target": remedy.fix_target,
            "command": remedy.command,
            "cost": remedy_cost_text(remedy),
        },
    ),
    RuledOut: Shape(add=lambda reason, _: {"values": dict(reason.values)}),
}


@dataclass(frozen=True, slots=True)
class Checkup:
    """The result of `exhume doctor`. `looked_s` is how long it sampled; `missing` are the unavailable sources."""

    node: str
    looked_s: float
    checks: Sequence[Check]
    diagnosis: Diagnosis
    missing: Sequence[MissingSource] = ()

    @property
    def level(self) -> Level:
        """The most severe level of all checks; a check that could not run does not make a node unhealthy."""
        levels: list[Level] = [check.level for check in self.checks if check.level is not Level.UNSEEN]
        levels += [_OF_SEVERITY[finding.severity] for finding in self.diagnosis.findings]
        levels.append(_OF_VERDICT.get(self.diagnosis.verdict, Level.WELL))
        return max(levels, key=lambda level: level.rank)

    @property
    def sentence(self) -> str:
        """The verdict in a sentence."""
        if self.diagnosis.verdict in _OF_VERDICT or any(f.severity != Severity.INFO for f in self.diagnosis.findings):
            return verdict_text(self.diagnosis)
        if self.level is Level.WELL:
            seen = sum(check.level is not Level.UNSEEN for check in self.checks)
            return f"{count(seen, 'check')} and {self.looked_s:.0f} s of sampling found nothing wrong"
        worst = [check for check in self.checks if check.level is self.level]
        worst.sort(key=lambda check: check.scope is Scope.WORKLOAD)
        return f"{worst[0].title}: {worst[0].value}" + (f", and {len(worst) - 1} more" if len(worst) > 1 else "")


def checkup_json(checkup: Checkup, zone: tzinfo | None) -> dict[str, Any]:
    """The documented shape of `exhume doctor --json`."""
    return {
        "version": CHECKUP_VERSION,
        "node": checkup.node,
        "verdict": str(checkup.level),
        "sentence": checkup.sentence,
        "looked_seconds": checkup.looked_s,
        "checks": to_json(checkup.checks, zone),
        "missing": to_json(checkup.missing, zone),
        "diagnosis": diagnosis_json(checkup.diagnosis, zone),
    }

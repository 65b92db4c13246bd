"""The view of a diagnosis: texts that the terminal, the page and the JSON share, and `exhume diagnose --json`."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import Any

from exhume.model.clock import NANOS, Window
from exhume.model.finding import (
    DIAGNOSIS_VERSION,
    Diagnosis,
    Evidence,
    Finding,
    Link,
    Remedy,
    Role,
    RuledOut,
    Severity,
    Verdict,
)
from exhume.model.text import duration, percent
from exhume.model.times import format_clock, format_day, format_offset
from exhume.present.events_view import visible
from exhume.present.serializer import Shape, Shapes, to_json

ROLE_LABELS = {
    Role.SYMPTOM: "symptom",
    Role.MECHANISM: "mechanism",
    Role.CULPRIT: "culprit",
    Role.ROOT_CAUSE: "root cause",
}
# What a confidence is called: the lowest number of each label.
_CONFIDENCES = ((0.9, "almost certain"), (0.75, "likely"), (0.5, "plausible"), (0.0, "possible"))
_VERDICTS = {
    Verdict.STARVED: "work was starved",
    Verdict.DEGRADED: "work was slowed",
    Verdict.HEALTHY: "nothing starved or slowed this node",
    Verdict.UNKNOWN: "too little was recorded to tell",
}
FUNCTIONS_WIDTH = 40
LONGEST_QUOTE = 160
LONG_NS = 2 * NANOS


def verdict_text(diagnosis: Diagnosis) -> str:
    """The answer in a sentence."""
    verdict = _VERDICTS[diagnosis.verdict]
    severe = [finding for finding in diagnosis.findings if finding.severity is not Severity.INFO]
    if severe:
        return visible(severe[0].summary)
    if diagnosis.verdict in (Verdict.STARVED, Verdict.DEGRADED):
        return f"{verdict}, and no known cause accounts for it"
    return verdict


def confidence_text(confidence: float) -> str:
    """`0.92, almost certain`."""
    return next(word for least, word in _CONFIDENCES if confidence >= least)


def span_text(window: Window, zone: tzinfo | None) -> str:
    """`2026-03-01 03:14:07 – 03:14:13 UTC`; the day is repeated where it is another."""
    if window.empty:
        return "none"
    write = format_clock if window.nanos >= LONG_NS else clock_text
    begin, end = write(window.since, zone), write(window.until, zone)
    days = [format_day(moment, zone) for moment in (window.since, window.until)]
    end = end if days[0] == days[1] else f"{days[1]} {end}"
    return f"{days[0]} {begin} – {end} {format_offset(window.since, zone)}"


def clock_text(moment: int, zone: tzinfo | None) -> str:
    """A time of day, to the millisecond where it isn't a whole second."""
    return format_clock(moment, zone, digits=3 if moment % NANOS >= NANOS // 1000 else 0)


def focus_text(diagnosis: Diagnosis, zone: tzinfo | None) -> str:
    """Which part of the requested window the findings are about, and the baseline that it was compared with."""
    window, focus, baseline = (Window(*each) for each in (diagnosis.window, diagnosis.focus, diagnosis.baseline))
    text = span_text(focus, zone)
    if focus != window:
        text += f" ({_together(duration(focus.nanos))} that stand out of {_together(duration(window.nanos))})"
    if baseline.empty:
        return f"{text}, no baseline: there is no calm time near it"
    return (
        f"{text}, baseline: {_together(duration(baseline.nanos))} of calm from {format_clock(baseline.since, zone)} on"
    )


def _together(text: str) -> str:
    """A text that is not broken at the end of a line."""
    return text.replace(" ", "\u00a0")


def value_text(evidence: Evidence) -> str:
    """A value with its unit, as people read it."""
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
    """Where a value is to be found: column, how it is taken together, core, what else narrows the rows, times."""
    return ", ".join([_taken(evidence), *_narrowed(evidence), _times(evidence, zone)])


def evidence_parts(evidence: Evidence, zone: tzinfo | None, *, quoted: str = "") -> list[str]:
    """One piece of evidence, in parts that belong on a line. A text that `quoted` has already is not repeated."""
    known = isinstance(evidence.value, str) and bool(evidence.value) and visible(evidence.value) in quoted
    what = _subject(evidence) if known else f"{_subject(evidence)} {value_text(evidence)}"
    return [what, *_narrowed(evidence), _times(evidence, zone, rounded=True)]


def _subject(evidence: Evidence) -> str:
    if evidence.how == "share":
        return evidence.table
    if evidence.how == "count":
        return f"{evidence.table}, rows:"
    if evidence.how in ("first", "last") and isinstance(evidence.value, str):
        return f"{evidence.table}.{evidence.column}"
    return f"{evidence.table}.{evidence.column} {evidence.how}"


def _taken(evidence: Evidence) -> str:
    if evidence.how == "share":
        return "share of the core's time" if evidence.cpu is not None else "share of all cores' time"
    if evidence.how == "count":
        return "number of rows"
    return f"{evidence.how} of {evidence.column}"


def _narrowed(evidence: Evidence) -> list[str]:
    said = []
    if evidence.functions:
        shown = _first_of(evidence.functions)
        more = len(evidence.functions) - len(shown)
        said.append(f"stacks with {', '.join(shown)}" + (f" or {more} more" if more > 0 else ""))
    if evidence.cpu is not None:
        said.append(f"core {evidence.cpu}")
    return said + [f"{column} = {visible(text)}" if text else f"{column} empty" for column, text in evidence.match]


def _first_of(functions: Sequence[str]) -> list[str]:
    """As many as are read at a glance, at least one."""
    shown: list[str] = []
    for name in functions:
        if shown and sum(map(len, shown)) + len(name) > FUNCTIONS_WIDTH:
            break
        shown.append(name)
    return shown


def _times(evidence: Evidence, zone: tzinfo | None, *, rounded: bool = False) -> str:
    """From when to when. A glance needs no milliseconds of a long stretch; `where` has them."""
    since, until = evidence.since, evidence.until
    if rounded and until - since >= LONG_NS:
        return f"{format_clock(since, zone)}–{format_clock(until, zone)}"
    # A row is named by the nanosecond in which it begins.
    if until - since <= NANOS // 1000:
        return f"at {clock_text(since, zone)}"
    return f"{clock_text(since, zone)}–{clock_text(until, zone)}"


def link_text(link: Link) -> str:
    return visible(link.text)


def doubt_text(finding: Finding) -> str:
    """Why the confidence isn't higher; nothing where nothing was said."""
    return "; ".join(visible(doubt.text) for doubt in finding.doubts)


def remedy_notes(risk: str, reversible: bool) -> str:
    """`low risk, can be undone`."""
    return f"{risk} risk, {'can be undone' if reversible else 'cannot be undone'}"


def shortened(text: str, width: int) -> str:
    """A text on one line of at most so many characters."""
    return text if len(text) <= width else text[: max(1, width - 1)].rstrip() + "…"


def diagnosis_json(diagnosis: Diagnosis, zone: tzinfo | None, *, millis: bool = False) -> dict[str, Any]:
    """The documented shape of `exhume diagnose --json`. With `millis`, as the page and the HTML report have it: every
    time is there as milliseconds too."""
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
        }
    ),
    Link: Shape(omit=("entities",)),
    Evidence: Shape(
        add=lambda evidence, zone: {"where": where_text(evidence, zone), "match": dict(evidence.match)},
    ),
    Remedy: Shape(
        omit=("template", "names_target"),
        add=lambda remedy, _: {"fix_target": remedy.fix_target, "command": remedy.command},
    ),
    RuledOut: Shape(add=lambda reason, _: {"values": dict(reason.values)}),
}

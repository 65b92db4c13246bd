"""The view of a fleet report: sentences and tables shared by the terminal and the page, and `exhume fleet report
--json`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from exhume.fleet.cohort.forecast import AtRisk, Forecast
from exhume.fleet.cohort.jobs import JobView
from exhume.fleet.cohort.onset import Change, Hazard, Onset
from exhume.fleet.cohort.separators import Condition, Separator
from exhume.fleet.report import Breakdown, CauseCount, FleetReport
from exhume.model.clock import NANOS
from exhume.model.finding import Estimate
from exhume.model.text import count, listed
from exhume.model.times import format_moment
from exhume.present.serializer import to_json

REPORT_VERSION = 1
# Attributes whose breakdown is always shown if their values differ between nodes.
SHOWN = ("zone", "image", "kernel", "instance_type", "pool", "nic.driver")
_SHOWN_VALUES, _SHOWN_NODES, _SHOWN_SEPARATORS = 4, 5, 5
# The event that a forecast predicts, as text.
_AHEAD = {"stall": "a core stalls", "nic-timeout": "the NIC is reset", "soft-lockup": "a soft lockup is logged"}


@dataclass(frozen=True, slots=True)
class Part:
    """A section of the report: sentences, and optionally a table (header first) with some columns aligned right."""

    title: str
    sentences: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    right: tuple[int, ...] = ()


def report_json(report: FleetReport, zone: tzinfo | None) -> dict[str, Any]:
    found: dict[str, Any] = to_json(report, zone)
    return {"version": REPORT_VERSION, "verdict": verdict(report), **_finite(found)}


def _finite(value: Any) -> Any:
    """A number that JSON can represent: an infinite bound becomes null. Rounded to six digits, because the last digits
    of a sum depend on the order of summation."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if abs(value) < float("inf") else None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list) else value


def verdict(report: FleetReport) -> str:
    """The verdict in a word: separated (an attribute sets sick nodes apart), clustered (no attribute does, and sick
    nodes come in clusters), scattered (no attribute does), at-risk, or healthy."""
    if report.separators:
        return "separated"
    if report.sick:
        return "clustered" if report.clusters else "scattered"
    return "at-risk" if report.at_risk else "healthy"


def headline(report: FleetReport) -> str:
    """The verdict in a sentence."""
    first, common = report.first, report.common
    if first is None:
        if not report.sick:
            return f"none of {count(report.nodes, 'node')} is sick"
        if report.clusters:
            by = report.clusters[0].key
            return f"{_of(report.sick, report.nodes)} nodes are sick, in clusters by {by} that no attribute explains"
        return f"{_of(report.sick, report.nodes)} nodes are sick, and no attribute sets them apart"
    what = common.cause if common is not None else "incidents"
    who = f" of {common.leaker}" if common is not None and common.leaker else ""
    return f"{what}{who} on {conditions_text(first.conditions)}: {_risk_text(first, 'have it')}"


def conditions_text(conditions: Sequence[Condition]) -> str:
    """`image ami-0b22 in zone b`, `kernel 6.1 and pool train`."""
    texts = [f"{each.key} {each.value}" for each in conditions]
    if len(conditions) == 2 and conditions[1].key == "zone":
        return " in ".join(texts)
    return " and ".join(texts)


def parts(report: FleetReport, zone: tzinfo | None, by: Sequence[str] = ()) -> Iterator[Part]:
    """The whole report in reading order; `by` are additional attributes to break down."""
    if report.common is not None:
        yield Part("what it is", tuple(_common(report.common, report)))
    steps = tuple(_steps(report))
    if steps:
        yield Part("what to do", steps)
    yield _separation(report)
    if report.hazard is not None:
        yield _hazard(report.hazard)
    began = tuple(_began(report.onset, report.changes, zone))
    if began:
        yield Part("when it began", began)
    if report.forecast is not None:
        yield _forecast(report.forecast, report.window.until, zone)
    if report.jobs is not None:
        yield Part("failed jobs", tuple(_jobs(report.jobs, zone)))
    for each in report.breakdowns:
        if each.key in by or (each.key in SHOWN and report.incidents):
            yield _breakdown(each, each.key in by)
    if report.blind_spots:
        yield Part("blind spots", report.blind_spots)


def subtitle(report: FleetReport, zone: tzinfo | None) -> str:
    since, until = (format_moment(each, zone, digits=0) for each in (report.window.since, report.window.until))
    return (
        f"{count(report.nodes, 'node')} · {_of(report.sick, report.nodes)} sick · "
        f"{count(report.incidents, 'incident')} · {since} to {until}"
    )


def _separation(report: FleetReport) -> Part:
    first = report.first
    tried = f"{count(report.tried, 'attribute or pair', 'attributes and pairs')} were compared"
    if first is None:
        nothing = f"Nothing that chance does not explain; {tried}."
        return Part("what sets sick nodes apart", (nothing, *_clusters(report)))
    have = f"have {first.cause}"
    sick = f"nodes that {have}" if first.cause else "sick nodes"
    sentences = [
        f"{_sentence(conditions_text(first.conditions))}: {_risk_text(first, have)}, {_ratio(first.risk_ratio)} as "
        f"likely; {first.coverage:.0%} of the {sick}. {_chance(first.q)}, after correction: {tried}.",
    ]
    given = [each for each in first.same_nodes if not any(one.is_state for one in each)]
    states = [each for each in first.same_nodes if any(one.is_state for one in each)]
    if given:
        named = "; or ".join(conditions_text(each) for each in given[:3])
        sentences.append(f"On this fleet it can't be distinguished from {named}.")
    if states:
        named = "; ".join(conditions_text(each) for each in states[:3])
        sentences.append(f"The same nodes have {named}. That may be how it comes about, or follow from it.")
    rows = [
        (
            conditions_text(each.conditions),
            f"{each.sick:,}/{each.nodes:,}",
            f"{each.other_sick:,}/{each.others:,}",
            _ratio(each.risk_ratio),
            "explained by it" if each.explained else "" if each.given_first is None else _ratio(each.given_first),
        )
        for each in report.separators[1 : _SHOWN_SEPARATORS + 1]
    ]
    return Part(
        "what sets sick nodes apart",
        tuple(sentences),
        ("attribute", "sick", "other nodes", "ratio", "given the first") if rows else (),
        tuple(rows),
        (1, 2, 3),
    )


def _clusters(report: FleetReport) -> Iterator[str]:
    for each in report.clusters:
        where = f"{each.coverage:.0%} of them are in {listed(each.sick, 4)}; " if each.sick else ""
        yield (
            f"Sick nodes come in clusters by {each.key}: {where}its {each.clusters:,} values differ "
            f"{each.spread:.0f} times as much as by chance, also without the sickest."
        )
    if report.unproven:
        named = listed([conditions_text((each,)) for each in report.unproven], 4)
        yield f"These go with the clusters, which are too few to tell whether by chance: {named}."


def _risk_text(separator: Separator, have: str) -> str:
    """How many nodes are sick, or have the separator's cause, with the attribute and without it."""
    one, other = separator.sick / max(1, separator.nodes), separator.other_sick / max(1, separator.others)
    return (
        f"{_of(separator.sick, separator.nodes)} nodes {have if separator.cause else 'are sick'} ({one:.0%}), against "
        f"{_of(separator.other_sick, separator.others)} others ({other:.1%})"
    )


def _common(common: CauseCount, report: FleetReport) -> Iterator[str]:
    concerned = report.first.sick if report.first is not None else report.sick
    found = f"The findings of {_of(common.nodes, max(concerned, common.nodes))} sick nodes say {common.cause}"
    named = []
    if common.leaker:
        named.append(f"{common.leaker} leaks on {common.leaker_nodes:,}")
    if common.culprit:
        named.append(f"{common.culprit} takes the CPU on {common.culprit_nodes:,}")
    if common.function:
        named.append(f"in {common.function}")
    lost = f"{count(common.incidents, 'incident')}, {common.lost_core_s:,.0f} core seconds lost"
    yield f"{'; '.join([found, ', '.join(named)] if named else [found])}; {lost}."
    others = [f"{each.cause} on {each.nodes:,}" for each in report.causes if each.cause != common.cause]
    if others:
        yield f"Other causes: {listed(others, 4)}."


def _hazard(hazard: Hazard) -> Part:
    if hazard.rises_at is None or hazard.from_days is None or hazard.to_days is None:
        return Part("by uptime", ("First incidents do not depend on uptime, as far as can be seen.",))
    rate = f"{hazard.before:.3f} first incidents a node and day before, {hazard.after:.2f} from then on"
    sentence = (
        f"It starts after {hazard.from_days:.1f} to {hazard.to_days:.1f} days of uptime (the middle 80% of first "
        f"incidents); the hazard rises at day {hazard.rises_at}: {rate}."
    )
    rows = [
        (
            f"{each.day}",
            f"{each.node_days:,.0f}",
            f"{each.first_incidents:,}",
            f"{each.per_node_day.value:.2f}",
            f"{each.had_one:.0%}",
        )
        for each in hazard.days
        if each.node_days >= 1
    ][:16]
    header = ("day of uptime", "node-days", "first incidents", "a node-day", "had one")
    return Part("by uptime", (sentence,), header, tuple(rows), (0, 1, 2, 3, 4))


def _began(onset: Onset | None, changes: Sequence[Change], zone: tzinfo | None) -> Iterator[str]:
    if onset is not None:
        at, early, late = (format_moment(each, zone, digits=0) for each in (onset.at, onset.earliest, onset.latest))
        yield (
            f"First incidents became more frequent at {at} (between {early} and {late}): {onset.per_day_before:.1f} "
            f"nodes a day before, {onset.per_day_after:,.0f} after."
        )
    for each in changes:
        before = f" from {each.before}" if each.before else ""
        yield (
            f"The attribute {each.to.key} changed{before} to {each.to.value} on {_of(each.sick, each.of_sick)} sick "
            f"nodes, {_span(each.lead_s)} before their first incident (median), and on "
            f"{_of(each.healthy, each.of_healthy)} others in that time ({_ratio(each.risk_ratio)})."
        )


def _forecast(forecast: Forecast, now: int, zone: tzinfo | None) -> Part:
    what = _AHEAD.get(forecast.code, forecast.code)
    if not forecast.nodes:
        return Part("nodes at risk", (f"All nodes that leak memory cgroups ({forecast.leaking:,}) are sick already.",))
    within = [(days, sum(each.at <= now + days * 86_400 * NANOS for each in forecast.nodes)) for days in (1, 3, 7)]
    soon = ", ".join(f"{number:,} within {count(days, 'day')}" for days, number in within)
    sentence = (
        f"{count(len(forecast.nodes), 'node')} will be sick if it goes on, by the memory cgroups that leak there: "
        f"{soon}. {_sentence(what)} when a walk over them takes {forecast.limit_s:g} s, as where nodes are sick."
    )
    rows = [
        (
            each.node,
            f"{each.zombies:,}",
            f"{each.per_hour.value:,.0f}",
            format_moment(each.at, zone, digits=0)[5:16].replace("T", " "),
            _range(each, now),
        )
        for each in forecast.nodes[:_SHOWN_NODES]
    ]
    header = ("node", "zombies", "an hour", "at about", "in")
    return Part("nodes at risk", (sentence,), header, tuple(rows), (1, 2))


def _range(each: AtRisk, now: int) -> str:
    early = max(0, each.earliest - now) / NANOS
    if each.latest is None:
        return f"{_span(early)} or later"
    late = (each.latest - now) / NANOS
    unit, length = ("days", 86_400) if late >= 2 * 86_400 else ("hours", 3600)
    return f"{early / length:.1f} to {late / length:.1f} {unit}"


def _jobs(jobs: JobView, zone: tzinfo | None) -> Iterator[str]:
    yield (
        f"Of {count(jobs.failed, 'failed job')}, {jobs.explained:,} had a member on a node with an incident within "
        f"{jobs.within_s} s before ({jobs.share.value:.0%}, {jobs.share.low:.0%} to {jobs.share.high:.0%}); by chance "
        f"{jobs.expected:.1f} would. {_chance(jobs.p)}."
    )
    for each in jobs.examples[:2]:
        at = format_moment(each.at, zone, digits=0)
        yield f"{each.job} at {at}: {each.cause} on {each.node} {each.before_s:.0f} s before."


def _steps(report: FleetReport) -> Iterator[str]:
    for number, step in enumerate(report.steps, 1):
        command = f" ({step.command})" if step.command else ""
        where = ""
        if step.nodes:
            where = f"; first on {', '.join(step.nodes[:3])}"
            where += f" and {step.total - 3:,} more" if step.total > 3 else ""
        yield f"{number}. {_sentence(step.text)}{command}{where}."


def _breakdown(breakdown: Breakdown, whole: bool) -> Part:
    shown = breakdown.values if whole else breakdown.values[:_SHOWN_VALUES]
    rows = [
        (each.value, f"{each.nodes:,}", f"{each.sick:,}", f"{each.risk.value:.1%}", f"{each.incidents:,}")
        for each in shown
    ]
    more = len(breakdown.values) - len(shown) + breakdown.left_out
    rows += [(f"{more:,} more", "", "", "", "")] if more else []
    return Part(
        f"by {breakdown.key}", (), (breakdown.key, "nodes", "sick", "share", "incidents"), tuple(rows), (1, 2, 3, 4)
    )


def _of(some: int, every: int) -> str:
    return f"{some:,} of {every:,}"


def _ratio(ratio: Estimate) -> str:
    digits = 0 if ratio.value >= 10 else 1
    return f"{ratio.value:.{digits}f}x ({ratio.low:.{digits}f}-{ratio.high:.{digits}f})"


def _chance(p: float) -> str:
    return "Chance explains it in less than one of a million" if p < 1e-6 else f"Chance explains it with p = {p:.2g}"


def _span(seconds: float) -> str:
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:.1f} days"
    return f"{seconds / 3600:.0f} hours" if seconds >= 2 * 3600 else f"{seconds / 60:.0f} minutes"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]

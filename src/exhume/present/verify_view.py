"""The proof of a fix as JSON, and the text that its views share."""

from datetime import tzinfo
from typing import Any

from exhume.model.remedy import Change, Effect, Measure, Stretch, Verification, Verified
from exhume.model.text import count
from exhume.model.times import format_moment
from exhume.remedy.verify.measures import MEASURES, SHARE, Kind, format_duration, format_number, format_value

VERSION = 1
CHANGE_LABELS = {
    Change.IMPROVED: "improved",
    Change.UNCHANGED: "unchanged",
    Change.WORSE: "worse",
    Change.UNPROVEN: "not proven",
}
_EXPECTED = {"fall": "to fall", "stop": "to stop", "stay": "to stay as it was", "rise": "to rise"}


def verdict(verification: Verification) -> str:
    """proved, worse or unproven. What was promised has to be proved; of what should stay as it was, only harm that is
    seen speaks against it: to rule all harm out takes longer than to see that something stopped."""
    measures = verification.measures
    if any(each.change is Change.WORSE and not each.as_expected for each in measures):
        return "worse"
    aims = [each for each in measures if each.effect.expected != "stay"] or measures
    return "proved" if all(each.as_expected for each in aims) else "unproven"


def not_ruled_out(verification: Verification) -> list[Verified]:
    """Measures that should stay as they were, for which harm is neither seen nor ruled out; none where that was all
    there was to prove."""
    measures = verification.measures
    if all(each.effect.expected == "stay" for each in measures):
        return []
    return [
        each
        for each in measures
        if each.effect.expected == "stay" and each.change is Change.UNPROVEN and not each.as_expected
    ]


def sentence(verification: Verification) -> str:
    """The whole verdict in a sentence."""
    measures = verification.measures
    improved = [each for each in measures if each.change is Change.IMPROVED]
    worse = [each for each in measures if each.change is Change.WORSE]
    unclear = not_ruled_out(verification)
    open_ = [
        each for each in measures if not each.as_expected and each.change is not Change.WORSE and each not in unclear
    ]
    if not worse and not open_:
        rest = len(measures) - len(improved) - len(unclear)
        others = f", {count(rest, 'other')} as promised" if rest else ""
        helped = f"it helped: {_titles(improved)} improved{others}" if improved else "nothing moved that was to move"
        if not improved and not unclear:
            helped = "nothing moved, and nothing was to move"
        harm = f"; harm to {_titles(unclear)} is not seen, and not ruled out" if unclear else ""
        return f"{helped}{harm}"
    parts = []
    if worse:
        parts.append(f"{_titles(worse)} got worse")
    if open_:
        parts.append(f"{_titles(open_)}: what was promised is not proved")
    if improved:
        parts.append(f"{_titles(improved)} improved")
    return "; ".join(parts)


def title(effect: Effect) -> str:
    """The measure, and whose it is."""
    name = MEASURES[effect.measure].title
    return f"{name} of {effect.subject}" if effect.subject else name


def format_expected(effect: Effect) -> str:
    return _EXPECTED.get(effect.expected, effect.expected)


def format_stretch_value(measure: Measure, stretch: Stretch) -> str:
    return format_value(measure, stretch.value)


def format_both(verified: Verified) -> str:
    """`2,950 → 8 a second`."""
    measure, before, after = verified.effect.measure, verified.before, verified.after
    if before.value is None or after.value is None or MEASURES[measure].unit == SHARE:
        return f"{format_value(measure, before.value)} → {format_value(measure, after.value)}"
    return f"{format_number(before.value)} → {format_value(measure, after.value)}"


def format_lengths(verified: Verified) -> str:
    """Over how long it was measured, and from where."""
    parts = []
    for stretch, when in ((verified.before, "before"), (verified.after, "since")):
        over = f"{format_duration(stretch.seconds)} {when}" if stretch.observations else f"not measured {when}"
        parts.append(f"{over} ({stretch.source})" if stretch.observations else over)
    return ", ".join(parts)


def format_stretch(measure: Measure, stretch: Stretch) -> str:
    """Over how long, in how many observations, from where."""
    if not stretch.observations:
        return "not measured"
    over = format_duration(stretch.seconds)
    if MEASURES[measure].kind is Kind.EVENTS:
        return f"over {over}, {stretch.source}"
    return f"over {over}, {count(stretch.observations, 'observation')}, {stretch.source}"


def verification_json(verification: Verification, zone: tzinfo | None) -> dict[str, Any]:
    """What `exhume fix verify --json` prints."""
    return {
        "version": VERSION,
        "node": verification.node,
        "fix": verification.fix,
        "target": verification.target,
        "applied_at": format_moment(verification.applied_at, zone),
        "looked": {
            "since": format_moment(verification.looked_from, zone),
            "until": format_moment(verification.looked_until, zone),
        },
        "verdict": verdict(verification),
        "sentence": sentence(verification),
        "not_ruled_out": [each.effect.measure.value for each in not_ruled_out(verification)],
        "measures": [_measure(each) for each in verification.measures],
        "done": list(verification.done),
        "interrupted": verification.interrupted,
        "blind_spots": list(verification.blind_spots),
    }


def _measure(verified: Verified) -> dict[str, Any]:
    return {
        "measure": verified.effect.measure.value,
        "subject": verified.effect.subject,
        "expected": verified.effect.expected,
        "unit": verified.unit,
        "before": _stretch(verified.before),
        "after": _stretch(verified.after),
        "change": verified.change.value,
        "as_expected": verified.as_expected,
        "why": verified.why,
    }


def _stretch(stretch: Stretch) -> dict[str, Any]:
    return {
        "value": None if stretch.value is None else round(stretch.value, 6),
        "seconds": round(stretch.seconds, 3),
        "observations": stretch.observations,
        "source": stretch.source,
    }


def _titles(measures: list[Verified]) -> str:
    names = [title(each.effect) for each in measures]
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + f" and {names[-1]}"

"""The verification of a fix as JSON, and the texts that its views share."""

from datetime import tzinfo
from typing import Any

from exhume.model.remedy import Change, Effect, Measure, Stretch, Verification, Verified
from exhume.model.text import count, listed
from exhume.model.times import format_moment
from exhume.present.serializer import Shape, Shapes, to_json
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
    """The verdict: proved, worse or unproven. Promised effects must be proved; for measures that should stay as they
    were, only observed harm counts, because ruling out all harm takes longer than seeing that something stopped."""
    measures = verification.measures
    if any(each.change is Change.WORSE and not each.as_expected for each in measures):
        return "worse"
    aims = [each for each in measures if each.effect.expected != "stay"] or measures
    return "proved" if all(each.as_expected for each in aims) else "unproven"


def not_ruled_out(verification: Verification) -> list[Verified]:
    """Measures that should stay as they were and for which harm was neither seen nor ruled out; empty if all measures
    should stay as they were."""
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
    unproved = [each for each in measures if not each.as_expected and each not in (*worse, *unclear)]
    if worse or unproved:
        parts = (
            (worse, " got worse"),
            (unproved, ": what was promised is not proved"),
            (improved, " improved"),
        )
        return "; ".join(f"{_titles(each)}{what}" for each, what in parts if each)
    helped = "nothing moved that was to move" if unclear else "nothing moved, and nothing was to move"
    if improved:
        rest = len(measures) - len(improved) - len(unclear)
        others = f", {count(rest, 'other')} as promised" if rest else ""
        helped = f"it helped: {_titles(improved)} improved{others}"
    return helped + (f"; harm to {_titles(unclear)} is not seen, and not ruled out" if unclear else "")


def title(effect: Effect) -> str:
    """The measure, and the object it belongs to."""
    name = MEASURES[effect.measure].title
    return f"{name} of {effect.subject}" if effect.subject else name


def format_expected(effect: Effect) -> str:
    return _EXPECTED.get(effect.expected, effect.expected)


def format_stretch_value(measure: Measure, stretch: Stretch) -> str:
    return format_value(measure, stretch.value)


def format_both(verified: Verified) -> str:
    """Both values: `2,950 → 8 a second`."""
    measure, before, after = verified.effect.measure, verified.before, verified.after
    if before.value is None or after.value is None or MEASURES[measure].unit == SHARE:
        return f"{format_value(measure, before.value)} → {format_value(measure, after.value)}"
    return f"{format_number(before.value)} → {format_value(measure, after.value)}"


def format_lengths(verified: Verified) -> str:
    """The durations of both measurements, and their sources."""
    parts = []
    for stretch, when in ((verified.before, "before"), (verified.after, "since")):
        over = f"{format_duration(stretch.seconds)} {when}" if stretch.observations else f"not measured {when}"
        parts.append(f"{over} ({stretch.source})" if stretch.observations else over)
    return ", ".join(parts)


def format_stretch(measure: Measure, stretch: Stretch) -> str:
    """The duration of a measurement, the number of observations, and the source."""
    if not stretch.observations:
        return "not measured"
    over = format_duration(stretch.seconds)
    if MEASURES[measure].kind is Kind.EVENTS:
        return f"over {over}, {stretch.source}"
    return f"over {over}, {count(stretch.observations, 'observation')}, {stretch.source}"


def verification_json(verification: Verification, zone: tzinfo | None) -> dict[str, Any]:
    """The JSON of `exhume fix verify --json`."""
    ends = {"since": verification.looked_from, "until": verification.looked_until}
    return {
        "version": VERSION,
        **to_json(verification, zone, _SHAPES),
        "applied_at": format_moment(verification.applied_at, zone),
        "looked": {name: format_moment(moment, zone) for name, moment in ends.items()},
        "verdict": verdict(verification),
        "sentence": sentence(verification),
        "not_ruled_out": [each.effect.measure.value for each in not_ruled_out(verification)],
    }


_SHAPES: Shapes = {
    Verification: Shape(omit=("looked_from", "looked_until")),
    Verified: Shape(omit=("effect",), add=lambda verified, zone: to_json(verified.effect, zone)),
    Stretch: Shape(
        add=lambda stretch, _: {
            "value": None if stretch.value is None else round(stretch.value, 6),
            "seconds": round(stretch.seconds, 3),
        }
    ),
}


def _titles(measures: list[Verified]) -> str:
    return listed([title(each.effect) for each in measures], len(measures))

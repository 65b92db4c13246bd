"""The report of a verified fix: every measure before and after."""

from collections.abc import Sequence
from datetime import tzinfo
from typing import Any

from exhume.model.remedy import Measure, Stretch, Verified
from exhume.model.times import format_clock, format_moment
from exhume.present.events_view import visible
from exhume.present.html.template import render
from exhume.present.verify_view import format_expected, format_stretch, format_stretch_value, sentence, title, verdict
from exhume.remedy.verify.measures import MEASURES, Kind, Series, format_value
from exhume.remedy.verify.proof import Proof

# Of more values than can be drawn, the worst of neighbours is.
MAX_POINTS = 300


def verify_report(proof: Proof, zone: tzinfo | None) -> str:
    """The proof of a fix as one HTML file."""
    return render("verify", verify_data(proof, zone))


def verify_data(proof: Proof, zone: tzinfo | None) -> dict[str, Any]:
    """What the report shows."""
    verification = proof.verification
    word = verdict(verification)
    since, until = (format_clock(each, zone) for each in (verification.looked_from, verification.looked_until))
    applied = format_moment(verification.applied_at, zone, digits=0)
    observed = zip(verification.measures, proof.before, proof.after, strict=True)
    return {
        "title": visible(f"{verification.node}: fix {verification.fix}, {word}"),
        "verdict": word,
        "sentence": _sentence(sentence(verification)),
        "subtitle": visible(
            f"{verification.node} · fix {verification.fix} of {verification.target} · applied {applied} · "
            f"observed {since} to {until}"
        ),
        "interrupted": verification.interrupted,
        "measures": [_measure(*each) for each in observed],
        "done": [_sentence(each) for each in verification.done],
        "blind_spots": [_sentence(each) for each in verification.blind_spots],
    }


def _measure(verified: Verified, before: Series, after: Series) -> dict[str, Any]:
    measure = verified.effect.measure
    return {
        "title": visible(title(verified.effect)),
        "change": verified.change.value,
        "expected": format_expected(verified.effect),
        "as_expected": verified.as_expected,
        "why": _sentence(verified.why),
        "before": _series(measure, verified.before, before),
        "after": _series(measure, verified.after, after),
    }


def _series(measure: Measure, stretch: Stretch, observed: Series) -> dict[str, Any]:
    rates = _rates(observed)
    has_worst = len(rates) > 1 and MEASURES[measure].kind is not Kind.EVENTS
    return {
        "value": visible(format_stretch_value(measure, stretch)),
        "coverage": visible(format_stretch(measure, stretch)),
        "worst": visible(format_value(measure, max(rates))) if has_worst else "",
        "points": _pooled(rates, observed.spans),
    }


def _rates(observed: Series) -> list[float]:
    """What is drawn: levels and counts as they are, amounts as rates in the unit of the measure."""
    meaning = MEASURES[observed.effect.measure]
    if meaning.kind in (Kind.LEVEL, Kind.STOCK):
        return list(observed.values)
    return [value / span * meaning.per for value, span in zip(observed.values, observed.spans, strict=True)]


def _pooled(values: Sequence[float], spans: Sequence[float]) -> list[tuple[float, float]]:
    step = max(1, -(-len(values) // MAX_POINTS))
    return [
        (round(max(values[i : i + step]), 6), round(sum(spans[i : i + step]), 3)) for i in range(0, len(values), step)
    ]


def _sentence(text: str) -> str:
    return visible(text[:1].upper() + text[1:])

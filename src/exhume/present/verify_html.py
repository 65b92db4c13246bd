"""The proof of a fix as one page that stands alone, fit to close a ticket with: no script, no request; it prints."""

from collections.abc import Sequence
from datetime import tzinfo
from html import escape
from importlib.resources import files

from exhume.model.remedy import Verified
from exhume.model.times import format_clock, format_moment
from exhume.present.events_view import visible
from exhume.present.verify_view import (
    CHANGE_WORDS,
    expected_words,
    sentence,
    stretch_words,
    title,
    value_words,
    verdict,
)
from exhume.remedy.verify.lasting import lasting
from exhume.remedy.verify.measures import MEANINGS, Kind, told
from exhume.remedy.verify.observed import Observed
from exhume.remedy.verify.watch import Proof

# A picture is so wide and high in its own units; of more values than fit, the worst of neighbours is drawn.
_WIDE, _HIGH, _MOST = 600, 100, 300
_READING = (
    "Improved and worse are said where chance alone would say so less than once in a hundred times, and where the "
    "difference is large enough to matter.",
    "Unchanged is said where a difference that matters would have been seen.",
    "Not enough evidence is neither good nor bad: the time was too short, and the reason says how much longer it "
    "takes.",
    "Seconds that follow each other resemble each other, so they are compared in blocks; single happenings are "
    "compared as counts over their time.",
)


def render_proof(proof: Proof, zone: tzinfo | None) -> str:
    """The page as text. The policy in its head forbids it to load or run anything."""
    verification = proof.verification
    parts = {
        "title": _safe(f"{verification.node}: fix {verification.fix}, {verdict(verification)}"),
        "style": _asset("verify.css"),
        "header": _header(proof, zone),
        "measures": "".join(
            _measure(*each) for each in zip(verification.measures, proof.before, proof.after, strict=True)
        ),
        "done": _list(verification.done, "Nothing is written down."),
        "reading": _list(_READING, ""),
        "blind": _list(verification.blind_spots, "Nothing that is known to be missing."),
    }
    page = _asset("verify.html")
    for name, content in parts.items():
        page = page.replace(f"<!--{name}-->", content, 1)
    return page


def _header(proof: Proof, zone: tzinfo | None) -> str:
    verification = proof.verification
    word = verdict(verification)
    since, until = (format_clock(each, zone) for each in (verification.looked_from, verification.looked_until))
    applied = format_moment(verification.applied_at, zone, digits=0)
    broken_off = "<p>It was interrupted: this is what was seen until then.</p>" if verification.interrupted else ""
    return (
        f'<p class="badge {word}">{word}</p><h1>{_safe(_capital(sentence(verification)))}</h1>'
        f'<p class="quiet">{_safe(verification.node)} · fix {_safe(verification.fix)} of {_safe(verification.target)}'
        f" · applied {escape(applied)} · looked at {since} to {until}</p>{broken_off}"
    )


def _measure(verified: Verified, before: Observed, after: Observed) -> str:
    measure = verified.effect.measure
    most = max([*_rates(before), *_rates(after), 0.0])
    panels = "".join(
        f'<div class="{when}"><small>{when}</small><b>{_safe(value_words(measure, stretch))}</b>'
        f"{_picture(observed, most)}"
        f'<div class="scale"><span>{_safe(stretch_words(measure, stretch))}</span>'
        f"<span>{_safe(_worst(observed))}</span></div></div>"
        for when, stretch, observed in (("before", verified.before, before), ("after", verified.after, after))
    )
    kept = "As promised" if verified.as_expected else "Promised"
    return (
        f'<article class="measure"><div class="head"><h3>{_safe(title(verified.effect))}</h3>'
        f'<span class="badge {verified.change.value}">{CHANGE_WORDS[verified.change]}</span></div>'
        f'<div class="values">{panels}</div><p class="why">{_safe(_capital(verified.why))}.</p>'
        f'<p class="quiet">{kept}: {_safe(expected_words(verified.effect))}.</p></article>'
    )


def _picture(observed: Observed, most: float) -> str:
    """The values over their time, on a scale that before and after share."""
    rates = _rates(observed)
    if not rates:
        return ""
    name = _safe(f"{title(observed.effect)}, over {lasting(observed.seconds)}")
    whole, at, corners = observed.seconds, 0.0, [f"M0 {_HIGH}"]
    for value, span in _pooled(rates, observed.spans):
        height = _HIGH - (max(0.0, value) / most * (_HIGH - 6) if most > 0 else 0.0)
        corners.append(f"L{at / whole * _WIDE:.1f} {height:.1f}")
        at += span
        corners.append(f"L{at / whole * _WIDE:.1f} {height:.1f}")
    corners.append(f"L{_WIDE} {_HIGH}Z")
    return (
        f'<svg viewBox="0 0 {_WIDE} {_HIGH}" preserveAspectRatio="none" role="img" aria-label="{name}">'
        f'<path d="{"".join(corners)}"/></svg>'
    )


def _rates(observed: Observed) -> list[float]:
    """What is drawn: levels and counts as they are, amounts by what they are told for."""
    meaning = MEANINGS[observed.effect.measure]
    if meaning.kind in (Kind.LEVEL, Kind.STOCK):
        return list(observed.values)
    return [value / span * meaning.per for value, span in zip(observed.values, observed.spans, strict=True)]


def _pooled(values: Sequence[float], spans: Sequence[float]) -> list[tuple[float, float]]:
    """As many as can be drawn: neighbours share a place, and the worst of them shows."""
    step = -(-len(values) // _MOST)
    return [(max(values[i : i + step]), sum(spans[i : i + step])) for i in range(0, len(values), step)]


def _worst(observed: Observed) -> str:
    rates = _rates(observed)
    if len(rates) < 2 or MEANINGS[observed.effect.measure].kind is Kind.EVENTS:
        return ""
    return f"at worst {told(observed.effect.measure, max(rates))}"


def _list(items: Sequence[str], otherwise: str) -> str:
    if not items:
        return f'<p class="quiet">{escape(otherwise)}</p>'
    return f"<ul>{''.join(f'<li>{_safe(_capital(each))}</li>' for each in items)}</ul>"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _safe(text: str) -> str:
    return escape(visible(text))


def _asset(name: str) -> str:
    return files("exhume.present").joinpath("assets", name).read_text(encoding="utf-8")

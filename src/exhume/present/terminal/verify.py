"""The verification of a fix in the terminal: the verdict, then each measure before and after, with the reason."""

from collections.abc import Iterator
from datetime import tzinfo

from rich.console import Console
from rich.text import Text

from exhume.model.remedy import Change, Verification, Verified
from exhume.model.times import format_clock, format_moment
from exhume.present.diagnosis_view import shortened
from exhume.present.events_view import visible
from exhume.present.palette import GREEN, GREY, ORANGE, RED
from exhume.present.terminal.console import BOLD, DIM, badge, bullets, hung, print_lines, section, width_of
from exhume.present.verify_view import (
    CHANGE_LABELS,
    format_both,
    format_expected,
    format_lengths,
    sentence,
    title,
    verdict,
)

_VERDICTS = {"proved": GREEN, "unproven": ORANGE, "worse": RED}
_MARKS = {
    Change.IMPROVED: ("▼", GREEN),
    Change.UNCHANGED: ("=", GREY),
    Change.WORSE: ("▲", RED),
    Change.UNPROVEN: ("?", ORANGE),
}
_LABEL = max(map(len, CHANGE_LABELS.values()))
_INDENT = " " * 4


def print_verification(terminal: Console, verification: Verification, zone: tzinfo | None) -> None:
    print_lines(terminal, verification_lines(verification, zone, width_of(terminal)))


def verification_lines(verification: Verification, zone: tzinfo | None, width: int) -> Iterator[Text]:
    found = verdict(verification)
    yield from hung(badge(found, _VERDICTS[found]).append(" "), sentence(verification), width, BOLD)
    since, until = (format_clock(each, zone) for each in (verification.looked_from, verification.looked_until))
    fix = f"fix {verification.fix} of {verification.target}"
    applied = format_moment(verification.applied_at, zone, digits=0)
    yield from hung("", f"{verification.node} · {fix}, applied {applied} · looked at {since} to {until}", width, DIM)
    yield Text()
    titles = min(34, width - 6, max(len(visible(title(each.effect))) for each in verification.measures))
    for each in verification.measures:
        yield from _measure(each, titles, width)
    if verification.done:
        yield from section("what was done", bullets(verification.done, width, "   · "))
    notes = list(verification.blind_spots)
    if verification.interrupted:
        notes.insert(0, "it was interrupted: this is what was seen until then")
    if notes:
        yield Text()
        yield from bullets(notes, width, "   · ")


def _measure(verified: Verified, titles: int, width: int) -> Iterator[Text]:
    """One measure, as `▼ forks 2,950 a second → 8 a second improved`, with the reason below."""
    mark, colour = _MARKS[verified.change]
    line = Text(" ").append(mark, colour)
    line.append(f" {shortened(visible(title(verified.effect)), titles):<{titles}}  ")
    values, label = format_both(verified), CHANGE_LABELS[verified.change]
    if line.cell_len + len(values) > width:
        yield line
        line = Text(_INDENT)
    line.append(values, BOLD)
    if line.cell_len + 2 + _LABEL > width:
        yield line
        line = Text()
    yield line.append(" " * (width - line.cell_len - _LABEL)).append(label, colour)
    kept = "as promised" if verified.as_expected else "promised"
    for text in (verified.why, f"{kept}: {format_expected(verified.effect)} · {format_lengths(verified)}"):
        yield from hung(_INDENT, text, width, DIM)

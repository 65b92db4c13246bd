"""The proof of a fix in the terminal: the verdict, then each measure before and after with the reason."""

import textwrap
from collections.abc import Iterator
from datetime import tzinfo

from rich.console import Console
from rich.style import Style
from rich.text import Text

from exhume.model.remedy import Change, Verification, Verified
from exhume.model.times import format_clock, format_moment
from exhume.present.events_view import visible
from exhume.present.terminal.diagnosis import width_of
from exhume.present.verify_view import (
    CHANGE_LABELS,
    format_both,
    format_expected,
    format_lengths,
    sentence,
    title,
    verdict,
)

_VERDICTS = {"proved": "#009e73", "unproven": "#e69f00", "worse": "#d55e00"}
_COLOURS = {
    Change.IMPROVED: "#009e73",
    Change.UNCHANGED: "#7f8792",
    Change.WORSE: "#d55e00",
    Change.UNPROVEN: "#e69f00",
}
_MARKS = {Change.IMPROVED: "▼", Change.UNCHANGED: "=", Change.WORSE: "▲", Change.UNPROVEN: "?"}
_BOLD, _DIM = Style(bold=True), Style(dim=True)
_LABEL = max(map(len, CHANGE_LABELS.values()))


def print_verification(terminal: Console, verification: Verification, zone: tzinfo | None) -> None:
    for line in verification_lines(verification, zone, width_of(terminal)):
        terminal.print(line)


def verification_lines(verification: Verification, zone: tzinfo | None, width: int) -> Iterator[Text]:
    found = verdict(verification)
    badge = Text().append(f" {found.upper()} ", Style(color="#000000", bgcolor=_VERDICTS[found], bold=True))
    hang = badge.cell_len + 1
    said = textwrap.wrap(visible(sentence(verification)), width - hang) or [""]
    yield badge.append(f" {said[0]}", _BOLD)
    for line in said[1:]:
        yield Text(" " * hang).append(line, _BOLD)
    yield from _wrapped(_header(verification, zone), width, "")
    yield Text()
    titles = min(34, width - 6, max(len(visible(title(each.effect))) for each in verification.measures))
    for each in verification.measures:
        yield from _measure(each, titles, width)
    if verification.done:
        yield Text()
        yield Text("what was done", _BOLD)
        for done in verification.done:
            yield from _wrapped(f"· {done}", width, "   ")
    if verification.interrupted or verification.blind_spots:
        yield Text()
    if verification.interrupted:
        yield from _wrapped("· it was interrupted: this is what was seen until then", width, "   ")
    for spot in verification.blind_spots:
        yield from _wrapped(f"· {spot}", width, "   ")


def _header(verification: Verification, zone: tzinfo | None) -> str:
    since, until = (format_clock(each, zone) for each in (verification.looked_from, verification.looked_until))
    applied = format_moment(verification.applied_at, zone, digits=0)
    return (
        f"{verification.node} · fix {verification.fix} of {verification.target}, applied {applied} · looked at "
        f"{since} to {until}"
    )


def _measure(verified: Verified, titles: int, width: int) -> Iterator[Text]:
    """`▼ forks   2,950 a second → 8 a second   improved`, and the reason below."""
    colour = Style(color=_COLOURS[verified.change])
    name = visible(title(verified.effect))
    line = Text(" ").append(_MARKS[verified.change], colour)
    line.append(f" {name if len(name) <= titles else name[: titles - 1] + '…':<{titles}}  ")
    values = format_both(verified)
    if line.cell_len + len(values) > width:
        yield line
        line = Text(" " * 4)
    line.append(values, _BOLD)
    label = CHANGE_LABELS[verified.change]
    if line.cell_len + 2 + _LABEL <= width:
        line.append(" " * (width - line.cell_len - _LABEL))
        yield line.append(label, colour)
    else:
        yield line
        yield Text(" " * (width - _LABEL)).append(label, colour)
    indent = " " * 4
    yield from _wrapped(verified.why, width, indent)
    kept = "as promised" if verified.as_expected else "promised"
    yield from _wrapped(f"{kept}: {format_expected(verified.effect)} · {format_lengths(verified)}", width, indent)


def _wrapped(text: str, width: int, indent: str) -> Iterator[Text]:
    for line in textwrap.wrap(
        visible(text), width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    ):
        yield Text(line, _DIM)

"""A diagnosis in the terminal: the verdict first, then each finding as a chain that hangs on a line, with its times at
the left; then what was ruled out, and what could not be seen."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo

from rich.console import Console
from rich.style import Style
from rich.text import Text

from exhume.model.finding import Diagnosis, Evidence, Finding, Link, Remedy, Role, Severity
from exhume.model.text import percent
from exhume.model.times import format_clock
from exhume.present.diagnosis_view import (
    ROLE_LABELS,
    confidence_text,
    doubt_text,
    evidence_parts,
    focus_text,
    link_text,
    remedy_notes,
    shortened,
    verdict_text,
)
from exhume.present.events_view import visible

_COLOURS = {
    "starved": "#d55e00",
    "critical": "#d55e00",
    "degraded": "#e69f00",
    "warning": "#e69f00",
    "healthy": "#009e73",
    "info": "#56b4e9",
    "unknown": "#56b4e9",
}
_BOLD, _DIM, _PLAIN = Style(bold=True), Style(dim=True), Style()
WIDEST, NARROWEST, PIPED = 120, 60, 100
INDENT = "  "
_CLOCK = 8
_LEAD = _CLOCK + 5  # what stands before a role: the time, and the mark that hangs on the line
_ROLE = 11
EVIDENCE_SHOWN, REMEDIES_SHOWN = 3, 4


def print_diagnosis(terminal: Console, diagnosis: Diagnosis, zone: tzinfo | None, *, brief: bool = False) -> None:
    """The whole report; `brief` leaves out what was ruled out."""
    for line in diagnosis_lines(diagnosis, zone, width_of(terminal), brief=brief):
        terminal.print(line)


def width_of(terminal: Console) -> int:
    """As wide as lines may be here."""
    return max(NARROWEST, min(WIDEST, terminal.width)) if terminal.is_terminal else PIPED


def diagnosis_lines(diagnosis: Diagnosis, zone: tzinfo | None, width: int, *, brief: bool = False) -> Iterator[Text]:
    yield from _verdict(diagnosis, zone, width)
    for number, finding in enumerate(diagnosis.findings, 1):
        yield Text()
        heading = f"{number}. " if len(diagnosis.findings) > 1 else ""
        yield from finding_lines(finding, zone, width, heading, said=verdict_text(diagnosis))
    if not any(finding.severity is not Severity.INFO for finding in diagnosis.findings) and diagnosis.symptoms:
        yield Text()
        yield Text("symptoms", _BOLD)
        yield from _chain(diagnosis.symptoms, (), zone, width, _COLOURS[diagnosis.verdict])
    if diagnosis.ruled_out and not brief:
        yield Text()
        yield from _ruled_out(diagnosis, width)
    if diagnosis.blind_spots:
        yield Text()
        yield from _listed("blind spots", [spot.text for spot in diagnosis.blind_spots], width)


def badge(word: str) -> Text:
    """A word in its colour; where there are no colours it stands alone."""
    return Text().append(f" {word.upper()} ", Style(color="#000000", bgcolor=_COLOURS[word], bold=True))


def _verdict(diagnosis: Diagnosis, zone: tzinfo | None, width: int) -> Iterator[Text]:
    mark = badge(str(diagnosis.verdict))
    hang = mark.cell_len + 1
    lines = textwrap.wrap(verdict_text(diagnosis), width - hang) or [""]
    yield mark.append(f" {lines[0]}", _BOLD)
    for line in lines[1:]:
        yield Text(" " * hang).append(line, _BOLD)
    for line in textwrap.wrap(f"{diagnosis.node} · {focus_text(diagnosis, zone)}", width - 1):
        yield Text(f" {line}", _DIM)


def finding_lines(
    finding: Finding, zone: tzinfo | None, width: int, number: str = "", said: str = ""
) -> Iterator[Text]:
    """One finding: its title, its confidence, and the chain from the symptoms to what to do. What was said above is not
    repeated."""
    head = Text().append(number, _BOLD).append_text(badge(str(finding.severity)))
    head.append(f" {finding.title}", _BOLD).append(f"  {finding.cause}", _DIM)
    confidence = Text().append(f"confidence {percent(finding.confidence, 0)}", _BOLD)
    confidence.append(f", {confidence_text(finding.confidence)}", _DIM)
    room = width - head.cell_len - confidence.cell_len
    if room >= 2:
        yield head.append(" " * room).append_text(confidence)
    else:
        yield head
        yield Text(INDENT).append_text(confidence)
    summary = visible(finding.summary)
    for line in textwrap.wrap(summary, width - len(INDENT)) if summary != said else ():
        yield Text(f"{INDENT}{line}")
    if doubt := doubt_text(finding):
        for line in textwrap.wrap(f"confidence limited by: {doubt}", width - len(INDENT)):
            yield Text(f"{INDENT}{line}", _DIM)
    yield Text()
    chain, remedies = finding.chain, finding.remedies[:REMEDIES_SHOWN]
    if finding.severity is Severity.INFO:
        # Worth knowing, not worth a page: the JSON has the rest.
        chain, remedies = tuple(link for link in chain if link.role is not Role.SYMPTOM)[:1], remedies[:1]
    yield from _chain(chain, remedies, zone, width, _COLOURS[finding.severity])


def _chain(
    links: Sequence[Link], remedies: Sequence[Remedy], zone: tzinfo | None, width: int, colour: str
) -> Iterator[Text]:
    """Links on a line downwards; its last stations are what to do."""
    previous, quoted = "", set[Evidence]()
    for place, link in enumerate(links):
        role, text = ROLE_LABELS[link.role], link_text(link)
        yield from _Station(
            clock=format_clock(link.at, zone),
            mark=Text().append("●", Style(color=colour)),
            role="" if role == previous else role,
            text=text,
            below=[
                evidence_parts(each, zone, quoted=text) for each in link.evidence[:EVIDENCE_SHOWN] if each not in quoted
            ],
            last=place == len(links) - 1 and not remedies,
        ).lines(width)
        previous = role
        quoted.update(link.evidence)
    for place, remedy in enumerate(remedies):
        # A process is named by the chain above.
        named = not remedy.target or remedy.target.isdigit() or remedy.names_target
        target = "" if named else f" ({visible(remedy.target)})"
        yield from _Station(
            mark=Text().append("▶", Style(color=_COLOURS["healthy"])),
            role="remedy" if place == 0 else "",
            text=f"{visible(remedy.text)}{target}",
            notes=remedy_notes(remedy.risk, remedy.reversible),
            last=place == len(remedies) - 1,
            command=visible(remedy.command),
        ).lines(width)


@dataclass(frozen=True, slots=True)
class _Station:
    """One stop of a chain."""

    mark: Text
    role: str
    text: str
    last: bool
    below: list[list[str]] = field(default_factory=list)
    clock: str = ""
    command: str = ""
    notes: str = ""

    def lines(self, width: int) -> Iterator[Text]:
        room = max(20, width - _LEAD - _ROLE)
        lines = textwrap.wrap(self.text, room, break_on_hyphens=False) or [""]
        first = Text().append(f" {self.clock:>{_CLOCK}}  ", _DIM).append_text(self.mark)
        yield first.append(f" {self.role:<{_ROLE}}", _BOLD).append(lines[0])
        hang = Text(" " * (_LEAD - 2)).append(" " if self.last else "│", _DIM).append(" " * (_ROLE + 1))
        for line in lines[1:]:
            yield hang.copy().append(line)
        if self.command:
            # Commands are for copying: they are never broken.
            yield hang.copy().append("$ ", _DIM).append(self.command, _BOLD)
        if self.notes:
            yield hang.copy().append(self.notes, _DIM)
        for each in self.below:
            for line in joined(each, room):
                yield hang.copy().append(line, _DIM)


def joined(parts: Sequence[str], room: int) -> list[str]:
    """Parts side by side, as many as fit on a line; the lines after the first are set in."""
    lines = [""]
    for part in (shortened(each, room - 2) for each in parts):
        longer = f"{lines[-1]} · {part}" if lines[-1].strip() else lines[-1] + part
        if len(longer) <= room or not lines[-1].strip():
            lines[-1] = longer
        else:
            lines.append(f"  {part}")
    return lines


def _ruled_out(diagnosis: Diagnosis, width: int) -> Iterator[Text]:
    yield Text("ruled out", _BOLD)
    longest = max(len(reason.cause) for reason in diagnosis.ruled_out)
    for reason in diagnosis.ruled_out:
        room = width - len(INDENT) - longest - 2
        yield Text(f"{INDENT}{reason.cause:<{longest}}  ").append(shortened(visible(reason.why), room), _DIM)


def _listed(title: str, items: Sequence[str], width: int) -> Iterator[Text]:
    yield Text(title, _BOLD)
    for item in items:
        for place, line in enumerate(textwrap.wrap(visible(item), width - 4)):
            yield Text(f"{INDENT}{'·' if place == 0 else ' '} {line}", _DIM)

"""A diagnosis or a checkup in the terminal: the verdict first, then each finding as a chain along a vertical line,
with its times at the left; then what was ruled out, and what could not be seen."""

import textwrap
from collections.abc import Iterator, Sequence
from datetime import tzinfo

from rich.console import Console
from rich.text import Text

from exhume.model.finding import (
    Accounting,
    Check,
    Diagnosis,
    Evidence,
    Finding,
    Level,
    Link,
    Remedy,
    Role,
    Scope,
    Severity,
)
from exhume.model.text import count, percent
from exhume.model.times import format_clock
from exhume.present.diagnosis_view import (
    ROLE_LABELS,
    Checkup,
    confidence_text,
    evidence_parts,
    failure_text,
    focus_text,
    remedy_cost_text,
    shortened,
    time_lines,
    time_text,
    verdict_text,
)
from exhume.present.events_view import visible
from exhume.present.palette import BLUE, GREEN, GREY, ORANGE, RED
from exhume.present.terminal.console import BOLD, DIM, PLAIN, badge, bullets, hung, print_lines, section, width_of

COLOURS = {
    **{"starved": RED, "critical": RED, "degraded": ORANGE, "warning": ORANGE},
    **{"healthy": GREEN, "info": BLUE, "unknown": BLUE},
}
_MARKS = {Level.WELL: ("✓", GREEN), Level.LOOK: ("●", ORANGE), Level.BAD: ("●", RED), Level.UNSEEN: ("?", GREY)}
_INDENT = "  "
_CLOCK = 8
_LEAD = _CLOCK + 5  # width before a role: the time, and the mark on the vertical line
_ROLE = 11
_LEVEL = 8
EVIDENCE_SHOWN, REMEDIES_SHOWN, FAILURES_SHOWN = 3, 4, 5
# Layout of a breakdown: the column of its total, the longest row, and the smallest share that is shown.
_TOTAL, _PART, SHARE_SHOWN = 24, 34, 0.01


def print_diagnosis(terminal: Console, diagnosis: Diagnosis, zone: tzinfo | None, *, unfold: bool = False) -> None:
    """Print a diagnosis; `unfold` lists each cause that was ruled out. If it is longer than the terminal, the verdict
    is repeated at the end, where it stays on screen."""
    width = width_of(terminal)
    _print_report(terminal, list(diagnosis_lines(diagnosis, zone, width, unfold=unfold)), _verdict(diagnosis, width))


def print_page(terminal: Console, page: str) -> None:
    """Print a cause's documentation page, which is Markdown."""
    if not terminal.is_terminal:
        print(page, end="", file=terminal.file)
        return
    # Imported late: it takes longer than the rest of the command.
    from rich.markdown import Markdown

    terminal.print(Markdown(page, hyperlinks=False), width=width_of(terminal), soft_wrap=False)


def print_checkup(terminal: Console, checkup: Checkup, zone: tzinfo | None) -> None:
    """Print a checkup; like a diagnosis, a long one repeats its verdict at the end."""
    width = width_of(terminal)
    _print_report(terminal, list(checkup_lines(checkup, zone, width)), _level(checkup, width))


def _print_report(terminal: Console, lines: list[Text], verdict: Iterator[Text]) -> None:
    print_lines(terminal, lines)
    # Leave room for the suggested command and the prompt.
    if terminal.is_terminal and len(lines) > terminal.height - 3:
        terminal.print()
        print_lines(terminal, verdict)


def _verdict(diagnosis: Diagnosis, width: int) -> Iterator[Text]:
    head = badge(diagnosis.verdict, COLOURS[diagnosis.verdict]).append(" ")
    yield from hung(head, verdict_text(diagnosis), width, BOLD)


def diagnosis_lines(diagnosis: Diagnosis, zone: tzinfo | None, width: int, *, unfold: bool = False) -> Iterator[Text]:
    sentence = verdict_text(diagnosis)
    yield from _verdict(diagnosis, width)
    yield from hung(" ", f"{diagnosis.node} · {focus_text(diagnosis, zone)}", width, DIM)
    if diagnosis.accounting is not None and diagnosis.accounting.text:
        yield from hung(" ", diagnosis.accounting.text, width, DIM)
    yield from _findings(diagnosis, zone, width, sentence)
    if not any(map(_has_symptoms, diagnosis.findings)) and diagnosis.symptoms:
        yield from section("symptoms", _chain(diagnosis.symptoms, (), zone, width, COLOURS[diagnosis.verdict]))
    if diagnosis.failures:
        texts = (failure_text(each, zone) for each in diagnosis.failures[:FAILURES_SHOWN])
        yield from section("failures that it explains", bullets(texts, width))
        if (more := len(diagnosis.failures) - FAILURES_SHOWN) > 0:
            yield Text(f"{_INDENT}and {more} more", DIM)
    if diagnosis.accounting is not None:
        yield from section("where the time went", _times(diagnosis.accounting, width))
    if diagnosis.ruled_out and not unfold:
        yield Text()
        many = count(len(diagnosis.ruled_out), "cause")
        yield Text().append("ruled out", BOLD).append(f"  {many}; --all lists why", DIM)
    elif diagnosis.ruled_out:
        longest = max(len(reason.cause) for reason in diagnosis.ruled_out)
        yield from section("ruled out")
        for reason in diagnosis.ruled_out:
            why = shortened(visible(reason.why), width - len(_INDENT) - longest - 2)
            yield Text(f"{_INDENT}{reason.cause:<{longest}}  ").append(why, DIM)
    if diagnosis.blind_spots:
        yield from section("blind spots", bullets((spot.text for spot in diagnosis.blind_spots), width))


def _times(accounting: Accounting, width: int) -> Iterator[Text]:
    """A line per breakdown, with as many rows as fit; the JSON has all of them."""
    for total, how, rows in time_lines(accounting):
        line = Text(_INDENT).append(f"{total:<{_TOTAL}}" if total else f"{_INDENT}{how:<{_TOTAL - 2}}", DIM)
        shown = [row for row in rows if row.share >= SHARE_SHOWN] or rows[:1]
        room = width - line.cell_len
        for place, row in enumerate(shown):
            part = f"{'  ' if place else ''}{shortened(time_text(row), _PART)}"
            if len(part) > room:
                break
            line.append(part)
            room -= len(part)
        yield line


def _level(checkup: Checkup, width: int) -> Iterator[Text]:
    yield from hung(badge(checkup.level, _MARKS[checkup.level][1]).append(" "), checkup.sentence, width, BOLD)


def checkup_lines(checkup: Checkup, zone: tzinfo | None, width: int) -> Iterator[Text]:
    """The verdict, a line per check, then the findings from the samples."""
    yield from _level(checkup, width)
    yield Text()
    titles = max((len(check.title) for check in checkup.checks), default=0)
    for check in checkup.checks:
        yield from _check(check, titles, width)
    yield from _findings(checkup.diagnosis, zone, width, checkup.sentence)
    yield Text()
    notes = [
        f"{checkup.looked_s:.0f} s were sampled, with no calm time to compare them with: what happens now and then is "
        "not seen, and the confidence is lower. Record, to be able to go back: exhume record",
        *(f"source unavailable: {each}" for each in checkup.missing),
    ]
    yield from bullets(notes, width, " · ")


def _check(check: Check, titles: int, width: int) -> Iterator[Text]:
    """One check, as `✓ mounts 31 under 5,000 well`; below it an explanation if there is one, and the limit if the line
    has no room for it."""
    mark, colour = _MARKS[check.level]
    line = Text(" ").append(mark, colour).append(f" {check.title:<{titles}}  ")
    room = width - line.cell_len - _LEVEL - 2
    value, limit = visible(check.value), f"  {check.limit}" if check.limit else ""
    fits = len(value) + len(limit) <= room
    line.append(shortened(value, room), BOLD if check.level in (Level.LOOK, Level.BAD) else PLAIN)
    line.append(limit if fits else "", DIM)
    line.append(" " * (width - line.cell_len - _LEVEL))
    yield line.append("not seen" if check.level is Level.UNSEEN else str(check.level), colour)
    if not fits:
        yield from hung(" " * (titles + 5), check.limit, width, DIM)
    if check.text:
        yield from hung(" " * (titles + 5), check.text, width, DIM)


def _has_symptoms(finding: Finding) -> bool:
    """Whether the finding's chain begins with the symptoms of the node."""
    return finding.severity is not Severity.INFO and finding.scope is not Scope.WORKLOAD


def _findings(diagnosis: Diagnosis, zone: tzinfo | None, width: int, printed: str) -> Iterator[Text]:
    for number, finding in enumerate(diagnosis.findings, 1):
        yield Text()
        yield from _finding(finding, zone, width, f"{number}. " if len(diagnosis.findings) > 1 else "", printed)


def _finding(finding: Finding, zone: tzinfo | None, width: int, number: str, printed: str) -> Iterator[Text]:
    """One finding: its title, its confidence, and the chain from the symptoms to the remedies. Text in `printed` was
    printed already and is not repeated."""
    colour = COLOURS[finding.severity]
    head = Text().append(number, BOLD).append_text(badge(finding.severity, colour))
    head.append(f" {finding.title}", BOLD).append(f"  {finding.cause}", DIM)
    confidence = Text().append(f"confidence {percent(finding.confidence, 0)}", BOLD)
    confidence.append(f", {confidence_text(finding.confidence)}", DIM)
    room = width - head.cell_len - confidence.cell_len
    if room >= 2:
        yield head.append(" " * room).append_text(confidence)
    else:
        yield head
        yield Text(_INDENT).append_text(confidence)
    if visible(finding.summary) != printed:
        yield from hung(_INDENT, finding.summary, width)
    if finding.forecast is not None:
        yield from hung(_INDENT, f"forecast: {finding.forecast.text}", width)
    if finding.doubts:
        doubts = "; ".join(doubt.text for doubt in finding.doubts)
        yield from hung(_INDENT, f"confidence limited by: {doubts}", width, DIM)
    yield Text()
    chain, remedies = finding.chain, finding.remedies[:REMEDIES_SHOWN]
    if finding.severity is Severity.INFO:
        # Informational findings are shortened; the JSON has the rest.
        chain, remedies = tuple(link for link in chain if link.role is not Role.SYMPTOM)[:1], remedies[:1]
    yield from _chain(chain, remedies, zone, width, colour)
    yield Text(_INDENT).append(f"about {finding.cause}: exhume diagnose --explain {finding.cause}", DIM)


def _chain(
    links: Sequence[Link], remedies: Sequence[Remedy], zone: tzinfo | None, width: int, colour: str
) -> Iterator[Text]:
    """The links of a chain along a vertical line, ending with the remedies."""
    room = max(20, width - _LEAD - _ROLE)
    previous, quoted = "", set[Evidence]()
    for place, link in enumerate(links, 1):
        role, text = ROLE_LABELS[link.role], visible(link.text)
        shown = [each for each in link.evidence[:EVIDENCE_SHOWN] if each not in quoted]
        below = [Text(line, DIM) for each in shown for line in joined(evidence_parts(each, zone, quoted=text), room)]
        head = Text().append(f" {format_clock(link.at, zone):>{_CLOCK}}  ", DIM).append("●", colour)
        last = place == len(links) and not remedies
        yield from _station(head, "" if role == previous else role, text, below, room, last=last)
        previous = role
        quoted.update(link.evidence)
    for place, remedy in enumerate(remedies, 1):
        # The chain above already names the process.
        named = not remedy.target or remedy.target.isdigit() or remedy.names_target
        text = visible(remedy.text if named else f"{remedy.text} ({remedy.target})")
        below = [Text(remedy_cost_text(remedy), DIM)]
        if remedy.command:
            # Commands are meant to be copied, so they are never broken.
            where = f"on {visible(remedy.node)} " if remedy.node is not None else ""
            below.insert(0, Text().append(f"{where}$ ", DIM).append(visible(remedy.command), BOLD))
        head = Text(" " * (_CLOCK + 3)).append("▶", GREEN)
        role = "remedy" if place == 1 else ""
        yield from _station(head, role, text, below, room, last=place == len(remedies))


def _station(head: Text, role: str, text: str, below: Sequence[Text], room: int, *, last: bool) -> Iterator[Text]:
    """One link of a chain: its mark, role and text, and any details below."""
    lines = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    yield head.append(f" {role:<{_ROLE}}", BOLD).append(lines[0])
    hang = Text(" " * (_LEAD - 2)).append(" " if last else "│", DIM).append(" " * (_ROLE + 1))
    for line in (*map(Text, lines[1:]), *below):
        yield hang.copy().append_text(line)


def joined(parts: Sequence[str], room: int) -> list[str]:
    """Parts side by side, as many as fit on a line; continuation lines are indented."""
    lines = [""]
    for part in (shortened(each, room - 2) for each in parts):
        longer = f"{lines[-1]} · {part}" if lines[-1].strip() else lines[-1] + part
        if len(longer) <= room or not lines[-1].strip():
            lines[-1] = longer
        else:
            lines.append(f"  {part}")
    return lines

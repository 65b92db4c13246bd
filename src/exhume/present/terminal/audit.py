"""An audit in the terminal: who is in trouble, the worst first, each with why, whether it is needed, where it is from
and what it costs; then what came switched on with the image, and what could not be seen."""

import textwrap
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from itertools import groupby

from rich.console import Console
from rich.style import Style
from rich.text import Text

from exhume.model.audit import Audit, Judged, Needed, Trait
from exhume.model.text import count
from exhume.model.times import format_clock
from exhume.present.audit_view import (
    NEED_LABELS,
    ORIGIN_LABELS,
    TRAIT_LABELS,
    cost_text,
    headline,
    history_text,
    last_exit_text,
    look_command,
    pace_text,
    plan_command,
    wanted_text,
)
from exhume.present.diagnosis_view import shortened
from exhume.present.events_view import visible
from exhume.present.terminal.diagnosis import width_of

_RED, _ORANGE, _BLUE, _GREEN, _GREY = "#d55e00", "#e69f00", "#56b4e9", "#009e73", "#7f8792"
_COLOURS = {
    Trait.CRASH_LOOP: _RED,
    Trait.FAILED: _RED,
    Trait.DEPENDENCY_FAILED: _ORANGE,
    Trait.FLAPPING: _ORANGE,
    Trait.UNHEALTHY: _ORANGE,
    Trait.CONDITION_FAILED: _BLUE,
    Trait.DEFAULT_ON: _BLUE,
}
_NEED_COLOURS = {Needed.NO: _RED, Needed.YES: _GREEN, Needed.UNKNOWN: _GREY}
_BOLD, _DIM, _PLAIN = Style(bold=True), Style(dim=True), Style()
_LABEL = 8
_LEAST_ROOM = 10
_SHOWN = 12
_NAMES_SHOWN = 6
_LOG_LINES = 3


def print_audit(terminal: Console, audit: Audit, zone: tzinfo | None, *, everything: bool = False) -> None:
    for line in audit_lines(audit, zone, width_of(terminal), everything=everything):
        terminal.print(line)


def audit_lines(audit: Audit, zone: tzinfo | None, width: int, *, everything: bool = False) -> Iterator[Text]:
    troubled = [each for each in audit.services if each.troubled]
    yield from _head(audit, zone, width)
    if len(troubled) > 1:
        yield Text()
        yield from _table(troubled if everything else troubled[:_SHOWN], width)
    for number, judged in enumerate(troubled if everything else troubled[:_SHOWN], 1):
        yield Text()
        yield from _paragraph(judged, f"{number}. " if len(troubled) > 1 else "", width)
    if len(troubled) > _SHOWN and not everything:
        yield Text()
        rest = [f"{visible(each.service.key)} ({TRAIT_LABELS[each.traits[0]]})" for each in troubled[_SHOWN:]]
        more = f"and {len(rest):,} more in trouble; --all shows them too: {_some(rest)}"
        yield from _hung(Text(), more, width, _DIM)
    quiet = [each for each in audit.services if not each.troubled]
    if everything:
        if quiet:
            yield Text()
            yield from _table(quiet, width)
        if len(audit.services) == 1 and quiet:
            yield Text()
            yield from _paragraph(quiet[0], "", width)
    else:
        yield from _default_on(quiet, width)
        yield from _held_back(quiet, width)
    if audit.blind_spots:
        yield Text()
        yield Text("could not be seen", _BOLD)
        for each in audit.blind_spots:
            yield from _hung(Text("  · ", _DIM), each, width, _DIM)


def _head(audit: Audit, zone: tzinfo | None, width: int) -> Iterator[Text]:
    worst = next((each.traits[0] for each in audit.services if each.troubled), None)
    word, colour = (TRAIT_LABELS[worst], _COLOURS[worst]) if worst else ("well", _GREEN)
    badge = Text().append(f" {word.upper()} ", Style(color="#000000", bgcolor=colour, bold=True)).append(" ")
    yield from _hung(badge, headline(audit), width, _BOLD)
    managers = ", ".join(str(each) for each in audit.managers)
    counted = f"{count(len(audit.services), 'service')} of {managers}, {audit.healthy:,} with nothing to say of"
    yield from _hung(Text(" "), f"{audit.node} · {format_clock(audit.taken_at, zone)} · {counted}", width, _DIM)


def _table(judged: Sequence[Judged], width: int) -> Iterator[Text]:
    """One line each: name, what is wrong, how often, how it ended, needed or not."""
    rows = [
        (
            visible(each.service.key),
            TRAIT_LABELS[each.traits[0]] if each.traits else each.service.state,
            pace_text(each.service),
            last_exit_text(each.service),
            NEED_LABELS[each.need.needed],
        )
        for each in judged
    ]
    titles = ("name", "state", "starts", "last end", "needed?")
    widths = [max(len(row[place]) for row in (titles, *rows)) for place in range(len(titles))]
    # Names give way first, then how they ended.
    widths[3] = min(widths[3], 24)
    for place, least in ((0, 20), (3, 8), (0, 8)):
        over = sum(widths) + 2 * len(titles) - width
        widths[place] = max(min(least, widths[place]), widths[place] - max(0, over))
    yield Text("  " + "  ".join(f"{title:<{wide}}" for title, wide in zip(titles, widths, strict=True)).rstrip(), _DIM)
    for each, row in zip(judged, rows, strict=True):
        cells = [f"{shortened(cell, wide):<{wide}}" for cell, wide in zip(row, widths, strict=True)]
        trait = Style(color=_COLOURS[each.traits[0]]) if each.traits else _DIM
        styles = (
            _BOLD if each.troubled else _PLAIN,
            trait,
            _PLAIN,
            _PLAIN,
            Style(color=_NEED_COLOURS[each.need.needed]),
        )
        line = Text(" ")
        for cell, style in zip(cells, styles, strict=True):
            line.append(" ").append(cell, style).append(" ")
        line.rstrip()
        yield line


def _paragraph(judged: Judged, number: str, width: int) -> Iterator[Text]:
    service = judged.service
    colour = _COLOURS[judged.traits[0]] if judged.traits else _GREY
    head = Text().append(shortened(f"{number}{visible(service.key)}", width), _BOLD)
    labels = Text()
    for trait in judged.traits:
        labels.append("  ").append(TRAIT_LABELS[trait], Style(color=_COLOURS[trait]))
    labels.append("  ").append(NEED_LABELS[judged.need.needed], Style(color=_NEED_COLOURS[judged.need.needed]))
    if head.cell_len + labels.cell_len > width:
        yield head
        head = Text(" ")
    head.append_text(labels)
    room = width - head.cell_len - 2
    agent = judged.agent
    purpose = f"{agent.title}: {agent.purpose}" if agent is not None else service.description
    if purpose and purpose != service.key and room > _LEAST_ROOM:
        head.append(f"  {shortened(visible(purpose), room)}", _DIM)
    yield head
    loops = Trait.CRASH_LOOP in judged.traits or Trait.FLAPPING in judged.traits
    past = "" if loops else history_text(service)
    for label, said in (
        ("why", "; ".join(judged.explained)),
        ("needed?", f"{judged.need.needed}: {judged.need.why}"),
        ("from", f"{ORIGIN_LABELS[judged.provenance.origin]}: {judged.provenance.why}"),
        ("past", past),
        ("costs", cost_text(service.costs)),
        ("wanted", wanted_text(service)),
        ("image", service.image or ""),
    ):
        if said:
            strong = _BOLD if label == "why" else _PLAIN
            yield from _hung(_label(label, colour), said, width, strong)
    for place, line in enumerate(_log(service.log) if judged.troubled else ()):
        room = width - _LABEL - 3
        yield _label("log" if place == 0 else "", colour).append(shortened(visible(line), room), _DIM)
    if judged.troubled:
        # What may be needed is to be mended, and what would stop it comes after that.
        useless = judged.need.needed is Needed.NO
        first = plan_command(judged) if useless else look_command(judged)
        yield _label("", colour).append("▶ ", Style(color=_GREEN)).append(visible(first), _BOLD)
        if not useless:
            yield _label("", colour).append(f"  to stop it: {visible(plan_command(judged))}", _DIM)


def _log(lines: Sequence[str]) -> list[str]:
    """The last lines; what is said again and again, once."""
    counted = [(line, len(list(same))) for line, same in groupby(lines)]
    return [f"{line}  ({times} times)" if times > 1 else line for line, times in counted[-_LOG_LINES:]]


def _default_on(quiet: Sequence[Judged], width: int) -> Iterator[Text]:
    """What the image switched on: those that nothing needs by name, the others by their number."""
    found = [each for each in quiet if each.traits == (Trait.DEFAULT_ON,)]
    if not found:
        return
    idle = [each for each in found if each.need.needed is Needed.NO]
    yield Text()
    yield Text(f"on by the image's default: {count(len(found), 'service')}", _BOLD)
    for each in idle[:_SHOWN]:
        yield from _hung(_name(each, _RED), f"not needed here: {each.need.why}", width, _PLAIN)
    rest = [visible(each.service.key) for each in found if each not in idle[:_SHOWN]]
    if rest:
        others = "besides: " if idle else ""
        yield from _hung(Text("  · ", _DIM), f"{others}{_some(rest)}", width, _DIM)


def _held_back(quiet: Sequence[Judged], width: int) -> Iterator[Text]:
    """What a condition kept from starting: that is no trouble, but often the answer to why something isn't there."""
    found = [each for each in quiet if Trait.CONDITION_FAILED in each.traits]
    if not found:
        return
    own = [each for each in found if each.agent is None or not each.agent.protected]
    # What a fix holds back is the answer that people come for.
    own.sort(key=lambda each: each.service.held_back is None)
    yield Text()
    yield Text(f"not started, because a condition did not hold: {count(len(found), 'service')}", _BOLD)
    for each in own[:_NAMES_SHOWN]:
        why = each.explained[0].partition("because ")[2] if each.explained else ""
        yield from _hung(_name(each, _BLUE), why, width, _DIM)
    rest = [visible(each.service.key) for each in found if each not in own[:_NAMES_SHOWN]]
    if rest:
        yield from _hung(Text("  · ", _DIM), _some(rest), width, _DIM)


def _name(judged: Judged, colour: str) -> Text:
    return Text("  ").append("● ", Style(color=colour)).append(f"{shortened(visible(judged.service.key), 40)}  ", _BOLD)


def _label(text: str, colour: str) -> Text:
    return Text(" ").append("│ ", Style(color=colour)).append(f"{text:<{_LABEL}}", _DIM)


def _hung(lead: Text, text: str, width: int, style: Style) -> Iterator[Text]:
    """A text after its lead; the lines after the first hang below its beginning."""
    hang = min(lead.cell_len, width // 2)
    lines = textwrap.wrap(visible(text), max(20, width - hang), break_on_hyphens=False) or [""]
    yield lead.copy().append(lines[0], style)
    bar = lead.plain.startswith(" │")
    for line in lines[1:]:
        start = Text(" ").append("│", lead.spans[0].style) if bar else Text()
        yield start.append(" " * (hang - start.cell_len)).append(line, style)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more

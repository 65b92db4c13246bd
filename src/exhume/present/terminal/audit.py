"""An audit in the terminal: the services in trouble, the worst first, each with the reason, whether it is needed, its
origin and its cost; then what the image enabled by default, and what could not be seen."""

from collections.abc import Iterator, Sequence
from datetime import tzinfo
from itertools import groupby

from rich.console import Console
from rich.text import Text

from exhume.model.audit import Audit, Judged, Needed, Trait
from exhume.model.text import count, listing
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
from exhume.present.palette import BLUE, GREEN, GREY, ORANGE, RED
from exhume.present.terminal.console import BOLD, DIM, PLAIN, badge, bullets, hung, print_lines, section, width_of

_COLOURS = {
    **dict.fromkeys((Trait.CRASH_LOOP, Trait.FAILED), RED),
    **dict.fromkeys((Trait.DEPENDENCY_FAILED, Trait.FLAPPING, Trait.UNHEALTHY), ORANGE),
    **dict.fromkeys((Trait.CONDITION_FAILED, Trait.DEFAULT_ON), BLUE),
}
_NEED_COLOURS = {Needed.NO: RED, Needed.YES: GREEN, Needed.UNKNOWN: GREY}
_LABEL = 8
_LEAST_ROOM = 10
_SHOWN = 12
_NAMES_SHOWN = 6
_LOG_LINES = 3


def print_audit(terminal: Console, audit: Audit, zone: tzinfo | None, *, everything: bool = False) -> None:
    print_lines(terminal, audit_lines(audit, zone, width_of(terminal), everything=everything))


def audit_lines(audit: Audit, zone: tzinfo | None, width: int, *, everything: bool = False) -> Iterator[Text]:
    troubled, quiet = ([each for each in audit.services if each.troubled is kind] for kind in (True, False))
    shown = troubled if everything else troubled[:_SHOWN]
    word, colour = (TRAIT_LABELS[shown[0].traits[0]], _COLOURS[shown[0].traits[0]]) if shown else ("well", GREEN)
    yield from hung(badge(word, colour).append(" "), headline(audit), width, BOLD)
    managers = ", ".join(str(each) for each in audit.managers)
    counted = f"{count(len(audit.services), 'service')} of {managers}, {audit.healthy:,} with nothing to say of"
    yield from hung(" ", f"{audit.node} · {format_clock(audit.taken_at, zone)} · {counted}", width, DIM)
    if len(troubled) > 1:
        yield Text()
        yield from _table(shown, width)
    for number, judged in enumerate(shown, 1):
        yield Text()
        yield from _paragraph(judged, f"{number}. " if len(troubled) > 1 else "", width)
    if len(troubled) > len(shown):
        yield Text()
        rest = [f"{each.service.key} ({TRAIT_LABELS[each.traits[0]]})" for each in troubled[_SHOWN:]]
        more = f"and {len(rest):,} more in trouble; --all shows them too: {listing(rest, _NAMES_SHOWN)}"
        yield from hung("", more, width, DIM)
    if not everything:
        yield from _default_on(quiet, width)
        yield from _held_back(quiet, width)
    elif quiet:
        yield Text()
        yield from _table(quiet, width)
        if len(audit.services) == 1:
            yield Text()
            yield from _paragraph(quiet[0], "", width)
    if audit.blind_spots:
        yield from section("could not be seen", bullets(audit.blind_spots, width))


def _table(judged: Sequence[Judged], width: int) -> Iterator[Text]:
    """A line per service: name, what is wrong, how often, how it last ended, whether it is needed."""
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
    # If the table is too wide, names are shortened first, then how they ended.
    widths[3] = min(widths[3], 24)
    for place, least in ((0, 20), (3, 8), (0, 8)):
        over = sum(widths) + 2 * len(titles) - width
        widths[place] = max(min(least, widths[place]), widths[place] - max(0, over))
    yield Text("  " + "  ".join(f"{title:<{wide}}" for title, wide in zip(titles, widths, strict=True)).rstrip(), DIM)
    for each, row in zip(judged, rows, strict=True):
        trait = _COLOURS[each.traits[0]] if each.traits else DIM
        styles = (BOLD if each.troubled else PLAIN, trait, PLAIN, PLAIN, _NEED_COLOURS[each.need.needed])
        line = Text(" ")
        for cell, wide, style in zip(row, widths, styles, strict=True):
            line.append(" ").append(f"{shortened(cell, wide):<{wide}}", style).append(" ")
        line.rstrip()
        yield line


def _paragraph(judged: Judged, number: str, width: int) -> Iterator[Text]:
    service, agent, need = judged.service, judged.agent, judged.need
    colour = _COLOURS[judged.traits[0]] if judged.traits else GREY
    head = Text().append(shortened(f"{number}{visible(service.key)}", width), BOLD)
    labels = Text()
    for trait in judged.traits:
        labels.append("  ").append(TRAIT_LABELS[trait], _COLOURS[trait])
    labels.append("  ").append(NEED_LABELS[need.needed], _NEED_COLOURS[need.needed])
    if head.cell_len + labels.cell_len > width:
        yield head
        head = Text(" ")
    head.append_text(labels)
    room = width - head.cell_len - 2
    purpose = f"{agent.title}: {agent.purpose}" if agent is not None else service.description
    if purpose and purpose != service.key and room > _LEAST_ROOM:
        head.append(f"  {shortened(visible(purpose), room)}", DIM)
    yield head
    loops = Trait.CRASH_LOOP in judged.traits or Trait.FLAPPING in judged.traits
    for label, text in (
        ("why", "; ".join(judged.explained)),
        ("needed?", f"{need.needed}: {need.why}"),
        ("from", f"{ORIGIN_LABELS[judged.provenance.origin]}: {judged.provenance.why}"),
        ("past", "" if loops else history_text(service)),
        ("costs", cost_text(service.costs)),
        ("wanted", wanted_text(service)),
        ("image", service.image or ""),
    ):
        if text:
            yield from hung(_label(label, colour), text, width, BOLD if label == "why" else PLAIN)
    if not judged.troubled:
        return
    # The last lines of the log; consecutive repeats are shown once.
    counted = [(line, len(list(same))) for line, same in groupby(service.log)][-_LOG_LINES:]
    for place, (line, times) in enumerate(counted):
        text = visible(f"{line}  ({times} times)" if times > 1 else line)
        yield _label("" if place else "log", colour).append(shortened(text, width - _LABEL - 3), DIM)
    # A service that may be needed should be repaired: the command that stops it comes second.
    useless = need.needed is Needed.NO
    first = plan_command(judged) if useless else look_command(judged)
    yield _label("", colour).append("▶ ", GREEN).append(visible(first), BOLD)
    if not useless:
        yield _label("", colour).append(f"  to stop it: {visible(plan_command(judged))}", DIM)


def _default_on(quiet: Sequence[Judged], width: int) -> Iterator[Text]:
    """What the image enabled by default: the units that nothing needs by name, the others as a count."""
    found = [each for each in quiet if each.traits == (Trait.DEFAULT_ON,)]
    if not found:
        return
    idle = [each for each in found if each.need.needed is Needed.NO]
    yield from section(f"on by the image's default: {count(len(found), 'service')}")
    for each in idle[:_SHOWN]:
        yield from hung(_name(each, RED), f"not needed here: {each.need.why}", width)
    yield from _others([each for each in found if each not in idle[:_SHOWN]], width, "besides: " if idle else "")


def _held_back(quiet: Sequence[Judged], width: int) -> Iterator[Text]:
    """Services that a condition kept from starting: no trouble, but often the reason why something is missing."""
    found = [each for each in quiet if Trait.CONDITION_FAILED in each.traits]
    if not found:
        return
    own = [each for each in found if each.agent is None or not each.agent.protected]
    # Services held back by a fix come first: that is what people look for.
    own.sort(key=lambda each: each.service.held_back is None)
    yield from section(f"not started, because a condition did not hold: {count(len(found), 'service')}")
    for each in own[:_NAMES_SHOWN]:
        why = each.explained[0].partition("because ")[2] if each.explained else ""
        yield from hung(_name(each, BLUE), why, width, DIM)
    yield from _others([each for each in found if each not in own[:_NAMES_SHOWN]], width)


def _others(rest: Sequence[Judged], width: int, lead: str = "") -> Iterator[Text]:
    if rest:
        yield from bullets([lead + listing([each.service.key for each in rest], _NAMES_SHOWN)], width)


def _name(judged: Judged, colour: str) -> Text:
    return Text("  ").append("● ", colour).append(f"{shortened(visible(judged.service.key), 40)}  ", BOLD)


def _label(text: str, colour: str) -> Text:
    return Text(" ").append("│ ", colour).append(f"{text:<{_LABEL}}", DIM)

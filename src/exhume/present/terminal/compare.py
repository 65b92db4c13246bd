"""A comparison in the terminal: a summary sentence, the differences, and what could not be compared."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from exhume.fleet.compare import Comparison, Difference, difference_text
from exhume.present.compare_view import GRAVE, NOTABLE, rest_text, shown_differences, subtitle, unread_text
from exhume.present.palette import BLUE, GREEN, GREY, ORANGE, RED
from exhume.present.terminal.console import BOLD, DIM, badge, bullets, hung, print_lines, section, width_of


def print_comparison(terminal: Console, comparison: Comparison, *, everything: bool = False) -> None:
    print_lines(terminal, comparison_lines(comparison, width_of(terminal), everything=everything))


def comparison_lines(comparison: Comparison, width: int, *, everything: bool = False) -> Iterator[Text]:
    found = comparison.differences
    word, colour = ("different", _colour(found[0])) if found else ("identical", GREEN)
    if not found and comparison.unread:
        word, colour = "no difference", BLUE
    yield from hung(badge(word, colour).append(" "), comparison.sentence, width, BOLD)
    yield from hung(" ", subtitle(comparison), width, DIM)
    shown = shown_differences(comparison, everything=everything)
    if len(found) > 1:
        yield Text()
        for number, each in enumerate(shown, 1):
            lead = Text(f"{number:>3}. ").append("● ", _colour(each))
            yield from hung(lead, difference_text(each, comparison.a.label, comparison.b.label), width)
        if len(found) > len(shown):
            yield from hung("     ", f"and {rest_text(comparison, len(shown))}; --all lists them", width, DIM)
    if comparison.unread:
        yield from section("not compared", bullets(map(unread_text, comparison.unread), width))


def _colour(difference: Difference) -> str:
    return RED if difference.weight >= GRAVE else ORANGE if difference.weight >= NOTABLE else GREY

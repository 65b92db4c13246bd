"""List the kernel log and other events of a window, each with the wall time at which it happened."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from exhume.cli import exits
from exhume.cli.options import add_looking, value_of
from exhume.model.events import KERNEL_LOG

if TYPE_CHECKING:
    from exhume.cli.looking import Look
    from exhume.store.read.events import EventView


def add_options(parser: ArgumentParser) -> None:
    add_looking(parser)
    parser.add_argument("--kind", action="append", metavar="KIND", help="Only events of this kind; can be repeated.")


def run(options: Namespace) -> int:
    from exhume.cli.listing import print_listing
    from exhume.cli.looking import Look, report_damaged
    from exhume.cli.speaking import directory_words, patience, say, suggest
    from exhume.store.read.events import of_kinds

    look = Look.into(options)
    window = look.moments(options.since, options.until)
    with patience("reading events"):
        happened = look.recording.events(window)
        found = of_kinds(happened, options.kind)
    report_damaged(look.recording)
    print_listing(look, found, "events", options.json, value_of(options, "color"))
    if not found:
        say(f"exhume: {_why_none(look, options, happened)}")
        return exits.NOTHING
    suggest(f"exhume incidents{directory_words(look.recording.directory)}")
    return exits.OK


def _why_none(look: "Look", options: Namespace, happened: "list[EventView]") -> str:
    what = f"events of kind {' or '.join(options.kind)}" if options.kind else "events"
    kinds = sorted({event.kind for event in happened})
    if kinds:
        return f"there are no {what} in that window; the kinds there are: {', '.join(kinds)}"
    return look.nothing_in(look.window(options.since, options.until), what, sources=[KERNEL_LOG])

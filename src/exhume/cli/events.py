"""List the kernel log and other events of a window, each with the wall time at which it happened."""

from argparse import ArgumentParser, Namespace

from exhume.cli import exits
from exhume.cli.options import add_looking, value_of


def add_options(parser: ArgumentParser) -> None:
    add_looking(parser)
    parser.add_argument("--kind", action="append", metavar="KIND", help="Only events of this kind; can be repeated.")


def run(options: Namespace) -> int:
    from exhume.cli.listing import print_listing
    from exhume.cli.looking import Look
    from exhume.cli.speaking import directory_words, patience, say, suggest

    look = Look.into(options)
    window = look.window(options.since, options.until)
    with patience("reading events"):
        found = look.recording.events(window, options.kind)
    print_listing(look, found, "events", options.json, value_of(options, "color"))
    if not found:
        say(f"exhume: {look.nothing_in(window, 'events')}")
        return exits.NOTHING
    suggest(f"exhume incidents{directory_words(look.recording.directory)}")
    return exits.OK

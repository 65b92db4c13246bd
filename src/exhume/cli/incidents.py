"""List the moments that the recorder marked.

Cores that were starved, ksoftirqd threads that had to wait, log lines that tell of it, leaking cgroups.
"""

from argparse import ArgumentParser, Namespace

from exhume.cli import exits
from exhume.cli.options import add_looking, value_of

# Sources that a node may lack and in which the recorder finds incidents, as recordings name them.
SOURCES = ("threads", "kernel-log", "netdev", "cgroups")


def add_options(parser: ArgumentParser) -> None:
    add_looking(parser)


def run(options: Namespace) -> int:
    from exhume.cli.listing import print_listing
    from exhume.cli.looking import Look
    from exhume.cli.speaking import directory_words, patience, say, suggest
    from exhume.model.clock import NANOS
    from exhume.model.events import INCIDENT
    from exhume.model.times import format_moment

    look = Look.into(options)
    with patience("reading events"):
        found = look.recording.events(look.moments(options.since, options.until), [INCIDENT])
    print_listing(look, found, "incidents", options.json, value_of(options, "color"))
    where = directory_words(look.recording.directory)
    if not found:
        window = look.window(options.since, options.until)
        say(f"exhume: {look.nothing_in(window, 'incidents', sources=SOURCES)}")
        suggest(f"exhume cores{where}")
        return exits.NOTHING
    first = found[0]
    begin, end = (format_moment(first.wall + offset * NANOS, look.zone, digits=0) for offset in (-5, 5))
    core = "" if first.cpu is None else f" --cpu {first.cpu}"
    suggest(f"exhume flame{where} --since {begin} --until {end}{core} -o incident.html")
    return exits.OK

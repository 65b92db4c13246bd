"""Tell what a recording holds, lost and cost: span, size, rate, event source, losses, own cost, what is missing."""

from argparse import ArgumentParser, Namespace

from exhume.cli import exits
from exhume.cli.options import add_looking


def add_options(parser: ArgumentParser) -> None:
    add_looking(parser, window=False, color=False)


def run(options: Namespace) -> int:
    from exhume.cli.looking import Look
    from exhume.cli.speaking import directory_words, patience, suggest
    from exhume.present.events_view import visible
    from exhume.present.info_view import info_json, info_lines
    from exhume.store.write.lock import being_recorded

    look = Look.into(options)
    with patience("reading the recording"):
        found = look.recording.info()
    live = being_recorded(look.recording.directory)
    sealed = all(segment.sealed for segment in look.recording.segments)
    if options.json:
        import json

        print(json.dumps(info_json(found, look.zone, live=live, sealed=sealed)))
        return exits.OK
    for what, value in info_lines(found, look.zone, live=live, sealed=sealed):
        print(f"{what:<10} {visible(value)}")
    suggest(f"exhume cores{directory_words(look.recording.directory)}")
    return exits.OK

"""List the moments that the recorder marked, each with what explains it best.

Cores that were starved, ksoftirqd threads that had to wait, log lines that tell of it, leaking cgroups.
"""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from exhume.cli import exits
from exhume.cli.options import add_looking, value_of

if TYPE_CHECKING:
    from exhume.cli.looking import Look
    from exhume.present.incidents_view import Explained, Moment

# Sources that a node may lack and in which the recorder finds incidents, as recordings name them.
SOURCES = ("threads", "kernel-log", "netdev", "cgroups")
# Explaining is cut off after this long; the newest moments come first.
LONGEST_S = 30.0


def add_options(parser: ArgumentParser) -> None:
    add_looking(parser)
    parser.add_argument("--no-findings", action="store_true", help="Only list the marks: explain nothing.")


def run(options: Namespace) -> int:
    from exhume.cli.looking import Look, report_damaged
    from exhume.cli.speaking import directory_words, patience, say, suggest
    from exhume.model.events import INCIDENT
    from exhume.present.incidents_view import Explained, moments_of

    look = Look.into(options)
    with patience("reading events"):
        found = look.recording.events(look.moments(options.since, options.until), [INCIDENT])
    moments = moments_of(found)
    explained = [Explained(moment) for moment in moments] if options.no_findings else _explain(look, moments)
    report_damaged(look.recording)
    _print(look, explained, options)
    where = directory_words(look.recording.directory)
    if not found:
        window = look.window(options.since, options.until)
        say(f"exhume: {look.nothing_in(window, 'incidents', sources=SOURCES)}")
        suggest(f"exhume cores{where}")
        return exits.NOTHING
    left_out = sum(each.diagnosis is None for each in explained)
    if left_out and not options.no_findings:
        say(f"exhume: {left_out} of {len(moments)} moments were not explained within {LONGEST_S:.0f} s; narrow --since")
    suggest(_next(look, moments[-1]))
    return exits.OK


def _explain(look: "Look", moments: "list[Moment]") -> "list[Explained]":
    """The newest first, until the time is over; told in the order in which they happened."""
    import time

    from exhume.cli.speaking import ProgressBar
    from exhume.diagnose.engine import diagnose
    from exhume.present.incidents_view import Explained
    from exhume.store.read.cached import Remembered

    recording = Remembered(look.recording)
    began = time.monotonic()
    explained: list[Explained] = []
    with ProgressBar("explaining") as bar:
        for done, moment in enumerate(reversed(moments)):
            window = moment.window.clamp(look.span)
            late = time.monotonic() - began > LONGEST_S
            diagnosis = None if late or window.empty else diagnose(recording, window, at=moment.at)
            explained.insert(0, Explained(moment, diagnosis))
            bar((done + 1) / len(moments))
    look.recording.note_damaged(recording.damaged)
    return explained


def _print(look: "Look", explained: "list[Explained]", options: Namespace) -> None:
    if options.json:
        import json

        from exhume.present.incidents_view import incidents_json

        print(json.dumps(incidents_json(explained, look.recording.facts.node, look.zone)))
        return
    from exhume.present.terminal.console import console
    from exhume.present.terminal.incidents import print_incidents

    print_incidents(console(value_of(options, "color")), explained, look.zone)


def _next(look: "Look", moment: "Moment") -> str:
    from exhume.cli.speaking import directory_words
    from exhume.model.times import format_moment

    where = directory_words(look.recording.directory)
    return f"exhume diagnose{where} --at {format_moment(moment.at, look.zone, digits=0)}"

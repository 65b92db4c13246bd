"""List the kernel log and other events of a window, each with the wall time at which it happened."""

import json
from argparse import ArgumentParser, Namespace

from exhume.cli import exit_codes
from exhume.cli.args import add_recording_options, value_of
from exhume.cli.recording_args import RecordingView, report_damaged
from exhume.cli.terminal import activity, say, suggest
from exhume.model.settings import COLOR
from exhume.model.tables import KERNEL_LOG
from exhume.present.events_view import events_json
from exhume.present.terminal.console import console
from exhume.present.terminal.events import print_events
from exhume.store.read.events import EventView, of_kinds


def add_options(parser: ArgumentParser) -> None:
    add_recording_options(parser)
    parser.add_argument("--kind", action="append", metavar="KIND", help="Only events of this kind; can be repeated.")


def run(options: Namespace) -> int:
    view = RecordingView.open(options)
    window = view.event_window(options)
    with activity("reading events"):
        events = view.recording.events(window)
        found = of_kinds(events, options.kind)
    report_damaged(view.recording)
    if options.json:
        print(json.dumps(events_json(found, view.recording.facts.node, "events", view.zone)))
    else:
        print_events(console(value_of(options, COLOR)), found, view.zone)
    if not found:
        return _nothing(view, options, events)
    suggest(f"exhume incidents{view.dir_args}")
    return exit_codes.OK


def _nothing(view: RecordingView, options: Namespace, events: list[EventView]) -> int:
    what = f"events of kind {' or '.join(options.kind)}" if options.kind else "events"
    kinds = sorted({event.kind for event in events})
    if not kinds:
        return view.no_data(view.window(options), what, sources=[KERNEL_LOG])
    say(f"exhume: no {what} in that window; the kinds in it are {', '.join(kinds)}")
    return exit_codes.NO_DATA

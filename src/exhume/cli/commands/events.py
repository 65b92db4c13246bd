"""List the kernel log and other events of a window, each with the wall time at which it happened."""

from argparse import ArgumentParser, Namespace

from exhume.cli import exit_codes
from exhume.cli.args import add_recording_options, option
from exhume.cli.recording_args import RecordingView, add_cpu, on_cpus, parse_cpus, report_damaged
from exhume.cli.terminal import activity, say, show, suggest
from exhume.model.tables import KERNEL_LOG
from exhume.present.events_view import events_json
from exhume.present.terminal.events import print_events
from exhume.store.read.events import of_kinds


def add_options(parser: ArgumentParser) -> None:
    add_recording_options(parser)
    option(parser, "--kind KIND", "Only events of this kind; can be repeated.", action="append")
    add_cpu(parser)


def run(options: Namespace) -> int:
    cpus = parse_cpus(options.cpu or [])
    view = RecordingView.open(options)
    window = view.event_window(options)
    with activity("reading events"):
        events = on_cpus(view.recording.events(window), cpus)
        found = of_kinds(events, options.kind)
    report_damaged(view.recording)
    show(
        options,
        lambda: events_json(found, view.recording.facts.node, view.zone),
        lambda terminal: print_events(terminal, found, view.zone),
    )
    if found:
        suggest(f"exhume incidents{view.dir_args}")
        return exit_codes.OK
    what = f"events of kind {' or '.join(options.kind)}" if options.kind else "events"
    what += f" that name core {','.join(options.cpu)}" if options.cpu else ""
    if not events:
        return view.no_data(view.window(options), what, sources=[KERNEL_LOG])
    kinds = sorted({event.kind for event in events})
    say(f"exhume: no {what} in that window; the kinds in it are {', '.join(kinds)}")
    return exit_codes.NO_DATA

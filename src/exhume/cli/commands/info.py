"""Show what a recording holds, lost and cost: span, size, rate, event source, losses, own cost, missing sources."""

from argparse import ArgumentParser, Namespace

from exhume.cli import exit_codes
from exhume.cli.args import add_recording_options
from exhume.cli.recording_args import RecordingView
from exhume.cli.terminal import activity, show, suggest
from exhume.present.info_view import info_json, info_lines
from exhume.present.terminal.console import print_values
from exhume.store.write.lock import being_recorded


def add_options(parser: ArgumentParser) -> None:
    add_recording_options(parser, window=False)


def run(options: Namespace) -> int:
    view = RecordingView.open(options)
    with activity("reading the recording"):
        found = view.recording.info()
    live = being_recorded(view.recording.directory)
    sealed = all(segment.sealed for segment in view.recording.segments)
    show(
        options,
        lambda: info_json(found, view.zone, live=live, sealed=sealed),
        lambda terminal: print_values(terminal, info_lines(found, view.zone, live=live, sealed=sealed)),
    )
    if not options.json:
        suggest(f"exhume cores{view.dir_args}")
    return exit_codes.OK if found.span is not None else exit_codes.NO_DATA

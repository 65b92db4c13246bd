"""List the incidents that the recorder marked, each with the finding that explains it best.

Marks are starved cores, ksoftirqd threads that had to wait, log lines about starvation, and leaking cgroups.
"""

import time
from argparse import ArgumentParser, Namespace

from exhume.cli import exit_codes
from exhume.cli.args import add_recording_options, option
from exhume.cli.recording_args import RecordingView, add_cpu, on_cpus, parse_cpus, report_damaged
from exhume.cli.terminal import ProgressBar, activity, say, show, suggest
from exhume.diagnose.engine import diagnose
from exhume.diagnose.moments import Moment, moments_of
from exhume.model.tables import INCIDENT
from exhume.model.times import format_moment
from exhume.present.events_view import Explained, incidents_json
from exhume.present.terminal.events import print_incidents
from exhume.store.read.cached import CachedRecording

# Sources that a node may lack and in which the recorder finds incidents.
SOURCES = ("threads", "kernel-log", "netdev", "cgroups")
# Explaining stops after this long; it begins with the newest moment.
MAX_SECONDS = 30.0


def add_options(parser: ArgumentParser) -> None:
    add_recording_options(parser)
    add_cpu(parser)
    option(parser, "--no-findings", "List the marks only, without a diagnosis.")


def run(options: Namespace) -> int:
    cpus = parse_cpus(options.cpu or [])
    view = RecordingView.open(options)
    with activity("reading events"):
        marks = on_cpus(view.recording.events(view.event_window(options), [INCIDENT]), cpus)
    moments = moments_of(marks)
    explained = [Explained(moment) for moment in moments] if options.no_findings else _explain(view, moments)
    report_damaged(view.recording)
    show(
        options,
        lambda: incidents_json(explained, view.recording.facts.node, view.zone),
        lambda terminal: print_incidents(terminal, explained, view.zone),
    )
    if not marks:
        # In a window that was recorded that is good news, unless a source that would show one was missing.
        window = view.window(options)
        suggest(f"exhume cores{view.dir_args}")
        code = view.no_data(window, "incidents", sources=SOURCES)
        return code if window.empty else exit_codes.OK
    left_out = sum(each.diagnosis is None for each in explained)
    if left_out and not options.no_findings:
        say(f"exhume: {left_out} of {len(moments)} moments not explained within {MAX_SECONDS:.0f} s; narrow --since")
    suggest(f"exhume diagnose{view.dir_args} --at {format_moment(moments[-1].at, view.zone, digits=0)}")
    return exit_codes.FINDINGS


def _explain(view: RecordingView, moments: list[Moment]) -> list[Explained]:
    """Diagnose the newest first, until the time is over; the result is in the order of time."""
    recording = CachedRecording(view.recording)
    began = time.monotonic()
    explained: list[Explained] = []
    with ProgressBar("explaining") as bar:
        for done, moment in enumerate(reversed(moments)):
            window = moment.window.clamp(view.span)
            late = time.monotonic() - began > MAX_SECONDS
            diagnosis = None if late or window.empty else diagnose(recording, window, at=moment.at)
            explained.insert(0, Explained(moment, diagnosis))
            bar((done + 1) / len(moments))
    view.recording.note_damaged(recording.damaged)
    return explained

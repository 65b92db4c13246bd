"""Find what starved this node: the cause, the evidence for it, and what to do.

Without a time it looks at the newest moment that the recorder marked; at the last ten minutes where several were marked
in them, or none was at all.
"""

import platform
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_recording_options, did_you_mean, option
from exhume.cli.recording_args import EMPTY, RecordingView, refuse_two_windows
from exhume.cli.terminal import ProgressBar, activity, say, show, suggest, write_file
from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.engine import diagnose
from exhume.library import Target, around, newest_target
from exhume.model.clock import NANOS
from exhume.model.errors import UsageError
from exhume.model.finding import Action, Diagnosis, Severity, Verdict
from exhume.model.times import parse_moment
from exhume.present.cause_pages import cause_page
from exhume.present.diagnosis_view import diagnosis_json
from exhume.present.terminal.diagnosis import print_diagnosis, print_page
from exhume.store.read.cached import CachedRecording


def add_options(parser: ArgumentParser) -> None:
    option(parser, "--at TIME", "The trouble nearest to this moment, within 20 seconds of it.")
    add_recording_options(parser)
    option(parser, "--all", "Also list why each of the other causes was ruled out.")
    option(parser, "--explain CAUSE", "Print what a cause is, how it is recognised and fixed; read no recording.")
    option(parser, "--html FILE", "Also write a self-contained page with pictures.", type=Path)


def run(options: Namespace) -> int:
    if options.explain is not None:
        return _explain(options)
    refuse_two_windows(options)
    view = RecordingView.open(options)
    view = replace(view, recording=CachedRecording(view.recording))
    target = find_target(view, options)
    if target.window.empty:
        if options.at is None or view.span.empty:
            return view.no_data(EMPTY, "seconds")
        say(f"exhume: nothing was recorded at {options.at}; the recording holds {view.format(view.span)}")
        return exit_codes.NO_DATA
    with ProgressBar("diagnosing") as bar:
        found = diagnose(view.recording, target.window, at=target.at, progress=bar).seen_from(platform.node())
    show(
        options,
        lambda: diagnosis_json(found, view.zone),
        lambda terminal: print_diagnosis(terminal, found, view.zone, unfold=options.all),
    )
    if options.html is not None:
        _write_page(view, found, options.html)
    suggest(_next(view, found))
    return exit_code(found)


def _explain(options: Namespace) -> int:
    """Print the page of a cause: as it is for a pipe, laid out on a terminal."""
    page = cause_page(options.explain)
    if page is None:
        known = ", ".join(catalogue())
        raise UsageError(f"{options.explain!r} is not a cause ({known}){did_you_mean(options.explain, catalogue())}")
    if options.json:
        raise UsageError("--explain prints a page, not JSON; leave out --json")
    show(options, dict, lambda terminal: print_page(terminal, page))
    return exit_codes.OK


def exit_code(found: Diagnosis) -> int:
    """1 for a finding above `info`, or trouble without a known cause; 3 where nothing could be judged."""
    above_info = any(finding.severity is not Severity.INFO for finding in found.findings)
    if above_info or found.verdict in (Verdict.STARVED, Verdict.DEGRADED):
        return exit_codes.FINDINGS
    return exit_codes.NO_DATA if found.verdict is Verdict.UNKNOWN else exit_codes.OK


def find_target(view: RecordingView, options: Namespace) -> Target:
    """The window that the options name; without any, the newest mark, or the last ten minutes where those have several
    or there is none."""
    if options.at is not None:
        return around(view.recording, view.span, parse_moment(options.at, view.reference))
    if not (options.last is options.since is options.until is None):
        return Target(view.window(options))
    with activity("looking for marks"):
        return newest_target(view.recording, view.span, view.newest)


def _write_page(view: RecordingView, found: Diagnosis, target: Path) -> None:
    # Only here: drawing takes as long to import as the rest of the command.
    from exhume.present.html.reports import diagnosis_report

    with activity("drawing the page"):
        content = diagnosis_report(view.recording, found, view.zone).encode("utf-8", "replace")
    write_file(target, content, "--html")
    say(f"{target}: {len(content) / 1e6:.1f} MB, self-contained")


def _next(view: RecordingView, found: Diagnosis) -> str:
    for finding in found.findings:
        for remedy in finding.remedies:
            if remedy.fix_target is not None:
                # Look first. A recording may be of another node than this one.
                where = "" if remedy.node is None else f"on {remedy.node}: "
                return where + replace(remedy, action=Action.PLAN).command
    if not found.findings:
        return f"exhume cores{view.dir_args}"
    cpu = found.findings[0].culprit.cpu
    core = "" if cpu is None else f" --cpu {cpu}"
    return f"exhume flame{view.window_args(found.focus[0], found.focus[1] + NANOS)}{core} -o culprit.html"

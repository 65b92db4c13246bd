"""Tell what starved this node: the cause, the evidence for it, and what to do.

Without a time it looks at the newest moment that the recorder marked, or else at the last ten minutes.
Exits with 0 when there is something to tell, 1 when nothing was wrong, 2 when it can't be told.
"""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.cli import exits
from exhume.cli.options import add_looking, value_of
from exhume.model.clock import NANOS
from exhume.model.errors import ExhumeError, UsageError

if TYPE_CHECKING:
    from exhume.cli.looking import Look
    from exhume.model.finding import Diagnosis
    from exhume.model.window import Window

AROUND_NS = 20 * NANOS
LAST_NS = 600 * NANOS
# The newest mark is most likely in the last minutes: the whole recording is only searched where it isn't.
SEARCHED = (600 * NANOS, 7200 * NANOS, 2**62)


@dataclass(frozen=True, slots=True)
class Asked:
    """What to look at: a window, or the trouble nearest to a moment in it."""

    window: "Window"
    at: int | None = None


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--at", metavar="TIME", help="The trouble nearest to this moment, within 20 seconds of it.")
    parser.add_argument("--last", metavar="DURATION", help="The last part of the recording, for example 10m.")
    add_looking(parser)
    parser.add_argument("--html", type=Path, metavar="FILE", help="Also write a page with pictures that stands alone.")


def run(options: Namespace) -> int:
    from exhume.cli.looking import Look
    from exhume.cli.speaking import ProgressBar, say, suggest
    from exhume.diagnose.engine import diagnose
    from exhume.store.read.cached import Remembered

    _no_contradictions(options)
    look = Look.into(options)
    look = replace(look, recording=Remembered(look.recording))
    asked = what_was_asked(look, options)
    if asked.window.empty:
        say(f"exhume: {_why_empty(look, options)}")
        return exits.NOTHING
    with ProgressBar("diagnosing") as bar:
        found = diagnose(look.recording, asked.window, at=asked.at, progress=bar)
    _print(look, found, options)
    if options.html is not None:
        _write_page(look, found, options.html)
    suggest(_next(look, found))
    return exit_code(found)


def exit_code(found: "Diagnosis") -> int:
    """Something to tell, nothing, or nothing that could be told."""
    if found.verdict == "unknown" and not found.findings:
        return exits.FAILED
    return exits.NOTHING if found.verdict == "healthy" and not found.findings else exits.OK


def _no_contradictions(options: Namespace) -> None:
    ways = {
        "--at": options.at,
        "--last": options.last,
        "--since and --until": options.since or options.until,
    }
    given = [way for way, value in ways.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} both say when; give one of them")


def what_was_asked(look: "Look", options: Namespace) -> Asked:
    """The window that the options name; without any, the newest mark, else the last ten minutes."""
    from exhume.model.times import parse_duration, parse_moment
    from exhume.model.window import Window

    if options.at is not None:
        moment = parse_moment(options.at, look.reference)
        return around(look, moment) if look.span.contains(moment) else Asked(Window(moment, moment))
    if options.last is not None:
        length = parse_duration(options.last)
        if length <= 0:
            raise UsageError(f"--last {options.last} is no time at all; write for example 10m")
        return Asked(look.last(length))
    if options.since is not None or options.until is not None:
        return Asked(look.window(options.since, options.until))
    newest = newest_mark(look)
    if newest is not None:
        return around(look, newest)
    return Asked(look.last(LAST_NS))


def around(look: "Look", moment: int) -> Asked:
    """The seconds about a moment."""
    from exhume.model.window import Window

    return Asked(Window(moment - AROUND_NS, moment + AROUND_NS).clamp(look.span), moment)


def newest_mark(look: "Look") -> int | None:
    """When the recorder last marked an incident (wall nanoseconds)."""
    from exhume.cli.speaking import patience
    from exhume.model.events import INCIDENT

    with patience("looking for marks"):
        for length in SEARCHED:
            window = look.last(length)
            marks = look.recording.events(window, [INCIDENT])
            if marks:
                return marks[-1].wall
            if window.since == look.span.since:
                break
    return None


def _why_empty(look: "Look", options: Namespace) -> str:
    from exhume.model.window import Window

    if options.at is not None and not look.span.empty:
        return f"nothing was recorded at {options.at}; the recording holds {look.shown(look.span)}"
    return look.nothing_in(Window(0, 0), "seconds")


def _print(look: "Look", found: "Diagnosis", options: Namespace) -> None:
    if options.json:
        import json

        from exhume.present.diagnosis_json import diagnosis_json

        print(json.dumps(diagnosis_json(found, look.zone)))
        return
    from exhume.present.terminal.console import console
    from exhume.present.terminal.diagnosis import print_diagnosis

    print_diagnosis(console(value_of(options, "color")), found, look.zone)


def _write_page(look: "Look", found: "Diagnosis", target: Path) -> None:
    from exhume.cli.speaking import patience, say
    from exhume.present.diagnosis_html import render_page
    from exhume.present.diagnosis_page import read_page

    with patience("drawing the page"):
        content = render_page(read_page(look.recording, found, look.zone)).encode("utf-8", "replace")
    try:
        target.write_bytes(content)
    except OSError as error:
        raise ExhumeError(f"can't write {target}: {error.strerror}; choose another file with --html") from error
    say(f"{target}: {len(content) / 1e6:.1f} MB, opens anywhere without a network")


def _next(look: "Look", found: "Diagnosis") -> str:
    from dataclasses import replace

    from exhume.cli.speaking import directory_words
    from exhume.model.finding import Action
    from exhume.model.times import format_moment

    where = directory_words(look.recording.directory)
    for finding in found.findings:
        for remedy in finding.remedies:
            if remedy.fix_target is not None:
                # Look first.
                return replace(remedy, action=Action.PLAN).command
    if not found.findings:
        return f"exhume cores{where}"
    since, until = (format_moment(moment, look.zone, digits=0) for moment in (found.focus[0], found.focus[1] + NANOS))
    cpu = found.findings[0].culprit.cpu
    core = "" if cpu is None else f" --cpu {cpu}"
    return f"exhume flame{where} --since {since} --until {until}{core} -o culprit.html"

"""Write a flame graph of a window to SVG, HTML, folded text, pprof or speedscope; with a baseline, a differential one.

Without --since it shows the last ten minutes before --until (or before the end of the recording).
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_recording_options, whole_number
from exhume.cli.recording_args import RecordingView, parse_cpus
from exhume.cli.terminal import activity, say, suggest
from exhume.interop.folded import render_folded
from exhume.interop.pprof import render_pprof
from exhume.interop.speedscope import render_speedscope
from exhume.model.clock import Window
from exhume.model.errors import ExhumeError, UsageError
from exhume.model.text import listing
from exhume.model.times import format_moment
from exhume.present.flame import FlameCaption, largest_changes
from exhume.present.flame_svg import render_svg
from exhume.present.html.flame import flame_report
from exhume.store.read.flame_tree import FlameTree, build_tree
from exhume.store.read.profile import ProfileFilter

STACKS = "stacks"  # the source of samples
DEFAULT_SPAN = 600 * 1_000_000_000
FORMATS = {
    ".svg": "svg",
    ".html": "html",
    ".htm": "html",
    ".folded": "folded",
    ".txt": "folded",
    ".pb.gz": "pprof",
    ".pprof": "pprof",
    ".speedscope.json": "speedscope",
}
# Formats without a second weight for each stack.
WITHOUT_BASELINE = {"pprof", "speedscope"}


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        metavar="FILE",
        required=True,
        help="File to write; its ending picks the format; - is stdout.",
    )
    add_recording_options(parser, json=False)
    parser.add_argument(
        "--cpu", action="append", metavar="N", help="Only these cores: 39, 0-3 or 0,2; can be repeated."
    )
    parser.add_argument("--comm", metavar="NAME", help="Only threads of this name.")
    parser.add_argument("--pid", type=whole_number(0, 2**31 - 1), metavar="PID", help="Only this process.")
    parser.add_argument(
        "--container",
        metavar="NAME",
        help="Only containers whose id or name (of Docker or Kubernetes) begins like this.",
    )
    parser.add_argument("--pod", metavar="NAME", help="Only pods whose id, namespace/name or name begins like this.")
    parser.add_argument("--stack", metavar="REGEX", help="Only stacks with a frame that matches.")
    parser.add_argument("--baseline", metavar="S..U", help="Show the difference to this range of time.")
    parser.add_argument(
        "--format", metavar="FORMAT", help="svg, html, folded, pprof or speedscope, whatever the file's ending."
    )


def run(options: Namespace) -> int:
    output: Path = options.output
    chosen = _format_of(output, options.format)
    if options.baseline is not None and chosen in WITHOUT_BASELINE:
        raise UsageError(f"{chosen} can't hold a difference: write each window without --baseline, or use .html")

    view = RecordingView.open(options)
    window = view.window(options, default_ns=DEFAULT_SPAN)
    selected = ProfileFilter(
        cpus=parse_cpus(options.cpu or []),
        comm=options.comm,
        pid=options.pid,
        stack_regex=options.stack,
        container=options.container,
        pod=options.pod,
        container_ids=view.recording.containers_named(options.container) if options.container else (),
    )
    before = view.range(options.baseline) if options.baseline is not None else None
    with activity("reading stacks"):
        current = view.recording.profile(window, selected)
        reference = view.recording.profile(before, selected) if before is not None else None
    filters = _filters(options)
    sides = {"that window": (window, current)}
    if before is not None and reference is not None:
        sides = {"the window": (window, current), "the baseline": (before, reference)}
    for named, (side, profile) in sides.items():
        # A side without samples can't be compared: everything would seem to have come or gone.
        if not profile.samples:
            what = "samples that match" if filters else "samples"
            return view.no_data(side, what, sources=[STACKS], named=named)
    tree = build_tree(current, reference)
    page = FlameCaption(
        title=f"{view.recording.facts.node} · CPU flame graph",
        window=view.format(window),
        baseline=view.format(before) if before is not None else "",
        filters=filters,
        blind_spots=list(dict.fromkeys(current.blind_spots + (reference.blind_spots if reference else []))),
    )
    with activity("drawing"):
        _write(output, _render(chosen, tree, page, window))
    _report(output, tree, page)
    suggest(_next(view, window, options.baseline))
    return exit_codes.OK


def _format_of(output: Path, requested: str | None) -> str:
    if requested is not None:
        if requested not in FORMATS.values():
            raise UsageError(f"{requested!r} is not a format: write svg, html, folded, pprof or speedscope")
        return requested
    if str(output) == "-":
        return "folded"
    name = output.name.lower()
    found = next((form for ending, form in FORMATS.items() if name.endswith(ending)), None)
    if found is None:
        raise UsageError(
            f"{output} does not say which format: end it in .svg, .html, .folded, .pb.gz or .speedscope.json, "
            "or add --format"
        )
    return found


def _filters(options: Namespace) -> list[str]:
    named = [
        ("core", ",".join(options.cpu or [])),
        ("thread", options.comm),
        ("pid", options.pid),
        ("container", options.container),
        ("pod", options.pod),
        ("stacks matching", options.stack),
    ]
    return [f"{label} {value}" for label, value in named if value not in (None, "")]


def _render(chosen: str, tree: FlameTree, page: FlameCaption, window: Window) -> bytes:
    """Names come from other programs: bytes in them that are not Unicode are replaced."""
    if chosen == "pprof":
        return render_pprof(tree, window)
    renderers: dict[str, Callable[[], str]] = {
        "svg": lambda: render_svg(tree, page),
        "html": lambda: flame_report(tree, page),
        "speedscope": lambda: render_speedscope(tree, f"{page.title}, {page.window}"),
        "folded": lambda: render_folded(tree),
    }
    return renderers[chosen]().encode("utf-8", "replace")


def _write(output: Path, content: bytes) -> None:
    if str(output) == "-":
        sys.stdout.buffer.write(content)
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        raise ExhumeError(f"can't write {output}: {error.strerror}; choose another file with -o") from error


def _report(output: Path, tree: FlameTree, page: FlameCaption) -> None:
    """Say what was written, the largest changes, and the blind spots."""
    if str(output) != "-":
        say(f"{output}: {page.subtitle(tree)}")
    for line in largest_changes(tree):
        say(f"  {line}")
    if page.blind_spots:
        say(f"blind spots: {listing(page.blind_spots)}")


def _next(view: RecordingView, window: Window, baseline: str | None) -> str:
    args = view.window_args(window.since, window.until, digits=3)
    if baseline is not None:
        return f"exhume events{args}"
    ends = (window.since - window.nanos, window.since)
    before = "..".join(format_moment(moment, view.zone, digits=3) for moment in ends)
    return f"exhume flame{args} --baseline {before} -o difference.html"

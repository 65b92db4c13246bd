"""Write a flame graph of a window to SVG, HTML, folded text, pprof or speedscope; with a baseline, a differential one.

Without --since it shows the last ten minutes before --until (or before the end of the recording).
"""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from exhume.cli import exit_codes
from exhume.cli.args import add_recording_options, option
from exhume.cli.recording_args import (
    DEFAULT_SPAN,
    STACKS,
    RecordingView,
    add_filters,
    filter_labels,
    profile_filter,
)
from exhume.cli.terminal import activity, say, suggest, write_file
from exhume.interop.folded import render_folded
from exhume.interop.pprof import render_pprof
from exhume.interop.speedscope import render_speedscope
from exhume.model.clock import Window
from exhume.model.errors import UsageError
from exhume.model.text import listing
from exhume.model.times import format_moment
from exhume.present.flame import FlameCaption, largest_changes, render_svg
from exhume.present.html.flame import flame_report
from exhume.store.read.flame_tree import FlameTree, build_tree

FORMATS = {
    **{".svg": "svg", ".html": "html", ".htm": "html", ".folded": "folded", ".txt": "folded"},
    **{".pb.gz": "pprof", ".pprof": "pprof", ".speedscope.json": "speedscope"},
}
# Formats without a second weight for each stack.
WITHOUT_BASELINE = {"pprof", "speedscope"}


def add_options(parser: ArgumentParser) -> None:
    output = "File to write; its ending picks the format; - is stdout."
    option(parser, "--output -o FILE", output, type=Path, required=True)
    add_recording_options(parser, json=False)
    add_filters(parser)
    option(parser, "--baseline S..U", "Show the difference to this range of time.")
    option(parser, "--format FORMAT", "svg, html, folded, pprof or speedscope, whatever the file's ending.")


def run(options: Namespace) -> int:
    output: Path = options.output
    chosen = _format_of(output, options.format)
    if options.baseline is not None and chosen in WITHOUT_BASELINE:
        raise UsageError(f"{chosen} can't hold a difference: write each window without --baseline, or use .html")

    view = RecordingView.open(options)
    window = view.window(options, default_ns=DEFAULT_SPAN)
    selected = profile_filter(options, view.recording)
    sides = {"that window": window}
    if options.baseline is not None:
        sides = {"the window": window, "the baseline": view.range(options.baseline)}
    with activity("reading stacks"):
        profiles = [view.recording.profile(side, selected) for side in sides.values()]
    filters = filter_labels(options)
    for (named, side), profile in zip(sides.items(), profiles, strict=True):
        # A side without samples can't be compared: everything would seem to have come or gone.
        if not profile.samples:
            what = "samples that match" if filters else "samples"
            return view.no_data(side, what, sources=[STACKS], named=named)
    tree = build_tree(*profiles)
    page = FlameCaption(
        title=f"{view.recording.facts.node} · CPU flame graph",
        window=view.format(window),
        baseline=view.format(sides["the baseline"]) if options.baseline is not None else "",
        filters=filters,
        blind_spots=list(dict.fromkeys(spot for profile in profiles for spot in profile.blind_spots)),
    )
    with activity("drawing"):
        content = _render(chosen, tree, page, window)
    if str(output) == "-":
        sys.stdout.buffer.write(content)
    else:
        write_file(output, content, "-o")
        say(f"{output}: {page.subtitle(tree)}")
    for line in largest_changes(tree):
        say(f"  {line}")
    if page.blind_spots:
        say(f"blind spots: {listing(page.blind_spots)}")
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


def _next(view: RecordingView, window: Window, baseline: str | None) -> str:
    args = view.window_args(window.since, window.until, digits=3)
    if baseline is not None:
        return f"exhume events{args}"
    ends = (window.since - window.nanos, window.since)
    before = "..".join(format_moment(moment, view.zone, digits=3) for moment in ends)
    return f"exhume flame{args} --baseline {before} -o difference.html"

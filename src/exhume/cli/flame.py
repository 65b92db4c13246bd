"""Write a flame graph of a window to SVG, HTML, folded text, pprof or speedscope; with a baseline, a differential one.

Without --since it shows the last ten minutes before --until (or before the end of the recording).
"""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.cli import exits
from exhume.cli.options import add_looking, whole_number
from exhume.model.errors import ExhumeError, UsageError

if TYPE_CHECKING:
    from exhume.cli.looking import Look
    from exhume.model.window import Window
    from exhume.present.flame import FlameTree
    from exhume.present.flame_page import FlamePage

STACKS = "stacks"  # the source of samples, as recordings name it
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
# These hold one side only.
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
    add_looking(parser, color=False, json=False)
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
        raise UsageError(
            f"{chosen} has no differences: write each window without --baseline and compare them there, or end in .html"
        )

    from exhume.cli.looking import Look, core_numbers
    from exhume.cli.speaking import patience, say, suggest
    from exhume.present.flame import build_tree
    from exhume.present.flame_page import FlamePage
    from exhume.store.read.profile import ProfileFilter

    look = Look.into(options)
    window = look.window(options.since, options.until, at_most=DEFAULT_SPAN)
    wanted = ProfileFilter(
        cpus=core_numbers(options.cpu or []),
        comm=options.comm,
        pid=options.pid,
        stack_regex=options.stack,
        container=options.container,
        pod=options.pod,
        container_ids=look.recording.containers_named(options.container) if options.container else (),
    )
    before = look.range(options.baseline) if options.baseline is not None else None
    with patience("reading stacks"):
        current = look.recording.profile(window, wanted)
        reference = look.recording.profile(before, wanted) if before is not None else None
    filters = _filters(options)
    sides = {"that window": (window, current)}
    if before is not None and reference is not None:
        sides = {"the window": (window, current), "the baseline": (before, reference)}
    for named, (side, profile) in sides.items():
        # A side without samples can't be compared: everything would seem to have come or gone.
        if not profile.samples:
            what = "samples that match" if filters else "samples"
            say(f"exhume: {look.nothing_in(side, what, sources=[STACKS], named=named)}")
            return exits.NOTHING
    tree = build_tree(current, reference)
    page = FlamePage(
        title=f"{look.recording.facts.node} · CPU flame graph",
        window=look.shown(window),
        baseline=look.shown(before) if before is not None else "",
        filters=filters,
        blind_spots=list(dict.fromkeys(current.blind_spots + (reference.blind_spots if reference else []))),
    )
    with patience("drawing"):
        _write(output, _render(chosen, tree, page, window))
    _conclude(output, tree, page)
    suggest(_next(look, window, options.baseline))
    return exits.OK


def _format_of(output: Path, asked: str | None) -> str:
    if asked is not None:
        if asked not in FORMATS.values():
            raise UsageError(f"{asked!r} is not a format: write svg, html, folded, pprof or speedscope")
        return asked
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
    return [f"{word} {value}" for word, value in named if value not in (None, "")]


def _render(chosen: str, tree: "FlameTree", page: "FlamePage", window: "Window") -> bytes:
    """Names come from other people's programs: what is not Unicode in them is replaced, never fatal."""
    if chosen == "pprof":
        from exhume.present.pprof import render_pprof

        return render_pprof(tree, window)
    return _text(chosen, tree, page).encode("utf-8", "replace")


def _text(chosen: str, tree: "FlameTree", page: "FlamePage") -> str:
    if chosen == "svg":
        from exhume.present.flame_svg import render_svg

        return render_svg(tree, page)
    if chosen == "html":
        from exhume.present.flame_html import render_html

        return render_html(tree, page)
    if chosen == "speedscope":
        from exhume.present.speedscope import render_speedscope

        return render_speedscope(tree, f"{page.title}, {page.window}")
    from exhume.present.folded import render_folded

    return render_folded(tree)


def _write(output: Path, content: bytes) -> None:
    if str(output) == "-":
        sys.stdout.buffer.write(content)
        return
    try:
        output.write_bytes(content)
    except OSError as error:
        raise ExhumeError(f"can't write {output}: {error.strerror}; choose another file with -o") from error


def _conclude(output: Path, tree: "FlameTree", page: "FlamePage") -> None:
    from exhume.cli.speaking import say
    from exhume.model.text import listing
    from exhume.present.differential import largest_changes

    if str(output) != "-":
        say(f"{output}: {page.subtitle(tree)}")
    for line in largest_changes(tree):
        say(f"  {line}")
    if page.blind_spots:
        say(f"blind spots: {listing(page.blind_spots)}")


def _next(look: "Look", window: "Window", baseline: str | None) -> str:
    from exhume.cli.speaking import directory_words
    from exhume.model.times import format_moment

    since, until = (format_moment(moment, look.zone, digits=3) for moment in (window.since, window.until))
    where = directory_words(look.recording.directory)
    if baseline is not None:
        return f"exhume events{where} --since {since} --until {until}"
    before = format_moment(window.since - window.nanos, look.zone, digits=3)
    return f"exhume flame{where} --since {since} --until {until} --baseline {before}..{since} -o difference.html"

"""A flame graph as a file: for people (SVG, HTML) and for other tools (folded, pprof, speedscope)."""

from datetime import UTC

from exhume.interop.folded import render_folded
from exhume.interop.pprof import render_pprof
from exhume.interop.speedscope import render_speedscope
from exhume.model.clock import Window
from exhume.model.times import format_moment
from exhume.present.flame import FlameCaption, render_svg
from exhume.present.html.flame import flame_report
from exhume.present.web.params import Format
from exhume.present.web.query import BoundQuery
from exhume.present.web.reply import Reply
from exhume.store.read.flame_tree import FlameTree
from exhume.store.read.profile import StackProfile

# The suffix and the media type of each.
FORMATS: dict[Format, tuple[str, str]] = {
    "folded": ("folded.txt", "text/plain; charset=utf-8"),
    "pprof": ("pb.gz", "application/gzip"),
    "speedscope": ("speedscope.json", "application/json"),
    "svg": ("svg", "image/svg+xml"),
    "html": ("html", "text/html; charset=utf-8"),
}


def render(form: Format, query: BoundQuery, tree: FlameTree, base: Window | None, profile: StackProfile) -> Reply:
    """The file, named after node and time."""
    node = query.recording.facts.node
    ending, media = FORMATS[form]
    window = query.window
    if form == "pprof":
        content = render_pprof(tree, window)
    elif form == "speedscope":
        content = render_speedscope(tree, f"{node} {_shown(window)}").encode()
    elif form == "folded":
        content = render_folded(tree).encode("utf-8", "replace")
    else:
        caption = FlameCaption(
            title=f"{node} · CPU flame graph",
            window=_shown(window),
            baseline=_shown(base) if base else "",
            filters=_filters(query),
            blind_spots=profile.blind_spots,
        )
        content = (render_svg if form == "svg" else flame_report)(tree, caption).encode("utf-8", "replace")
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in node) or "node"
    name = f"exhume-{safe}-{format_moment(window.since, UTC, digits=0).replace(':', '')}.{ending}"
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Reply(content, media, headers=headers)


def _shown(window: Window) -> str:
    return f"{format_moment(window.since, UTC)} to {format_moment(window.until, UTC)}"


def _filters(query: BoundQuery) -> list[str]:
    wanted = query.filter
    cores = ",".join(map(str, sorted(query.cpus))) if query.cpus is not None else None
    named = [
        ("core", cores),
        ("thread", wanted.comm),
        ("pid", wanted.pid),
        ("container", wanted.container),
        ("pod", wanted.pod),
        ("stacks matching", wanted.stack_regex),
        ("in", wanted.leaf),
    ]
    return [f"{label} {value}" for label, value in named if value is not None]

"""Show a recording's time range, size, sampling rate, event source, losses, overhead and missing sources."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from datetime import tzinfo
from typing import Any

from exhume.cli import exit_codes
from exhume.cli.args import add_recording_options, option
from exhume.cli.recording_args import RecordingView
from exhume.cli.terminal import activity, show, suggest
from exhume.model.clock import NANOS, Window
from exhume.model.facts import RecordingFacts
from exhume.model.text import count, duration, percent, size
from exhume.model.times import format_clock, format_day, format_offset
from exhume.present.cost_view import cost_lines, reason_of
from exhume.present.serializer import Shape, Shapes, to_json
from exhume.present.terminal.console import print_lines, print_values, width_of
from exhume.store.read.recording import CostOfSource, RecordingInfo, SelfCost
from exhume.store.write.lock import being_recorded

JSON_VERSION = 2


def info_json(info: RecordingInfo, zone: tzinfo | None, *, live: bool, sealed: bool) -> dict[str, Any]:
    """The documented shape of `exhume info --json`."""
    return {
        "version": JSON_VERSION,
        **to_json(info.facts, zone, _SHAPES),
        "live": live,
        "sealed": sealed,
        **to_json(info, zone, _SHAPES),
    }


_SHAPES: Shapes = {
    RecordingFacts: Shape(omit=("page_bytes", "cpu_cgroups", "cpu_cgroup_version")),
    RecordingInfo: Shape(omit=("facts",)),
    CostOfSource: Shape(add=lambda cost, _: {"reason": reason_of(cost)}),
    SelfCost: Shape(omit=("seconds", "rss_kb_max"), add=lambda cost, _: {"rss_bytes_max": cost.rss_kb_max * 1024}),
}


def info_lines(info: RecordingInfo, zone: tzinfo | None, *, live: bool, sealed: bool) -> Iterator[tuple[str, str]]:
    """A recording as text: labels and their values."""
    facts, cost = info.facts, info.cost
    state = "" if sealed else " (not sealed: the recorder was stopped; the next one seals it)"
    yield "recording", f"{info.directory}{' (being recorded now)' if live else state}"
    yield "node", f"{facts.node}, {count(facts.cores, 'core')}, Linux {facts.kernel} on {facts.arch}"
    if facts.labels:
        yield "labels", ", ".join(f"{name}={value}" for name, value in facts.labels.items())
    if info.span is None:
        yield "span", "nothing recorded yet"
    else:
        recorded, spanned = int(info.recorded_seconds * NANOS), info.span.nanos
        gaps = f", {duration(spanned - recorded)} not recorded" if spanned - recorded > 2 * NANOS else ""
        yield "span", f"{_period(info.span, zone)} ({duration(recorded)}{gaps})"
    per_sample = f", {info.bytes / info.samples:.1f} bytes a sample" if info.samples else ""
    yield "size", f"{size(info.bytes)} in {count(info.segments, 'segment')}{per_sample}"
    if info.rate_hz:
        lowered = f"{cost.lowest_rate_hz} to " if 0 < cost.lowest_rate_hz < info.rate_hz else ""
        yield "samples", f"{info.samples:,} at {lowered}{info.rate_hz} Hz on each core, by {info.event_source}"
    else:
        # The newest part was recorded without a sampler; an older one may have had it.
        earlier = f"{info.samples:,} from earlier, none now" if info.samples else "no stack samples"
        yield "samples", f"{earlier} (see missing)"
    yield "losses", ", ".join(f"{name} {number:,}" for name, number in info.losses.items()) or "none"
    yield (
        "own cost",
        f"{percent(cost.cpu_percent_mean / 100)} of one core (at most {percent(cost.cpu_percent_max / 100)}), "
        f"{size(cost.rss_kb_max * 1024)} of memory, {size(cost.written_bytes)} written",
    )
    if facts.nice is not None:
        yield "priority", f"nice {facts.nice}{'' if facts.nice < 0 else ', may be starved itself; run it as root'}"
    for missing in info.sources_missing:
        yield "missing", str(missing)
    for skipped in info.skipped:
        yield "skipped", f"{skipped.path}: {skipped.reason}"


def _period(span: Window, zone: tzinfo | None) -> str:
    """Begin and end, with the date once where it is one."""
    days = [format_day(moment, zone) for moment in (span.since, span.until)]
    begin, end = (format_clock(moment, zone) for moment in (span.since, span.until))
    later = "" if days[0] == days[1] else f"{days[1]} "
    return f"{days[0]} {begin} to {later}{end} {format_offset(span.since, zone)}"


def add_options(parser: ArgumentParser) -> None:
    add_recording_options(parser, window=False)
    option(parser, "--cost", "Show what the recorder itself took of a core, by source, and why.")


def run(options: Namespace) -> int:
    view = RecordingView.open(options)
    with activity("reading the recording"):
        found = view.recording.info()
    live = being_recorded(view.recording.directory)
    sealed = all(segment.sealed for segment in view.recording.segments)
    show(
        options,
        lambda: info_json(found, view.zone, live=live, sealed=sealed),
        lambda terminal: (
            print_lines(terminal, cost_lines(found.cost.sources, width_of(terminal)))
            if options.cost
            else print_values(terminal, info_lines(found, view.zone, live=live, sealed=sealed))
        ),
    )
    if not options.json:
        suggest(f"exhume cores{view.dir_args}")
    return exit_codes.OK if found.span is not None else exit_codes.NO_DATA

"""What a recording is, in the terminal: a label and its value on each line."""

from collections.abc import Iterable, Iterator
from datetime import tzinfo

from rich.console import Console
from rich.text import Text

from exhume.model.clock import NANOS, Window
from exhume.model.text import count, duration, percent, size
from exhume.model.times import format_clock, format_day, format_offset
from exhume.present.events_view import visible
from exhume.present.terminal.console import fitted
from exhume.store.read.info import RecordingInfo

LABEL = 11


def print_info(terminal: Console, lines: Iterable[tuple[str, str]]) -> None:
    """Print the lines; on a terminal values are wrapped and hang below their beginning."""
    for label, value in lines:
        for line in fitted(terminal, Text(f"{label:<{LABEL - 1}} {visible(value)}"), LABEL):
            terminal.print(line)


def info_lines(info: RecordingInfo, zone: tzinfo | None, *, live: bool, sealed: bool) -> Iterator[tuple[str, str]]:
    """A recording as text: labels and their values."""
    facts, cost = info.facts, info.cost
    yield "recording", f"{info.directory}{_state(live, sealed)}"
    yield "node", f"{facts.node}, {count(facts.cores, 'core')}, Linux {facts.kernel} on {facts.arch}"
    if info.span is None:
        yield "span", "nothing recorded yet"
    else:
        recorded, spanned = int(info.recorded_seconds * NANOS), info.span.nanos
        gaps = f", {duration(spanned - recorded)} not recorded" if spanned - recorded > 2 * NANOS else ""
        yield "span", f"{_period(info.span, zone)} ({duration(recorded)}{gaps})"
    yield "size", f"{size(info.bytes)} in {count(info.segments, 'segment')}{_per_sample(info)}"
    yield "samples", _samples(info)
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


def _state(live: bool, sealed: bool) -> str:
    if live:
        return " (being recorded now)"
    return "" if sealed else " (not sealed: the recorder was stopped; the next one seals it)"


def _samples(info: RecordingInfo) -> str:
    if info.rate_hz:
        return f"{info.samples:,} at {info.rate_hz} Hz on each core, by {info.event_source}"
    # The newest part was recorded without a sampler; an older one may have had it.
    return (
        f"{info.samples:,} from earlier, none now (see missing)" if info.samples else "no stack samples (see missing)"
    )


def _per_sample(info: RecordingInfo) -> str:
    return f", {info.bytes / info.samples:.1f} bytes a sample" if info.samples else ""

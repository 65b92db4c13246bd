"""Shared by commands that read a recording: opening it, and converting their options to a window."""

from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import tzinfo

from exhume.cli import exit_codes
from exhume.cli.args import option, value_of, whole_number, zone_of
from exhume.cli.terminal import dir_args, say
from exhume.model.clock import NANOS, SystemClock, Window
from exhume.model.errors import UsageError
from exhume.model.settings import DIR
from exhume.model.times import (
    Reference,
    format_clock,
    format_day,
    format_moment,
    format_offset,
    parse_duration,
    parse_range,
    parse_window,
)
from exhume.present.events_view import visible
from exhume.procfs.cpulist import parse_cpulist
from exhume.store.read.events import EventView
from exhume.store.read.profile import ProfileFilter
from exhume.store.read.recording import Recording

EMPTY = Window(0, 0)
ALWAYS = Window(0, 2**63 - 1)
# The default span of a picture or file without a given start.
DEFAULT_SPAN = 600 * NANOS
# The source of samples.
STACKS = "stacks"
# The number of damaged files that are listed individually.
MAX_LISTED = 10


def refuse_two_windows(options: Namespace) -> None:
    """Raise UsageError if two options specify a window."""
    ways = {
        "--at": getattr(options, "at", None),
        "--last": options.last,
        "--since and --until": options.since or options.until,
    }
    given = [way for way, value in ways.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{given[0]} and {given[1]} can't be combined; give one of them")


@dataclass(frozen=True, slots=True)
class RecordingView:
    """An open recording, and how its times are parsed and displayed. `newest` is its end in recorded order, which is
    not necessarily its latest wall time."""

    recording: Recording
    span: Window
    newest: int
    reference: Reference

    @classmethod
    def open(cls, options: Namespace) -> "RecordingView":
        """Open the recording that the options name."""
        recording = Recording.open(value_of(options, DIR))
        now = SystemClock().wall_ns()
        span = recording.span()
        newest = recording.newest() or now
        reference = Reference(now, span.since if span else now, newest, zone_of(options))
        return cls(recording, span or EMPTY, newest, reference)

    @property
    def zone(self) -> tzinfo | None:
        return self.reference.zone

    @property
    def dir_args(self) -> str:
        """` --dir D` for a suggested command."""
        return dir_args(self.recording.source)

    def window(self, options: Namespace, *, default_ns: int | None = None) -> Window:
        """The window of --last, --since and --until, clamped to the recording. Without a start it is that of the
        recording, or `default_ns` before the end."""
        begin, end = self._ends(options)
        if begin is None and end is None and default_ns is not None:
            return self.last(default_ns)
        if options.last is not None:
            end = self.newest
        until = self.span.until if end is None else end
        if begin is None:
            begin = self.span.since if default_ns is None else min(until, self.span.until) - default_ns
        return Window(begin, until).clamp(self.span)

    def event_window(self, options: Namespace) -> Window:
        """The same window without clamping: the kernel log reaches back to before the recording began."""
        begin, end = self._ends(options)
        return Window(ALWAYS.since if begin is None else begin, ALWAYS.until if end is None else end)

    def last(self, nanos: int) -> Window:
        """The last part of the recording."""
        return Window(self.newest - nanos, self.newest).clamp(self.span)

    def range(self, text: str) -> Window:
        """Parse a window written as S..U, clamped to the recording."""
        begin, end = parse_range(text, self.reference)
        window = Window(self.span.since if begin is None else begin, self.span.until if end is None else end)
        return window.clamp(self.span)

    def _ends(self, options: Namespace) -> tuple[int | None, int | None]:
        refuse_two_windows(options)
        if options.last is not None:
            length = parse_duration(options.last)
            if length <= 0:
                raise UsageError(f"--last {options.last}: must be greater than 0, for example 10m")
            return self.newest - length, None
        return parse_window(options.since, options.until, self.reference)

    def format(self, window: Window) -> str:
        """A window formatted for messages and headings."""
        if window.empty:
            return "an empty window"
        zone = self.zone
        digits = 0 if window.since % NANOS == 0 and window.until % NANOS == 0 else 3
        begin, end = (format_clock(moment, zone, digits=digits) for moment in (window.since, window.until))
        days = [format_day(moment, zone) for moment in (window.since, window.until)]
        end = end if days[0] == days[1] else f"{days[1]} {end}"
        return f"{days[0]} {begin} – {end} {format_offset(window.since, zone)}"

    def window_args(self, since: int, until: int, *, digits: int = 0) -> str:
        """` --dir D --since S --until U` for a suggested command."""
        begin, end = (format_moment(moment, self.zone, digits=digits) for moment in (since, until))
        return f"{self.dir_args} --since {begin} --until {end}"

    def no_data(self, window: Window, what: str, *, sources: Collection[str] = (), named: str = "that window") -> int:
        """Report why a window has no data of some kind. `sources` are those that provide it: a missing source is the
        likeliest reason. Returns the exit code."""
        where = "outside the recording" if window.empty else self.format(window)
        named = "the recording" if window == self.span else named
        why = f"no {what} in {named} ({where})"
        if self.span.empty:
            why = f"{self.recording.source} holds no {what} yet; let the recorder run for a few seconds"
        elif (missing := self.recording.facts.missing(*sources)) and not window.empty:
            why += f"; source unavailable: {'; and '.join(map(str, missing))}"
        elif window != self.span:
            why += f"; the recording holds {self.format(self.span)}"
        say(f"exhume: {why}")
        return exit_codes.NO_DATA


def add_cpu(parser: ArgumentParser) -> None:
    option(parser, "--cpu N", "Only these cores: 39, 0-3 or 0,2; can be repeated.", action="append")


def add_filters(parser: ArgumentParser) -> None:
    """Add the options that filter samples."""
    add_cpu(parser)
    option(parser, "--comm NAME", "Only threads of this name.")
    option(parser, "--pid PID", "Only this process.", type=whole_number(0, 2**31 - 1))
    option(parser, "--container NAME", "Only containers whose id or name (of Docker or Kubernetes) begins like this.")
    option(parser, "--pod NAME", "Only pods whose id, namespace/name or name begins like this.")
    option(parser, "--stack REGEX", "Only stacks with a frame that matches.")


def profile_filter(options: Namespace, recording: Recording) -> ProfileFilter:
    """The sample filter given by the options."""
    return ProfileFilter(
        cpus=parse_cpus(options.cpu or []),
        comm=options.comm,
        pid=options.pid,
        stack_regex=options.stack,
        container=options.container,
        pod=options.pod,
        container_ids=recording.containers_named(options.container) if options.container else (),
    )


def filter_labels(options: Namespace) -> list[str]:
    """The sample filter as labels: `core 39`."""
    labels = {"comm": "thread", "pid": "pid", "container": "container", "pod": "pod", "stack": "stacks matching"}
    named = {"core": ",".join(options.cpu or []), **{label: getattr(options, name) for name, label in labels.items()}}
    return [f"{label} {value}" for label, value in named.items() if value not in (None, "")]


def on_cpus(events: Iterable[EventView], cpus: Collection[int] | None) -> list[EventView]:
    """The events that name one of these cores; all of them if no core was given."""
    return [event for event in events if cpus is None or event.cpu in cpus]


def report_damaged(recording: Recording) -> None:
    """List the files that could not be read on stderr: every answer states its blind spots."""
    damaged = recording.damaged
    for file in damaged[:MAX_LISTED]:
        say(visible(f"unreadable: {file.path}: {file.reason}"))
    if len(damaged) > MAX_LISTED:
        say(f"unreadable: {len(damaged) - MAX_LISTED} more files; see exhume info")


def parse_cpus(texts: list[str]) -> set[int] | None:
    """Parse a list of cores: `39`, `0-3`, `0,2,4-7`; None for no list."""
    try:
        found = {cpu for text in texts for cpu in parse_cpulist(text)}
    except ValueError as error:
        raise UsageError(str(error)) from None
    if texts and not found:
        raise UsageError("the list of cores is empty: write a number, a range (0-3) or a list (0,2,4-7)")
    return found or None

"""What the commands that look at a recording share: opening it, and turning what was asked into a window."""

from argparse import Namespace
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, tzinfo

from exhume.cli.options import value_of
from exhume.model.clock import NANOS, SystemClock
from exhume.model.errors import UsageError
from exhume.model.times import Reference, format_clock, format_day, format_offset, parse_range, parse_window
from exhume.model.window import Window
from exhume.store.read.recording import Recording

EMPTY = Window(0, 0)
ALWAYS = Window(0, 2**63 - 1)
# Damaged files that are named one by one.
MOST_NAMED = 10


@dataclass(frozen=True, slots=True)
class Look:
    """An open recording and how its times are read and shown. `newest` is where it ends in the order in which it was
    recorded, which need not be its latest wall time."""

    recording: Recording
    span: Window
    newest: int
    reference: Reference

    @classmethod
    def into(cls, options: Namespace) -> "Look":
        """Open the recording that a command's options name."""
        recording = Recording.open(value_of(options, "dir"))
        now = SystemClock().wall_ns()
        span = recording.span()
        newest = recording.newest() or now
        reference = Reference(now, span.since if span else now, newest, UTC if value_of(options, "utc") else None)
        return cls(recording, span or EMPTY, newest, reference)

    @property
    def zone(self) -> tzinfo | None:
        return self.reference.zone

    def window(self, since: str | None, until: str | None, *, at_most: int | None = None) -> Window:
        """The window that was asked for, clamped to what is recorded. Without a beginning it is the recording's, or
        `at_most` nanoseconds before the end."""
        begin, end = parse_window(since, until, self.reference)
        return self._clamped(begin, end, at_most)

    def moments(self, since: str | None, until: str | None) -> Window:
        """The window that was asked for, as it is: the kernel log reaches back to before the recording began."""
        begin, end = parse_window(since, until, self.reference)
        return Window(ALWAYS.since if begin is None else begin, ALWAYS.until if end is None else end)

    def last(self, nanos: int) -> Window:
        """So much of the recording's end."""
        return Window(self.newest - nanos, self.newest).clamp(self.span)

    def range(self, text: str) -> Window:
        """A window written as S..U."""
        begin, end = parse_range(text, self.reference)
        return self._clamped(begin, end, None)

    def shown(self, window: Window) -> str:
        """A window as people read it."""
        if window.empty:
            return "an empty window"
        zone = self.zone
        digits = 0 if window.since % NANOS == 0 and window.until % NANOS == 0 else 3
        begin, end = (format_clock(moment, zone, digits=digits) for moment in (window.since, window.until))
        days = [format_day(moment, zone) for moment in (window.since, window.until)]
        end = end if days[0] == days[1] else f"{days[1]} {end}"
        return f"{days[0]} {begin} – {end} {format_offset(window.since, zone)}"

    def nothing_in(
        self, window: Window, what: str, *, sources: Collection[str] = (), named: str = "that window"
    ) -> str:
        """Why a window shows nothing, and what there is instead. `sources` are those that it would come from: one that
        the recorder had to do without is the likeliest reason."""
        if self.span.empty:
            return f"{self.recording.directory} holds no {what} yet; let the recorder run for a few seconds"
        where = "outside of what is recorded" if window.empty else self.shown(window)
        named = "the recording" if window == self.span else named
        missing = [line for line in self.recording.facts.sources_missing if line.partition(":")[0] in sources]
        if missing and not window.empty:
            return f"no {what} in {named} ({where}); the recorder had to do without {'; and without '.join(missing)}"
        if window == self.span:
            return f"there are no {what} in {named} ({where}); the recorder may not have met any"
        return f"no {what} in {named} ({where}); the recording holds {self.shown(self.span)}"

    def _clamped(self, begin: int | None, end: int | None, at_most: int | None) -> Window:
        if begin is None and end is None and at_most is not None:
            return self.last(at_most)
        until = self.span.until if end is None else end
        if begin is not None:
            since = begin
        elif at_most is not None:
            since = min(until, self.span.until) - at_most
        else:
            since = self.span.since
        return Window(since, until).clamp(self.span)


def report_damaged(recording: Recording) -> None:
    """Name the files that could not be read, on stderr: every answer says what it did without."""
    from exhume.cli.speaking import say
    from exhume.present.events_view import visible

    damaged = recording.damaged
    for file in damaged[:MOST_NAMED]:
        say(visible(f"unreadable: {file.path}: {file.reason}"))
    if len(damaged) > MOST_NAMED:
        say(f"unreadable: {len(damaged) - MOST_NAMED} more files; see exhume info")


def core_numbers(texts: list[str]) -> set[int] | None:
    """Cores as people list them: `39`, `0-3`, `0,2,4-7`."""
    found: set[int] = set()
    for part in (part.strip() for text in texts for part in text.split(",")):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not all(number.isascii() and number.isdigit() and len(number) <= 5 for number in (first, last)):
            raise UsageError(f"{part!r} is not a core: write a number, a range (0-3) or a list (0,2,4-7)")
        if int(last) < int(first):
            raise UsageError(f"{part!r} is a range without cores: write the smaller number first, {last}-{first}")
        found.update(range(int(first), int(last) + 1))
    return found or None

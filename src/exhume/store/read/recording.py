"""A recording as one: rows, profiles, core grids, events and gaps of a window, over all of its segments."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from exhume.model.clock import Window
from exhume.model.errors import NoRecording, RecordingError, UsageError
from exhume.model.facts import MissingSource, RecordingFacts
from exhume.model.tables import POD_OWNER, TABLES, columns_of, loss_total
from exhume.store.format.names import SegmentName
from exhume.store.format.schema import DIMENSIONS, UnreadableFile, schema_of, time_column
from exhume.store.read.core_grid import LONGEST_ROW_NS, UNUSUAL_MEASURES, CoreGrid, build_grid, columns_for
from exhume.store.read.core_seconds import pool_seconds, read_held, unusual_seconds, whole_seconds, with_normal
from exhume.store.read.events import EventView, LossView, of_kinds, views
from exhume.store.read.index import Segment, SegmentIntervals, Skipped, Unchanged, gaps_between, list_recording
from exhume.store.read.profile import (
    ProfileFilter,
    SampleTable,
    StackProfile,
    build_profile,
    build_sample_table,
    filter_samples,
    loss_text,
)
from exhume.store.read.progress import reader_threads
from exhume.store.read.reader import Request, count_rows, damaged_files, facts_of, read_available, with_wall
from exhume.store.read.stacks import StackCache

if TYPE_CHECKING:
    from exhume.store.read.bundle import Unpacked


def without_repeats(table: str, rows: pa.Table) -> pa.Table:
    """Each stack and frame once; each process once as it was first recorded."""
    if (key := {"stacks": "stack", "frames": "frame"}.get(table)) is not None:
        _, first = np.unique(rows.column(key).to_numpy(), return_index=True)
        return rows.take(pa.array(np.sort(first)))
    keys = [name for name in rows.schema.names if name not in ("time", "wall")]
    firsts = rows.group_by(keys, use_threads=False).aggregate([("time", "min"), ("wall", "min")])
    return firsts.rename_columns([*keys, "time", "wall"]).select(rows.schema.names)


# Segments from which on it pays to read them side by side.
_MANY = 8
# A few kilobytes in a segment: to hand them to a thread takes longer than to read them.
_SMALL = ("anchors", "events", "losses", "self", "source_cost")


@dataclass(frozen=True, slots=True)
class CostOfSource:
    """What one source took of one core, in percent of it, and in seconds of CPU."""

    source: str
    cpu_percent: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class SelfCost:
    """The recorder's own cost: CPU in percent of one core, memory in KiB, and all the bytes that it wrote. `sources`
    has the CPU by source, the most expensive first; none in recordings of less than ten seconds, or from before they
    were measured. `lowest_rate_hz` and `newest_rate_hz`: a recorder over its budget samples less often."""

    seconds: float
    cpu_percent_mean: float
    cpu_percent_max: float
    rss_kb_max: int
    written_bytes: int
    lowest_rate_hz: int = 0
    newest_rate_hz: int = 0
    sources: list[CostOfSource] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RecordingInfo:
    """`samples` are the stored ones; `losses` counts what was not recorded, by source and kind."""

    directory: Path
    facts: RecordingFacts
    span: Window | None
    recorded_seconds: float
    segments: int
    bytes: int
    samples: int
    rate_hz: int
    event_source: str
    losses: dict[str, int]
    cost: SelfCost
    sources_missing: list[MissingSource]
    skipped: list[Skipped]


class RecordedPod(NamedTuple):
    """A pod as events have it: namespace/name, and what keeps it alive (`deployment/web`), which the cluster's API
    (`sure`) knows better than a container's labels."""

    name: str
    owner: str | None
    sure: bool


def merge_pods(parts: Iterable[Mapping[str, RecordedPod]]) -> dict[str, RecordedPod]:
    """The newest of each pod; nothing replaces what the API said but the API."""
    found: dict[str, RecordedPod] = {}
    for part in parts:
        for pod, known in part.items():
            before = found.get(pod)
            if before is None or known.sure or not before.sure:
                found[pod] = known
    return found


class Recording:
    """The rows of a recording. Windows are wall time, half-open, and clamped to what exists."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # What it was opened by: a bundle is not where its rows are.
        self.source = directory
        self._unpacked: Unpacked | None = None
        self._damaged: dict[Path, Skipped] = {}
        self._intervals = SegmentIntervals([])
        self._unchanged: Unchanged | None = None
        self._stacks: StackCache | None = None
        self.refresh()

    @classmethod
    def open(cls, directory: Path | str) -> "Recording":
        """Open the directory of a recording, or an incident bundle. Raises RecordingError, with a sentence, where there
        is none."""
        path = Path(directory)
        if not path.is_file():
            return cls(path)
        # Few open one, and all of them import this.
        from exhume.store.read.bundle import unpack

        unpacked = unpack(path)
        recording = cls(unpacked.directory)
        recording.source, recording._unpacked = path, unpacked
        return recording

    def close(self) -> None:
        """Remove what was unpacked of a bundle; it goes with the process in any case."""
        if self._unpacked is not None:
            self._unpacked.close()

    def refresh(self) -> None:
        """Look again at what is there (a recording may still be growing)."""
        unchanged = Unchanged.of(self.directory)
        if unchanged is not None and unchanged == self._unchanged:
            return
        listing = list_recording(self.directory)
        self.segments = listing.segments
        self._foreign = listing.skipped
        self._set_aside = listing.damaged
        self._unchanged = unchanged

    @property
    def sealed(self) -> bool:
        """Whether nothing is being written, as far as was looked."""
        return not self._segment_intervals().unsealed

    def cache_stacks(self) -> None:
        """Keep the names of stacks between queries: for a reader that answers many."""
        self._stacks = StackCache()

    @property
    def skipped(self) -> list[Skipped]:
        """What lies in the directory and was not read, as far as it has been met."""
        return [*self._foreign, *self.damaged]

    @property
    def damaged(self) -> list[Skipped]:
        """The files that could not be read, as far as they have been met."""
        return [*self._set_aside, *self._damaged.values()]

    def note_damaged(self, files: Collection[Skipped]) -> None:
        """Files that another reader found damaged."""
        self._damaged |= {file.path: file for file in files}

    @property
    def facts(self) -> RecordingFacts:
        """The facts of the newest segment."""
        for segment in reversed(self.segments):
            for table in ("anchors", *TABLES):
                try:
                    facts = facts_of(segment, table)
                except UnreadableFile as error:
                    self.note_unreadable(segment, table, error)
                    continue
                if facts is not None:
                    return facts
        if self._damaged:
            file = next(iter(self._damaged.values()))
            raise RecordingError(f"{self.directory} holds nothing that can be read; {file.path}: {file.reason}")
        raise NoRecording(f"{self.directory} holds nothing that can be read yet; let the recorder run for a second")

    def span(self) -> Window | None:
        """The wall time from the first to the last recorded moment; None where nothing is recorded yet."""
        known = self._segment_intervals()
        spans = [window for segment in known.unsealed if not (window := self._segment_span(segment)).empty]
        if known.span is not None:
            spans.append(known.span)
        if not spans:
            return None
        return Window(min(w.since for w in spans), max(w.until for w in spans))

    def newest(self) -> int | None:
        """The wall time at which the recording ends, in the order in which it was recorded: a clock that was ahead for
        a while does not count. None where nothing is recorded yet."""
        spans = (self._segment_span(segment) for segment in reversed(self.segments))
        return next((span.until for span in spans if not span.empty), None)

    def read(
        self,
        table: str,
        window: Window | None = None,
        columns: Sequence[str] | None = None,
        cpus: Collection[int] | None = None,
    ) -> pa.Table:
        """The rows of a table inside the window, with their wall time (nanoseconds) in an extra column `wall`.

        stacks, frames and processes explain other rows: they come whole for the segments that the window touches, each
        once. Rows come segment by segment; inside a segment samples are not in order of time.
        """
        if table not in TABLES:
            raise UsageError(f"there is no table {table}; the tables are {', '.join(TABLES)}")
        names = [c.name for c in columns_of(table)]
        unknown = [name for name in columns or () if name not in (*names, "wall")]
        if unknown:
            raise UsageError(f"table {table} has no column {', '.join(unknown)}; its columns are {', '.join(names)}")
        needed = None
        if columns is not None:
            # Repeats of a dimension are recognised by all of its columns.
            keys = names if table in DIMENSIONS else [time_column(table)]
            needed = list(dict.fromkeys(name for name in (*columns, *keys) if name in names))
        found = self._rows(Request(table, window, needed, cpus))
        parts = [with_wall(rows, table, name) for name, rows in found]
        wanted = names if columns is None else list(columns)
        if columns is None and time_column(table) is not None:
            wanted = list(dict.fromkeys((*names, "wall")))
        if not parts:
            return with_wall(schema_of(table).empty_table(), table, SegmentName(0, "", 0)).select(wanted)
        rows = pa.concat_tables(parts)
        if table in DIMENSIONS:
            rows = without_repeats(table, rows)
        return rows.select(wanted)

    def profile(self, window: Window, wanted: ProfileFilter | None = None) -> StackProfile:
        """The stacks that were sampled in the window, summed."""
        profile = build_profile(
            self.holding(window), window, wanted or ProfileFilter(), self.note_unreadable, self._stacks
        )
        profile.blind_spots.extend(self._unrecorded(window))
        return profile

    def blind_spots(self, window: Window) -> list[str]:
        """What was not recorded in the window."""
        lost = [loss_text(each.source, each.count, each.kind, each.cpu, each.text) for each in self.losses(window)]
        return [*dict.fromkeys(lost), *self._unrecorded(window)]

    def _unrecorded(self, window: Window) -> list[str]:
        missing = sum(gap.seconds for gap in self.gaps(window))
        return [f"nothing was recorded in {missing:.0f} of the {window.seconds:.0f} seconds"] if missing else []

    def samples(
        self, window: Window, wanted: ProfileFilter, columns: Sequence[str]
    ) -> Iterator[tuple[SegmentName, pa.Table]]:
        """The single samples in the window that count, with `time_ms` and these columns (IN_KERNEL may be one of them),
        segment by segment."""
        return self.samples_in(self.holding(window), window, wanted, columns)

    def samples_in(
        self, segments: Sequence[Segment], window: Window, wanted: ProfileFilter, columns: Sequence[str]
    ) -> Iterator[tuple[SegmentName, pa.Table]]:
        """The same of some segments."""
        return filter_samples(segments, window, wanted, columns, self.note_unreadable, self._stacks)

    def sample_table(self, window: Window, wanted: ProfileFilter | None = None, most: int | None = None) -> SampleTable:
        """The same in the order of time, with the names of their frames. Raises UsageError where they are more than
        `most`."""
        segments = self.holding(window)
        return build_sample_table(segments, window, wanted or ProfileFilter(), self.note_unreadable, self._stacks, most)

    def gaps(self, window: Window) -> list[Window]:
        """The parts of the window (clamped to what is recorded) in which nothing was recorded."""
        whole = self.span()
        if whole is None:
            return []
        shown = window.clamp(whole)
        return [] if shown.empty else gaps_between(map(self._segment_span, self.holding(shown)), shown)

    def cores(self, window: Window, cells: int, measure: str = "busy") -> CoreGrid:
        """Cores x cells of the window (clamped to what is recorded), max-pooled."""
        columns = columns_for(measure)
        shown = window.clamp(self.span() or Window(0, 0))
        if measure in UNUSUAL_MEASURES:
            segments = with_normal(
                self.segments, [] if shown.empty or cells < 1 else self.holding(whole_seconds(shown))
            )
            held = [read_held(segment, self._read) for segment in segments]
            return pool_seconds(unusual_seconds(held, measure), shown, max(0, cells)).to_grid(measure)
        # A row that began before the window may reach into it.
        request = Request("cpu", Window(shown.since - LONGEST_ROW_NS, shown.until), columns)
        by_name = {segment.name: segment for segment in self.holding(request.window)}
        return build_grid(shown, cells, measure, by_name, lambda name: self._read(by_name[name], request))

    def events(self, window: Window | None = None, kinds: Collection[str] | None = None) -> list[EventView]:
        """What happened in the window, in its order; only some kinds where they are given."""
        return of_kinds(views(EventView, self._rows(Request("events", window))), kinds)

    def losses(self, window: Window | None = None) -> list[LossView]:
        """What was not recorded in the window, and why."""
        return views(LossView, self._rows(Request("losses", window)))

    def events_of(self, segment: Segment, kinds: Collection[str] | None = None) -> list[EventView]:
        """What happened in one segment."""
        rows = self._read(segment, Request("events"))
        return [] if rows is None else of_kinds(views(EventView, [(segment.name, rows)]), kinds)

    def container_names_of(self, segment: Segment) -> dict[str, str]:
        """The names of containers in the events of one segment, by the containers' ids."""
        rows = self._read(segment, Request("events", None, ["container", "container_name"]))
        found = [] if rows is None else rows.to_pylist()
        return {row["container"]: row["container_name"] for row in found if row["container_name"]}

    def pods_of(self, segment: Segment) -> dict[str, RecordedPod]:
        """The pods in the events of one segment, by their uids."""
        columns = ["kind", "pod", "pod_name", "owner"]
        rows = self._read(segment, Request("events", None, columns))
        found = [] if rows is None else zip(*(rows.column(name).to_pylist() for name in columns), strict=True)
        named = ((pod, RecordedPod(name, owner, kind == POD_OWNER)) for kind, pod, name, owner in found if pod and name)
        return merge_pods({pod: known} for pod, known in named)

    def pods(self, window: Window) -> dict[str, RecordedPod]:
        """The same of the segments of a time."""
        return merge_pods(self.pods_of(segment) for segment in self.holding(window))

    def containers_named(self, beginning: str) -> tuple[str, ...]:
        """The ids of the containers whose name begins like that in an event, in the whole recording."""
        named = [each for segment in self.segments for each in self.container_names_of(segment).items()]
        return tuple(sorted({number for number, name in named if name.startswith(beginning)}))

    def losses_of(self, segment: Segment) -> list[LossView]:
        """What was not recorded in one segment, and why."""
        rows = self._read(segment, Request("losses"))
        return [] if rows is None else views(LossView, [(segment.name, rows)])

    def rows_of(self, segment: Segment, request: Request) -> pa.Table | None:
        """The rows of one segment, by its own clock; None where it has none."""
        return self._read(segment, request)

    def self_cost(self, window: Window | None = None) -> SelfCost:
        """What the recorder itself cost in the window. A tick that takes long spends its time after its end: the most
        is measured from the end of one to the end of the next."""
        rows = self.read("self", window)
        if rows.num_rows == 0:
            return SelfCost(0.0, 0.0, 0.0, 0, 0)
        span_us = np.maximum(1, rows.column("span_ms").to_numpy().astype(np.int64)) * 1000
        used_us = rows.column("user_us").to_numpy().astype(np.int64) + rows.column("system_us").to_numpy()
        rates = rows.column("rate_hz").to_numpy()
        taken_us = np.maximum(span_us, span_us + np.diff(rows.column("tick_us").to_numpy().astype(np.int64), prepend=0))
        return SelfCost(
            seconds=float(span_us.sum()) / 1e6,
            cpu_percent_mean=100 * float(used_us.sum()) / float(span_us.sum()),
            cpu_percent_max=100 * float((used_us / taken_us).max()),
            rss_kb_max=int(rows.column("rss_kb").to_numpy().max()),
            written_bytes=int(rows.column("written_bytes").to_numpy().sum()),
            lowest_rate_hz=int(rates.min()),
            newest_rate_hz=int(rates[rows.column("time").to_numpy().argmax()]),
            sources=self._costs_of_sources(window),
        )

    def _costs_of_sources(self, window: Window | None) -> list[CostOfSource]:
        rows = self.read("source_cost", window)
        # All rows of one moment are of the same ticks.
        spans = dict(zip(rows.column("time").to_pylist(), rows.column("span_ms").to_pylist(), strict=True))
        milliseconds = max(1, sum(spans.values()))
        spent: Counter[str] = Counter()
        for source, cpu_us in zip(rows.column("source").to_pylist(), rows.column("cpu_us").to_pylist(), strict=True):
            spent[source] += cpu_us
        return [CostOfSource(source, used / milliseconds / 10, used / 1e6) for source, used in spent.most_common()]

    def info(self) -> RecordingInfo:
        """The recording as a whole; looks at every file, if only at its ends."""
        facts = self.facts
        losses: dict[str, int] = {}
        for loss in self.losses():
            what = f"{loss.source}: {loss.kind}"
            losses[what] = losses.get(what, 0) + loss_total(loss.kind, loss.count)
        size = samples = 0
        for segment in self.segments:
            size += segment.size()
            try:
                samples += count_rows(segment, "samples")
            except UnreadableFile as error:
                self.note_unreadable(segment, "samples", error)
            self.look_at_files(segment)
        return RecordingInfo(
            directory=self.source,
            facts=facts,
            span=self.span(),
            recorded_seconds=sum(self._segment_span(segment).seconds for segment in self.segments),
            segments=len(self.segments),
            bytes=size,
            samples=samples,
            rate_hz=facts.rate_hz,
            event_source=facts.event_source,
            losses=losses,
            cost=self.self_cost(),
            sources_missing=facts.sources_missing,
            skipped=self.skipped,
        )

    def note_unreadable(self, segment: Segment, table: str, error: UnreadableFile) -> None:
        path = segment.file(table)
        self._damaged[path] = Skipped(path, str(error))

    def look_at_files(self, segment: Segment) -> None:
        """Note the files of a sealed segment that can't be read, by their ends alone."""
        self._damaged |= {skipped.path: skipped for skipped in damaged_files(segment)}

    def holding(self, window: Window | None) -> list[Segment]:
        """The segments that may have rows in the window."""
        if window is None:
            return self.segments
        if window.empty:
            return []
        return self._segment_intervals().holding(window)

    def _segment_intervals(self) -> SegmentIntervals:
        if self._intervals.segments is not self.segments:
            self._intervals = SegmentIntervals(self.segments)
        return self._intervals

    def _rows(self, request: Request) -> list[tuple[SegmentName, pa.Table]]:
        """The wanted rows of each segment that has any."""
        segments = self.holding(request.window)
        if len(segments) < _MANY or request.table in _SMALL:
            found = [self._read(segment, request) for segment in segments]
        else:
            with reader_threads() as threads:
                found = list(threads.map(lambda segment: self._read(segment, request), segments))
        return [(segment.name, rows) for segment, rows in zip(segments, found, strict=True) if rows is not None]

    def _read(self, segment: Segment, request: Request) -> pa.Table | None:
        return read_available(segment, request, self.note_unreadable)

    def _segment_span(self, segment: Segment) -> Window:
        anchors = None if segment.sealed else self._read(segment, Request("anchors"))
        if anchors is None:
            return segment.name.span
        return Window(segment.name.span.since, anchors.column("time").to_numpy().max().item() + segment.name.offset)

"""A recording as a whole: rows, profiles, core grids, events and gaps of a window, across all of its segments."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from sys import intern
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
    """Drop repeated rows: each stack and frame once, each process once as it was first recorded."""
    if (key := {"stacks": "stack", "frames": "frame"}.get(table)) is not None:
        _, first = np.unique(rows.column(key).to_numpy(), return_index=True)
        return rows.take(pa.array(np.sort(first)))
    keys = [name for name in rows.schema.names if name not in ("time", "wall")]
    firsts = rows.group_by(keys, use_threads=False).aggregate([("time", "min"), ("wall", "min")])
    return firsts.rename_columns([*keys, "time", "wall"]).select(rows.schema.names)


# At this many segments it pays to read them in parallel.
_MANY = 8
# Tables with a few kilobytes per segment: handing them to a thread takes longer than reading them.
_SMALL = ("anchors", "events", "losses", "self", "source_cost")


@dataclass(frozen=True, slots=True)
class CostOfSource:
    """CPU used by one source, in percent of one core and in seconds."""

    source: str
    cpu_percent: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class SelfCost:
    """The recorder's own cost: CPU in percent of one core, memory in KiB, and the total bytes written. `sources` has
    the CPU by source, the most expensive first; empty for recordings of less than ten seconds or from before it was
    measured. `lowest_rate_hz` and `newest_rate_hz`: a recorder that exceeds its budget samples less often."""

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
    """Summary of a recording. `samples` counts the stored ones; `losses` what was not recorded, by source and kind."""

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
    """A pod as recorded in events: namespace/name, and the controller that owns it (`deployment/web`). `sure` if the
    owner comes from the cluster's API, which is more reliable than a container's labels."""

    name: str
    owner: str | None
    sure: bool


def merge_pods(parts: Iterable[Mapping[str, RecordedPod]]) -> dict[str, RecordedPod]:
    """Keep the newest record of each pod; one from the API is only replaced by another one from the API."""
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
        # The path it was opened with: for a bundle this is not where the rows are.
        self.source = directory
        self._unpacked: Unpacked | None = None
        self._damaged: dict[Path, Skipped] = {}
        self._intervals = SegmentIntervals([])
        self._unchanged: Unchanged | None = None
        self._stacks: StackCache | None = None
        self.refresh()

    @classmethod
    def open(cls, directory: Path | str) -> "Recording":
        """Open the directory of a recording, or an incident bundle. Raises RecordingError with a message if it is
        neither."""
        path = Path(directory)
        if not path.is_file():
            return cls(path)
        # Imported late: every reader imports this module, and few open a bundle.
        from exhume.store.read.bundle import unpack

        unpacked = unpack(path)
        recording = cls(unpacked.directory)
        recording.source, recording._unpacked = path, unpacked
        return recording

    def close(self) -> None:
        """Remove the unpacked bundle, if any; otherwise it is removed when the process exits."""
        if self._unpacked is not None:
            self._unpacked.close()

    def refresh(self) -> None:
        """List the directory again (a recording may still be growing)."""
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
        """Whether nothing was being written when the directory was last listed."""
        return not self._segment_intervals().unsealed

    def cache_stacks(self) -> None:
        """Keep the names of stacks between queries, for a reader that answers many."""
        self._stacks = StackCache()

    @property
    def skipped(self) -> list[Skipped]:
        """Entries of the directory that were not read, as far as encountered."""
        return [*self._foreign, *self.damaged]

    @property
    def damaged(self) -> list[Skipped]:
        """Files that could not be read, as far as encountered."""
        return [*self._set_aside, *self._damaged.values()]

    def note_damaged(self, files: Collection[Skipped]) -> None:
        """Add files that another reader found damaged."""
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
        """The wall time from the first to the last recorded moment; None if nothing is recorded yet."""
        known = self._segment_intervals()
        spans = [window for segment in known.unsealed if not (window := self._segment_span(segment)).empty]
        if known.span is not None:
            spans.append(known.span)
        if not spans:
            return None
        return Window(min(w.since for w in spans), max(w.until for w in spans))

    def newest(self) -> int | None:
        """The wall time at which the recording ends, in recorded order: a clock that was ahead for a while does not
        count. None if nothing is recorded yet."""
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

        stacks, frames and processes are dimension tables: they are returned whole for the segments that the window
        touches, without repeats. Rows come segment by segment; inside a segment, samples are not in time order.
        """
        if table not in TABLES:
            raise UsageError(f"there is no table {table}; the tables are {', '.join(TABLES)}")
        names = [c.name for c in columns_of(table)]
        unknown = [name for name in columns or () if name not in (*names, "wall")]
        if unknown:
            raise UsageError(f"table {table} has no column {', '.join(unknown)}; its columns are {', '.join(names)}")
        needed = None
        if columns is not None:
            # Repeated rows of a dimension are recognised by all of its columns.
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
        """Describe what was not recorded in the window."""
        lost = [loss_text(each.source, each.count, each.kind, each.cpu, each.text) for each in self.losses(window)]
        return [*dict.fromkeys(lost), *self._unrecorded(window)]

    def _unrecorded(self, window: Window) -> list[str]:
        missing = sum(gap.seconds for gap in self.gaps(window))
        return [f"nothing was recorded in {missing:.0f} of the {window.seconds:.0f} seconds"] if missing else []

    def samples(
        self, window: Window, wanted: ProfileFilter, columns: Sequence[str]
    ) -> Iterator[tuple[SegmentName, pa.Table]]:
        """The selected samples in the window, with `time_ms` and these columns (IN_KERNEL may be one of them), segment
        by segment."""
        return self.samples_in(self.holding(window), window, wanted, columns)

    def samples_in(
        self, segments: Sequence[Segment], window: Window, wanted: ProfileFilter, columns: Sequence[str]
    ) -> Iterator[tuple[SegmentName, pa.Table]]:
        """The selected samples in the window, from the given segments only."""
        return filter_samples(segments, window, wanted, columns, self.note_unreadable, self._stacks)

    def sample_table(self, window: Window, wanted: ProfileFilter | None = None, most: int | None = None) -> SampleTable:
        """The selected samples in time order, with the names of their frames. Raises UsageError if there are more than
        `most`."""
        segments = self.holding(window)
        return build_sample_table(segments, window, wanted or ProfileFilter(), self.note_unreadable, self._stacks, most)

    def gaps(self, window: Window) -> list[Window]:
        """The parts of the window (clamped to the recorded span) in which nothing was recorded."""
        whole = self.span()
        if whole is None:
            return []
        shown = window.clamp(whole)
        return [] if shown.empty else gaps_between(map(self._segment_span, self.holding(shown)), shown)

    def cores(self, window: Window, cells: int, measure: str = "busy") -> CoreGrid:
        """Cores x cells of the window (clamped to the recorded span), max-pooled."""
        columns = columns_for(measure)
        shown = window.clamp(self.span() or Window(0, 0))
        if measure in UNUSUAL_MEASURES:
            segments = with_normal(
                self.segments, [] if shown.empty or cells < 1 else self.holding(whole_seconds(shown))
            )
            held = [read_held(segment, self._read) for segment in segments]
            return pool_seconds(unusual_seconds(held, measure), shown, max(0, cells)).to_grid(measure)
        # A row that began before the window may extend into it.
        request = Request("cpu", Window(shown.since - LONGEST_ROW_NS, shown.until), columns)
        by_name = {segment.name: segment for segment in self.holding(request.window)}
        return build_grid(shown, cells, measure, by_name, lambda name: self._read(by_name[name], request))

    def events(self, window: Window | None = None, kinds: Collection[str] | None = None) -> list[EventView]:
        """The events in the window, in order; only of the given kinds, if any."""
        return of_kinds(views(EventView, self._rows(Request("events", window))), kinds)

    def losses(self, window: Window | None = None) -> list[LossView]:
        """What was not recorded in the window, and why."""
        return views(LossView, self._rows(Request("losses", window)))

    def events_of(self, segment: Segment, kinds: Collection[str] | None = None) -> list[EventView]:
        """The events in one segment; only of the given kinds, if any."""
        if kinds is not None:
            # Most segments have none of a rare kind, which one column tells.
            known = self._read(segment, Request("events", None, ["kind"]))
            if known is None or set(kinds).isdisjoint(known.column("kind").unique().to_pylist()):
                return []
        rows = self._read(segment, Request("events"))
        return [] if rows is None else of_kinds(views(EventView, [(segment.name, rows)]), kinds)

    def container_names_of(self, segment: Segment) -> dict[str, str]:
        """The names of containers in the events of one segment, by the containers' ids."""
        rows = self._read(segment, Request("events", None, ["container", "container_name"]))
        found = [] if rows is None else rows.to_pylist()
        # Segment after segment has the same few: interned, they take no further memory.
        named = ((row["container"], row["container_name"]) for row in found)
        return {intern(container): intern(name) for container, name in named if container and name}

    def pods_of(self, segment: Segment) -> dict[str, RecordedPod]:
        """The pods in the events of one segment, by their uids."""
        columns = ["kind", "pod", "pod_name", "owner"]
        rows = self._read(segment, Request("events", None, columns))
        found = [] if rows is None else zip(*(rows.column(name).to_pylist() for name in columns), strict=True)
        named = ((pod, RecordedPod(name, owner, kind == POD_OWNER)) for kind, pod, name, owner in found if pod and name)
        return merge_pods({pod: known} for pod, known in named)

    def pods(self, window: Window) -> dict[str, RecordedPod]:
        """The pods in the events of the segments that the window touches, by their uids."""
        return merge_pods(self.pods_of(segment) for segment in self.holding(window))

    def containers_named(self, beginning: str) -> tuple[str, ...]:
        """The ids of the containers whose name begins with `beginning` in an event, in the whole recording."""
        named = [each for segment in self.segments for each in self.container_names_of(segment).items()]
        return tuple(sorted({number for number, name in named if name.startswith(beginning)}))

    def losses_of(self, segment: Segment) -> list[LossView]:
        """What was not recorded in one segment, and why."""
        rows = self._read(segment, Request("losses"))
        return [] if rows is None else views(LossView, [(segment.name, rows)])

    def rows_of(self, segment: Segment, request: Request) -> pa.Table | None:
        """The rows of one segment, with its own clock; None if it has none."""
        return self._read(segment, request)

    def self_cost(self, window: Window | None = None) -> SelfCost:
        """The cost of the recorder itself in the window. A slow tick spends its time after its nominal end, so the
        maximum is measured from the end of one tick to the end of the next."""
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
        # All rows with the same time cover the same ticks.
        spans = dict(zip(rows.column("time").to_pylist(), rows.column("span_ms").to_pylist(), strict=True))
        milliseconds = max(1, sum(spans.values()))
        spent: Counter[str] = Counter()
        for source, cpu_us in zip(rows.column("source").to_pylist(), rows.column("cpu_us").to_pylist(), strict=True):
            spent[source] += cpu_us
        return [CostOfSource(source, used / milliseconds / 10, used / 1e6) for source, used in spent.most_common()]

    def info(self) -> RecordingInfo:
        """Summarise the recording; examines every file, but only its first and last bytes."""
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
        """Note the files of a sealed segment that can't be read, judged by their first and last bytes."""
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
        """The requested rows of each segment that has any."""
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

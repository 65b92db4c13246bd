"""Recordings for programs and notebooks: Arrow tables, which pandas, Polars and DuckDB accept directly, and the
diagnosis with its typed findings.

The tables are those of docs/FORMAT.md. Tables with a time have `wall`, the wall time of each row as a UTC timestamp, as
their first column, and their rows are sorted by it.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.diagnose.engine import diagnose
from exhume.diagnose.moments import AROUND_NS, moments_of
from exhume.model.clock import NANOS, SystemClock, Window
from exhume.model.errors import ExhumeError, UsageError
from exhume.model.facts import RecordingFacts
from exhume.model.finding import Diagnosis
from exhume.model.tables import DYING_CGROUPS, INCIDENT, TABLES
from exhume.model.times import Reference, parse_window
from exhume.store.format.schema import DIMENSIONS
from exhume.store.read.cached import CachedRecording
from exhume.store.read.profile import ProfileFilter
from exhume.store.read.recording import Recording as StoredRecording
from exhume.store.read.stacks import FrameTable, Ints

__all__ = ["Moment", "ProfileFilter", "Recording", "Target", "around", "newest_target", "open", "sql"]

# A string in the time grammar (times without a zone are UTC), wall nanoseconds since 1970, or a datetime with a zone.
Moment = str | int | datetime

_Reader = Callable[[Moment | None, Moment | None], pa.Table]
LAST_NS = 600 * NANOS
ALWAYS = Window(0, 2**63 - 1)
# Windows in which to look for the newest mark, which is most likely in the last minutes.
_SEARCHED = (600 * NANOS, 7200 * NANOS, 2**62)
# Microseconds, because Python's datetime has no finer resolution. `time` has the nanoseconds.
_WALL = pa.timestamp("us", "UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def open(path: str | Path) -> "Recording":
    """Open a recording or an incident bundle. Raises an ExhumeError with a message if there is none."""
    return Recording(path)


def sql(path: str | Path, query: str, since: Moment | None = None, until: Moment | None = None) -> pa.Table:
    """Run a DuckDB query over the tables of a recording, and over `cores` and `flame`. Only tables that the query names
    are read, between two moments if given."""
    try:
        # An optional extra that few installations have.
        import duckdb
    except ImportError:
        raise ExhumeError("exhume.sql needs DuckDB; install it with pip install 'exhume[sql]'") from None
    with open(path) as recording, duckdb.connect() as connection:
        derived: dict[str, _Reader] = {"cores": recording.cores, "flame": recording.flame}
        try:
            for name in {each.strip('"').lower() for each in connection.get_table_names(query)}:
                if name in derived:
                    connection.register(name, derived[name](since, until))
                elif name in TABLES:
                    connection.register(name, recording.table(name, since, until))
            answer = connection.sql(query)
            if answer is None:
                raise UsageError("the query returns no rows; write a SELECT")
            return answer.to_arrow_table()
        except duckdb.Error as error:
            raise UsageError(f"DuckDB can't answer the query: {error}") from None


@dataclass(frozen=True, slots=True)
class Target:
    """What to diagnose: a window, or the trouble in it that is nearest to a moment."""

    window: Window
    at: int | None = None


class Recording:
    """A recording: a directory, or an incident bundle (`exhume export bundle`). Window ends that are left out are those
    of the recording."""

    def __init__(self, path: str | Path, *, stored: StoredRecording | None = None) -> None:
        """Raises an ExhumeError with a message if there is no recording. `stored` is one that is already open."""
        self.path = Path(path)
        self._stored = StoredRecording.open(self.path) if stored is None else stored

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove an unpacked bundle; otherwise it is removed when the process exits."""
        self._stored.close()

    def __repr__(self) -> str:
        return f"exhume.open({str(self.path)!r})"

    def refresh(self) -> None:
        """List the directory again: a recording may still be growing."""
        self._stored.refresh()

    @property
    def facts(self) -> RecordingFacts:
        """Facts about the node and the recorder: name, cores, kernel, rate, missing sources."""
        return self._stored.facts

    @property
    def node(self) -> str:
        """The name of the node."""
        return self.facts.node

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """The first and the last recorded moment; None if nothing is recorded yet."""
        span = self._stored.span()
        return None if span is None else (_datetime(span.since), _datetime(span.until))

    def table(
        self,
        name: str,
        since: Moment | None = None,
        until: Moment | None = None,
        *,
        columns: Sequence[str] | None = None,
        cpus: Collection[int] | None = None,
    ) -> pa.Table:
        """Any table of docs/FORMAT.md. stacks, frames and processes are dimension tables: they are returned whole for
        the segments that the window touches."""
        return timed(self._stored.read(name, self._window(since, until), columns, cpus), name)

    def cores(
        self, since: Moment | None = None, until: Moment | None = None, *, cpus: Collection[int] | None = None
    ) -> pa.Table:
        """One row per core and second: the shares of its states in permille, as in the table cpu, and `busy`."""
        return with_busy(self.table("cpu", since, until, cpus=cpus))

    def samples(
        self, since: Moment | None = None, until: Moment | None = None, *, where: ProfileFilter | None = None
    ) -> pa.Table:
        """The single stack samples that match. `function` is the name of the leaf frame, `frames` are the names of all
        frames, root first."""
        found = self._stored.sample_table(self._window(since, until), where)
        frames = _frame_lists(found.frames, found.stack_offsets, found.stack_frames)
        leaves = _leaves(found.frames, found.stack_offsets, found.stack_frames)
        stack = pa.array(found.stack_index)
        return pa.table(
            {
                "wall": wall_times(found.walls),
                "cpu": pa.array(found.cpus, pa.uint16()),
                "pid": pa.array(found.pids, pa.int32()),
                "tid": pa.array(found.tids, pa.int32()),
                "comm": pa.array(found.comms, pa.string()).take(pa.array(found.comm_index)),
                "weight_us": pa.array(found.weights_us, pa.uint32()),
                "stack": pa.array(found.stacks, pa.uint64()).take(stack),
                "function": leaves.take(stack),
                "frames": frames.take(stack),
            }
        )

    def flame(
        self, since: Moment | None = None, until: Moment | None = None, *, where: ProfileFilter | None = None
    ) -> pa.Table:
        """The matching samples summed, as for a flame graph: one row per command and stack, the most time first."""
        found = self._stored.profile(self._window(since, until), where)
        frames = _frame_lists(found.frames, found.stack_offsets, found.stack_frames)
        table = pa.table(
            {
                "comm": pa.array(found.comms, pa.string()).take(pa.array(found.comm_index)),
                "frames": frames.take(pa.array(found.stack_index)),
                "samples": pa.array(found.counts, pa.uint64()),
                "cpu_us": pa.array(found.weights_us, pa.uint64()),
            }
        )
        return table.take(pc.sort_indices(table, [("cpu_us", "descending"), ("comm", "ascending")]))

    def events(
        self, since: Moment | None = None, until: Moment | None = None, *, kinds: Collection[str] | None = None
    ) -> pa.Table:
        """The kernel log and other events, only of the given kinds if any. Without `since` they extend to before the
        recording, as far back as the kernel log did."""
        begin, end = self._ends(since, until)
        rows = self._stored.read("events", Window(_or(begin, ALWAYS.since), _or(end, ALWAYS.until)))
        if kinds is not None:
            rows = rows.filter(pc.is_in(rows.column("kind"), pa.array(list(kinds), pa.string())))
        return timed(rows, "events")

    def diagnose(
        self, since: Moment | None = None, until: Moment | None = None, *, at: Moment | None = None
    ) -> Diagnosis:
        """The diagnosis of a window, or of the trouble nearest to a moment; without either, of the newest incident, as
        `exhume diagnose` chooses it."""
        stored = CachedRecording(self._stored)
        span = self._span()
        if at is not None:
            if since is not None or until is not None:
                raise UsageError("at and a window can't be combined; give one of them")
            target = around(stored, span, _or(self._ends(at, None)[0], span.until))
        elif since is None and until is None:
            target = newest_target(stored, span, stored.newest() or span.until)
        else:
            target = Target(self._window(since, until))
        if target.window.empty:
            raise UsageError("nothing was recorded in that time")
        return diagnose(stored, target.window, at=target.at)

    def _span(self) -> Window:
        return self._stored.span() or Window(0, 0)

    def _ends(self, since: Moment | None, until: Moment | None) -> tuple[int | None, int | None]:
        span, now = self._span(), SystemClock().wall_ns()
        reference = Reference(now, span.since, self._stored.newest() or now, UTC)
        return parse_window(_text(since), _text(until), reference)

    def _window(self, since: Moment | None, until: Moment | None) -> Window:
        span = self._span()
        begin, end = self._ends(since, until)
        return Window(_or(begin, span.since), _or(end, span.until)).clamp(span)


def newest_target(recording: StoredRecording, span: Window, newest: int) -> Target:
    """Choose what to diagnose if no time is given: the newest mark, or the last ten minutes if they have several marks
    or there is none at all. `newest` is the end of the recording, in recorded order."""
    recent = Window(newest - LAST_NS, newest).clamp(span)
    mark = _newest_mark(recording, span, newest)
    if mark is None:
        return Target(recent)
    # Of several marks in the last ten minutes, the newest may be the least important.
    several = recent.contains(mark) and len(moments_of(recording.events(recent, [INCIDENT]))) > 1
    return Target(recent) if several else around(recording, span, mark)


def around(recording: StoredRecording, span: Window, moment: int) -> Target:
    """The seconds around a moment; an empty window if it was not recorded. For a moment within an incident they are the
    incident's, as on the web page and in `exhume incidents`: the figures are then the same everywhere."""
    if not span.contains(moment):
        return Target(Window(0, 0))
    near = Window(moment - LAST_NS, moment + LAST_NS).clamp(span)
    # A time given in whole seconds may be up to a second before the mark.
    marked = [
        each
        for each in moments_of(recording.events(near, [INCIDENT]))
        if each.span.since - NANOS < moment < each.span.until
    ]
    if marked:
        # A growth lasts for minutes: something else that happened meanwhile is more likely what is meant.
        best = min(marked, key=lambda each: each.trigger == DYING_CGROUPS)
        return Target(best.window.clamp(span), best.at)
    return Target(Window(moment - AROUND_NS, moment + AROUND_NS).clamp(span), moment)


def _newest_mark(recording: StoredRecording, span: Window, newest: int) -> int | None:
    """When the recorder last marked an incident (wall nanoseconds)."""
    for length in _SEARCHED:
        window = Window(newest - length, newest).clamp(span)
        marks = recording.events(window, [INCIDENT])
        if marks:
            return marks[-1].wall
        if window.since == span.since:
            break
    return None


def timed(rows: pa.Table, table: str) -> pa.Table:
    """Sort the rows of a table by wall time, with that as a timestamp in the first column."""
    if "wall" not in rows.schema.names:
        return rows
    if rows.num_rows and table not in DIMENSIONS:
        keys = [(name, "ascending") for name in ("wall", "cpu") if name in rows.schema.names]
        rows = rows.take(pc.sort_indices(rows, keys))
    place = rows.schema.get_field_index("wall")
    return rows.remove_column(place).add_column(0, "wall", wall_times(rows.column(place).to_numpy()))


def wall_times(walls: Ints) -> pa.Array:
    """Convert wall nanoseconds to timestamps."""
    return pa.array(walls // 1000).cast(_WALL)


def with_busy(cores: pa.Table) -> pa.Table:
    """Add `busy` to rows of the table cpu: the permille in which the core was neither idle nor waiting for a disk."""
    idle = cores.column("idle").to_numpy().astype(np.int32) + cores.column("iowait").to_numpy()
    place = cores.schema.get_field_index("user")
    return cores.add_column(place, "busy", pa.array(np.clip(1000 - idle, 0, 1000), pa.uint16()))


def _frame_lists(frames: FrameTable, offsets: Ints, indexes: Ints) -> pa.ListArray:
    """The names of the frames of each stack."""
    names = pa.array(frames.names, pa.string()).take(pa.array(indexes))
    bounds: npt.NDArray[np.int32] = offsets.astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(bounds), names)


def _leaves(frames: FrameTable, offsets: Ints, indexes: Ints) -> pa.Array:
    """The name of the leaf frame of each stack; null for a stack without frames."""
    filled = offsets[1:] > offsets[:-1]
    last = np.zeros(len(filled), np.int64)
    last[filled] = indexes[offsets[1:][filled] - 1]
    return pa.array(frames.names, pa.string()).take(pa.array(last, mask=~filled))


def _text(moment: Moment | None) -> str | None:
    """A moment as a string of the time grammar."""
    if moment is None or isinstance(moment, str):
        return moment
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise UsageError(f"{moment.isoformat()} has no zone; give the datetime one, for example datetime.UTC")
        moment = (moment - _EPOCH) // timedelta(microseconds=1) * 1000
    return f"@{moment // NANOS}.{moment % NANOS:09d}"


def _datetime(wall: int) -> datetime:
    """Convert to a datetime, truncated to microseconds."""
    return _EPOCH + timedelta(microseconds=wall // 1000)


def _or(value: int | None, other: int) -> int:
    return other if value is None else value

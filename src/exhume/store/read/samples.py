"""The samples that a filter leaves, one by one: for questions of when and where, which sums by stack can't answer."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.clock import MILLIS, Window
from exhume.store.format.names import SegmentName
from exhume.store.format.schema import UnreadableFile
from exhume.store.read.index import Segment
from exhume.store.read.profile import Noter, ProfileFilter, select_rows
from exhume.store.read.progress import track
from exhume.store.read.reader import Request, read_segment
from exhume.store.read.stacks import StackCache, factorize

Ints = npt.NDArray[np.int64]
Read = Callable[[str, list[str] | None], pa.Table | None]


def filter_samples(  # noqa: PLR0917
    segments: Sequence[Segment],
    window: Window,
    wanted: ProfileFilter,
    columns: Sequence[str],
    note: Noter,
    cache: StackCache | None = None,
) -> Iterator[tuple[SegmentName, pa.Table]]:
    """The samples of the window that count, with these columns and `time_ms`, segment by segment."""
    cache = cache or StackCache()
    needed = list(dict.fromkeys(("time_ms", *columns, *_decided_by(wanted))))
    for segment in track(segments):
        rows = _read(segment, Request("samples", window, needed, wanted.cpus, _texts(needed)), note)
        if rows is None:
            continue

        def table(name: str, of: list[str] | None = None, segment: Segment = segment) -> pa.Table | None:
            return _read(segment, Request(name, window, of), note)

        rows = select_rows(rows, wanted, table)
        if wanted.by_stack and rows.num_rows:
            rows = rows.filter(pa.array(_kept(rows, wanted, table, cache)))
        if rows.num_rows:
            yield segment.name, rows


@dataclass(frozen=True, slots=True)
class Moments:
    """When (wall nanoseconds) and on which core samples were taken, and the CPU time that each stands for."""

    walls: Ints
    cpus: Ints
    weights_us: Ints


def moments_of_samples(found: Iterable[tuple[SegmentName, pa.Table]]) -> Moments:
    """The samples of segments, which have to carry `cpu` and `weight_us`, as arrays."""
    nothing = np.zeros(0, np.int64)
    walls, cpus, weights = [nothing], [nothing], [nothing]
    for name, rows in found:
        walls.append(rows.column("time_ms").to_numpy() * MILLIS + name.offset)
        cpus.append(rows.column("cpu").to_numpy().astype(np.int64))
        weights.append(rows.column("weight_us").to_numpy().astype(np.int64))
    return Moments(np.concatenate(walls), np.concatenate(cpus), np.concatenate(weights))


def _decided_by(wanted: ProfileFilter) -> list[str]:
    asked = (("comm", wanted.comm is not None), ("pid", wanted.by_process), ("stack", wanted.by_stack))
    return [column for column, needed in asked if needed]


def _texts(columns: Sequence[str]) -> list[str]:
    return [column for column in columns if column == "comm"]


def _kept(rows: pa.Table, wanted: ProfileFilter, read: Read, cache: StackCache) -> npt.NDArray[np.bool_]:
    """Which rows count by their stack."""
    places, stacks = factorize(rows.column("stack"))
    found = pc.is_in(stacks, value_set=_counting(stacks, wanted, read, cache)).to_numpy(zero_copy_only=False)
    kept: npt.NDArray[np.bool_] = found[places]
    return kept


def _counting(stacks: pa.Array, wanted: ProfileFilter, read: Read, cache: StackCache) -> pa.Array:
    """Stacks that count, among them all of these that do. What a stack holds never changes: each is judged once."""
    key = wanted.stack_key
    asked, kept = cache.filtered(key)
    new = stacks.filter(pc.invert(pc.is_in(stacks, value_set=asked)))
    if not len(new):
        return kept
    names = cache.names()
    names.add(new.to_numpy(), lambda table: read(table, None))
    resolved = names.resolve(new.to_numpy())
    more = new.filter(pa.array(wanted.keeps(resolved)))
    # Another segment may have what is unknown here.
    if names.complete and not resolved.unknown:
        cache.add_filtered(key, new, more)
    return pa.concat_arrays([kept, more])


def _read(segment: Segment, request: Request, note: Noter) -> pa.Table | None:
    try:
        return read_segment(segment, request)
    except UnreadableFile as error:
        note(segment, request.table, error)
        return error.rows

"""Scheduler slices reconstructed from single samples: which thread had each core when."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.present.web.handle import BoundQuery, RecordingHandle, ms
from exhume.present.web.params import MAX_SLICES_MS, Refusal, SlicesParams
from exhume.present.web.schemas import Reply, SlicesHeader, framed
from exhume.store.read.core_grid import LONGEST_ROW_NS
from exhume.store.read.recording import Recording
from exhume.store.read.slices import SLICE_STATES, build_slices

MAX_SAMPLES = 1_000_000
# A sample stands for the time before it, and is compared with the counters of the whole second that contains it.
_AROUND_NS = 2 * NANOS


def slices(handle: RecordingHandle, params: SlicesParams) -> Reply:
    """Slices of threads and of idle time, core by core."""
    query = BoundQuery.of(handle, params)
    recording, window, wanted = query.recording, query.window, query.filter
    if window.nanos > MAX_SLICES_MS * MILLIS:
        raise Refusal(413, f"single samples are sent of at most {MAX_SLICES_MS // 1000} s: choose a shorter time")
    filtered = wanted.looks_at_samples
    rows = lost = None
    reach = Window(window.since, window.until)
    if not (filtered or window.empty):
        rows = _counted(recording, window, query.cpus)
        lost = _lost(recording, window, query.cpus)
    if not window.empty:
        reach = Window(window.since - _AROUND_NS, window.until + _AROUND_NS)
    samples = recording.sample_table(reach, wanted, MAX_SAMPLES)
    found = build_slices(samples, window, rows, lost)
    header: SlicesHeader = {
        "since": ms(window.since),
        "until": ms(window.until),
        "cpus": found.cpus,
        "states": list(SLICE_STATES),
        "pids": [thread.pid for thread in found.threads],
        "tids": [thread.tid for thread in found.threads],
        "comms": [thread.comm for thread in found.threads],
        "frames": found.frames,
        "count": len(found),
        "samples": int(found.samples.sum()),
        "period_us": int(np.median(samples.weights_us)) if len(samples) else 0,
        "filtered": filtered,
    }
    origin = ms(window.since) * MILLIS
    arrays = (
        ((found.since - origin) // 1000).astype("<u4"),
        ((found.until - found.since) // 1000).astype("<u4"),
        found.thread.astype("<i4"),
        found.frame.astype("<i4"),
        np.minimum(found.samples, 0xFFFF).astype("<u2"),
        found.lines.astype("<u2"),
        found.states.astype(np.uint8),
    )
    return framed(header, *(array.tobytes() for array in arrays))


def _counted(recording: Recording, window: Window, cpus: frozenset[int] | None) -> pa.Table:
    """The rows of the cpu table that overlap a window and whose samples are all within what is read."""
    reaching = Window(window.since - LONGEST_ROW_NS, window.until)
    rows = recording.read("cpu", reaching, ["cpu", "span_ms", "idle", "iowait", "wall"], cpus)
    ends = pc.add(rows.column("wall"), pc.multiply(rows.column("span_ms").cast(pa.int64()), MILLIS))
    read = pc.and_(
        pc.greater_equal(rows.column("wall"), window.since - _AROUND_NS),
        pc.less_equal(ends, window.until + _AROUND_NS),
    )
    return rows.filter(pc.and_(read, pc.greater(ends, window.since)))


def _lost(recording: Recording, window: Window, cpus: frozenset[int] | None) -> pa.Table:
    reaching = Window(window.since - _AROUND_NS, window.until)
    rows = recording.read("sampling", reaching, ["cpu", "lost", "wall"], cpus)
    return rows.filter(pc.greater(rows.column("lost"), 0))

"""Write samples, metrics and events as trace events: the JSON that Perfetto and Chrome's about:tracing read.

Each core (or thread) is a track; equal frames in successive samples are joined into slices, as in a flame chart. The
busy share of a core is a counter. Incidents are instants across all tracks, other events have tracks of their own.
Times are microseconds since 1970.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from exhume.interop.tracks import Track, runs, tracks
from exhume.model.clock import Window
from exhume.model.tables import INCIDENT, KERNEL_LOG
from exhume.store.read.events import EventView
from exhume.store.read.profile import SampleTable

# Linux has no larger process ids (include/linux/threads.h, PID_MAX_LIMIT), so these can't collide with a process.
_LARGEST_PID = 1 << 22
CORES_PID, EVENTS_PID = _LARGEST_PID + 1, _LARGEST_PID + 2
_EVENT_TRACKS = ("incidents", "kernel log", "other events")
_MICROSECOND = 1000


def trace_event_parts(
    samples: SampleTable, by: str, window: Window, *, cores: pa.Table, events: Iterable[EventView], node: str
) -> Iterator[str]:
    """Yield the file in parts, as a minute of a large node has millions of slices. `cores` are rows of the table cpu
    with `wall` (nanoseconds) and `busy` (permille)."""
    about = json.dumps({"exporter": "exhume", "node": node})
    yield f'{{"displayTimeUnit":"ms","otherData":{about},"traceEvents":[\n'
    parts = chain(
        [map(json.dumps, _names(node))],
        (_track(samples, track, window) for track in tracks(samples, by)),
        [map(json.dumps, _counters(cores)), (json.dumps(_instant(event)) for event in events)],
    )
    separator = ""
    for part in parts:
        if text := ",\n".join(part):
            yield separator + text
            separator = ",\n"
    yield "\n]}\n"


def _names(node: str) -> Iterator[dict[str, Any]]:
    for order, (pid, name) in enumerate(((EVENTS_PID, f"{node}: events"), (CORES_PID, f"{node}: cores"))):
        yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": order}}
    for tid, name in enumerate(_EVENT_TRACKS, 1):
        yield {"ph": "M", "name": "thread_name", "pid": EVENTS_PID, "tid": tid, "args": {"name": name}}


def _track(samples: SampleTable, track: Track, window: Window) -> Iterator[str]:
    """Yield the names and the slices of a track."""
    pid = CORES_PID if track.pid is None else track.pid
    # Not 0, which is the idle task of a core.
    tid = track.cpu + 1 if track.cpu is not None else track.tid
    where = {"pid": pid, "tid": tid}
    if track.pid is not None:
        comm = track.name.rpartition(" ")[0]
        yield json.dumps({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": comm}})
    yield json.dumps({"ph": "M", "name": "thread_name", **where, "args": {"name": track.name}})
    if track.cpu is not None:
        yield json.dumps({"ph": "M", "name": "thread_sort_index", **where, "args": {"sort_index": track.cpu}})
    place = f'"pid":{pid},"tid":{tid}'
    for slice_ in _slices(samples, track, window.since):
        yield f'{{"ph":"X",{place},"ts":{slice_.begin},"dur":{slice_.end - slice_.begin},{slice_.about}}}'


@dataclass(slots=True)
class _Slice:
    """A frame for as long as it stays on the stack, in microseconds since 1970; `about` is the rest of its JSON."""

    about: str
    begin: int
    end: int = 0


def _slices(samples: SampleTable, track: Track, since: int) -> list[_Slice]:
    """The slices of a track in order of their beginning, outer ones first: if two begin and end together, viewers take
    the first for the outer one."""
    base, now = since // _MICROSECOND, 0
    found: list[_Slice] = []
    # The open frames: the key to compare them by, and their slice, whose end is not known yet.
    opened: list[tuple[object, _Slice]] = []
    about: dict[object, str] = {}

    def close(least: int, at: int) -> None:
        while len(opened) > least:
            opened.pop()[1].end = base + at

    for begin, end, row, stack in runs(samples, track, since):
        comm = samples.comms[int(samples.comm_index[row])]
        thread = (comm, int(samples.pids[row]), int(samples.tids[row]), int(samples.cpus[row]))
        frames: list[object] = [thread, *samples.stack(stack).tolist()]
        same = 0
        if begin == now:
            while same < min(len(frames), len(opened)) and opened[same][0] == frames[same]:
                same += 1
        close(same, now)
        for frame in frames[same:]:
            if frame not in about:
                about[frame] = _about_thread(thread) if frame is thread else _about_frame(samples, frame)
            slice_ = _Slice(about[frame], base + begin)
            opened.append((frame, slice_))
            found.append(slice_)
        now = end
    close(0, now)
    return found


def _about_thread(thread: tuple[str, int, int, int]) -> str:
    comm, pid, tid, cpu = thread
    return f'"name":{json.dumps(comm)},"cat":"thread","args":{{"pid":{pid},"tid":{tid},"cpu":{cpu}}}'


def _about_frame(samples: SampleTable, frame: object) -> str:
    assert isinstance(frame, int)
    kind = samples.frames.kinds[frame] or "unknown"
    return f'"name":{json.dumps(samples.frames.names[frame])},"cat":{json.dumps(kind)}'


def _counters(cores: pa.Table) -> Iterator[dict[str, Any]]:
    columns = (cores.column(name).to_pylist() for name in ("wall", "cpu", "busy"))
    for wall, cpu, busy in zip(*columns, strict=True):
        name, shown = f"core {cpu} busy", {"percent": busy / 10}
        yield {"ph": "C", "name": name, "pid": CORES_PID, "tid": 0, "ts": wall // _MICROSECOND, "args": shown}


def _instant(event: EventView) -> dict[str, Any]:
    incident = event.kind == INCIDENT
    track = 1 if incident else 2 if event.source == KERNEL_LOG else 3
    about = {"severity": event.severity, "source": event.source, "cpu": event.cpu, "pid": event.pid, "comm": event.comm}
    args = {"text": event.text, **{name: value for name, value in about.items() if value is not None}}
    return {
        "ph": "i",
        "s": "g" if incident else "t",
        "name": f"{event.kind}: {event.text}"[:120] if incident else event.text[:120],
        "cat": event.kind,
        "pid": EVENTS_PID,
        "tid": track,
        "ts": event.wall // _MICROSECOND,
        "args": args,
    }

"""Write samples and events in the processed format of the Firefox Profiler (profiler.firefox.com, which works offline).

Every core (or thread) is a thread of the profile, with its samples at the times they were taken; events are markers.
The tables are those of the profiler's src/types/profile.js, in version 66 of the format; later versions of the profiler
can read older formats.
"""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from exhume.interop.pprof import Strings
from exhume.interop.tracks import Track, tracks
from exhume.model.clock import MILLIS, Window
from exhume.model.facts import RecordingFacts
from exhume.model.tables import INCIDENT
from exhume.store.read.events import EventView
from exhume.store.read.profile import SampleTable

FORMAT_VERSION = 66
_CATEGORIES = (("Other", "grey"), ("Kernel", "orange"), ("User", "yellow"), ("JIT", "blue"))
_CATEGORY_OF = {"kernel": 1, "user": 2, "jit": 3}
_EVENT = "event"
_RESOURCE_OTHER = 5
_INSTANT = 0
_SOURCE_COLUMNS = ("id", "filename", "startLine", "startColumn", "sourceMapURL", "content")


def render_firefox(
    samples: SampleTable, by: str, window: Window, events: Iterable[EventView], facts: RecordingFacts
) -> str:
    """Render the whole profile as JSON."""
    shared = _Shared(samples)
    threads = [_thread(samples, track, window, shared) for track in tracks(samples, by)]
    threads.append(_markers_thread(list(events), window, shared))
    document = {
        "meta": _meta(facts, window),
        "libs": [],
        "shared": shared.tables(),
        "threads": threads,
        "pages": [],
        "profilerOverhead": [],
        "counters": [],
    }
    return json.dumps(document, separators=(",", ":"))


def _meta(facts: RecordingFacts, window: Window) -> dict[str, Any]:
    return {
        "categories": [{"name": name, "color": color, "subcategories": ["Other"]} for name, color in _CATEGORIES],
        "debug": False,
        "extensions": {"length": 0, "baseURL": [], "id": [], "name": []},
        "interval": 1000 / (facts.rate_hz or 1000),
        "preprocessedProfileVersion": FORMAT_VERSION,
        "processType": 0,
        "product": f"exhume: {facts.node}",
        "oscpu": f"Linux {facts.kernel}",
        "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "µs"},
        "startTime": window.since / MILLIS,
        "symbolicated": True,
        "pausedRanges": [],
        "version": 24,
        "usesOnlyOneStackType": True,
        "sourceCodeIsNotOnSearchfox": True,
        "markerSchema": [
            {
                "name": _EVENT,
                "display": ["marker-chart", "marker-table", "timeline-overview"],
                "chartLabel": "{marker.data.text}",
                "tableLabel": "{marker.data.text}",
                "tooltipLabel": "{marker.name}",
                "fields": [
                    {"key": "text", "label": "Text", "format": "string"},
                    {"key": "severity", "label": "Severity", "format": "string"},
                    {"key": "source", "label": "Source", "format": "string"},
                ],
            }
        ],
    }


class _Shared:
    """The tables of stacks, frames and names that all threads refer to."""

    def __init__(self, samples: SampleTable) -> None:
        self._samples = samples
        self.strings = Strings()
        self._first_comm = len(samples.frames.names)
        self._prefixes: list[int | None] = []
        self._frames: list[int] = []
        self._nodes: dict[tuple[int | None, int], int] = {}
        self._known: dict[tuple[int, int], int] = {}

    def stack(self, comm: int, stack: int) -> int:
        """Return the index of a stack, with the name of its thread as the outermost frame."""
        known = self._known.get((comm, stack))
        if known is None:
            node: int | None = None
            for frame in (self._first_comm + comm, *self._samples.stack(stack).tolist()):
                key = (node, frame)
                node = self._nodes.setdefault(key, len(self._frames))
                if node == len(self._frames):
                    self._prefixes.append(key[0])
                    self._frames.append(frame)
            assert node is not None
            known = self._known[comm, stack] = node
        return known

    def tables(self) -> dict[str, Any]:
        frames = self._samples.frames
        names = [*frames.names, *self._samples.comms]
        modules = [*frames.modules, *([""] * len(self._samples.comms))]
        categories = [_CATEGORY_OF.get(kind, 0) for kind in frames.kinds] + [0] * len(self._samples.comms)
        resources = {module: place for place, module in enumerate(dict.fromkeys(filter(None, modules)))}
        count = len(names)
        offsets = [0 if prefix is None else at - prefix for at, prefix in enumerate(self._prefixes)]
        return {
            "stackTable": {"length": len(offsets), "prefixOffset": offsets, "frame": self._frames},
            "frameTable": {
                "length": count,
                "func": list(range(count)),
                "category": categories,
                "subcategory": [0] * count,
                "line": [None] * count,
                "column": [None] * count,
                "address": [-1] * count,
                "nativeSymbol": [None] * count,
                "inlineDepth": [0] * count,
                "innerWindowID": [0] * count,
                "originalLocation": [None] * count,
            },
            "funcTable": {
                "length": count,
                "name": [self.strings.add(name) for name in names],
                "isJS": [False] * count,
                "relevantForJS": [False] * count,
                "resource": [resources.get(module, -1) for module in modules],
                "source": [None] * count,
                "lineNumber": [None] * count,
                "columnNumber": [None] * count,
                "originalLocation": [None] * count,
            },
            "nativeSymbols": {"length": 0, "address": [], "functionSize": [], "libIndex": [], "name": []},
            "resourceTable": {
                "length": len(resources),
                "lib": [None] * len(resources),
                "name": [self.strings.add(module) for module in resources],
                "host": [None] * len(resources),
                "type": [_RESOURCE_OTHER] * len(resources),
            },
            "sources": {"length": 0, **{name: [] for name in _SOURCE_COLUMNS}},
            "sourceLocationTable": {"length": 0, "source": [], "line": [], "column": []},
            # Last, because building the tables above adds strings.
            "stringArray": self.strings.every,
        }


def _thread(samples: SampleTable, track: Track, window: Window, shared: _Shared) -> dict[str, Any]:
    rows = track.rows
    times = (samples.walls[rows] - window.since) / MILLIS
    pairs = zip(samples.comm_index[rows].tolist(), samples.stack_index[rows].tolist(), strict=True)
    taken = {
        "length": len(rows),
        "stack": [shared.stack(comm, stack) for comm, stack in pairs],
        "timeDeltas": np.diff(times, prepend=0.0).round(3).tolist(),
        "weightType": "tracing-ms",
        "weight": (samples.weights_us[rows] / 1000).tolist(),
        "threadCPUDelta": samples.weights_us[rows].tolist(),
    }
    pid = "cores" if track.pid is None else str(track.pid)
    tid = f"core {track.cpu}" if track.tid is None else str(track.tid)
    process = "cores" if track.pid is None else track.name.rpartition(" ")[0]
    return _thread_shape((track.name, process), (pid, tid), taken, _markers([]), window)


def _markers_thread(events: list[EventView], window: Window, shared: _Shared) -> dict[str, Any]:
    nothing: dict[str, Any] = {
        **{name: [] for name in ("stack", "timeDeltas", "weight", "threadCPUDelta")},
        "length": 0,
        "weightType": "tracing-ms",
    }
    markers = _markers(
        [
            (
                shared.strings.add(event.kind),
                (event.wall - window.since) / MILLIS,
                1 if event.kind == INCIDENT else 0,
                {"type": _EVENT, "text": event.text, "severity": event.severity, "source": event.source},
            )
            for event in events
        ]
    )
    return _thread_shape(("events", "events"), ("events", "events"), nothing, markers, window)


def _markers(rows: list[tuple[int, float, int, dict[str, str]]]) -> dict[str, Any]:
    return {
        "length": len(rows),
        "category": [category for _, _, category, _ in rows],
        "data": [data for _, _, _, data in rows],
        "endTime": [0] * len(rows),
        "name": [name for name, _, _, _ in rows],
        "phase": [_INSTANT] * len(rows),
        "startTime": [at for _, at, _, _ in rows],
    }


def _thread_shape(
    names: tuple[str, str],
    ids: tuple[str, str],
    samples: dict[str, Any],
    markers: dict[str, Any],
    window: Window,
) -> dict[str, Any]:
    """`names` are those of the thread and the process; `ids` those of the process and the thread."""
    return {
        "name": names[0],
        "isMainThread": ids[0] == ids[1],
        "pausedRanges": [],
        "pid": ids[0],
        "processName": names[1],
        "processShutdownTime": None,
        "processStartupTime": 0,
        "processType": "default",
        "registerTime": 0,
        "tid": ids[1],
        "unregisterTime": window.nanos / MILLIS,
        "showMarkersInTimeline": bool(markers["length"]),
        "samples": samples,
        "markers": markers,
    }

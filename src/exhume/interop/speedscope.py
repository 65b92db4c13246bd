"""Write a flame graph for speedscope: sampled profiles of weighted stacks, in microseconds. Either one profile with the
sum of all samples, or one for each core or thread, on the time axis of the window."""

import json
from collections.abc import Sequence
from typing import Any

from exhume.interop.tracks import Track, runs, tracks
from exhume.model.clock import Window
from exhume.store.read.flame_tree import FlameTree
from exhume.store.read.profile import SampleTable

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
_MICROSECOND = 1000


def render_speedscope(tree: FlameTree, title: str) -> str:
    """Render every stack that has self time; processes are the outermost frames."""
    samples, weights = [], []
    own = tree.self_weight.tolist()
    for node in range(1, len(tree)):
        if own[node] > 0:
            samples.append([int(tree.label[each]) for each in tree.path(node)])
            weights.append(own[node])
    profile = _profile(title, samples, weights)
    return _document(title, _frames(tree.labels.names, tree.labels.modules), [profile])


def render_speedscope_tracks(samples: SampleTable, by: str, window: Window, title: str) -> str:
    """Render one profile for each core or thread. Times without samples have an empty stack."""
    frames = _frames([*samples.frames.names, *samples.comms], [*samples.frames.modules, *([""] * len(samples.comms))])
    return _document(title, frames, [_timed(samples, track, window) for track in tracks(samples, by)])


def _timed(samples: SampleTable, track: Track, window: Window) -> dict[str, Any]:
    comms, first_comm = samples.comm_index.tolist(), len(samples.frames.names)
    stacks: list[list[int]] = []
    weights: list[int] = []
    now, end_of_window = 0, window.nanos // _MICROSECOND
    for begin, end, row, stack in runs(samples, track, window.since):
        if begin > now:
            stacks.append([])
            weights.append(begin - now)
        stacks.append([first_comm + comms[row], *samples.stack(stack).tolist()])
        weights.append(end - begin)
        now = end
    if end_of_window > now:
        stacks.append([])
        weights.append(end_of_window - now)
    return _profile(track.name, stacks, weights)


def _frames(names: Sequence[str], modules: Sequence[str]) -> list[dict[str, str]]:
    return [{"name": name, **({"file": module} if module else {})} for name, module in zip(names, modules, strict=True)]


def _profile(name: str, samples: list[list[int]], weights: list[int]) -> dict[str, Any]:
    return {
        "type": "sampled",
        "name": name,
        "unit": "microseconds",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def _document(title: str, frames: list[dict[str, str]], profiles: list[dict[str, Any]]) -> str:
    document = {
        "$schema": SCHEMA,
        "name": title,
        "exporter": "exhume",
        "activeProfileIndex": 0,
        "shared": {"frames": frames},
        "profiles": profiles,
    }
    return json.dumps(document, separators=(",", ":"))

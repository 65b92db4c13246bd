"""Write a flame graph in pprof's format: a gzipped protocol buffer, written field by field.

The format consists of eight small messages of numbers and references into one string table, so it is written here
directly; field numbers are those of google/pprof's profile.proto. If a profile is split by core or thread, labels on
the samples say which.
"""

import gzip
from collections.abc import Iterable, Iterator, Sequence

from exhume.interop.tracks import Part, Track
from exhume.model.clock import Window
from exhume.store.read.flame_tree import COMM_KIND, FlameTree
from exhume.store.read.profile import StackProfile

# Field numbers of the Profile message.
_SAMPLE_TYPE, _SAMPLE, _MAPPING, _LOCATION, _FUNCTION, _STRING = 1, 2, 3, 4, 5, 6
_TIME, _DURATION, _PERIOD_TYPE, _PERIOD = 9, 10, 11, 12
_MICROSECOND = 1000


def render_pprof(tree: FlameTree, window: Window) -> bytes:
    """Render samples and CPU time of every stack that has self time."""
    locations = _Locations()
    return _render([(None, _rows_of_tree(tree, locations))], locations, window)


def render_pprof_parts(parts: Sequence[Part], window: Window) -> bytes:
    """Render the stacks of every core or thread, with samples labelled accordingly."""
    locations = _Locations()
    return _render([(part.track, _rows_of(part.profile, locations)) for part in parts], locations, window)


# The locations of a stack (leaf first), how often it was sampled, and its CPU time in microseconds.
_Row = tuple[list[int], int, int]


def _rows_of_tree(tree: FlameTree, locations: "_Locations") -> Iterator[_Row]:
    places = locations.add(zip(tree.labels.names, tree.labels.modules, tree.labels.kinds, strict=True))
    own, samples, labels = tree.self_weight.tolist(), _own_samples(tree), tree.label.tolist()
    for node in range(1, len(tree)):
        if own[node] > 0 or samples[node] > 0:
            path = [places[labels[each]] for each in reversed(tree.path(node))]
            yield path, max(0, samples[node]), max(0, own[node])


def _rows_of(profile: StackProfile, locations: "_Locations") -> Iterator[_Row]:
    comms = locations.add((comm, "", COMM_KIND) for comm in profile.comms)
    frames = locations.add(zip(profile.frames.names, profile.frames.modules, profile.frames.kinds, strict=True))
    paths = [[frames[each] for each in reversed(stack.tolist())] for stack in profile.stacks]
    columns = (profile.comm_index, profile.stack_index, profile.counts, profile.weights_us)
    for comm, stack, samples, weight in zip(*(column.tolist() for column in columns), strict=True):
        yield [*paths[stack], comms[comm]], samples, weight


def _render(sources: Iterable[tuple[Track | None, Iterable[_Row]]], locations: "_Locations", window: Window) -> bytes:
    strings = Strings()
    parts = [
        message(_SAMPLE_TYPE, _value_type(strings, "samples", "count")),
        message(_SAMPLE_TYPE, _value_type(strings, "cpu", "nanoseconds")),
    ]
    for track, rows in sources:
        labelled = b"" if track is None else _labels(strings, track)
        for path, samples, weight in rows:
            values = packed(2, (samples, weight * _MICROSECOND))
            parts.append(message(_SAMPLE, packed(1, path) + values + labelled))
    parts += locations.messages(strings)
    parts += [
        number(_TIME, window.since),
        number(_DURATION, window.nanos),
        message(_PERIOD_TYPE, _value_type(strings, "cpu", "nanoseconds")),
        number(_PERIOD, 1),
    ]
    parts += [message(_STRING, text.encode("utf-8", "replace")) for text in strings.every]
    return gzip.compress(b"".join(parts), 6, mtime=0)


class _Locations:
    """The frames of all samples, numbered from 1; each is a location and a function with the same number."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str, str], int] = {}

    def add(self, frames: Iterable[tuple[str, str, str]]) -> list[int]:
        """Return the number of each frame, given as name, module and kind."""
        return [self._numbers.setdefault(frame, len(self._numbers) + 1) for frame in frames]

    def messages(self, strings: "Strings") -> Iterable[bytes]:
        mappings: dict[str, int] = {}
        for _, module, _ in self._numbers:
            if module not in mappings:
                mappings[module] = len(mappings) + 1
                # Functions are named already (field 7), so pprof doesn't look for binaries on its own machine.
                named = number(5, strings.add(module)) + number(7, 1)
                yield message(_MAPPING, number(1, mappings[module]) + named)
        for (name, module, kind), place in self._numbers.items():
            line = message(4, number(1, place))
            yield message(_LOCATION, number(1, place) + number(2, mappings[module]) + line)
            shown = f"[{name}]" if kind == COMM_KIND else name
            where = number(4, strings.add(module))
            yield message(_FUNCTION, number(1, place) + number(2, strings.add(shown)) + where)


def _labels(strings: "Strings", track: Track) -> bytes:
    # As text: readers take a numeric label of 0 for a missing label (google/pprof, profile/encode.go, postDecode).
    pairs = ((strings.add(name), strings.add(str(value))) for name, value in track.labels)
    return b"".join(message(3, number(1, name) + number(2, value)) for name, value in pairs)


class Strings:
    """A string table; the first string is empty."""

    def __init__(self) -> None:
        self.every = [""]
        self._index = {"": 0}

    def add(self, text: str) -> int:
        index = self._index.setdefault(text, len(self.every))
        if index == len(self.every):
            self.every.append(text)
        return index


def _own_samples(tree: FlameTree) -> list[int]:
    own: list[int] = tree.samples.tolist()
    for node, parent in enumerate(tree.parent.tolist()):
        if node:
            own[parent] -= int(tree.samples[node])
    return own


def _value_type(strings: Strings, kind: str, unit: str) -> bytes:
    return number(1, strings.add(kind)) + number(2, strings.add(unit))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """Encode a field with a non-negative number."""
    return _varint(field << 3) + _varint(value)


def message(field: int, content: bytes) -> bytes:
    """Encode a field with a message, a text or bytes."""
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def packed(field: int, values: Iterable[int]) -> bytes:
    """Encode a packed repeated field of non-negative numbers."""
    return message(field, b"".join(map(_varint, values)))

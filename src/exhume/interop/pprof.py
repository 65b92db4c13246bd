"""A flame graph as pprof reads it: a gzipped protocol buffer, written field by field.

The format is eight small messages of numbers and references into one table of strings, so it is written here directly;
field numbers are those of google/pprof's profile.proto.
"""

import gzip
from collections.abc import Iterable

from exhume.model.clock import Window
from exhume.store.read.flame_tree import COMM_KIND, FlameTree

# The fields of a profile.
_SAMPLE_TYPE, _SAMPLE, _MAPPING, _LOCATION, _FUNCTION, _STRING = 1, 2, 3, 4, 5, 6
_TIME, _DURATION, _PERIOD_TYPE, _PERIOD = 9, 10, 11, 12
_MICROSECOND = 1000


def render_pprof(tree: FlameTree, window: Window) -> bytes:
    """Samples and CPU time of every stack that has time of its own."""
    strings = _Strings()
    parts = [
        _message(_SAMPLE_TYPE, _value_type(strings, "samples", "count")),
        _message(_SAMPLE_TYPE, _value_type(strings, "cpu", "nanoseconds")),
    ]
    own, samples = tree.self_weight.tolist(), _own_samples(tree)
    labels = tree.label.tolist()
    for node in range(1, len(tree)):
        if own[node] > 0 or samples[node] > 0:
            # The leaf comes first; locations are numbered from 1.
            path = [labels[each] + 1 for each in reversed(tree.path(node))]
            values = [max(0, samples[node]), max(0, own[node]) * _MICROSECOND]
            parts.append(_message(_SAMPLE, _packed(1, path) + _packed(2, values)))
    mappings: dict[str, int] = {}
    for module in tree.labels.modules:
        if module not in mappings:
            mappings[module] = len(mappings) + 1
            # Functions are named already (7), so that pprof looks for no files of its own machine.
            named = _number(5, strings.add(module)) + _number(7, 1)
            parts.append(_message(_MAPPING, _number(1, mappings[module]) + named))
    for label, (name, module, kind) in enumerate(
        zip(tree.labels.names, tree.labels.modules, tree.labels.kinds, strict=True), 1
    ):
        line = _message(4, _number(1, label))
        parts.append(_message(_LOCATION, _number(1, label) + _number(2, mappings[module]) + line))
        shown = f"[{name}]" if kind == COMM_KIND else name
        where = _number(4, strings.add(module))
        parts.append(_message(_FUNCTION, _number(1, label) + _number(2, strings.add(shown)) + where))
    parts += [
        _number(_TIME, window.since),
        _number(_DURATION, window.nanos),
        _message(_PERIOD_TYPE, _value_type(strings, "cpu", "nanoseconds")),
        _number(_PERIOD, 1),
    ]
    parts += [_message(_STRING, text.encode("utf-8", "replace")) for text in strings.every]
    return gzip.compress(b"".join(parts), 6, mtime=0)


class _Strings:
    """The table of strings; the first is empty."""

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


def _value_type(strings: _Strings, kind: str, unit: str) -> bytes:
    return _number(1, strings.add(kind)) + _number(2, strings.add(unit))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _message(field, b"".join(map(_varint, values)))

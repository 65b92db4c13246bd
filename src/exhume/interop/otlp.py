"""Write samples as an OTLP profile (opentelemetry/proto/profiles/v1development/profiles.proto): a ProfilesData message,
whose bytes are also those of the request that collectors accept (ExportProfilesServiceRequest).

A sample is a stack with the core, the process and the thread as attributes; for each time it was taken, it has a value
in nanoseconds of CPU time and a timestamp. Attribute names follow OpenTelemetry's semantic conventions.
"""

import hashlib
from collections.abc import Mapping

import numpy as np

from exhume.interop.pprof import Strings, message, number, packed
from exhume.model.clock import Window
from exhume.model.facts import RecordingFacts
from exhume.store.read.profile import SampleTable
from exhume.store.read.stacks import Ints

_MICROSECOND = 1000
_ID_BYTES = 16
# From the semantic conventions. Compiled code has no type here: which runtime compiled it is not recorded.
_FRAME_TYPES = {"kernel": "kernel", "user": "native"}


def render_otlp(samples: SampleTable, window: Window, facts: RecordingFacts) -> bytes:
    """Render the whole message."""
    dictionary = _Dictionary(samples)
    profile = _profile(samples, window, facts, dictionary)
    scope = message(1, _text(1, "exhume") + _text(2, facts.exhume_version))
    resource = message(
        1,
        b"".join(
            message(1, _text(1, key) + message(2, _text(1, value)))
            for key, value in {
                "service.name": "exhume",
                "host.name": facts.node,
                "host.arch": facts.arch,
                "os.type": "linux",
                "os.version": facts.kernel,
                **{f"exhume.label.{key}": value for key, value in facts.labels.items()},
            }.items()
        ),
    )
    of_resource = resource + message(2, scope + message(2, profile))
    return message(1, of_resource) + message(2, dictionary.encode())


class _Dictionary:
    """The tables that profiles refer to. The first entry of each is its zero value."""

    def __init__(self, samples: SampleTable) -> None:
        self._samples = samples
        self.strings = Strings()
        self._attributes: dict[tuple[str, str | int], int] = {}

    def attribute(self, key: str, value: str | int) -> int:
        return self._attributes.setdefault((key, value), len(self._attributes) + 1)

    def encode(self) -> bytes:
        frames = self._samples.frames
        mappings = {module: place for place, module in enumerate(dict.fromkeys(filter(None, frames.modules)), 1)}
        parts = [message(1, b""), *(message(1, number(4, self.strings.add(module))) for module in mappings)]
        parts.append(message(2, b""))
        for place, module in enumerate(frames.modules, 1):
            mapping = number(1, mappings[module]) if module else b""
            kind = _FRAME_TYPES.get(frames.kinds[place - 1])
            attribute = packed(4, [self.attribute("profile.frame.type", kind)]) if kind else b""
            parts.append(message(2, mapping + message(3, number(1, place)) + attribute))
        parts.append(message(3, b""))
        parts += [
            message(3, number(1, self.strings.add(name)) + number(3, self.strings.add(module)))
            for name, module in zip(frames.names, frames.modules, strict=True)
        ]
        parts.append(message(4, b""))
        attributes = [message(6, b"")]
        for key, value in self._attributes:
            content = _text(1, value) if isinstance(value, str) else number(3, value)
            attributes.append(message(6, number(1, self.strings.add(key)) + message(2, content)))
        # The leaf comes first.
        members = ((self._samples.stack(stack)[::-1] + 1).tolist() for stack in range(len(self._samples.stacks)))
        stacks = [message(7, b""), *(message(7, packed(1, places)) for places in members)]
        # Last, because building the tables above adds strings.
        parts += [_text(5, text) for text in self.strings.every]
        return b"".join((*parts, *attributes, *stacks))


def _profile(samples: SampleTable, window: Window, facts: RecordingFacts, dictionary: _Dictionary) -> bytes:
    kind = number(1, dictionary.strings.add("cpu")) + number(2, dictionary.strings.add("nanoseconds"))
    parts = [message(1, kind)]
    for rows in _alike(samples):
        first = int(rows[0])
        about: Mapping[str, str | int] = {
            "cpu.logical_number": int(samples.cpus[first]),
            "process.pid": int(samples.pids[first]),
            "thread.id": int(samples.tids[first]),
            "thread.name": samples.comms[int(samples.comm_index[first])],
        }
        attributes = [dictionary.attribute(key, value) for key, value in about.items()]
        values = (samples.weights_us[rows] * _MICROSECOND).tolist()
        # Fixed64 values, little-endian.
        stamps = samples.walls[rows].astype("<u8").tobytes()
        identity = number(1, int(samples.stack_index[first]) + 1) + packed(2, attributes)
        parts.append(message(2, identity + packed(4, values) + message(5, stamps)))
    parts.append(_fixed64(3, window.since) + number(4, window.nanos) + message(5, kind))
    parts.append(number(6, round(1e9 / facts.rate_hz) if facts.rate_hz else 1))
    # The same samples get the same id, so a receiver can recognise duplicates.
    named = f"{facts.node} {facts.boot_id} {window.since} {window.until} {len(samples)}"
    digest = hashlib.blake2b(named.encode("utf-8", "replace"), digest_size=_ID_BYTES)
    digest.update(samples.walls.tobytes() + samples.stack_index.tobytes() + samples.cpus.tobytes())
    parts.append(message(7, digest.digest()))
    return b"".join(parts)


def _alike(samples: SampleTable) -> list[Ints]:
    """Group the samples by stack, core and thread, each group in order of time."""
    if not len(samples):
        return []
    keys = (samples.comm_index, samples.tids, samples.pids, samples.cpus, samples.stack_index)
    order = np.lexsort((np.arange(len(samples)), *keys))
    changed = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    return np.split(order, np.flatnonzero(changed) + 1)


def _text(field: int, text: str) -> bytes:
    return message(field, text.encode("utf-8", "replace"))


def _fixed64(field: int, value: int) -> bytes:
    return bytes([field << 3 | 1]) + value.to_bytes(8, "little")

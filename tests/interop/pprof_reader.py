"""Reads a pprof file by the published numbers of its fields, knowing nothing of the code that wrote it."""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Pprof:
    types: list[tuple[str, str]] = field(default_factory=list)
    # Function names from the leaf outwards, and a value for each type.
    samples: list[tuple[list[str], list[int]]] = field(default_factory=list)
    # The labels of each sample, by name.
    labels: list[dict[str, str]] = field(default_factory=list)
    modules: dict[str, str] = field(default_factory=dict)
    time: int = 0
    duration: int = 0


def read_pprof(content: bytes) -> Pprof:
    fields = list(_fields(gzip.decompress(content)))
    strings = [value.decode() for number, value in fields if number == 6]
    assert strings[0] == ""
    mappings, functions, locations = {}, {}, {}
    for number, value in fields:
        if number in (3, 4, 5):
            inner = list(_fields(value))
            into = {3: mappings, 4: locations, 5: functions}[number]
            known = dict(inner)
            assert known[1] > 0, "numbers begin with 1"
            assert known[1] not in into, "a number is used twice"
            into[known[1]] = inner
    found = Pprof()
    for number, value in fields:
        if number == 1:
            kind = dict(_fields(value))
            found.types.append((strings[kind[1]], strings[kind[2]]))
        elif number == 2:
            inner = list(_fields(value))
            sample = dict(inner)
            stack = [_name(locations[each], functions, strings) for each in _packed(sample[1])]
            found.samples.append((stack, _packed(sample[2])))
            labels = [dict(_fields(content)) for number, content in inner if number == 3]
            found.labels.append({strings[label[1]]: strings[label[2]] for label in labels})
        elif number == 9:
            found.time = value
        elif number == 10:
            found.duration = value
    for location in locations.values():
        mapping = dict(mappings[dict(location)[2]])
        found.modules[_name(location, functions, strings)] = strings[mapping.get(5, 0)]
    return found


def _name(location: list, functions: dict, strings: list[str]) -> str:
    (line,) = [dict(_fields(value)) for number, value in location if number == 4]
    return strings[dict(functions[line[1]]).get(2, 0)]


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        if key & 7 == 0:
            value, at = _varint(content, at)
            yield key >> 3, value
        else:
            assert key & 7 == 2, f"wire type {key & 7}"
            length, at = _varint(content, at)
            assert at + length <= len(content), "a message is cut off"
            yield key >> 3, content[at : at + length]
            at += length


def _packed(content: bytes) -> list[int]:
    values, at = [], 0
    while at < len(content):
        value, at = _varint(content, at)
        values.append(value)
    return values


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if byte < 0x80:
            return value, at

"""JSON by one rule: times, enums, nesting, and the differences that a shape declares."""

from dataclasses import dataclass, field
from datetime import UTC
from enum import StrEnum
from pathlib import Path

import pytest

from exhume.model.clock import Wall, Window
from exhume.present.serializer import Shape, to_json

AT = 1_772_334_847_500_000_000


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Part:
    at: Wall | None
    elapsed: int
    colour: Colour = Colour.RED


@dataclass(frozen=True, slots=True)
class Whole:
    name: str
    parts: tuple[Part, ...]
    place: Path = Path("/var/lib")
    counts: dict[str, int] = field(default_factory=dict)


def test_fields_keep_their_names_and_only_wall_times_become_text():
    assert to_json(Whole("x", (Part(AT, AT), Part(None, 1)), counts={"a": 1}), UTC) == {
        "name": "x",
        "parts": [
            {"at": "2026-03-01T03:14:07.500000000Z", "elapsed": AT, "colour": "red"},
            {"at": None, "elapsed": 1, "colour": "red"},
        ],
        "place": "/var/lib",
        "counts": {"a": 1},
    }


def test_milliseconds_are_added_to_every_time():
    found = to_json(Part(AT, 2), UTC, millis=True)
    assert found["at_ms"] == AT // 1_000_000 and "elapsed_ms" not in found
    assert "at_ms" not in to_json(Part(None, 2), UTC, millis=True)


def test_a_shape_omits_renames_adds_and_replaces():
    shapes = {
        Part: Shape(omit=("colour",), rename={"elapsed": "elapsed_ns"}),
        Whole: Shape(omit=("place", "counts"), add=lambda each, _: {"name": each.name * 2, "span": Window(AT, AT)}),
    }
    assert to_json(Whole("x", (Part(None, 1),)), UTC, shapes) == {
        "name": "xx",
        "parts": [{"at": None, "elapsed_ns": 1}],
        "span": {"since": "2026-03-01T03:14:07.500000000Z", "until": "2026-03-01T03:14:07.500000000Z"},
    }


def test_what_has_no_json_is_an_error():
    with pytest.raises(TypeError, match="object"):
        to_json({"x": object()}, UTC)

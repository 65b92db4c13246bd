"""JSON of the shared types by one rule: fields by name, times as RFC 3339, enums by value."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import tzinfo
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from exhume.model.clock import MILLIS, WALL
from exhume.model.times import format_moment


@dataclass(frozen=True, slots=True)
class Shape:
    """How the JSON of a type differs from its fields. `add` returns additional keys or replacements for existing ones;
    its values are converted by the same rule."""

    omit: Collection[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    add: Callable[[Any, tzinfo | None], Mapping[str, Any]] | None = None


Shapes = Mapping[type, Shape]
_PLAIN = Shape()


def to_json(value: Any, zone: tzinfo | None, shapes: Shapes | None = None, *, millis: bool = False) -> Any:
    """Any value as JSON. With `millis`, each time is repeated in milliseconds as `<name>_ms`."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_json(each, zone, shapes, millis=millis) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(each, zone, shapes, millis=millis) for each in value]
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"no JSON for {type(value).__name__}")
    shape = (shapes or {}).get(type(value), _PLAIN)
    found: dict[str, Any] = {}
    for name, is_time in _fields(type(value)):
        if name in shape.omit:
            continue
        key, own = shape.rename.get(name, name), getattr(value, name)
        if not is_time or own is None:
            found[key] = to_json(own, zone, shapes, millis=millis)
            continue
        found[key] = format_moment(own, zone)
        if millis:
            found[f"{key}_ms"] = own // MILLIS
    if shape.add is not None:
        found |= to_json(shape.add(value, zone), zone, shapes, millis=millis)
    return found


@cache
def _fields(cls: type) -> tuple[tuple[str, bool], ...]:
    """The fields of a dataclass, and which of them are wall times."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple((each.name, _is_wall(hints[each.name])) for each in fields(cls))


def _is_wall(hint: Any) -> bool:
    return WALL in getattr(hint, "__metadata__", ()) or any(map(_is_wall, get_args(hint)))

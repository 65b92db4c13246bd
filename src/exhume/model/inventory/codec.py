"""Inventories as JSON and back. Fields that have their default value are left out; times are RFC 3339 in UTC.

Input is untrusted: data of the wrong shape is rejected with ValueError, fields of later versions are ignored.
"""

import datetime
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from exhume.model.clock import WALL
from exhume.model.errors import UsageError
from exhume.model.inventory import INVENTORY_VERSION, SECTIONS, Inventory, Missing
from exhume.model.times import Reference, format_moment, parse_moment

# Limit for a whole inventory as text: four times that of a node with 20,000 packages and 5,000 units.
MOST_BYTES = 16 << 20
_LARGEST = 1 << 63
_UTC = Reference(0, 0, 0, datetime.UTC)


def inventory_json(inventory: Inventory) -> dict[str, Any]:
    """The documented JSON form of `exhume inventory --json`."""
    return {"version": INVENTORY_VERSION, **encode(inventory, Inventory)}


def inventory_of(text: str | bytes) -> Inventory:
    """Parse an inventory. Raises ValueError for anything else, and for an unknown version."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    version = data.get("version") if isinstance(data, dict) else None
    if not isinstance(version, int) or "node" not in data or "taken_at" not in data:
        raise ValueError("it is not an inventory")
    if version > INVENTORY_VERSION:
        raise ValueError(f"version {version} is newer than this exhume reads; upgrade exhume")
    found = decode(data, Inventory)
    assert isinstance(found, Inventory)
    return found


def section_text(section: str, value: Any) -> str:
    """Encode the value of one section as text."""
    return json.dumps(encode(value, _hints(Inventory)[section]), separators=(",", ":"))


def section_of(section: str, text: str) -> Any:
    """Decode the output of `section_text`. Raises ValueError."""
    if section not in SECTIONS:
        raise ValueError(f"{section!r} is not a section")
    return decode(_loaded(text), _hints(Inventory)[section])


def missing_text(missing: tuple[Missing, ...]) -> str:
    return json.dumps([encode(each, Missing) for each in missing], separators=(",", ":"))


def missing_of(text: str) -> tuple[Missing, ...]:
    """Decode the output of `missing_text`. Raises ValueError."""
    found: tuple[Missing, ...] = decode(_loaded(text), tuple[Missing, ...])
    return found


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is not JSON") from None


def encode(value: Any, hint: Any) -> Any:
    """Encode a value of the given type for JSON."""
    hint, is_time = _plain(hint)
    if value is None:
        return None
    if is_time:
        return format_moment(value, datetime.UTC)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        hints = _hints(type(value))
        return {
            each.name: encode(own, hints[each.name])
            for each in fields(value)
            if (own := getattr(value, each.name)) != _default(each)
        }
    if isinstance(value, tuple):
        return [encode(each, get_args(hint)[0]) for each in value]
    return value


def decode(data: Any, hint: Any) -> Any:
    """Decode JSON data to a value of the given type. Raises ValueError."""
    optional = NoneType in get_args(hint)
    hint, is_time = _plain(hint)
    if data is None and optional:
        return None
    if is_time:
        return _moment(data)
    origin = get_origin(hint)
    if origin is tuple:
        return tuple(decode(each, get_args(hint)[0]) for each in _checked(data, list))
    if origin is dict:
        return {_text(key): decode(each, get_args(hint)[1]) for key, each in _checked(data, dict).items()}
    if is_dataclass(hint) and isinstance(hint, type):
        return _object(_checked(data, dict), hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(data)
    if hint is str:
        return _text(data)
    if hint in (int, float):
        return _number(data, hint)
    return _checked(data, hint)


def _number(data: Any, kind: type) -> Any:
    # bool is a subclass of int, but not a number here.
    whole = isinstance(data, int) and not isinstance(data, bool) and abs(data) < _LARGEST
    if not whole and not (kind is float and isinstance(data, float) and math.isfinite(data) and abs(data) < _LARGEST):
        raise ValueError(f"{str(data)[:40]!r} is not a number of an inventory")
    return kind(data)


def _object(data: Mapping[str, Any], kind: type) -> Any:
    hints = _hints(kind)
    known = {each.name: decode(data[each.name], hints[each.name]) for each in fields(kind) if each.name in data}
    lacking = [each.name for each in fields(kind) if each.name not in known and _default(each) is MISSING]
    if lacking:
        raise ValueError(f"{kind.__name__} has no {lacking[0]}")
    return kind(**known)


def _text(data: Any) -> str:
    text: str = _checked(data, str)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("a text is not Unicode") from None
    return text


def _moment(data: Any) -> int:
    try:
        return parse_moment(_text(data), _UTC)
    except UsageError as error:
        raise ValueError(str(error)) from None


def _checked(data: Any, kind: Any) -> Any:
    if not isinstance(data, kind):
        raise ValueError(f"{str(data)[:40]!r} is not of type {getattr(kind, '__name__', kind)}")
    return data


def _plain(hint: Any) -> tuple[Any, bool]:
    """Strip `| None` and annotations from a type; also returns whether it holds wall times."""
    is_time = False
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            is_time |= WALL in hint.__metadata__
            hint = get_args(hint)[0]
        elif origin in (UnionType, Union):
            hint = next(each for each in get_args(hint) if each is not NoneType)
        else:
            return hint, is_time


def _default(each: Any) -> Any:
    return each.default if each.default_factory is MISSING else each.default_factory()


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)

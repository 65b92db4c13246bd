"""What commands print with --json, checked against the JSON Schemas that are shipped."""

import functools
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import jsonschema

# RFC 3339 with any number of digits; jsonschema knows it only with a further package.
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
FORMATS = jsonschema.FormatChecker(formats=())
FORMATS.checks("date-time")(lambda value: not isinstance(value, str) or bool(MOMENT.fullmatch(value)))


def check_output(args: Sequence[str], text: str) -> None:
    """Fail where the output of a command with --json is not what its schema says, or has more than that."""
    if "--json" not in args or not text.strip():
        return
    names = [arg for arg in args if re.fullmatch(r"[a-z]+", arg)][:3]
    (name,) = [found for length in (1, 2, 3) if (found := "-".join(names[:length])) in schema_names()][:1]
    for line in text.splitlines():
        check(name, json.loads(line))


def check(name: str, document: Any) -> None:
    """Fail where a document is not what the schema of this name says, or has more than that."""
    errors = sorted(_validator(name).iter_errors(document), key=lambda error: error.json_path)
    assert not errors, f"{name}: " + "; ".join(f"{each.json_path}: {each.message[:300]}" for each in errors[:5])


@functools.cache
def schema_names() -> frozenset[str]:
    return frozenset(each.name.removesuffix(".json") for each in _folder().iterdir() if each.name.endswith(".json"))


def schema(name: str) -> dict[str, Any]:
    """The schema as it is shipped."""
    found: dict[str, Any] = json.loads((_folder() / f"{name}.json").read_text())
    return found


def _folder() -> Any:
    return files("exhume.present") / "json_schemas"


@functools.cache
def _validator(name: str) -> Any:
    return jsonschema.Draft202012Validator(_closed(schema(name)), format_checker=FORMATS)


def _closed(value: Any) -> Any:
    """The same without room for fields that are not named: readers allow them, this version prints none."""
    if isinstance(value, list):
        return [_closed(each) for each in value]
    if not isinstance(value, dict):
        return value
    closed = {key: _closed(each) for key, each in value.items()}
    # `properties` itself may have a field of that name.
    if value.get("type") == "object" and isinstance(value.get("properties"), dict):
        closed.setdefault("additionalProperties", False)
    return closed

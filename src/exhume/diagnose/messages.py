"""The texts of a diagnosis, by code (messages.toml).

No decision depends on these texts: a finding carries codes, values and entities, and every text passes through
`render`.

A template has `{name:spec}` for a value. `[A]` is left out, and `[A|B]` becomes B, if a value in A is None. `{?name}`
renders as nothing and makes its brackets apply only if the value is true.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

from exhume.model.finding import Entity

SHARED = "shared"
_SECTION = re.compile(r"\[([^\[\]|]*)(?:\|([^\[\]]*))?\]")
_VALUE = re.compile(r"\{(\??)(\w+)(?::([^}]*))?\}")

Values = Mapping[str, object]


@cache
def templates() -> dict[str, str]:
    """All templates, by `table.key`."""
    content: dict[str, dict[str, str]] = tomllib.loads(
        (files("exhume.diagnose") / "messages.toml").read_text(encoding="utf-8")
    )
    return {f"{table}.{key}": text for table, entries in content.items() for key, text in entries.items()}


def code_of(table: str, key: str) -> str:
    """The code of a table's message, or of the shared message with this key."""
    own = f"{table}.{key}"
    return own if own in templates() else f"{SHARED}.{key}"


def render(code: str, values: Values) -> str:
    """The text of a message code."""
    return fill(code, templates()[code], values)


def fill(code: str, template: str, values: Values) -> str:
    """Fill a template with its values: the only place where texts are made. `code` identifies the template."""

    def choose(section: re.Match[str]) -> str:
        asked = _VALUE.findall(section[1])
        known = all(values[name] if flag else values[name] is not None for flag, name, _ in asked)
        return section[1] if known else section[2] or ""

    text = _SECTION.sub(choose, template)
    return _VALUE.sub(lambda match: "" if match[1] else format(values[match[2]], match[3] or ""), text)


def entities_in(values: Iterable[object]) -> tuple[Entity, ...]:
    """The entities among the values of a message."""
    found: list[Entity] = []
    for each in values:
        # An owner or a leak has several entities.
        found += [each] if isinstance(each, Entity) else getattr(each, "entities", ())
    return tuple(dict.fromkeys(found))

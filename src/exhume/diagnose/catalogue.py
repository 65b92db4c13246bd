"""The table of causes (causes.toml): signatures, thresholds, explanations and remedies, as data."""

import tomllib
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from exhume.diagnose.evidence.samples import Names
from exhume.model.finding import Remedy


@dataclass(frozen=True)
class Cause:
    """One entry of the table. `functions` of the kernel are its signature in stacks; `log` are kinds of kernel-log
    lines that speak for it; `yields_to` are causes that explain more: where one of them accounts for the same CPU time,
    this one is only how it shows."""

    id: str
    title: str
    explanation: str
    functions: tuple[str, ...] = ()
    more_functions: dict[str, tuple[str, ...]] | None = None
    log: tuple[str, ...] = ()
    thresholds: dict[str, float] | None = None
    yields_to: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()

    @cached_property
    def names(self) -> Names:
        return Names.of(self.functions)

    def named(self, group: str) -> Names:
        """Another group of functions that the cause tells apart."""
        return Names.of((self.more_functions or {})[group])

    def limit(self, name: str) -> float:
        """A threshold of the table."""
        return (self.thresholds or {})[name]


@cache
def catalogue() -> dict[str, Cause]:
    """All causes, in the order of the table."""
    content: dict[str, dict[str, Any]] = tomllib.loads(
        (files("exhume.diagnose") / "causes.toml").read_text(encoding="utf-8")
    )
    return {name: _cause(name, entry) for name, entry in content.items()}


def _cause(name: str, entry: dict[str, Any]) -> Cause:
    remedies = tuple(Remedy(**each) for each in entry.pop("remedies", []))
    lists: dict[str, Any] = {key: tuple(entry.pop(key)) for key in ("functions", "log", "yields_to") if key in entry}
    more = {group: tuple(names) for group, names in entry.pop("more_functions", {}).items()}
    return Cause(id=name, remedies=remedies, more_functions=more, **lists, **entry)

"""The catalogue of causes (causes.toml): signatures, thresholds, explanations and remedies, as data."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from exhume.diagnose.evidence.samples import Names
from exhume.model.finding import Action, Place, Remedy


@dataclass(frozen=True)
class Cause:
    """One entry of the catalogue. `functions` are the kernel functions of its stack signature, `groups` are other
    functions that it distinguishes; `log` are kinds of kernel-log lines that support it; `marks` are incident triggers
    that it explains before any other cause. `yields_to` are causes that explain more: if one of them accounts for the
    same CPU time, this one is only an effect of it. `last`: it examines what the other causes leave unexplained.
    `outweighs_ordinary`: if its functions run inside an ordinary system call, the time counts as theirs, not as the
    call's. `useful`: its CPU time is work that its owner wants; only the waiting that it causes is lost. `states` of a
    core are its signature if no stacks were sampled."""

    id: str
    title: str
    explanation: str
    functions: tuple[str, ...] = ()
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    log: tuple[str, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)
    yields_to: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    marks: tuple[str, ...] = ()
    last: bool = False
    outweighs_ordinary: bool = False
    useful: bool = False
    states: tuple[str, ...] = ()

    @cached_property
    def names(self) -> Names:
        return Names.of(self.functions)

    def group(self, name: str) -> Names:
        """A group of functions, to look for in stacks."""
        return Names.of(self.groups[name])

    def limit(self, name: str) -> float:
        """A threshold, a weight or a factor."""
        return self.thresholds[name]


@cache
def _content() -> dict[str, Any]:
    content = tomllib.loads((files("exhume.diagnose") / "causes.toml").read_text(encoding="utf-8"))
    return {"shared": content.pop("shared"), "causes": content}


@cache
def catalogue() -> dict[str, Cause]:
    """All causes, in the order of the file."""
    shared = _content()["shared"]["groups"]
    return {name: _cause(name, dict(entry), shared) for name, entry in _content()["causes"].items()}


def thresholds(table: str) -> Mapping[str, Any]:
    """The thresholds of a part of the engine that belong to no single cause."""
    found: Mapping[str, Any] = _content()["shared"][table]
    return found


def _cause(name: str, entry: dict[str, Any], shared: Mapping[str, Sequence[str]]) -> Cause:
    remedies = tuple(_remedy(each) for each in entry.pop("remedies", []))
    known = {**shared, **entry.pop("groups", {})}
    groups = {group: _expanded(names, known) for group, names in known.items()}
    functions = _expanded(entry.pop("functions", []), known)
    listed = ("log", "marks", "yields_to", "states")
    lists: dict[str, Any] = {key: tuple(entry.pop(key)) for key in listed if key in entry}
    return Cause(id=name, functions=functions, groups=groups, remedies=remedies, **lists, **entry)


def _expanded(names: Sequence[str], known: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The names of a group, including those of the groups that it references as `@group`."""
    found: list[str] = []
    for name in names:
        found += _expanded(known[name[1:]], known) if name.startswith("@") else [name]
    return tuple(dict.fromkeys(found))


def _remedy(entry: dict[str, Any]) -> Remedy:
    """A remedy is a fix to apply (`fix`), a fix to plan (`plan`), a shell command (`command`), or advice."""
    kinds = {"fix": Action.APPLY, "plan": Action.PLAN, "command": Action.RUN}
    key = next((key for key in kinds if key in entry), "")
    template, action = entry.get(key, ""), kinds.get(key, Action.ADVISE)
    rest = {name: value for name, value in entry.items() if name not in (key, "place")}
    # Only the caller knows the pod, so commands that run in the cluster are filled in there.
    rest["place"] = Place(entry.get("place", Place.NODE))
    return Remedy(action=action, template=template, names_target="{target}" in template + entry["text"], **rest)

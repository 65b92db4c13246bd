"""The catalogue of platform agents (agents.toml): how each is recognised, what it is for, what it needs for that."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from exhume.model.audit import Agent, Answer, Check, CheckKind, Lack, Manager, NodeFacts, Service

# What systemd allows before the path of a command.
_COMMAND_MARKS = "-@:+!|"
_TAG = re.compile(r"(@[\w.+-]+:[0-9a-fA-F]+|:[\w][\w.-]*)$")
_INSTANCE = re.compile(r"@.+(?=\.\w+$)")


@dataclass(frozen=True, slots=True)
class AgentNeed:
    """Something that an agent needs: any one of the checks will do. Without a `decisive` one it is of no use here; the
    others are only signs of that."""

    what: str
    checks: tuple[Check, ...]
    decisive: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One agent of the catalogue. `source` is the page that says so."""

    id: str
    title: str
    purpose: str
    source: str
    units: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    protected: bool = False
    needs: tuple[AgentNeed, ...] = ()


@cache
def agents() -> dict[str, Entry]:
    """All agents, in the order of the table."""
    content: dict[str, dict[str, Any]] = tomllib.loads(
        (files("exhume.diagnose.audit") / "agents.toml").read_text(encoding="utf-8")
    )
    return {name: _entry(name, entry) for name, entry in content.items()}


def recognise(service: Service) -> Entry | None:
    """The agent that a service is; None for one that is not in the table."""
    for entry in agents().values():
        if service.manager is Manager.SYSTEMD:
            if _is_unit(service.id, entry.units) or program_of(service.command) in entry.programs:
                return entry
        elif service.image and any(fnmatchcase(_repository(service.image), pattern) for pattern in entry.images):
            return entry
    return None


def questions(entry: Entry) -> tuple[Check, ...]:
    """Everything that has to be looked for to judge this agent."""
    return tuple(dict.fromkeys(check for need in entry.needs for check in need.checks))


def describe(service: Service, entry: Entry, facts: NodeFacts) -> tuple[Agent, bool]:
    """The agent as it stands on this node, and whether a decisive need of it is lacking."""
    lacks, decisive = [], False
    for need in entry.needs:
        answers = [answer for check in need.checks if (answer := facts.answers.get((service.key, check))) is not None]
        if answers and all(answer.held is False for answer in answers):
            lacks.append(Lack(need.what, _together(answers)))
            decisive = decisive or need.decisive
    needs = tuple(need.what for need in entry.needs)
    return Agent(entry.id, entry.title, entry.purpose, needs, tuple(lacks), entry.protected), decisive


def met(service: Service, entry: Entry, facts: NodeFacts) -> tuple[str, ...]:
    """How it was seen that each need is met; empty unless all of them are."""
    seen = []
    for need in entry.needs:
        held = [
            answer.seen
            for check in need.checks
            if (answer := facts.answers.get((service.key, check))) is not None and answer.held
        ]
        if not held:
            return ()
        seen.append(held[0])
    return tuple(seen)


def _together(answers: list[Answer]) -> str:
    return "; ".join(dict.fromkeys(answer.seen for answer in answers))


def _is_unit(name: str, patterns: tuple[str, ...]) -> bool:
    """A template's instance is meant by its template."""
    names = {name, _INSTANCE.sub("@", name)}
    return any(fnmatchcase(each, pattern) for each in names for pattern in patterns)


def program_of(command: str | None) -> str:
    """The name of the program in a command line."""
    argv = (command or "").split(maxsplit=1)
    return argv[0].lstrip(_COMMAND_MARKS).rpartition("/")[2] if argv else ""


def _repository(image: str) -> str:
    """An image's name without its tag, its digest and the registry that goes without saying."""
    while (shorter := _TAG.sub("", image)) != image and "/" not in image[len(shorter) :]:
        image = shorter
    return image.removeprefix("docker.io/").removeprefix("library/")


def _entry(name: str, content: Mapping[str, Any]) -> Entry:
    known = dict(content)
    needs = tuple(_need(each) for each in known.pop("needs", []))
    lists: dict[str, Any] = {key: tuple(known.pop(key)) for key in ("units", "programs", "images") if key in known}
    return Entry(id=name, needs=needs, **lists, **known)


def _need(content: Mapping[str, Any]) -> AgentNeed:
    checks = tuple(_check(each) for each in content["any"])
    return AgentNeed(content["what"], checks, content.get("decisive", False))


def _check(content: Mapping[str, Any]) -> Check:
    known = dict(content)
    kind = CheckKind(known.pop("check"))
    lists: dict[str, Any] = {key: tuple(known.pop(key)) for key in ("paths", "names") if key in known}
    return Check(kind, **lists, **known)


def agents_table() -> str:
    """The table of docs/agents.md."""
    lines = ["| agent | recognised by | needs, to be of use | page |", "|---|---|---|---|"]
    for entry in agents().values():
        known = ", ".join(f"`{name}`" for name in (*entry.units[:3], *entry.images[:1]))
        needs = "; ".join(f"**{need.what}**" if need.decisive else need.what for need in entry.needs) or "–"
        shield = " (protected)" if entry.protected else ""
        lines.append(f"| {entry.title}{shield} | {known} | {needs} | [{entry.id}]({entry.source}) |")
    return "\n".join(lines) + "\n"

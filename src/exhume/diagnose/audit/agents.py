"""The catalogue of platform agents (agents.toml): how to recognise each, its purpose, and what it needs to work."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

from exhume.model.audit import Agent, Answer, Check, CheckKind, Lack, Manager, NodeFacts, Service

# Prefixes that systemd allows before the path of a command.
_COMMAND_MARKS = "-@:+!|"
_TAG = re.compile(r"(@[\w.+-]+:[0-9a-fA-F]+|:[\w][\w.-]*)$")
_INSTANCE = re.compile(r"@.+(?=\.\w+$)")


@dataclass(frozen=True, slots=True)
class AgentNeed:
    """A need of an agent: any one of the checks meets it. Without a `decisive` need the agent is useless here."""

    what: str
    checks: tuple[Check, ...]
    decisive: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One agent of the catalogue. `source` is the page that documents it."""

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
    """The catalogue entry of a service; None if it is not in the table."""
    for entry in agents().values():
        if service.manager is Manager.SYSTEMD:
            # The entry of a template also covers its instances.
            names = {service.id, _INSTANCE.sub("@", service.id)}
            known = any(fnmatchcase(each, pattern) for each in names for pattern in entry.units)
            if known or program_of(service.command) in entry.programs:
                return entry
        elif service.image and any(fnmatchcase(_repository(service.image), pattern) for pattern in entry.images):
            return entry
    return None


def questions(entry: Entry) -> tuple[Check, ...]:
    """All checks needed to judge this agent."""
    return tuple(dict.fromkeys(check for need in entry.needs for check in need.checks))


def describe(service: Service, entry: Entry, facts: NodeFacts) -> tuple[Agent, bool]:
    """The agent on this node, and whether a decisive need is not met."""
    lacks, decisive = [], False
    for need in entry.needs:
        answers = _answers(service, need, facts)
        if answers and all(answer.held is False for answer in answers):
            lacks.append(Lack(need.what, "; ".join(dict.fromkeys(answer.seen for answer in answers))))
            decisive = decisive or need.decisive
    needs = tuple(need.what for need in entry.needs)
    return Agent(entry.id, entry.title, entry.purpose, needs, tuple(lacks), entry.protected), decisive


def met(service: Service, entry: Entry, facts: NodeFacts) -> tuple[str, ...]:
    """For each need, what shows that it is met; empty unless all needs are met."""
    held = [[each.seen for each in _answers(service, need, facts) if each.held] for need in entry.needs]
    return tuple(seen[0] for seen in held) if all(held) else ()


def _answers(service: Service, need: AgentNeed, facts: NodeFacts) -> list[Answer]:
    return [answer for check in need.checks if (answer := facts.answers.get((service.key, check))) is not None]


def program_of(command: str | None) -> str:
    """The name of the program in a command line."""
    argv = (command or "").split(maxsplit=1)
    return argv[0].lstrip(_COMMAND_MARKS).rpartition("/")[2] if argv else ""


def _repository(image: str) -> str:
    """An image's name without tag, digest and default registry."""
    while (shorter := _TAG.sub("", image)) != image and "/" not in image[len(shorter) :]:
        image = shorter
    return image.removeprefix("docker.io/").removeprefix("library/")


def _entry(name: str, content: Mapping[str, Any]) -> Entry:
    needs = tuple(
        AgentNeed(
            each["what"],
            tuple(Check(kind=CheckKind(check.pop("check")), **_frozen(check)) for check in each["any"]),
            each.get("decisive", False),
        )
        for each in content.get("needs", [])
    )
    return Entry(**{**_frozen(content), "id": name, "needs": needs})


def _frozen(content: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in content.items()}


def agents_table() -> str:
    """Render the table of docs/agents.md."""
    lines = ["| agent | recognised by | needs, to be of use | page |", "|---|---|---|---|"]
    for entry in agents().values():
        known = ", ".join(f"`{name}`" for name in (*entry.units[:3], *entry.images[:1]))
        needs = "; ".join(f"**{need.what}**" if need.decisive else need.what for need in entry.needs) or "–"
        shield = " (protected)" if entry.protected else ""
        lines.append(f"| {entry.title}{shield} | {known} | {needs} | [{entry.id}]({entry.source}) |")
    return "\n".join(lines) + "\n"

"""Which unit of systemd keeps a container, where nothing on the container says so: the one whose command runs it.

`docker run --name web` in a unit leaves no mark on the container; stopped, it is started again by the unit.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from exhume.model.audit import Manager, Service

_PROGRAMS = {"docker": Manager.DOCKER, "podman": Manager.PODMAN}
_VERBS = ("run", "start")
_LEAST_ID = 12
_SHELL_MARKS = re.compile(r"[;&|()]")


def with_their_units(services: Sequence[Service]) -> list[Service]:
    """The same, with the unit as the owner of each container that has none and that a unit's command names."""
    units = [each for each in services if each.manager is Manager.SYSTEMD]
    kept = [(*found, unit.id) for unit in units for found in _started(unit.command)]
    return [replace(each, owner=f"unit {unit}") if (unit := _unit_of(each, kept)) else each for each in services]


def _unit_of(service: Service, kept: Sequence[tuple[Manager, frozenset[str], str]]) -> str:
    if service.manager is Manager.SYSTEMD or service.owner or service.pod is not None:
        return ""
    fits = partial(_is_meant, service)
    return next((unit for manager, names, unit in kept if manager is service.manager and any(map(fits, names))), "")


def _is_meant(service: Service, name: str) -> bool:
    return name == service.name or (len(name) >= _LEAST_ID and service.id.startswith(name))


def _started(command: str | None) -> Iterator[tuple[Manager, frozenset[str]]]:
    """The containers that a command line starts: `docker run --name X`, `docker start -a X`, also within `sh -c`."""
    for words in _commands(command or ""):
        programs = [word.rpartition("/")[2] for word in words]
        at = next((place for place, program in enumerate(programs) if program in _PROGRAMS), len(words))
        verb = next((place for place in range(at + 1, len(words)) if words[place] in _VERBS), None)
        if verb is None:
            continue
        after = words[verb + 1 :]
        if words[verb] == "run":
            names = {value for word, value in pairwise(after) if word == "--name"}
            names |= {word.removeprefix("--name=") for word in after if word.startswith("--name=")}
        else:
            names = {word for word in after if not word.startswith("-")}
        yield _PROGRAMS[programs[at]], frozenset(names)


def _commands(command: str) -> Iterator[list[str]]:
    """The words of a command; of one that is given to a shell, those of each part of it."""
    words = _words(command)
    yield words
    for word in words:
        if " " in word:
            yield from map(_words, _SHELL_MARKS.split(word))


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()

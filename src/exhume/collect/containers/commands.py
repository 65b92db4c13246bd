"""Command lines that start containers: which ones, as far as the arguments say. Arguments in, facts out; no I/O.

`docker run --name X`, `docker start X`, `docker compose up` with its project, and the same of Podman; also within
`sh -c`, and in the text of a script.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from exhume.model.audit import Manager

_ENGINES = {"docker": Manager.DOCKER, "podman": Manager.PODMAN}
_COMPOSE = {"docker-compose": Manager.DOCKER, "podman-compose": Manager.PODMAN}
# Looks after one container of Podman, whose whole id is among its arguments.
_MONITOR = "conmon"
CLIENTS = frozenset({*_ENGINES, *_COMPOSE, _MONITOR})
_VERBS = ("run", "start")
_COMPOSE_VERBS = ("up", "start", "run")
# Options of compose, before and after its verb, that have a value of their own.
_FILE, _PROJECT, _DIRECTORY = ("-f", "--file"), ("-p", "--project-name"), ("--project-directory",)
_VALUED = frozenset({*_FILE, *_PROJECT, *_DIRECTORY, "--profile", "--env-file", "--ansi", "--parallel", "--progress"})
_VALUED_LATER = frozenset(
    {
        *("-t", "--timeout", "--wait-timeout", "--scale", "--exit-code-from", "--pull", "--attach", "--no-attach"),
        *("-e", "--env", "-v", "--volume", "-w", "--workdir", "-u", "--user", "-p", "--publish", "-l", "--label"),
        *("--name", "--entrypoint"),
    }
)
_SHELL_MARKS = re.compile(r"[;&|()`]")
_ASSIGNMENT = re.compile(
    r"^\s*(?:export\s+|readonly\s+|local\s+)?([A-Za-z_]\w*)=(\"[^\"$`]*\"|'[^']*'|[^\s\"'$`;&|]*)\s*$"
)
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True, slots=True)
class Compose:
    """What a call of compose is about. `directory` is the one that it was given; empty where it uses its own."""

    project: str = ""
    file: str = ""
    directory: str = ""
    services: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ContainerStart:
    """One command that starts containers, by their names or ids, or by compose. `label` is its program and verb; what
    is in none of these, such as a variable of a shell, is not known, but may be among `args`."""

    manager: Manager
    label: str
    names: frozenset[str] = frozenset()
    compose: Compose | None = None
    args: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_vague(self) -> bool:
        """Whether variables of a shell stand where names would."""
        return any("$" in arg for arg in self.args)


def in_command(command: str) -> Iterator[ContainerStart]:
    """Of one command line; of one that is given to a shell, those of each part of it."""
    args = _split(command)
    yield from in_args(args)
    for arg in args:
        if " " in arg:
            for part in _SHELL_MARKS.split(arg):
                yield from in_args(_split(part))


def in_script(text: str) -> Iterator[ContainerStart]:
    """Of a shell's script; variables that it sets to a plain text, and to one alone, stand for that."""
    if not any(engine in text for engine in _ENGINES):
        return
    lines = [line for line in text.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#")]
    known = _variables(lines)
    for line in lines:
        plain = _VARIABLE.sub(lambda match: known.get(match[1] or match[2], match[0]), line)
        for part in _SHELL_MARKS.split(plain):
            yield from in_args(_split(part))


def in_args(args: Sequence[str]) -> Iterator[ContainerStart]:
    """Of the arguments of one command."""
    programs = [arg.rpartition("/")[2] for arg in args]
    at = next((place for place, program in enumerate(programs) if program in CLIENTS), None)
    if at is None:
        return
    program, after = programs[at], list(args[at + 1 :])
    if program == _MONITOR:
        ids = {value for arg, value in pairwise(after) if arg == "-c"}
        yield ContainerStart(Manager.PODMAN, _MONITOR, frozenset(ids), args=tuple(after))
        return
    if program in _COMPOSE:
        yield from _by_compose(_COMPOSE[program], program, after[1:] if after[:1] == ["compose"] else after)
        return
    verb = next((place for place, arg in enumerate(after) if arg in (*_VERBS, "compose")), None)
    if verb is None:
        return
    manager, rest = _ENGINES[program], after[verb + 1 :]
    if after[verb] == "compose":
        yield from _by_compose(manager, f"{program} compose", rest)
        return
    if after[verb] == "run":
        names = {value for arg, value in pairwise(rest) if arg == "--name"}
        names |= {arg.removeprefix("--name=") for arg in rest if arg.startswith("--name=")}
    else:
        names = {arg for arg in rest if not arg.startswith("-")}
    yield ContainerStart(manager, f"{program} {after[verb]}", _plain(names), args=tuple(rest))


def _by_compose(manager: Manager, program: str, args: Sequence[str]) -> Iterator[ContainerStart]:
    options, rest = _options(args, _VALUED)
    if not rest or rest[0] not in _COMPOSE_VERBS:
        return
    _, services = _options(rest[1:], _VALUED_LATER, whole=True)
    if rest[0] == "run":
        # What comes after the first is a command for inside.
        services = services[:1]
    about = Compose(
        next((options[key] for key in _PROJECT if key in options), ""),
        next((options[key] for key in _FILE if key in options), ""),
        next((options[key] for key in _DIRECTORY if key in options), ""),
        frozenset(services),
    )
    yield ContainerStart(manager, f"{program} {rest[0]}", compose=about, args=tuple(args))


def _options(
    args: Sequence[str], valued: frozenset[str], *, whole: bool = False
) -> tuple[dict[str, str], Sequence[str]]:
    """Options with their first values, and the rest from the first other argument on; of the `whole`, all others."""
    found: dict[str, str] = {}
    others: list[str] = []
    place = 0
    while place < len(args):
        arg = args[place]
        place += 1
        name, equals, value = arg.partition("=")
        if arg in valued:
            found.setdefault(arg, args[place] if place < len(args) else "")
            place += 1
        elif arg.startswith("-") and equals:
            found.setdefault(name, value)
        elif not arg.startswith("-"):
            if not whole:
                return found, args[place - 1 :]
            others.append(arg)
    return found, others


def _plain(names: set[str]) -> frozenset[str]:
    return frozenset(name for name in names if name and "$" not in name)


def _variables(lines: Sequence[str]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for line in lines:
        if match := _ASSIGNMENT.match(line):
            found.setdefault(match[1], set()).add(match[2].strip("\"'"))
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()

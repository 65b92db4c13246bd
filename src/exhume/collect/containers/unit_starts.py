"""Find the systemd unit that owns a container without an owner label: the unit that starts it.

`docker run --name web`, or `docker compose up`, in a unit leaves no mark of the unit on the container; if the container
is stopped, the unit starts it again. This module examines the commands of units, the scripts that they name, and the
container clients among the processes of units; Podman likewise, also within `sh -c`.
"""

import os
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from exhume.collect.audit.service_use import ProcessTable, owners
from exhume.collect.containers.owner import COMPOSE_PROJECT, COMPOSE_SERVICE
from exhume.collect.node_root import NodeRoot
from exhume.model.audit import Manager, Service, ServiceList

_ENGINES = {"docker": Manager.DOCKER, "podman": Manager.PODMAN}
_COMPOSE = {"docker-compose": Manager.DOCKER, "podman-compose": Manager.PODMAN}
# Monitors one Podman container, whose full id is among its arguments.
_MONITOR = "conmon"
_CLIENTS = frozenset({*_ENGINES, *_COMPOSE, _MONITOR})
_VERBS = ("run", "start", "compose")
_COMPOSE_VERBS = ("up", "start", "run")
# Options of compose, before and after its verb, that take a value.
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
_MOST_SCRIPT = 1 << 16
_MOST_SCRIPTS = 4
_MOST_CMDLINE = 1 << 14
# Programs that run scripts. A daemon that starts clients for others (cron, sshd, an agent) does not own their
# containers.
_INTERPRETER = re.compile(r"(?:ba|da|a|z|k)?sh|busybox|(?:python|perl|ruby)[\d.]*")
# These run containers for any client.
_RUNTIMES = re.compile(r"(?:docker|containerd|podman|crio|cri-o|user@.*)\.\w+")
_LEAST_ID = 12


@dataclass(frozen=True, slots=True)
class Compose:
    """The target of a compose command. `directory` is the given one; empty if it uses its working directory."""

    project: str = ""
    file: str = ""
    directory: str = ""
    services: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ContainerStart:
    """One command that starts containers, by name or id, or through compose. `label` is its program and verb;
    containers that are in none of these, such as a shell variable, are unknown, but may be among `args`. The command
    belongs to a `unit`, was found in a file or process (`where`, empty for the unit itself), and runs in a `directory`.
    """

    manager: Manager
    label: str
    names: frozenset[str] = frozenset()
    compose: Compose | None = None
    args: tuple[str, ...] = field(default=(), compare=False)
    unit: str = ""
    where: str = ""
    directory: str = ""

    @property
    def is_vague(self) -> bool:
        """Whether there are shell variables in place of names."""
        return any("$" in arg for arg in self.args)


def with_their_units(services: Sequence[Service], starts: Sequence[ContainerStart]) -> ServiceList:
    """The same services, with a unit as the owner of each container that it starts; and the units that start unknown
    containers, if these may be among the remaining ones."""
    found, left = list(services), []
    meant: set[int] = set()
    for place, each in enumerate(services):
        if _may_be_kept(each):
            keepers = [start for start in starts if _is_meant(each, start)]
            meant.update(map(id, keepers))
            if keepers:
                unit = f"unit {keepers[0].unit}"
                found[place] = replace(each, owner=f"{unit} ({each.owner})" if each.owner else unit)
            else:
                left.append(each)
    vague = [start for start in starts if id(start) not in meant and any(_may_be_meant(each, start) for each in left)]
    notes = (
        f"{start.unit} starts containers by {start.label}{f' ({start.where})' if start.where else ''}, and which ones "
        "can't be read there: one of them that is stopped alone may be started again by it"
        for start in vague
    )
    return ServiceList(found, list(dict.fromkeys(notes)))


def _may_be_kept(service: Service) -> bool:
    """Whether it is a container without a known owner; Compose acts only when it is called."""
    ownerless = not service.owner or service.owner.startswith(COMPOSE_PROJECT)
    return service.manager in (Manager.DOCKER, Manager.PODMAN) and service.pod is None and ownerless


def _is_meant(service: Service, start: ContainerStart) -> bool:
    if start.manager is not service.manager:
        return False
    if start.compose is not None:
        return _is_of_project(service, start.compose, start.directory)
    return any(name == service.name or (len(name) >= _LEAST_ID and service.id.startswith(name)) for name in start.names)


def _is_of_project(service: Service, about: Compose, directory: str) -> bool:
    """Whether a container belongs to the project of a compose command: by its name, its file or its directory."""
    if not service.owner.startswith(COMPOSE_PROJECT):
        return False
    project, _, name = service.owner.removeprefix(COMPOSE_PROJECT).partition(COMPOSE_SERVICE)
    if about.services and name not in about.services:
        return False
    if about.project:
        return project == about.project
    own = service.fragment or ""
    place = posixpath.join(directory, about.directory, about.file)
    own = own if about.file else posixpath.dirname(own)
    return bool(own) and place.startswith("/") and posixpath.normpath(own) == posixpath.normpath(place)


def _may_be_meant(service: Service, start: ContainerStart) -> bool:
    """Whether a container may be among those that a unit starts without naming them; judged by its image if known."""
    if start.manager is not service.manager:
        return False
    if (about := start.compose) is not None:
        # If a compose command identifies its project, by name or directory, containers of other projects are not meant.
        place = posixpath.join(start.directory, about.directory, about.file)
        says_which = bool(about.project) or (place.startswith("/") and posixpath.normpath(place) != "/")
        return service.owner.startswith(COMPOSE_PROJECT) and (start.is_vague or not says_which)
    # A name that no container has belongs to one that does not exist now.
    return not start.names and (start.is_vague or service.image in start.args)


def unit_starts(root: NodeRoot, services: Sequence[Service]) -> list[ContainerStart]:
    """Every start of containers by a unit; empty if there are no containers that could be meant."""
    if not any(each.manager in (Manager.DOCKER, Manager.PODMAN) for each in services):
        return []
    units = [each for each in services if each.manager is Manager.SYSTEMD and not _RUNTIMES.fullmatch(each.id)]
    found = [start for unit in units for start in (*own_starts(unit), *_in_scripts(root, unit))]
    return [*found, *_by_clients(root, services, {unit.id: unit for unit in units})]


def own_starts(unit: Service) -> Iterator[ContainerStart]:
    """The starts in the commands of the unit itself, and in each part of a command passed to a shell."""
    for command in unit.starts or (unit.command or "",):
        args = _split(command)
        parts = [_split(part) for arg in args if " " in arg for part in _SHELL_MARKS.split(arg)]
        for start in (start for each in (args, *parts) for start in starts_in(each)):
            yield replace(start, unit=unit.id, directory=unit.directory or "")


def _in_scripts(root: NodeRoot, unit: Service) -> Iterator[ContainerStart]:
    paths: dict[str, None] = {}
    for args in map(_split, unit.starts or (unit.command or "",)):
        # The program, and for an interpreter the files among its arguments.
        program = args[0].lstrip("-@:+!|") if args else ""
        named = [program, *(args[1:] if _INTERPRETER.fullmatch(program.rpartition("/")[2]) else [])]
        paths |= dict.fromkeys(part for word in named for part in word.split() if part.startswith("/"))
    for path in list(paths)[:_MOST_SCRIPTS]:
        text = root.text(path, _MOST_SCRIPT)
        for start in _in_script(text) if text.startswith("#!") else ():
            yield replace(start, unit=unit.id, where=path, directory=unit.directory or "")


def _by_clients(root: NodeRoot, services: Sequence[Service], units: Mapping[str, Service]) -> Iterator[ContainerStart]:
    table = ProcessTable.read(root.host)
    clients = [pid for pid, name in table.names.items() if name in _CLIENTS]
    homes = owners(table, services) if clients else {}
    for pid in clients:
        unit = units.get(homes.get(pid, ""))
        process = root.host.proc / str(pid)
        if unit is None or not (table.names[pid] == _MONITOR or _is_its_own(root, unit, pid)):
            continue
        try:
            args = (process / "cmdline").read_bytes()[:_MOST_CMDLINE].decode(errors="replace").rstrip("\0").split("\0")
        except OSError:
            continue
        for start in starts_in(args):
            directory = _target(process / "cwd") or unit.directory or ""
            yield replace(start, unit=unit.id, where=f"process {pid}", directory=directory)


def _is_its_own(root: NodeRoot, unit: Service, pid: int) -> bool:
    """Whether a client is the unit's main process, or was started by a script that is."""
    if unit.pid is None or pid == unit.pid:
        return pid == unit.pid
    program = _target(root.host.proc / str(unit.pid) / "exe").rpartition("/")[2]
    return _INTERPRETER.fullmatch(program) is not None


def _target(link: Path) -> str:
    try:
        return os.fspath(link.readlink())
    except OSError:
        return ""


def _in_script(text: str) -> Iterator[ContainerStart]:
    """The starts in a shell script. A variable that is only ever set to one plain text stands for that text."""
    if not any(engine in text for engine in _ENGINES):
        return
    lines = [line for line in text.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#")]
    values: dict[str, set[str]] = {}
    for match in filter(None, map(_ASSIGNMENT.match, lines)):
        values.setdefault(match[1], set()).add(match[2].strip("\"'"))
    known = {name: found.pop() for name, found in values.items() if len(found) == 1}
    for line in lines:
        plain = _VARIABLE.sub(lambda match: known.get(match[1] or match[2], match[0]), line)
        for part in _SHELL_MARKS.split(plain):
            yield from starts_in(_split(part))


def starts_in(args: Sequence[str]) -> Iterator[ContainerStart]:
    """The starts in the arguments of one command."""
    programs = [arg.rpartition("/")[2] for arg in args]
    at = next((place for place, program in enumerate(programs) if program in _CLIENTS), None)
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
    verb = next((place for place, arg in enumerate(after) if arg in _VERBS), None)
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
    plain = frozenset(name for name in names if name and "$" not in name)
    yield ContainerStart(manager, f"{program} {after[verb]}", plain, args=tuple(rest))


def _by_compose(manager: Manager, program: str, args: Sequence[str]) -> Iterator[ContainerStart]:
    options, rest = _options(args, _VALUED)
    if not rest or rest[0] not in _COMPOSE_VERBS:
        return
    _, services = _options(rest[1:], _VALUED_LATER, whole=True)
    if rest[0] == "run":
        # What follows the first is a command to run inside.
        services = services[:1]
    project, file, directory = (
        next((options[key] for key in keys if key in options), "") for keys in (_PROJECT, _FILE, _DIRECTORY)
    )
    about = Compose(project, file, directory, frozenset(services))
    yield ContainerStart(manager, f"{program} {rest[0]}", compose=about, args=tuple(args))


def _options(
    args: Sequence[str], valued: frozenset[str], *, whole: bool = False
) -> tuple[dict[str, str], Sequence[str]]:
    """Options with their first values, and the rest from the first other argument on; with `whole`, all other
    arguments."""
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


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()

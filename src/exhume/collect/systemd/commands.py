"""What a unit of systemd runs that may start containers: its own commands, the scripts that these name, and the clients
of container runtimes among its processes."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from exhume.collect.audit.service_processes import ProcessTable, owners
from exhume.collect.containers.commands import CLIENTS, ContainerStart, in_args, in_command, in_script
from exhume.collect.node_root import NodeRoot
from exhume.model.audit import Manager, Service

_MOST_SCRIPT = 1 << 16
_MOST_SCRIPTS = 4
_MOST_CMDLINE = 1 << 14
# What runs scripts. A daemon that starts clients for others (cron, sshd, an agent) does not keep their containers.
_INTERPRETER = re.compile(r"(?:ba|da|a|z|k)?sh|busybox|(?:python|perl|ruby)[\d.]*")
_MONITOR = "conmon"
# These run containers for any client.
_RUNTIMES = re.compile(r"(?:docker|containerd|podman|crio|cri-o|user@.*)\.\w+")


@dataclass(frozen=True, slots=True)
class UnitStarts:
    """A unit that starts containers: how, by which file where it isn't the unit's own, and in which directory."""

    unit: str
    starting: ContainerStart
    where: str = ""
    directory: str = ""


def unit_starts(root: NodeRoot, services: Sequence[Service]) -> list[UnitStarts]:
    """Everything of the kind, for all units; nothing where no container could be meant."""
    if not any(each.manager in (Manager.DOCKER, Manager.PODMAN) for each in services):
        return []
    units = [each for each in services if each.manager is Manager.SYSTEMD and not _RUNTIMES.fullmatch(each.id)]
    found = [start for unit in units for start in (*own_starts(unit), *_in_scripts(root, unit))]
    return [*found, *_by_clients(root, services, {unit.id: unit for unit in units})]


def own_starts(unit: Service) -> Iterator[UnitStarts]:
    """By the commands of the unit itself."""
    for command in unit.starts or (unit.command or "",):
        for starting in in_command(command):
            yield UnitStarts(unit.id, starting, directory=unit.directory or "")


def _in_scripts(root: NodeRoot, unit: Service) -> Iterator[UnitStarts]:
    paths = [word for command in unit.starts or (unit.command or "",) for word in _files_of(command)]
    for path in list(dict.fromkeys(paths))[:_MOST_SCRIPTS]:
        text = _script(root, path)
        for starting in in_script(text) if text else ():
            yield UnitStarts(unit.id, starting, path, unit.directory or "")


def _files_of(command: str) -> list[str]:
    """The program, and for one that runs scripts the files among its arguments."""
    try:
        args = shlex.split(command)
    except ValueError:
        args = command.split()
    program = args[0].lstrip("-@:+!|") if args else ""
    named = [program, *(args[1:] if _INTERPRETER.fullmatch(program.rpartition("/")[2]) else [])]
    return [part for word in named for part in word.split() if part.startswith("/")]


def _script(root: NodeRoot, path: str) -> str | None:
    """The text of a script; None for another kind of file, or one that can't be read."""
    try:
        file = root.file(path)
        # What isn't a plain file may block when it is opened.
        if not file.is_file():
            return None
        with file.open("rb") as stream:
            head = stream.read(2)
            return (head + stream.read(_MOST_SCRIPT)).decode(errors="replace") if head == b"#!" else None
    except OSError:
        return None


def _by_clients(root: NodeRoot, services: Sequence[Service], units: Mapping[str, Service]) -> Iterator[UnitStarts]:
    table = ProcessTable.read(root.host)
    clients = [pid for pid, name in table.names.items() if name in CLIENTS]
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
        for starting in in_args(args):
            yield UnitStarts(unit.id, starting, f"process {pid}", _target(process / "cwd") or unit.directory or "")


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

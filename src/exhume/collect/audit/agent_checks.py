"""Check the requirements of an agent: files, settings, sockets, processes, units, mounts. Only files and processes are
examined, never the network, so a role that a cloud assigns to a machine is not visible."""

import contextlib
import glob
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from exhume.collect.audit.service_use import ProcessTable
from exhume.collect.node_root import NodeRoot
from exhume.model.audit import Answer, Check, Manager, Service, Use
from exhume.model.text import listing
from exhume.procfs.host import ProcFile
from exhume.procfs.mountinfo import parse_mountinfo

_MOST_BYTES = 1 << 20
_MOST_FILES = 64
_ACTIVE = ("active", "activating", "reloading")
# -c X, -C X, --config=X, -config-dir X, --flagfile X, --config_path=X …
_SETTINGS_OPTION = re.compile(r"(?<!\S)--?(?:[cC]|\w*conf\w*(?:[-.]\w+)*|flagfile)(?:=|\s+)(\S+)")
_ASSIGNMENT = re.compile(r"""(?:^|[\s"'])([A-Za-z_]\w*)=([^\s"']+)""")
_SETTING = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*$")


@dataclass(frozen=True, slots=True)
class AgentChecks:
    """Answers checks for the services of one node."""

    root: NodeRoot
    processes: ProcessTable
    units: Mapping[str, Service]
    uses: Mapping[str, Use]

    def answer(self, service: Service, check: Check) -> Answer:
        how: Callable[[Service, Check], Answer] = getattr(self, f"_{check.kind.value}")
        return how(service, check)

    def _file(self, service: Service, check: Check) -> Answer:
        place = self._place(service, check)
        if place is None:
            return _hidden(service)
        found = next((path for path in _matches(place, check.paths) if _is_something(path)), None)
        if found is not None:
            return Answer(True, f"{place.name_of(found)} is there")
        return _unseen(place, service, check) or Answer(False, _none_of(check.paths, "is there"))

    def _line(self, service: Service, check: Check) -> Answer:
        place = self._place(service, check)
        if place is None:
            return _hidden(service)
        wanted = re.compile(check.pattern)
        files, unreadable = _contents(place, check.paths)
        for name, lines in files.items():
            if any(wanted.search(line) for line in lines):
                return Answer(True, f"{name} has it")
        if unseen := _unseen(place, service, check, unreadable):
            return unseen
        return Answer(False, f"not in {', '.join(list(files)[:3])}" if files else _none_of(check.paths, "is there"))

    def _env(self, service: Service, check: Check) -> Answer:
        """Check for a variable in a settings file, in the unit's files, or in the environment of the process."""
        place = self._place(service, check)
        orders, more = self._orders(service)
        files, unreadable = _contents(place, (*check.paths, *more)) if place else ({}, [])
        own = self._environment(service)
        places = {"its unit's files": orders}
        for name, lines in files.items():
            settings = filter(None, map(_SETTING.match, lines))
            places[name] = {match[1]: match[2].strip("'\"") for match in settings}
        places["its environment"] = own or {}
        for where, known in places.items():
            for name in check.names:
                if known.get(name):
                    return Answer(True, f"{name} is set in {where}")
        if place is None and own is None:
            return _hidden(service)
        if place and (unseen := _unseen(place, service, check, unreadable)):
            return unseen
        names = " or ".join(check.names)
        if files or not check.paths:
            return Answer(False, f"{names} is not set" + (f" in {', '.join(files)}" if files else ""))
        return Answer(False, f"{names} is not set: {_none_of(check.paths, 'is there')}")

    def _socket(self, _service: Service, check: Check) -> Answer:
        for name in check.paths:
            try:
                if self.root.file(name).is_socket():
                    return Answer(True, f"{name} is there")
            except OSError:
                continue
        return Answer(False, _none_of(check.paths, "is there"))

    def _port(self, _service: Service, check: Check) -> Answer:
        wanted = f"port {check.port}"
        owner = next((key for key, use in self.uses.items() if wanted in use.listens), None)
        return Answer(owner is not None, f"{owner} listens on {wanted}" if owner else f"nothing listens on {wanted}")

    def _process(self, _service: Service, check: Check) -> Answer:
        running = set(self.processes.names.values())
        # The kernel keeps fifteen characters of a name.
        found = next((name for name in check.names if name[:15] in running), None)
        return Answer(found is not None, f"{found} runs" if found else _none_of(check.names, "runs"))

    def _unit(self, _service: Service, check: Check) -> Answer:
        found = next((n for n in check.names if (unit := self.units.get(n)) and unit.state in _ACTIVE), None)
        return Answer(found is not None, f"{found} is active" if found else _none_of(check.names, "is active"))

    def _mount(self, _service: Service, check: Check) -> Answer:
        content = ProcFile(self.root.host.proc / "1/mountinfo").read_or_none()
        if content is None:
            return Answer(None, "the mounts of the node can't be read: run as root")
        found = next((mount.point for mount in parse_mountinfo(content) if mount.kind in check.names), None)
        return Answer(found is not None, f"{found or 'no ' + ' or '.join(check.names)} is mounted")

    def _credentials(self, service: Service, check: Check) -> Answer:
        found = self._file(service, check)
        if found.held:
            return found
        return Answer(None, "a role of the machine may give them: that can't be seen without asking the network")

    def _peer(self, service: Service, _check: Check) -> Answer:
        use = self.uses.get(service.key)
        if use is not None and use.connections:
            return Answer(True, use.connections[0])
        return Answer(None, "no peer is connected to it now, which says little: such connections are brief")

    def _place(self, service: Service, check: Check) -> NodeRoot | None:
        """The root whose files count: the node's for a unit, its own for a container; None while a container has no
        process."""
        if check.on_host or service.manager is Manager.SYSTEMD:
            return self.root
        if service.pid is None:
            return None
        own = self.root.host.proc / str(service.pid) / "root"
        return NodeRoot(own) if os.access(own, os.R_OK) else None

    def _orders(self, service: Service) -> tuple[dict[str, str], tuple[str, ...]]:
        """The settings in a unit's files, and the settings files that they name."""
        found: dict[str, str] = {}
        files: list[str] = []
        for name in (service.fragment, *service.drop_ins) if service.manager is Manager.SYSTEMD else ():
            try:
                lines = _lines(self.root.file(name or ""))
            except OSError:
                continue
            for line in lines:
                key, _, value = line.strip().partition("=")
                if key.strip() == "EnvironmentFile":
                    files.append(value.strip().removeprefix("-"))
                elif key.strip() == "Environment":
                    found |= {match[1]: match[2] for match in _ASSIGNMENT.finditer(value)}
        return found, tuple(path for path in files if path.startswith("/"))

    def _environment(self, service: Service) -> dict[str, str] | None:
        """The environment of a service's main process; None if it has none, or we may not read it."""
        content = ProcFile(self.root.host.proc / f"{service.pid}/environ").read_or_none()
        if content is None:
            return None
        pairs = (part.decode("utf-8", "replace").partition("=") for part in content[:_MOST_BYTES].split(b"\0"))
        return {name: value for name, _, value in pairs}


def _matches(place: NodeRoot, patterns: Sequence[str]) -> Iterator[Path]:
    """Files by name or by pattern; a pattern's directory may be a link."""
    for pattern in patterns:
        with contextlib.suppress(OSError, ValueError):
            if not glob.has_magic(pattern):
                yield place.file(pattern)
                continue
            fixed = _fixed(pattern)
            found = sorted(islice(place.file(fixed).glob(pattern[len(fixed) :].lstrip("/")), _MOST_FILES))
            yield from [place.file(place.name_of(path)) for path in found]


def _contents(place: NodeRoot, patterns: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The lines of each file, by the node's name for it, and the files that we may not read."""
    files: dict[str, list[str]] = {}
    unreadable: list[str] = []
    for path in _matches(place, patterns):
        try:
            files[place.name_of(path)] = _lines(path)
        except PermissionError:
            unreadable.append(place.name_of(path))
        except OSError:
            continue
    return files, unreadable


def _unseen(place: NodeRoot, service: Service, check: Check, unreadable: Sequence[str] = ()) -> Answer | None:
    """The reason why the absence of a check's files cannot be asserted, if there is one: a file that we may not read, a
    directory that we may not search, a kernel filesystem that is not mounted here, or another file that the service is
    configured to read."""
    if unreadable:
        return Answer(None, f"{unreadable[0]} can't be read: run as root")
    for pattern in check.paths:
        top = pattern.split("/")[1]
        # Kernel filesystems are empty if the node's root was mounted without them.
        if top in ("proc", "sys", "dev") and not any((place.path / top).glob("*")):
            return Answer(None, f"/{top} of the node can't be seen from here")
        if hidden := _closed(place, pattern):
            return Answer(None, f"{hidden} can't be read: run as root")
    if not check.on_host and (other := _configured_elsewhere(service.command, check.paths)):
        return Answer(None, f"it is configured to read {other}, which may hold it")
    return None


def _configured_elsewhere(command: str | None, paths: Sequence[str]) -> str:
    """A settings file that the command line names and that was not among those examined."""
    known = {_fixed(pattern) for pattern in paths}
    for match in _SETTINGS_OPTION.finditer(command or ""):
        named = match[1].strip("'\"")
        path = re.sub("/+", "/", named).rstrip("/") or "/"
        looked_at = path in known or any(PurePosixPath(path).match(pattern) for pattern in paths)
        if "://" in named or (named.startswith("/") and not looked_at):
            return named
    return ""


def _closed(place: NodeRoot, pattern: str) -> str:
    """The directory on the way to a file that may not be searched; empty if there is none."""
    fixed = _fixed(pattern)
    try:
        base = place.file(fixed)
        base.stat()
        return "" if not base.is_dir() or os.access(base, os.R_OK | os.X_OK, effective_ids=True) else fixed
    except PermissionError:
        return fixed
    except OSError:
        return ""


def _fixed(pattern: str) -> str:
    """The directory of a file, or the fixed part of a pattern."""
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0] or "/"


def _is_something(path: Path) -> bool:
    """Whether it exists and is not an empty file. Device and kernel files have no size, and count."""
    try:
        state = path.stat()
    except OSError:
        return False
    return not path.is_file() or state.st_size > 0 or "proc" in path.parts


def _lines(path: Path) -> list[str]:
    # Not is_file(): that hides permission errors.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"{path} is no file")
    with path.open("rb") as file:
        return file.read(_MOST_BYTES).decode("utf-8", "replace").splitlines()


def _hidden(service: Service) -> Answer:
    return Answer(None, f"the files of {service.name} can't be seen: it has no process now, or we may not look into it")


def _none_of(names: Sequence[str], verb: str) -> str:
    if len(names) == 1:
        return f"no {names[0]} {verb}"
    many = f"none of {listing(list(names))} {verb}"
    return f"neither {names[0]} nor {names[1]} {verb}" if len(names) == 2 else many

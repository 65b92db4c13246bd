"""Facts about a node that an audit needs besides its services, including the origin of unit files: when each was last
changed, which package owns it, which links enable it, and when this machine first ran. Packages are read only from
dpkg's database."""

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping, Sequence

from exhume.collect.audit.agent_checks import AgentChecks
from exhume.collect.audit.service_use import ProcessTable, uses_of
from exhume.collect.node_root import NodeRoot
from exhume.model.audit import Answer, Check, FileFact, FirstBoot, Manager, NodeFacts, Service
from exhume.model.clock import SystemClock
from exhume.procfs.host import ProcFile

_UNIT_DIRECTORIES = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system", "/run/systemd/system")
_DPKG = "/var/lib/dpkg/info"
_INSTANCES = "/var/lib/cloud/instances"
_MACHINE_ID = "/etc/machine-id"
_MOST_LIST_BYTES = 32 << 20


def gather_facts(root: NodeRoot, services: Sequence[Service], requested: Mapping[str, Sequence[Check]]) -> NodeFacts:
    """The facts about these services; `requested` are the checks to make for some of them, by service key."""
    table = ProcessTable.read(root.host)
    uses, unseen = uses_of(root, services, table)
    links = {service.key: found for service in services if (found := enabling_links(root, service))}
    paths = [path for service in services for path in files_of(service, links.get(service.key, ()))]
    files, packages = file_facts(root, paths)
    checks = AgentChecks(root, table, {service.id: service for service in services}, uses)
    answers: dict[tuple[str, Check], Answer] = {
        (service.key, check): checks.answer(service, check)
        for service in services
        for check in requested.get(service.key, ())
    }
    if files and not packages:
        unseen.append("which package owns a unit is not known: there is no database of dpkg")
    now = SystemClock().wall_ns()
    return NodeFacts(root.node_name, now, first_boot(root), files, links, answers, uses, packages, tuple(unseen))


def first_boot(root: NodeRoot) -> FirstBoot | None:
    """When the machine first ran: cloud-init records its instance then, and systemd creates the machine ID."""
    with contextlib.suppress(OSError):
        homes = [home for home in root.file(_INSTANCES).iterdir() if home.is_dir()]
        # A directory's own time changes with its content, so the oldest file counts.
        times = [os.lstat(file).st_ctime_ns for home in homes for file in home.iterdir()]
        if times:
            return FirstBoot(min(times), "by cloud-init")
    state = _lstat(root, _MACHINE_ID)
    return None if state is None else FirstBoot(state.st_ctime_ns, f"by {_MACHINE_ID}")


def enabling_links(root: NodeRoot, service: Service) -> tuple[str, ...]:
    """The links by which others want or require a unit: those in /etc are local settings, those in /usr the
    vendor's."""
    if service.manager is not Manager.SYSTEMD or "/" in service.id:
        return ()
    wanted = [f"{name}.wants" for name in service.wants.wanted_by if "/" not in name]
    wanted += [f"{name}.requires" for name in service.wants.required_by if "/" not in name]
    paths = [f"{directory}/{each}/{service.id}" for each in wanted for directory in _UNIT_DIRECTORIES]
    states = {path: _lstat(root, path) for path in paths}
    return tuple(path for path, state in states.items() if state is not None and stat.S_ISLNK(state.st_mode))


def file_facts(root: NodeRoot, paths: Iterable[str]) -> tuple[dict[str, FileFact], str]:
    """The known facts of each file; and which package database was read (empty: none)."""
    asked = sorted(set(paths))
    owners, database = _owners(root, asked)
    states = {path: _lstat(root, path) for path in asked}
    changed = {path: state.st_ctime_ns if state is not None else None for path, state in states.items()}
    return {path: FileFact(path, changed[path], owners.get(path)) for path in asked}, database


def files_of(service: Service, links: Sequence[str]) -> list[str]:
    """All files that define or enable a unit."""
    if service.manager is not Manager.SYSTEMD:
        return []
    return [path for path in (service.fragment, *service.drop_ins, *links) if path and path.startswith("/")]


def _owners(root: NodeRoot, paths: Sequence[str]) -> tuple[dict[str, str], str]:
    """The package of each path. dpkg lists files under their names before the /usr merge."""
    names = {each: path for path in paths for each in _aliases(path)}
    try:
        lists = sorted(root.file(_DPKG).glob("*.list"))
    except OSError:
        return {}, ""
    found: dict[str, str] = {}
    read = 0
    for path in lists:
        content = ProcFile(path).read_or_none() or b""
        read += len(content)
        if b"/systemd/system/" in content:
            lines = content.decode("utf-8", "surrogateescape").splitlines()
            found |= {names[line]: path.stem.partition(":")[0] for line in lines if line in names}
        if read > _MOST_LIST_BYTES:
            break
    return found, "dpkg" if lists else ""


def _aliases(path: str) -> tuple[str, ...]:
    if path.startswith("/usr/lib/"):
        return path, path.removeprefix("/usr")
    return (path, f"/usr{path}") if path.startswith("/lib/") else (path,)


def _lstat(root: NodeRoot, path: str) -> os.stat_result | None:
    """The state of a file; if its last component is a link, it is not followed."""
    parent, _, name = path.rpartition("/")
    try:
        return os.lstat(root.file(parent or "/") / name)
    except OSError:
        return None

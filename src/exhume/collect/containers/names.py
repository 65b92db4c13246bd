"""Names of pods and containers by id, as far as this node still knows them.

kubelet keeps log directories: `/var/log/pods/<namespace>_<pod>_<uid>/` exists before a pod's first process, and
`/var/log/containers/<pod>_<namespace>_<container>-<id>.log` from a container's start on, so no API call is needed. The
recorder reads only their names, and only when an unknown id turns up: on a node without pods it never reads them.
Docker is queried over its socket: for its current containers, and for recently removed ones.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from exhume.collect.cgroup.layout import hierarchies
from exhume.collect.containers.docker import Engine, EngineError
from exhume.collect.containers.owner import name_in_pod
from exhume.procfs.host import Host

KUBERNETES_LOGS = Path("/var/log/containers")
# A node has hundreds; directories of long-gone pods may pile up, and must not prolong a tick.
MOST_ENTRIES = 4096
# A directory that looks unchanged is listed once more: its mtime has the granularity of a kernel tick, so an entry made
# in the same tick as the last observed change does not change the mtime.
_LOOKS_PER_CHANGE = 2

_NAME = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"
_POD = re.compile(
    rf"(?P<namespace>{_NAME})_(?P<pod>{_NAME})_(?P<uid>[0-9a-f]{{8}}(?:-?[0-9a-f]{{4}}){{3}}-?[0-9a-f]{{12}})"
)
_LOG = re.compile(rf"(?P<pod>{_NAME})_(?P<namespace>{_NAME})_(?P<container>{_NAME})-(?P<id>[0-9a-f]{{64}})\.log")


class PodName(NamedTuple):
    """`pod` is namespace/name, `container` is namespace/name/container; None if the node does not have it."""

    pod: str | None
    container: str | None


class PodNames:
    """The names of this node's pods and their containers."""

    def __init__(self, host: Host) -> None:
        # In a container, the node's own files are reached through init's root, if we may look there.
        places = (host.logs, host.proc / "1/root/var/log")
        self._pods = _Listing([place / "pods" for place in places], pod_of_directory)
        self._containers = _Listing([place / "containers" for place in places], container_of_log)

    @property
    def readable(self) -> bool:
        """Whether kubelet's directory of pods can be read."""
        return self._pods.readable

    def of(self, pod: str, container: str | None, tick: int) -> PodName:
        """The names for a pod's uid and the id of a container in it. Each directory is listed at most once per tick."""
        called = self._containers.get(container, tick) if container is not None else None
        name = self._pods.get(pod, tick)
        if name is None and called is not None:
            # Kubelets before 1.14 named the directories of pods by uid only.
            name = called.rpartition("/")[0]
        return PodName(name, called)


class _Listing:
    """The names in a directory, by the id in each; listed again when an id is missing and the directory has changed."""

    def __init__(self, places: Sequence[Path], parse: Callable[[str], tuple[str, str] | None]) -> None:
        self._places = places
        self._parse = parse
        self._names: dict[str, str] = {}
        self._tick = -1
        self._changed: tuple[Path, int] | None = None
        self._looks = 0

    @property
    def readable(self) -> bool:
        return any(os.access(place, os.R_OK | os.X_OK) for place in self._places)

    def get(self, key: str, tick: int) -> str | None:
        found = self._names.get(key)
        if found is None and tick != self._tick:
            self._tick = tick
            self._look()
            found = self._names.get(key)
        return found

    def _look(self) -> None:
        """List the first of the places that exists, if entries were added or removed."""
        for place in self._places:
            with contextlib.suppress(OSError):
                changed = (place, place.stat().st_mtime_ns)
                if changed != self._changed:
                    self._changed, self._looks = changed, 0
                if self._looks < _LOOKS_PER_CHANGE:
                    self._looks += 1
                    with os.scandir(place) as entries:
                        parsed = [self._parse(entry.name) for entry in islice(entries, MOST_ENTRIES)]
                    self._names = dict(each for each in parsed if each is not None)
                return


def has_pods(host: Host) -> bool:
    """Whether kubelet runs pods on this node: their cgroups exist, or this process is in one."""
    tops = (path for each in hierarchies(host) for path in (each.path / "kubepods", each.path / "kubepods.slice"))
    if any(path.is_dir() for path in tops):
        return True
    with contextlib.suppress(OSError):
        return "/kubepods" in (host.proc / "self/cgroup").read_text() or _SERVICE_HOST in os.environ
    return False


# kubelet sets it in every container (pkg/kubelet/envvars).
_SERVICE_HOST = "KUBERNETES_SERVICE_HOST"


def pod_of_directory(name: str) -> tuple[str, str] | None:
    """`<namespace>_<pod>_<uid>` -> the uid and namespace/pod."""
    match = _POD.fullmatch(name)
    return (match["uid"], f"{match['namespace']}/{match['pod']}") if match else None


def container_of_log(name: str) -> tuple[str, str] | None:
    """`<pod>_<namespace>_<container>-<id>.log` -> the id and namespace/pod/container."""
    match = _LOG.fullmatch(name)
    return (match["id"], f"{match['namespace']}/{match['pod']}/{match['container']}") if match else None


@dataclass(frozen=True, slots=True)
class ContainerName:
    """The name of a container, its image if known, and the source of both."""

    name: str
    image: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ContainerNames:
    """Names by container id, and why some may be missing."""

    names: dict[str, ContainerName] = field(default_factory=dict)
    blind_spots: list[str] = field(default_factory=list)


def container_names(socket_path: Path | None, since_s: int, logs: Path = KUBERNETES_LOGS) -> ContainerNames:
    """Every name that is available now; for Docker also containers that were removed after `since_s` (Unix time)."""
    found: dict[str, ContainerName] = {}
    with contextlib.suppress(OSError):
        for named in (container_of_log(entry.name) for entry in logs.iterdir()):
            if named is not None:
                found[named[0]] = ContainerName(named[1], None, "kubernetes")
    if socket_path is None:
        return ContainerNames(found)
    try:
        return ContainerNames(found | dict(_docker(socket_path, since_s)))
    except EngineError as error:
        return ContainerNames(found, [f"Docker gave no container names over {socket_path}: {error}"])


def _docker(path: Path, since_s: int) -> Iterator[tuple[str, ContainerName]]:
    engine = Engine(path)
    # Recent events come first, so that current containers override them. Docker's event log is short (256). With
    # `until` in the future the answer would stay open.
    until = int(time.time())
    for event in engine.lines("/events", since=since_s, until=until, filters='{"type": ["container"]}'):
        actor = event.get("Actor", {})
        known = actor.get("Attributes", {})
        # The attributes include all labels of the container.
        if name := name_in_pod(known) or known.get("name"):
            yield actor.get("ID", ""), ContainerName(name, known.get("image"), "docker")
    for container in engine.get("/containers/json", all=1):
        names = container.get("Names") or [""]
        if name := name_in_pod(container.get("Labels") or {}) or names[0].lstrip("/"):
            yield container["Id"], ContainerName(name, container.get("Image"), "docker")

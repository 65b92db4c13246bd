"""Names of pods and containers for their ids, as far as this node still knows them.

kubelet keeps directories for logs: `/var/log/pods/<namespace>_<pod>_<uid>/` is there before a pod's first process, and
`/var/log/containers/<pod>_<namespace>_<container>-<id>.log` from a container's start on, so no API has to be called.
The recorder reads only their names, and only when an id turns up that isn't known: a node without pods is never looked
at. Docker is asked over its socket: for the containers it has, and for those it removed lately.
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
# A node has hundreds; directories of pods that are long gone may pile up, and must not make a tick long.
MOST_ENTRIES = 4096
# Once more for a directory that looks unchanged: its time goes by the kernel's tick, so that what was made in the same
# one as the last change that was seen has not changed it.
_LOOKS_PER_CHANGE = 2

_NAME = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?"
_POD = re.compile(
    rf"(?P<namespace>{_NAME})_(?P<pod>{_NAME})_(?P<uid>[0-9a-f]{{8}}(?:-?[0-9a-f]{{4}}){{3}}-?[0-9a-f]{{12}})"
)
_LOG = re.compile(rf"(?P<pod>{_NAME})_(?P<namespace>{_NAME})_(?P<container>{_NAME})-(?P<id>[0-9a-f]{{64}})\.log")


class PodName(NamedTuple):
    """`pod` is namespace/name, `container` is namespace/name/container; None where the node doesn't have it."""

    pod: str | None
    container: str | None


class PodNames:
    """What the pods of this node and their containers are called."""

    def __init__(self, host: Host) -> None:
        # In a container the node's own files are behind its first process, as far as we may look there.
        places = (host.logs, host.proc / "1/root/var/log")
        self._pods = _Listing([place / "pods" for place in places], pod_of_directory)
        self._containers = _Listing([place / "containers" for place in places], container_of_log)

    @property
    def readable(self) -> bool:
        """Whether kubelet's directory of pods can be read."""
        return self._pods.readable

    def of(self, pod: str, container: str | None, tick: int) -> PodName:
        """The names for a pod's uid and the id of a container in it. Each directory is listed once a tick at most."""
        called = self._containers.get(container, tick) if container is not None else None
        name = self._pods.get(pod, tick)
        if name is None and called is not None:
            # Kubelets before 1.14 named the directories of pods by their uid alone.
            name = called.rpartition("/")[0]
        return PodName(name, called)


class _Listing:
    """The names in a directory by the id in each, listed again when an id is missing and the directory has changed."""

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
        """List the first of the places that is there, if something was put into it or taken out."""
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
    """Whether kubelet runs pods on this node: it has their cgroups, or this process is in one."""
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
    """What a container is called; the image where it is known, and where that comes from."""

    name: str
    image: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ContainerNames:
    """Names by container id, and why some may be missing."""

    names: dict[str, ContainerName] = field(default_factory=dict)
    blind_spots: list[str] = field(default_factory=list)


def container_names(socket_path: Path | None, since_s: int, logs: Path = KUBERNETES_LOGS) -> ContainerNames:
    """Every name that can be had now; Docker also has containers that it removed after `since_s` (unix time)."""
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
    # What happened lately first, so that what is there now has the last word. Its log of events is short (256).
    # An end that lies in the future would keep the answer open.
    until = int(time.time())
    for event in engine.lines("/events", since=since_s, until=until, filters='{"type": ["container"]}'):
        actor = event.get("Actor", {})
        known = actor.get("Attributes", {})
        # All labels of the container are among its attributes.
        if name := name_in_pod(known) or known.get("name"):
            yield actor.get("ID", ""), ContainerName(name, known.get("image"), "docker")
    for container in engine.get("/containers/json", all=1):
        names = container.get("Names") or [""]
        if name := name_in_pod(container.get("Labels") or {}) or names[0].lstrip("/"):
            yield container["Id"], ContainerName(name, container.get("Image"), "docker")

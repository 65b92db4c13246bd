"""Container ids -> names and images, as far as this node still knows them.

Docker is asked over its socket: for the containers it has, and for those it removed lately. Where Kubernetes runs, the
links that kubelet keeps for log shippers have pod and container in their names.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from exhume.collect.containers.docker import Engine, EngineError
from exhume.collect.containers.pod_names import container_of_log

KUBERNETES_LOGS = Path("/var/log/containers")


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
    found = dict(_kubernetes(logs))
    if socket_path is None:
        return ContainerNames(found)
    try:
        found |= dict(_docker(socket_path, since_s))
    except EngineError as error:
        return ContainerNames(found, [f"Docker gave no container names over {socket_path}: {error}"])
    return ContainerNames(found)


def _docker(path: Path, since_s: int) -> Iterator[tuple[str, ContainerName]]:
    engine = Engine(path)
    # What happened lately first, so that what is there now has the last word. Its log of events is short (256).
    # An end that lies in the future would keep the answer open.
    until = int(time.time())
    for event in engine.lines("/events", since=since_s, until=until, filters='{"type": ["container"]}'):
        actor = event.get("Actor", {})
        known = actor.get("Attributes", {})
        if known.get("name"):
            yield actor.get("ID", ""), ContainerName(known["name"], known.get("image"), "docker")
    for container in engine.get("/containers/json", all=1):
        names = container.get("Names") or []
        if names:
            yield container["Id"], ContainerName(names[0].lstrip("/"), container.get("Image"), "docker")


def _kubernetes(directory: Path) -> Iterator[tuple[str, ContainerName]]:
    """The containers that kubelet keeps a log of."""
    try:
        names = [entry.name for entry in directory.iterdir()]
    except OSError:
        return
    for named in map(container_of_log, names):
        if named is not None:
            yield named[0], ContainerName(named[1], None, "kubernetes")

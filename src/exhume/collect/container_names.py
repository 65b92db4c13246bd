"""Container ids -> names and images, as far as this node still knows them.

Docker is asked over its socket: for the containers it has, and for those it removed lately. Where Kubernetes runs, the
links that kubelet keeps for log shippers tell pod and container without asking anybody.
"""

import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

DOCKER_SOCKET = Path("/var/run/docker.sock")
KUBERNETES_LOGS = Path("/var/log/containers")
_TIMEOUT_S = 2.0
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class ContainerName:
    """What a container is called; the image where it is known, and who told."""

    name: str
    image: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ContainerNames:
    """Names by container id, and why some may be missing."""

    names: dict[str, ContainerName] = field(default_factory=dict)
    blind_spots: list[str] = field(default_factory=list)


def docker_socket(given: Path | None = None) -> Path | None:
    """The socket to ask: the one given, else DOCKER_HOST's, else the usual one; None where there is no Docker here."""
    if given is not None:
        return given
    address = os.environ.get("DOCKER_HOST", "")
    if address:
        return Path(address.removeprefix("unix://")) if address.startswith("unix://") else None
    return DOCKER_SOCKET if DOCKER_SOCKET.exists() else None


def container_names(socket_path: Path | None, since_s: int, logs: Path = KUBERNETES_LOGS) -> ContainerNames:
    """Every name that can be had now; Docker also tells of containers that it removed after `since_s` (unix time)."""
    found = dict(_kubernetes(logs))
    if socket_path is None:
        return ContainerNames(found)
    try:
        found |= dict(_docker(socket_path, since_s))
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return ContainerNames(found, [f"Docker did not tell container names over {socket_path}: {reason}"])
    return ContainerNames(found)


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket file."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = os.fspath(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(self._path)


def _docker(path: Path, since_s: int) -> Iterator[tuple[str, ContainerName]]:
    # What happened lately first, so that what is there now has the last word. Its log of events is short (256).
    filters = quote(json.dumps({"type": ["container"]}))
    # An end that lies in the future would keep the answer open.
    until = int(time.time())
    for line in _ask(path, f"/events?since={since_s}&until={until}&filters={filters}").splitlines():
        actor = json.loads(line).get("Actor", {})
        known = actor.get("Attributes", {})
        if known.get("name"):
            yield actor.get("ID", ""), ContainerName(known["name"], known.get("image"), "docker")
    for container in json.loads(_ask(path, "/containers/json?all=1")):
        names = container.get("Names") or []
        if names:
            yield container["Id"], ContainerName(names[0].lstrip("/"), container.get("Image"), "docker")


def _ask(path: Path, question: str) -> bytes:
    connection = _UnixConnection(path)
    try:
        connection.request("GET", question)
        answer = connection.getresponse()
        body = answer.read(_MOST_BYTES)
    finally:
        connection.close()
    if answer.status != 200:
        raise http.client.HTTPException(f"it answered {answer.status} {answer.reason}")
    return body


def _kubernetes(directory: Path) -> Iterator[tuple[str, ContainerName]]:
    """`<pod>_<namespace>_<container>-<id>.log`, one for each container that kubelet knows."""
    try:
        names = [entry.name for entry in directory.iterdir()]
    except OSError:
        return
    for name in names:
        pod, _, rest = name.removesuffix(".log").partition("_")
        namespace, _, rest = rest.partition("_")
        container, _, number = rest.rpartition("-")
        if container and len(number) == 64:
            yield number, ContainerName(f"{namespace}/{pod}/{container}", None, "kubernetes")

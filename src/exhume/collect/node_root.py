"""The node's root directory as seen from here: `/` on the node itself, in a container the mount point of the node's
root.

Absolute links on the node resolve below its root, never to files of our own root.
"""

import errno
import os
import platform
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from exhume.collect.containers.docker import docker_socket
from exhume.procfs.host import Host

_BUS, _PRIVATE_BUS = "/run/dbus/system_bus_socket", "/run/systemd/private"
_DOCKER = "/var/run/docker.sock"
_PODMAN = "/run/podman/podman.sock"
_CRI = (
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
    # Before Docker: kubelet's own shim until Kubernetes 1.24, and its successor.
    "/var/run/dockershim.sock",
    "/run/cri-dockerd.sock",
)
# As many as the kernel follows (include/linux/namei.h, MAXSYMLINKS).
_MOST_LINKS = 40


@dataclass(frozen=True, slots=True)
class NodeRoot:
    """Where the node's files and sockets are, by the names that the node itself uses."""

    path: Path = Path("/")

    @property
    def is_here(self) -> bool:
        """Whether the node's root is our own; only then does our environment apply to the node."""
        return self.path == Path("/")

    @property
    def host(self) -> Host:
        if self.is_here:
            return Host()
        return Host(self.path / "proc", self.path / "sys", self.path / "dev", self.path / "var/log")

    def file(self, name: str | PurePosixPath) -> Path:
        """The file that the node calls `name`, with all links resolved; it need not exist.

        Raises OSError when links form a loop.
        """
        if self.is_here:
            return Path(name)
        root, left = os.fspath(self.path), _parts(os.fspath(name))
        done: list[str] = []
        links = 0
        while left:
            part = left.pop()
            if part == "..":
                # The parent of the root is the root.
                del done[-1:]
                continue
            try:
                target = os.readlink("/".join((root, *done, part)))  # noqa: PTH115  a tenth of what a Path takes
            except OSError:
                # Not a link, or missing: the rest of the path is taken literally.
                done.append(part)
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(name))
            if target.startswith("/"):
                done.clear()
            left.extend(_parts(target))
        return self.path.joinpath(*done)

    def text(self, name: str, most_bytes: int, *, from_end: bool = False) -> str:
        """The beginning or the end of a file; empty if there is no regular file that can be read."""
        try:
            path = self.file(name)
            # Opening anything else may block forever.
            if not path.is_file():
                return ""
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - most_bytes) if from_end else 0)
                return file.read(most_bytes).decode("utf-8", "replace")
        except OSError:
            return ""

    @property
    def node_name(self) -> str:
        """The node's own host name."""
        return (not self.is_here and self.text("/etc/hostname", 256).strip()) or platform.node()

    def name_of(self, path: Path) -> str:
        """The node's name for a file that is at `path` from here."""
        return "/" + os.fspath(path.relative_to(self.path))

    @property
    def bus(self) -> Path:
        """The socket of the system D-Bus; if there is none, systemd's own, which speaks D-Bus to root."""
        addresses = os.environ.get("DBUS_SYSTEM_BUS_ADDRESS", "") if self.is_here else ""
        for address in addresses.split(";"):
            kind, _, options = address.partition(":")
            known = dict(each.partition("=")[::2] for each in options.split(","))
            if kind == "unix" and known.get("path"):
                return Path(known["path"])
        return self._if_there(_BUS) or self._if_there(_PRIVATE_BUS) or self.file(_BUS)

    @property
    def docker(self) -> Path | None:
        return docker_socket() if self.is_here else self._if_there(_DOCKER)

    @property
    def podman(self) -> Path | None:
        return self._if_there(_PODMAN)

    @property
    def cri(self) -> tuple[Path, ...]:
        """Every socket on which a runtime may speak CRI: only the one named in the environment, or else the usual ones
        that exist."""
        endpoint = os.environ.get("CONTAINER_RUNTIME_ENDPOINT", "") if self.is_here else ""
        if endpoint:
            return (Path(endpoint.removeprefix("unix://")),)
        return tuple(path for name in _CRI if (path := self._if_there(name)) is not None)

    def _if_there(self, name: str) -> Path | None:
        try:
            path = self.file(name)
            return path if path.exists() else None
        except OSError:
            return None


def _parts(name: str) -> list[str]:
    """The parts of a path, the last one first."""
    return [part for part in reversed(name.split("/")) if part not in ("", ".")]

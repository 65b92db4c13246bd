"""The node that a fix is for: its files, the managers of its services, and its identity."""

import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.bus import BusError
from exhume.control.containers import DockerControl
from exhume.control.managers import Controls
from exhume.control.systemd import SystemdControl
from exhume.control.unit_files import OwnFiles
from exhume.model.audit import Manager
from exhume.model.clock import read_boot_id
from exhume.model.errors import ExhumeError

MACHINE_ID = "/etc/machine-id"


@dataclass(frozen=True, slots=True)
class Node:
    """A node and its service managers. `machine` is its machine id, which survives reboots; empty if it has none."""

    root: NodeRoot
    controls: Controls
    files: OwnFiles
    name: str
    machine: str
    boot_id: str


@contextmanager
def open_node(path: Path) -> Iterator[Node]:
    """Open the node whose root directory is at `path`. Raises ExhumeError if that is not a directory."""
    if not path.is_dir():
        raise ExhumeError(f"{path} is no directory; --root names where the node's root directory is seen from here")
    root = NodeRoot(path.absolute())
    silent: dict[Manager, str] = {}
    with ExitStack() as opened:
        units: SystemdControl | None = None
        try:
            units = opened.enter_context(SystemdControl(root))
        except BusError as error:
            silent[Manager.SYSTEMD] = f"systemd can't be reached: {error}"
        sockets = {Manager.DOCKER: root.docker, Manager.PODMAN: root.podman}
        engines = {manager: DockerControl(socket) for manager, socket in sockets.items() if socket is not None}
        host_name = platform.node() if root.is_here else read_line(root, "/etc/hostname") or platform.node()
        yield Node(
            root,
            Controls(units, engines, silent),
            OwnFiles(root.file),
            host_name,
            read_line(root, MACHINE_ID),
            read_boot_id(root.host.proc),
        )


def read_line(root: NodeRoot, name: str) -> str:
    """Read a one-line file of the node; empty if it can't be read."""
    try:
        return root.file(name).read_text(errors="replace").strip()
    except OSError:
        return ""

"""The services of every container runtime of a node."""

from exhume.collect.containers.cri_services import cri_services
from exhume.collect.containers.docker_services import docker_services
from exhume.collect.node_root import NodeRoot
from exhume.model.audit import Manager, ServiceList


def container_services(root: NodeRoot, hours: float = 24.0) -> list[tuple[Manager, ServiceList]]:
    """Of Docker, Podman and every CRI runtime that has a socket here."""
    docker, podman = root.docker, root.podman
    # Where Podman stands in for Docker both names lead to one socket.
    if docker is not None and podman is not None and docker.resolve() == podman.resolve():
        docker = None
    found = [
        (manager, docker_services(socket, manager, host=root.host, hours=hours))
        for manager, socket in ((Manager.DOCKER, docker), (Manager.PODMAN, podman))
        if socket is not None and socket.exists()
    ]
    return [*found, *((Manager.CRI, cri_services(socket, root=root, hours=hours)) for socket in root.cri)]

"""The containers of all runtimes with a socket on a node, as services."""

from exhume.collect.containers.cri_services import cri_services
from exhume.collect.containers.docker_services import docker_services
from exhume.collect.node_root import NodeRoot
from exhume.model.audit import Manager, ServiceList


def container_services(root: NodeRoot, hours: float = 24.0) -> list[tuple[Manager, ServiceList]]:
    """The containers of Docker, Podman and every CRI runtime that has a socket here."""
    docker, podman = root.docker, root.podman
    # Where Podman replaces Docker, both names lead to one socket.
    if docker is not None and podman is not None and docker.resolve() == podman.resolve():
        docker = None
    found: list[tuple[Manager, ServiceList]] = [
        (Manager.CRI, cri_services(socket, root=root, hours=hours)) for socket in root.cri
    ]
    pods = {service.pod for _, seen in found for service in seen.services}
    for manager, socket in ((Manager.DOCKER, docker), (Manager.PODMAN, podman)):
        if socket is not None and socket.exists():
            seen = docker_services(socket, manager, host=root.host, hours=hours)
            # With dockershim or cri-dockerd, both list the containers of pods.
            own = [service for service in seen.services if service.pod is None or service.pod not in pods]
            found.append((manager, ServiceList(own, seen.blind_spots)))
    return sorted(found, key=lambda each: each[0] is Manager.CRI)

"""The containers of every runtime on a node, as one look."""

from exhume.collect.docker_services import docker_services
from exhume.collect.node_root import NodeRoot
from exhume.collect.seen import Seen, together
from exhume.model.audit import Manager


def container_services(root: NodeRoot, hours: float = 24.0) -> Seen:
    """Docker's, Podman's and those of whatever speaks CRI, where there is a socket of theirs. Without one there is
    nothing to be seen and nothing is said."""
    looks = []
    engines = {Manager.PODMAN: root.podman, Manager.DOCKER: root.docker}
    # Where Podman stands in for Docker both names lead to one socket.
    if root.podman is not None and root.docker is not None and root.podman.resolve() == root.docker.resolve():
        del engines[Manager.DOCKER]
    for manager, socket in engines.items():
        if socket is not None:
            looks.append(docker_services(socket, manager, host=root.host, hours=hours))
    for socket in root.cri:
        from exhume.collect.cri.services import cri_services

        looks.append(cri_services(socket, root=root, hours=hours))
    return together(looks)

"""What runs on the node, as a plan needs to know it."""

from pathlib import Path

from exhume.collect.docker_services import docker_services
from exhume.collect.seen import Seen, together
from exhume.collect.systemd.units import read_services
from exhume.model.audit import Audit, Judged, Manager, Need, Needed, Origin, Provenance
from exhume.remedy.services.node import Node


def look(node: Node, directory: Path) -> Audit:
    """Every service of the node, judged."""
    seen = together(_looks(node))
    unknown = Need(Needed.UNKNOWN, "", "")
    judged = tuple(Judged(each, (), (), Provenance(Origin.UNKNOWN, ""), unknown) for each in seen.services)
    return Audit(node.name, 0, judged, blind_spots=tuple(seen.blind_spots))


def _looks(node: Node) -> list[Seen]:
    looks = [read_services(node.root)]
    if node.root.docker is not None:
        looks.append(docker_services(node.root.docker, Manager.DOCKER, host=node.root.host))
    if node.root.podman is not None:
        looks.append(docker_services(node.root.podman, Manager.PODMAN, host=node.root.host))
    return looks

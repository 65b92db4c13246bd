"""Which unit of systemd keeps a container, where nothing on the container says so: the one that starts it.

`docker run --name web`, or `docker compose up`, in a unit leaves no mark of the unit on the container; stopped, it is
started again by the unit.
"""

import posixpath
from collections.abc import Sequence
from dataclasses import replace

from exhume.collect.containers.commands import Compose, ContainerStart
from exhume.collect.containers.owner import COMPOSE_PROJECT, COMPOSE_SERVICE
from exhume.collect.services import ServiceList
from exhume.collect.systemd.commands import UnitStarts
from exhume.model.audit import Manager, Service

_LEAST_ID = 12


def with_their_units(services: Sequence[Service], starts: Sequence[UnitStarts]) -> ServiceList:
    """The same, with the unit as the owner of each container that one starts; and the units that start some which can't
    be known, where these may be among those that are left."""
    found = [_with_its_unit(each, starts) for each in services]
    left = [each for each in found if _may_be_kept(each)]
    meant = {id(start) for start in starts for each in services if _may_be_kept(each) and _is_meant(each, start)}
    vague = [start for start in starts if id(start) not in meant and any(_may_be_meant(each, start) for each in left)]
    return ServiceList(found, list(dict.fromkeys(_vague_note(start) for start in vague)))


def _with_its_unit(service: Service, starts: Sequence[UnitStarts]) -> Service:
    if not _may_be_kept(service):
        return service
    unit = next((start.unit for start in starts if _is_meant(service, start)), None)
    if unit is None:
        return service
    return replace(service, owner=f"unit {unit} ({service.owner})" if service.owner else f"unit {unit}")


def _may_be_kept(service: Service) -> bool:
    """Whether it is a container that no known service keeps; compose only does what it is called for."""
    ownerless = not service.owner or service.owner.startswith(COMPOSE_PROJECT)
    return service.manager in (Manager.DOCKER, Manager.PODMAN) and service.pod is None and ownerless


def _is_meant(service: Service, start: UnitStarts) -> bool:
    starting = start.starting
    if starting.manager is not service.manager:
        return False
    if starting.compose is not None:
        return _is_of_project(service, starting.compose, start.directory)
    return any(
        name == service.name or (len(name) >= _LEAST_ID and service.id.startswith(name)) for name in starting.names
    )


def _is_of_project(service: Service, about: Compose, directory: str) -> bool:
    """Whether a container is of the project that a call of compose is about: by its name, its file or its place."""
    if not service.owner.startswith(COMPOSE_PROJECT):
        return False
    project, _, name = service.owner.removeprefix(COMPOSE_PROJECT).partition(COMPOSE_SERVICE)
    if about.services and name not in about.services:
        return False
    if about.project:
        return project == about.project
    at = posixpath.join(directory, about.directory)
    if about.file:
        return service.fragment is not None and _same(service.fragment, posixpath.join(at, about.file))
    return service.fragment is not None and _same(posixpath.dirname(service.fragment), at)


def _same(one: str, other: str) -> bool:
    return other.startswith("/") and posixpath.normpath(one) == posixpath.normpath(other)


def _may_be_meant(service: Service, start: UnitStarts) -> bool:
    """Whether a container may be among those that a unit starts without naming them, by its image if known."""
    starting = start.starting
    if starting.manager is not service.manager:
        return False
    if starting.compose is not None:
        return service.owner.startswith(COMPOSE_PROJECT) and not _says_which(starting, start.directory)
    # A name that no container has is that of one which is not there now.
    return not starting.names and (starting.is_vague or service.image in starting.args)


def _says_which(starting: ContainerStart, directory: str) -> bool:
    """Whether a call of compose says its project, so that what is not of it is another's."""
    about = starting.compose
    if about is None or starting.is_vague:
        return False
    place = posixpath.join(directory, about.directory, about.file)
    return bool(about.project) or (place.startswith("/") and posixpath.normpath(place) != "/")


def _vague_note(start: UnitStarts) -> str:
    where = f" ({start.where})" if start.where else ""
    return (
        f"{start.unit} starts containers by {start.starting.label}{where}, and which ones can't be read there: one of "
        "them that is stopped alone may be started again by it"
    )

"""The services of one manager (systemd, Docker, Podman, a CRI runtime), as an audit reads them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from exhume.model.audit import Service


@dataclass(frozen=True, slots=True)
class ServiceList:
    """Services, and what could not be read of them, in sentences."""

    services: list[Service] = field(default_factory=list)
    blind_spots: list[str] = field(default_factory=list)


def merge_lists(lists: Iterable[ServiceList]) -> ServiceList:
    """Several lists as one."""
    whole = ServiceList()
    for each in lists:
        whole.services.extend(each.services)
        whole.blind_spots.extend(each.blind_spots)
    return whole

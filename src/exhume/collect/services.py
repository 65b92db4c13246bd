"""What a look at one manager of services brings."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from exhume.model.audit import Service


@dataclass(frozen=True, slots=True)
class Seen:
    """The services that it has, and what could not be seen, in sentences."""

    services: list[Service] = field(default_factory=list)
    blind_spots: list[str] = field(default_factory=list)


def together(looks: Iterable[Seen]) -> Seen:
    """Several looks as one."""
    whole = Seen()
    for look in looks:
        whole.services.extend(look.services)
        whole.blind_spots.extend(look.blind_spots)
    return whole

"""The ports of a node that lead into a container, by what an engine of Docker's kind tells of it."""

from typing import Any

_TCP = "/tcp"
_MOST_PORTS = 1 << 16


def published_ports(told: dict[str, Any]) -> tuple[int, ...]:
    """TCP ports of the node: those that were ordered, also while it is down, and those that it got."""
    ordered = (told.get("HostConfig") or {}).get("PortBindings") or {}
    given = (told.get("NetworkSettings") or {}).get("Ports") or {}
    found: set[int] = set()
    for ports in (ordered, given):
        for inside, bound in ports.items():
            if inside.endswith(_TCP):
                found.update(port for each in bound or () for port in _range(str(each.get("HostPort") or "")))
    return tuple(sorted(found))


def _range(words: str) -> range:
    """`22` or `8000-8010`; nothing where the engine is to choose one."""
    first, _, last = words.partition("-")
    last = last or first
    if not (first.isdigit() and last.isdigit()):
        return range(0)
    return range(int(first), min(int(last), _MOST_PORTS) + 1)

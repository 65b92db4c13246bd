"""Names of units and containers: only those that systemd and the runtimes themselves allow are ever acted upon."""

import re

from exhume.model.errors import UsageError

# What can be held back by a condition. Slices, scopes, targets, mounts and devices are what others stand on.
STOPPABLE = ("service", "socket", "timer", "path")
_TYPES = (*STOPPABLE, "mount", "automount", "swap", "target", "device", "slice", "scope")
# systemd's own limit, without the byte that ends a string in C.
_LONGEST_UNIT = 255
_UNIT = re.compile(r"[A-Za-z0-9:_.\\-]+(?:@[A-Za-z0-9:_.\\@-]*)?")
_CONTAINER_ID = re.compile(r"[0-9a-f]{12,64}")


def is_unit_name(name: str) -> bool:
    """Whether systemd would take it for the name of a unit that can run (a bare template can't)."""
    before, dot, kind = name.rpartition(".")
    if not dot or kind not in _TYPES or len(name) > _LONGEST_UNIT or not _UNIT.fullmatch(before):
        return False
    return before.find("@") != len(before) - 1


def kind_of(name: str) -> str:
    """service, socket, timer …"""
    return name.rpartition(".")[2]


def check_unit_name(name: str) -> str:
    """The name, when it is one. Raises UsageError."""
    if not is_unit_name(name):
        raise UsageError(f"{name!r} is no name of a unit; systemctl list-units has them")
    return name


def is_container_id(text: str) -> bool:
    return _CONTAINER_ID.fullmatch(text) is not None


def check_container_id(text: str) -> str:
    """The id, when it is one. Raises UsageError."""
    if not is_container_id(text):
        raise UsageError(f"{text!r} is no id of a container")
    return text

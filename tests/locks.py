"""The lock files: what is installed, with the extras that it is asked for."""

import re
from typing import NamedTuple

# `name[extra, another]==version ; marker \`, the first line of an entry; its hashes follow.
PIN = re.compile(
    r"^(?P<name>[a-z0-9][a-z0-9._-]*)(?:\[(?P<extras>[a-z0-9, -]+)\])?==(?P<version>[^ ;]+)(?: ; (?P<marker>.+?))? \\$",
    re.MULTILINE,
)


class Pin(NamedTuple):
    name: str
    version: str
    extras: frozenset[str]


def pins(lock: str) -> list[Pin]:
    """One for each entry; a package may have several versions, for several versions of Python."""
    return [
        Pin(match["name"], match["version"], frozenset(re.findall(r"[a-z0-9-]+", match["extras"] or "")))
        for match in PIN.finditer(lock)
    ]

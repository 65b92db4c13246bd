"""The units of a node and what systemd says of them, asked over its bus."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from exhume.collect.systemd.bus import MANAGER, MANAGER_PATH, SYSTEMD, UNIT, Bus, BusError, Call, get_all, properties
from exhume.collect.systemd.facts import UnitFacts
from exhume.model.clock import SystemClock, both_ns

# Kinds of units that have properties of their own that matter here.
_OWN = ("service", "socket", "timer", "mount", "path", "swap")
_ENABLED = ["enabled", "enabled-runtime", "linked", "linked-runtime"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A unit in systemd's list."""

    name: str
    load: str
    active: str
    sub: str


class Units(Protocol):
    """A way to ask."""

    def listed(self) -> dict[str, Listed]:
        """Every unit that is loaded or that a loaded one names."""
        ...

    def enabled_files(self, kinds: Collection[str]) -> list[str]:
        """Names of unit files of these kinds that are to be started at boot."""
        ...

    def facts(self, names: Iterable[str]) -> dict[str, UnitFacts]:
        """By the names asked for; units that vanished meanwhile are left out."""
        ...

    def close(self) -> None: ...


def boot_ns() -> int:
    """The wall time at which the monotonic clock was zero."""
    monotonic, wall = both_ns(SystemClock())
    return wall - monotonic


class BusUnits:
    """Over D-Bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._boot_ns = boot_ns()
        self._paths: dict[str, str] = {}

    def close(self) -> None:
        self._bus.close()

    def listed(self) -> dict[str, Listed]:
        (rows,) = self._bus.call(Call(MANAGER_PATH, MANAGER, "ListUnits"))
        self._paths |= {row[0]: row[6] for row in rows}
        return {row[0]: Listed(row[0], row[2], row[3], row[4]) for row in rows}

    def enabled_files(self, kinds: Collection[str]) -> list[str]:
        patterns = [f"*.{kind}" for kind in kinds]
        (rows,) = self._bus.call(Call(MANAGER_PATH, MANAGER, "ListUnitFilesByPatterns", "asas", (_ENABLED, patterns)))
        return [path.rpartition("/")[2] for path, _ in rows]

    def facts(self, names: Iterable[str]) -> dict[str, UnitFacts]:
        wanted = list(dict.fromkeys(names))
        unknown = [name for name in wanted if name not in self._paths]
        loads = self._bus.call_many([Call(MANAGER_PATH, MANAGER, "LoadUnit", "s", (name,)) for name in unknown])
        self._paths |= {
            name: answer[0] for name, answer in zip(unknown, loads, strict=True) if not isinstance(answer, BusError)
        }
        asked = [
            (name, get_all(self._paths[name], interface))
            for name in wanted
            if name in self._paths
            for interface in _interfaces(name)
        ]
        known: dict[str, UnitFacts] = {}
        for (name, _), answer in zip(asked, self._bus.call_many([call for _, call in asked]), strict=True):
            if not isinstance(answer, BusError):
                known.setdefault(name, UnitFacts({}, self._boot_ns)).known.update(properties(answer))
        return {name: facts for name, facts in known.items() if facts.name}


def _interfaces(name: str) -> tuple[str, ...]:
    kind = name.rpartition(".")[2]
    return (UNIT, f"{SYSTEMD}.{kind.capitalize()}") if kind in _OWN else (UNIT,)

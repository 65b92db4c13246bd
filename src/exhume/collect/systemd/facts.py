"""The properties of units under systemd's names, and how to list units and read them over the bus."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from exhume.collect.systemd.bus import MANAGER, MANAGER_PATH, SYSTEMD, UNIT, Bus, BusError, Call, get_all, properties
from exhume.model.audit import Condition, Exit
from exhume.model.clock import SystemClock, both_ns
from exhume.model.redaction import redact

_NEVER = 2**64 - 1
# Codes of waitid(2) for how a process ended.
_EXITED = 1
_COMMANDS = ("ExecStart", "ExecStop", "ExecStopPost")
# If one of these fails, the unit fails, whatever happened to its main process.
AROUND_START = ("ExecCondition", "ExecStartPre", "ExecStartPost")
_FILE_SETTINGS = ("ExecStartPre", "ExecStart")


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """Properties of a unit under systemd's names. `boot_ns` is the wall time at which its monotonic clock was zero."""

    known: dict[str, Any]
    boot_ns: int

    def text(self, key: str) -> str:
        value = self.known.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int | None:
        value = self.known.get(key)
        return value if isinstance(value, int) and value != _NEVER else None

    def names(self, *keys: str) -> tuple[str, ...]:
        """The unique names that these properties list, sorted."""
        return tuple(sorted({str(each) for key in keys for each in self.known.get(key) or ()}))

    def moment(self, key: str) -> int | None:
        """A timestamp as wall nanoseconds; None if it was never set."""
        real = self.number(key)
        if real is not None:
            return real * 1000 or None
        monotonic = self.number(f"{key}Monotonic")
        return self.boot_ns + monotonic * 1000 if monotonic else None

    @property
    def name(self) -> str:
        return self.text("Id")

    @property
    def command(self) -> str | None:
        """The command line of its main process."""
        commands = self.known.get("ExecStart")
        return shlex.join(redact(commands[0][1])) if commands else None

    @property
    def starts(self) -> tuple[str, ...]:
        """All commands that start it, including those before and after the main one."""
        keys = ("ExecStartPre", "ExecStart", "ExecStartPost")
        return tuple(shlex.join(each[1]) for key in keys for each in self.known.get(key) or ())

    @property
    def directory(self) -> str | None:
        """The working directory of its commands, without systemd's mark for an optional one."""
        directory = self.text("WorkingDirectory").lstrip("!-")
        return directory if directory.startswith("/") else None

    @property
    def last_exit(self) -> Exit | None:
        """How its main process last ended; if a command before or after its start failed, or no main process was
        started, how that command ended."""
        for key in AROUND_START:
            for each in self._done(key):
                if each[9] and not each[2]:
                    return _exit(int(each[5]) * 1000, int(each[8]), int(each[9]), key)
        ended = self.moment("ExecMainExitTimestamp")
        code, status = self.number("ExecMainCode"), self.number("ExecMainStatus")
        if ended is not None and code and status is not None:
            return _exit(ended, code, status)
        # A command before the main one that succeeded, or that may fail, says nothing about how the last run ended.
        done = [each for key in _COMMANDS for each in self._done(key)]
        last = max(done, key=lambda each: int(each[5]), default=None)
        return _exit(int(last[5]) * 1000, int(last[8]), int(last[9])) if last else None

    def _done(self, key: str) -> list[Any]:
        """The commands of a setting that ended: path, arguments, whether its failure is ignored, start and stop (real,
        monotonic), pid, code, status."""
        return [each for each in self.known.get(key) or () if len(each) >= 10 and each[5]]

    @property
    def start_limit(self) -> str:
        """The start limit that it hit, so that systemd gave up; empty otherwise."""
        burst, restarts = self.number("StartLimitBurst"), self.number("NRestarts") or 0
        within = self.number("StartLimitIntervalUSec")
        if self.text("ActiveState") != "failed" or not burst or not within:
            return ""
        # systemd keeps the result of the last exit, and reports the limit only when there is none.
        if self.text("Result") == "start-limit-hit" or (self.text("Restart") != "no" and restarts >= burst):
            return f"more than {burst} starts within {within / 1e6:,.0f} s"
        return ""

    @property
    def named_files(self) -> list[tuple[str, str]]:
        """Files that must exist for it to start, each with the setting that names it."""
        found = [("EnvironmentFile", str(each[0])) for each in self.known.get("EnvironmentFiles") or () if not each[1]]
        found += [(key, str(each[0])) for key in _FILE_SETTINGS for each in self.known.get(key) or () if not each[2]]
        found.append(("WorkingDirectory", self.text("WorkingDirectory")))
        return [(key, path) for key, path in found if path.startswith("/") and not set(path) & set("*?[%$")]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Its conditions and asserts with their results."""
        return tuple(
            Condition(str(name), str(parameter), _held(int(state), held, len(listed)), bool(trigger), bool(negated))
            for kind, held in (("Condition", self._all_held("Condition")), ("Assert", self._all_held("Assert")))
            for listed in (self.known.get(f"{kind}s") or (),)
            for name, trigger, negated, parameter, state in listed
        )

    @property
    def unmet(self) -> tuple[str, ...]:
        """The kind that did not hold at the last start: Condition or Assert."""
        # Asserts are only checked when the conditions hold.
        return tuple(kind for kind in ("Condition", "Assert") if self._all_held(kind) is False)[:1]

    def _all_held(self, kind: str) -> bool | None:
        """Whether all of a kind held at the last check; None if they were never checked."""
        return bool(self.known.get(f"{kind}Result")) if self.number(f"{kind}TimestampMonotonic") else None


def _held(state: int, all_held: bool | None, of: int) -> bool | None:
    if state:
        return state > 0
    # A daemon-reload makes systemd forget the result of each condition, but not the overall result.
    return all_held if all_held or of == 1 else None


def _exit(moment: int, code: int, status: int, command: str = "") -> Exit:
    if code == _EXITED:
        return Exit(moment, code=status, command=command)
    return Exit(moment, signal=status, command=command)


# Unit types with additional properties that matter here.
_INTERFACES = {UNIT, *(f"{SYSTEMD}.{kind}" for kind in ("Service", "Socket", "Timer", "Mount", "Path", "Swap"))}
_ENABLED = ["enabled", "enabled-runtime", "linked", "linked-runtime"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A unit in systemd's list."""

    name: str
    load: str
    active: str


class BusUnits:
    """Lists units and reads them over D-Bus; used in a `with`, which closes the bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        monotonic, wall = both_ns(SystemClock())
        self._boot_ns = wall - monotonic
        self._paths: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bus.close()

    def listed(self) -> dict[str, Listed]:
        """Every unit that is loaded or that a loaded one names."""
        (rows,) = self._bus.call(Call(MANAGER_PATH, MANAGER, "ListUnits"))
        self._paths |= {row[0]: row[6] for row in rows}
        return {row[0]: Listed(row[0], row[2], row[3]) for row in rows}

    def enabled_services(self) -> list[str]:
        """Names of the services that are enabled to start at boot."""
        body = (_ENABLED, ["*.service"])
        (rows,) = self._bus.call(Call(MANAGER_PATH, MANAGER, "ListUnitFilesByPatterns", "asas", body))
        return [path.rpartition("/")[2] for path, _ in rows]

    def facts(self, names: Iterable[str]) -> dict[str, UnitFacts]:
        """Properties by unit name; units that vanished in the meantime are left out."""
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
            for interface in (UNIT, f"{SYSTEMD}.{name.rpartition('.')[2].capitalize()}")
            if interface in _INTERFACES
        ]
        known: dict[str, UnitFacts] = {}
        for (name, _), answer in zip(asked, self._bus.call_many([call for _, call in asked]), strict=True):
            if not isinstance(answer, BusError):
                known.setdefault(name, UnitFacts({}, self._boot_ns)).known.update(properties(answer))
        return {name: facts for name, facts in known.items() if facts.name}

"""The properties of units by systemd's names, and how to list units and read them over the bus."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from exhume.collect.systemd.bus import MANAGER, MANAGER_PATH, SYSTEMD, UNIT, Bus, BusError, Call, get_all, properties
from exhume.model.audit import Condition, Exit
from exhume.model.clock import SystemClock, both_ns
from exhume.model.redaction import redact

_NEVER = 2**64 - 1
# waitid's codes for how a process ended.
_EXITED = 1
_COMMANDS = ("ExecStart", "ExecStop", "ExecStopPost")
# Where one of these fails, the unit does, whatever became of its main process.
AROUND_START = ("ExecCondition", "ExecStartPre", "ExecStartPost")
_FILE_SETTINGS = ("ExecStartPre", "ExecStart")


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """Properties of a unit by systemd's names. `boot_ns` is the wall time at which its monotonic clock was zero."""

    known: dict[str, Any]
    boot_ns: int

    def text(self, key: str) -> str:
        value = self.known.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> int | None:
        value = self.known.get(key)
        return value if isinstance(value, int) and value != _NEVER else None

    def names(self, *keys: str) -> tuple[str, ...]:
        """The names that these properties list, sorted, each once."""
        return tuple(sorted({str(each) for key in keys for each in self.known.get(key) or ()}))

    def moment(self, key: str) -> int | None:
        """A time as wall nanoseconds; None where it never came."""
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
        """What its main process is started with."""
        commands = self.known.get("ExecStart")
        return shlex.join(redact(commands[0][1])) if commands else None

    @property
    def starts(self) -> tuple[str, ...]:
        """Every command that starts it, those around the main one as well."""
        keys = ("ExecStartPre", "ExecStart", "ExecStartPost")
        return tuple(shlex.join(each[1]) for key in keys for each in self.known.get(key) or ())

    @property
    def directory(self) -> str | None:
        """Where its commands run; systemd marks one that need not be there."""
        directory = self.text("WorkingDirectory").lstrip("!-")
        return directory if directory.startswith("/") else None

    @property
    def last_exit(self) -> Exit | None:
        """How its main process last ended; where a command around its start failed, or none was started, how that one
        did."""
        for key in AROUND_START:
            for each in self._done(key):
                if each[9] and not each[2]:
                    return _exit(int(each[5]) * 1000, int(each[8]), int(each[9]), key)
        ended = self.moment("ExecMainExitTimestamp")
        code, status = self.number("ExecMainCode"), self.number("ExecMainStatus")
        if ended is not None and code and status is not None:
            return _exit(ended, code, status)
        # A command before the program that went well, or that may fail, says nothing of how the last run ended.
        done = [each for key in _COMMANDS for each in self._done(key)]
        last = max(done, key=lambda each: int(each[5]), default=None)
        return _exit(int(last[5]) * 1000, int(last[8]), int(last[9])) if last else None

    def _done(self, key: str) -> list[Any]:
        """The commands of a setting that ended: path, arguments, whether a failure of it is ignored, start and stop
        (real, monotonic), pid, code, status."""
        return [each for each in self.known.get(key) or () if len(each) >= 10 and each[5]]

    @property
    def start_limit(self) -> str:
        """The limit of starts that it ran into, so that systemd gave up; empty where it didn't."""
        burst, restarts = self.number("StartLimitBurst"), self.number("NRestarts") or 0
        within = self.number("StartLimitIntervalUSec")
        if self.text("ActiveState") != "failed" or not burst or not within:
            return ""
        # systemd keeps the reason of the last end, and only reports the limit where there is none.
        if self.text("Result") == "start-limit-hit" or (self.text("Restart") != "no" and restarts >= burst):
            return f"more than {burst} starts within {within / 1e6:,.0f} s"
        return ""

    @property
    def named_files(self) -> list[tuple[str, str]]:
        """Files that have to be there for it to start, each with the setting that names it."""
        found = [("EnvironmentFile", str(each[0])) for each in self.known.get("EnvironmentFiles") or () if not each[1]]
        found += [(key, str(each[0])) for key in _FILE_SETTINGS for each in self.known.get(key) or () if not each[2]]
        found.append(("WorkingDirectory", self.text("WorkingDirectory")))
        return [(key, path) for key, path in found if path.startswith("/") and not set(path) & set("*?[%$")]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Its conditions and asserts with what came of them."""
        return tuple(
            Condition(str(name), str(parameter), _held(int(state), held, len(listed)), bool(trigger), bool(negated))
            for kind, held in (("Condition", self._all_held("Condition")), ("Assert", self._all_held("Assert")))
            for listed in (self.known.get(f"{kind}s") or (),)
            for name, trigger, negated, parameter, state in listed
        )

    @property
    def unmet(self) -> tuple[str, ...]:
        """The kinds of which one did not hold when it was last to be started: Condition, Assert."""
        # Asserts are only looked at when the conditions hold.
        return tuple(kind for kind in ("Condition", "Assert") if self._all_held(kind) is False)[:1]

    def _all_held(self, kind: str) -> bool | None:
        """Whether all of a kind held when they were last looked at; None where that never was."""
        return bool(self.known.get(f"{kind}Result")) if self.number(f"{kind}TimestampMonotonic") else None


def _held(state: int, all_held: bool | None, of: int) -> bool | None:
    if state:
        return state > 0
    # systemd forgets what came of each when it reads its files again, but not what came of all.
    return all_held if all_held or of == 1 else None


def _exit(moment: int, code: int, status: int, command: str = "") -> Exit:
    if code == _EXITED:
        return Exit(moment, code=status, command=command)
    return Exit(moment, signal=status, command=command)


# Kinds of units that have properties of their own that matter here.
_INTERFACES = {UNIT, *(f"{SYSTEMD}.{kind}" for kind in ("Service", "Socket", "Timer", "Mount", "Path", "Swap"))}
_ENABLED = ["enabled", "enabled-runtime", "linked", "linked-runtime"]


@dataclass(frozen=True, slots=True)
class Listed:
    """A unit in systemd's list."""

    name: str
    load: str
    active: str


class BusUnits:
    """Lists units and reads them over D-Bus, to be used in a `with`, which closes the bus."""

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
        """Names of the services that are to be started at boot."""
        body = (_ENABLED, ["*.service"])
        (rows,) = self._bus.call(Call(MANAGER_PATH, MANAGER, "ListUnitFilesByPatterns", "asas", body))
        return [path.rpartition("/")[2] for path, _ in rows]

    def facts(self, names: Iterable[str]) -> dict[str, UnitFacts]:
        """By the names asked for; units that vanished meanwhile are left out."""
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

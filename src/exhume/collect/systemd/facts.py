"""The properties of units by systemd's names, and how to list units and read them over the bus."""

import re
import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from exhume.collect.systemd.bus import MANAGER, MANAGER_PATH, SYSTEMD, UNIT, Bus, BusError, Call, get_all, properties
from exhume.model.audit import Condition, Exit
from exhume.model.clock import SystemClock, both_ns
from exhume.model.redaction import redact, redact_line

# systemd's units of time.
_SPANS_US = {"us": 1, "ms": 1e3, "s": 1e6, "min": 60e6, "h": 3600e6, "d": 86400e6, "w": 7 * 86400e6}
_SPANS_US |= {"month": 2629800e6, "y": 31557600e6, "": 1}
_SPAN = re.compile(rf"(\d+(?:\.\d+)?)({'|'.join(sorted(_SPANS_US, key=len, reverse=True))})")


def time_span_us(text: str) -> int | None:
    """`1min 30s` in microseconds; None for `infinity`, and for what is no time."""
    parts = [_SPAN.fullmatch(part) for part in text.split()]
    if not parts or not all(parts):
        return None
    return round(sum(float(part[1]) * _SPANS_US[part[2]] for part in parts if part))


_NEVER = 2**64 - 1
# waitid's codes for how a process ended.
_EXITED = 1
_COMMANDS = ("ExecStart", "ExecStop", "ExecStopPost")
# Where one of these fails, the unit does, whatever became of its main process.
AROUND_START = ("ExecCondition", "ExecStartPre", "ExecStartPost")
_ARGUMENTS = re.compile(r"argv\[\]=(.*?) ; (?:ignore_errors|flags)=")


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
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) and value != _NEVER else None

    def flag(self, key: str) -> bool:
        return self.known.get(key) in (True, "yes")

    def names(self, *keys: str) -> tuple[str, ...]:
        """The names that these properties list, sorted, each once."""
        found: set[str] = set()
        for key in keys:
            value = self.known.get(key) or ()
            found.update(value.split() if isinstance(value, str) else (str(each) for each in value))
        return tuple(sorted(found))

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
        value = self.known.get("ExecStart")
        if isinstance(value, str):
            found = _ARGUMENTS.search(value)
            return redact_line(found[1]) if found else None
        return shlex.join(redact(value[0][1])) if value else None

    @property
    def starts(self) -> tuple[str, ...]:
        """Every command that starts it, those around the main one as well."""
        found: list[str] = []
        for key in ("ExecStartPre", "ExecStart", "ExecStartPost"):
            value = self.known.get(key)
            found += (
                _ARGUMENTS.findall(value) if isinstance(value, str) else [shlex.join(each[1]) for each in value or ()]
            )
        return tuple(found)

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
        known = self.known.get(key)
        return [each for each in known if len(each) >= 10 and each[5]] if isinstance(known, list) else []

    @property
    def start_limit(self) -> str:
        """The limit of starts that it ran into, so that systemd gave up; empty where it didn't."""
        burst, restarts = self.number("StartLimitBurst"), self.number("NRestarts") or 0
        interval = self.known.get("StartLimitIntervalUSec")
        within = interval if isinstance(interval, int) else time_span_us(str(interval))
        if self.text("ActiveState") != "failed" or not burst or not within:
            return ""
        # systemd keeps the reason of the last end, and only reports the limit where there is none.
        if self.text("Result") == "start-limit-hit" or (self.text("Restart") != "no" and restarts >= burst):
            return f"more than {burst} starts within {within / 1e6:,.0f} s"
        return ""

    @property
    def named_files(self) -> list[tuple[str, str]]:
        """Files that have to be there for it to start, each with the setting that names it."""
        files = self.known.get("EnvironmentFiles")
        found = [("EnvironmentFile", str(each[0])) for each in files if not each[1]] if isinstance(files, list) else []
        for key in ("ExecStartPre", "ExecStart"):
            commands = self.known.get(key)
            found += [(key, str(each[0])) for each in commands if not each[2]] if isinstance(commands, list) else []
        directory = self.text("WorkingDirectory")
        if directory.startswith("/"):
            found.append(("WorkingDirectory", directory))
        return [(key, path) for key, path in found if path.startswith("/") and not set(path) & set("*?[%$")]

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Its conditions and asserts with what came of them."""
        return (*self._checked("Condition"), *self._checked("Assert"))

    @property
    def unmet(self) -> tuple[str, ...]:
        """The kinds of which one did not hold when it was last to be started: Condition, Assert."""
        kinds = ("Condition", "Assert")
        tried = [kind for kind in kinds if self.number(f"{kind}TimestampMonotonic")]
        # Asserts are only looked at when the conditions hold.
        return tuple(kind for kind in tried if not self.flag(f"{kind}Result"))[:1]

    def _checked(self, kind: str) -> tuple[Condition, ...]:
        tried = bool(self.number(f"{kind}TimestampMonotonic"))
        all_held = self.flag(f"{kind}Result") if tried else None
        listed = self.known.get(f"{kind}s")
        if not isinstance(listed, list):
            # systemctl does not print them.
            return ()
        return tuple(
            Condition(str(name), str(parameter), _held(int(state), all_held, len(listed)), bool(trigger), bool(negated))
            for name, trigger, negated, parameter, state in listed
        )


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

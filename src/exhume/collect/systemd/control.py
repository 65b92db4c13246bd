"""Stops and starts units, and tells whether one is still what it was when a plan was made.

systemd is asked over the bus and every order is waited for; where there is no bus, and only on the node itself,
systemctl does the same.
"""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, Self

from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.bus import (
    MANAGER,
    MANAGER_PATH,
    UNIT,
    Bus,
    BusError,
    BusSilent,
    Call,
    get_all,
    properties,
)
from exhume.collect.systemd.facts import time_span_us
from exhume.collect.systemd.systemctl import SystemctlOrders

_STOP_S = _START_S = 90.0
# As systemd's own limit for a whole job with its dependencies on a slow node.
_RELOAD_S = 90.0
_ASK_EVERY_S = 1.0
_TAKEN_S = 10.0
_NEVER_US = 2**64 - 1
_NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
_JOB_REMOVED = (
    "type='signal',sender='org.freedesktop.systemd1',path='/org/freedesktop/systemd1',"
    "interface='org.freedesktop.systemd1.Manager',member='JobRemoved'"
)
# What makes a unit another one. Counters, times and states that change by themselves are left out.
_LISTS = (
    "RequiredBy",
    "RequisiteOf",
    "BoundBy",
    "WantedBy",
    "UpheldBy",
    "ConsistsOf",
    "PropagatesStopTo",
    "Requires",
    "Requisite",
    "BindsTo",
    "TriggeredBy",
    "Triggers",
)


GoOn = Callable[[float], bool]


class Orders(Protocol):
    """What a way to command systemd has to offer; an order returns the result of its job ("done" when all is well)."""

    def job(self, verb: str, name: str, timeout: float, go_on: GoOn | None = None) -> str: ...

    def reload(self) -> None: ...

    def reset_failed(self, name: str) -> None: ...

    def look(self, name: str) -> dict[str, object]: ...

    def close(self) -> None: ...


class SystemdControl:
    """Commands systemd on the node. Raises BusError, with the reason, where it can't be reached or refuses."""

    def __init__(self, root: NodeRoot) -> None:
        self._root = root
        self._orders: Orders = _orders(root)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._orders.close()

    def stop(self, name: str, timeout: float = _STOP_S, go_on: GoOn | None = None) -> str:
        """Stop it gracefully and wait for that; the result of the job ("done"; a unit that isn't loaded is stopped).
        `go_on` is asked about each second with the seconds so far. Raises BusSilent when it is no longer waited for."""
        return self._orders.job("stop", name, timeout, go_on)

    def start(self, name: str, timeout: float = _START_S) -> str:
        """Start it and wait for what comes of it: done, failed, dependency, skipped, timeout …"""
        return self._orders.job("start", name, timeout)

    def daemon_reload(self) -> None:
        """Let systemd read its unit files again; it has them when this returns."""
        self._orders.reload()

    def reset_failed(self, name: str) -> None:
        """Forget that it failed, so that it may be started again."""
        self._orders.reset_failed(name)

    def unit_state(self, name: str) -> dict[str, str]:
        """How it stands now: id (an alias has that of the unit behind it), load, active, sub, file (enabled, disabled,
        static …), result, pid, cgroup, needs_reload, refuses_stop; names: all that it goes by; listens: where a
        socket does; stop_within: seconds that a stop may take."""
        known = self._orders.look(name)
        asked = {
            "id": "Id",
            "load": "LoadState",
            "active": "ActiveState",
            "sub": "SubState",
            "file": "UnitFileState",
            "result": "Result",
            "pid": "MainPID",
            "cgroup": "ControlGroup",
            "needs_reload": "NeedDaemonReload",
            "refuses_stop": "RefuseManualStop",
        }
        lists = {"names": " ".join(_words(known.get("Names"))), "listens": " ".join(_addresses(known.get("Listen")))}
        return (
            {word: _word(known.get(key)) for word, key in asked.items()} | lists | {"stop_within": stop_within(known)}
        )

    def unit_fingerprint(self, name: str) -> dict[str, str]:
        """What it is, by words that stay the same until somebody changes it."""
        known = self._orders.look(name)
        print_ = {
            "load_state": _word(known.get("LoadState")),
            "unit_file_state": _word(known.get("UnitFileState")),
            "fragment": self._hashed(_word(known.get("FragmentPath"))),
            "drop_ins": " ".join(self._hashed(path) for path in _words(known.get("DropInPaths"))),
        }
        for key in _LISTS:
            print_[_snake(key)] = " ".join(sorted(_words(known.get(key))))
        return print_

    def _hashed(self, name: str) -> str:
        return f"{name} sha256:{_sha256(self._root.file(name))}" if name else ""


class BusOrders:
    """Over D-Bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._bus.listen([_JOB_REMOVED])

    def close(self) -> None:
        self._bus.close()

    def job(self, verb: str, name: str, timeout: float, go_on: GoOn | None = None) -> str:
        began = time.monotonic()
        deadline = began + timeout
        self._bus.signals()
        try:
            # That the order is taken is waited for in any case: without that nobody could say what became of it.
            (job,) = self._bus.call(
                Call(MANAGER_PATH, MANAGER, f"{verb.capitalize()}Unit", "ss", (name, "replace")),
                max(timeout, _TAKEN_S),
            )
        except BusError as error:
            if verb == "stop" and error.name == _NO_SUCH_UNIT:
                return "done"
            raise
        while (now := time.monotonic()) < deadline and (go_on is None or go_on(now - began)):
            signal = self._bus.next_signal(min(deadline, now + _ASK_EVERY_S))
            if signal is not None and signal.member == "JobRemoved" and signal.body[1] == job:
                return str(signal.body[3])
        raise BusSilent(f"{name} did not {verb} within {timeout:.0f} s; systemd goes on with it")

    def reload(self) -> None:
        self._bus.call(Call(MANAGER_PATH, MANAGER, "Reload"), _RELOAD_S)

    def reset_failed(self, name: str) -> None:
        try:
            self._bus.call(Call(MANAGER_PATH, MANAGER, "ResetFailedUnit", "s", (name,)))
        except BusError as error:
            if error.name != _NO_SUCH_UNIT:
                raise

    def look(self, name: str) -> dict[str, object]:
        (path,) = self._bus.call(Call(MANAGER_PATH, MANAGER, "LoadUnit", "s", (name,)))
        known: dict[str, object] = properties(self._bus.call(get_all(path, UNIT)))
        kind = name.rpartition(".")[2]
        if kind in ("service", "socket", "mount", "swap"):
            known |= properties(self._bus.call(get_all(path, f"org.freedesktop.systemd1.{kind.capitalize()}")))
        return known


def stop_within(known: dict[str, object]) -> str:
    """The seconds that a unit may take to stop by its own settings, before systemd has killed it: each command of its
    stop has its time, and so has the unit itself. `infinity` where there is no end."""
    told = known.get("TimeoutStopUSec", known.get("TimeoutUSec"))
    if told is None:
        return "0"
    micros = told if isinstance(told, int) else time_span_us(str(told))
    if micros is None or micros == _NEVER_US:
        return "infinity"
    commands = [known.get(key) for key in ("ExecStop", "ExecStopPost")]
    # In text each has a line.
    turns = 1 + sum(len(each if isinstance(each, list) else str(each or "").splitlines()) for each in commands)
    return f"{turns * micros / 1e6:g}"


def _orders(root: NodeRoot) -> Orders:
    try:
        return BusOrders(Bus(root.bus))
    except BusError as error:
        if not root.is_here:
            raise
        try:
            return SystemctlOrders()
        except BusError as second:
            raise BusError(f"{error}, and {second}") from None


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _words(value: object) -> list[str]:
    if isinstance(value, str):
        return value.split()
    return [str(each) for each in value] if isinstance(value, list) else []


def _addresses(value: object) -> list[str]:
    """Where a socket listens: pairs of a kind and an address over the bus, `ADDRESS (KIND)` in systemctl's text."""
    if isinstance(value, list):
        return [str(each[1]) for each in value if isinstance(each, list | tuple) and len(each) > 1]
    return [word for word in _words(value) if not word.startswith("(")]


def _snake(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key).lstrip("_")


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "unreadable"

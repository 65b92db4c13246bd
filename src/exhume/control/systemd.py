"""Control of systemd units: stop and start them, set their CPU weight, read their state, and fingerprint them.

A fingerprint ensures that a plan is only applied to the state that it was made from.

Uses D-Bus and waits for every job.
"""

import hashlib
import re
import time
from collections.abc import Callable
from typing import Self

from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.bus import MANAGER, MANAGER_PATH, UNIT, Bus, BusError, BusSilent, Call, get_all, properties
from exhume.model.errors import UsageError

_STOP_S = _START_S = 90.0
# As long as systemd's own limit for a whole job with its dependencies on a slow node.
_RELOAD_S = 90.0
_ASK_EVERY_S = 1.0
_REALIZED_S = 2.0
_TAKEN_S = 10.0
_NEVER_US = 2**64 - 1
#: The weight of a unit that does not set one (CGROUP_WEIGHT_DEFAULT of systemd).
DEFAULT_CPU_WEIGHT = 100
#: The greatest weight that systemd accepts (CGROUP_WEIGHT_MAX).
MAX_CPU_WEIGHT = 10_000
# A weight that is not set (CGROUP_WEIGHT_INVALID). On a node with cgroup v1 systemd converts weights to cpu.shares.
_NO_WEIGHT = 2**64 - 1
_NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
_JOB_REMOVED = (
    "type='signal',sender='org.freedesktop.systemd1',path='/org/freedesktop/systemd1',"
    "interface='org.freedesktop.systemd1.Manager',member='JobRemoved'"
)
# Properties that define a unit. Counters, times and states that change by themselves are left out.
_LISTS = (
    *("RequiredBy", "RequisiteOf", "BoundBy", "WantedBy", "UpheldBy", "ConsistsOf", "PropagatesStopTo"),
    *("Requires", "Requisite", "BindsTo", "TriggeredBy", "Triggers"),
)
_STATE = {
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
# Word boundaries in a property name.
_WITHIN = re.compile(r"(?<=[a-z])(?=[A-Z])")
# Kinds that a condition can hold back. Others depend on slices, scopes, targets, mounts and devices.
STOPPABLE = ("service", "socket", "timer", "path")
_TYPES = (*STOPPABLE, "mount", "automount", "swap", "target", "device", "slice", "scope")
# systemd's own limit, without the terminating NUL.
_LONGEST_UNIT = 255
_UNIT = re.compile(r"[A-Za-z0-9:_.\\-]+(?:@[A-Za-z0-9:_.\\@-]*)?")
# States in which a unit needs no start. A unit that crash-loops may be seen on its way down as well.
STAYS_UP = ("active", "activating", "reloading", "refreshing")
# A unit that is deactivating did run, but will be down in a moment unless it is started.
RUNS = (*STAYS_UP, "deactivating")

GoOn = Callable[[float], bool]


def is_unit_name(name: str) -> bool:
    """Whether systemd would accept this as the name of a unit that can run (a bare template can't)."""
    before, dot, kind = name.rpartition(".")
    if not dot or kind not in _TYPES or len(name) > _LONGEST_UNIT or not _UNIT.fullmatch(before):
        return False
    return before.find("@") != len(before) - 1


def kind_of(name: str) -> str:
    """The type of a unit: service, socket, timer …"""
    return name.rpartition(".")[2]


def check_unit_name(name: str) -> str:
    """Validate a unit name and return it. Raises UsageError."""
    if not is_unit_name(name):
        raise UsageError(f"{name!r} is not a unit name; see systemctl list-units")
    return name


class SystemdControl:
    """Commands to systemd on the node. Raises BusError, with the reason, if it is unreachable or refuses."""

    def __init__(self, root: NodeRoot) -> None:
        self._root = root
        self._orders = BusOrders(Bus(root.bus, systemd=root.host.proc / "1"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._orders.close()

    def stop(self, name: str, timeout: float = _STOP_S, go_on: GoOn | None = None) -> str:
        """Stop a unit gracefully and wait; returns the job result ("done"; a unit that isn't loaded counts as stopped).
        `go_on` is called about once a second with the elapsed seconds. Raises BusSilent when the wait times out."""
        return self._orders.job("stop", name, timeout, go_on)

    def start(self, name: str, timeout: float = _START_S) -> str:
        """Start a unit and wait for the job result: done, failed, dependency, skipped, timeout …"""
        return self._orders.job("start", name, timeout)

    def daemon_reload(self) -> None:
        """Make systemd reload its unit files; they are loaded on return."""
        self._orders.reload()

    def reset_failed(self, name: str) -> None:
        self._orders.reset_failed(name)

    def cpu_weight(self, name: str) -> int | None:
        """The unit's own weight, from its files or set at run time; None if it has none."""
        weight = self._orders.look(name).get("CPUWeight")
        return weight if isinstance(weight, int) and weight != _NO_WEIGHT else None

    def set_cpu_weight(self, name: str, weight: int | None) -> None:
        """Set the unit's CPU weight, at once and until the next boot: systemd writes a drop-in below /run. None: no
        weight of its own."""
        self._orders.set_property(name, "CPUWeight", ("t", _NO_WEIGHT if weight is None else weight))

    def has_cpu_cgroup(self, name: str) -> bool:
        """Whether the kernel distributes CPU time by the unit's weight, which needs a cgroup with the cpu controller.
        systemd creates it shortly after replying (src/core/cgroup.c, manager_dispatch_cgroup_realize_queue)."""
        cgroup = self.unit_state(name)["cgroup"].lstrip("/")
        mounts = self._root.host.sys / "fs/cgroup"
        # The paths where systemd mounts them (mount_table of its mount-setup.c): v2 alone, or v1 and hybrid.
        files = (mounts / cgroup / "cpu.weight", mounts / "cpu" / cgroup / "cpu.shares")
        deadline = time.monotonic() + _REALIZED_S
        while not (found := bool(cgroup) and any(file.exists() for file in files)) and time.monotonic() < deadline:
            time.sleep(_REALIZED_S / 20)
        return found

    def unit_state(self, name: str) -> dict[str, str]:
        """The current state: id (for an alias, that of the real unit), load, active, sub, file (enabled, disabled,
        static …), result, pid, cgroup, needs_reload, refuses_stop; names: all names and aliases; listens: the addresses
        of a socket; stop_within: the seconds that a stop may take."""
        known = self._orders.look(name)
        return {name: _text(known.get(key)) for name, key in _STATE.items()} | {
            "names": " ".join(_texts(known.get("Names"))),
            "listens": " ".join(_addresses(known.get("Listen"))),
            "stop_within": stop_within(known),
        }

    def unit_fingerprint(self, name: str) -> dict[str, str]:
        """Values that identify the unit's definition; they stay the same until it is changed."""
        known = self._orders.look(name)
        print_ = {
            "load_state": _text(known.get("LoadState")),
            "unit_file_state": _text(known.get("UnitFileState")),
            "fragment": self._hashed(_text(known.get("FragmentPath"))),
            "drop_ins": " ".join(self._hashed(path) for path in _texts(known.get("DropInPaths"))),
        }
        for key in _LISTS:
            print_[_WITHIN.sub("_", key).lower()] = " ".join(sorted(_texts(known.get(key))))
        return print_

    def _hashed(self, name: str) -> str:
        if not name:
            return ""
        try:
            return f"{name} sha256:{hashlib.sha256(self._root.file(name).read_bytes()).hexdigest()}"
        except OSError:
            return f"{name} sha256:unreadable"


class BusOrders:
    """systemd's D-Bus methods."""

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
            # Always wait for the reply: without the job's path its result can't be known.
            (job,) = self._bus.call(
                Call(MANAGER_PATH, MANAGER, f"{verb.capitalize()}Unit", "ss", (name, "replace")), max(timeout, _TAKEN_S)
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

    def set_property(self, name: str, key: str, value: tuple[str, object]) -> None:
        """Set a property until the next boot. `value` is a D-Bus type and a value of it."""
        body = (name, True, [(key, value)])
        self._bus.call(Call(MANAGER_PATH, MANAGER, "SetUnitProperties", "sba(sv)", body), _RELOAD_S)

    def look(self, name: str) -> dict[str, object]:
        (path,) = self._bus.call(Call(MANAGER_PATH, MANAGER, "LoadUnit", "s", (name,)))
        known: dict[str, object] = properties(self._bus.call(get_all(path, UNIT)))
        kind = name.rpartition(".")[2]
        if kind in ("service", "socket", "mount", "swap"):
            known |= properties(self._bus.call(get_all(path, f"org.freedesktop.systemd1.{kind.capitalize()}")))
        return known


def stop_within(known: dict[str, object]) -> str:
    """The seconds that a unit may take to stop by its own settings until systemd has killed it: each of its stop
    commands has a timeout, and so has the unit itself. `infinity` if there is no limit."""
    timeout = known.get("TimeoutStopUSec", known.get("TimeoutUSec"))
    if timeout is None:
        return "0"
    if not isinstance(timeout, int) or timeout == _NEVER_US:
        return "infinity"
    commands = [known.get(key) for key in ("ExecStop", "ExecStopPost")]
    turns = 1 + sum(len(each) for each in commands if isinstance(each, list))
    return f"{turns * timeout / 1e6:g}"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _texts(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def _addresses(value: object) -> list[str]:
    """The addresses of a socket, from pairs of a type and an address."""
    return [str(kind_and_address[1]) for kind_and_address in value] if isinstance(value, list) else []

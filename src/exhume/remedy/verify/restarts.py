"""How often units and containers were started again, as their managers count it."""

from typing import Any

from exhume.collect.containers.cri_client import CriError
from exhume.collect.containers.cri_services import cri_restarts
from exhume.collect.containers.docker import Engine, EngineError, container_path
from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.bus import (
    MANAGER,
    MANAGER_PATH,
    PROPERTIES,
    SERVICE,
    UNIT,
    Bus,
    BusError,
    BusSilent,
    Call,
)
from exhume.model.audit import Manager

_NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
_PATIENCE_S = 2.0
# An engine's words for one that ended, or never began.
_DOWN = ("exited", "stopped", "created", "dead")


class NodeRestarts:
    """Asks the managers of a node: systemd over its bus, Docker, Podman and CRI over their sockets. A subject is a
    unit's name, or a container's with its manager before it (`docker:agent`). Close it when done."""

    def __init__(self, root: NodeRoot) -> None:
        self._root = root
        self._bus: Bus | None = None
        self._why: dict[str, str] = {}
        # Of units: systemd's count and the run at the last look, and starts that systemd does not count.
        self._seen: dict[str, tuple[int, object, int]] = {}

    def count(self, subject: str) -> int | None:
        """How often it was started again; None where that can't be told now, with the reason in `why_not`. What is not
        there is not started again."""
        manager, colon, name = subject.partition(":")
        try:
            if colon and manager in (Manager.DOCKER, Manager.PODMAN):
                return self._of_container(manager, name)
            if colon and manager == Manager.CRI:
                return self._of_pod(name)
            return self._of_unit(subject)
        except (BusError, EngineError, CriError) as error:
            self._why[subject] = str(error)
            return None

    def why_not(self, subject: str) -> str:
        return self._why.get(subject, "it was looked at for too short a time")

    def settled(self, subject: str) -> str:
        """The state in which a container is down for good, in words: it ended, and its engine is told not to start it
        again. Empty where it may be started again, and for those whose manager tells no such thing."""
        manager, colon, name = subject.partition(":")
        if not colon or manager not in (Manager.DOCKER, Manager.PODMAN):
            return ""
        try:
            told = self._container(manager, name)
        except EngineError:
            return ""
        if told is None:
            return f"{manager} has it no more"
        state = told.get("State") or {}
        policy = ((told.get("HostConfig") or {}).get("RestartPolicy") or {}).get("Name") or "no"
        if state.get("Running") or state.get("Restarting") or state.get("Status") not in _DOWN or policy != "no":
            return ""
        return f"{manager} has it {state['Status']}, with restart policy no"

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()
            self._bus = None

    def _of_container(self, manager: str, name: str) -> int | None:
        told = self._container(manager, name)
        count = 0 if told is None else told.get("RestartCount")
        return count if isinstance(count, int) else None

    def _container(self, manager: str, name: str) -> dict[str, Any] | None:
        """What its engine says of it; None where it is gone."""
        socket = self._root.docker if manager == Manager.DOCKER else self._root.podman
        if socket is None:
            raise EngineError(f"there is no socket of {manager} here")
        try:
            told = Engine(socket, _PATIENCE_S).get(container_path(name, "json"))
        except EngineError as error:
            if error.status == 404:
                return None
            raise
        return told if isinstance(told, dict) else {}

    def _of_pod(self, name: str) -> int | None:
        sockets = self._root.cri
        if not sockets:
            # Nobody to ask is not the same as a container that is gone.
            raise CriError("there is no socket of a runtime that speaks CRI here")
        return cri_restarts(sockets, name)

    def _of_unit(self, name: str) -> int | None:
        try:
            if self._bus is None:
                self._bus = Bus(self._root.bus, _PATIENCE_S)
            (path,) = self._bus.call(Call(MANAGER_PATH, MANAGER, "GetUnit", "s", (name,)))
            ((_, count),) = self._bus.call(Call(path, PROPERTIES, "Get", "ss", (SERVICE, "NRestarts")))
            ((_, run),) = self._bus.call(Call(path, PROPERTIES, "Get", "ss", (UNIT, "InvocationID")))
        except BusError as error:
            if error.name == _NO_SUCH_UNIT:
                return 0
            if isinstance(error, BusSilent) or not error.name:
                # The connection is of no use any more; the next look makes a new one.
                self.close()
            raise
        return self._with_uncounted(name, int(count), run)

    def _with_uncounted(self, name: str, count: int, run: object) -> int:
        """systemd counts the restarts that it makes by Restart= alone. What a timer, a path or another unit starts
        again shows by its run: each has an id of its own."""
        last = self._seen.get(name)
        more = last[2] if last is not None and count >= last[0] else 0
        if last is not None and count == last[0] and run and last[1] and run != last[1]:
            more += 1
        # One that is down has no run: the next is told from the last that it had.
        self._seen[name] = (count, run or (last[1] if last is not None else None), more)
        return count + more

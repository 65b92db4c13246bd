"""How often units and containers were started again, as their managers count it."""

from exhume.collect.docker_engine import Engine, EngineError, container_path
from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.bus import MANAGER, MANAGER_PATH, PROPERTIES, SERVICE, Bus, BusError, BusSilent, Call
from exhume.model.audit import Manager

_NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
_PATIENCE_S = 2.0


class NodeRestarts:
    """Asks the managers of a node: systemd over its bus, Docker and Podman over their sockets. A subject is a unit's
    name, or a container's with its manager before it (`docker:agent`). Close it when done."""

    def __init__(self, root: NodeRoot) -> None:
        self._root = root
        self._bus: Bus | None = None
        self._why: dict[str, str] = {}

    def count(self, subject: str) -> int | None:
        """How often it was started again; None where that can't be told now, with the reason in `why_not`. What is not
        there is not started again."""
        manager, colon, name = subject.partition(":")
        try:
            if colon and manager in (Manager.DOCKER, Manager.PODMAN):
                return self._of_container(manager, name)
            if colon and manager == Manager.CRI:
                self._why[subject] = "the runtime behind CRI counts no restarts"
                return None
            return self._of_unit(subject)
        except (BusError, EngineError) as error:
            self._why[subject] = str(error)
            return None

    def why_not(self, subject: str) -> str:
        return self._why.get(subject, "it was looked at for too short a time")

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()
            self._bus = None

    def _of_container(self, manager: str, name: str) -> int | None:
        socket = self._root.docker if manager == Manager.DOCKER else self._root.podman
        if socket is None:
            raise EngineError(f"there is no socket of {manager} here")
        try:
            told = Engine(socket, _PATIENCE_S).get(container_path(name, "json"))
        except EngineError as error:
            if error.status == 404:
                return 0
            raise
        count = told.get("RestartCount") if isinstance(told, dict) else None
        return count if isinstance(count, int) else None

    def _of_unit(self, name: str) -> int | None:
        try:
            if self._bus is None:
                self._bus = Bus(self._root.bus, _PATIENCE_S)
            (path,) = self._bus.call(Call(MANAGER_PATH, MANAGER, "GetUnit", "s", (name,)))
            ((_, count),) = self._bus.call(Call(path, PROPERTIES, "Get", "ss", (SERVICE, "NRestarts")))
        except BusError as error:
            if error.name == _NO_SUCH_UNIT:
                return 0
            if isinstance(error, BusSilent) or not error.name:
                # The connection is of no use any more; the next look makes a new one.
                self.close()
            raise
        return int(count)

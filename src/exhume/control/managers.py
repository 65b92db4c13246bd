"""The service managers of a node (systemd, container engines), and the errors of actions."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exhume.control.containers import DockerControl
from exhume.control.systemd import SystemdControl
from exhume.model.audit import Manager
from exhume.model.errors import ExhumeError


class ActionFailed(ExhumeError):
    """A step could not be taken or undone; the message says why. It can be retried."""


class Left(ExhumeError):
    """A step turned out to need a person: nothing was changed."""


class Kept(ExhumeError):
    """Something was not undone, because that would destroy what another process or person has changed since."""


@dataclass(frozen=True, slots=True)
class Controls:
    """The service managers that respond on this node, and why the others don't, by manager."""

    units: SystemdControl | None = None
    engines: Mapping[Manager, DockerControl] = field(default_factory=dict)
    silent: Mapping[Manager, str] = field(default_factory=dict)

    def systemd(self) -> SystemdControl:
        if self.units is None:
            why = self.silent.get(Manager.SYSTEMD) or "systemd can't be reached here"
            raise ActionFailed(f"{why}; go where systemd runs, or name the node's root directory with --root")
        return self.units

    def engine(self, manager: Manager) -> DockerControl:
        if manager not in self.engines:
            raise ActionFailed(self.silent.get(manager) or f"no socket of {manager.value} was found here")
        return self.engines[manager]

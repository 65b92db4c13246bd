"""The interfaces to service managers (systemd, container engines), and the errors of actions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from exhume.model.audit import Manager
from exhume.model.errors import ExhumeError


class ActionFailed(ExhumeError):
    """A step could not be taken or undone; the sentence says why. It can be tried again."""


class Left(ExhumeError):
    """A step that turned out to be for a person: nothing was changed."""


class Kept(ExhumeError):
    """Something was not undone, because that would destroy what another process or person changed since."""


class UnitControl(Protocol):
    """systemd. Orders return the result of their job: `done` when all is well. While a stop is waited for, `go_on` is
    called about each second, with the seconds so far. `stop_within` of a state are the seconds that a unit may take to
    stop, or `infinity`."""

    def stop(self, name: str, timeout: float = ..., go_on: Callable[[float], bool] | None = ...) -> str: ...

    def start(self, name: str, timeout: float = ...) -> str: ...

    def daemon_reload(self) -> None: ...

    def reset_failed(self, name: str) -> None: ...

    def unit_state(self, name: str) -> dict[str, str]: ...

    def unit_fingerprint(self, name: str) -> dict[str, str]: ...


class Policy(Protocol):
    """A container's restart policy."""

    @property
    def name(self) -> str: ...

    @property
    def max_retries(self) -> int: ...


class ContainerControl(Protocol):
    """A Docker Engine, or what answers like one."""

    def fingerprint(self, container: str) -> dict[str, str]: ...

    def restart_policy(self, container: str) -> Policy: ...

    def goes_when_stopped(self, container: str) -> bool: ...

    def runs(self, container: str) -> bool: ...

    def is_paused(self, container: str) -> bool: ...

    def published(self, container: str) -> tuple[int, ...]: ...

    def pause(self, container: str) -> None: ...

    def update_restart_policy(self, container: str, policy: str, max_retries: int = 0) -> None: ...

    def stop(self, container: str, timeout: int = ...) -> bool: ...

    def start(self, container: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Controls:
    """What answers on this node, and why the rest doesn't, by manager."""

    units: UnitControl | None = None
    engines: Mapping[Manager, ContainerControl] = field(default_factory=dict)
    silent: Mapping[Manager, str] = field(default_factory=dict)

    def systemd(self) -> UnitControl:
        if self.units is None:
            why = self._why(Manager.SYSTEMD, "systemd can't be reached here")
            raise ActionFailed(f"{why}; go where systemd runs, or name the node's root directory with --root")
        return self.units

    def engine(self, manager: Manager) -> ContainerControl:
        if manager not in self.engines:
            raise ActionFailed(self._why(manager, f"no socket of {manager.value} was found here"))
        return self.engines[manager]

    def _why(self, manager: Manager, otherwise: str) -> str:
        return self.silent.get(manager) or otherwise

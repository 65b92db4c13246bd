"""Restarts of units and containers: as counted by their managers, and from the managers' records, which extend further
back than any sample."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from exhume.collect.containers.cri import CriError
from exhume.collect.containers.cri_services import cri_restarts
from exhume.collect.containers.docker import Engine, EngineError, container_path
from exhume.collect.containers.docker_services import docker_services
from exhume.collect.node_root import NodeRoot
from exhume.collect.systemd.bus import MANAGER, MANAGER_PATH, PROPERTIES, SERVICE, UNIT, Bus, BusError, BusSilent, Call
from exhume.collect.systemd.journal import unit_history
from exhume.model.audit import History, Manager
from exhume.model.clock import NANOS
from exhume.model.remedy import Effect
from exhume.remedy.services.planner import manager_of
from exhume.remedy.verify.measures import Series

_NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"
_PATIENCE_S = 2.0
# How much of the past is used, as for a recording; all that is known if it has too few restarts.
RECENT_S = 600.0
# This many restarts show their rate.
ENOUGH = 5
# More observations than this add nothing.
_MOST_STEPS = 600
# What a crash loop did a day ago says little about its rate now.
_HISTORY_HOURS = 1.0
# Docker's and Podman's states of a container that exited or was never started.
_DOWN = ("exited", "stopped", "created", "dead")


class NodeRestarts:
    """Queries the managers of a node: systemd over its bus, Docker, Podman and CRI over their sockets. A subject is a
    unit's name, or a container's name prefixed with its manager (`docker:agent`). Close it when done."""

    def __init__(self, root: NodeRoot) -> None:
        self._root = root
        self._bus: Bus | None = None
        self._why: dict[str, str] = {}
        # For units: systemd's count and the run at the last query, and the starts that systemd does not count.
        self._seen: dict[str, tuple[int, object, int]] = {}

    def count(self, subject: str) -> int | None:
        """The number of restarts; None if currently unknown, with the reason in `why_not`. Something that does not
        exist has none."""
        manager, colon, name = subject.partition(":")
        try:
            if colon and manager in (Manager.DOCKER, Manager.PODMAN):
                inspect = self._container(manager, name)
                restarts = 0 if inspect is None else inspect.get("RestartCount")
                return restarts if isinstance(restarts, int) else None
            if colon and manager == Manager.CRI:
                # A container that is gone is not restarted.
                return self._of_pod(name) or 0
            return self._of_unit(subject)
        except (BusError, EngineError, CriError) as error:
            self._why[subject] = str(error)
            return None

    def why_not(self, subject: str) -> str:
        return self._why.get(subject, "the sample was too short")

    def settled(self, subject: str) -> str:
        """The state of a container that exited and that its engine does not restart; empty if it may be restarted, and
        for managers without such a state."""
        manager, colon, name = subject.partition(":")
        if colon and manager == Manager.CRI:
            with suppress(CriError):
                # Pod names are not reused; those of a stateful set are, but the pod is back within seconds.
                return "its pod is gone" if self._of_pod(name) is None else ""
        if not colon or manager not in (Manager.DOCKER, Manager.PODMAN):
            return ""
        try:
            inspect = self._container(manager, name)
        except EngineError:
            return ""
        if inspect is None:
            return f"{manager} has it no more"
        state = inspect.get("State") or {}
        policy = ((inspect.get("HostConfig") or {}).get("RestartPolicy") or {}).get("Name") or "no"
        if state.get("Running") or state.get("Restarting") or state.get("Status") not in _DOWN or policy != "no":
            return ""
        return f"{manager} has it {state['Status']}, with restart policy no"

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()
            self._bus = None

    def _of_pod(self, name: str) -> int | None:
        if not self._root.cri:
            # Without a runtime it is unknown whether the container is gone.
            raise CriError("there is no socket of a runtime that speaks CRI here")
        return cri_restarts(self._root.cri, name)

    def _container(self, manager: str, name: str) -> dict[str, Any] | None:
        """Inspect a container; None if it is gone."""
        socket = self._root.docker if manager == Manager.DOCKER else self._root.podman
        if socket is None:
            raise EngineError(f"there is no socket of {manager} here")
        try:
            inspect = Engine(socket, _PATIENCE_S).get(container_path(name, "json"))
        except EngineError as error:
            if error.status == 404:
                return None
            raise
        return inspect if isinstance(inspect, dict) else {}

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
                # The connection is unusable; the next query opens a new one.
                self.close()
            raise
        # systemd only counts the restarts caused by Restart=. A restart by a timer, a path or another unit shows as a
        # new invocation id. A unit that is down has none.
        before, last_run, more = self._seen.get(name, (int(count), run, 0))
        again = int(count) == before and run and last_run and run != last_run
        more = more + bool(again) if int(count) >= before else 0
        self._seen[name] = (int(count), run or last_run, more)
        return int(count) + more


def histories(root: NodeRoot, effects: Sequence[Effect]) -> dict[str, History]:
    """The recent past of the effects' subjects from their managers' records: a few seconds of sampling see few
    restarts."""
    subjects = {effect.subject for effect in effects if effect.subject}
    units = [subject for subject in subjects if manager_of(subject) is None]
    found = dict(unit_history(root, units, _HISTORY_HOURS)) if units else {}
    managers = {manager_of(subject) for subject in subjects}
    for manager, socket in ((Manager.DOCKER, root.docker), (Manager.PODMAN, root.podman)):
        if manager in managers and socket is not None:
            rows = docker_services(socket, manager, host=root.host, hours=_HISTORY_HOURS, log_lines=0).services
            found |= {row.key: row.history for row in rows if row.key in subjects and row.history is not None}
    return found


def history_series(effect: Effect, history: History, now: int) -> Series | None:
    """The restarts in a manager's records; None if there are none. `now` is in wall nanoseconds."""
    moments = sorted(moment for moment in history.restarted_at if moment <= now)
    all_s = history.hours * 3600.0
    if len(moments) <= 1:
        if not history.restarts_per_hour or history.hours <= 0:
            return None
        # Only the count over that time is known.
        restarts = float(round(history.restarts_per_hour * history.hours))
        return Series(effect, history.source, now - round(all_s * NANOS), now, (restarts,), (all_s,))
    recent = sum(moment > now - RECENT_S * NANOS for moment in moments)
    # If it only began in that time, the rate is the number after the first restart, over the time since.
    since = max(now - round((RECENT_S if recent >= ENOUGH else all_s) * NANOS), moments[0])
    # In steps of a second or longer, so that the series shows how restarts are spread.
    steps = max(1, min(_MOST_STEPS, (now - since) // NANOS))
    after = [moment - since for moment in moments if moment > since]
    values, edges = np.histogram(after, bins=steps, range=(0, max(1, now - since)))
    return Series(
        effect, history.source, since, now, tuple(map(float, values)), tuple((np.diff(edges) / NANOS).tolist())
    )

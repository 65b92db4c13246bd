"""The containers of a Docker Engine, or of a Podman that answers like one, as services: how they fare, what they said
last, who made them."""

import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exhume.collect.container_owner import CONTAINER_NAME, POD_UID, owner_of, pod_of
from exhume.collect.docker_engine import Engine, EngineError, container_path
from exhume.collect.docker_log import health_lines, log_tail
from exhume.collect.docker_runs import EventLog, read_events, runs_of
from exhume.collect.host import Host
from exhume.collect.processes import cgroup_path
from exhume.collect.published_ports import published_ports
from exhume.collect.rfc3339 import nanoseconds
from exhume.collect.runs import Run, history
from exhume.collect.seen import Seen
from exhume.model.audit import Exit, History, Manager, Service
from exhume.model.redaction import redact

_NANOS = 10**9
# An engine that hangs over single containers is left after this long.
_PATIENCE_S = 20.0
_MOST_COMMAND = 400
_KUBERNETES_RESTARTS = "annotation.io.kubernetes.container.restartCount"
_SANDBOX = ("io.kubernetes.docker.type", "podsandbox")
_SIGTERM = 128 + 15


def docker_services(
    socket: Path, manager: Manager, *, host: Host | None = None, hours: float = 24.0, log_lines: int = 5
) -> Seen:
    """Every container that the engine at `socket` has. An engine that does not answer is a blind spot."""
    return _Look(Engine(socket), manager, host or Host(), hours, log_lines).take()


class _Look:
    """One look at an engine."""

    def __init__(self, engine: Engine, manager: Manager, host: Host, hours: float, log_lines: int) -> None:
        self._engine, self._manager, self._host = engine, manager, host
        self._log_lines = log_lines
        self._now = time.time_ns()
        self._since = self._now - round(hours * 3600 * _NANOS)
        self._events = EventLog()
        self._blind_spots: list[str] = []

    def take(self) -> Seen:
        who = self._manager.value
        try:
            listed = self._engine.get("/containers/json", all=1)
        except EngineError as error:
            return Seen([], [f"the containers of {who} can't be seen: {error}"])
        try:
            self._events = read_events(self._engine, self._manager, self._since, self._now)
        except EngineError as error:
            self._blind_spots.append(f"{who} does not tell what its containers did: {error}")
        services = [self._service(told) for told in self._newest(self._inspected(listed))]
        return Seen(sorted(services, key=lambda service: (service.name, service.id)), self._blind_spots)

    def _inspected(self, listed: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        deadline = time.monotonic() + _PATIENCE_S
        hidden = 0
        for row in listed:
            try:
                if time.monotonic() > deadline:
                    raise EngineError("too late")
                yield self._engine.get(container_path(str(row.get("Id", "")), "json"))
            except EngineError as error:
                # One that was removed meanwhile is not missed.
                if error.status != 404:
                    hidden += 1
                    yield _only_listed(row)
        if hidden:
            self._blind_spots.append(
                f"{self._manager.value} told no more than the names of {hidden} of its {len(listed)} containers"
            )

    def _newest(self, inspected: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Kubelet makes a new container for each restart: the last one stands for them all. What holds a pod together
        and runs nothing is left out."""
        newest: dict[tuple[str, ...], dict[str, Any]] = {}
        for told in inspected:
            labels = _labels(told)
            if labels.get(_SANDBOX[0]) == _SANDBOX[1]:
                continue
            key = (labels[POD_UID], labels.get(CONTAINER_NAME, "")) if POD_UID in labels else (str(told.get("Id")),)
            if key not in newest or str(newest[key].get("Created", "")) < str(told.get("Created", "")):
                newest[key] = told
        yield from newest.values()

    def _service(self, told: dict[str, Any]) -> Service:
        number, state, labels = str(told.get("Id", "")), told.get("State") or {}, _labels(told)
        runs, stopped = runs_of(self._events, number)
        started, ended = nanoseconds(state.get("StartedAt")), nanoseconds(state.get("FinishedAt"))
        up = bool(state.get("Running")) and not state.get("Restarting")
        last_exit = _last_exit(state, runs, ended, up=up)
        owner, created = owner_of(labels), nanoseconds(told.get("Created"))
        restarts = int(told.get("RestartCount") or labels.get(_KUBERNETES_RESTARTS) or 0)
        result = "" if up else _result(state, last_exit, stopped=stopped)
        pid, unwell = int(state.get("Pid") or 0) or None, health_lines(told)
        troubled = restarts > 0 or state.get("Status") == "restarting" or result not in ("", "success", "stopped")
        return Service(
            manager=self._manager,
            id=number,
            name=str(told.get("Name") or number[:12]).lstrip("/"),
            description=labels.get("org.opencontainers.image.description", ""),
            state=str(state.get("Status") or ""),
            detail=str(state.get("Error") or (state.get("Health") or {}).get("Status") or ""),
            result=result,
            pid=pid,
            started=started,
            age_s=round(max(0, self._now - started) / _NANOS, 3) if up and started is not None else None,
            restarts=restarts,
            restart_policy=_policy(told),
            last_exit=last_exit,
            cgroup=self._cgroup(pid),
            image=(told.get("Config") or {}).get("Image") or None,
            pod=pod_of(labels),
            owner=owner.words,
            created=created,
            fragment=owner.file,
            command=shlex.join(redact([str(told.get("Path") or ""), *map(str, told.get("Args") or [])]))[:_MOST_COMMAND]
            if told.get("Path")
            else None,
            log=(*log_tail(self._engine, told, self._log_lines), *unwell) if troubled or unwell else (),
            published=published_ports(told),
            history=self._history(runs, restarts, created, started, last_exit, over=_is_over(state)),
        )

    def _cgroup(self, pid: int | None) -> str | None:
        if pid is None:
            return None
        try:
            return cgroup_path((self._host.proc / str(pid) / "cgroup").read_bytes())
        except OSError:
            return None

    def _history(
        self,
        runs: list[Run],
        restarts: int,
        created: int | None,
        started: int | None,
        last_exit: Exit | None,
        *,
        over: bool,
    ) -> History:
        reaches = max(self._since, self._events.reaches, created or 0)
        # The log tells of a start at once or later, on a busy node; of one since this look began it can't tell yet.
        in_log = any(run.started > started - _NANOS for run in runs) if started is not None else False
        since_then = started is not None and started > self._now and bool(runs)
        known = started is None or started < self._since or in_log or since_then
        if known or created is None:
            return history(runs, self._now, reaches)
        # The engine's log of what happened was lost, or does not reach back: it still counts restarts, and knows how
        # the last run ended; the others are taken to have ended like it.
        hours = max((self._now - created) / _NANOS, 60.0) / 3600
        failed = last_exit is not None and last_exit.code not in (None, 0)
        return History(
            source="runtime",
            hours=round(hours, 3),
            starts=restarts + 1,
            failures=restarts + over if failed else 0,
            restarts_per_hour=round(restarts / hours, 2),
            exits=(last_exit,) if last_exit is not None else (),
        )


def _labels(told: dict[str, Any]) -> dict[str, str]:
    return (told.get("Config") or {}).get("Labels") or {}


def _is_over(state: dict[str, Any]) -> bool:
    """Whether its last run ended as well, and no other is on its way: while it waits, that one is counted already."""
    return not state.get("Running") and not state.get("Restarting")


def _policy(told: dict[str, Any]) -> str:
    policy = (told.get("HostConfig") or {}).get("RestartPolicy") or {}
    most = int(policy.get("MaximumRetryCount") or 0)
    return (policy.get("Name") or "no") + (f":{most}" if most else "")


def _last_exit(state: dict[str, Any], runs: list[Run], ended: int | None, *, up: bool) -> Exit | None:
    if ended is None:
        return None
    if not up:
        return Exit(ended, int(state.get("ExitCode") or 0))
    # While it runs the engine has forgotten how the run before ended; its log may know.
    code = next((run.code for run in reversed(runs) if run.ended is not None), None)
    return Exit(ended, code)


def _result(state: dict[str, Any], last: Exit | None, *, stopped: bool) -> str:
    if state.get("OOMKilled"):
        return "oom-kill"
    if last is None:
        # Made and never started, or not to be started.
        return "exit-code" if state.get("Error") else ""
    if last.code == 0:
        return "success"
    return "stopped" if stopped or last.code == _SIGTERM else "exit-code"


def _only_listed(row: dict[str, Any]) -> dict[str, Any]:
    """What the list of containers tells, in the shape of the whole answer."""
    return {
        "Id": row.get("Id"),
        "Name": next(iter(row.get("Names") or []), ""),
        "State": {"Status": row.get("State"), "Running": row.get("State") == "running"},
        "Config": {"Image": row.get("Image"), "Labels": row.get("Labels")},
    }

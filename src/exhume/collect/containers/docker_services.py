"""Services that run as containers of Docker or Podman: state, runs, owner, published ports and the end of the log."""

import contextlib
import shlex
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from exhume.collect.containers.docker import Engine, EngineError, container_path
from exhume.collect.containers.owner import (
    POD_UID,
    Workload,
    is_sandbox,
    name_in_pod,
    owner_of,
    pod_of,
    workload_of_sandbox,
)
from exhume.collect.containers.runs import SIGTERM, Attempt, Attempts, Run, history, join_jobs, nanoseconds, outcome
from exhume.collect.processes import cgroup_of
from exhume.model.audit import Exit, History, Manager, Service, ServiceList
from exhume.model.clock import NANOS
from exhume.model.redaction import redact
from exhume.procfs.host import Host

_MOST_PORTS = 1 << 16
_MOST_LINE = 400
_HEADER = 8
# Docker remembers no more events than this.
_MEMORY = 256
_KINDS = ("start", "die", "kill", "stop")
# Podman's own event name, in versions that do not translate it.
_SAME = {"died": "die"}
# An engine that hangs on individual containers is abandoned after this long.
_PATIENCE_S = 20.0
_MOST_COMMAND = 400
_KUBERNETES_RESTARTS = "annotation.io.kubernetes.container.restartCount"


def published_ports(inspect: dict[str, Any]) -> tuple[int, ...]:
    """TCP ports on the node: the requested ones, even while the container is down, and the assigned ones."""
    ordered = (inspect.get("HostConfig") or {}).get("PortBindings") or {}
    given = (inspect.get("NetworkSettings") or {}).get("Ports") or {}
    found: set[int] = set()
    for inside, bound in (*ordered.items(), *given.items()):
        for each in (bound or ()) if inside.endswith("/tcp") else ():
            # `22` or `8000-8010`; empty if the engine is to choose one.
            first, _, last = str(each.get("HostPort") or "").partition("-")
            last = last or first
            if first.isdigit() and last.isdigit():
                found.update(range(int(first), min(int(last), _MOST_PORTS) + 1))
    return tuple(sorted(found))


def log_tail(engine: Engine, inspect: dict[str, Any], lines: int) -> tuple[str, ...]:
    """The last lines of a container (`inspect` is the engine's record of it), stdout and stderr together; none if its
    logs go elsewhere. They hold whatever the container wrote: code that displays them must sanitise them."""
    path = container_path(str(inspect.get("Id", "")), "logs")
    try:
        written = engine.read(path, stdout=1, stderr=1, tail=lines)
    except EngineError:
        return ()
    if not (inspect.get("Config") or {}).get("Tty"):
        written = _unframed(written)
    text = written.decode("utf-8", "replace")
    return tuple(line.rstrip("\r")[:_MOST_LINE] for line in text.split("\n") if line.strip())[-lines:]


def health_lines(inspect: dict[str, Any]) -> tuple[str, ...]:
    """The output of the last health check if it failed, as a line; none otherwise."""
    health = (inspect.get("State") or {}).get("Health") or {}
    last = next(reversed(health.get("Log") or []), None)
    if health.get("Status") != "unhealthy" or last is None:
        return ()
    output = " ".join(str(last.get("Output") or "").split()) or "nothing"
    streak = int(health.get("FailingStreak") or 0)
    line = f"health check ended with code {last.get('ExitCode')} ({streak} times in a row), and printed: {output}"
    return (line[:_MOST_LINE],)


def _unframed(written: bytes) -> bytes:
    """Remove the frame headers. Without a terminal each chunk has a header: the stream number, three zeros,
    the length."""
    pieces = []
    at = 0
    while at + _HEADER <= len(written):
        if written[at] > 2 or written[at + 1 : at + 4] != b"\0\0\0":
            # Not framed after all.
            return written
        end = at + _HEADER + int.from_bytes(written[at + 4 : at + _HEADER], "big")
        pieces.append(written[at + _HEADER : end])
        at = end
    return b"".join(pieces)


def docker_services(
    socket: Path, manager: Manager, *, host: Host | None = None, hours: float = 24.0, log_lines: int = 5
) -> ServiceList:
    """Every container that the engine at `socket` has. An engine that does not answer is a blind spot."""
    reader = _EngineReader(Engine(socket), manager, host or Host(), hours, log_lines)
    try:
        return reader.take()
    except EngineError as error:
        return ServiceList([], [f"the containers of {manager.value} can't be seen: {error}"])


class _EngineReader:
    """One reading of an engine."""

    def __init__(self, engine: Engine, manager: Manager, host: Host, hours: float, log_lines: int) -> None:
        self._engine, self._manager, self._host, self._log_lines = engine, manager, host, log_lines
        self._now = time.time_ns()
        self._since = self._now - round(hours * 3600 * NANOS)
        # Time, action and exit code, by container; and from when on they are complete.
        self._events: dict[str, list[tuple[int, str, int | None]]] = defaultdict(list)
        self._reaches = 0
        self._images: dict[str, str] = {}
        self._blind_spots: list[str] = []

    def take(self) -> ServiceList:
        listed = self._engine.get("/containers/json", all=1)
        try:
            self._read_events()
        except EngineError as error:
            self._blind_spots.append(f"{self._manager.value} has no history of its containers: {error}")
        services = join_jobs((self._service(*each) for each in self._rows(self._inspected(listed))), self._now)
        return ServiceList(sorted(services, key=lambda service: (service.name, service.id)), self._blind_spots)

    def _read_events(self) -> None:
        """Read the starts and ends within the time range. Raises EngineError."""
        is_podman = self._manager is Manager.PODMAN
        # Docker keeps the answer open unless `until` is in the past. Podman has a parameter for that, and with `until`
        # some of its versions leave most events out.
        end = {"stream": "false"} if is_podman else {"until": f"{self._now // NANOS}.{self._now % NANOS:09}"}
        # Requested without a filter, to see whether the engine's event buffer was full.
        events = self._engine.lines("/events", since=self._since // NANOS, **end)
        moments = [int(each.get("timeNano") or 0) or int(each.get("time") or 0) * NANOS for each in events]
        for moment, each in zip(moments, events, strict=True):
            action, actor = _SAME.get(str(each.get("Action")), str(each.get("Action"))), each.get("Actor") or {}
            attributes = actor.get("Attributes") or {}
            text = str(attributes.get("exitCode", attributes.get("containerExitCode")))
            code = int(text) if text.lstrip("-").isdigit() else None
            if action in _KINDS and each.get("Type") == "container":
                self._events[str(actor.get("ID", ""))].append((moment, action, code))
        if not is_podman and len(events) >= _MEMORY:
            self._reaches = moments[0]

    def _runs_of(self, container: str) -> tuple[list[Run], bool]:
        """The runs of a container, oldest first, and whether it was stopped on request after the last start. A run that
        started before the log is left out."""
        runs: list[Run] = []
        stopped = False
        for moment, action, code in sorted(self._events[container], key=itemgetter(0)):
            if action == "start":
                runs.append(Run(moment))
                stopped = False
            elif action in ("kill", "stop"):
                stopped = True
            elif runs and runs[-1].ended is None:
                # A requested end is not a failure.
                runs[-1] = Run(runs[-1].started, moment, code, failed=code != 0 and not stopped)
        return runs, stopped

    def _inspected(self, listed: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        deadline = time.monotonic() + _PATIENCE_S
        hidden = 0
        for row in listed:
            try:
                if time.monotonic() > deadline:
                    raise EngineError("too late")
                yield self._engine.get(container_path(str(row.get("Id", "")), "json"))
            except EngineError as error:
                # A container that was removed in the meantime is not an error.
                if error.status != 404:
                    hidden += 1
                    yield _only_listed(row)
        if hidden:
            self._blind_spots.append(
                f"{self._manager.value} gave no more than the names of {hidden} of its {len(listed)} containers"
            )

    def _rows(self, inspected: Iterator[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], "_InPod | None"]]:
        """One container per service. kubelet makes a new container for each restart: the last one represents all of
        them. Pod sandboxes, which run nothing, are left out."""
        sandboxes: dict[str, dict[str, Any]] = {}
        attempts: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for inspect in inspected:
            labels = _labels(inspect)
            name, uid = name_in_pod(labels), labels.get(POD_UID, "")
            if is_sandbox(labels):
                sandboxes[uid] = inspect
            elif name is None:
                yield inspect, None
            else:
                attempts[uid, name].append(inspect)
        if attempts:
            self._read_images()
        for (uid, name), row in attempts.items():
            row.sort(key=lambda inspect: (_attempt_of(inspect), str(inspect.get("Created", ""))))
            sandbox = sandboxes.get(uid)
            known = tuple(
                Attempt(_attempt_of(each), nanoseconds(each.get("Created")) or self._now, _run_of(each)) for each in row
            )
            # A recreated sandbox is younger than the number of attempts suggests.
            is_first = sandbox is not None and str(sandbox.get("Name")).endswith("_0")
            made = nanoseconds(sandbox.get("Created")) if sandbox is not None and is_first else None
            workload = workload_of_sandbox(_labels(sandbox)) if sandbox is not None else None
            yield row[-1], _InPod(name, workload, Attempts(known, made))

    def _read_images(self) -> None:
        """Read image tags: kubelet refers to a container's image by id."""
        with contextlib.suppress(EngineError):
            for image in self._engine.get("/images/json"):
                tags = image.get("RepoTags") or []
                self._images |= dict.fromkeys((str(image.get("Id")),), tags[0]) if tags else {}

    def _service(self, inspect: dict[str, Any], in_pod: "_InPod | None") -> Service:
        number, state, labels = str(inspect.get("Id", "")), inspect.get("State") or {}, _labels(inspect)
        runs, stopped = self._runs_of(number)
        started, ended = nanoseconds(state.get("StartedAt")), nanoseconds(state.get("FinishedAt"))
        up = bool(state.get("Running")) and not state.get("Restarting")
        # While a container runs, the engine no longer has the exit code of the previous run; its event log may.
        logged = next((run.code for run in reversed(runs) if run.ended is not None), None)
        last_exit = Exit(ended, logged if up else int(state.get("ExitCode") or 0)) if ended is not None else None
        owner, created = owner_of(labels), nanoseconds(inspect.get("Created"))
        workload, image = in_pod.workload if in_pod is not None else None, str(_config(inspect).get("Image") or "")
        restarts = int(inspect.get("RestartCount") or labels.get(_KUBERNETES_RESTARTS) or 0)
        result, oom = "", bool(state.get("OOMKilled"))
        if not up and (last_exit is not None or oom):
            result = outcome(last_exit.code if last_exit else None, oom=oom, stopped=stopped)
        elif not up and state.get("Error"):
            # Created, but could not be started.
            result = "exit-code"
        policy = (inspect.get("HostConfig") or {}).get("RestartPolicy") or {}
        most = int(policy.get("MaximumRetryCount") or 0)
        pid, unwell = int(state.get("Pid") or 0) or None, health_lines(inspect)
        args = [str(inspect.get("Path")), *map(str, inspect.get("Args") or [])]
        troubled = restarts > 0 or state.get("Status") == "restarting" or result not in ("", "success", "stopped")
        service = Service(
            manager=self._manager,
            id=number,
            name=in_pod.name if in_pod is not None else str(inspect.get("Name") or number[:12]).lstrip("/"),
            description=labels.get("org.opencontainers.image.description", ""),
            state=str(state.get("Status") or ""),
            detail=str(state.get("Error") or (state.get("Health") or {}).get("Status") or ""),
            result=result,
            pid=pid,
            started=started,
            age_s=round(max(0, self._now - started) / NANOS, 3) if up and started is not None else None,
            restarts=restarts,
            restart_policy=(policy.get("Name") or "no") + (f":{most}" if most else ""),
            last_exit=last_exit,
            cgroup=cgroup_of(self._host, pid),
            image=self._images.get(image, image) or None,
            pod=pod_of(labels),
            owner=str(workload) if workload is not None else owner.label,
            workload=workload.reference if workload is not None else None,
            created=created,
            fragment=owner.file,
            command=shlex.join(redact(args))[:_MOST_COMMAND] if inspect.get("Path") else None,
            log=(*log_tail(self._engine, inspect, self._log_lines), *unwell) if troubled or unwell else (),
            published=published_ports(inspect),
        )
        if in_pod is not None:
            past = in_pod.attempts.history(self._now, self._since)
            # Docker restarts none of them: kubelet does, by the pod's policy.
            return replace(service, history=past, last_exit=next(iter(past.exits), None), restart_policy="")
        # While it waits to be restarted, that run is already counted.
        over = not state.get("Running") and not state.get("Restarting")
        return replace(service, history=self._history(service, runs, over=over))

    def _history(self, service: Service, runs: list[Run], *, over: bool) -> History:
        """The history of a container. `over` is whether its last run has ended, and no other is about to start."""
        created, started, last_exit = service.created, service.started, service.last_exit
        reaches = max(self._since, self._reaches, created or 0)
        # A start reaches the event log at once, or later on a busy node; a start since this read began may be missing.
        in_log = any(run.started > started - NANOS for run in runs) if started is not None else False
        since_then = started is not None and started > self._now and bool(runs)
        known = started is None or started < self._since or in_log or since_then
        if known or created is None:
            return history(runs, self._now, reaches)
        # The event log was lost, or does not reach back far enough. The engine still counts restarts, and knows how the
        # last run ended; the other runs are assumed to have ended the same way.
        hours, restarts = max((self._now - created) / NANOS, 60.0) / 3600, service.restarts or 0
        failed = last_exit is not None and last_exit.code not in (None, 0)
        return History(
            source="runtime",
            hours=round(hours, 3),
            starts=restarts + 1,
            failures=restarts + over if failed else 0,
            restarts_per_hour=round(restarts / hours, 2),
            exits=(last_exit,) if last_exit is not None else (),
        )


@dataclass(frozen=True, slots=True)
class _InPod:
    """What kubelet made a container for: namespace/pod/container, the pod's owner, and the container's attempts."""

    name: str
    workload: Workload | None
    attempts: Attempts


def _attempt_of(inspect: dict[str, Any]) -> int:
    text = _labels(inspect).get(_KUBERNETES_RESTARTS, "")
    return int(text) if text.isdigit() else 0


def _run_of(inspect: dict[str, Any]) -> Run | None:
    """The run of a container that is started only once; None if it never was."""
    state = inspect.get("State") or {}
    started = nanoseconds(state.get("StartedAt"))
    if started is None:
        return None
    ended, code = nanoseconds(state.get("FinishedAt")), int(state.get("ExitCode") or 0)
    if state.get("Running") or ended is None:
        return Run(started)
    return Run(started, ended, code, failed=code not in (0, SIGTERM))


def _config(inspect: dict[str, Any]) -> dict[str, Any]:
    return inspect.get("Config") or {}


def _labels(inspect: dict[str, Any]) -> dict[str, str]:
    return _config(inspect).get("Labels") or {}


def _only_listed(row: dict[str, Any]) -> dict[str, Any]:
    """An entry of the container list, in the format of an inspect answer."""
    return {
        "Id": row.get("Id"),
        "Name": next(iter(row.get("Names") or []), ""),
        "State": {"Status": row.get("State"), "Running": row.get("State") == "running"},
        "Config": {"Image": row.get("Image"), "Labels": row.get("Labels")},
    }

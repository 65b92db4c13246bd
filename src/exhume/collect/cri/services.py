"""The containers of a runtime that speaks CRI, as services: one for each container of a pod, however often it is made
anew."""

import contextlib
import json
import shlex
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.collect.container_owner import is_static, pod_owner
from exhume.collect.cri.attempts import Attempt, Attempts
from exhume.collect.cri.client import Cri, CriError
from exhume.collect.cri.log import log_tail
from exhume.collect.cri.manifests import manifest_of
from exhume.collect.node_root import NodeRoot
from exhume.collect.processes import cgroup_path
from exhume.collect.runs import Run
from exhume.collect.seen import Seen
from exhume.model.audit import Manager, Service

_NANOS = 10**9
_STATES = ("created", "running", "exited", "unknown")
_CREATED, _RUNNING, _EXITED = range(3)
_SIGTERM = 128 + 15
_MOST_COMMAND = 400
# A runtime that hangs over single containers is left after this long.
_PATIENCE_S = 20.0


def cri_services(socket: Path, *, root: NodeRoot | None = None, hours: float = 24.0, log_lines: int = 5) -> Seen:
    """Every container of every pod. A runtime that does not answer is a blind spot."""
    try:
        with Cri(socket) as runtime:
            return _Look(runtime, root or NodeRoot(), hours, log_lines).take()
    except CriError as error:
        if error.unknown:
            # Often a Docker's own, whose containers Docker tells.
            return Seen([], [f"what {socket} runs itself can't be seen: it speaks no CRI, or has it switched off"])
        return Seen([], [f"the pods of this node can't be seen: {error}"])


@dataclass(frozen=True, slots=True)
class _Pod:
    """What the sandbox around a container tells."""

    name: str | None = None
    owner: str = ""
    manifest: str | None = None
    made: int | None = None


class _Look:
    """One look at a runtime."""

    def __init__(self, runtime: Cri, root: NodeRoot, hours: float, log_lines: int) -> None:
        self._runtime, self._root, self._log_lines = runtime, root, log_lines
        self._now = time.time_ns()
        self._since = self._now - round(hours * 3600 * _NANOS)
        self._deadline = time.monotonic() + _PATIENCE_S
        self._hidden = 0
        self._images = {image.id: next(iter(image.repo_tags), "") for image in runtime.images()}

    def take(self) -> Seen:
        sandboxes = {sandbox.id: sandbox for sandbox in self._runtime.sandboxes()}
        rows: dict[tuple[str, str], list[Any]] = defaultdict(list)
        listed = self._runtime.containers()
        for container in listed:
            sandbox = sandboxes.get(container.pod_sandbox_id)
            # A pod whose sandbox was made anew is still the same pod.
            pod = sandbox.metadata.uid if sandbox is not None else container.pod_sandbox_id
            rows[pod, container.metadata.name].append(container)
        services = []
        for row in rows.values():
            row.sort(key=lambda container: (container.metadata.attempt, container.created_at))
            service = self._service(row, sandboxes.get(row[-1].pod_sandbox_id))
            if service is not None:
                services.append(service)
        spots = [f"the runtime told little of {self._hidden} of its {len(listed)} containers"] if self._hidden else []
        return Seen(sorted(services, key=lambda service: (service.name, service.id)), spots)

    def _service(self, row: list[Any], sandbox: Any | None) -> Service | None:
        told = [self._status(container.id) for container in row]
        newest = row[-1]
        if told[-1] is None:
            # Removed meanwhile.
            return None
        status, info = told[-1].status, _info(told[-1])
        pod = self._pod(sandbox)
        known = tuple(
            Attempt(each.metadata.attempt, each.created_at, _run(answer.status))
            for each, answer in zip(row, told, strict=True)
            if answer is not None
        )
        past = Attempts(known, pod.made).history(self._now, self._since)
        up = status.state == _RUNNING
        result = "" if up else _result(status)
        restarts = newest.metadata.attempt
        pid = int(info.get("pid") or 0) or None if up else None
        log = next((answer for answer in reversed(told) if answer is not None and answer.status.finished_at), told[-1])
        return Service(
            manager=Manager.CRI,
            id=newest.id,
            name=f"{pod.name}/{newest.metadata.name}" if pod.name else newest.metadata.name,
            state=_STATES[status.state] if status.state < len(_STATES) else "unknown",
            detail=": ".join(word for word in (status.reason, status.message) if word),
            result=result,
            pid=pid,
            started=status.started_at or None,
            age_s=round(max(0, self._now - status.started_at) / _NANOS, 3) if up and status.started_at else None,
            restarts=restarts,
            last_exit=next(iter(past.exits), None),
            cgroup=self._cgroup(pid, info),
            image=self._image(newest, status),
            pod=pod.name,
            owner=pod.owner,
            created=newest.created_at or None,
            fragment=pod.manifest,
            command=_command(info),
            log=self._log(log.status) if restarts or result not in ("", "success", "stopped") else (),
            history=past,
        )

    def _pod(self, sandbox: Any | None) -> _Pod:
        if sandbox is None:
            return _Pod()
        metadata, annotations = sandbox.metadata, dict(sandbox.annotations)
        name = f"{metadata.namespace}/{metadata.name}"
        manifest = manifest_of(self._root, metadata.name) if is_static(annotations) else None
        # A sandbox that was made anew is younger than the attempts are many.
        made = sandbox.created_at if metadata.attempt == 0 else None
        return _Pod(name, pod_owner(name, dict(sandbox.labels), annotations), manifest, made)

    def _status(self, container: str) -> Any | None:
        if time.monotonic() > self._deadline:
            self._hidden += 1
            return None
        try:
            return self._runtime.status(container)
        except CriError:
            self._hidden += 1
            return None

    def _cgroup(self, pid: int | None, info: dict[str, Any]) -> str | None:
        if pid is not None:
            with contextlib.suppress(OSError):
                return cgroup_path((self._root.host.proc / str(pid) / "cgroup").read_bytes())
        told = str(((info.get("runtimeSpec") or {}).get("linux") or {}).get("cgroupsPath") or "")
        # With systemd's driver it is no path but three words.
        return told if told.startswith("/") else None

    def _image(self, container: Any, status: Any) -> str | None:
        tags = (self._images.get(number) for number in (container.image_ref, status.image_ref, container.image.image))
        names = (*(tag for tag in tags if tag), status.image.image, container.image.image, container.image_ref)
        return next((name for name in names if name), None)

    def _log(self, status: Any) -> tuple[str, ...]:
        if not status.log_path:
            return ()
        try:
            return log_tail(self._root.file(status.log_path), self._log_lines)
        except OSError:
            return ()


def _run(status: Any) -> Run | None:
    """None for a container that was never started."""
    if not status.started_at:
        return None
    if status.state != _EXITED:
        return Run(status.started_at)
    failed = status.exit_code not in (0, _SIGTERM)
    return Run(status.started_at, status.finished_at or None, status.exit_code, failed=failed)


def _result(status: Any) -> str:
    if status.state == _CREATED:
        return ""
    if status.reason == "OOMKilled":
        return "oom-kill"
    if status.exit_code == 0:
        return "success"
    return "stopped" if status.exit_code == _SIGTERM else "exit-code"


def _info(answer: Any) -> dict[str, Any]:
    """What a runtime tells beyond the interface, in JSON: the process, what it was started with."""
    try:
        told = json.loads(answer.info.get("info", "{}"))
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _command(info: dict[str, Any]) -> str | None:
    words = ((info.get("runtimeSpec") or {}).get("process") or {}).get("args") or []
    return shlex.join(map(str, words))[:_MOST_COMMAND] or None

"""Services that run as containers of pods, from a runtime over the Container Runtime Interface (CRI)."""

import contextlib
import json
import re
import shlex
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exhume.collect.containers.cri import CREATED, EXITED, OOM_KILLED, RUNNING, Cri, CriError
from exhume.collect.containers.owner import Workload, is_static, workload_of
from exhume.collect.containers.runs import SIGTERM, Attempt, Attempts, Run, join_jobs, outcome
from exhume.collect.node_root import NodeRoot
from exhume.collect.processes import cgroup_of
from exhume.model.audit import Manager, Service, ServiceList
from exhume.model.clock import NANOS
from exhume.model.redaction import redact
from exhume.procfs.host import ProcFile, subdirectories

_TAIL_BYTES = 64 << 10
_MOST_LINE = 400
# Defaults: kubeadm's, and those of small distributions.
_USUAL = (
    "/etc/kubernetes/manifests",
    "/var/lib/rancher/k3s/agent/pod-manifests",
    "/var/lib/rancher/rke2/agent/pod-manifests",
)
_KUBELET = "/var/lib/kubelet/config.yaml"
_PATH = re.compile(r"^staticPodPath:\s*[\"']?([^\"'\s#]+)", re.MULTILINE)
_METADATA = re.compile(r"^metadata:[^\S\n]*(?:#.*)?\n((?:[ \t]+.*\n|[^\S\n]*\n|[^\S\n]*#.*\n)*)", re.MULTILINE)
_NAME = re.compile(r"^([ \t]+)name:\s*[\"']?([a-z0-9.-]+)", re.MULTILINE)
_MOST_BYTES = 1 << 20
_STATES = ("created", "running", "exited", "unknown")
_MOST_COMMAND = 400
_LOG_LINES = 5
# A runtime that hangs on individual containers is abandoned after this long.
_PATIENCE_S = 20.0


def log_tail(root: NodeRoot, name: str, lines: int) -> tuple[str, ...]:
    """The last lines of a container's log; none if the file does not exist. They hold whatever the container wrote:
    code that displays them must sanitise them."""
    found: list[str] = []
    part = ""
    for line in root.text(name, _TAIL_BYTES, from_end=True).split("\n"):
        text, is_whole = _of_docker(line) if line.startswith("{") else _of_runtime(line)
        part += text
        if is_whole:
            found.append(part.rstrip("\r\n")[:_MOST_LINE])
            part = ""
    if part:
        found.append(part[:_MOST_LINE])
    return tuple(line for line in found if line.strip())[-lines:]


def _of_runtime(line: str) -> tuple[str, bool]:
    """The text of a line in CRI's format, and whether the line ends there: <time> <stdout or stderr> <F for a full
    line, P for a partial one> <text>."""
    fields = line.split(" ", 3)
    if len(fields) < 4 or fields[1] not in ("stdout", "stderr"):
        return "", False
    return fields[3], not fields[2].startswith("P")


def _of_docker(line: str) -> tuple[str, bool]:
    """The same for a line of Docker's json-file driver, which dockershim and cri-dockerd leave the logs to. A line that
    exceeds 16 KiB is split, and only the last part ends with a newline."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        # Truncated at the beginning of what was read: it may be anything that the container wrote.
        return "", False
    text = entry.get("log") if isinstance(entry, dict) else None
    return (text, text.endswith("\n")) if isinstance(text, str) else ("", False)


def manifest_of(root: NodeRoot, pod: str) -> str | None:
    """The node's path of a static pod's manifest (by the pod's name without the namespace); None when none fits."""
    fitting = [
        (name, path)
        for directory in _manifest_directories(root)
        for path in _files(root, directory)
        # The node's name is appended to the pod's name.
        if (name := _name_in(root.text(path, _MOST_BYTES))) and pod.startswith(f"{name}-")
    ]
    # A name may begin with another pod's name.
    return max(fitting, key=lambda each: len(each[0]))[1] if fitting else None


def _manifest_directories(root: NodeRoot) -> tuple[str, ...]:
    """The directories of static pod manifests: kubelet's options take precedence over its configuration file."""
    options = _kubelet_options(root)
    ordered = options.get("pod-manifest-path")
    if ordered is None:
        configured = _PATH.search(root.text(options.get("config", _KUBELET), _MOST_BYTES))
        ordered = configured[1] if configured is not None else None
    return (ordered.rstrip("/"),) if ordered else _USUAL


def _kubelet_options(root: NodeRoot) -> dict[str, str]:
    """The options of the kubelet that runs on a node, `--name=value` or `--name value`; none if no kubelet runs."""
    proc = root.host.proc
    for pid in (name for name in subdirectories(proc) if name.isdigit()):
        if (ProcFile(proc / pid / "comm").read_or_none() or b"").strip() != b"kubelet":
            continue
        content = ProcFile(proc / pid / "cmdline").read_or_none() or b""
        args = content.decode("utf-8", "replace").rstrip("\0").split("\0")[1:]
        found: dict[str, str] = {}
        for place, each in enumerate(args):
            name, equals, value = each.removeprefix("--").partition("=")
            if each.startswith("--"):
                found[name] = value if equals else next(iter(args[place + 1 : place + 2]), "")
        return found
    return {}


def _name_in(manifest: str) -> str | None:
    """The name of the pod that a manifest describes: in YAML the least indented one below its metadata."""
    if manifest.lstrip().startswith("{"):
        try:
            return str(json.loads(manifest)["metadata"]["name"])
        except (ValueError, KeyError, TypeError):
            return None
    below = _METADATA.search(manifest + "\n")
    names = _NAME.findall(below[1]) if below is not None else []
    return min(names, key=lambda each: len(each[0]))[1] if names else None


def _files(root: NodeRoot, directory: str) -> list[str]:
    try:
        # kubelet ignores hidden files as well.
        return sorted(f"{directory}/{path.name}" for path in root.file(directory).iterdir() if path.name[0] != ".")
    except OSError:
        return []


def cri_restarts(sockets: Iterable[Path], name: str) -> int | None:
    """The restarts of a container, given as namespace/pod/container; None when no runtime has it. Raises CriError."""
    found: int | None = None
    for socket in sockets:
        with Cri(socket) as runtime:
            pods = {each.id: f"{each.metadata.namespace}/{each.metadata.name}" for each in runtime.sandboxes()}
            numbers = [
                each.metadata.attempt
                for each in runtime.containers()
                if f"{pods.get(each.pod_sandbox_id, '')}/{each.metadata.name}" == name
            ]
        if numbers:
            found = max(found or 0, *numbers)
    return found


def cri_services(socket: Path, *, root: NodeRoot | None = None, hours: float = 24.0) -> ServiceList:
    """Every container of every pod. A runtime that does not answer is a blind spot."""
    try:
        with Cri(socket) as runtime:
            return _RuntimeReader(runtime, root or NodeRoot(), hours).take()
    except CriError as error:
        if error.unknown:
            # Often this is Docker's own containerd, whose containers Docker reports.
            return ServiceList(
                [], [f"what {socket} runs itself can't be seen: it speaks no CRI, or has it switched off"]
            )
        return ServiceList([], [f"the pods of this node can't be seen: {error}"])


@dataclass(frozen=True, slots=True)
class _Pod:
    """The sandbox around a container."""

    name: str | None = None
    workload: Workload | None = None
    manifest: str | None = None
    made: int | None = None


class _RuntimeReader:
    """One reading of a runtime."""

    def __init__(self, runtime: Cri, root: NodeRoot, hours: float) -> None:
        self._runtime, self._root = runtime, root
        self._now = time.time_ns()
        self._since = self._now - round(hours * 3600 * NANOS)
        self._deadline = time.monotonic() + _PATIENCE_S
        self._hidden = 0
        self._images = {image.id: next(iter(image.repo_tags), "") for image in runtime.images()}

    def take(self) -> ServiceList:
        sandboxes = {sandbox.id: sandbox for sandbox in self._runtime.sandboxes()}
        rows: dict[tuple[str, str], list[Any]] = defaultdict(list)
        listed = self._runtime.containers()
        for container in listed:
            sandbox = sandboxes.get(container.pod_sandbox_id)
            # A pod whose sandbox was recreated is still the same pod.
            pod = sandbox.metadata.uid if sandbox is not None else container.pod_sandbox_id
            rows[pod, container.metadata.name].append(container)
        services = []
        for row in rows.values():
            row.sort(key=lambda container: (container.metadata.attempt, container.created_at))
            service = self._service(row, sandboxes.get(row[-1].pod_sandbox_id))
            if service is not None:
                services.append(service)
        services = join_jobs(services, self._now)
        spots = (
            [f"the runtime reported little about {self._hidden} of its {len(listed)} containers"]
            if self._hidden
            else []
        )
        return ServiceList(sorted(services, key=lambda service: (service.name, service.id)), spots)

    def _service(self, row: list[Any], sandbox: Any | None) -> Service | None:
        answers = [self._status(container.id) for container in row]
        newest = row[-1]
        if answers[-1] is None:
            # Removed in the meantime.
            return None
        status, info = answers[-1].status, _info(answers[-1])
        pod = self._pod(sandbox)
        known = tuple(
            Attempt(each.metadata.attempt, each.created_at, _run(answer.status))
            for each, answer in zip(row, answers, strict=True)
            if answer is not None
        )
        past = Attempts(known, pod.made).history(self._now, self._since)
        up = status.state == RUNNING
        is_over = status.state not in (CREATED, RUNNING)
        result = outcome(status.exit_code, oom=status.reason == OOM_KILLED) if is_over else ""
        restarts = newest.metadata.attempt
        args = ((info.get("runtimeSpec") or {}).get("process") or {}).get("args") or []
        pid = int(info.get("pid") or 0) or None if up else None
        ended = [answer for answer in answers if answer is not None and answer.status.finished_at]
        log = ended[-1] if ended else answers[-1]
        logged = log.status.log_path and (restarts or result not in ("", "success", "stopped"))
        return Service(
            manager=Manager.CRI,
            id=newest.id,
            name=f"{pod.name}/{newest.metadata.name}" if pod.name else newest.metadata.name,
            state=_STATES[status.state] if status.state < len(_STATES) else "unknown",
            detail=": ".join(word for word in (status.reason, status.message) if word),
            result=result,
            pid=pid,
            started=status.started_at or None,
            age_s=round(max(0, self._now - status.started_at) / NANOS, 3) if up and status.started_at else None,
            restarts=restarts,
            last_exit=next(iter(past.exits), None),
            cgroup=self._cgroup(pid, info),
            image=self._image(newest, status),
            pod=pod.name,
            owner=str(pod.workload or ""),
            workload=pod.workload.reference if pod.workload is not None else None,
            created=newest.created_at or None,
            fragment=pod.manifest,
            command=shlex.join(redact([str(each) for each in args]))[:_MOST_COMMAND] or None,
            log=log_tail(self._root, log.status.log_path, _LOG_LINES) if logged else (),
            history=past,
        )

    def _pod(self, sandbox: Any | None) -> _Pod:
        if sandbox is None:
            return _Pod()
        metadata, annotations = sandbox.metadata, dict(sandbox.annotations)
        name = f"{metadata.namespace}/{metadata.name}"
        manifest = manifest_of(self._root, metadata.name) if is_static(annotations) else None
        # A recreated sandbox is younger than the number of attempts suggests.
        made = sandbox.created_at if metadata.attempt == 0 else None
        return _Pod(name, workload_of(name, dict(sandbox.labels), annotations), manifest, made)

    def _status(self, container: str) -> Any | None:
        if time.monotonic() <= self._deadline:
            with contextlib.suppress(CriError):
                return self._runtime.status(container)
        self._hidden += 1
        return None

    def _cgroup(self, pid: int | None, info: dict[str, Any]) -> str | None:
        if running := cgroup_of(self._root.host, pid):
            return running
        path = str(((info.get("runtimeSpec") or {}).get("linux") or {}).get("cgroupsPath") or "")
        # With the systemd driver it is slice:prefix:name instead of a path.
        return path if path.startswith("/") else None

    def _image(self, container: Any, status: Any) -> str | None:
        tags = (self._images.get(number) for number in (container.image_ref, status.image_ref, container.image.image))
        names = (*(tag for tag in tags if tag), status.image.image, container.image.image, container.image_ref)
        return next((name for name in names if name), None)


def _run(status: Any) -> Run | None:
    """The run of a container; None if it was never started."""
    if not status.started_at:
        return None
    if status.state != EXITED:
        return Run(status.started_at)
    failed = status.exit_code not in (0, SIGTERM)
    return Run(status.started_at, status.finished_at or None, status.exit_code, failed=failed)


def _info(answer: Any) -> dict[str, Any]:
    """The runtime's additions to the interface, in JSON: the process, and its arguments."""
    try:
        info = json.loads(answer.info.get("info", "{}"))
    except ValueError:
        return {}
    return info if isinstance(info, dict) else {}

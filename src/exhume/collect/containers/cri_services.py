"""Services that run as containers of pods, from a runtime over the Container Runtime Interface (CRI, gRPC).

kubelet makes a new container for each restart and keeps the last few: the attempts of a pod's container.
"""

import contextlib
import json
import os
import re
import shlex
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from exhume.collect.containers.owner import is_static, pod_owner
from exhume.collect.containers.runs import SIGTERM, Run, age_pattern, history, outcome
from exhume.collect.node_root import NodeRoot
from exhume.collect.processes import cgroup_of
from exhume.model.audit import Exit, History, Manager, Service, ServiceList
from exhume.model.clock import NANOS
from exhume.model.errors import ExhumeError
from exhume.model.redaction import redact

_TIMEOUT_S = 5.0
# A node full of containers comes in one answer.
_MOST_ANSWER = 64 << 20
# Before version 1 the same messages went by another name.
_PACKAGES = ("runtime.v1", "runtime.v1alpha2")
_SHORTEST_S = 60.0
_LAST_EXITS = 10
# Few ended containers are kept: with this many attempts two of them make a pattern.
_MANY_ATTEMPTS = 3
_TAIL_BYTES = 64 << 10
_MOST_LINE = 400
# Where nothing is said: kubeadm's, and those of small distributions.
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
_CREATED, _RUNNING, _EXITED = range(3)
_MOST_COMMAND = 400
# A runtime that hangs over single containers is left after this long.
_PATIENCE_S = 20.0


@lru_cache(maxsize=1)
def messages() -> dict[str, Any]:
    """The classes of all messages, by their names without the package. They come out of a compiled description instead
    of generated Python code: any version of protobuf will do."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    described = descriptor_pb2.FileDescriptorSet.FromString(
        files("exhume.collect.containers").joinpath("runtime.protoset").read_bytes()
    )
    pool = descriptor_pool.DescriptorPool()
    found = {}
    for file in described.file:
        pool.Add(file)
        for message in file.message_type:
            descriptor = pool.FindMessageTypeByName(f"{file.package}.{message.name}")
            found[message.name] = message_factory.GetMessageClass(descriptor)
    return found


class CriError(ExhumeError):
    """The runtime could not be asked, or refused. `unknown` is True where it does not speak CRI at all."""

    def __init__(self, message: str, *, unknown: bool = False) -> None:
        super().__init__(message)
        self.unknown = unknown


class Cri:
    """A runtime by its socket, to be used in a `with`. Whatever goes wrong is a CriError."""

    def __init__(self, socket: Path, packages: tuple[str, ...] = _PACKAGES) -> None:
        # It would write its own lines to the terminal; and it takes a while to load.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        import grpc

        self._socket = socket
        self._channel = grpc.insecure_channel(
            # Its addresses are escaped, paths are not.
            f"unix:{quote(os.fspath(socket))}",
            # Servers written in Go refuse the name that is made of a path.
            options=(("grpc.default_authority", "localhost"), ("grpc.max_receive_message_length", _MOST_ANSWER)),
        )
        for self._package in packages:
            try:
                self.version = self._ask("RuntimeService", "Version")
            except CriError as error:
                if error.unknown:
                    continue
                self._channel.close()
                raise
            return
        self._channel.close()
        raise CriError(f"{socket} does not speak CRI", unknown=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def sandboxes(self) -> list[Any]:
        """Its pods (PodSandbox)."""
        return list(self._ask("RuntimeService", "ListPodSandbox").items)

    def containers(self) -> list[Any]:
        """Its containers, those that ended as well (Container)."""
        return list(self._ask("RuntimeService", "ListContainers").containers)

    def status(self, container: str) -> Any:
        """All that it knows of a container (ContainerStatusResponse)."""
        return self._ask("RuntimeService", "ContainerStatus", container_id=container, verbose=True)

    def images(self) -> list[Any]:
        """Its images (Image)."""
        return list(self._ask("ImageService", "ListImages").images)

    def _ask(self, service: str, method: str, **fields: Any) -> Any:
        import grpc

        known = messages()
        call = self._channel.unary_unary(
            f"/{self._package}.{service}/{method}",
            request_serializer=known[f"{method}Request"].SerializeToString,
            response_deserializer=known[f"{method}Response"].FromString,
        )
        try:
            return call(known[f"{method}Request"](**fields), timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            unknown = error.code() is grpc.StatusCode.UNIMPLEMENTED
            raise CriError(f"{self._socket} does not answer: {error.details()}", unknown=unknown) from None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One container of the row; times are wall nanoseconds."""

    number: int
    created: int
    run: Run | None


@dataclass(frozen=True, slots=True)
class Attempts:
    """Those that the runtime still has, oldest first. `pod_made` is when the pod came to this node, None where that is
    not known (the pod's sandbox was made again, so that the numbers go back further than it)."""

    known: Sequence[Attempt] = field(default_factory=tuple)
    pod_made: int | None = None

    def history(self, now: int, since: int) -> History:
        """How they fared. Attempts that are no longer there are taken to have ended like those that are."""
        runs = [attempt.run for attempt in self.known if attempt.run is not None]
        last = self.known[-1].number
        if last == len(self.known) - 1:
            return history(runs, now, max(since, self.known[0].created))
        # Numbers count from the first on; the time that they took is known where all fall into the time looked at,
        # or by the oldest one that is left.
        if self.pod_made is not None and self.pod_made >= since:
            first, began = 0, self.pod_made
        else:
            first, began = self.known[0].number, self.known[0].created
        span_s = max(_SHORTEST_S, (now - began) / NANOS)
        ended = [run for run in runs if run.ended is not None]
        failed = sum(run.failed for run in ended)
        gone = last - first + 1 - len(self.known)
        failures = failed + (gone if ended and failed == len(ended) else 0)
        return History(
            source="runtime",
            hours=round(span_s / 3600, 4),
            starts=last - first + 1,
            failures=failures,
            restarts_per_hour=round((last - first) * 3600 / span_s, 2),
            exits=tuple(Exit(run.ended, run.code) for run in reversed(ended[-_LAST_EXITS:])),
            age_pattern=age_pattern([run.lasted_s for run in ended], fewest=2 if last >= _MANY_ATTEMPTS else 3),
        )


def log_tail(root: NodeRoot, name: str, lines: int) -> tuple[str, ...]:
    """The last lines that it wrote; none where there is no such file. They hold whatever the container wrote: who shows
    them has to make them harmless."""
    said: list[str] = []
    part = ""
    for line in root.text(name, _TAIL_BYTES, from_end=True).split("\n"):
        # <time> <stdout or stderr> <F for a full line, P for a part of one> <text>
        fields = line.split(" ", 3)
        if len(fields) < 4 or fields[1] not in ("stdout", "stderr"):
            continue
        part += fields[3]
        if not fields[2].startswith("P"):
            said.append(part.rstrip("\r")[:_MOST_LINE])
            part = ""
    if part:
        said.append(part[:_MOST_LINE])
    return tuple(line for line in said if line.strip())[-lines:]


def manifest_of(root: NodeRoot, pod: str) -> str | None:
    """What the node calls the manifest of a static pod (its name without the namespace); None where none fits."""
    ordered = _PATH.search(root.text(_KUBELET, _MOST_BYTES))
    fitting = [
        (name, path)
        for directory in ((ordered[1].rstrip("/"),) if ordered is not None else _USUAL)
        for path in _files(root, directory)
        # The pod's name has the node's behind it.
        if (name := _name_in(root.text(path, _MOST_BYTES))) and pod.startswith(f"{name}-")
    ]
    # A name may begin with another pod's.
    return max(fitting, key=lambda each: len(each[0]))[1] if fitting else None


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
        # Kubelet passes over hidden files as well.
        return sorted(f"{directory}/{path.name}" for path in root.file(directory).iterdir() if path.name[0] != ".")
    except OSError:
        return []


def cri_restarts(sockets: Iterable[Path], name: str) -> int:
    """Of a container that goes by namespace/pod/container; what is not there is not made again. Raises CriError."""
    found = 0
    for socket in sockets:
        with Cri(socket) as runtime:
            pods = {each.id: f"{each.metadata.namespace}/{each.metadata.name}" for each in runtime.sandboxes()}
            numbers = [
                each.metadata.attempt
                for each in runtime.containers()
                if f"{pods.get(each.pod_sandbox_id, '')}/{each.metadata.name}" == name
            ]
        found = max(found, *numbers, 0)
    return found


def cri_services(socket: Path, *, root: NodeRoot | None = None, hours: float = 24.0, log_lines: int = 5) -> ServiceList:
    """Every container of every pod. A runtime that does not answer is a blind spot."""
    try:
        with Cri(socket) as runtime:
            return _RuntimeReader(runtime, root or NodeRoot(), hours, log_lines).take()
    except CriError as error:
        if error.unknown:
            # Often Docker's own containerd, whose containers Docker reports.
            return ServiceList(
                [], [f"what {socket} runs itself can't be seen: it speaks no CRI, or has it switched off"]
            )
        return ServiceList([], [f"the pods of this node can't be seen: {error}"])


@dataclass(frozen=True, slots=True)
class _Pod:
    """The sandbox around a container."""

    name: str | None = None
    owner: str = ""
    manifest: str | None = None
    made: int | None = None


class _RuntimeReader:
    """One reading of a runtime."""

    def __init__(self, runtime: Cri, root: NodeRoot, hours: float, log_lines: int) -> None:
        self._runtime, self._root, self._log_lines = runtime, root, log_lines
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
            # A pod whose sandbox was made again is still the same pod.
            pod = sandbox.metadata.uid if sandbox is not None else container.pod_sandbox_id
            rows[pod, container.metadata.name].append(container)
        services = []
        for row in rows.values():
            row.sort(key=lambda container: (container.metadata.attempt, container.created_at))
            service = self._service(row, sandboxes.get(row[-1].pod_sandbox_id))
            if service is not None:
                services.append(service)
        spots = [f"the runtime said little of {self._hidden} of its {len(listed)} containers"] if self._hidden else []
        return ServiceList(sorted(services, key=lambda service: (service.name, service.id)), spots)

    def _service(self, row: list[Any], sandbox: Any | None) -> Service | None:
        answers = [self._status(container.id) for container in row]
        newest = row[-1]
        if answers[-1] is None:
            # Removed meanwhile.
            return None
        status, info = answers[-1].status, _info(answers[-1])
        pod = self._pod(sandbox)
        known = tuple(
            Attempt(each.metadata.attempt, each.created_at, _run(answer.status))
            for each, answer in zip(row, answers, strict=True)
            if answer is not None
        )
        past = Attempts(known, pod.made).history(self._now, self._since)
        up = status.state == _RUNNING
        is_over = status.state not in (_CREATED, _RUNNING)
        result = outcome(status.exit_code, oom=status.reason == "OOMKilled") if is_over else ""
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
            owner=pod.owner,
            created=newest.created_at or None,
            fragment=pod.manifest,
            command=shlex.join(redact([str(each) for each in args]))[:_MOST_COMMAND] or None,
            log=log_tail(self._root, log.status.log_path, self._log_lines) if logged else (),
            history=past,
        )

    def _pod(self, sandbox: Any | None) -> _Pod:
        if sandbox is None:
            return _Pod()
        metadata, annotations = sandbox.metadata, dict(sandbox.annotations)
        name = f"{metadata.namespace}/{metadata.name}"
        manifest = manifest_of(self._root, metadata.name) if is_static(annotations) else None
        # A sandbox that was made again is younger than the attempts are many.
        made = sandbox.created_at if metadata.attempt == 0 else None
        return _Pod(name, pod_owner(name, dict(sandbox.labels), annotations), manifest, made)

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
        # With systemd's driver it is no path but slice:prefix:name.
        return path if path.startswith("/") else None

    def _image(self, container: Any, status: Any) -> str | None:
        tags = (self._images.get(number) for number in (container.image_ref, status.image_ref, container.image.image))
        names = (*(tag for tag in tags if tag), status.image.image, container.image.image, container.image_ref)
        return next((name for name in names if name), None)


def _run(status: Any) -> Run | None:
    """None for a container that was never started."""
    if not status.started_at:
        return None
    if status.state != _EXITED:
        return Run(status.started_at)
    failed = status.exit_code not in (0, SIGTERM)
    return Run(status.started_at, status.finished_at or None, status.exit_code, failed=failed)


def _info(answer: Any) -> dict[str, Any]:
    """What a runtime adds to the interface, in JSON: the process, what it was started with."""
    try:
        info = json.loads(answer.info.get("info", "{}"))
    except ValueError:
        return {}
    return info if isinstance(info, dict) else {}

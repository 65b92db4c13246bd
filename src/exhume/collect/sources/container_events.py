"""Starts and ends of containers, with their names: the id in a cgroup's path cannot be resolved once the container is
gone.

Docker streams events over its socket; CRI runtimes are polled for their lists every few seconds. Nothing waits for
either, so a daemon that hangs blocks nothing. The containers of a pod have one name for all their attempts,
namespace/pod/container, with the pod's owner next to it.
"""

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exhume.collect.containers.cri import EXITED, OOM_KILLED, PACKAGES, RUNNING, CriConnection
from exhume.collect.containers.docker import StreamedResponse, docker_socket
from exhume.collect.containers.owner import (
    POD_UID,
    is_sandbox,
    name_in_pod,
    workload_of,
    workload_of_sandbox,
)
from exhume.collect.node_root import NodeRoot
from exhume.collect.source import NOTHING, Pace, TickRows, event_rows
from exhume.collect.sources.pod_owners import PodOwners
from exhume.model.clock import NANOS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.tables import Events
from exhume.procfs.host import Host

# Without a runtime: how often to check whether it is there by now.
_LOOK_EVERY_S = 5.0
# As a fraction of a core: behind another root, each check resolves every link of every path.
_LOOK_SHARE = 0.0001
# Names are recorded again, so that they outlive the oldest rows of a recording with a short retention.
_LIST_EVERY_S = 12 * 3600.0
_MOST_ROWS = 256
# The maximum delay of an event.
_LATEST_NS = 600 * NANOS
# How many owners of pods are remembered.
_MOST_PODS = 4096
_KINDS = {"start": "container-start", "die": "container-die", "oom": "container-oom"}
_SEEN = "container-seen"
_MESSAGES = {"start": "started", "die": "ended with code {}", "oom": "ran out of memory"}


class DockerEventSource:
    """Rows of the events table (container-start, container-die, container-oom; container-seen for running
    containers)."""

    name = "docker"

    def __init__(self, socket_path: Path | None = None, *, pod_owners: PodOwners | None = None) -> None:
        self._given, self._of_api = socket_path, pod_owners or PodOwners()
        self._events: StreamedResponse | None = None
        self._list: StreamedResponse | None = None
        self._look, self._list_again = Pace(_LOOK_EVERY_S), Pace(_LIST_EVERY_S)
        # The owners of the pods that kubelet runs through Docker, by uid.
        self._owners: dict[str, str] = {}
        path = docker_socket(socket_path)
        if path is not None and path.exists():
            try:
                StreamedResponse(path, "/_ping").close()
            except PermissionError:
                remedy = "run as root, or put this user into the group of that file"
                raise SourceUnavailable(self.name, f"{path} can't be opened", remedy) from None
            except OSError:
                # Not there yet; try again later.
                return

    def read(self, tick: Tick) -> TickRows:
        if self._events is None and self._look.due(tick.end):
            self._look.done(tick.end)
            wanted = json.dumps({"type": ["container"], "event": list(_KINDS)})
            self._events = self._ask("/events", since=tick.wall // NANOS, filters=wanted)
        if self._events is None:
            return NOTHING
        if self._list is None and self._list_again.due(tick.end):
            self._list_again.done(tick.end)
            self._list = self._ask("/containers/json")
        return event_rows([*self._listed(tick), *self._happened(tick)][:_MOST_ROWS])

    def close(self) -> None:
        for answer in (self._events, self._list):
            if answer is not None:
                answer.close()
        self._events = self._list = None

    def _ask(self, question: str, **query: str | int) -> StreamedResponse | None:
        path = docker_socket(self._given)
        try:
            return StreamedResponse(path, question, **query) if path is not None else None
        except OSError:
            return None

    def _happened(self, tick: Tick) -> list[Events]:
        assert self._events is not None
        lines, ended = self._events.lines()
        if ended:
            # The daemon stopped, or was replaced by another.
            self._events.close()
            self._events = None
        return [row for line in lines if (row := self._event(line, tick)) is not None]

    def _listed(self, tick: Tick) -> list[Events]:
        if self._list is None or not self._list.receive():
            return []
        body = self._list.body
        self._list.close()
        self._list = None
        with contextlib.suppress(ValueError):
            listed = json.loads(body)
            for each in listed:
                self._learn_owner(each.get("Labels") or {})
            return [row for each in listed if (row := self._seen(each, tick)) is not None]
        return []

    def _event(self, line: bytes, tick: Tick) -> Events | None:
        try:
            event = json.loads(line)
        except ValueError:
            return None
        action, actor = str(event.get("Action", "")), event.get("Actor") or {}
        # These include all labels of the container.
        known = actor.get("Attributes") or {}
        self._learn_owner(known)
        if action not in _KINDS or not actor.get("ID") or is_sandbox(known):
            return None
        code, moment = str(known.get("exitCode")), event.get("timeNano")
        what = self._described(actor["ID"], known.get("name"), known.get("image"), known)
        row = what.event(self.name, _KINDS[action], _MESSAGES[action].format(code))
        # Docker uses the wall clock.
        row.time = _moment(moment, tick) if isinstance(moment, int) else tick.start
        row.value = float(code) if action == "die" and code.isdigit() else None
        return row

    def _seen(self, container: dict[str, Any], tick: Tick) -> Events | None:
        names, labels = container.get("Names") or [""], container.get("Labels") or {}
        if not container.get("Id") or is_sandbox(labels):
            return None
        what = self._described(container["Id"], names[0].lstrip("/"), container.get("Image"), labels)
        row = what.event(self.name, _SEEN, "runs")
        row.time = tick.start
        return row

    def _described(self, number: str, name: str | None, image: str | None, labels: Mapping[str, str]) -> "_Container":
        uid = labels.get(POD_UID)
        return _Container(
            number, name_in_pod(labels) or name, image, uid, self._of_api.of(uid) or self._owners.get(uid or "")
        )

    def _learn_owner(self, labels: Mapping[str, str]) -> None:
        if is_sandbox(labels) and (owner := workload_of_sandbox(labels)) is not None:
            if len(self._owners) >= _MOST_PODS:
                self._owners.clear()
            self._owners[labels.get(POD_UID, "")] = owner.reference


@dataclass(frozen=True, slots=True)
class _Container:
    """A container as events describe it: its id, name and image, and its pod's uid and owner."""

    id: str
    name: str | None = None
    image: str | None = None
    pod: str | None = None
    owner: str | None = None

    def event(self, source: str, kind: str, message: str) -> Events:
        severity = "warning" if kind == _KINDS["oom"] else "info"
        text = f"container {self.name or self.id[:12]}{f' (image {self.image})' if self.image else ''} {message}"
        event = Events(0, source, kind, severity, text)
        event.container, event.container_name, event.image = self.id, self.name or None, self.image
        if self.pod:
            event.pod, event.pod_name = self.pod, (self.name or "").rpartition("/")[0] or None
            event.owner = self.owner
        return event


def _moment(wall: int, tick: Tick) -> int:
    """Convert a wall-clock time to the recording's clock; within bounds, as the wall clock may have been set since."""
    return max(tick.end - _LATEST_NS, min(tick.end - (tick.wall - wall), tick.end))


# kubelet requests the same list once a second (pkg/kubelet/pleg/generic.go, relist).
_ASK_EVERY_NS = 5 * NANOS
# Rounds take at most a thousandth of a core.
_PAUSE_PER_COST = 1000
# How long to wait for an answer.
_PATIENCE_NS = 10 * NANOS
# When to retry a socket on which no runtime speaks CRI, or which Docker serves.
_ASK_ANYWAY_NS = 600 * NANOS
# How many containers are queried one by one in a round.
_MOST_STATUSES = 32
# The runtime name of dockershim and cri-dockerd: Docker's own events cover the same containers.
_DOCKER = "docker"


class CriEventSource:
    """The same rows for the containers of CRI runtimes. A container that was started and removed between two lists is
    missed; kubelet keeps the last ended attempt of each."""

    name = "cri"

    def __init__(self, host: Host, socket_path: Path | None = None, *, pod_owners: PodOwners | None = None) -> None:
        self._host, self._given, self._of_api = host, socket_path, pod_owners or PodOwners()
        self._look = Pace(_LOOK_EVERY_S, _LOOK_SHARE)
        self._runtimes: dict[Path, _Runtime] = {}
        for path in self._sockets():
            try:
                CriConnection(path).close()
            except PermissionError:
                raise SourceUnavailable(self.name, f"{path} can't be opened", "run as root") from None
            except OSError:
                # Not there yet; try again later.
                continue

    def read(self, tick: Tick) -> TickRows:
        if self._look.due(tick.end):
            for path in self._sockets():
                self._runtimes.setdefault(path, _Runtime(path, self._of_api))
            self._look.done(tick.end)
        rows = [row for runtime in self._runtimes.values() for row in runtime.read(tick)]
        return event_rows(rows[:_MOST_ROWS])

    def close(self) -> None:
        for runtime in self._runtimes.values():
            runtime.hang_up()
        self._runtimes = {}

    def _sockets(self) -> tuple[Path, ...]:
        if self._given is not None:
            return (self._given,)
        if here := NodeRoot().cri:
            return here
        # In a container, the node's own files are reached through init's root, if we may look there.
        return () if _sees_as_init(self._host) else NodeRoot(self._host.proc / "1/root").cri


def _sees_as_init(host: Host) -> bool:
    """Whether init has our root and mounts: then nothing else can be found through its root."""
    try:
        same = (host.proc / "1/ns/mnt").readlink() == (host.proc / "self/ns/mnt").readlink()
        return same and (host.proc / "1/root").samefile("/")
    except OSError:
        return False


@dataclass(slots=True)
class _Followed:
    """A container in the last list, and its state there."""

    state: int
    listed: Any


@dataclass(slots=True)
class _Runtime:
    """One runtime, polled in rounds: for its version (once), its list, then details of new entries."""

    path: Path
    of_api: PodOwners
    next_round: int = 0
    cost: int = 0
    seen_again: Pace = field(default_factory=lambda: Pace(_LIST_EVERY_S))
    package: int = 0
    is_known: bool = False
    silent_until: int = 0
    began: int = 0
    connection: CriConnection | None = None
    questions: dict[int, str] = field(default_factory=dict)
    # By id; None before the first list.
    followed: dict[str, _Followed] | None = None
    pods: dict[str, Any] = field(default_factory=dict)
    # What happened to a container, until the runtime has returned details.
    pending: dict[str, tuple[str, ...]] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)

    def read(self, tick: Tick) -> list[Events]:
        """The events of a round that has finished."""
        if self.connection is None and tick.end < max(self.next_round, self.silent_until):
            return []
        began = time.thread_time_ns()
        rows = self._advance(tick)
        self.cost += time.thread_time_ns() - began
        if self.connection is None:
            self.next_round = tick.end + max(_ASK_EVERY_NS, self.cost * _PAUSE_PER_COST)
            self.cost = 0
        return rows

    def _advance(self, tick: Tick) -> list[Events]:
        if self.connection is None:
            self._begin(tick)
            return []
        for number, answer in self.connection.receive().items():
            if number in self.questions:
                self._take(self.questions.pop(number), answer, tick)
        if self.questions and self.connection is not None and tick.end < self.began + _PATIENCE_NS:
            return []
        rows = self._report(tick) if self.followed is not None and self.is_known else []
        self.hang_up()
        return rows

    def hang_up(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        self.questions.clear()

    def _begin(self, tick: Tick) -> None:
        try:
            self.connection = CriConnection(self.path, PACKAGES[self.package])
            self.began = tick.end
            self._ask("ListContainers" if self.is_known else "Version")
        except OSError:
            self.hang_up()

    def _ask(self, method: str, container: str = "") -> None:
        if self.connection is not None:
            fields = {"container_id": container} if container else {}
            self.questions[self.connection.ask(method, **fields)] = container or method

    def _take(self, question: str, answer: Any, tick: Tick) -> None:
        try:
            if question == "Version":
                self._identify(answer, tick)
            elif answer is None:
                pass
            elif question == "ListContainers":
                self._compare(answer.containers)
            elif question == "ListPodSandbox":
                self.pods = {sandbox.id: sandbox for sandbox in answer.items}
            else:
                self.answers[question] = answer.status
        except OSError:
            self.hang_up()

    def _identify(self, answer: Any, tick: Tick) -> None:
        if answer is None:
            # It may know the messages only by their older name, or does not speak CRI at all.
            self.package = (self.package + 1) % len(PACKAGES)
            self.silent_until = 0 if self.package else tick.end + _ASK_ANYWAY_NS
        elif answer.runtime_name == _DOCKER:
            self.silent_until = tick.end + _ASK_ANYWAY_NS
        else:
            self.is_known = True
            self._ask("ListContainers")

    def _compare(self, listed: Any) -> None:
        """Find what is new in a list, and request details."""
        before, self.followed = self.followed, {each.id: _Followed(each.state, each) for each in listed}
        if before is not None:
            for number, now in self.followed.items():
                known = before.get(number)
                happened = _happened(known.state if known is not None else None, now.state)
                if happened:
                    self.pending[number] = happened
            for number, known in before.items():
                if number not in self.followed and known.state == RUNNING:
                    # Already removed: when and how it ended can no longer be known.
                    self.pending[number], self.followed[number] = ("die",), _Followed(EXITED, known.listed)
        for number in list(self.pending)[:_MOST_STATUSES]:
            self._ask("ContainerStatus", number)
        if any(each.listed.pod_sandbox_id not in self.pods for each in self.followed.values()):
            self._ask("ListPodSandbox")

    def _report(self, tick: Tick) -> list[Events]:
        assert self.followed is not None
        rows = []
        if self.seen_again.due(tick.end):
            running = {number: each for number, each in self.followed.items() if each.state == RUNNING}
            for number, each in running.items():
                if number in self.pending:
                    continue
                row = self._described(number, each.listed, None).event(CriEventSource.name, _SEEN, "runs")
                row.time = tick.start
                rows.append(row)
            self.seen_again.done(tick.end)
        for number, happened in self.pending.items():
            known = self.followed.get(number)
            if known is not None:
                rows += self._happened(number, known.listed, happened, tick)
        self.pending.clear()
        self.answers.clear()
        return sorted(rows, key=lambda row: row.time)

    def _happened(self, number: str, listed: Any, happened: tuple[str, ...], tick: Tick) -> list[Events]:
        status = self.answers.get(number)
        what = self._described(number, listed, status)
        if status is not None and status.reason == OOM_KILLED and "die" in happened:
            happened = (*happened[:-1], "oom", "die")
        rows = []
        for action in happened:
            code = status.exit_code if status is not None and action == "die" else None
            message = _MESSAGES[action].format(code) if code is not None or action != "die" else "ended"
            row = what.event(CriEventSource.name, _KINDS[action], message)
            row.value = float(code) if code is not None else None
            moment = 0 if status is None else status.started_at if action == "start" else status.finished_at
            if action == "start" and status is not None and status.finished_at:
                # containerd records the start time after the start has finished, so a container that exits at once ends
                # before it.
                moment = min(moment, status.finished_at)
            row.time = _moment(moment, tick) if moment else tick.start
            rows.append(row)
        return rows

    def _described(self, number: str, listed: Any, status: Any | None) -> _Container:
        sandbox, labels = self.pods.get(listed.pod_sandbox_id), dict(listed.labels)
        image = (status.image.image if status is not None else "") or listed.image.image or None
        if sandbox is not None:
            pod, uid = f"{sandbox.metadata.namespace}/{sandbox.metadata.name}", sandbox.metadata.uid
            owner = self.of_api.of(uid) or workload_of(pod, sandbox.labels, sandbox.annotations).reference
            return _Container(number, f"{pod}/{listed.metadata.name}", image, uid, owner)
        return _Container(number, name_in_pod(labels) or listed.metadata.name, image, labels.get(POD_UID))


def _happened(before: int | None, now: int) -> tuple[str, ...]:
    """What happened to a container between two lists (None: it was not in the first)."""
    started = now in (RUNNING, EXITED) and before not in (RUNNING, EXITED)
    return (("start",) if started else ()) + (("die",) if now == EXITED and before != EXITED else ())

"""The child process that talks to the Kubernetes API: it reads a job as JSON on stdin and writes the result to stdout.

Only this process loads the client, which takes 20 MB and 0.2 s. It is started when there is something to report.
"""

import json
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx2
import msgspec
from lightkube import Client
from lightkube.core.exceptions import ApiError, ConfigError
from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event, Node
from lightkube.types import PatchType

from exhume.collect.sources.pod_owners import PodOwner
from exhume.kubernetes.conditions import QUIET, ConditionType
from exhume.kubernetes.names import NameReader, labels_of
from exhume.kubernetes.taint import TAINT_KEY, ZONE_LABEL, may_have_taint, taint_added
from exhume.model.clock import NANOS

TIMEOUT_S = 5.0
# Limit for all requests of a job together, which also covers a server that trickles bytes.
ALARM_S = 25
ATTEMPTS = 3
COMPONENT = "exhume"
FORBIDDEN, NOT_FOUND, CONFLICT, TOO_MANY = 403, 404, 409, 429
DENIED = (401, FORBIDDEN)
# A denial lasts until a person changes the permissions, so there is no need to retry often.
DENIED_RETRY_S = 300.0


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of the job (`conditions`, `events`, `taint`, `names`) that failed."""

    part: str
    text: str
    retry: bool
    retry_after_s: float = 0.0


@dataclass(slots=True)
class JobResult:
    """The result of a job, and the conditions as the API has them now. `pods` are newly found ones, `pods_left` is the
    number left for the next job; `labels` are None if they were not read."""

    problems: list[Problem] = field(default_factory=list)
    conditions: dict[str, dict[str, Any]] = field(default_factory=dict)
    events_done: list[str] = field(default_factory=list)
    tainted: bool | None = None
    labels: dict[str, str] | None = None
    pods: list[PodOwner] = field(default_factory=list)
    pods_left: int = 0
    names_done: bool = False


class Reporter:
    """Applies a job to the API: the node's conditions, events and taint."""

    def __init__(self, client: "Client", node: str) -> None:
        self._client, self._name = client, node
        self.result = JobResult()

    def run(self, job: Mapping[str, Any]) -> JobResult:
        """Run all parts of a job; a failed part does not prevent the others, unless the API is unreachable."""
        parts: list[tuple[str, Callable[[], None]]] = [
            ("conditions", lambda: self._conditions(job["conditions"])),
            ("events", lambda: self._events(job["events"])),
            ("taint", lambda: self._taint(job["taint"])),
            ("names", lambda: self._names(job["names"])),
        ]
        for name, part in parts:
            if not self._attempt(name, part):
                break
        return self.result

    def _attempt(self, part: str, action: Callable[[], None]) -> bool:
        """Run a part, with retries on conflict; returns whether the API is reachable."""
        for attempt in range(ATTEMPTS):
            try:
                action()
                return True
            except ApiError as error:
                if error.status.code == CONFLICT and attempt < ATTEMPTS - 1:
                    continue
                self._note_refusal(part, error.status.code or 0, error.status.message or "", error.response)
                return True
            except httpx2.HTTPStatusError as error:
                self._note_refusal(part, error.response.status_code, error.response.reason_phrase, error.response)
                return True
            except httpx2.HTTPError as error:
                text = f"the Kubernetes API can't be reached: {str(error) or type(error).__name__}"
                self.result.problems.append(Problem(part, text, retry=True))
                return False
            # The response is not from the API (a proxy's error page); lightkube expects a Content-Type in errors.
            except (msgspec.MsgspecError, ValueError, KeyError, TypeError) as error:
                text = f"what answers is not the Kubernetes API: {type(error).__name__}"
                self.result.problems.append(Problem(part, text, retry=True))
                return False
        return True

    def _note_refusal(self, part: str, code: int, message: str, response: httpx2.Response | None) -> None:
        after = _retry_after(response)
        if code in DENIED:
            verb = "read" if part == "names" else "change"
            may_not = f"the service account may not {verb} {part} ({code}: {message[:200]})"
            text = f"{may_not}; grant what docs/kubernetes-conditions.md lists"
            self.result.problems.append(Problem(part, text, part == "conditions", max(after, DENIED_RETRY_S)))
        elif code == NOT_FOUND and part == "conditions":
            text = f"the cluster has no node {self._name!r} (404); set --node-name to the cluster's name for it"
            self.result.problems.append(Problem(part, text, True, max(after, DENIED_RETRY_S)))
        else:
            # 404: an event that expired between two requests.
            retry = code in (NOT_FOUND, CONFLICT, TOO_MANY, 408) or code >= 500
            self.result.problems.append(Problem(part, f"the API answered {code}: {message[:200]}", retry, after))

    def _conditions(self, wanted: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Patch the conditions. A condition whose state is not known here is kept if the API has it set, and cleared
        otherwise."""
        node = self._client.get(Node, self._name)
        self.result.labels = labels_of(node)
        there = {each.type: each for each in (node.status.conditions if node.status else None) or ()}
        now = datetime.now(UTC)
        patch = []
        for type_ in ConditionType:
            state, old = wanted.get(type_), there.get(type_)
            if state is None and old is not None and old.status == "True":
                since = int(_utc(old.lastTransitionTime or now).timestamp()) * NANOS
                state = {"status": True, "reason": old.reason or "", "message": old.message or "", "since": since}
            elif state is None:
                reason, message = QUIET[type_]
                state = {"status": False, "reason": reason, "message": message, "since": _nanos(now)}
            status = "True" if state["status"] else "False"
            moved = _moment(state["since"])
            if old is not None and old.status == status and old.lastTransitionTime is not None:
                moved = _utc(old.lastTransitionTime)
            self.result.conditions[type_] = dict(state)
            patch.append(
                {
                    "type": str(type_),
                    "status": status,
                    "reason": state["reason"],
                    "message": state["message"],
                    "lastHeartbeatTime": _stamp(now),
                    "lastTransitionTime": _stamp(moved),
                }
            )
        # A strategic merge by type (k8s.io/api/core/v1, NodeStatus: patchMergeKey=type) leaves the kubelet's conditions
        # alone.
        self._client.patch(Node.Status, self._name, {"status": {"conditions": patch}}, patch_type=PatchType.STRATEGIC)

    def _events(self, specs: list[Mapping[str, Any]]) -> None:
        for spec in specs:
            if spec["name"] not in self.result.events_done:
                self._event(spec)
                self.result.events_done.append(spec["name"])

    def _event(self, spec: Mapping[str, Any]) -> None:
        """Create an event, or increase its count if it exists. Uses core/v1, which every server has and every tool
        shows."""
        at, namespace = _moment(spec["at"]), spec["namespace"]
        target = ObjectReference(kind=spec["kind"], name=spec["object_name"], uid=spec["uid"], apiVersion="v1")
        if spec["kind"] != "Node":
            target.namespace = namespace
        event = Event(
            metadata=ObjectMeta(name=spec["name"], namespace=namespace),
            involvedObject=target,
            reason=spec["reason"],
            message=spec["message"],
            type="Warning",
            count=1,
            firstTimestamp=at,
            lastTimestamp=at,
            source=EventSource(component=COMPONENT, host=self._name),
            reportingComponent=COMPONENT,
            reportingInstance=self._name,
        )
        try:
            self._client.create(event, namespace=namespace)
        except ApiError as error:
            # The namespace may be terminating, along with the pod.
            if error.status.code == NOT_FOUND and spec["kind"] != "Node":
                return
            if error.status.code != CONFLICT:
                raise
            old = self._client.get(Event, spec["name"], namespace=namespace)
            again = {"count": (old.count or 1) + 1, "lastTimestamp": _stamp(at), "message": spec["message"]}
            self._client.patch(Event, spec["name"], again, namespace=namespace, patch_type=PatchType.MERGE)

    def _taint(self, wanted: Mapping[str, Any] | None) -> None:
        if wanted is None:
            return
        node = self._client.get(Node, self._name)
        taints = list((node.spec.taints if node.spec else None) or ())
        self.result.tainted = tainted = taint_added(taints) is not None
        if wanted["wanted"] is None or wanted["wanted"] == tainted:
            return
        if not wanted["wanted"]:
            self._set_taints(node, [each for each in taints if each.key != TAINT_KEY])
            self.result.tainted = False
            return
        if not self._has_room(node, wanted["share"], joins=True):
            text = f"no taint: {wanted['share']:.0%} of the nodes of its zone have it, or the zone is too small"
            self.result.problems.append(Problem("taint", text, retry=False))
            return
        added = {"key": TAINT_KEY, "effect": wanted["effect"], "value": "true", "timeAdded": _stamp(datetime.now(UTC))}
        self._set_taints(node, [*taints, added])
        # Two nodes may have checked at the same time: both check again, and the later one removes its taint.
        node = self._client.get(Node, self._name)
        if not self._has_room(node, wanted["share"], joins=False):
            self._set_taints(
                node, [each for each in ((node.spec.taints if node.spec else None) or ()) if each.key != TAINT_KEY]
            )
            return
        self.result.tainted = True

    def _names(self, wanted: Mapping[str, Any] | None) -> None:
        if wanted is None:
            return
        reader = NameReader(self._client, self._name)
        try:
            self.result.pods_left = reader.read(frozenset(wanted["known"]))
            self.result.names_done = True
        finally:
            # What was found before an error is still useful.
            self.result.pods = reader.found

    def _has_room(self, node: Node, share: float, *, joins: bool) -> bool:
        zone = ((node.metadata.labels if node.metadata else None) or {}).get(ZONE_LABEL)
        nodes = list(self._client.list(Node, labels={ZONE_LABEL: zone} if zone else None, chunk_size=200))
        tainted = [
            (str(each.metadata.name), added)
            for each in nodes
            if each.metadata and each.spec and (added := taint_added(each.spec.taints or ())) is not None
        ]
        if joins:
            tainted.append((self._name, "9999"))
        return may_have_taint(self._name, tainted, len(nodes), share)

    def _set_taints(self, node: Node, taints: list[Any]) -> None:
        """Replace the node's taints. The list is replaced as a whole, so the version that was read must be current:
        otherwise the API answers 409, and the part is retried."""
        version = node.metadata.resourceVersion if node.metadata else None
        body = {"metadata": {"resourceVersion": version}, "spec": {"taints": msgspec.to_builtins(taints)}}
        self._client.patch(Node, self._name, body, patch_type=PatchType.MERGE)


def _retry_after(response: httpx2.Response | None) -> float:
    text = response.headers.get("Retry-After", "") if response is not None else ""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _moment(nanos: int) -> datetime:
    return datetime.fromtimestamp(nanos // NANOS, UTC)


def _nanos(moment: datetime) -> int:
    return int(moment.timestamp()) * NANOS


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def main() -> None:
    signal.alarm(ALARM_S)
    job = json.load(sys.stdin)
    try:
        client = Client(field_manager=COMPONENT, timeout=httpx2.Timeout(TIMEOUT_S))
    except (ConfigError, OSError, ValueError) as error:
        text = f"no access to the Kubernetes API: {error}; run in a pod with a service account, or set KUBECONFIG"
        result = JobResult([Problem("conditions", text, retry=True, retry_after_s=DENIED_RETRY_S)])
    else:
        with client:
            result = Reporter(client, job["node"]).run(job)
    sys.stdout.write(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()

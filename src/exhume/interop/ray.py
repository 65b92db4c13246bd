"""Read failures of jobs, actors and nodes, and the nodes they ran on, from the state API of a running Ray cluster: the
HTTP API of its dashboard, using the standard library. Responses are untrusted: bounded in size and time, with values of
any type."""

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from exhume.model.clock import MILLIS
from exhume.model.errors import ExhumeError, UsageError
from exhume.model.job_event import ACTOR_FAILED, JOB_FAILED, NODE_FAILED, JobEvent

MAX_BYTES = 16 << 20
PATIENCE_S = 10.0
# The maximum that the state API lists (python/ray/util/state/common.py, RAY_MAX_LIMIT_FROM_API_SERVER).
LIMIT = 10_000
_NODES = f"/api/v0/nodes?detail=true&limit={LIMIT}"
# Reasons of actors that were ended on request (src/ray/protobuf/common.proto, ActorDiedErrorContext.Reason).
_INTENDED = ("OUT_OF_SCOPE", "REF_DELETED", "RAY_KILL")
# exit_actor(), and Ray's own supervisors of jobs: their exit type (common.proto, WorkerExitType) appears only in the
# message.
_INTENDED_EXIT = re.compile(r"Worker exit type: INTENDED_")


class RayError(ExhumeError):
    """The state API can't be reached, or its responses are not Ray's."""


class RayFailure(NamedTuple):
    """A failure with its identity in Ray, which is the same on every read. `nodes` are Ray's ids of the nodes on which
    it happened, as far as known; `job` is Ray's id of a failed job, whose tasks may have run on more nodes."""

    id: str
    event: JobEvent
    nodes: frozenset[str] = frozenset()
    job: str = ""

    def events(self, hosts: Mapping[str, str]) -> list[JobEvent]:
        """One event per node, with the node's name; a single event without a node if no name is known."""
        names = sorted({hosts[node] for node in self.nodes if node in hosts})
        return [replace(self.event, node=name) for name in names] or [self.event]


@dataclass(frozen=True, slots=True)
class RayState:
    """The state API at an address such as http://127.0.0.1:8265."""

    address: str

    def __post_init__(self) -> None:
        """Raises UsageError."""
        parts = urlsplit(self.address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--address {self.address}: write it as http://HOST:PORT, as ray start prints it")

    def failures(self) -> list[RayFailure]:
        """All failures that Ray still knows. Raises RayError."""
        jobs = self._get("/api/jobs/")
        actors = self._get(f"/api/v0/actors?detail=true&limit={LIMIT}")
        nodes = self._get(_NODES)
        return [*job_failures(jobs, actors), *actor_failures(actors, jobs), *node_failures(nodes)]

    def hosts(self) -> dict[str, str]:
        """Node names by Ray's node id. Raises RayError."""
        return host_names(self._get(_NODES), self._get_optional("/nodes?view=summary"))

    def with_tasks(self, failure: RayFailure) -> RayFailure:
        """Return the failure with the nodes of its job's tasks added, as far as Ray still knows them."""
        if not failure.job:
            return failure
        query = {"limit": LIMIT, "filter_keys": "job_id", "filter_predicates": "=", "filter_values": failure.job}
        answer = self._get_optional(f"/api/v0/tasks?{urlencode(query)}")
        return failure._replace(nodes=failure.nodes | nodes_of(failure.job, answer))

    def _get_optional(self, path: str) -> Any:
        """Get a response that is only supplementary; None if there is none."""
        try:
            return self._get(path)
        except RayError:
            return None

    def _get(self, path: str) -> Any:
        where = self.address.rstrip("/")
        # No redirects and no proxies: the response must come from the address that the user gave.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
        request = urllib.request.Request(f"{where}{path}")
        if token := _token():
            request.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            with opener.open(request, timeout=PATIENCE_S) as answer:
                content = answer.read(MAX_BYTES + 1)
        except urllib.error.HTTPError as error:
            if error.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                wanted = "set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, as for ray itself"
                raise RayError(
                    f"{where} refuses {'this' if token else 'to answer without a'} token: {wanted}"
                ) from None
            raise RayError(f"{where} answered {error.code} to {path}: is it the dashboard of Ray 2?") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise RayError(f"Ray can't be reached at {where} ({reason}); name its dashboard with --address") from None
        if len(content) > MAX_BYTES:
            raise RayError(f"the answer of {where} to {path} is larger than {MAX_BYTES >> 20} MiB")
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise RayError(f"{where} does not answer like Ray to {path}; name its dashboard with --address") from None


def _token() -> str:
    """The cluster's token, if it has one, from the places that Ray's own programs use (since Ray 2.52)."""
    if token := os.environ.get("RAY_AUTH_TOKEN"):
        return token.strip()
    path = os.environ.get("RAY_AUTH_TOKEN_PATH") or os.path.expanduser("~/.ray/auth_token")  # noqa: PTH111  no HOME is no error
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    return token if token.isprintable() else ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def job_failures(jobs: Any, actors: Any) -> Iterator[RayFailure]:
    """Job failures from `/api/jobs/`, a list of jobs, each with its end in milliseconds. A job ran on the nodes of its
    driver and its actors."""
    for job in _objects(jobs):
        if job.get("status") != "FAILED":
            continue
        name, id_ = _job_name(job), _text(job, "job_id")
        attributes = {
            "job": name,
            "entrypoint": _text(job, "entrypoint"),
            "exit_code": _text(job, "driver_exit_code"),
            "error": _text(job, "error_type"),
        }
        text = f"Ray job {name} failed: {_text(job, 'message') or 'no message'}"
        event = _event(JOB_FAILED, text, _millis(job.get("end_time")), attributes)
        nodes = _known(_text(job, "driver_node_id")) | nodes_of(id_, actors)
        yield RayFailure(f"job {name}", event, nodes, id_)


def actor_failures(actors: Any, jobs: Any) -> Iterator[RayFailure]:
    """Actor failures from `/api/v0/actors`. Ray doesn't report when an actor died; an actor ended on purpose is not a
    failure. The job has the same name as in its own failure."""
    names = {_text(job, "job_id"): _job_name(job) for job in _objects(jobs)}
    for actor in _objects(_listed(actors)):
        if actor.get("state") != "DEAD":
            continue
        reason, message = _death(actor.get("death_cause"))
        if reason in _INTENDED or not message or _INTENDED_EXIT.search(message):
            continue
        id_, name = _text(actor, "actor_id"), _text(actor, "name") or _text(actor, "class_name")
        attributes = {
            "actor": id_,
            "class": _text(actor, "class_name"),
            "job": names.get(_text(actor, "job_id"), _text(actor, "job_id")),
            "ray_node": _text(actor, "node_id"),
            "pid": _text(actor, "pid"),
        }
        event = _event(ACTOR_FAILED, f"Ray actor {name} died: {message}", None, attributes)
        yield RayFailure(f"actor {id_}", event, _known(_text(actor, "node_id")))


def node_failures(answer: Any) -> Iterator[RayFailure]:
    """Node failures from `/api/v0/nodes`."""
    for node in _objects(_listed(answer)):
        message = _text(node, "state_message")
        # The message of a node that was drained or stopped in an orderly way says so.
        if node.get("state") != "DEAD" or message.startswith("Expected termination"):
            continue
        id_, address = _text(node, "node_id"), _text(node, "node_ip")
        text = f"Ray node {address} died: {message or 'no message'}"
        attributes = {"ray_node": id_, "address": address}
        event = _event(NODE_FAILED, text, _millis(node.get("end_time_ms")), attributes)
        yield RayFailure(f"node {id_}", event, _known(id_))


def nodes_of(job: str, answer: Any) -> frozenset[str]:
    """Ray's ids of the nodes of a job's actors or tasks, from `/api/v0/actors` or `/api/v0/tasks`."""
    mine = (each for each in _objects(_listed(answer)) if job and _text(each, "job_id") == job)
    return _known(*(_text(each, "node_id") for each in mine))


def host_names(nodes: Any, summary: Any) -> dict[str, str]:
    """Node names by node id, from `/api/v0/nodes` and `/nodes?view=summary`: the name the node was started with (`ray
    start --node-name`), otherwise its host name, which only the summary has, otherwise its address, which is Ray's
    default name."""
    data = summary.get("data") if isinstance(summary, Mapping) else None
    listed = _objects(data.get("summary") if isinstance(data, Mapping) else None)
    raylets = [each["raylet"] for each in listed if isinstance(each.get("raylet"), Mapping)]
    hosts = {_text(each, "nodeId"): _text(each, "nodeManagerHostname") for each in raylets}
    found = {}
    for node in _objects(_listed(nodes)):
        id_, name, address = (_text(node, key) for key in ("node_id", "node_name", "node_ip"))
        given = name if name != address else ""
        found[id_] = given or hosts.get(id_) or address
    return {id_: name for id_, name in found.items() if id_ and name}


def _job_name(job: Mapping[str, Any]) -> str:
    return _text(job, "submission_id") or _text(job, "job_id")


def _known(*ids: str) -> frozenset[str]:
    return frozenset(id_ for id_ in ids if id_)


def _death(cause: Any) -> tuple[str, str]:
    """The reason and the message of whichever context there is; empty if there is none."""
    if not isinstance(cause, Mapping):
        return "", ""
    for context in cause.values():
        if isinstance(context, Mapping):
            message = _text(context, "error_message") or _text(context, "formatted_exception_string")
            return _text(context, "reason"), message or "no message"
    return "", ""


def _listed(answer: Any) -> Any:
    """The list inside a response of the state API: `data.result.result`."""
    for name in ("data", "result", "result"):
        answer = answer.get(name) if isinstance(answer, Mapping) else None
    return answer


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else iter(())


def _text(of: Mapping[str, Any], name: str) -> str:
    value = of.get(name)
    return "" if value is None else str(value)


def _millis(value: Any) -> int | None:
    """Wall nanoseconds; None if there is no time."""
    return value * MILLIS if isinstance(value, int) and 0 < value < 1 << 42 else None


def _event(kind: str, text: str, at: int | None, attributes: Mapping[str, str]) -> JobEvent:
    return JobEvent(kind, text, at, attributes={name: value for name, value in attributes.items() if value})

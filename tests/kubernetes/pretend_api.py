"""A small server with the part of the Kubernetes API that is used, and faults on request.

It keeps nodes, events, pods and their owners, merges conditions by type as the real one does, checks resource versions,
and knows who may do what. A fault is a function of the handler that answers instead; faults are used one after the
other.
"""

import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

Fault = Callable[[http.server.BaseHTTPRequestHandler], None]
NODE = re.compile(r"/api/v1/nodes/([^/]+)(/status)?$")
OWNER = re.compile(r"/apis/([^/]+)/([^/]+)/namespaces/([^/]+)/([a-z]+)/([^/]+)$")
EVENTS = re.compile(r"/api/v1/namespaces/([^/]+)/events(?:/([^/]+))?$")


@dataclass
class PretendApi:
    """What the server has, and how it behaves."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    pods: list[dict[str, Any]] = field(default_factory=list)
    owners: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    denied: set[str] = field(default_factory=set)
    requests: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add_node(self, name: str, zone: str = "a", taints: list[dict[str, str]] | None = None) -> None:
        self.nodes[name] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "resourceVersion": "1",
                "labels": {"topology.kubernetes.io/zone": zone, "node.kubernetes.io/instance-type": "m5.large"},
            },
            "spec": {"taints": taints or []},
            "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]},
        }

    def add_pod(self, name: str, uid: str, owner: str = "", node: str = "node-1", **metadata: Any) -> None:
        """A pod (namespace/name); its owner is given as `apps/v1 ReplicaSet web-1`."""
        namespace, _, own = name.partition("/")
        known = {"name": own, "namespace": namespace, "uid": uid, "ownerReferences": references(owner), **metadata}
        self.pods.append({"metadata": known, "spec": {"nodeName": node, "containers": []}})

    def add_owner(self, name: str, resource: str, owner: str = "") -> None:
        """An owner of pods (namespace/name) and what owns it."""
        namespace, _, own = name.partition("/")
        metadata = {"name": own, "namespace": namespace, "ownerReferences": references(owner)}
        self.owners[namespace, resource, own] = {"metadata": metadata}

    def conditions(self, name: str = "node-1") -> dict[str, tuple[str, str]]:
        """Status and reason by type."""
        found = self.nodes[name]["status"]["conditions"]
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    def kubeconfig(self, path: Path) -> Path:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": {"token": "secret-token"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(config))
        return path

    def answer(self, method: str, path: str, query: str, body: Any) -> tuple[int, Any]:
        """The answer to a request."""
        if found := NODE.match(path):
            return self._node(method, found[1], bool(found[2]), body)
        if path == "/api/v1/nodes":
            zone = re.search(r"zone(?:%3D|=)(\w+)", query)
            items = [
                node
                for node in self.nodes.values()
                if zone is None or node["metadata"]["labels"]["topology.kubernetes.io/zone"] == zone[1]
            ]
            return 200, {"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "1"}, "items": items}
        if path == "/api/v1/pods":
            return self._pods(query)
        if found := OWNER.match(path):
            group, version, namespace, resource, name = found.groups()
            if f"GET {resource}" in self.denied:
                return status(403, f"cannot get resource {resource}")
            known = self.owners.get((namespace, resource, name))
            kind = {"replicasets": "ReplicaSet", "jobs": "Job", "rayclusters": "RayCluster"}[resource]
            found_owner = {"apiVersion": f"{group}/{version}", "kind": kind, **(known or {})}
            if known is None and "." in group:
                # A kind that the server does not know.
                return 404, "404 page not found"
            return (200, found_owner) if known is not None else status(404, "not found")
        if found := EVENTS.match(path):
            return self._event(method, found[1], found[2], body)
        return status(404, "no such path")

    def _pods(self, query: str) -> tuple[int, Any]:
        """The pods of one node, in pages."""
        if "LIST pods" in self.denied:
            return status(403, "cannot list resource pods")
        asked = parse_qs(query)
        node = asked["fieldSelector"][0].removeprefix("spec.nodeName=")
        mine = [pod for pod in self.pods if pod["spec"]["nodeName"] == node]
        start, limit = int(asked.get("continue", ["0"])[0]), int(asked["limit"][0])
        metadata = {"resourceVersion": "1"}
        if start + limit < len(mine):
            metadata["continue"] = str(start + limit)
        page = mine[start : start + limit]
        return 200, {"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": page}

    def _node(self, method: str, name: str, of_status: bool, body: Any) -> tuple[int, Any]:
        kind = "nodes/status" if of_status else "nodes"
        if f"{method} {kind}" in self.denied:
            return status(403, f"cannot {method} resource {kind}")
        if name not in self.nodes:
            return status(404, f"nodes {name!r} not found")
        node = self.nodes[name]
        if method == "PATCH":
            version = (body.get("metadata") or {}).get("resourceVersion")
            if version is not None and version != node["metadata"]["resourceVersion"]:
                return status(409, "the object has been modified")
            node["metadata"]["resourceVersion"] = str(int(node["metadata"]["resourceVersion"]) + 1)
            for new in (body.get("status") or {}).get("conditions", ()):
                kept = [each for each in node["status"]["conditions"] if each["type"] != new["type"]]
                node["status"]["conditions"] = [*kept, new]
            if "taints" in (body.get("spec") or {}):
                node["spec"]["taints"] = body["spec"]["taints"]
        return 200, node

    def _event(self, method: str, namespace: str, name: str | None, body: Any) -> tuple[int, Any]:
        if f"{method} events" in self.denied:
            return status(403, f"cannot {method} resource events")
        if method == "POST":
            # core/v1: an event lives where its object does; a node's in default (validation/events.go).
            there = body["involvedObject"].get("namespace") or "default"
            if there != namespace:
                return status(422, "involvedObject.namespace: does not match event.namespace")
            key = namespace, body["metadata"]["name"]
            if key in self.events:
                return status(409, "already exists")
            self.events[key] = body
            return 201, body
        assert name is not None
        if (namespace, name) not in self.events:
            return status(404, "not found")
        if method == "PATCH":
            self.events[namespace, name].update(body)
        return 200, self.events[namespace, name]


def references(owner: str) -> list[dict[str, Any]]:
    """The owner that looks after an object, behind one that doesn't."""
    if not owner:
        return []
    version, kind, name = owner.split()
    bystander = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "c"}
    return [bystander, {"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": True}]


def status(code: int, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message, "code": code}


def failing(code: int, body: bytes | None = None, kind: str = "application/json", **headers: str) -> Fault:
    """Answer with an error."""
    content = json.dumps(status(code, "made by the test")[1]).encode() if body is None else body

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        if kind:
            handler.send_header("Content-Type", kind)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def broken(handler: http.server.BaseHTTPRequestHandler) -> None:
    """Close the connection in the middle of an answer."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
    handler.close_connection = True


def serve(api: PretendApi, port: int = 0) -> http.server.ThreadingHTTPServer:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            parts = urlsplit(self.path)
            with api.lock:
                api.requests.append((self.command, parts.path))
                fault = api.faults.pop(0) if api.faults else None
                if fault is None:
                    code, answer = api.answer(self.command, parts.path, parts.query, body)
            if fault is not None:
                fault(self)
                return
            if isinstance(answer, str):
                failing(code, answer.encode(), "text/plain")(self)
            else:
                failing(code, json.dumps(answer).encode())(self)

        do_GET = do_POST = do_PATCH = _handle

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    api.url = f"http://127.0.0.1:{server.server_port}"
    return server


@contextmanager
def served(node: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendApi]:
    """A server with one node, and a kubeconfig for it in the environment."""
    state = PretendApi()
    state.add_node(node)
    with answering(state):
        monkeypatch.setenv("KUBECONFIG", str(state.kubeconfig(directory / "kubeconfig")))
        yield state


@contextmanager
def answering(state: PretendApi, port: int = 0) -> Iterator[None]:
    server = serve(state, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

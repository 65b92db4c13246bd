"""The containers of pods where both Docker and a CRI socket in front of it have them, as dockershim is."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.collect.socket_server import answering

from exhume.collect.containers.cri import messages
from exhume.collect.containers.services import container_services
from exhume.collect.node_root import NodeRoot
from exhume.model.audit import Manager

POD, PLAIN = "ab" * 32, "cd" * 32
LABELS = {
    "io.kubernetes.pod.name": "web-0",
    "io.kubernetes.pod.namespace": "shop",
    "io.kubernetes.pod.uid": "u-1",
    "io.kubernetes.container.name": "web",
}


class Docker(BaseHTTPRequestHandler):
    """A container of a pod, and one that a person started."""

    def do_GET(self) -> None:
        states: dict[str, Any] = {
            number: {"Id": number, "Name": "/n", "State": {"Status": "running"}, "Config": {"Labels": labels}}
            for number, labels in ((POD, LABELS), (PLAIN, {}))
        }
        body: Any = list(states.values()) if self.path.startswith("/containers/json") else []
        body = next((state for number, state in states.items() if number in self.path), body)
        content = b"" if self.path.startswith("/events") else json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


class Shim(grpc.GenericRpcHandler):
    """The same container of the pod, over CRI."""

    def service(self, details: Any) -> Any:
        known, method = messages(), details.method.rpartition("/")[2]
        pod = known["PodSandboxMetadata"](name="web-0", namespace="shop", uid="u-1")
        own = {"metadata": known["ContainerMetadata"](name="web"), "state": 1}
        answers = {
            "Version": {"runtime_name": "docker"},
            "ListPodSandbox": {"items": [known["PodSandbox"](id="s-1", metadata=pod)]},
            "ListContainers": {"containers": [known["Container"](id=POD, pod_sandbox_id="s-1", **own)]},
            "ContainerStatus": {"status": known["ContainerStatus"](id=POD, started_at=1, **own)},
            "ListImages": {},
        }
        answer = known[f"{method}Response"](**answers[method]).SerializeToString()
        return grpc.unary_unary_rpc_method_handler(lambda request, context: answer)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[NodeRoot]:
    (tmp_path / "var/run").mkdir(parents=True)
    with answering(tmp_path / "var/run/docker.sock", Docker):
        yield NodeRoot(tmp_path)


def names(root: NodeRoot) -> list[tuple[Manager, str, str]]:
    seen = [(manager, each) for manager, found in container_services(root) for each in found.services]
    return [(manager, service.id, service.name) for manager, service in seen]


def test_docker_alone_has_them_by_their_labels(root: NodeRoot) -> None:
    assert names(root) == [(Manager.DOCKER, PLAIN, "n"), (Manager.DOCKER, POD, "shop/web-0/web")]


def test_where_a_cri_socket_has_them_docker_does_not_report_them_again(root: NodeRoot) -> None:
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Shim(),))
    server.add_insecure_port(f"unix:{root.path}/var/run/dockershim.sock")
    server.start()
    try:
        assert names(root) == [(Manager.DOCKER, PLAIN, "n"), (Manager.CRI, POD, "shop/web-0/web")]
    finally:
        server.stop(None)

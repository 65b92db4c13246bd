"""Names of containers, from a Docker that answers on a socket and from kubelet's links."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar

import pytest
from tests.collect.socket_server import answering

from exhume.collect.containers.docker import docker_socket
from exhume.collect.containers.names import ContainerName, container_names

HERE, GONE = "a1" * 32, "b2" * 32
NO_LOGS = Path("/nonexistent")


class Docker(BaseHTTPRequestHandler):
    """Answers as the Engine API does."""

    asked: ClassVar[list[str]] = []
    status = 200
    listed: ClassVar[list[dict[str, object]]] = []
    removed: ClassVar[list[tuple[str, dict[str, str]]]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path.startswith("/events"):
            body = "\n".join(
                json.dumps({"Actor": {"ID": number, "Attributes": {**known, "image": "agent:1"}}})
                for number, known in self.removed
            )
        else:
            body = json.dumps(self.listed)
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "docker.sock"
    Docker.asked, Docker.status = [], 200
    Docker.listed = [{"Id": HERE, "Names": ["/web"], "Image": "nginx:1.27"}]
    Docker.removed = [(GONE, {"name": "ecs-agent"}), (HERE, {"name": "an-older-name"})]
    with answering(path, Docker):
        yield path


def test_docker_names_what_it_has_and_what_it_removed_lately(docker: Path) -> None:
    found = container_names(docker, 1_700_000_000, NO_LOGS)
    assert found.blind_spots == []
    assert found.names == {
        HERE: ContainerName("web", "nginx:1.27", "docker"),
        GONE: ContainerName("ecs-agent", "agent:1", "docker"),
    }
    assert any(path.startswith("/events?since=1700000000&until=") for path in Docker.asked)


def test_containers_of_a_pod_have_the_names_of_the_cluster(docker: Path) -> None:
    """dockershim names them `k8s_<container>_<pod>_<namespace>_<uid>_<attempt>`; its labels have the parts."""
    pod = {"io.kubernetes.pod.name": "web-0", "io.kubernetes.pod.namespace": "shop"}
    sandbox = {**pod, "io.kubernetes.container.name": "POD", "io.kubernetes.docker.type": "podsandbox"}
    app = {**pod, "io.kubernetes.container.name": "app", "io.kubernetes.docker.type": "container"}
    Docker.listed = [
        {"Id": HERE, "Names": ["/k8s_POD_web-0_shop_uid_0"], "Image": "pause:3", "Labels": sandbox},
        {"Id": "c3" * 32, "Names": ["/k8s_app_web-0_shop_uid_1"], "Image": "shop:2", "Labels": app},
    ]
    Docker.removed = [
        (GONE, {**app, "name": "k8s_app_web-0_shop_uid_0"}),
        ("d4" * 32, {**sandbox, "name": "k8s_POD_web-0_shop_uid_9"}),
    ]
    found = {number[:2]: each.name for number, each in container_names(docker, 0, NO_LOGS).names.items()}
    assert found == {"a1": "shop/web-0/POD", "b2": "shop/web-0/app", "c3": "shop/web-0/app", "d4": "shop/web-0/POD"}


def test_a_docker_that_refuses_is_a_blind_spot(docker: Path) -> None:
    Docker.status = 403
    found = container_names(docker, 0, NO_LOGS)
    assert found.names == {}
    assert "403" in found.blind_spots[0]


def test_a_socket_without_an_answer_is_a_blind_spot(tmp_path: Path) -> None:
    found = container_names(tmp_path / "no.sock", 0, NO_LOGS)
    assert "No such file" in found.blind_spots[0]


def test_kubelets_links_name_pod_and_container(tmp_path: Path) -> None:
    (tmp_path / f"coredns-5d78c9869d-abcde_kube-system_core-dns-{HERE}.log").touch()
    (tmp_path / "something-else.log").touch()
    found = container_names(None, 0, tmp_path)
    assert found.names == {HERE: ContainerName("kube-system/coredns-5d78c9869d-abcde/core-dns", None, "kubernetes")}


@pytest.mark.parametrize(
    ("host", "expected"), [("unix:///run/user/1/docker.sock", Path("/run/user/1/docker.sock")), ("tcp://1.2.3.4", None)]
)
def test_docker_host_names_the_socket(monkeypatch, host: str, expected: Path | None) -> None:
    monkeypatch.setenv("DOCKER_HOST", host)
    assert docker_socket() == expected
    assert docker_socket(Path("/given")) == Path("/given")

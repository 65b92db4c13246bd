"""Docker's stream of events: read without waiting, reported with names, found again when the daemon comes back."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from exhume.collect.sources.container_events import CriEventSource, DockerEventSource
from exhume.collect.sources.pod_owners import PodOwner, PodOwners
from exhume.model.clock import NANOS, Tick
from exhume.procfs.host import Host

NUMBER = "ab" * 32
WALL = 1_780_000_000 * NANOS


class Daemon:
    """The other end of the socket: what was asked, and what to answer."""

    def __init__(self, path: Path) -> None:
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(path))
        self.listening.listen(8)
        self.listening.settimeout(2)
        self.open: dict[str, socket.socket] = {}

    def accept(self) -> str:
        connection, _ = self.listening.accept()
        question = connection.recv(4096).decode().split()[1].partition("?")[0]
        self.open[question] = connection
        return question

    def say(self, question: str, body: bytes) -> None:
        self.open[question].sendall(body)

    def close(self) -> None:
        for each in (*self.open.values(), self.listening):
            each.close()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    own = Daemon(tmp_path / "docker.sock")
    yield own
    own.close()


def tick(second: int) -> Tick:
    return Tick(second, second * NANOS, (second + 1) * NANOS, WALL + (second + 1) * NANOS)


def event(action: str, at: int, **more: str) -> bytes:
    actor = {"ID": NUMBER, "Attributes": {"name": "gloomy_agent", "image": "agent:1", **more}}
    return json.dumps({"Type": "container", "Action": action, "Actor": actor, "timeNano": at}).encode() + b"\n"


def connected(daemon: Daemon, tmp_path: Path, owners: PodOwners | None = None) -> DockerEventSource:
    source = DockerEventSource(tmp_path / "docker.sock", pod_owners=owners)
    assert daemon.accept() == "/_ping"
    assert source.read(tick(0)) == {}
    assert [daemon.accept(), daemon.accept()] == ["/events", "/containers/json"]
    return source


def test_starts_and_ends_are_reported_with_names_at_their_own_time(daemon: Daemon, tmp_path: Path) -> None:
    source = connected(daemon, tmp_path)
    daemon.say("/events", b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n")
    whole = event("start", WALL + NANOS * 3 // 2) + event("die", WALL + NANOS * 17 // 10, exitCode="3")
    daemon.say("/events", whole[:40])
    assert source.read(tick(0)) == {}
    daemon.say("/events", whole[40:])
    rows = source.read(tick(1))["events"]
    assert rows["kind"] == ["container-start", "container-die"]
    assert rows["container"] == [NUMBER] * 2 and rows["container_name"] == ["gloomy_agent"] * 2
    assert rows["time"] == [NANOS * 3 // 2, NANOS * 17 // 10]
    assert rows["text"][1] == "container gloomy_agent (image agent:1) ended with code 3" and rows["value"] == [
        None,
        3.0,
    ]
    source.close()


def test_containers_that_run_already_are_reported_once(daemon: Daemon, tmp_path: Path) -> None:
    source = connected(daemon, tmp_path)
    listed = json.dumps([{"Id": NUMBER, "Names": ["/steady"], "Image": "web:2"}]).encode()
    daemon.say("/containers/json", b"HTTP/1.0 200 OK\r\n\r\n" + listed)
    assert source.read(tick(1)) == {}
    daemon.open["/containers/json"].close()
    rows = source.read(tick(2))["events"]
    assert (rows["kind"], rows["container_name"], rows["image"]) == (["container-seen"], ["steady"], ["web:2"])
    assert source.read(tick(3)) == {}
    source.close()


def test_a_silent_daemon_does_not_delay_the_tick(daemon: Daemon, tmp_path: Path) -> None:
    source = connected(daemon, tmp_path)
    for second in range(1, 5):
        assert source.read(tick(second)) == {}
    source.close()


def test_a_restarted_daemon_is_reconnected(daemon: Daemon, tmp_path: Path) -> None:
    source = connected(daemon, tmp_path)
    daemon.open.pop("/events").close()
    source.read(tick(1))
    source.read(tick(12))
    assert daemon.accept() == "/events"
    source.close()


def test_no_docker_is_no_trouble_and_it_may_come_later(tmp_path: Path) -> None:
    source = DockerEventSource(tmp_path / "docker.sock")
    assert source.read(tick(0)) == {}
    late = Daemon(tmp_path / "docker.sock")
    source.read(tick(11))
    assert late.accept() == "/events"
    late.close()
    source.close()


@pytest.mark.parametrize("same", [True, False])
def test_cri_sockets_behind_init_are_looked_for_where_init_sees_other_files(tmp_path: Path, same: bool) -> None:
    proc, root = tmp_path / "proc", tmp_path / "root"
    (root / "run/crio").mkdir(parents=True)
    (root / "run/crio/crio.sock").touch()
    for number, mounts in (("1", "mnt:[1]"), ("self", "mnt:[1]" if same else "mnt:[2]")):
        (proc / number / "ns").mkdir(parents=True)
        (proc / number / "ns/mnt").symlink_to(mounts)
    (proc / "1/root").symlink_to("/" if same else root)
    found = CriEventSource(Host(proc=proc))._sockets()
    assert found == (() if same else (proc / "1/root/run/crio/crio.sock",))


def test_the_attempts_of_a_pod_have_one_name_and_its_owner(daemon: Daemon, tmp_path: Path) -> None:
    """With dockershim or cri-dockerd each attempt is a container; the labels of the pod are on its sandbox."""
    owners = PodOwners()
    source = connected(daemon, tmp_path, owners)
    head = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"
    own = {"io.kubernetes.pod.name": "web-0", "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "u-1"}
    sandbox = {**own, "io.kubernetes.docker.type": "podsandbox", "statefulset.kubernetes.io/pod-name": "web-0"}
    listed = [{"Id": "cd" * 32, "Names": ["/k8s_POD_web-0_shop_u-1_0"], "Image": "pause", "Labels": sandbox}]
    daemon.say("/containers/json", head + json.dumps(listed).encode())
    daemon.open["/containers/json"].close()
    daemon.say("/events", head)
    assert source.read(tick(1)) == {}
    own["io.kubernetes.container.name"] = "web"
    for attempt in range(2):
        name = f"k8s_web_web-0_shop_u-1_{attempt}"
        daemon.say("/events", event("die", WALL + 2 * NANOS + attempt, exitCode="3", **{**own, "name": name}))
    rows = source.read(tick(2))["events"]
    assert rows["container_name"] == ["shop/web-0/web"] * 2 and rows["value"] == [3.0, 3.0]
    assert rows["pod"] == ["u-1"] * 2 and rows["pod_name"] == ["shop/web-0"] * 2
    assert rows["owner"] == ["statefulset/web"] * 2
    # The cluster's API knows more than the labels.
    owners.learn([PodOwner("u-1", "shop/web-0", "postgres.example.dev/web")])
    daemon.say("/events", event("die", WALL + 3 * NANOS, exitCode="3", **{**own, "name": "k8s_web_web-0_shop_u-1_2"}))
    assert source.read(tick(3))["events"]["owner"] == ["postgres.example.dev/web"]

"""The recorder in a pod, as a part of the platform: conditions by its service account, metrics, events of jobs."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.system.deploy.manifests import Object, platform_components
from tests.system.kubernetes.own_cluster import NODE, Node, until
from tests.system.kubernetes.recorder_pods import (
    METRICS_TOKEN,
    daemon_set_of_exhume,
    events_directory,
    metrics_port,
    recorded_seconds,
)

from exhume.kubernetes.api import COMPONENT
from exhume.model.job_event import DEFAULT_SOCKET
from exhume.store.read.recording import Recording

pytestmark = [pytest.mark.kubernetes, pytest.mark.root]

# From kubectl apply to the first recorded second, with the image on the node.
MOST_SECONDS = 10
CGROUPS = Path("/sys/fs/cgroup")


class Platform(NamedTuple):
    """A recorder of the cluster. `seconds` is how long it took from kubectl apply to the first recorded second."""

    recordings: Path
    seconds: float
    cluster: Node

    def pod(self) -> Object:
        (found,) = self.cluster.get("pods", "-n", "exhume", "-l", "app.kubernetes.io/name=exhume")["items"]
        return dict(found)

    def recorder(self) -> Object:
        """The state of its container."""
        (found,) = [each for each in self.pod()["status"]["containerStatuses"] if each["name"] == "recorder"]
        return dict(found)

    def condition(self, type_: str) -> str | None:
        found = self.cluster.get("node", NODE)["status"]["conditions"]
        return next((str(each["status"]) for each in found if each["type"] == type_), None)

    def events_of_the_node(self) -> list[Object]:
        events: list[Object] = self.cluster.get("events", "-n", "default")["items"]
        return [each for each in events if each["source"].get("component") == COMPONENT]

    def request(self, path: str, token: str | None, body: bytes | None = None) -> tuple[int, str]:
        """The status and text of an answer of the recorder's own server, at the address of the node."""
        address = f"http://{self.pod()['status']['hostIP']}:{metrics_port(self.recordings)}{path}"
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        try:
            with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def job_events(self) -> set[str]:
        rows = Recording.open(self.recordings).read("events", None, ["source", "text"]).to_pylist()
        return {row["text"] for row in rows if row["source"] == "jobs"}


@pytest.fixture(scope="module")
def platform(cluster: Node) -> Iterator[Platform]:
    recordings = cluster.work / "platform"
    with daemon_set_of_exhume(cluster, recordings, *platform_components()) as seconds:
        print(f"\nfrom kubectl apply to the first recorded second: {seconds:.1f} s")
        until("five seconds are recorded", lambda: recorded_seconds(recordings) >= 5)
        yield Platform(recordings, seconds, cluster)


def test_the_first_second_is_recorded_soon(platform: Platform) -> None:
    assert platform.seconds < MOST_SECONDS


def test_a_reset_of_the_network_card_is_a_condition_that_clears(platform: Platform) -> None:
    """By the service account of the pod, with the rights of the manifests, through the certificate of the API."""
    until("the first report", lambda: platform.condition("NICReset") == "False")
    Path("/dev/kmsg").write_text("<4>ena 0000:00:05.0 eth0: Device reset completed successfully\n")
    until("it is set", lambda: platform.condition("NICReset") == "True")
    until("the node has an event", platform.events_of_the_node)
    until("it has cleared", lambda: platform.condition("NICReset") == "False")


def test_metrics_are_scraped_with_the_token_alone(platform: Platform) -> None:
    status, text = platform.request("/metrics", METRICS_TOKEN)
    assert status == 200 and "exhume_cores " in text
    assert platform.request("/metrics", None)[0] == platform.request("/metrics", "another-token-xyz")[0] == 401


def test_jobs_report_by_the_socket_of_the_node_and_by_http(platform: Platform) -> None:
    missing = {each.source for each in Recording.open(platform.recordings).facts.sources_missing}
    assert not {each for each in missing if each.startswith("job-events")}
    sent = {"version": 1, "kind": "job-failed", "text": "train-7: by the socket", "attributes": {"job": "train-7"}}
    place = events_directory(platform.cluster) / DEFAULT_SOCKET.name
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(json.dumps(sent).encode(), str(place))
    posted = json.dumps({**sent, "text": "train-7: by HTTP"}).encode()
    assert platform.request("/events", METRICS_TOKEN, posted)[0] == 202
    assert platform.request("/events", None, posted)[0] == 401

    def recorded(text: str) -> bool:
        # Attributes follow the text.
        return any(line.startswith(text) for line in platform.job_events())

    until("both are recorded", lambda: recorded("train-7: by the socket") and recorded("train-7: by HTTP"))


def test_memory_suffices_for_diagnoses_and_reports(platform: Platform) -> None:
    """After the tests above: an incident was diagnosed and reported next to the recorder, within its limit."""
    until("it is ready", lambda: platform.recorder()["ready"])
    state = platform.recorder()
    assert (state["restartCount"], state["lastState"]) == (0, {})
    number = state["containerID"].rpartition("/")[2]
    folders = [path for top in ("memory/kubepods", "kubepods") for path in (CGROUPS / top).rglob(number)]
    counts = [
        int(line.split()[1])
        for folder in folders
        for name in ("memory.oom_control", "memory.events")
        if (folder / name).exists()
        for line in (folder / name).read_text().splitlines()
        if line.split()[0] == "oom_kill"
    ]
    peaks = [
        int((folder / name).read_text())
        for folder in folders
        for name in ("memory.max_usage_in_bytes", "memory.peak")
        if (folder / name).exists()
    ]
    print(f"\nmost memory of the recorder's container: {[peak >> 20 for peak in peaks]} MiB")
    assert counts and not any(counts)

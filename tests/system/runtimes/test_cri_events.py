"""Starts and ends of a real containerd's containers, as the recorder's events: with names, codes and what kept them."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.system.runtimes.own_containerd import OwnContainerd, own_containerd
from tests.system.runtimes.runtime_parts import IMAGE, PATIENCE_S
from tests.system.zombies.own_docker import until

from exhume.collect.containers.cri import PACKAGES, Cri, CriConnection
from exhume.collect.sources.container_events import CriEventSource
from exhume.model.clock import NANOS, Tick
from exhume.procfs.host import Host

pytestmark = [pytest.mark.root, pytest.mark.needs("containerd", "ctr", "runc", "busybox")]
POD = "web-5d78c9869d-abcde"


@pytest.fixture(scope="module")
def containerd() -> Iterator[OwnContainerd]:
    with own_containerd(IMAGE) as own:
        yield own


class Recorder:
    """The source, read by ticks whose clock is ahead of the real one as far as it was turned."""

    def __init__(self, containerd: OwnContainerd) -> None:
        self.source = CriEventSource(Host(), containerd.socket)
        self.rows: list[dict[str, object]] = []
        self._ahead = 0
        self.offset = time.time_ns() - time.monotonic_ns()

    def look(self) -> list[dict[str, object]]:
        """A whole round; the rows that are new."""
        before = len(self.rows)
        # The pause between two rounds is not waited for.
        self._ahead += 60 * NANOS
        for _ in range(40):
            end = time.monotonic_ns() + self._ahead
            rows = self.source.read(Tick(0, end - NANOS, end, end + self.offset)).get("events", {})
            self.rows += [dict(zip(rows, values, strict=True)) for values in zip(*rows.values(), strict=True)]
            time.sleep(0.05)
        return self.rows[before:]


def ended(containerd: OwnContainerd, container: str) -> None:
    with Cri(containerd.socket) as runtime:
        until("it ended", lambda: runtime.status(container).status.finished_at, PATIENCE_S)


def test_attempts_have_one_name_their_codes_and_their_owner(containerd: OwnContainerd) -> None:
    labels = {"app": "web", "pod-template-hash": "5d78c9869d"}
    pod = containerd.run_pod(POD, "uid-1", labels, {})
    steady = containerd.start(pod, "steady", "exec busybox sleep 600", 0)
    recorder = Recorder(containerd)
    (seen,) = recorder.look()
    assert (seen["kind"], seen["container"]) == ("container-seen", steady)
    # What ends between two looks has its start as well; the last one runs.
    crashed = [containerd.start(pod, "web", f"exit {code}", code) for code in (3, 4)]
    for each in crashed:
        ended(containerd, each)
    runs = containerd.start(pod, "web", "exec busybox sleep 600", 5)
    rows = recorder.look()
    assert [(each["kind"], each["container"], each["value"]) for each in rows] == [
        ("container-start", crashed[0], None),
        ("container-die", crashed[0], 3.0),
        ("container-start", crashed[1], None),
        ("container-die", crashed[1], 4.0),
        ("container-start", runs, None),
    ]
    for each in rows:
        assert each["container_name"] == f"shop/{POD}/web" and each["source"] == "cri" and each["image"] == IMAGE
        assert (each["pod"], each["pod_name"], each["owner"]) == ("uid-1", f"shop/{POD}", "deployment/web")
    assert recorder.look() == []
    containerd.stop(runs, 0)
    (died,) = recorder.look()
    assert (died["kind"], died["container"], died["value"]) == ("container-die", runs, 137.0)
    recorder.source.close()


def test_times_are_those_of_the_runtime(containerd: OwnContainerd) -> None:
    pod = containerd.run_pod("once-x7k2p", "uid-2", {"job-name": "once"}, {})
    recorder = Recorder(containerd)
    recorder.look()
    once = containerd.start(pod, "once", "busybox sleep 0.5; exit 0", 0)
    ended(containerd, once)
    with Cri(containerd.socket) as runtime:
        status = runtime.status(once).status
    start, die = recorder.look()
    # On a machine that is busy the runtime notes the start late, after the end.
    started = min(status.started_at, status.finished_at)
    assert (start["time"], die["time"]) == (started - recorder.offset, status.finished_at - recorder.offset)
    assert start["owner"] == die["owner"] == "job/once" and die["value"] == 0.0
    recorder.source.close()


def test_one_that_ran_out_of_memory_says_so(containerd: OwnContainerd) -> None:
    pod = containerd.run_pod("cache-0", "uid-3", {"statefulset.kubernetes.io/pod-name": "cache-0"}, {})
    recorder = Recorder(containerd)
    recorder.look()
    # tail keeps what it reads until it has all of it, and that is without end.
    greedy = containerd.start(pod, "cache", "exec busybox tail /dev/zero", 0, memory=16 << 20)
    ended(containerd, greedy)
    rows = [each for each in recorder.look() if each["container"] == greedy]
    assert [each["kind"] for each in rows] == ["container-start", "container-oom", "container-die"]
    assert rows[1]["severity"] == "warning" and rows[2]["value"] == 137.0
    assert rows[2]["owner"] == "statefulset/cache"
    recorder.source.close()


def test_one_that_was_removed_at_once_ended_without_a_code(containerd: OwnContainerd) -> None:
    pod = containerd.run_pod("gone", "uid-4", {}, {})
    recorder = Recorder(containerd)
    recorder.look()
    runs = containerd.start(pod, "gone", "exec busybox sleep 600", 0)
    assert [each["kind"] for each in recorder.look()] == ["container-start"]
    containerd.stop(runs, 0)
    containerd.remove(runs)
    (died,) = recorder.look()
    assert (died["kind"], died["value"], died["container_name"]) == ("container-die", None, "shop/gone/gone")
    assert recorder.look() == []
    recorder.source.close()


@pytest.mark.parametrize("package", [*PACKAGES, "runtime.v9"])
def test_answers_are_those_that_the_library_for_grpc_gets(containerd: OwnContainerd, package: str) -> None:
    connection = CriConnection(containerd.socket, package)
    methods = {connection.ask(method): method for method in ("Version", "ListContainers", "ListPodSandbox")}
    refused = connection.ask("ContainerStatus", container_id="none")
    answers: dict[int, object] = {}

    def all_came() -> bool:
        answers.update(connection.receive())
        return len(answers) == 4

    until("it answered", all_came, PATIENCE_S)
    connection.close()
    assert answers[refused] is None
    if package not in PACKAGES:
        assert set(answers.values()) == {None}
        return
    with Cri(containerd.socket, (package,)) as runtime:
        expected = {
            "Version": [runtime.version],
            "ListContainers": runtime.containers(),
            "ListPodSandbox": runtime.sandboxes(),
        }
    for number, method in methods.items():
        answer: Any = answers[number]
        items = {"ListContainers": "containers", "ListPodSandbox": "items"}.get(method)
        found = [answer] if items is None else list(getattr(answer, items))
        # Lists come in any order.
        assert sorted(map(str, found)) == sorted(map(str, expected[method])) and found

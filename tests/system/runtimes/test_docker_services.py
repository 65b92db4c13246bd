"""The containers of a real Docker, as an audit sees them: one that crashes, one that is well, one that is done."""

import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.system.runtimes.runtime_parts import (
    COMPLAINT,
    IMAGE,
    PATIENCE_S,
    READY,
    Containers,
    assert_rate,
    ends_when_asked,
    remove,
)
from tests.system.zombies.own_docker import OwnDocker, until

from exhume.collect.containers.docker import Engine, container_path
from exhume.collect.containers.docker_services import docker_services
from exhume.collect.containers.services import container_services
from exhume.collect.node_root import NodeRoot
from exhume.control.containers import DockerControl
from exhume.diagnose.audit.traits import traits_of
from exhume.model.audit import Manager, Service, Trait, merge_lists

pytestmark = [pytest.mark.root, pytest.mark.needs("dockerd", "docker", "busybox")]


def look(docker: OwnDocker) -> dict[str, Service]:
    seen = docker_services(docker.socket, Manager.DOCKER)
    assert seen.blind_spots == []
    return {service.id: service for service in seen.services}


def has_ended(docker: OwnDocker, number: str) -> bool:
    return docker("inspect", "--format", "{{.State.Running}}", number) == "false"


@dataclass(frozen=True)
class Looked:
    """What a look saw, and the wall times (nanoseconds) between which it was taken."""

    services: dict[str, Service]
    since: int
    until: int


@pytest.fixture(scope="module")
def looked(docker: OwnDocker, docker_containers: Containers) -> Looked:
    """A look in which nothing happened: the engine reports one thing after the other."""
    seen: list[Looked] = []

    def now() -> tuple[int, str]:
        reported = docker("inspect", "--format", "{{.RestartCount}} {{.State.StartedAt}}", docker_containers.crashing)
        return int(reported.split()[0]), reported

    def still() -> bool:
        before, since = now(), time.time_ns()
        if before[0] < 4 or not has_ended(docker, docker_containers.finished):
            return False
        seen.append(Looked(look(docker), since, time.time_ns()))
        # It waits for twice as long before each restart: at last there is time enough before the next one.
        return now() == before

    until("it crashed, and was looked at before it did again", still, 2 * PATIENCE_S)
    return seen[-1]


def test_one_that_crashes_for_ever_is_reported_with_its_output(looked: Looked, docker_containers: Containers) -> None:
    crashing = looked.services[docker_containers.crashing]
    assert crashing.key == "docker:wobbly_heron.9" and crashing.image == IMAGE
    assert crashing.restart_policy == "always" and crashing.state in ("restarting", "running")
    assert crashing.restarts is not None and crashing.restarts >= 4
    assert crashing.last_exit is not None and crashing.last_exit.code == 7 and crashing.last_exit.at is not None
    assert crashing.created is not None and crashing.created < crashing.last_exit.at < looked.until
    assert set(crashing.log) == {"no credentials", "giving up"}
    assert crashing.command is not None and COMPLAINT in crashing.command
    history = crashing.history
    assert history is not None and history.source == "runtime"
    # The last restart that it counts may be to come.
    assert (
        history.starts >= crashing.restarts and history.failures >= 4 and {each.code for each in history.exits} == {7}
    )
    assert history.success_rate is not None and history.success_rate < 0.25
    assert_rate(history, history.starts - 1, crashing.created)
    assert history.age_pattern.startswith(("never a second old", "always a few seconds old"))


def test_one_that_is_well_is_reported_with_its_cgroup_and_owner(
    docker: OwnDocker, looked: Looked, docker_containers: Containers
) -> None:
    steady = looked.services[docker_containers.steady]
    assert (steady.state, steady.result, steady.restarts, steady.log) == ("running", "", 0, ())
    assert steady.restart_policy == "on-failure:5" and steady.last_exit is None
    assert steady.pid == int(docker("inspect", "--format", "{{.State.Pid}}", docker_containers.steady))
    assert steady.cgroup == f"{docker.parent}/{docker_containers.steady}"
    assert steady.age_s is not None and steady.started is not None
    assert 0 < looked.since - steady.started <= steady.age_s * 10**9 + 10**6
    assert steady.age_s * 10**9 <= looked.until - steady.started + 10**6
    assert steady.owner == "compose project shop, service basket" and steady.fragment == "/srv/shop/compose.yaml"
    assert steady.history is not None
    assert (steady.history.starts, steady.history.failures, steady.history.restarts_per_hour) == (1, 0, 0.0)


def test_one_that_did_its_work_is_not_taken_for_a_failure(looked: Looked, docker_containers: Containers) -> None:
    finished = looked.services[docker_containers.finished]
    assert (finished.state, finished.result, finished.age_s, finished.pid) == ("exited", "success", None, None)
    assert finished.history is not None and finished.history.success_rate == 1.0


def test_the_ports_that_lead_to_one_are_reported_also_while_it_is_down(docker: OwnDocker) -> None:
    number = docker("create", "-p", "127.0.0.1:2022:22", "-p", "5353:53/udp", IMAGE, "busybox", "true")
    assert look(docker)[number].published == DockerControl(docker.socket).published(number) == (2022,)
    docker("rm", number)


def test_one_that_was_stopped_did_not_fail(docker: OwnDocker) -> None:
    number = docker.run("put-aside", IMAGE, ends_when_asked(9))
    until("it listens", lambda: READY in docker("logs", number), PATIENCE_S)
    docker("stop", "-t", str(PATIENCE_S // 2), number)
    stopped = look(docker)[number]
    assert stopped.last_exit is not None and stopped.last_exit.code == 9
    assert stopped.result == "stopped" and stopped.history is not None and stopped.history.failures == 0
    docker("rm", number)


def test_one_that_ran_out_of_memory_says_so(docker: OwnDocker) -> None:
    greedy = "x=a; while :; do x=$x$x; done"
    # An engine that hears of the end before it hears of the reason never reports the reason: then another has to.
    for attempt in range(15):
        # What starts it needs some memory, too.
        number = docker.run(f"greedy-{attempt}", IMAGE, greedy, "--memory=32m", "--memory-swap=32m")
        until("it was killed", lambda: has_ended(docker, number), PATIENCE_S)  # noqa: B023
        engine_knows = docker("inspect", "--format", "{{.State.OOMKilled}}", number) == "true"
        reported = look(docker)[number].result
        docker("rm", number)
        if engine_knows:
            break
    assert engine_knows
    assert reported == "oom-kill"


def test_one_that_can_not_start_reports_why(docker: OwnDocker) -> None:
    number = docker("create", "--name", "no-program", "--network", "none", IMAGE, "/bin/not-there")
    with pytest.raises(Exception, match="docker start"):
        docker("start", number)
    broken = look(docker)[number]
    assert "not-there" in broken.detail and broken.result == "exit-code"
    docker("rm", number)


def test_what_it_printed_on_a_terminal_is_read_as_well(docker: OwnDocker) -> None:
    number = docker.run("typist", IMAGE, "echo one; echo two; exit 1", "-t")
    until("it ended", lambda: has_ended(docker, number), PATIENCE_S)
    assert look(docker)[number].log == ("one", "two")
    docker("rm", number)


def test_restarts_that_the_engine_forgot_are_reported_by_its_count(
    docker: OwnDocker, docker_containers: Containers
) -> None:
    engine = Engine(docker.socket)
    # The engine waits for twice as long before each restart: at last all of this is done between two of them.
    for crashes in range(4, 9):
        number = docker.run(f"forgotten-{crashes}", IMAGE, "exit 5", "--restart=always")

        def now() -> tuple[int, str, str]:
            what = "{{.RestartCount}} {{.State.StartedAt}} {{.State.Status}}"
            count, started, status = docker("inspect", "--format", what, number).split()  # noqa: B023
            return int(count), started, status

        until("it crashed", lambda: now()[0] >= crashes, 120)  # noqa: B023
        before = now()
        # It remembers the last 256 things that happened, whatever they were.
        for turn in range(300):
            engine.exchange(
                "POST", container_path(docker_containers.finished, "rename"), {"name": f"renamed-{turn}"}, None, 10.0
            )
        crashing = look(docker)[number]
        docker("stop", "-t", "0", number)
        over = look(docker)[number].history
        undisturbed = before[2] == "restarting" and now()[:2] == before[:2]
        docker("rm", "-f", number)
        if undisturbed:
            break
    assert undisturbed
    assert over is not None and over.failures == over.starts, "the last one ended badly too"
    history = crashing.history
    assert history is not None and crashing.restarts == before[0]
    assert (history.starts, history.failures) == (before[0] + 1, before[0])
    assert history.restarts_per_hour == pytest.approx(before[0] * 60, rel=0.5)
    assert [each.code for each in history.exits] == [5] and history.age_pattern == ""


def test_attempts_of_a_pod_are_one_service(docker: OwnDocker) -> None:
    made = {}
    for attempt in range(3):
        labels = {
            "io.kubernetes.pod.name": "web-0",
            "io.kubernetes.pod.namespace": "shop",
            "io.kubernetes.pod.uid": "7d0c",
            "io.kubernetes.container.name": "web",
            "annotation.io.kubernetes.container.restartCount": str(attempt),
        }
        args = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
        made[attempt] = docker.run(f"k8s_web_web-0_shop_7d0c_{attempt}", IMAGE, "exit 1", *args)
    seen = look(docker)
    assert [number in seen for number in made.values()] == [False, False, True]
    last = seen[made[2]]
    assert (last.pod, last.owner, last.restarts) == ("shop/web-0", "pod shop/web-0", 2)
    remove(docker, *made.values())


def test_all_runtimes_of_a_node_are_one_look(
    docker: OwnDocker, docker_containers: Containers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{docker.socket}")
    monkeypatch.setenv("CONTAINER_RUNTIME_ENDPOINT", f"unix://{tmp_path}/none.sock")
    looks = container_services(NodeRoot())
    assert [manager for manager, _ in looks] == [Manager.DOCKER, Manager.CRI]
    seen = merge_lists(look for _, look in looks)
    assert {docker_containers.crashing, docker_containers.steady} <= {service.id for service in seen.services}
    assert [spot.startswith("the pods of this node can't be seen") for spot in seen.blind_spots] == [True]
    # Elsewhere this environment speaks of another node.
    assert container_services(NodeRoot(tmp_path)) == []


def test_an_engine_that_is_not_there_is_a_blind_spot(tmp_path) -> None:
    seen = docker_services(tmp_path / "docker.sock", Manager.PODMAN)
    assert seen.services == [] and len(seen.blind_spots) == 1
    assert "podman can't be seen" in seen.blind_spots[0] and "No such file" in seen.blind_spots[0]


def test_attempts_of_a_pods_container_are_one_service(docker: OwnDocker) -> None:
    """As dockershim and cri-dockerd make them: a container for each attempt, without a restart policy."""
    uid, pod = "3357da80-0000-4000-8000-000000000001", "crashy-596c6549b5-gn4q9"

    def run(name: str, script: str, attempt: int, **more: str) -> str:
        labels = {
            "io.kubernetes.pod.name": pod,
            "io.kubernetes.pod.namespace": "prod",
            "io.kubernetes.pod.uid": uid,
            "io.kubernetes.container.name": name,
            "annotation.io.kubernetes.container.restartCount": str(attempt),
            **more,
        }
        options = [word for label in labels.items() for word in ("--label", "=".join(label))]
        number = docker.run(f"k8s_{name}_{pod}_prod_{uid}_{attempt}", IMAGE, script, *options)
        until("it ended", lambda: name == "POD" or has_ended(docker, number), PATIENCE_S)
        return number

    own = {"io.kubernetes.docker.type": "podsandbox", "pod-template-hash": "596c6549b5"}
    made = [run("POD", "exec busybox sleep 600", 0, **own)]
    made += [run("worker", COMPLAINT, attempt) for attempt in range(5)]
    # kubelet keeps the last of those that ended.
    remove(docker, *made[1:4])
    try:
        services = {service.name: service for service in look(docker).values()}
        worker = services[f"prod/{pod}/worker"]
        assert worker.id == made[-1] and worker.pod == f"prod/{pod}" and worker.image == IMAGE
        assert (worker.owner, worker.workload) == ("deployment prod/crashy", "deployment/crashy")
        assert worker.restarts == 4 and worker.result == "exit-code"
        assert worker.history is not None and (worker.history.starts, worker.history.failures) == (5, 5)
        assert worker.history.restarts_per_hour is not None and worker.history.restarts_per_hour >= 60
        assert Trait.CRASH_LOOP in traits_of(worker, time.time_ns())
        assert "POD" not in " ".join(services)
    finally:
        remove(docker, *made)

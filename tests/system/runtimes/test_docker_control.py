"""Orders to a real Docker: a container that crashes for ever is quietened, and put back as it was."""

import pytest
from tests.system.runtimes.runtime_parts import IMAGE, PATIENCE_S, Containers, remove
from tests.system.zombies.own_docker import OwnDocker, until

from exhume.collect.containers.docker import EngineError
from exhume.control.containers import DockerControl, RestartPolicy

pytestmark = [pytest.mark.root, pytest.mark.needs("dockerd", "docker", "busybox")]


@pytest.fixture
def control(docker: OwnDocker) -> DockerControl:
    return DockerControl(docker.socket)


def restarts(docker: OwnDocker, container: str) -> int:
    return int(docker("inspect", "--format", "{{.RestartCount}}", container))


def test_a_crash_loop_is_stopped_for_good_and_put_back(docker: OwnDocker, control: DockerControl) -> None:
    number = docker.run("loops", IMAGE, "exit 3", "--restart=on-failure:50")
    before = control.fingerprint(number)
    assert before["restart policy"] == "on-failure:50" and before["name"] == "loops" and before["id"] == number
    until("it crashed", lambda: restarts(docker, number) >= 2, PATIENCE_S)
    assert control.runs(number)
    # Going up and down is not a change.
    assert control.fingerprint("loops") == before

    assert control.restart_policy(number) == RestartPolicy("on-failure", 50)
    control.update_restart_policy(number, "no")
    control.stop(number, timeout=1)
    assert not control.runs(number)
    stopped = restarts(docker, number)
    changed = {name for name, value in control.fingerprint(number).items() if before[name] != value}
    assert changed == {"restart policy"}
    assert control.stop(number) is False

    control.update_restart_policy(number, "on-failure", 50)
    assert control.start(number)
    assert control.fingerprint(number) == before
    until("it crashes again", lambda: restarts(docker, number) != stopped, PATIENCE_S)
    remove(docker, number)


def test_a_container_that_was_made_again_is_another_one(docker: OwnDocker, control: DockerControl) -> None:
    prints = []
    for words in ("busybox sleep 60", "busybox sleep 61"):
        number = docker.run("reborn", IMAGE, words)
        prints.append(control.fingerprint("reborn"))
        docker("rm", "-f", number)
    changed = {name for name, value in prints[0].items() if prints[1][name] != value}
    assert changed == {"id", "created", "configuration"}


def test_a_container_that_ignores_being_asked_is_killed_in_time(docker: OwnDocker, control: DockerControl) -> None:
    number = docker.run("stubborn", IMAGE, "trap '' TERM; while :; do busybox sleep 1; done")
    assert control.stop(number, timeout=1)
    assert not control.runs(number)
    docker("rm", number)


@pytest.mark.parametrize("name", ["", "..", "../quiet-neighbour", "no such", "$(reboot)", "-rf", "a/b?c#d", "ü" * 120])
def test_names_that_no_container_has_are_refused_and_reach_no_other(
    docker_containers: Containers, control: DockerControl, name: str
) -> None:
    with pytest.raises(EngineError):
        control.stop(name)
    with pytest.raises(EngineError):
        control.update_restart_policy(name, "no")
    assert control.runs(docker_containers.steady)


def test_a_socket_without_an_engine_says_so(tmp_path) -> None:
    with pytest.raises(EngineError, match="No such file") as refused:
        DockerControl(tmp_path / "docker.sock").runs("any")
    assert refused.value.status is None

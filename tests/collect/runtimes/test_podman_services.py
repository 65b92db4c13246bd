"""A real Podman answers like Docker: what an audit sees of its containers, and how far orders to it go."""

from collections.abc import Iterator

import pytest
from own_podman import OwnPodman, own_podman
from runtime_parts import COMPLAINT, IMAGE
from tests.zombies.own_docker import until

from exhume.collect.docker_control import DockerControl
from exhume.collect.docker_engine import EngineError
from exhume.collect.docker_services import docker_services
from exhume.model.audit import Manager, Service

pytestmark = [pytest.mark.root, pytest.mark.needs("podman", "conmon", "runc", "busybox")]


@pytest.fixture(scope="module")
def podman() -> Iterator[OwnPodman]:
    with own_podman() as own:
        own.import_busybox(IMAGE)
        yield own


def look(podman: OwnPodman) -> dict[str, Service]:
    seen = docker_services(podman.socket, Manager.PODMAN)
    assert seen.blind_spots == []
    return {service.name: service for service in seen.services}


def test_crashing_and_steady_are_told_apart(podman: OwnPodman) -> None:
    slowly = f"busybox sleep 0.3; {COMPLAINT}"
    number = podman.run("wobbly", IMAGE, slowly, "--restart", "always", "--label", "PODMAN_SYSTEMD_UNIT=wobbly.service")
    podman.run("steady", IMAGE, "exec busybox sleep 600")

    def crashed() -> bool:
        history = look(podman)["wobbly"].history
        return history is not None and history.failures >= 4

    until("it crashed", crashed, 20)
    seen = look(podman)
    wobbly, steady = seen["wobbly"], seen["steady"]
    assert wobbly.key == "podman:wobbly" and wobbly.id == number and wobbly.image == IMAGE
    assert wobbly.restarts is not None and wobbly.restarts >= 4
    assert wobbly.restart_policy == "always" and wobbly.owner == "unit wobbly.service"
    assert wobbly.history is not None and wobbly.history.exits[0].code == 7
    assert wobbly.history.restarts_per_hour is not None and wobbly.history.restarts_per_hour >= 180
    assert set(wobbly.log) == {"no credentials", "giving up"}
    assert (steady.state, steady.result, steady.log) == ("running", "", ())
    assert steady.cgroup == f"/{podman.cgroup}/libpod-{steady.id}"
    assert steady.history is not None and steady.history.restarts_per_hour == 0.0

    control = DockerControl(podman.socket)
    before = control.fingerprint(number)
    assert control.stop(number, timeout=1)
    until("it is down", lambda: not control.runs(number), 5)
    assert look(podman)["wobbly"].state == "exited"
    assert control.fingerprint(number) == before
    assert control.start(number)
    podman("rm", "-f", "-t", "0", "wobbly")


def test_a_policy_that_it_can_not_change_is_refused_and_stays(podman: OwnPodman) -> None:
    number = podman.run("kept", IMAGE, "exec busybox sleep 600", "--restart", "on-failure:3")
    control = DockerControl(podman.socket)
    try:
        control.update_restart_policy(number, "no")
    except EngineError as error:
        assert "restart policy" in str(error)
        assert control.restart_policy(number).name == "on-failure"
    else:
        # Later versions can.
        assert control.restart_policy(number).name == "no"

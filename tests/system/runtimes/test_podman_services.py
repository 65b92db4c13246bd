"""A real Podman answers like Docker: what an audit sees of its containers, and how far orders to it go."""

import time
from collections.abc import Iterator

import pytest
from tests.system.runtimes.own_podman import OwnPodman, own_podman
from tests.system.runtimes.runtime_parts import COMPLAINT, IMAGE, PATIENCE_S, assert_rate
from tests.system.zombies.own_docker import until

from exhume.collect.containers.docker import Engine, EngineError, container_path
from exhume.collect.containers.docker_services import docker_services
from exhume.control.containers import DockerControl
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


def wait_for_the_moment_between_two_runs(podman: OwnPodman, container: str) -> None:
    """It ended, and is about to be started again: nothing runs that could be stopped. Where Podman has no word for it,
    any moment will do."""
    engine, patience = Engine(podman.socket), time.monotonic() + 10
    while time.monotonic() < patience:
        if engine.get(container_path(container, "json"))["State"]["Status"] == "stopped":
            return


def test_crashing_and_steady_are_distinguished(podman: OwnPodman) -> None:
    slowly, began = f"busybox sleep 0.3; {COMPLAINT}", time.time_ns()
    number = podman.run("wobbly", IMAGE, slowly, "--restart", "always", "--label", "PODMAN_SYSTEMD_UNIT=wobbly.service")
    podman.run("steady", IMAGE, "exec busybox sleep 600")

    until("it crashed", lambda: (look(podman)["wobbly"].restarts or 0) >= 4, 2 * PATIENCE_S)
    seen = look(podman)
    wobbly, steady = seen["wobbly"], seen["steady"]
    assert wobbly.key == "podman:wobbly" and wobbly.id == number and wobbly.image == IMAGE
    assert wobbly.restart_policy == "always" and wobbly.owner == "unit wobbly.service"
    assert wobbly.history is not None and wobbly.history.exits[0].code == 7 and wobbly.history.failures >= 4
    assert_rate(wobbly.history, wobbly.history.starts - 1, began)
    assert set(wobbly.log) == {"no credentials", "giving up"}
    assert (steady.state, steady.result, steady.log) == ("running", "", ())
    assert steady.cgroup == f"/{podman.cgroup}/libpod-{steady.id}"
    assert steady.history is not None and steady.history.restarts_per_hour == 0.0

    control = DockerControl(podman.socket)
    before = control.fingerprint(number)
    wait_for_the_moment_between_two_runs(podman, number)
    assert control.stop(number, timeout=1)
    until("it is down", lambda: not control.runs(number), PATIENCE_S)
    assert look(podman)["wobbly"].state == "exited"
    assert control.fingerprint(number) == before
    assert control.start(number)
    assert control.stop(number, timeout=1)


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

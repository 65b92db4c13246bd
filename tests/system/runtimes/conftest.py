"""Real engines with containers that crash again and again and others that fare well. Each module has its own, so that
none outlives its tests."""

from collections.abc import Iterator

import pytest
from tests.parts import missing
from tests.system.runtimes.runtime_parts import COMPLAINT, IMAGE, Containers, remove
from tests.system.zombies.own_docker import OwnDocker, own_docker

from exhume.lab.own_docker import docker_missing


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.xdist_group("containers"))


@pytest.fixture(scope="module")
def docker() -> Iterator[OwnDocker]:
    """A Docker with an image and without containers."""
    if why := docker_missing():
        missing(f"a Docker that can be started ({why})")
    with own_docker() as own:
        own.import_busybox(IMAGE)
        yield own
        # So that the helpers of each container end by themselves.
        remove(own, *own("ps", "-aq", "--no-trunc").split())


@pytest.fixture(scope="module")
def docker_containers(docker: OwnDocker) -> Containers:
    """One that crashes for as long as it is let, one that sleeps, and one that did its work."""
    compose = {
        "com.docker.compose.project": "shop",
        "com.docker.compose.service": "basket",
        "com.docker.compose.project.config_files": "/srv/shop/compose.yaml",
    }
    labels = [word for key, value in compose.items() for word in ("--label", f"{key}={value}")]
    return Containers(
        docker.run("wobbly_heron.9", IMAGE, COMPLAINT, "--restart=always"),
        docker.run("quiet-neighbour", IMAGE, "exec busybox sleep 600", "--restart=on-failure:5", *labels),
        docker.run("done_and-gone", IMAGE, "echo all well"),
    )

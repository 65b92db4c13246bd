"""Containers that a unit runs by its command are that unit's affair, whatever the command looks like."""

import pytest
from audit_scenes import container, unit

from exhume.collect.units_of_containers import with_their_units
from exhume.model.audit import Manager


def owner(command: str, **more: object) -> str:
    *_, found = with_their_units([unit("keeps.service", command=command), container("web", **more)])
    return found.owner


@pytest.mark.parametrize(
    "command",
    [
        "/usr/bin/docker run --rm --name web -p 80:80 acme/web:3 serve",
        "/usr/bin/docker run --name=web acme/web:3",
        "docker --log-level error container run --init --name web acme/web:3",
        "/usr/bin/docker start -a web",
        f"/usr/bin/docker start --attach {'ab' * 6}",
        "/bin/sh -c 'docker pull acme/web:3; exec docker run --rm --name web acme/web:3'",
        "/usr/bin/env A=1 /usr/local/bin/docker run --name web acme/web:3",
    ],
)
def test_the_unit_whose_command_runs_a_container_owns_it(command):
    assert owner(command) == "unit keeps.service"


@pytest.mark.parametrize(
    "command",
    [
        "/usr/bin/docker run --name webb acme/web:3",
        "/usr/bin/docker run acme/web:3 web",
        "/usr/bin/docker stop web",
        "/usr/bin/podman run --name web acme/web:3",
        "/usr/bin/web start web",
        "/bin/sh -c 'unfinished \"quote docker",
        "",
    ],
)
def test_others_do_not(command):
    assert owner(command) == ""


def test_whoever_made_it_says_so_first_and_podman_is_podman():
    assert owner("docker run --name web x", owner="compose project shop") == "compose project shop"
    assert owner("/usr/bin/podman run --name web x", manager=Manager.PODMAN) == "unit keeps.service"

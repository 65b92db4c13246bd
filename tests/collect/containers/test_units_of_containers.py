"""Containers that a unit runs by its command are that unit's affair, whatever the command looks like."""

import pytest
from tests.diagnose.audit.audit_scenes import container, unit

from exhume.collect.containers.unit_starts import own_starts, with_their_units
from exhume.model.audit import Manager, ServiceList

COMPOSED = {"owner": "compose project shop, service web", "fragment": "/srv/shop/compose.yaml"}


def tied(command: str, directory: str | None = None, **more: object) -> ServiceList:
    keeps = unit("keeps.service", starts=("/bin/true", command), directory=directory)
    return with_their_units([keeps, container("web", **more)], list(own_starts(keeps)))


def owner(command: str, directory: str | None = None, **more: object) -> str:
    return tied(command, directory, **more).services[-1].owner


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


def test_the_maker_says_so_first_and_podman_is_podman():
    assert owner("docker run --name web x", owner="swarm service shop_web") == "swarm service shop_web"
    assert owner("docker run --name web x", pod="shop/web") == ""
    assert owner("/usr/bin/podman run --name web x", manager=Manager.PODMAN) == "unit keeps.service"


@pytest.mark.parametrize(
    ("command", "directory"),
    [
        ("/usr/bin/docker compose up", "/srv/shop"),
        ("/usr/bin/docker compose up -d --remove-orphans -t 30", "/srv/shop/"),
        ("/usr/bin/docker compose --ansi never -f /srv/shop/compose.yaml up", None),
        ("/usr/bin/docker compose --file=compose.yaml up db web", "/srv/shop"),
        ("/usr/local/bin/docker-compose -f ../shop/compose.yaml -f /srv/more.yaml up", "/srv/other"),
        ("docker --host unix:///x compose -p shop start web", None),
        ("/usr/libexec/docker/cli-plugins/docker-compose compose --project-name shop up", "/"),
        ("docker compose --project-directory /srv/shop up", "/"),
        ("/bin/sh -c 'docker compose pull && exec docker compose up'", "/srv/shop"),
    ],
)
def test_a_unit_that_calls_compose_keeps_the_containers_of_that_project(command, directory):
    assert owner(command, directory, **COMPOSED) == "unit keeps.service (compose project shop, service web)"


@pytest.mark.parametrize(
    ("command", "directory"),
    [
        ("docker compose up", "/srv/other"),
        ("docker compose up db", "/srv/shop"),
        ("docker compose -p other up", "/srv/shop"),
        ("docker compose -f /srv/other/compose.yaml up", "/srv/shop"),
        ("docker compose down", "/srv/shop"),
        ("docker compose logs -f web", "/srv/shop"),
        ("podman-compose up", "/srv/shop"),
    ],
)
def test_another_project_or_another_call_does_not(command, directory):
    found = tied(command, directory, **COMPOSED)
    assert found.services[-1].owner == COMPOSED["owner"]
    assert found.blind_spots == [], "it is known to be about something else"


def test_what_compose_did_not_make_is_not_its_affair():
    assert owner("docker compose up", "/srv/shop") == ""


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("/usr/bin/docker run --rm registry.example/acme/web:3", {}),
        ('docker run --name "$NAME" $IMAGE', {}),
        ("docker start $WHO", {}),
        ("docker compose up", COMPOSED),
        ("docker compose -p $PROJECT up", COMPOSED),
    ],
)
def test_a_unit_that_does_not_say_which_is_a_blind_spot(command, more):
    found = tied(command, **more)
    assert found.services[-1].owner == more.get("owner", "")
    (said,) = found.blind_spots
    assert said.startswith("keeps.service starts containers by docker ") and "may be started again by it" in said


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("/usr/bin/docker run --rm acme/backup", {}),
        ("/usr/bin/docker run --rm --name job registry.example/acme/web:3", {}),
        ("docker start $WHO", {"owner": "swarm service web"}),
        ("docker start $WHO", {"pod": "shop/web"}),
        ("docker start $WHO", {"manager": Manager.PODMAN}),
        ("docker compose up", {}),
    ],
)
def test_what_can_mean_no_container_of_this_node_is_none(command, more):
    assert tied(command, **more).blind_spots == []


def test_what_is_tied_to_its_unit_is_no_blind_spot():
    assert tied("docker run --name web -e TOKEN=$TOKEN acme/web:3").blind_spots == []

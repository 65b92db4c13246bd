"""What units run that starts containers: scripts and client processes, on fake nodes."""

from pathlib import Path

import pytest
from tests.diagnose.audit.audit_scenes import container, unit

from exhume.collect.containers.unit_starts import unit_starts, with_their_units
from exhume.collect.node_root import NodeRoot
from exhume.model.audit import Manager, Service

HOME = "/system.slice/keeps.service"
ID = "ab" * 32


class FakeRoot:
    """A node's files and processes, below a directory."""

    def __init__(self, path: Path) -> None:
        self.root = NodeRoot(path)
        (path / "proc").mkdir()

    def script(self, name: str, text: str, *, first: str = "#!/bin/bash\n") -> None:
        file = self.root.path / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(first + text)

    def process(self, pid: int, args: list[str], exe: str = "", cgroup: str = HOME, cwd: str = "/") -> None:
        home = self.root.path / f"proc/{pid}"
        home.mkdir()
        (home / "comm").write_text(args[0].rpartition("/")[2] + "\n")
        (home / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in args))
        (home / "cgroup").write_text(f"0::{cgroup}\n")
        (home / "exe").symlink_to(exe or args[0])
        (home / "cwd").symlink_to(cwd)

    def owner(self, keeps: Service, kept: Service | None = None) -> str:
        services = [keeps, kept or container("web")]
        return with_their_units(services, unit_starts(self.root, services)).services[-1].owner


@pytest.fixture
def node(tmp_path) -> FakeRoot:
    return FakeRoot(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "docker rm -f web\nexec docker run --name web acme/web:3\n",
        "NAME=web\ndocker run -d \\\n  --restart=no \\\n  --name ${NAME} acme/web:3\n",
        'DOCKER="/usr/bin/docker"\nif ! $DOCKER start web; then exit 1; fi\n',
        "while true; do (docker start -a web); sleep 5; done\n",
    ],
)
@pytest.mark.parametrize("command", ["/opt/start.sh", "/bin/bash -e /opt/start.sh", "/bin/sh -c '/opt/start.sh --now'"])
def test_a_script_of_the_unit_is_read(node, text, command):
    node.script("/opt/start.sh", text)
    assert node.owner(unit("keeps.service", starts=(command,))) == "unit keeps.service"


@pytest.mark.parametrize(
    "text",
    [
        "# docker start web\n",
        "docker stop web\n",
        "echo docker; other start web\n",
        "NAME=web\nNAME=other\ndocker start $NAME\n",
        "docker start webb\n",
    ],
)
def test_a_script_that_does_not_start_it_is_not_its_keeper(node, text):
    node.script("/opt/start.sh", text)
    assert node.owner(unit("keeps.service", starts=("/opt/start.sh",))) == ""


def test_a_name_that_a_script_makes_up_is_reported_as_a_blind_spot(node):
    node.script("/opt/start.sh", "docker run --name web-$(hostname) acme/web:3\n")
    services = [unit("keeps.service", starts=("/opt/start.sh",)), container("web-a")]
    (said,) = with_their_units(services, unit_starts(node.root, services)).blind_spots
    assert "keeps.service starts containers by docker run (/opt/start.sh)" in said


def test_only_scripts_are_read_and_only_so_far(node):
    node.script("/opt/tool", "docker start web\n", first="\x7fELF")
    assert node.owner(unit("keeps.service", starts=("/opt/tool",))) == ""
    node.script("/opt/long.sh", "#" * (1 << 17) + "\ndocker start web\n")
    assert node.owner(unit("keeps.service", starts=("/opt/long.sh", "/opt/not-there.sh", "/opt"))) == ""
    node.script("/opt/start.sh", "docker start web\n")
    assert node.owner(unit("keeps.service", starts=("/usr/bin/agent --hook /opt/start.sh",))) == "", "not what it runs"


def test_a_container_is_also_a_pods_or_has_no_owner(node):
    node.script("/opt/start.sh", "docker start web\n")
    keeps = unit("keeps.service", starts=("/opt/start.sh",))
    assert node.owner(keeps, container("web", pod="shop/web")) == ""
    assert unit_starts(node.root, [keeps]) == [], "without containers nothing is looked at"


def test_a_client_that_a_script_started_keeps_its_container(node):
    node.process(40, ["/bin/bash", "/opt/start"], exe="/usr/bin/bash")
    node.process(41, ["docker", "run", "--name", "web", "acme/web:3"], exe="/usr/bin/docker")
    assert node.owner(unit("keeps.service", command="/opt/start", cgroup=HOME, pid=40)) == "unit keeps.service"


def test_a_client_that_became_the_main_process_keeps_it_too(node):
    node.process(40, ["/usr/bin/docker", "start", "-a", ID])
    assert node.owner(unit("keeps.service", command="/opt/start", cgroup=HOME, pid=40)) == "unit keeps.service"


@pytest.mark.parametrize(
    ("main", "name"), [("/usr/sbin/cron", "keeps.service"), ("/usr/bin/bash", "docker.service"), ("", "keeps.service")]
)
def test_a_daemon_that_runs_clients_for_others_does_not(node, main, name):
    if main:
        node.process(40, [main])
    home = f"/system.slice/{name}"
    node.process(41, ["docker", "run", "--name", "web", "acme/web:3"], cgroup=home)
    assert node.owner(unit(name, command="/opt/start", cgroup=home, pid=40 if main else None)) == ""


def test_a_client_elsewhere_is_not_the_units(node):
    node.process(40, ["/bin/bash"])
    node.process(41, ["docker", "start", "-a", "web"], cgroup="/user.slice/session-3.scope")
    assert node.owner(unit("keeps.service", command="/opt/start", cgroup=HOME, pid=40)) == ""


def test_a_call_of_compose_is_of_the_project_in_whose_directory_it_runs(node):
    node.process(40, ["/bin/bash"])
    args = ["/usr/libexec/docker/cli-plugins/docker-compose", "compose", "up"]
    node.process(41, args, cgroup=f"{HOME}/work", cwd="/srv/shop")
    keeps = unit("keeps.service", command="/opt/start", cgroup=HOME, pid=40)
    made = container("web", owner="compose project shop, service web", fragment="/srv/shop/compose.yaml")
    assert node.owner(keeps, made) == "unit keeps.service (compose project shop, service web)"
    other = container("web", owner="compose project fish, service web", fragment="/srv/fish/compose.yaml")
    assert node.owner(keeps, other) == "compose project fish, service web"


def test_the_monitor_of_a_container_of_podman_reports_its_id(node):
    node.process(41, ["/usr/bin/conmon", "--api-version", "1", "-c", ID, "-u", ID, "-n", "web"])
    keeps = unit("keeps.service", command="/opt/start", cgroup=HOME, pid=40)
    assert node.owner(keeps, container("web", manager=Manager.PODMAN)) == "unit keeps.service"
    assert node.owner(keeps) == "", "it is none of Docker's"

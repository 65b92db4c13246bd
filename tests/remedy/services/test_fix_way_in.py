"""Containers by which people come into a node are not stopped, nor are the units that keep them."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.remedy.pretend_systemd import PretendSystemd

from exhume.collect.node_root import NodeRoot
from exhume.control.managers import ActionFailed, Controls
from exhume.control.unit_files import OwnFiles
from exhume.model.audit import Manager, Service
from exhume.model.remedy import Step
from exhume.procfs.host import Host
from exhume.remedy.services.actions import STOP_CONTAINER
from exhume.remedy.services.node import Node
from exhume.remedy.services.planner import Planner
from exhume.remedy.services.refusals import Surroundings, look_around, refusal, refusals_now
from exhume.remedy.services.steps import Selection

BASTION = "ab12" * 16


def bastion(**known: object) -> Service:
    return Service(Manager.DOCKER, BASTION, "bastion", **known)


@pytest.mark.parametrize(
    "around",
    [
        Surroundings(doors=frozenset({f"/docker/{BASTION}"})),
        Surroundings(doors=frozenset({f"/box/system.slice/docker-{BASTION}.scope/init"})),
        Surroundings(ssh_port=2222, way_in=frozenset({f"/system.slice/docker-{BASTION}.scope"})),
        Surroundings(inside=frozenset({(f"/docker/{BASTION}", "sshd")})),
        Surroundings(programs=frozenset({(f"/docker/{BASTION}", "dropbear")})),
    ],
    ids=["listens", "listens, seen from outside", "our session", "runs sshd", "in the processes of the node"],
)
def test_a_container_by_which_people_come_in_is_not_stopped(around):
    assert "docker:bastion" in refusal(bastion(), around)
    assert refusal(Service(Manager.DOCKER, "cd34" * 16, "web"), around) == ""


def test_a_container_to_which_the_port_of_ssh_leads_is_not_stopped():
    assert "port 22 of this node leads to docker:bastion" in refusal(bastion(published=(22, 80)), Surroundings())
    assert "this SSH session" in refusal(bastion(published=(2022,)), Surroundings(ssh_port=2022))
    assert refusal(bastion(published=(2022, 80)), Surroundings(ssh_port=22)) == ""


@pytest.mark.parametrize(
    "command",
    ["/usr/sbin/sshd -D -e", "/entrypoint.sh sshd -D", "/entrypoint.sh /usr/sbin/sshd", "tini -- /usr/sbin/sshd"],
)
def test_a_container_that_is_made_to_run_sshd_is_not_stopped_while_it_is_down(command):
    assert "runs sshd" in refusal(bastion(command=command), Surroundings())


@pytest.mark.parametrize(
    "command", ["/opt/agent --like sshd", "/opt/sshd-exporter", "watch -n 5 sshd", "/usr/bin/dockerd", None]
)
def test_a_container_that_only_speaks_of_it_may_be_stopped(command):
    around = Surroundings(inside=frozenset({(f"/docker/{BASTION}", "dockerd"), (f"/docker/{'ef' * 32}", "sshd")}))
    assert refusal(bastion(command=command), around) == ""


def test_what_the_kernel_shows_of_a_container_with_sshd(tmp_path):
    for pid, cgroup, comm, space in ((1, "/init.scope", "systemd", 1), (41, f"/docker/{BASTION}", "sshd", 2)):
        (tmp_path / f"{pid}/ns").mkdir(parents=True)
        (tmp_path / f"{pid}/ns/pid").symlink_to(f"pid:[{space}]")
        (tmp_path / f"{pid}/comm").write_text(f"{comm}\n")
        (tmp_path / f"{pid}/cgroup").write_text(f"0::{cgroup}\n")
    around = look_around(Host(proc=tmp_path))
    assert around.inside == {(f"/docker/{BASTION}", "sshd")}
    assert "runs sshd: it may be the way into this node" in refusal(bastion(), around)


def plan(tmp_path: Path, name: str, kept: Service) -> tuple[list[Step], list[str]]:
    units = {"door.service": {"active": "active"}, "doo.service": {"active": "active"}}
    files = OwnFiles(lambda path: tmp_path / "root" / path.lstrip("/"))
    controls = Controls(PretendSystemd(tmp_path / "root", units))
    planner = Planner(controls, files, Surroundings(), "20260101-000000-abcd", "now", containers=(kept,))
    return planner.steps([Selection(Service(Manager.SYSTEMD, name, name))])


def test_a_unit_that_keeps_such_a_container_is_not_stopped(tmp_path):
    kept = bastion(published=(22,), owner="unit door.service (compose project door, service a)")
    steps, refused = plan(tmp_path, "door.service", kept)
    assert not steps and refused[0].startswith("door.service keeps docker:bastion, and port 22")
    assert plan(tmp_path, "doo.service", kept)[1] == []
    assert plan(tmp_path, "door.service", bastion(owner="unit door.service"))[1] == []


@dataclass(frozen=True)
class Ports:
    """An engine that tells ports alone; None where the container is gone."""

    of: tuple[int, ...] | None

    def published(self, container: str) -> tuple[int, ...]:
        if self.of is None:
            raise ActionFailed(f"there is no container {container}")
        return self.of


@pytest.mark.parametrize(("ports", "said"), [((22,), 1), ((80,), 0), (None, 0)])
def test_what_leads_to_a_container_is_looked_at_again_before_it_is_stopped(tmp_path, ports, said):
    (tmp_path / "proc").mkdir()
    engines = Controls(engines={Manager.DOCKER: Ports(ports)})
    node = Node(NodeRoot(tmp_path), engines, OwnFiles(lambda path: tmp_path / path.lstrip("/")), "n", "m", "b")
    step = Step("stop:x", "stop it", "asked for", action=STOP_CONTAINER, targets=(f"docker:{BASTION}",))
    assert len(refusals_now([step], node, forced=False)) == said

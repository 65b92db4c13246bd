"""What agents need is looked for in a tree of files, and in real processes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.diagnose.audit.audit_scenes import container, unit

from exhume.collect.audit.agent_checks import AgentChecks
from exhume.collect.audit.facts import gather_facts
from exhume.collect.audit.service_use import ProcessTable, uses_of
from exhume.collect.node_root import NodeRoot
from exhume.diagnose.audit.agents import agents, describe, questions
from exhume.model.audit import Check, CheckKind, Use


@pytest.fixture
def node(tmp_path: Path) -> NodeRoot:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text(
        "20 1 0:1 / / rw - ext4 /dev/vda rw\n21 20 0:2 / /data rw - nfs4 x:/ rw\n"
    )
    return NodeRoot(tmp_path)


def put(node: NodeRoot, path: str, text: str = "x\n") -> Path:
    place = node.path / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return place


def ask(node: NodeRoot, kind: str, *, service=None, units=(), uses=None, **more) -> bool | None:
    known = {each.id: each for each in units}
    checks = AgentChecks(node, ProcessTable.read(node.host), known, uses or {})
    answer = checks.answer(service or unit(), Check(CheckKind(kind), **more))
    assert answer.seen
    return answer.held


def test_a_file_is_there_and_not_empty(node):
    assert ask(node, "file", paths=("/etc/a/b.conf",)) is False
    place = put(node, "/etc/a/b.conf", "")
    assert ask(node, "file", paths=("/etc/a/b.conf",)) is False
    place.write_text("x")
    assert ask(node, "file", paths=("/etc/a/b.conf",)) is True
    assert ask(node, "file", paths=("/etc/none", "/etc/a/*.conf")) is True
    assert ask(node, "file", paths=("/etc/a/*.json",)) is False


def test_links_are_followed_inside_the_nodes_root_only(node, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.write_text("secret")
    put(node, "/etc/real.conf")
    (node.path / "etc/good.conf").symlink_to("/etc/real.conf")
    (node.path / "etc/bad.conf").symlink_to(outside)
    (node.path / "etc/round.conf").symlink_to("/etc/round.conf")
    assert ask(node, "file", paths=("/etc/good.conf",)) is True
    assert ask(node, "file", paths=("/etc/bad.conf",)) is False
    assert ask(node, "file", paths=("/etc/round.conf",)) is False
    outside.unlink()


def test_a_line_may_be_in_any_of_the_files(node):
    key = {"paths": ("/etc/d/*.yaml",), "pattern": r"^\s*api_key:\s*\S"}
    assert ask(node, "line", **key) is False
    put(node, "/etc/d/a.yaml", "# api_key: none\napi_key:\n")
    assert ask(node, "line", **key) is False
    put(node, "/etc/d/b.yaml", "site: x\napi_key: 0123\n")
    assert ask(node, "line", **key) is True


def test_a_variable_is_set_in_a_file_of_settings(node):
    cluster = {"paths": ("/etc/ecs/ecs.config",), "names": ("ECS_CLUSTER",)}
    assert ask(node, "env", **cluster) is False
    put(node, "/etc/ecs/ecs.config", "#ECS_CLUSTER=x\nECS_CLUSTER=\nMY_ECS_CLUSTER=y\n")
    assert ask(node, "env", **cluster) is False
    put(node, "/etc/ecs/ecs.config", 'ECS_LOGLEVEL=info\nexport ECS_CLUSTER="prod"\n')
    assert ask(node, "env", **cluster) is True


def test_a_variable_is_set_by_the_unit_or_a_file_that_it_names(node):
    put(
        node,
        "/usr/lib/systemd/system/thing.service",
        '[Service]\nEnvironment=A=1 "B=two words"\nEnvironmentFile=-/etc/m\n',
    )
    service = unit(drop_ins=("/etc/systemd/system/thing.service.d/key.conf",))
    assert ask(node, "env", service=service, names=("DD_API_KEY",)) is False
    assert ask(node, "env", service=service, names=("A",)) is True
    assert ask(node, "env", service=service, names=("B",)) is True
    put(node, "/etc/m", "DD_API_KEY=0123\n")
    assert ask(node, "env", service=service, names=("DD_API_KEY",)) is True
    put(node, "/etc/m", "OTHER_DD_API_KEY=0123\n")
    put(node, service.drop_ins[0], "[Service]\nEnvironment='DD_API_KEY=0123'\n")
    assert ask(node, "env", service=service, names=("DD_API_KEY",)) is True
    assert ask(node, "env", service=service, names=("API_KEY",)) is False


def test_a_variable_is_set_in_a_real_processs_environment():
    program = [sys.executable, "-c", "input()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, env={"DD_API_KEY": "0123"}) as process:
        service = container(pid=process.pid)
        assert ask(NodeRoot(), "env", service=service, names=("DD_API_KEY",)) is True
        assert ask(NodeRoot(), "env", service=service, names=("DD_OTHER",)) is False
        process.communicate(b"\n")


def test_settings_that_are_kept_elsewhere_are_not_lacking(node):
    check = {"paths": ("/etc/agent/*.conf", "/etc/agent/agent.d/*"), "pattern": "output"}
    for reported in ("-c /opt/mine/agent.conf", "--config=/opt/mine", "-config-dir /srv/x", "--config_path='/x/y.yml'"):
        assert ask(node, "line", service=unit(command=f"/usr/bin/agent {reported} --quiet"), **check) is None
        assert ask(node, "file", service=unit(command=f"/usr/bin/agent {reported}"), paths=check["paths"]) is None
    assert ask(node, "line", service=unit(command="agent --config https://x.example/agent"), **check) is None
    # A file of its own in the usual directory, which the patterns don't cover.
    assert ask(node, "line", service=unit(command="agent -c /etc/agent/sub/a.conf"), **check) is None
    # What its package writes into the unit is where we looked.
    for reported in (
        "-c //etc/agent/agent.conf",
        "-config-dir=/etc/agent/agent.d/ --other /opt/y",
        "--verbose",
        "$OPTIONS",
    ):
        assert ask(node, "line", service=unit(command=f"/usr/bin/agent {reported}"), **check) is False


def test_what_is_not_mounted_here_is_not_lacking(node):
    dmi = {"paths": ("/sys/class/dmi/id/sys_vendor",), "pattern": "Amazon EC2", "on_host": True}
    assert ask(node, "line", **dmi) is None
    (node.path / "sys").mkdir()
    assert ask(node, "line", **dmi) is None
    assert ask(node, "file", paths=("/dev/nvidia[0-9]*",), on_host=True) is None
    put(node, "/sys/class/dmi/id/sys_vendor", "QEMU\n")
    assert ask(node, "line", **dmi) is False
    put(node, "/dev/null", "")
    assert ask(node, "file", paths=("/dev/nvidia[0-9]*",), on_host=True) is False


@pytest.mark.root
def test_what_we_may_not_look_into_is_not_lacking(node, tmp_path):
    """A directory of root's own, read by another user."""
    put(node, "/etc/closed/key.pem")
    put(node, "/etc/closed/settings", "OTHER=1\n")
    for each in (tmp_path, *tmp_path.parents):
        if each.stat().st_uid == 0 and not each.stat().st_mode & 0o001:
            each.chmod(0o755)
    (node.path / "etc/closed").chmod(0o700)
    os.seteuid(65534)
    try:
        assert ask(node, "file", paths=("/etc/closed/*.pem",)) is None
        assert ask(node, "file", paths=("/etc/closed/none.pem",)) is None
        assert ask(node, "line", paths=("/etc/closed/settings",), pattern="x") is None
        assert ask(node, "env", paths=("/etc/closed/settings",), names=("KEY",)) is None
        assert ask(node, "file", paths=("/etc/none/*.pem",)) is False
    finally:
        os.seteuid(0)
    assert ask(node, "env", paths=("/etc/closed/settings",), names=("KEY",)) is False


def test_the_files_of_a_container_without_a_process_are_not_known(node):
    put(node, "/etc/a.conf")
    dead = container(state="exited", pid=None)
    assert ask(node, "file", service=dead, paths=("/etc/a.conf",)) is None
    assert ask(node, "env", service=dead, names=("A",)) is None
    assert ask(node, "file", service=dead, paths=("/etc/a.conf",), on_host=True) is True


def test_sockets_mounts_units_and_processes(node, monkeypatch):
    assert ask(node, "socket", paths=("/run/d.sock",)) is False
    put(node, "/run/no.sock")
    assert ask(node, "socket", paths=("/run/no.sock",)) is False
    with socket.socket(socket.AF_UNIX) as server:
        # The path of a socket may have 107 bytes: it is bound from inside its directory.
        monkeypatch.chdir(node.path / "run")
        server.bind("d.sock")
        assert ask(node, "socket", paths=("/run/d.sock",)) is True
    assert ask(node, "mount", names=("nfs4",)) is True
    assert ask(node, "mount", names=("efs",)) is False
    assert ask(node, "unit", names=("a.service",), units=[unit("a.service")]) is True
    assert ask(node, "unit", names=("a.service",), units=[unit("a.service", "failed", "failed")]) is False
    name = Path("/proc/self/comm").read_text().strip()
    assert ask(NodeRoot(), "process", names=(name,)) is True
    assert ask(NodeRoot(), "process", names=("no-such-program-here",)) is False


def test_credentials_and_peers_are_never_denied(node):
    assert ask(node, "credentials", paths=("/root/.aws/credentials",)) is None
    put(node, "/root/.aws/credentials")
    assert ask(node, "credentials", paths=("/root/.aws/credentials",)) is True
    service = unit()
    assert ask(node, "peer", service=service) is None
    uses = {service.key: Use(connections=("1 connection to port 9100",))}
    assert ask(node, "peer", service=service, uses=uses) is True


def test_a_port_has_an_owner(node):
    uses = {"x.service": Use(listens=("port 8125",))}
    assert ask(node, "port", port=8125, uses=uses) is True
    assert ask(node, "port", port=812, uses=uses) is False


def test_the_whole_way_from_a_tree_to_what_an_agent_lacks(node):
    service = unit("ecs.service")
    entry = agents()["ecs-agent"]
    asked = {service.key: questions(entry)}
    agent, decisive = describe(service, entry, gather_facts(node, [service], asked))
    assert decisive and len(agent.lacks) == 2
    assert "docker.sock" in agent.lacks[0].seen and "dockerd" in agent.lacks[0].seen
    put(node, "/etc/ecs/ecs.config", "ECS_CLUSTER=prod\n")
    agent, _ = describe(service, entry, gather_facts(node, [service], asked))
    assert [lack.what.split(",")[0] for lack in agent.lacks] == ["Docker"]


CLIENT = """
import socket, sys
c = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
u = socket.socket(socket.AF_UNIX); u.connect(sys.argv[2])
print("in", flush=True); sys.stdin.read()
"""


def test_real_connections_to_a_real_service_are_seen(tmp_path, monkeypatch):
    """This process is the service; first it talks to itself, then another process connects."""
    path = tmp_path / "s"
    service = unit(cgroup=None, pid=os.getpid())
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        monkeypatch.chdir(tmp_path)
        local.bind("s")
        local.listen()
        port = server.getsockname()[1]
        quiet = look(service)
        assert f"port {port}" in quiet.listens and "s" in quiet.listens
        assert not any(str(port) in each for each in quiet.connections)
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            assert not any(str(port) in each for each in look(service).connections)
            accepted.close()
        client = [sys.executable, "-c", CLIENT, str(port), str(path)]
        with subprocess.Popen(client, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline()
            connected = [server.accept()[0], local.accept()[0]]
            assert {f"1 connection to port {port}", "1 connection to s"} <= set(look(service).connections)
            for each in connected:
                each.close()
            process.communicate(b"")


def look(service) -> Use:
    uses, _ = uses_of(NodeRoot(), [service], ProcessTable.read(NodeRoot().host))
    return uses[service.key]

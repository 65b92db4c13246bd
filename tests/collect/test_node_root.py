"""The node's files from elsewhere: links never lead out of its root."""

import os
from pathlib import Path

import pytest

from exhume.collect.node_root import NodeRoot


@pytest.fixture
def node(tmp_path: Path) -> NodeRoot:
    root = tmp_path / "node"
    (root / "run").mkdir(parents=True)
    (root / "etc").mkdir()
    (root / "var").mkdir()
    (root / "var/run").symlink_to("/run")
    (root / "etc/up").symlink_to("../../../../../run/x")
    (root / "etc/chain").symlink_to("/etc/up")
    (root / "etc/round").symlink_to("round2")
    (root / "etc/round2").symlink_to("/etc/round")
    return NodeRoot(root)


def test_absolute_links_stay_below_the_root(node: NodeRoot) -> None:
    assert node.file("/var/run/docker.sock") == node.path / "run/docker.sock"


@pytest.mark.parametrize("name", ["/etc/up", "/etc/chain", "/etc/../../../run/x", "run//./x"])
def test_nothing_leads_above_the_root(node: NodeRoot, name: str) -> None:
    assert node.file(name) == node.path / "run/x"


def test_links_in_a_circle_are_an_error(node: NodeRoot) -> None:
    with pytest.raises(OSError, match="symbolic links"):
        node.file("/etc/round")


def test_the_way_back_to_the_node_s_own_name(node: NodeRoot) -> None:
    assert node.name_of(node.file("/var/run/x")) == "/run/x"
    assert NodeRoot().name_of(Path("/etc/x")) == "/etc/x"


def test_the_environment_speaks_only_of_this_very_place(node: NodeRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "tcp:host=x;unix:path=/here/bus,guid=1")
    monkeypatch.setenv("DOCKER_HOST", "unix:///here/docker.sock")
    monkeypatch.setenv("CONTAINER_RUNTIME_ENDPOINT", "unix:///here/cri.sock")
    here = NodeRoot()
    assert (here.bus, here.docker, here.cri) == (
        Path("/here/bus"),
        Path("/here/docker.sock"),
        (Path("/here/cri.sock"),),
    )
    assert node.bus == node.path / "run/dbus/system_bus_socket"
    assert (node.docker, node.podman, node.cri) == (None, None, ())


def test_sockets_that_are_there_are_found(node: NodeRoot) -> None:
    cri = (
        "run/crio/crio.sock",
        "run/k3s/containerd/containerd.sock",
        "run/k0s/containerd.sock",
        "var/snap/microk8s/common/run/containerd.sock",
        "run/dockershim.sock",
        "run/cri-dockerd.sock",
    )
    for name in ("run/docker.sock", "run/podman/podman.sock", *cri):
        path = node.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path)
    assert node.docker == node.path / "run/docker.sock"
    assert node.podman == node.path / "run/podman/podman.sock"
    assert [str(each.relative_to(node.path)) for each in node.cri] == list(cri)


@pytest.mark.root
def test_sockets_in_closed_directories_are_not_there_for_another_user(node: NodeRoot, tmp_path: Path) -> None:
    """Podman's and containerd's directories are root's own."""
    for name in ("run/podman/podman.sock", "run/containerd/containerd.sock"):
        (node.path / name).parent.mkdir(mode=0o700)
        os.mknod(node.path / name)
    for each in (tmp_path, *tmp_path.parents):
        if each.stat().st_uid == 0 and not each.stat().st_mode & 0o001:
            each.chmod(0o755)
    assert node.podman is not None and node.cri
    os.seteuid(65534)
    try:
        assert (node.podman, node.cri) == (None, ())
    finally:
        os.seteuid(0)


def test_the_kernel_s_files_are_those_of_the_node(node: NodeRoot) -> None:
    assert node.host.proc == node.path / "proc"
    assert NodeRoot().host.proc == Path("/proc")

"""Cgroup paths -> containers and pods."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.collect.containers.identity import identify

ID = "5a" * 32
OTHER = "c3" * 32
UID = "0f6a9c1e-7d1b-4c55-9a6e-2b1f0a9d8c77"
UID_ = UID.replace("-", "_")
HASH = "9d" * 16

CASES = {
    # docker
    f"/docker/{ID}": (ID, None, "docker"),
    f"/system.slice/docker-{ID}.scope": (ID, None, "docker"),
    f"/system.slice/docker-{ID}.scope/init.scope": (ID, None, "docker"),
    f"/kubepods/burstable/pod{UID}/{ID}": (ID, UID, None),
    f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice/docker-{ID}.scope": (
        ID,
        UID,
        "docker",
    ),
    # containerd
    f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope": (
        ID,
        UID,
        "containerd",
    ),
    f"/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope": (ID, UID, "containerd"),
    f"/system.slice/containerd.service/kubepods-besteffort-pod{UID_}.slice:cri-containerd:{ID}": (
        ID,
        UID,
        "containerd",
    ),
    f"/system.slice/nerdctl-{ID}.scope": (ID, None, "containerd"),
    f"/kubepods/besteffort/pod{UID}/{ID}/nested/group": (ID, UID, None),
    # static pods have a hash for a uid
    f"/kubepods/burstable/pod{HASH}/{ID}": (ID, HASH, None),
    f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{HASH}.slice/cri-containerd-{ID}.scope": (
        ID,
        HASH,
        "containerd",
    ),
    # cri-o
    f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/crio-{ID}.scope": (ID, UID, "cri-o"),
    f"/kubepods.slice/kubepods-pod{UID_}.slice/crio-{ID}.scope/container": (ID, UID, "cri-o"),
    f"/kubepods/pod{UID}/crio-{ID}": (ID, UID, "cri-o"),
    # podman
    f"/machine.slice/libpod-{ID}.scope": (ID, None, "podman"),
    f"/machine.slice/libpod-{ID}.scope/container": (ID, None, "podman"),
    f"/libpod_parent/libpod-{ID}": (ID, None, "podman"),
    # the ECS agent's tasks
    f"/ecs/0123456789abcdef0123456789abcdef/{ID}": (ID, None, "docker"),
    f"/ecs/{HASH}/{HASH}-2494230183": (f"{HASH}-2494230183", None, None),
    # one inside another: the innermost container, in the pod around it
    f"/docker/{OTHER}/kubelet/kubepods/burstable/pod{UID}/{ID}": (ID, UID, None),
    f"/kubepods/burstable/pod{UID}/{OTHER}/docker/{ID}": (ID, UID, "docker"),
    f"/docker/{OTHER}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
    f"kubelet-kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope": (ID, UID, "containerd"),
    f"/docker/{OTHER}/system.slice/docker-{ID}.scope": (ID, None, "docker"),
    f"/machine.slice/libpod-{OTHER}.scope/container/system.slice/docker-{ID}.scope": (ID, None, "docker"),
    # in a container, whatever its users call their cgroups
    f"/docker/{OTHER}/user.slice/user-0.slice/user@0.service/docker-{ID}.scope": (OTHER, None, "docker"),
    f"/system.slice/docker-{OTHER}.scope/user.slice/user-7.slice/user@7.service/pod{UID}": (OTHER, None, "docker"),
    # a node's containers, as seen from the cgroup namespace of one of them
    f"/../cri-containerd-{ID}.scope": (ID, None, "containerd"),
    f"/../../kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope": (ID, UID, "containerd"),
    f"/../../../system.slice/docker-{ID}.scope": (ID, None, "docker"),
    # in system containers
    f"/lxc.payload.web/system.slice/docker-{ID}.scope": (ID, None, "docker"),
    f"/lxc/100/ns/system.slice/docker-{ID}.scope": (ID, None, "docker"),
    f"/machine.slice/systemd-nspawn@web.service/payload/system.slice/docker-{ID}.scope": (ID, None, "docker"),
    f"/machine.slice/machine-web.scope/payload/machine.slice/libpod-{ID}.scope": (ID, None, "podman"),
    # a pod, but no container
    f"/kubepods/burstable/pod{UID}": (None, UID, None),
    f"/kubepods.slice/kubepods-pod{UID_}.slice": (None, UID, None),
}


@pytest.mark.parametrize(("path", "expected"), CASES.items())
def test_paths_of_the_runtimes(path: str, expected: tuple) -> None:
    found = identify(path)
    assert found is not None
    assert (found.container, found.pod, found.runtime) == expected


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/system.slice/sshd.service",
        "/user.slice/user-0.slice/session-1.scope",
        "/kubepods.slice/kubepods-burstable.slice",
        f"/machine.slice/libpod-conmon-{ID}.scope",
        f"/kubepods.slice/crio-conmon-{ID}.scope",
        f"/docker/{ID[:63]}",
        f"/system.slice/docker-{ID.upper()}.scope",
        "/system.slice/docker.service",
        f"/podcasts/{HASH}",
        "/init.scope",
        # what is delegated to a user, who may make any cgroup there; rootless containers are among them
        f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
        f"/user.slice/user-1000.slice/user@1000.service/app.slice/docker-{ID}.scope",
        f"/user.slice/user-1000.slice/user@1000.service/docker/{ID}",
        f"/user.slice/user-1000.slice/user@1000.service/kubepods/burstable/pod{UID}/{ID}",
        f"/user.slice/user-1000.slice/user@1000.service/x.slice:docker:{ID}",
        # systemd makes no scope there
        f"/delegated/docker-{ID}.scope",
        f"/system.slice/backup.service/docker-{ID}.scope",
        f"/system.slice/backup.service/system.slice/cri-containerd-{ID}.scope/init",
        f"/user.slice/user-1000.slice/session-2.scope/docker-{ID}.scope",
        f"/system.slice/backup.service/lxc.payload.web/system.slice/docker-{ID}.scope",
        f"/lxc.payload.web/backup.service/docker-{ID}.scope",
        # as deep as a path can be: a look at each part that looks again at all above it would not end
        "/delegated" + f"/docker-{ID}.scope" * 50,
    ],
)
def test_paths_without_an_owner(path: str) -> None:
    assert identify(path) is None


part = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["kubepods", "docker", f"pod{UID}", ID, f"docker-{ID}.scope", ":", "ecs", f"x:crio:{ID}"]),
)


@given(st.lists(part, max_size=6).map("/".join))
def test_no_path_breaks_it(path: str) -> None:
    found = identify(path)
    if found is not None:
        assert found.container or found.pod
        assert found.container is None or found.container in path

"""Paths that differ only in ids and numbers are one."""

import pytest

from exhume.diagnose.facts.lifetimes import path_pattern

HEX64 = "0123456789abcdef" * 4
UUID = "6f1b2c3d-1111-2222-3333-444455556666"


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        (f"/docker/{HEX64}", "/docker/*"),
        (f"/system.slice/docker-{HEX64}.scope", "/system.slice/docker-*.scope"),
        (f"/kubepods/burstable/pod{UUID}/{HEX64}", "/kubepods/burstable/pod*/*"),
        (
            f"/kubepods.slice/kubepods-pod{UUID.replace('-', '_')}.slice/cri-containerd-{HEX64}.scope",
            "/kubepods.slice/kubepods-pod*.slice/cri-containerd-*.scope",
        ),
        ("/user.slice/user-1000.slice/session-12.scope", "/user.slice/user-*.slice/session-*.scope"),
        ("/system.slice/run-r0f3a9c1d2e4b5f60718293a4b5c6d7e8.scope", "/system.slice/run-r*.scope"),
        (f"/ecs/{'ab12' * 8}-1234567890", "/ecs/*"),
        ("/exhume-lab/zombie7", "/exhume-lab/zombie*"),
        ("/exhume-lab/0000012", "/exhume-lab/*"),
        ("/dev/shm/x/12-34-56", "/dev/shm/x/*"),
        ("/system.slice/k8s-agent.service", "/system.slice/k8s-agent.service"),
        ("/system.slice/facade.service", "/system.slice/facade.service"),
        ("/system.slice/deadbeefcafe.service", "/system.slice/deadbeefcafe.service"),
        ("", ""),
    ],
)
def test_what_numbers_things_becomes_a_star(path: str, pattern: str) -> None:
    assert path_pattern(path) == pattern


def test_it_changes_nothing_twice() -> None:
    once = path_pattern(f"/docker/{HEX64}/{UUID}/7")
    assert path_pattern(once) == once

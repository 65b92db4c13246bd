"""Zombies counted on fake nodes of every layout: what can't be counted is unknown and says why, never wrong."""

import os
from pathlib import Path
from unittest import mock

import pytest
from tests.collect.fake_node import FakeNode

from exhume.collect.cgroup.census import PERCPU_BYTES, SLAB_BYTES, take_census
from exhume.model.zombies import Census, HierarchyCensus

TMPFS = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755"
V1_MEMORY = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V1_CPU = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct"
V1_NAMED = "40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd"
HYBRID_V2 = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"
V2 = "41 31 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot"
ROWS = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t3\t{cpu}\t1\ncpuacct\t3\t{cpu}\t1\nmemory\t4\t{memory}\t1\n"


def v1_node(node: FakeNode, memory: int, directories: list[str], cpu: int = 1) -> Path:
    node.mounts(TMPFS, V1_CPU, V1_MEMORY, V1_NAMED)
    node.proc("cgroups", ROWS.format(memory=memory, cpu=cpu))
    node.sys("devices/system/cpu/possible", "0-3\n")
    node.proc("meminfo", "SUnreclaim:    90000000 kB\nPercpu:    8000000 kB\n")
    for hierarchy in ("memory", "cpu,cpuacct", "systemd"):
        node.sys(f"fs/cgroup/{hierarchy}/release_agent", "")
    root = node.host.sys / "fs/cgroup/memory"
    for directory in directories:
        (root / directory).mkdir(parents=True)
    return root


def v2_stat(live: int, dying: int, **subsystems: tuple[int, int]) -> str:
    text = f"nr_descendants {live}\n" + "".join(f"nr_subsys_{name} {n[0]}\n" for name, n in subsystems.items())
    text += f"nr_dying_descendants {dying}\n"
    return text + "".join(f"nr_dying_subsys_{name} {n[1]}\n" for name, n in subsystems.items())


def memory_of(census: Census) -> HierarchyCensus:
    assert census.memory is not None
    return census.memory


def figures(each: HierarchyCensus) -> tuple[int | None, int | None, int | None]:
    return each.kernel, each.visible, each.dying


def test_v1_counts_every_hierarchy_that_the_kernel_counts(node: FakeNode) -> None:
    v1_node(node, 68_920, ["a", "a/b", "kubepods", "kubepods/pod1"], cpu=7)
    census = take_census(node.host)
    assert figures(memory_of(census)) == (68_920, 5, 68_915)
    assert [each.name for each in census.hierarchies] == ["memory", "cpu,cpuacct"]
    assert figures(census.hierarchies[1]) == (7, 1, 6)
    assert census.dying == 68_915
    assert memory_of(census).number == 4
    assert census.blind_spots == []


def test_kernel_memory_is_estimated_from_the_cost_of_one_on_this_many_cpus(node: FakeNode) -> None:
    v1_node(node, 1001, [])
    assert memory_of(take_census(node.host)).memory_bytes == 1000 * (SLAB_BYTES + 4 * PERCPU_BYTES)
    assert memory_of(take_census(node.host)).memory_measured is False


def test_the_estimate_is_never_more_than_the_kernel_has(node: FakeNode) -> None:
    v1_node(node, 1001, [])
    node.proc("meminfo", "SUnreclaim: 10 kB\nPercpu: 20 kB\n")
    assert memory_of(take_census(node.host)).memory_bytes == 30 * 1024


def test_v2_before_controllers_were_distinguished(node: FakeNode) -> None:
    node.mounts(V2)
    node.sys("fs/cgroup/cgroup.controllers", "cpu memory\n")
    node.sys("fs/cgroup/cgroup.stat", v2_stat(41, 300))
    memory = memory_of(take_census(node.host))
    assert figures(memory) == (342, 42, 300)
    assert "all controllers together" in memory.note
    assert memory.number == 0


def test_v2_by_controller_and_without_a_memory_row(node: FakeNode) -> None:
    node.mounts(V2)
    node.proc("cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t42\t1\n")
    node.sys("fs/cgroup/cgroup.controllers", "cpu memory\n")
    node.sys("fs/cgroup/cgroup.stat", v2_stat(41, 300, cpu=(40, 2), memory=(42, 290)))
    census = take_census(node.host)
    assert figures(memory_of(census)) == (332, 42, 290)
    assert {each.controller: each.dying for each in census.hierarchies} == {"memory": 290, "cpu": 2}
    assert census.blind_spots == []


def test_hybrid_memory_is_on_v1(node: FakeNode) -> None:
    v1_node(node, 12, ["a"])
    node.mounts(TMPFS, V1_MEMORY, HYBRID_V2)
    node.sys("fs/cgroup/unified/cgroup.stat", v2_stat(3, 1, memory=(1, 0)))
    census = take_census(node.host)
    assert figures(memory_of(census)) == (12, 2, 10)
    assert memory_of(census).version == 1
    assert [(each.controller, each.dying) for each in census.hierarchies] == [("memory", 10), ("all", 1)]


def test_v1_without_a_memory_row_knows_no_zombies(node: FakeNode) -> None:
    v1_node(node, 1, ["a"])
    node.proc("cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t1\t1\n")
    memory = memory_of(take_census(node.host))
    assert figures(memory) == (None, 2, None)
    assert "no row for memory" in memory.note


def test_a_cgroup_namespace_of_v1_knows_the_kernels_count_alone(node: FakeNode) -> None:
    root = v1_node(node, 500, ["a"])
    (root / "release_agent").unlink()
    census = take_census(node.host)
    assert figures(memory_of(census)) == (500, None, None)
    assert census.dying is None
    assert "cgroup namespace" in census.blind_spots[0]


def test_a_cgroup_namespace_of_v2_says_that_it_is_a_part(node: FakeNode) -> None:
    node.mounts(V2)
    node.sys("fs/cgroup/cgroup.events", "populated 1\n")
    node.sys("fs/cgroup/cgroup.stat", v2_stat(4, 9, memory=(5, 9)))
    memory = memory_of(take_census(node.host))
    assert memory.dying == 9
    assert "only what is below" in memory.note


def test_a_hierarchy_that_is_mounted_twice_counts_once_by_its_whole(node: FakeNode) -> None:
    v1_node(node, 10, ["a", "b"])
    node.sys("fs/part/memory.stat", "")
    part = "77 31 0:32 /docker/abc /sys/fs/part rw - cgroup cgroup rw,memory"
    again = "78 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
    node.mounts(part, TMPFS, V1_MEMORY, again, part)
    census = take_census(node.host)
    assert [figures(each) for each in census.hierarchies] == [(10, 3, 7)]


def test_a_directory_that_may_not_be_listed_makes_the_count_unknown(node: FakeNode) -> None:
    root = v1_node(node, 10, ["open/x", "closed/y/z"])
    real = os.scandir

    def scandir(path):
        if os.fspath(path) == str(root / "closed"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    with mock.patch("exhume.collect.cgroup.tree.os.scandir", scandir):
        memory = memory_of(take_census(node.host))
    assert figures(memory) == (10, None, None)
    assert str(root / "closed") in memory.note
    assert "run as root" in memory.note


def test_a_tree_that_never_holds_still_is_a_range_not_a_number(node: FakeNode) -> None:
    v1_node(node, 10, ["a"])
    counts = iter(range(100, 10_000))

    def churning(_self: object) -> int:
        return next(counts)

    with mock.patch("exhume.collect.cgroup.dying.LegacyCounter.kernel", churning):
        memory = memory_of(take_census(node.host))
    assert memory.dying is None
    assert "between" in memory.note and "quieter moment" in memory.note


def test_more_directories_than_the_kernel_counts_is_no_number(node: FakeNode) -> None:
    v1_node(node, 2, ["a", "b", "c"])
    assert figures(memory_of(take_census(node.host))) == (2, None, None)


def test_a_zombie_of_an_instant_is_not_counted(node: FakeNode) -> None:
    """A removed cgroup is released after some 40 ms: only what a second look sees as well counts."""
    v1_node(node, 10, ["a"])
    looks = iter([12, 12, 10, 10])
    with (
        mock.patch("exhume.collect.cgroup.dying.LegacyCounter.kernel", lambda _self: next(looks)),
        mock.patch("exhume.collect.cgroup.census.dying_counters", _only_memory),
    ):
        assert memory_of(take_census(node.host)).dying == 8


def test_growth_is_seen_by_a_sampling(node: FakeNode) -> None:
    v1_node(node, 10, ["a"])
    looks = iter([10, 10, 10, 10, 14, 14, 14, 14])
    with (
        mock.patch("exhume.collect.cgroup.dying.LegacyCounter.kernel", lambda _self: next(looks)),
        mock.patch("exhume.collect.cgroup.census.dying_counters", _only_memory),
    ):
        memory = memory_of(take_census(node.host, 0.25))
    assert memory.dying == 12
    assert memory.sampled_s is not None and memory.growth_per_hour is not None
    assert memory.growth_per_hour * memory.sampled_s / 3600 == pytest.approx(4)


def _only_memory(host):
    from exhume.collect.cgroup.dying import LegacyCounter
    from exhume.collect.cgroup.layout import find_v1, hierarchies

    return [LegacyCounter(host, find_v1(hierarchies(host), "memory"), ["memory"])]


def test_nothing_mounted(node: FakeNode) -> None:
    census = take_census(node.host)
    assert census.hierarchies == []
    assert census.dying is None
    assert "memory controller" in census.blind_spots[0]


def test_an_unreadable_count_of_v2_says_so(node: FakeNode) -> None:
    node.mounts(V2)
    node.sys("fs/cgroup/cgroup.controllers", "memory\n")
    memory = memory_of(take_census(node.host))
    assert memory.dying is None
    assert "cgroup.stat" in memory.note


def test_a_kernel_that_counts_no_dying_cgroups_says_so(node: FakeNode) -> None:
    node.mounts(V2)
    node.sys("fs/cgroup/cgroup.stat", "")
    assert "no count of dying" in memory_of(take_census(node.host)).note

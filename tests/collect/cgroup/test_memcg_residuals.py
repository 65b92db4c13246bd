"""What cgroups hold beyond themselves and their children, on fake nodes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.collect.fake_node import FakeNode

from exhume.collect.cgroup import residuals as module
from exhume.collect.cgroup.residuals import find_residuals, residuals
from exhume.model.zombies import PAGE, ParentResidual

V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V2 = "41 31 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"
MIB = 1 << 20
V1_NAMES = ("cache", "rss", "shmem", "mapped_file", "dirty", "swap", "unevictable")


def v1_stat(own: dict[str, int], total: dict[str, int]) -> str:
    lines = [f"{name} {own.get(name, 0)}" for name in V1_NAMES]
    return "\n".join(lines + [f"total_{name} {total.get(name, 0)}" for name in V1_NAMES]) + "\n"


def v1_cgroup(node: FakeNode, path: str, own: dict[str, int], total: dict[str, int]) -> None:
    node.sys(f"fs/cgroup/memory/{path}/memory.stat", v1_stat(own, total))


def v1_node(node: FakeNode) -> None:
    node.mounts(V1)
    node.sys("fs/cgroup/memory/release_agent", "")


def by_name(parents: list[ParentResidual]) -> dict[str, ParentResidual]:
    return {parent.name: parent for parent in parents}


def test_v1_reports_the_rest_to_the_page(node: FakeNode) -> None:
    v1_node(node)
    v1_cgroup(node, "", {"cache": 7 * MIB}, {"cache": 90 * MIB, "shmem": 20 * MIB, "rss": MIB, "swap": 4096})
    v1_cgroup(
        node,
        "docker",
        {"cache": MIB},
        {"cache": 83 * MIB, "shmem": 20 * MIB, "rss": MIB, "swap": 4096},
    )
    v1_cgroup(node, "docker/a", {"cache": 3 * MIB, "rss": MIB}, {"cache": 3 * MIB, "rss": MIB})
    (parent,) = residuals(node.host)
    assert parent.name == "/docker"
    assert parent.path == str(node.host.sys / "fs/cgroup/memory/docker")
    assert (parent.file_bytes, parent.shmem_bytes) == (59 * MIB, 20 * MIB)
    assert (parent.anon_bytes, parent.swap_bytes, parent.own_bytes) == (0, 4096, MIB)
    assert parent.exact and parent.dying is None


def test_a_parent_whose_children_are_all_gone_is_found(node: FakeNode) -> None:
    v1_node(node)
    v1_cgroup(node, "", {}, {"cache": MIB})
    v1_cgroup(node, "docker", {}, {"cache": MIB, "mapped_file": 4096, "unevictable": 8192, "dirty": 12288})
    (parent,) = residuals(node.host)
    assert (parent.mapped_bytes, parent.unevictable_bytes, parent.dirty_bytes) == (4096, 8192, 12288)


def test_nothing_is_held_where_sums_are_even(node: FakeNode) -> None:
    v1_node(node)
    v1_cgroup(node, "", {"cache": 1}, {"cache": MIB + 1})
    v1_cgroup(node, "a", {"cache": MIB}, {"cache": MIB})
    assert residuals(node.host) == []


def test_what_only_one_look_sees_is_not_reported(node: FakeNode, monkeypatch) -> None:
    """A child that grows between two reads is no zombie."""
    v1_node(node)
    v1_cgroup(node, "", {}, {"cache": 5 * MIB})
    v1_cgroup(node, "a", {"cache": 4 * MIB}, {"cache": 4 * MIB})
    real, reads = module._Reader.amounts, []

    def amounts(self, name):
        reads.append(name)
        if reads.count("/a") == 2:
            v1_cgroup(node, "a", {"cache": 5 * MIB}, {"cache": 5 * MIB})
        return real(self, name)

    monkeypatch.setattr(module._Reader, "amounts", amounts)
    assert residuals(node.host) == []
    assert reads.count("/a") > 2


def test_a_child_that_is_removed_meanwhile_does_not_hide_its_parent(node: FakeNode, monkeypatch) -> None:
    v1_node(node)
    v1_cgroup(node, "", {}, {"cache": MIB})
    v1_cgroup(node, "docker", {}, {"cache": MIB})
    v1_cgroup(node, "docker/gone", {}, {})
    real = module._Reader.amounts
    gone = node.host.sys / "fs/cgroup/memory/docker/gone"

    def amounts(self, name):
        if name == "/docker/gone" and gone.exists():
            (gone / "memory.stat").unlink()
            gone.rmdir()
        return real(self, name)

    monkeypatch.setattr(module._Reader, "amounts", amounts)
    report = find_residuals(node.host)
    assert [parent.name for parent in report.parents] == ["/docker"]


def test_a_file_that_may_not_be_read_is_a_blind_spot(node: FakeNode) -> None:
    v1_node(node)
    v1_cgroup(node, "", {}, {"cache": MIB})
    (node.host.sys / "fs/cgroup/memory/closed").mkdir()
    report = find_residuals(node.host)
    assert report.parents == []
    assert any("could not be read" in spot for spot in report.blind_spots)


def test_cgroups_that_stand_alone_are_a_blind_spot(node: FakeNode) -> None:
    v1_node(node)
    v1_cgroup(node, "", {"cache": 1}, {"cache": 1})
    node.sys("fs/cgroup/memory/memory.use_hierarchy", "0\n")
    assert "use_hierarchy" in find_residuals(node.host).blind_spots[0]


def test_a_reading_that_takes_too_long_says_how_much_is_missing(node: FakeNode) -> None:
    v1_node(node)
    for name in ("", "a", "b", "c"):
        v1_cgroup(node, name, {}, {"cache": MIB})
    report = find_residuals(node.host, seconds=-1.0)
    assert report.parents == []
    assert "4 of 4 cgroups" in report.blind_spots[0]


def v2_cgroup(node: FakeNode, path: str, *, dying: int, swap: int | None = None, procs: str = "", **stat: int) -> Path:
    base = f"fs/cgroup/{path}"
    node.sys(f"{base}/cgroup.stat", f"nr_descendants 0\nnr_dying_descendants {dying}\n")
    node.sys(f"{base}/cgroup.procs", procs)
    if swap is not None:
        node.sys(f"{base}/memory.swap.current", f"{swap}\n")
    return node.sys(f"{base}/memory.stat", "".join(f"{name} {value}\n" for name, value in stat.items()))


def test_v2_attributes_the_dying_to_their_closest_parent(node: FakeNode) -> None:
    node.mounts(V2)
    v2_cgroup(node, "", dying=320, file=100 * MIB, anon=50 * MIB)
    v2_cgroup(node, "system.slice", dying=300, swap=8192, file=90 * MIB, shmem=30 * MIB, anon=MIB)
    v2_cgroup(node, "system.slice/a.service", dying=0, swap=0, procs="17\n", file=40 * MIB, anon=MIB)
    v2_cgroup(node, "user.slice", dying=20, swap=0, procs="9\n", file=10 * MIB)
    found = by_name(residuals(node.host))
    assert {name: parent.dying for name, parent in found.items()} == {"/system.slice": 300, "/user.slice": 20}
    system = found["/system.slice"]
    assert (system.file_bytes, system.shmem_bytes, system.anon_bytes) == (20 * MIB, 30 * MIB, 0)
    assert (system.swap_bytes, system.exact, system.populated) == (8192, False, False)
    assert found["/user.slice"].populated


def test_no_hierarchy_no_parents(node: FakeNode) -> None:
    report = find_residuals(node.host)
    assert report.parents == []
    assert "memory controller" in report.blind_spots[0]


def counters(node: FakeNode, path: str, pages: int, *, kernel: int = 0, swap: int = 0, procs: str = "") -> None:
    """The page counters of a cgroup of v1, which has nothing in the totals of its memory.stat."""
    v1_cgroup(node, path, {}, {})
    directory = f"fs/cgroup/memory/{path}"
    node.sys(f"{directory}/memory.usage_in_bytes", f"{(pages + kernel) * PAGE}\n")
    node.sys(f"{directory}/memory.kmem.usage_in_bytes", f"{kernel * PAGE}\n")
    node.sys(f"{directory}/memory.memsw.usage_in_bytes", f"{(pages + kernel + swap) * PAGE}\n")
    node.sys(f"{directory}/cgroup.procs", procs)


def old_node(node: FakeNode, zombies: int, visible: int) -> None:
    """v1 of a kernel that leaves the pages of zombies out of its totals."""
    v1_node(node)
    v1_cgroup(node, "", {}, {})
    node.proc("cgroups", f"#subsys_name hierarchy num_cgroups enabled\nmemory 5 {zombies + visible} 1\n")


def test_nothing_is_read_that_walks_all_zombies(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """memory.numa_stat has the pages by kind, and reading it is the incident itself (before 5.8)."""
    old_node(node, 300, 4)
    counters(node, "docker", 600)
    node.sys("fs/cgroup/memory/docker/memory.numa_stat", "total=600 N0=600\n")
    opened: set[str] = set()
    monkeypatch.setattr(os, "open", note_in(opened, os.open))
    assert by_name(residuals(node.host))["/docker"].path
    assert {"memory.stat", "memory.usage_in_bytes"} <= opened
    assert "memory.numa_stat" not in opened


def note_in(opened: set[str], really: Callable[..., int]) -> Callable[..., int]:
    def noted(path: str, *args: Any, **more: Any) -> int:
        opened.add(Path(path).name)
        return really(path, *args, **more)

    return noted


def test_pages_that_totals_lack_are_found_by_the_page_counters(node: FakeNode) -> None:
    old_node(node, 300, 4)
    counters(node, "docker", 320, kernel=40, swap=7)
    counters(node, "docker/live", 20, kernel=10)
    v1_cgroup(node, "docker/live", {"cache": 15 * PAGE, "rss": 5 * PAGE}, {})
    # What CPUs have in stock for a cgroup with processes is not a zombie's.
    counters(node, "service", 60, procs="1\n")
    (parent,) = find_residuals(node.host).parents
    assert (parent.name, parent.unclassified_bytes, parent.swap_bytes) == ("/docker", 300 * PAGE, 7 * PAGE)
    assert not parent.exact


def test_pages_that_are_all_in_swap_are_found_by_the_page_counters(node: FakeNode) -> None:
    old_node(node, 300, 4)
    counters(node, "docker", 0, swap=300)
    counters(node, "service", 0, swap=60, procs="1\n")
    (parent,) = find_residuals(node.host).parents
    assert (parent.name, parent.unclassified_bytes, parent.swap_bytes) == ("/docker", 0, 300 * PAGE)


def test_page_counters_are_not_read_where_totals_explain_all_zombies(node: FakeNode) -> None:
    old_node(node, 3, 2)
    counters(node, "docker", 50)
    v1_cgroup(node, "docker", {}, {"cache": 3 * PAGE})
    (parent,) = find_residuals(node.host).parents
    assert (parent.file_bytes, parent.unclassified_bytes, parent.exact) == (3 * PAGE, 0, True)


def test_zombies_that_no_counter_accounts_for_are_a_blind_spot(node: FakeNode) -> None:
    old_node(node, 300, 2)
    counters(node, "docker", 0)
    report = find_residuals(node.host)
    assert report.parents == []
    assert "0 of 300 zombies" in report.blind_spots[0]

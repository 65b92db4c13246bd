"""Counting cgroups on v1, v2 and hybrid nodes, and on this one."""

import os
from pathlib import Path

import pytest
from tests.collect.fake_node import FakeNode, tick
from tests.parts import missing

from exhume.collect.cgroup.layout import find_v1, find_v2, hierarchies
from exhume.collect.cgroup.tree import CgroupTree
from exhume.collect.sources.cgroups import CgroupSource, ChurnSource, cgroups_between, keep_shares
from exhume.model.errors import SourceUnavailable
from exhume.model.tables import CgroupEvents, Columns, to_columns
from exhume.procfs.host import Host

TMPFS = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755"
V1_MEMORY = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V1_CPU = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct"
HYBRID_V2 = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw"
V2 = "41 31 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot"

CONTROLLERS = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t1\t1\nmemory\t4\t{memory}\t1\n"


def v1_node(node: FakeNode, kernel: int, directories: list[str]) -> Path:
    node.mounts(TMPFS, V1_CPU, V1_MEMORY)
    node.proc("cgroups", CONTROLLERS.format(memory=kernel))
    node.sys("fs/cgroup/memory/release_agent", "")
    root = node.host.sys / "fs/cgroup/memory"
    for directory in directories:
        (root / directory).mkdir(parents=True)
        (root / directory / "memory.stat").touch()
    return root


def v2_stat(live: int, dying: int, memory: tuple[int, int] | None = None) -> str:
    text = f"nr_descendants {live}\nnr_dying_descendants {dying}\n"
    return text + (f"nr_subsys_memory {memory[0]}\nnr_dying_subsys_memory {memory[1]}\n" if memory else "")


def rows_of(rows) -> list[tuple]:
    columns = rows.get("cgroups")
    if not columns:
        return []
    return list(zip(*(columns[name] for name in ("hierarchy", "parent", "kernel", "visible", "dying")), strict=True))


# --- which layout ---------------------------------------------------------------------------------------------------


def test_a_v1_layout(node: FakeNode) -> None:
    v1_node(node, 1, [])
    layout = hierarchies(node.host)
    assert find_v2(layout) is None
    memory, cpu = find_v1(layout, "memory"), find_v1(layout, "cpu")
    assert memory is not None
    assert (memory.version, memory.whole) == (1, True)
    assert cpu is not None
    assert cpu.path == node.host.sys / "fs/cgroup/cpu,cpuacct"


def test_a_v2_layout(node: FakeNode) -> None:
    node.mounts(V2)
    node.sys("fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")
    unified = find_v2(hierarchies(node.host))
    assert unified is not None
    assert unified.whole
    assert "memory" in unified.controllers


def test_a_hierarchy_that_is_mounted_twice_counts_once(node: FakeNode) -> None:
    v1_node(node, 1, [])
    part = "77 31 0:32 /docker/abc /part rw - cgroup cgroup rw,memory"
    node.mounts(part, TMPFS, V1_MEMORY, part)
    memory = [each for each in hierarchies(node.host) if "memory" in each.controllers]
    assert [each.whole for each in memory] == [True]


def test_blanks_in_a_mount_point(node: FakeNode) -> None:
    node.mounts(r"1 2 0:32 / /sys/a\040b rw - cgroup cgroup rw,memory")
    assert hierarchies(node.host)[0].path == node.host.sys / "a b"


def test_no_mount_table(node: FakeNode) -> None:
    with pytest.raises(SourceUnavailable, match="cgroup2"):
        CgroupSource(node.host)


# --- v1 -------------------------------------------------------------------------------------------------------------


def test_dying_is_the_kernels_count_minus_the_directories(node: FakeNode) -> None:
    root = v1_node(node, 68_680, ["a", "a/b", "a/c", "kubepods", "kubepods/pod1", "kubepods/pod1/x"])
    source = CgroupSource(node.host)
    assert rows_of(source.read(tick(0))) == [("memory", "", 68_680, 7, 68_673)]
    assert source.read(tick(1)) == {}
    (root / "kubepods/pod1/y").mkdir()
    assert rows_of(source.read(tick(10))) == [("memory", "", 68_680, 8, 68_672)]
    assert source.missing == ()


def test_a_count_that_cannot_be_right_is_unknown(node: FakeNode) -> None:
    v1_node(node, 2, ["a", "b", "c"])
    assert rows_of(CgroupSource(node.host).read(tick(0))) == [("memory", "", 2, None, None)]


def test_a_part_of_the_hierarchy_reports_no_dying(node: FakeNode) -> None:
    v1_node(node, 500, ["a"])
    (node.host.sys / "fs/cgroup/memory/release_agent").unlink()
    source = CgroupSource(node.host)
    assert rows_of(source.read(tick(0))) == [("memory", "", 500, None, None)]
    assert "cgroup namespace" in source.missing[0].remedy


def test_no_memory_row(node: FakeNode) -> None:
    v1_node(node, 1, ["a"])
    node.proc("cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t1\t1\n")
    source = CgroupSource(node.host)
    assert rows_of(source.read(tick(0))) == [("memory", "", None, 2, None)]
    assert source.v1 is not None
    assert source.v1.hierarchy_id is None


def test_a_large_tree_takes_several_ticks(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"g{i}" for i in range(400)]
    root = v1_node(node, 405, names)
    monkeypatch.setattr("exhume.collect.sources.cgroups._FIRST_SLICE_NS", 0)
    monkeypatch.setattr("exhume.collect.sources.cgroups._SLICE_NS", 0)
    monkeypatch.setattr("exhume.collect.sources.cgroups._EARLY_SLICE_NS", 0)
    source = CgroupSource(node.host)
    assert rows_of(source.read(tick(0))) == [("memory", "", 405, None, None)]
    rows = []
    second = 0
    while not rows:
        second += 1
        rows = [row for row in rows_of(source.read(tick(second))) if row[3] is not None]
    assert second > 3
    # Nothing came or went meanwhile, as far as the kernel's count reports.
    assert rows == [("memory", "", 405, 401, 4)]
    # Under way in a walk, the kernel's count moves: the two are of different moments.
    (root / "late").mkdir()
    start = second + 20
    source.read(tick(start))
    node.proc("cgroups", CONTROLLERS.format(memory=407))
    seen = [row for step in range(1, 40) for row in rows_of(source.read(tick(start + step * 0.1)))]
    assert seen
    assert all(row[3] is None for row in seen)


def test_a_large_tree_that_tracepoints_keep_current(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    v1_node(node, 401, [f"g{i}" for i in range(400)])
    monkeypatch.setattr("exhume.collect.sources.cgroups._FIRST_SLICE_NS", 0)
    monkeypatch.setattr("exhume.collect.sources.cgroups._SLICE_NS", 0)
    monkeypatch.setattr("exhume.collect.sources.cgroups._EARLY_SLICE_NS", 0)
    source = CgroupSource(node.host)
    assert source.v1 is not None
    source.v1.follow_from_now()
    for step in range(60):
        source.read(tick(step * 0.1))
    source.v1.follow("mkdir", "/g1/child")
    source.v1.follow("mkdir", "/g1/child")
    source.v1.follow("rmdir", "/g2")
    source.v1.follow("rmdir", "/unknown/place")
    node.proc("cgroups", CONTROLLERS.format(memory=402))
    assert rows_of(source.read(tick(20))) == [("memory", "", 402, 401, 1)]
    source.v1.lost_track()
    assert rows_of(source.read(tick(40)))[0][3] is None


def test_the_tree_follows_what_happens_below_it(tmp_path: Path) -> None:
    root = tmp_path / "cg"
    (root / "a/b/c").mkdir(parents=True)
    tree = CgroupTree(root)

    def walk() -> int:
        tree.begin()
        assert tree.advance(10**9)
        return tree.visible

    assert walk() == 4
    (root / "a/b/d/e").mkdir(parents=True)
    assert walk() == 6
    # One went and another came: the number of links is the same.
    (root / "a/b/c").rmdir()
    (root / "a/b/f").mkdir()
    (root / "a/b/f/g").mkdir()
    assert walk() == 7
    for directory in ("a/b/f/g", "a/b/f", "a/b/d/e", "a/b/d", "a/b", "a"):
        (root / directory).rmdir()
    assert walk() == 1
    inode, path = tree.newest
    assert (inode, path) == (0, "")


# --- v2 -------------------------------------------------------------------------------------------------------------


def test_v2_counts_for_each_subtree(node: FakeNode) -> None:
    node.mounts(V2)
    node.sys("fs/cgroup/cgroup.controllers", "memory\n")
    node.sys("fs/cgroup/cgroup.stat", v2_stat(40, 25))
    node.sys("fs/cgroup/system.slice/cgroup.stat", v2_stat(10, 5))
    node.sys("fs/cgroup/system.slice/ecs.service/cgroup.stat", v2_stat(0, 5))
    node.sys("fs/cgroup/user.slice/cgroup.stat", v2_stat(3, 0))
    node.sys("fs/cgroup/user.slice/deep/cgroup.stat", v2_stat(3, 9))
    node.sys("fs/cgroup/kubepods.slice/cgroup.stat", v2_stat(20, 20))
    node.sys("fs/cgroup/kubepods.slice/gone", "")
    source = CgroupSource(node.host)
    assert rows_of(source.read(tick(0))) == [
        ("unified", "", 66, 41, 25),
        ("unified", "/kubepods.slice", 41, 21, 20),
        ("unified", "/system.slice", 16, 11, 5),
        ("unified", "/system.slice/ecs.service", 6, 1, 5),
    ]
    assert source.read(tick(5)) == {}
    assert source.missing == ()
    assert source.v1 is None


def test_v2_counts_memory_cgroups_where_the_kernel_does(node: FakeNode) -> None:
    node.mounts(V2)
    node.sys("fs/cgroup/cgroup.stat", v2_stat(40, 25, memory=(30, 11)))
    assert rows_of(CgroupSource(node.host).read(tick(0))) == [("unified", "", 41, 30, 11)]


def test_v2_in_a_container(node: FakeNode) -> None:
    node.mounts(V2)
    node.sys("fs/cgroup/cgroup.stat", v2_stat(2, 1))
    node.sys("fs/cgroup/cgroup.events", "populated 1\n")
    source = CgroupSource(node.host)
    assert rows_of(source.read(tick(0))) == [("unified", "/", 4, 3, 1)]
    assert "cgroupns=host" in source.missing[0].remedy


def test_hybrid_takes_memory_from_v1(node: FakeNode) -> None:
    v1_node(node, 10, ["a"])
    node.mounts(TMPFS, V1_MEMORY, HYBRID_V2)
    node.sys("fs/cgroup/unified/cgroup.stat", v2_stat(7, 0))
    assert rows_of(CgroupSource(node.host).read(tick(0))) == [
        ("memory", "", 10, 2, 8),
        ("unified", "", 8, 8, 0),
    ]


# --- churn ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "files", "made"),
    [
        (100, 100 + 32 * 7, 31, 7),
        (100, 100, 31, None),
        (200, 100, 31, None),
        (1, (1 << 32) + 1, 31, None),
        (1, 9, 0, None),
    ],
)
def test_numbers_tell_how_many_were_made(before: int, now: int, files: int, made: int | None) -> None:
    assert cgroups_between(before, now, files) == made


def test_churn_needs_v1() -> None:
    with pytest.raises(SourceUnavailable, match="tracefs"):
        ChurnSource(None)


# --- this machine ---------------------------------------------------------------------------------------------------


@pytest.fixture
def lab(steady_costs: None):
    memory = find_v1(hierarchies(Host()), "memory")
    if memory is None or not memory.whole or not os.access(memory.path, os.W_OK):
        missing("the memory controller as cgroup v1")
    path = memory.path / f"exhume-test-{os.getpid()}"
    path.mkdir()
    yield path
    for directory, _, _ in os.walk(path, topdown=False):
        Path(directory).rmdir()


def assert_counted(source: CgroupSource, root: Path, second: int) -> None:
    """As many as a plain walk finds, in a moment in which no other process made or removed any."""
    for look in range(10):
        before = sum(1 for _ in os.walk(root))
        (_, _, kernel, visible, dying), *_ = rows_of(source.read(tick(second + 10 * look)))
        if sum(1 for _ in os.walk(root)) == before:
            break
    assert visible == before
    assert kernel == visible + dying


@pytest.mark.root
@pytest.mark.alone
def test_visible_cgroups_of_this_machine(lab: Path) -> None:
    source = CgroupSource(Host())
    assert source.v1 is not None
    for number in range(50):
        (lab / f"g{number}").mkdir()
    (lab / "g1/deep/deeper").mkdir(parents=True)
    assert_counted(source, lab.parent, 0)
    (lab / "g1/deep/deeper").rmdir()
    (lab / "g1/deep").rmdir()
    (lab / "g1").rmdir()
    assert_counted(source, lab.parent, 1000)


@pytest.mark.root
@pytest.mark.alone
def test_cgroups_made_and_gone_are_counted_by_their_numbers(lab: Path) -> None:
    source = CgroupSource(Host())
    churn = ChurnSource(source.v1)
    (lab / "first").mkdir()
    source.read(tick(0))
    assert churn.read(tick(0)) == {}
    for number in range(100):
        (lab / f"short-lived-{number}").mkdir()
        (lab / f"short-lived-{number}").rmdir()
    (lab / "last").mkdir()
    source.read(tick(10))
    rows = churn.read(tick(10))["cgroup_events"]
    assert rows["op"] == ["churn"]
    # Others may make cgroups of their own meanwhile.
    assert 101 <= rows["created"][0] <= 120
    assert churn.read(tick(11)) == {}


# --- shares of what is traced ---------------------------------------------------------------------------------------


def made(path: str, number: int, pid: int, comm: str, ops: tuple[str, ...] = ("mkdir", "rmdir")) -> list[CgroupEvents]:
    return [CgroupEvents(number, 4, op, number, 2, path, pid, comm) for op in ops]


def traced(events: list[CgroupEvents]) -> dict[str, Columns]:
    return {"cgroup_events": to_columns("cgroup_events", events), "other": {"time": [1]}}


def test_events_within_the_bound_are_all_kept() -> None:
    rows = traced([event for number in range(5) for event in made(f"/a/{number}", number, 1, "sh")])
    assert keep_shares(rows, tick(1), "stacks", most=10) == (rows, [])


def test_one_place_can_not_crowd_out_the_events_of_others() -> None:
    scope = "/user.slice/user-1000.slice/session-1.scope"
    attack = [event for n in range(1000) for event in made(f"{scope}/{n % 7}/{n}", n, 100 + n % 3, "looping")]
    others = [
        *made("/system.slice/cron.service/x", 5001, 7, "cron"),
        *made("/kubepods/pod1/runc-1", 5002, 8, "runc"),
    ]
    events = sorted([*attack, *others], key=lambda event: event.time)
    rows, losses = keep_shares(traced(events), tick(1), "stacks", most=100)
    kept = rows["cgroup_events"]
    assert rows["other"] == {"time": [1]}
    assert {5001, 5002} <= set(kept["id"])
    assert 60 <= len(kept["id"]) <= 100
    # What is kept of the place is whole.
    assert all(kept["id"].count(number) == 2 for number in kept["id"])
    (loss,) = losses
    assert (loss.kind, loss.count) == ("lost-cgroup-events", len(events) - len(kept["id"]))
    assert f"below {scope} " in loss.text and "(looping)" in loss.text


def test_depth_and_siblings_give_no_further_share() -> None:
    attack = [event for n in range(300) for event in made(f"/mine/dir/{n}/deep/{n}", n, 1, "sh")]
    other = [event for n in range(9000, 9010) for event in made(f"/other/dir/{n}", n, 2, "runc")]
    rows, losses = keep_shares(traced([*attack, *other]), tick(1), "stacks", most=90)
    kept = rows["cgroup_events"]["id"]
    assert [number for number in kept if number >= 9000] == [event.id for event in other]
    assert len(kept) <= 90
    assert [loss.text.split(" in a tick")[0].split(" below ")[1] for loss in losses] == ["/mine/dir"]

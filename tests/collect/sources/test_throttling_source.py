"""Cgroups held back by their CPU quota."""

import os
import time
from pathlib import Path

import pytest
from tests.collect.fake_node import FakeNode, tick
from tests.parts import missing

from exhume.collect.cgroup.layout import find_v1, hierarchies
from exhume.collect.sources.throttling import ThrottlingSource
from exhume.model.clock import NANOS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.procfs.host import Host


def v1_group(node: FakeNode, name: str, quota: int, *, periods: int = 0, throttled: int = 0, nanos: int = 0) -> None:
    node.sys(f"fs/cgroup/cpu/{name}/cpu.cfs_quota_us", f"{quota}\n")
    stat = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time {nanos}\nnr_bursts 0\nburst_time 0\n"
    node.sys(f"fs/cgroup/cpu/{name}/cpu.stat", stat)


def v2_group(node: FakeNode, name: str, limit: str, *, periods: int = 0, throttled: int = 0, micros: int = 0) -> None:
    node.sys(f"fs/cgroup/{name}/cpu.max", f"{limit} 100000\n")
    stat = f"usage_usec 1\nuser_usec 1\nsystem_usec 0\nnr_periods {periods}\nnr_throttled {throttled}\n"
    node.sys(f"fs/cgroup/{name}/cpu.stat", f"{stat}throttled_usec {micros}\n")


def rows_of(rows) -> list[tuple]:
    columns = rows.get("throttling")
    return list(zip(*columns.values(), strict=True)) if columns else []


def test_v1(node: FakeNode) -> None:
    node.mounts("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu")
    v1_group(node, "free", -1)
    v1_group(node, "pods/limited", 50_000)
    v1_group(node, "pods", -1)
    source = ThrottlingSource(node.host)
    assert source.read(tick(0)) == {}
    v1_group(node, "pods/limited", 50_000, periods=10, throttled=7, nanos=350_000_000)
    v1_group(node, "free", -1, periods=10, throttled=7, nanos=1)
    assert rows_of(source.read(tick(1))) == [(tick(1).start, "/pods/limited", 10, 7, 350_000_000, 0.5)]
    v1_group(node, "pods/limited", 50_000, periods=20, throttled=7, nanos=350_000_000)
    assert source.read(tick(2)) == {}


def test_a_time_that_is_reported_a_tick_after_its_throttling_is_kept(node: FakeNode) -> None:
    node.mounts("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu")
    v1_group(node, "limited", 50_000)
    source = ThrottlingSource(node.host)
    source.read(tick(0))
    v1_group(node, "limited", 50_000, periods=10, throttled=1)
    assert rows_of(source.read(tick(1))) == [(tick(1).start, "/limited", 10, 1, 0, 0.5)]
    v1_group(node, "limited", 50_000, periods=20, throttled=1, nanos=60_000_000)
    assert rows_of(source.read(tick(2))) == [(tick(2).start, "/limited", 10, 0, 60_000_000, 0.5)]


def test_v2(node: FakeNode) -> None:
    node.mounts("41 31 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
    v2_group(node, "a.slice", "max")
    v2_group(node, "a.slice/b.service", "20000")
    source = ThrottlingSource(node.host)
    source.read(tick(0))
    v2_group(node, "a.slice/b.service", "20000", periods=10, throttled=10, micros=800_000)
    assert rows_of(source.read(tick(1))) == [(tick(1).start, "/a.slice/b.service", 10, 10, 800_000_000, 0.2)]


def test_groups_that_come_go_and_start_afresh(node: FakeNode) -> None:
    node.mounts("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu")
    v1_group(node, "one", 50_000, periods=100, throttled=50, nanos=5)
    source = ThrottlingSource(node.host)
    source.read(tick(0))
    v1_group(node, "one", 50_000, periods=1, throttled=1, nanos=1)
    assert source.read(tick(1)) == {}
    for file in (node.host.sys / "fs/cgroup/cpu/one").iterdir():
        file.unlink()
    (node.host.sys / "fs/cgroup/cpu/one").rmdir()
    v1_group(node, "two", 50_000)
    source.read(tick(2))
    # Found at the next round: seconds on, where a round costs next to nothing.
    source.read(tick(7))
    v1_group(node, "two", 50_000, periods=2, throttled=2, nanos=2)
    assert [row[1] for row in rows_of(source.read(tick(8)))] == ["/two"]


def test_a_search_that_costs_much_comes_once_a_minute(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.collect.sources.throttling._PAUSE_PER_COST", 10**9)
    node.mounts("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu")
    source = ThrottlingSource(node.host)
    source.read(tick(0))
    v1_group(node, "late", 50_000)
    for second in range(1, 59):
        source.read(tick(second))
    v1_group(node, "late", 50_000, periods=2, throttled=2, nanos=2)
    assert source.read(tick(59)) == {}
    source.read(tick(61))
    v1_group(node, "late", 50_000, periods=4, throttled=4, nanos=4)
    assert [row[1] for row in rows_of(source.read(tick(62)))] == ["/late"]


def test_very_many_groups_take_turns(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.collect.sources.throttling._READ_SLICE_NS", 0)
    monkeypatch.setattr("exhume.collect.sources.throttling._TIMED_EVERY", 1)
    monkeypatch.setattr("exhume.collect.sources.throttling._SEARCH_SLICE_NS", NANOS)
    monkeypatch.setattr("exhume.collect.sources.throttling._OPEN_AT_MOST", 2)
    node.mounts("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu")
    for number in range(5):
        v1_group(node, f"g{number}", 50_000)
    source = ThrottlingSource(node.host)
    for second in range(5):
        source.read(tick(second))
    for number in range(5):
        v1_group(node, f"g{number}", 50_000, periods=9, throttled=3, nanos=30)
    rows = [row for second in range(5, 10) for row in rows_of(source.read(tick(second)))]
    assert sorted(row[1] for row in rows) == [f"/g{number}" for number in range(5)]
    # Each since it was last looked at, five ticks before.
    assert all(row[0] == tick(5 + index).start - 4 * NANOS for index, row in enumerate(rows))


def test_no_controller(node: FakeNode) -> None:
    node.mounts("23 1 8:1 / / rw - ext4 /dev/sda rw")
    with pytest.raises(SourceUnavailable, match="cpu controller"):
        ThrottlingSource(node.host)


@pytest.mark.root
def test_a_busy_process_in_a_small_quota() -> None:
    cpu = find_v1(hierarchies(Host()), "cpu")
    if cpu is None or not os.access(cpu.path, os.W_OK):
        missing("the cpu controller as cgroup v1")
    group = cpu.path / f"exhume-test-{os.getpid()}"
    group.mkdir()
    child = 0
    try:
        (group / "cpu.cfs_quota_us").write_text("10000")
        (group / "cpu.cfs_period_us").write_text("100000")
        source = ThrottlingSource(Host())
        start = Tick(0, 0, NANOS, 0)
        source.read(start)
        child = os.fork()
        if child == 0:
            (group / "cgroup.procs").write_text(str(os.getpid()))
            while True:
                pass
        throttled = nanos = 0
        # It is counted when it begins, its time when it is over.
        for index in range(1, 1200):
            rows = rows_of(source.read(Tick(index, index * NANOS, (index + 1) * NANOS, 0)))
            mine = [row for row in rows if row[1] == f"/{group.name}"]
            throttled += sum(row[3] for row in mine)
            nanos += sum(row[4] for row in mine)
            if throttled and nanos:
                break
            time.sleep(0.05)
        assert throttled >= 1
        assert nanos > 0
    finally:
        if child:
            os.kill(child, 9)
            os.waitpid(child, 0)
        Path(group).rmdir()

"""Threads that compete for a core: which ones are followed, what is recorded of them, and when nothing is read."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.collect.fake_node import FakeNode, tick

from exhume.collect.perf.run_delays import RunDelays, competitors
from exhume.collect.perf.sampler import Sampled
from exhume.procfs.cgroup import weight_to_shares
from exhume.procfs.host import Host

RATE = 100.0


def sampled(*threads: tuple[int, int, int]) -> Sampled:
    """Busy samples of (core, tid, number)."""
    cpus = np.repeat([core for core, _, _ in threads], [number for _, _, number in threads]).astype(np.uint16)
    tids = np.repeat([tid for _, tid, _ in threads], [number for _, _, number in threads]).astype(np.int32)
    return Sampled({}, [], tids, tids, cpus, np.array([f"t{tid}" for tid in tids.tolist()], dtype=object))


def chosen(*threads: tuple[int, int, int]) -> list[int]:
    busy = sampled(*threads)
    return [int(busy.tids[place]) for place in competitors(busy.cpus, busy.tids, RATE)]


def test_only_threads_that_share_a_full_core_compete() -> None:
    assert chosen((0, 7, 40), (0, 8, 55)) == [8, 7]
    assert chosen((0, 7, 20), (0, 8, 30)) == [], "the core has room"
    assert chosen((0, 7, 99), (0, 8, 1)) == [], "it has the core for itself"
    assert chosen() == []


def test_a_thread_that_moved_is_followed_once_and_the_idle_task_never() -> None:
    assert chosen((0, 7, 50), (0, 8, 45), (1, 7, 60), (1, 0, 40)) == [7, 8]


def process(node: FakeNode, tid: int, ran: int, waited: int, *, nice: int = 0, cores: str = "0-3") -> None:
    node.proc(f"{tid}/schedstat", f"{ran} {waited} 10\n")
    fields = ["S", "1", "1", "1", "0", "-1", *["0"] * 10, str(nice), "1", "0", "5", *["0"] * 30]
    # proc(5): nice is the 19th field, the start the 22nd; the state is the third.
    node.proc(f"{tid}/stat", f"{tid} (t{tid}) {' '.join(fields)}\n")
    node.proc(f"{tid}/status", f"Name:\tt{tid}\nCpus_allowed:\tf\nCpus_allowed_list:\t{cores}\n")


@pytest.fixture
def v1(node: FakeNode) -> FakeNode:
    node.mounts(
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu",
        "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset",
    )
    node.sys("fs/cgroup/cpu/pods/a/cpu.shares", "512\n")
    node.sys("fs/cgroup/cpu/pods/a/cpu.cfs_quota_us", "150000\n")
    node.sys("fs/cgroup/cpu/pods/a/cpu.cfs_period_us", "100000\n")
    node.sys("fs/cgroup/cpuset/small/cpuset.effective_cpus", "1-2\n")
    for tid in (7, 8):
        process(node, tid, 1000, 2000, nice=tid - 7, cores="1-2")
        node.proc(f"{tid}/cgroup", "2:cpuset:/small\n1:cpu:/pods/a\n0::/\n")
        node.proc(f"{tid}/cpuset", "/small\n")
    return node


@pytest.fixture
def delays(v1: FakeNode) -> Iterator[RunDelays]:
    found = RunDelays(v1.host)
    yield found
    found.close()


def test_rows_are_differences_with_what_the_thread_may_use(v1: FakeNode, delays: RunDelays) -> None:
    busy = sampled((1, 7, 50), (1, 8, 50))
    assert delays.read(tick(1), busy, RATE) == {}, "the first reading has nothing to compare with"
    process(v1, 7, 1000 + 400, 2000 + 600)
    rows = delays.read(tick(2), busy, RATE)
    row = {name: values[0] for name, values in rows["run_delays"].items()}
    assert len(rows["run_delays"]["tid"]) == 1, "the other one did not run"
    assert (row["time"], row["tid"], row["run_ns"], row["wait_ns"]) == (tick(2).start, 7, 400, 600)
    assert (row["nice"], row["affinity"], row["cgroup"], row["cpuset"]) == (0, "0-3", "/pods/a", "/small")
    uses = rows["cgroup_cpu"]
    found = list(zip(uses["cgroup"], uses["shares"], uses["quota"], uses["cores"], strict=True))
    assert found == [("/pods/a", 512, 1.5, None), ("/small", None, None, "1-2")]


def test_a_cgroup_has_one_row_a_segment_unless_it_changes(v1: FakeNode, delays: RunDelays) -> None:
    busy = sampled((1, 7, 50), (1, 8, 50))
    delays.read(tick(1), busy, RATE)
    seen = []
    for second in range(2, 45):
        process(v1, 7, 1000 * second, 2000 * second)
        if second == 20:
            v1.sys("fs/cgroup/cpu/pods/a/cpu.shares", "2\n")
        if second == 10:
            delays.begin_segment()
        rows = delays.read(tick(second), busy, RATE)
        seen += [(second, each) for each in rows.get("cgroup_cpu", {}).get("cgroup", [])]
    assert [second for second, path in seen if path == "/small"] == [2, 10]
    assert len([second for second, path in seen if path == "/pods/a"]) == 3


def test_a_thread_that_waits_without_a_sample_is_followed_for_a_while(v1: FakeNode, delays: RunDelays) -> None:
    both, one = sampled((1, 7, 50), (1, 8, 50)), sampled((1, 8, 50), (1, 9, 50))
    delays.read(tick(1), both, RATE)
    for second in range(2, 12):
        process(v1, 7, 1000, 2000 + second)
        rows = delays.read(tick(second), one, RATE)
        assert (7 in rows.get("run_delays", {}).get("tid", [])) is (second < 6)


def open_files(node: FakeNode) -> int:
    """Files of the node that are open here; others come and go with what ran in this process before."""
    targets = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(target.is_relative_to(node.host.proc) for target in targets)


def test_a_thread_that_is_gone_is_dropped(v1: FakeNode, delays: RunDelays) -> None:
    before = open_files(v1)
    assert delays.read(tick(1), sampled((1, 7, 50), (1, 8, 50), (1, 404, 40)), RATE) == {}
    assert open_files(v1) == before + 2
    delays.read(tick(30), sampled(), RATE)
    assert open_files(v1) == before


def test_a_thread_that_ended_in_the_tick_is_not_opened(v1: FakeNode, delays: RunDelays) -> None:
    before = open_files(v1)
    delays.read(tick(1), sampled((1, 7, 50), (1, 8, 50)), RATE, {7})
    assert open_files(v1) == before + 1
    process(v1, 8, 1400, 2600)
    rows = delays.read(tick(2), sampled((1, 7, 50), (1, 8, 50)), RATE, {7})
    assert rows["run_delays"]["tid"] == [8]


def test_no_more_than_64_threads_are_open_at_a_time(v1: FakeNode, delays: RunDelays) -> None:
    before = open_files(v1)
    for tid in range(100, 300):
        process(v1, tid, 1, 1)
    delays.read(tick(1), sampled(*((1, tid, 1) for tid in range(100, 300))), RATE)
    assert open_files(v1) == before + 64


def test_weights_of_v2_have_the_unit_of_shares() -> None:
    assert [weight_to_shares(weight) for weight in (1, 100, 10_000)] == [2, 2597, 262_144]


def test_waits_of_a_real_thread() -> None:
    delays, tid = RunDelays(Host()), threading.get_native_id()
    busy = sampled((0, tid, 50), (0, 1, 50))
    delays.read(tick(1), busy, RATE)
    sum(range(2_000_000))
    rows = delays.read(tick(2), busy, RATE)["run_delays"]
    place = rows["tid"].index(tid)
    assert 0 < rows["run_ns"][place] < 60_000_000_000
    assert rows["nice"][place] == os.getpriority(os.PRIO_PROCESS, 0)
    delays.close()

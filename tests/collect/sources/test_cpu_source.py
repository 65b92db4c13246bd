"""Shares of every core: shapes of /proc that this machine may not have, and the counters' bad habits."""

import os
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.collect.fake_node import FakeNode, tick

from exhume.collect.sources.cpu import CpuSource, core_shares
from exhume.model.clock import Tick
from exhume.model.errors import SourceUnavailable
from exhume.procfs.host import Host

STATES = ("user", "nice", "system", "irq", "softirq", "iowait", "steal", "guest", "idle")


def stat(cores: dict[int, tuple[int, ...]]) -> str:
    lines = ["cpu  " + " ".join(str(sum(column)) for column in zip(*cores.values(), strict=True))]
    lines += [f"cpu{cpu} " + " ".join(map(str, times)) for cpu, times in cores.items()]
    lines += ["intr 100 1 2 3", "ctxt 5", "btime 1700000000", "processes 7", "procs_running 1", "procs_blocked 0"]
    return "\n".join(lines) + "\n"


ORDER = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")


def times(**counters: int) -> tuple[int, ...]:
    assert set(counters) <= set(ORDER)
    return tuple(counters.get(name, 0) for name in ORDER)


def read_twice(node: FakeNode, before: dict, after: dict):
    node.proc("stat", stat(before))
    source = CpuSource(node.host)
    assert source.read(tick(0)) == {}
    node.proc("stat", stat(after))
    return source.read(tick(1)).get("cpu")


def test_shares_of_one_second(node: FakeNode) -> None:
    rows = read_twice(
        node,
        {0: times(idle=1000), 1: times(user=500, idle=500)},
        {0: times(system=70, softirq=20, idle=1010), 1: times(user=500, idle=575, steal=25)},
    )
    assert rows["cpu"].tolist() == [0, 1]
    assert rows["time"].tolist() == [tick(1).start] * 2
    assert rows["span_ms"].tolist() == [1000, 1000]
    assert (rows["system"][0], rows["softirq"][0], rows["idle"][0]) == (700, 200, 100)
    assert (rows["user"][1], rows["idle"][1], rows["steal"][1]) == (0, 750, 250)


def test_guest_time_is_not_counted_twice(node: FakeNode) -> None:
    rows = read_twice(
        node,
        {0: times(idle=10)},
        {0: times(user=60, nice=20, idle=30, guest=40, guest_nice=20)},
    )
    assert (rows["user"][0], rows["nice"][0], rows["guest"][0], rows["idle"][0]) == (200, 0, 600, 200)


def test_iowait_and_idle_that_go_backwards(node: FakeNode) -> None:
    rows = read_twice(node, {0: times(idle=1000, iowait=500)}, {0: times(system=50, idle=1050, iowait=100)})
    assert (rows["iowait"][0], rows["system"][0], rows["idle"][0]) == (0, 500, 500)
    rows = read_twice(node, {0: times(idle=1000)}, {0: times(system=100, idle=400)})
    assert (rows["idle"][0], rows["system"][0]) == (0, 1000)


def test_an_idle_counter_that_jumps_hides_nothing(node: FakeNode) -> None:
    rows = read_twice(node, {0: times(idle=0)}, {0: times(system=90, idle=5_000_000)})
    assert (rows["system"][0], rows["idle"][0]) == (900, 100)


def test_a_core_that_goes_and_comes_back(node: FakeNode) -> None:
    node.proc("stat", stat({0: times(idle=0), 1: times(idle=0), 2: times(idle=0)}))
    source = CpuSource(node.host)
    source.read(tick(0))
    node.proc("stat", stat({0: times(idle=100), 2: times(system=100)}))
    rows = source.read(tick(1))["cpu"]
    assert rows["cpu"].tolist() == [0, 2]
    assert rows["system"].tolist() == [0, 1000]
    # It comes back with counters of its own: one tick without a row, then true shares.
    node.proc("stat", stat({0: times(idle=200), 1: times(idle=7), 2: times(system=200)}))
    assert source.read(tick(2))["cpu"]["cpu"].tolist() == [0, 2]
    node.proc("stat", stat({0: times(idle=300), 1: times(user=100, idle=7), 2: times(system=300)}))
    rows = source.read(tick(3))["cpu"]
    assert rows["cpu"].tolist() == [0, 1, 2]
    assert rows["user"].tolist() == [0, 1000, 0]


def test_a_core_without_any_time_has_no_row(node: FakeNode) -> None:
    rows = read_twice(node, {0: times(idle=5), 1: times(idle=5)}, {0: times(idle=105), 1: times(idle=5)})
    assert rows["cpu"].tolist() == [0]


def test_ninety_six_cores_with_a_hole(node: FakeNode) -> None:
    cores = [cpu for cpu in range(96) if cpu not in (7, 41)]
    after = {cpu: times(system=100) if cpu == 39 else times(user=3, idle=97) for cpu in cores}
    rows = read_twice(node, {cpu: times() for cpu in cores}, after)
    assert rows["cpu"].tolist() == cores
    hot = rows["cpu"][rows["system"] >= 950]
    assert hot.tolist() == [39]


@given(st.lists(st.lists(st.integers(-(2**40), 2**40), min_size=10, max_size=10), min_size=1, max_size=8))
def test_shares_are_always_shares(deltas: list[list[int]]) -> None:
    shares, accounted = core_shares(np.array(deltas, np.int64), 100)
    assert shares.min() >= 0
    assert shares.max() <= 1000
    for row, known in zip(shares.sum(axis=1).tolist(), accounted.tolist(), strict=True):
        assert (995 <= row <= 1005) if known else row == 0


def softirqs(header: str, received: str, sent: str) -> str:
    return f"{header}\n          HI: 0 0\n      NET_TX: {sent}\n      NET_RX: {received}\n         RCU: 1 1\n"


def test_network_softirqs_wrap_and_reset(node: FakeNode) -> None:
    node.proc("softirqs", softirqs("   CPU0  CPU1", "4294967290 100", "5 5"))
    node.proc("stat", stat({0: times(), 1: times()}))
    source = CpuSource(node.host)
    source.read(tick(0))
    node.proc("softirqs", softirqs("   CPU0  CPU1", "10 50", "6 5"))
    node.proc("stat", stat({0: times(idle=100), 1: times(idle=100)}))
    rows = source.read(tick(1))["cpu"]
    assert list(rows["net_rx"]) == [16, None]
    assert list(rows["net_tx"]) == [1, 0]


def test_possible_cores_that_are_offline_have_columns_but_no_rows(node: FakeNode) -> None:
    node.proc("softirqs", softirqs("   CPU0  CPU1  CPU2", "1 2 3", "0 0 0"))
    node.proc("stat", stat({0: times(), 2: times()}))
    source = CpuSource(node.host)
    source.read(tick(0))
    node.proc("softirqs", softirqs("   CPU0  CPU1  CPU2", "2 4 6", "0 0 0"))
    node.proc("stat", stat({0: times(idle=100), 2: times(idle=100)}))
    rows = source.read(tick(1))["cpu"]
    assert (rows["cpu"].tolist(), list(rows["net_rx"])) == ([0, 2], [1, 3])


SCHEDSTAT = """version 17
timestamp 4294937332
cpu0 0 0 10 3 5 5 {run0} {wait0} {slices0}
domain0 MC 00000003 1 2 3
cpu1 0 0 10 3 5 5 {run1} {wait1} {slices1}
domain0 MC 00000003 1 2 3
"""


def test_run_queue_wait(node: FakeNode) -> None:
    node.proc("schedstat", SCHEDSTAT.format(run0=1, wait0=100, slices0=10, run1=1, wait1=900, slices1=90))
    node.proc("stat", stat({0: times(), 1: times()}))
    source = CpuSource(node.host)
    assert source.missing == ()
    source.read(tick(0))
    node.proc("schedstat", SCHEDSTAT.format(run0=2, wait0=5_000_000_100, slices0=12, run1=0, wait1=7, slices1=1))
    node.proc("stat", stat({0: times(idle=100), 1: times(idle=100)}))
    rows = source.read(tick(1))["cpu"]
    assert list(rows["wait_ns"]) == [5_000_000_000, None]
    assert list(rows["switches"]) == [2, None]


def test_no_schedstat_is_reported(node: FakeNode) -> None:
    rows = read_twice(node, {0: times()}, {0: times(idle=100)})
    assert "wait_ns" not in rows
    assert "CONFIG_SCHEDSTATS" in CpuSource(node.host).missing[0].remedy


def test_no_proc(node: FakeNode) -> None:
    with pytest.raises(SourceUnavailable, match="procfs"):
        CpuSource(node.host)


def test_this_machine() -> None:
    source = CpuSource(Host())
    start = time.monotonic_ns()
    source.read(Tick(0, start - 1, start, 0))
    # A core of a virtual machine that gets nothing for so long has nothing to tell: then once more.
    for index in range(1, 30):
        time.sleep(0.3)
        end = time.monotonic_ns()
        rows = source.read(Tick(index, start, end, 0))["cpu"]
        start = end
        if len(rows["cpu"]) == os.cpu_count():
            break
    assert len(rows["cpu"]) == os.cpu_count()
    total = sum(rows[state].astype(int) for state in STATES)
    assert (abs(total - 1000) <= 5).all()

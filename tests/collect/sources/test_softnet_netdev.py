"""Receive backlogs of the cores, and transmit timeouts of the queues."""

import pytest
from tests.collect.fake_node import FakeNode, tick

from exhume.collect.sources.netdev import NetdevSource
from exhume.collect.sources.softnet import SoftnetSource
from exhume.model.errors import SourceUnavailable


def softnet_line(processed: int, dropped: int, squeezed: int, cpu: int | None) -> str:
    fields = [processed, dropped, squeezed, *[0] * 8]
    if cpu is not None:
        fields += [0, cpu, 0, 0]
    return " ".join(f"{field:08x}" for field in fields) + "\n"


def rows_of(rows) -> list[tuple]:
    columns = rows.get("softnet")
    return list(zip(*(columns[name] for name in ("cpu", "processed", "dropped", "squeezed")), strict=True))


def test_backlogs_by_the_core_that_the_kernel_names(node: FakeNode) -> None:
    node.proc("net/softnet_stat", softnet_line(0xFFFFFFFF, 1, 1, 0) + softnet_line(10, 0, 0, 3))
    source = SoftnetSource(node.host)
    assert source.read(tick(0)) == {}
    assert source.read(tick(1)) == {}
    node.proc("net/softnet_stat", softnet_line(9, 1, 4, 0) + softnet_line(10, 0, 0, 3))
    assert rows_of(source.read(tick(2))) == [(0, 10, 0, 3)]
    # A core goes, and comes back with fresh counters.
    node.proc("net/softnet_stat", softnet_line(19, 1, 4, 0))
    assert rows_of(source.read(tick(3))) == [(0, 10, 0, 0)]
    node.proc("net/softnet_stat", softnet_line(29, 1, 4, 0) + softnet_line(2, 0, 0, 3))
    assert rows_of(source.read(tick(4))) == [(0, 10, 0, 0)]


def test_older_kernels_leave_it_to_the_reader_which_core(node: FakeNode) -> None:
    node.sys("devices/system/cpu/online", "0,2\n")
    node.proc("net/softnet_stat", softnet_line(1, 0, 0, None) + softnet_line(1, 0, 0, None))
    source = SoftnetSource(node.host)
    source.read(tick(0))
    node.proc("net/softnet_stat", softnet_line(1, 0, 0, None) + softnet_line(5, 2, 0, None))
    assert rows_of(source.read(tick(1))) == [(2, 4, 2, 0)]
    # The list and the lines disagree: nothing is better than the wrong core.
    node.sys("devices/system/cpu/online", "0-2\n")
    node.proc("net/softnet_stat", softnet_line(7, 0, 0, None) + softnet_line(9, 2, 0, None))
    assert source.read(tick(2)) == {}


def test_no_softnet(node: FakeNode) -> None:
    with pytest.raises(SourceUnavailable, match="softnet"):
        SoftnetSource(node.host)


def a_queue(node: FakeNode, device: str, queue: int, timeouts: int, *, hardware: bool = True) -> None:
    node.sys(f"class/net/{device}/queues/tx-{queue}/tx_timeout", f"{timeouts}\n")
    node.sys(f"class/net/{device}/queues/rx-{queue}/rps_cpus", "0\n")
    if hardware:
        node.sys(f"class/net/{device}/device/vendor", "0x1d0f\n")


def test_a_timeout_is_an_event(node: FakeNode) -> None:
    a_queue(node, "eth0", 0, 0)
    a_queue(node, "eth0", 5, 3)
    a_queue(node, "veth1", 0, 0, hardware=False)
    source = NetdevSource(node.host)
    assert source.read(tick(0)) == {}
    a_queue(node, "eth0", 5, 5)
    a_queue(node, "veth1", 0, 9, hardware=False)
    events = source.read(tick(1))["events"]
    assert (events["kind"], events["device"], events["queue"], events["value"]) == (
        ["nic-tx-timeout"],
        ["eth0"],
        [5],
        [2.0],
    )
    assert events["time"] == [tick(1).start]
    # A reset of the device sets it back.
    a_queue(node, "eth0", 5, 0)
    assert source.read(tick(2)) == {}
    source.close()


def test_devices_come_and_go(node: FakeNode) -> None:
    a_queue(node, "eth0", 0, 0)
    source = NetdevSource(node.host)
    source.read(tick(0))
    (node.host.sys / "class/net/eth0/queues/tx-0/tx_timeout").unlink()
    (node.host.sys / "class/net/eth0/queues/tx-0").rmdir()
    a_queue(node, "eth1", 1, 7)
    assert source.read(tick(1)) == {}
    assert source.read(tick(11)) == {}
    a_queue(node, "eth1", 1, 8)
    assert source.read(tick(12))["events"]["device"] == ["eth1"]


def test_very_many_queues_take_turns(node: FakeNode) -> None:
    for queue in range(150):
        a_queue(node, "eth0", queue, 0)
    source = NetdevSource(node.host)
    source.read(tick(0))
    for queue in range(150):
        a_queue(node, "eth0", queue, 1)
    seen: list[int] = []
    for second in range(1, 5):
        rows = source.read(tick(second))
        seen += rows["events"]["queue"] if rows else []
    assert sorted(seen) == list(range(150))


def test_no_sysfs(node: FakeNode) -> None:
    with pytest.raises(SourceUnavailable, match="sysfs"):
        NetdevSource(node.host)

"""/proc/pressure, softnet_stat, dentry-state and slabinfo."""

from pathlib import Path

import pytest
from tests.collect.fake_node import FakeNode

from exhume.procfs.dentry_state import parse_dentry_state
from exhume.procfs.host import Host
from exhume.procfs.pressure import parse_pressure, parse_stall_totals
from exhume.procfs.slabinfo import SlabCounter, active_objects
from exhume.procfs.softnet_stat import parse_softnet_stat


def test_pressure() -> None:
    some = b"some avg10=1.50 avg60=2.00 avg300=50.00 total=123456\n"
    assert parse_pressure(some + b"full avg10=0.00 avg60=0.00 avg300=0.00 total=9\n") == {
        "some": (0.015, 0.02, 0.5, 123456),
        "full": (0, 0, 0, 9),
    }
    assert parse_pressure(some[:30]) == {}
    assert parse_pressure(b"") == {}
    both = some + b"full avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"
    assert parse_stall_totals(both) == {kind: each.total_us for kind, each in parse_pressure(both).items()}
    assert parse_stall_totals(some[:30]) == parse_stall_totals(b"full avg10=0.00 total=\n") == {}


def test_softnet_lines_with_and_without_their_core() -> None:
    numbered = b"0000000a 00000001 00000002 " + b"00000000 " * 9 + b"00000003 00000000 00000000\n"
    assert parse_softnet_stat(numbered) == [(3, 10, 1, 2)]
    assert parse_softnet_stat(b"ffffffff 00000000 00000010 00000000\n00000001") == [(None, 0xFFFFFFFF, 0, 16)]


def test_dentries() -> None:
    assert parse_dentry_state(b"100\t50\t45\t0\t7\t0\n") == (100, 50, 7)
    assert parse_dentry_state(b"100\t50\t45\t0\t0\t0\n") == (100, 50, None)
    assert parse_dentry_state(b"100") is None


def test_slab_caches() -> None:
    content = b"slabinfo - version: 2.1\n# name\nnet_namespace  12  20 4096 8 8\nnet_namespace_x 1 1\n"
    assert active_objects(content, b"net_namespace") == 12
    assert active_objects(content, b"dentry") is None


@pytest.mark.parametrize(
    ("aliases", "expected"),
    [("0\n", 35), ("2\n", 12), (None, 12)],
    ids=["of its own", "merged with others", "no sysfs for slabs"],
)
def test_a_slab_cache_is_counted_by_its_own_file_unless_others_share_it(
    node: FakeNode, aliases: str | None, expected: int
) -> None:
    node.proc("slabinfo", "slabinfo - version: 2.1\n# name\nnet_namespace  12  20 4096 8 8\n")
    if aliases is not None:
        node.sys("kernel/slab/net_namespace/aliases", aliases)
        node.sys("kernel/slab/net_namespace/objects", "35 N0=20 N1=15\n")
    assert SlabCounter(node.host, "net_namespace").count() == expected


@pytest.mark.root
def test_both_ways_to_count_a_slab_cache_agree_on_this_kernel() -> None:
    counter = SlabCounter(Host(), "net_namespace")
    # Namespaces come and go while tests run: once of a few times nothing happens between the two.
    for _ in range(50):
        listed, counted = active_objects(Path("/proc/slabinfo").read_bytes(), b"net_namespace"), counter.count()
        if listed == counted:
            return
    pytest.fail(f"{counted} by {counter.path}, {listed} by /proc/slabinfo")

"""/proc/pressure, softnet_stat, dentry-state and slabinfo."""

from exhume.procfs.dentry_state import parse_dentry_state
from exhume.procfs.pressure import parse_pressure, parse_stall_totals
from exhume.procfs.slabinfo import active_objects
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

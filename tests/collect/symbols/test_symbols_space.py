"""The mappings of a process: what is mapped over is gone, what is shared stays apart."""

import os

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from symbol_programs import map_file

from exhume.collect.host import Host
from exhume.collect.perf.symbols.address import strip_tags, user_va_bits
from exhume.collect.perf.symbols.space import AddressSpace, parse_maps

MAPS = b"""\
55e8436ed000-55e8436ef000 r--p 00000000 fe:00 260131                     /usr/bin/cat
55e8436ef000-55e8436f4000 r-xp 00002000 fe:00 260131                     /usr/bin/cat
7f0000000000-7f0000001000 rwxp 00000000 00:00 0
7f0000002000-7f0000003000 r-xp 00001000 00:2f 77                         /opt/with space/libx.so (deleted)
7f0000004000-7f0000005000 rwxp 00000000 00:00 0                          [anon:v8]
7fc5bc938000-7fc5bc93a000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
"""


def test_only_executable_mappings_are_taken() -> None:
    found = [(m.start, m.end, m.offset, m.file.key.minor, m.file.key.inode, m.file.path) for m in parse_maps(MAPS)]
    assert found == [
        (0x55E8436EF000, 0x55E8436F4000, 0x2000, 0, 260131, "/usr/bin/cat"),
        (0x7F0000000000, 0x7F0000001000, 0, 0, 0, ""),
        (0x7F0000002000, 0x7F0000003000, 0x1000, 0x2F, 77, "/opt/with space/libx.so"),
        (0x7F0000004000, 0x7F0000005000, 0, 0, 0, "[anon:v8]"),
        (0x7FC5BC938000, 0x7FC5BC93A000, 0, 0, 0, "[vdso]"),
        (0xFFFFFFFFFF600000, 0xFFFFFFFFFF601000, 0, 0, 0, "[vsyscall]"),
    ]


def test_our_own_mappings_are_found() -> None:
    space = AddressSpace.from_proc(Host(), os.getpid())
    assert space is not None
    assert any("/libc" in mapping.file.path for mapping in space.layout.mappings())
    assert AddressSpace.from_proc(Host(), 2**22 + 1) is None


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(0, 4)), max_size=40))
def test_a_new_mapping_replaces_what_it_covers(made: list[tuple[int, int, int]]) -> None:
    space = AddressSpace(1)
    expected: dict[int, tuple[int, str]] = {}
    for i, (start, length, file) in enumerate(made):
        map_file(space, start, start + length, i * 1000, 0, 0, file, 0, f"/lib/{file}")
        if i % 5 == 0:
            assert space.layout.files
        for address in range(start, start + length):
            expected[address] = (address - start + i * 1000, f"/lib/{file}")
    for address in range(100):
        mapping = space.find(address)
        found = mapping and (address - mapping.start + mapping.offset, mapping.file.path)
        assert found == expected.get(address)


def test_a_fork_shares_until_one_of_the_two_changes() -> None:
    parent = AddressSpace(10)
    map_file(parent, 0, 100, 0, 0, 0, 1, 0, "/one")
    child = parent.fork(11)
    grandchild = child.fork(12)
    map_file(child, 200, 300, 0, 0, 0, 2, 0, "/two")
    map_file(parent, 400, 500, 0, 0, 0, 3, 0, "/three")
    assert [[m.file.path for m in space.layout.mappings()] for space in (parent, child, grandchild)] == [
        ["/one", "/three"],
        ["/one", "/two"],
        ["/one"],
    ]
    assert grandchild.pid == 12
    assert grandchild.lineage == (11, 10)


def test_exec_begins_with_nothing_but_remembers_where_it_came_from() -> None:
    child = AddressSpace(10).fork(11)
    map_file(child, 0, 100, 0, 0, 0, 1, 0, "/one")
    fresh = child.exec()
    assert fresh.find(50) is None
    assert (fresh.pid, fresh.lineage) == (11, (10,))


def test_tags_and_authentication_codes_are_stripped() -> None:
    tagged = np.array(
        [0x34000000_12345678, 0x007F_FFFF_1234_5678, 0xFFFF_8000_0123_4567, 0x0000_AAAA_0000_1000], np.uint64
    )
    assert [hex(address) for address in strip_tags(tagged).tolist()] == [
        "0x12345678",
        "0xffff12345678",
        "0xffff800001234567",
        "0xaaaa00001000",
    ]
    assert strip_tags(np.array([0x0055_5512_3456_7890], np.uint64), va_bits=39).tolist() == [0x12_3456_7890 | 0x00]


def test_the_width_of_user_addresses_is_seen_from_our_own() -> None:
    assert 39 <= user_va_bits(Host()) <= 52

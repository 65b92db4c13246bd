"""The mappings of a process: what is mapped over is gone, what is shared stays apart."""

import os
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.collect.symbols.symbol_programs import map_file

from exhume.collect.symbols.mappings import (
    MAX_MAPPINGS,
    AddressSpace,
    FileKey,
    Mapping,
    executable_mappings,
    mapped_file,
    strip_tags,
    user_va_bits,
)
from exhume.procfs.host import Host

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
    mappings = executable_mappings(MAPS.splitlines())
    found = [(m.start, m.end, m.offset, m.file.key.minor, m.file.key.inode, m.file.path) for m in mappings]
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


def fake_maps(tmp_path: Path, lines: Iterable[str]) -> Host:
    (tmp_path / "77").mkdir()
    with (tmp_path / "77/maps").open("w") as maps:
        maps.writelines(lines)
    return Host(proc=tmp_path)


def executable(number: int, path: str) -> str:
    start = 0x7F0000000000 + number * 0x2000
    return f"{start:x}-{start + 0x1000:x} r-xp 00000000 fe:00 {number + 1} {path}\n"


@pytest.mark.slow
@pytest.mark.parametrize("length", [40, 3800])
def test_a_process_with_countless_mappings_is_read_up_to_a_bound(tmp_path: Path, length: int) -> None:
    """64,000 mappings: 230 MB of text where their paths are long."""
    host = fake_maps(tmp_path, (executable(i, "/" + "x" * length + str(i)) for i in range(64_000)))
    tracemalloc.start()
    try:
        space = AddressSpace.from_proc(host, 77)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert space is not None and space.truncated
    assert 60 <= len(space.layout.files) <= MAX_MAPPINGS
    assert space.find(0x7F0000000000) is not None
    assert peak < 16 << 20


def test_a_process_with_countless_ordinary_mappings_is_read_to_the_end(tmp_path: Path) -> None:
    data = ("7e0000000000-7e0000001000 rw-p 00000000 fe:00 5 /var/lib/index/segment\n" for _ in range(65_000))
    host = fake_maps(tmp_path, [*data, executable(0, "/usr/bin/search")])
    space = AddressSpace.from_proc(host, 77)
    assert space is not None and not space.truncated
    assert [file.path for file in space.layout.files] == ["/usr/bin/search"]


@pytest.mark.parametrize("length", [40, 3800])
def test_mappings_that_are_made_are_kept_up_to_a_bound(length: int) -> None:
    space = AddressSpace(77)
    skipped = 0
    for i in range(MAX_MAPPINGS + 100):
        key = FileKey(1, 2, i, 0, "/" + "x" * length)
        skipped += space.add([Mapping(i * 0x2000, i * 0x2000 + 0x1000, 0, mapped_file(key))])
    assert skipped == MAX_MAPPINGS + 100 - len(space.layout.files)
    assert skipped == 100 if length == 40 else skipped > MAX_MAPPINGS - 100

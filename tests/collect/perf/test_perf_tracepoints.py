"""Tracepoints: fields where this kernel says they are, whichever kernel it is."""

import struct

import pytest
from tests.collect.perf.record_builder import cgroup_raw, record, sample, tracepoint

from exhume.collect.perf.records import RecordType, walk
from exhume.collect.perf.tracepoints import Tracepoint, TracepointRows, load_tracepoint, parse_format

COMMON = """\
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:unsigned char common_flags;	offset:2;	size:1;	signed:0;
	field:unsigned char common_preempt_count;	offset:3;	size:1;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;
"""
MKDIR_6 = f"""\
name: cgroup_mkdir
ID: 544
format:
{COMMON}
	field:int root;	offset:8;	size:4;	signed:1;
	field:int level;	offset:12;	size:4;	signed:1;
	field:u64 id;	offset:16;	size:8;	signed:0;
	field:__data_loc char[] path;	offset:24;	size:4;	signed:0;

print fmt: "root=%d id=%llu level=%d path=%s", REC->root, REC->id, REC->level, __get_str(path)
"""
# Linux 5.4: the id is an int, and stands before the level.
MKDIR_5_4 = f"""\
name: cgroup_mkdir
ID: 401
format:
{COMMON}
	field:int root;	offset:8;	size:4;	signed:1;
	field:int id;	offset:12;	size:4;	signed:1;
	field:int level;	offset:16;	size:4;	signed:1;
	field:__data_loc char[] path;	offset:20;	size:4;	signed:1;

print fmt: "root=%d id=%d level=%d path=%s", REC->root, REC->id, REC->level, __get_str(path)
"""
TIMEOUT = f"""\
name: net_dev_xmit_timeout
ID: 2305
format:
{COMMON}
	field:__data_loc char[] name;	offset:8;	size:4;	signed:0;
	field:__data_loc char[] driver;	offset:12;	size:4;	signed:0;
	field:int queue_index;	offset:16;	size:4;	signed:1;

print fmt: "dev=%s driver=%s queue=%d", __get_str(name), __get_str(driver), REC->queue_index
"""


def name_of(pid: int, tid: int, time: int) -> str:
    return f"{pid}/{tid}@{time}"


def test_fields_of_a_newer_kernel() -> None:
    fields = parse_format(MKDIR_6)
    assert {name: (field.offset, field.code, field.text) for name, field in fields.items()} == {
        "root": (8, "i", False),
        "level": (12, "i", False),
        "id": (16, "Q", False),
        "path": (24, "I", True),
    }


def test_fields_of_linux_5_4() -> None:
    fields = parse_format(MKDIR_5_4)
    assert list(fields) == ["root", "id", "level", "path"]
    text = b"/kubepods/pod1\0"
    raw = struct.pack("<HBBi iiiI", 401, 0, 0, 9, 3, 77, 2, (len(text) << 16) | 24) + text
    read = Tracepoint("cgroup_mkdir", 401, fields).read(raw)
    assert read == {"root": 3, "id": 77, "level": 2, "path": "/kubepods/pod1"}


def test_arrays_and_pointers_are_passed_over() -> None:
    text = "\tfield:char name[16];\toffset:8;\tsize:16;\tsigned:1;\n\tfield:void * p;\toffset:24;\tsize:8;\tsigned:0;\n"
    assert list(parse_format(text)) == ["p"]
    assert parse_format("") == {}


def rows_of(*formats: tuple[str, int, str]) -> TracepointRows:
    return TracepointRows([Tracepoint(name, number, parse_format(text)) for name, number, text in formats])


def test_the_life_of_a_cgroup() -> None:
    rows = rows_of(*((f"cgroup_{op}", 544 + n, MKDIR_6) for n, op in enumerate(("mkdir", "rmdir", "release"))))
    data = b"".join(
        tracepoint(cgroup_raw(544 + n, 4, 2, 2**40 + 5, "/kubepods/pod-é"), 100, 1000 + n, tid=101) for n in range(3)
    )
    cgroups, events = rows.decode(walk(data), name_of)
    assert events == []
    assert [row.op for row in cgroups] == ["mkdir", "rmdir", "release"]
    row = cgroups[1]
    assert (row.time, row.hierarchy, row.id, row.level) == (1001, 4, 2**40 + 5, 2)
    assert (row.path, row.pid, row.comm) == ("/kubepods/pod-é", 100, "100/101@1001")
    assert row.created is None


def test_a_transmit_queue_that_timed_out() -> None:
    names = b"eth0\0mlx5_core\0"
    raw = struct.pack("<HBBi III", 2305, 0, 0, 0, (5 << 16) | 20, (10 << 16) | 25, 13) + names
    cgroups, (event,) = rows_of(("net_dev_xmit_timeout", 2305, TIMEOUT)).decode(walk(tracepoint(raw, 0, 7)), name_of)
    assert cgroups == []
    assert (event.kind, event.severity, event.device, event.queue, event.time) == (
        "nic-tx-timeout",
        "critical",
        "eth0",
        13,
        7,
    )
    assert event.text == "eth0 (mlx5_core): transmit queue 13 timed out"


@pytest.mark.parametrize("length", range(40))
def test_a_raw_part_that_is_cut_short_is_passed_over(length) -> None:
    raw = cgroup_raw(544, 4, 2, 5, "/a")[:length]
    rows = rows_of(("cgroup_mkdir", 544, MKDIR_6))
    cgroups, _ = rows.decode(walk(tracepoint(raw, 1, 1) + tracepoint(cgroup_raw(544, 4, 2, 5, "/b"), 1, 2)), name_of)
    assert cgroups[-1].path == "/b"
    assert all("/a".startswith(row.path or "") for row in cgroups[:-1])


def test_another_tracepoint_in_the_ring_is_passed_over() -> None:
    data = tracepoint(cgroup_raw(999, 4, 2, 5, "/a"), 1, 1) + sample(1, 1, kernel=[2**63])
    assert rows_of(("cgroup_mkdir", 544, MKDIR_6)).decode(walk(data), name_of) == ([], [])
    assert rows_of(("cgroup_mkdir", 544, MKDIR_6)).decode(walk(record(RecordType.SAMPLE, b"")), name_of) == ([], [])


def test_a_tracepoint_is_loaded_from_tracefs(tmp_path) -> None:
    directory = tmp_path / "events/cgroup/cgroup_mkdir"
    directory.mkdir(parents=True)
    assert load_tracepoint(tmp_path, "cgroup_mkdir") is None
    (directory / "format").write_text(MKDIR_6)
    (directory / "id").write_text("nonsense\n")
    assert load_tracepoint(tmp_path, "cgroup_mkdir") is None
    (directory / "id").write_text("544\n")
    loaded = load_tracepoint(tmp_path, "cgroup_mkdir")
    assert (loaded.name, loaded.id, list(loaded.fields)) == ("cgroup_mkdir", 544, ["root", "level", "id", "path"])

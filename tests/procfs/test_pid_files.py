"""/proc/PID/stat, status, schedstat and maps."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.procfs.maps import parse_entry, parse_maps
from exhume.procfs.pid_stat import parse_pid_stat
from exhume.procfs.pid_status import status_mask, status_text, status_values
from exhume.procfs.schedstat import parse_schedstat, parse_task_schedstat

FIELDS = b"S 7 " + b" ".join(b"%d" % number for number in range(5, 53))
STATUS = (
    b"Name:\tUid: 9\nUmask:\t0022\nTgid:\t70\nUid:\t1\t2\t3\t4\nNSpid:\t70\t5\n"
    b"VmHWM:\t  1234 kB\nCapEff:\t00000000a80425fb\n"
)


@pytest.mark.parametrize("comm", ["plain", "with space", "a) b (c", ")", "((", "0 R 1) S 2"])
def test_a_name_may_hold_spaces_and_parentheses(comm: str) -> None:
    stat = parse_pid_stat(b"70 (%s) %s\n" % (comm.encode(), FIELDS))
    assert stat is not None
    assert (stat.comm, stat.state, stat.ppid, stat.start) == (comm, "S", 7, 22)
    assert (stat.nice, stat.rt_priority, stat.policy) == (19, 40, 41)


def test_a_stat_of_our_own() -> None:
    stat = parse_pid_stat(Path("/proc/self/stat").read_bytes())
    assert stat is not None
    assert (stat.ppid, stat.policy) == (os.getppid(), os.sched_getscheduler(0))


def test_a_truncated_stat_is_none_or_without_its_scheduling() -> None:
    line = b"70 (a b) " + FIELDS
    parsed = [parse_pid_stat(line[:length]) for length in range(len(line))]
    assert parsed[20] is None
    assert all(stat is None or (stat.comm, stat.ppid) == ("a b", 7) for stat in parsed)


@given(st.binary(max_size=200))
def test_no_stat_breaks_the_parser(content: bytes) -> None:
    parse_pid_stat(content)


def test_lines_of_a_status() -> None:
    assert status_values(STATUS, b"Uid") == [1, 2, 3, 4]
    assert status_values(STATUS, b"NSpid") == [70, 5]
    assert status_values(STATUS, b"VmHWM") == [1234]
    assert status_values(STATUS, b"VmLck") == []
    assert status_mask(STATUS, b"CapEff") == 0xA80425FB
    assert status_mask(STATUS, b"CapBnd") is None
    assert status_text(STATUS, b"VmHWM") == "1234 kB"
    assert status_text(STATUS, b"Cpus_allowed_list") is None


def test_run_queues_and_tasks() -> None:
    content = (
        b"version 17\ntimestamp 1\ncpu0 1 0 2 3 4 5 600 700 80\ndomain0 MC 3 1 2\ncpu5 0 0 0 0 0 0 1 2 3\ncpu6 1\n"
    )
    assert parse_schedstat(content) == {0: (700, 80), 5: (2, 3)}
    assert parse_task_schedstat(b"11 22 3\n") == (11, 22, 3)
    assert parse_task_schedstat(b"11 22") is None


def test_a_mapping_of_smaps_and_its_details() -> None:
    entry = parse_entry(b"7f01-7f02 r-xp 00001000 00:2f 77      /opt/with space/lib\\012x.so (deleted)")
    assert entry == (0x7F01, 0x7F02, 0x1000, 0, 0x2F, 77, "/opt/with space/lib\nx.so (deleted)")
    assert entry is not None
    assert entry.device == os.makedev(0, 0x2F)
    assert parse_entry(b"VmFlags: rd ex mr mw me lo") is None
    assert parse_entry(b"Size:                  4 kB") is None


def test_the_mappings_of_our_own() -> None:
    entries = list(parse_maps(Path("/proc/self/maps").read_bytes().split(b"\n")))
    assert any(entry.path == "[vdso]" for entry in entries)
    executable = list(parse_maps(Path("/proc/self/maps").read_bytes().split(b"\n"), executable_only=True))
    assert 0 < len(executable) < len(entries)


def test_truncated_mappings() -> None:
    line = b"7f0000002000-7f0000003000 r-xp 00001000 00:2f 77                         /lib/x.so"
    for length in range(len(line)):
        assert all(entry.start == 0x7F0000002000 for entry in parse_maps([line[:length]], executable_only=True))


@given(st.binary(max_size=120))
def test_no_line_breaks_the_parser_of_mappings(line: bytes) -> None:
    list(parse_maps([line]))

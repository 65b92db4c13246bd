"""Processes as they are first seen."""

import os
import subprocess
import sys
import time
from typing import Any

from tests.collect.fake_node import FakeNode

from exhume.collect.processes import ProcessReader, cgroup_path
from exhume.procfs.host import Host

ID = "5a" * 32
STAT = "4242 ({comm}) S 17 4242 4242 0 -1 4194304 1 0 0 0 1 2 0 0 20 0 1 0 {start} 1000 10 18446744073709551615\n"


def a_process(node: FakeNode, comm: str = "ray::train", cgroup: str = f"0::/docker/{ID}\n") -> None:
    node.proc("4242/stat", STAT.format(comm=comm, start=12_345))
    node.proc("4242/cmdline", "python3\0-m\0train\0")
    node.proc("4242/cgroup", cgroup)


def test_a_row(node: FakeNode) -> None:
    a_process(node)
    hertz = os.sysconf("SC_CLK_TCK")
    assert ProcessReader(node.host).describe(4242) == {
        "pid": 4242,
        "ppid": 17,
        "comm": "ray::train",
        "start": 12_345 * (1_000_000_000 // hertz),
        "cmdline": "python3 -m train",
        "cgroup": f"/docker/{ID}",
        "container": ID,
        "pod": None,
        "runtime": "docker",
    }


def test_names_with_blanks_and_parentheses(node: FakeNode) -> None:
    a_process(node, comm="a) S 1 (b) c")
    row = ProcessReader(node.host).describe(4242)
    assert (row["comm"], row["ppid"]) == ("a) S 1 (b) c", 17)


def test_a_process_that_is_gone(node: FakeNode) -> None:
    assert ProcessReader(node.host).describe(4242) == {"pid": 4242}


def test_kernel_threads_have_no_command_line(node: FakeNode) -> None:
    a_process(node, comm="kworker/0:1")
    node.proc("4242/cmdline", "")
    assert "cmdline" not in ProcessReader(node.host).describe(4242)


def test_a_command_line_that_is_not_text_or_has_no_end(node: FakeNode) -> None:
    a_process(node)
    node.proc("4242/cmdline", b"\xff\xfe" + b"x" * 5000)
    cmdline = ProcessReader(node.host).describe(4242)["cmdline"]
    assert cmdline.startswith("�")
    assert len(cmdline) <= 1024


def test_a_stat_that_was_cut_short(node: FakeNode) -> None:
    node.proc("4242/stat", "4242 (x")
    assert ProcessReader(node.host).describe(4242) == {"pid": 4242}


def test_which_hierarchy_reports_the_cgroup() -> None:
    v1 = b"9:name=systemd:/\n8:pids:/\n4:memory:/sandboxes/abc\n1:cpu,cpuacct:/x\n0::/\n"
    assert cgroup_path(v1) == "/sandboxes/abc"
    assert cgroup_path(b"0::/system.slice/sshd.service\n") == "/system.slice/sshd.service"
    hybrid = b"2:memory:/\n1:name=systemd:/system.slice/a.service\n0::/system.slice/a.service\n"
    assert cgroup_path(hybrid) == "/system.slice/a.service"
    assert cgroup_path(b"1:cpu,cpuacct:/quota\n0::/\n") == "/quota"
    assert cgroup_path(b"0::/\n") == "/"
    assert cgroup_path(b"0::/gone (deleted)\n") == "/gone"
    assert cgroup_path(b"0::/with:colon\n") == "/with:colon"
    assert cgroup_path(b"") is None


def described(reader: ProcessReader, pid: int) -> dict[str, Any]:
    """A child process, once it has executed its interpreter."""
    deadline = time.monotonic() + 60
    while "input()" not in (row := reader.describe(pid)).get("cmdline", ""):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return row


def test_this_process() -> None:
    began = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    child = subprocess.Popen([sys.executable, "-c", "input()", "some argument"], stdin=subprocess.PIPE)
    try:
        row = described(ProcessReader(Host()), child.pid)
        assert row["cmdline"].endswith("some argument")
        assert row["ppid"] == os.getpid()
        assert row["comm"].startswith("python")
        # The kernel prints it in whole ticks.
        of_a_tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        assert began - of_a_tick <= row["start"] <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    finally:
        child.communicate(b"\n")


def test_secrets_of_a_command_line_are_not_recorded():
    child = subprocess.Popen([sys.executable, "-c", "input()", "--password=hunter2", "--x"], stdin=subprocess.PIPE)
    try:
        redacted = described(ProcessReader(Host()), child.pid)["cmdline"]
        kept = described(ProcessReader(Host(), keep_secrets=True), child.pid)["cmdline"]
    finally:
        child.communicate(b"\n")
    assert redacted.endswith("-c input() --password=*** --x")
    assert kept.endswith("-c input() --password=hunter2 --x")

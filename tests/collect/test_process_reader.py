"""Processes as they are first seen."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.collect.fake_node import FakeNode
from tests.parts import missing

from exhume.collect.cgroup.layout import find_v1, find_v2, hierarchies
from exhume.collect.processes import ProcessReader, cgroup_path
from exhume.procfs.host import Host

# One test makes a cgroup, which on v2 has all controllers.
pytestmark = pytest.mark.xdist_group("containers")
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


@pytest.fixture
def hierarchy() -> Path:
    """The hierarchy that the recorder goes by."""
    layout = hierarchies(Host())
    found = find_v1(layout, "memory") or find_v2(layout)
    return found.path if found else missing("a hierarchy with the memory controller")


@pytest.fixture
def delegated(hierarchy: Path) -> Iterator[Path]:
    """A cgroup that belongs to nobody."""
    cgroup = hierarchy / f"exhume-test-delegated-{os.getpid()}"
    cgroup.mkdir()
    os.chown(cgroup, 65534, 65534)
    yield cgroup
    for each in (*cgroup.glob("*/"), cgroup):
        each.rmdir()


@pytest.mark.root
def test_a_cgroup_that_a_user_named_like_a_container_is_none(hierarchy: Path, delegated: Path) -> None:
    faked = delegated / f"docker-{ID}.scope"
    subprocess.run(["mkdir", str(faked)], user=65534, group=65534, extra_groups=(), check=True)
    reader = ProcessReader(Host())
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        home = hierarchy / described(reader, child.pid)["cgroup"].lstrip("/")
        # It waits meanwhile, so that nothing is charged there and keeps the cgroup.
        (faked / "cgroup.procs").write_text(str(child.pid))
        row = reader.describe(child.pid)
        (home / "cgroup.procs").write_text(str(child.pid))
    finally:
        child.communicate(b"\n")
    assert row["cgroup"].endswith(f"/{delegated.name}/{faked.name}")
    assert [row.get(column) for column in ("container", "pod", "runtime")] == [None, None, None]


def test_secrets_of_a_command_line_are_not_recorded():
    child = subprocess.Popen([sys.executable, "-c", "input()", "--password=hunter2", "--x"], stdin=subprocess.PIPE)
    try:
        redacted = described(ProcessReader(Host()), child.pid)["cmdline"]
        kept = described(ProcessReader(Host(), keep_secrets=True), child.pid)["cmdline"]
    finally:
        child.communicate(b"\n")
    assert redacted.endswith("-c input() --password=*** --x")
    assert kept.endswith("-c input() --password=hunter2 --x")

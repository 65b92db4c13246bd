"""Reading files of the kernel again and again."""

import contextlib
import os
import signal
from pathlib import Path

import pytest
from tests.collect.fake_node import FakeNode

from exhume.procfs.cpulist import online_cpus, parse_cpulist, possible_cpus
from exhume.procfs.host import Host, ProcFile, subdirectories


def times_open(path: Path) -> int:
    """Whatever else this process opens and closes meanwhile."""
    found = 0
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += fd.readlink() == path
    return found


def test_a_file_is_read_whole_and_again(tmp_path: Path) -> None:
    path = tmp_path / "counters"
    path.write_bytes(b"x" * 300_000)
    file = ProcFile(path)
    assert len(file.read()) == 300_000
    path.write_bytes(b"short")
    assert file.read() == b"short"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    file = ProcFile(tmp_path / "absent")
    assert file.read_or_none() is None
    with pytest.raises(FileNotFoundError):
        file.read()
    (tmp_path / "absent").write_text("here now")
    assert file.read() == b"here now"


def test_the_descriptor_is_closed(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1")
    file = ProcFile(tmp_path / "f")
    file.read()
    assert times_open(tmp_path / "f") == 1
    file.close()
    file.close()
    assert times_open(tmp_path / "f") == 0


def test_a_process_that_ended_and_its_file() -> None:
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    file = ProcFile(f"/proc/{child}/schedstat")
    assert file.read_or_none() is not None
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert file.read_or_none() is None


def test_long_seq_files_come_whole() -> None:
    # The kernel hands this one out in pieces.
    assert ProcFile("/proc/kallsyms").read().count(b"\n") > 10_000


def test_kernel_paths_move_to_the_injected_roots(tmp_path: Path) -> None:
    host = Host(tmp_path / "p", tmp_path / "s", tmp_path / "d")
    assert host.resolve("/sys/fs/cgroup/memory") == tmp_path / "s/fs/cgroup/memory"
    assert host.resolve("/proc") == tmp_path / "p"
    assert host.resolve("/process") == Path("/process")


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3", [0, 1, 2, 3]), ("0,2-3,8\n", [0, 2, 3, 8]), ("5", [5]), ("\n", [])],
)
def test_lists_of_cores(text: str, cpus: list[int]) -> None:
    assert parse_cpulist(text) == cpus


@pytest.mark.parametrize("text", ["a", "1-", "-1", "3-1", "1,,2", "0-99999999999", "²"])
def test_what_is_no_list_of_cores(text: str) -> None:
    with pytest.raises(ValueError, match=r"CPU|range"):
        parse_cpulist(text)


def test_online_cores(node: FakeNode) -> None:
    assert online_cpus(node.host) is None
    node.sys("devices/system/cpu/online", "0-1,3\n")
    assert online_cpus(node.host) == [0, 1, 3]
    node.sys("devices/system/cpu/possible", "0-7\n")
    assert possible_cpus(node.host) == list(range(8))


def test_subdirectories(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "file").touch()
    assert subdirectories(tmp_path) == ["a", "b"]
    assert subdirectories(tmp_path / "nowhere") == []


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 9000, 70_000])
def test_a_single_file_is_read_whole_whatever_its_size(tmp_path: Path, size: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * size)
    file = ProcFile(path, single=True)
    assert [len(file.read()) for _ in range(3)] == [size] * 3
    path.write_bytes(b"y" * (size * 2 + 1))
    assert file.read() == b"y" * (size * 2 + 1)


def test_a_single_file_that_leaves_room_takes_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 100)
    reads: list[int] = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: reads.append(at) or pread(fd, size, at))
    ProcFile(path, single=True).read()
    assert reads == [0]
    ProcFile(path).read()
    assert reads == [0, 0, 100]


@pytest.mark.parametrize("name", ["stat", "meminfo", "loadavg", "self/status", "sys/fs/dentry-state", "cgroups"])
def test_the_kernel_writes_these_in_one_piece(name: str) -> None:
    single, whole = ProcFile(f"/proc/{name}", single=True).read(), ProcFile(f"/proc/{name}").read()
    assert single.count(b"\n") == whole.count(b"\n") > 0

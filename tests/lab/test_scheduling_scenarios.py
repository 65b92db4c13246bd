"""Quotas, real-time threads, locks and busy programs, shortly: they do what they say, and leave nothing."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from exhume.collect.cgroup_layout import hierarchies
from exhume.collect.host import Host
from exhume.lab.cpu_hierarchy import find_cpu_hierarchy
from exhume.lab.scenarios import SCENARIOS
from exhume.lab.stage import Stage, stage
from exhume.model.errors import LabError

pytestmark = pytest.mark.alone
V1 = (
    "30 20 0:30 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "31 20 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)
V2 = "31 20 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


def machine(directory: Path, mounts: str, **files: str) -> Host:
    host = Host(proc=directory / "proc", sys=directory / "sys")
    (host.proc / "self").mkdir(parents=True)
    (host.proc / "self/mountinfo").write_text(mounts)
    (host.sys / "fs/cgroup").mkdir(parents=True)
    for name, content in files.items():
        (host.sys / "fs/cgroup" / name.replace("cgroup_", "cgroup.")).write_text(content)
    assert hierarchies(host)
    return host


def test_a_quota_on_v1_with_the_memory_cgroup_beside_it(tmp_path: Path) -> None:
    hierarchy = find_cpu_hierarchy(machine(tmp_path, V1))
    cpu, memory = hierarchy.directories("lab")
    assert (cpu.parent.name, memory.parent.name) == ("cpu", "memory")
    for directory in (cpu, memory):
        directory.mkdir(parents=True)
    hierarchy.set_quota("lab", 0.25, 20_000)
    hierarchy.join("lab", 4711)
    assert (cpu / "cpu.cfs_quota_us").read_text() == "5000"
    assert (cpu / "cpu.cfs_period_us").read_text() == "20000"
    assert [(each / "cgroup.procs").read_text() for each in (cpu, memory)] == ["4711", "4711"]


def test_a_quota_on_v2(tmp_path: Path) -> None:
    host = machine(tmp_path, V2, cgroup_controllers="cpu memory", cgroup_subtree_control="cpu memory")
    hierarchy = find_cpu_hierarchy(host)
    (group,) = hierarchy.directories("lab")
    group.mkdir()
    hierarchy.set_quota("lab", 1.5, 100_000)
    assert (group / "cpu.max").read_text() == "150000 100000"


def test_a_controller_that_is_off_is_not_turned_on(tmp_path: Path) -> None:
    host = machine(tmp_path, V2, cgroup_controllers="cpu memory", cgroup_subtree_control="memory")
    with pytest.raises(LabError, match=r"echo \+cpu"):
        find_cpu_hierarchy(host)


def prepared(name: str, playing: Stage) -> None:
    prepare = SCENARIOS[name].prepare
    assert prepare is not None
    prepare(playing)


def alive(playing: Stage) -> list[subprocess.Popen[bytes]]:
    return [each for each in playing.running if each.poll() is None]


def seconds_of(pid: int) -> tuple[float, float]:
    """What a process has spent in user mode and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / ticks, int(fields[12]) / ticks


@pytest.mark.root
def test_a_quota_stops_its_processes_and_is_gone_after(tmp_path: Path) -> None:
    with stage("quota", seconds=1.5, work=tmp_path) as playing:
        prepared("cfs-throttling", playing)
        groups = find_cpu_hierarchy(Host()).directories(f"exhume-lab-{playing.directory.name}")
        SCENARIOS["cfs-throttling"].play(playing)
        told = dict(line.split() for line in (groups[0] / "cpu.stat").read_text().splitlines())
        assert int(told["nr_throttled"]) >= 5
    assert not any(group.exists() for group in groups)


@pytest.mark.root
def test_a_real_time_thread_is_one(tmp_path: Path) -> None:
    policies = set()
    with stage("urgent", seconds=1.0, work=tmp_path) as playing:
        playing.progress = lambda done: policies.update(
            (os.sched_getscheduler(each.pid), *os.sched_getaffinity(each.pid)) for each in alive(playing)
        )
        SCENARIOS["rt-hog"].play(playing)
        assert policies <= {(os.SCHED_FIFO, playing.core), (os.SCHED_RR, playing.core)}
        assert len(policies) == 1


@pytest.mark.root
def test_processes_wait_in_the_kernel_for_one_lock(tmp_path: Path) -> None:
    spent: dict[int, tuple[float, float]] = {}
    with stage("locks", seconds=1.5, work=tmp_path) as playing:
        prepared("spinlock-contention", playing)
        (owner,) = playing.running
        time.sleep(1.0)
        playing.progress = lambda done: spent.update(
            (each.pid, seconds_of(each.pid)) for each in alive(playing) if each is not owner
        )
        SCENARIOS["spinlock-contention"].play(playing)
        assert len(spent) >= 2
        user, system = (sum(each[i] for each in spent.values()) for i in range(2))
        assert system > 3 * user


@pytest.mark.root
def test_a_hog_and_its_peers_share_a_core(tmp_path: Path) -> None:
    cores: set[int] = set()
    began: dict[int, float] = {}
    spent: dict[int, float] = {}
    with stage("hog", seconds=2.0, work=tmp_path) as playing:
        prepared("user-hog", playing)
        peers = len(playing.running)

        def look(done: float) -> None:
            for each in alive(playing):
                cores.update(os.sched_getaffinity(each.pid))
                used = sum(seconds_of(each.pid))
                spent[each.pid] = used - began.setdefault(each.pid, used)

        playing.progress = look
        SCENARIOS["user-hog"].play(playing)
        shares = [spent[each.pid] for each in playing.running]
        assert len(playing.running) == peers + 1 >= 2
        assert shares[-1] > sum(shares[:-1])
        assert cores == {playing.core}

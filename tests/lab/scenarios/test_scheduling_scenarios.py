"""Quotas, real-time threads, locks and busy programs, shortly: they do what they say, and leave nothing."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from tests.lab.lab_program import PATIENCE_S, play_until, spent

from exhume.collect.cgroup.layout import hierarchies
from exhume.lab.hierarchies import cpu_cgroups, cpuset_cgroup, put_first, set_cores, set_quota
from exhume.lab.scenarios import SCENARIOS
from exhume.lab.stage import Stage, stage
from exhume.model.errors import LabError
from exhume.procfs.cpulist import parse_cpulist
from exhume.procfs.host import Host

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
    cpu, memory = cpu_cgroups(machine(tmp_path, V1), "lab")
    assert (cpu.parent.name, memory.parent.name) == ("cpu", "memory")
    cpu.mkdir(parents=True)
    set_quota(cpu, 0.25, 20_000)
    assert (cpu / "cpu.cfs_quota_us").read_text() == "5000"
    assert (cpu / "cpu.cfs_period_us").read_text() == "20000"
    put_first(cpu)
    assert (cpu / "cpu.shares").read_text() == "262144"


def test_a_quota_on_v2(tmp_path: Path) -> None:
    host = machine(tmp_path, V2, cgroup_controllers="cpu memory", cgroup_subtree_control="cpu memory")
    (group,) = cpu_cgroups(host, "lab")
    group.mkdir()
    set_quota(group, 1.5, 100_000)
    assert (group / "cpu.max").read_text() == "150000 100000"
    put_first(group)
    assert (group / "cpu.weight").read_text() == "10000"


def test_a_controller_that_is_off_is_not_turned_on(tmp_path: Path) -> None:
    host = machine(tmp_path, V2, cgroup_controllers="cpu memory", cgroup_subtree_control="memory")
    with pytest.raises(LabError, match=r"echo \+cpu"):
        cpu_cgroups(host, "lab")


def prepared(name: str, playing: Stage) -> None:
    prepare = SCENARIOS[name].prepare
    assert prepare is not None
    prepare(playing)


def alive(playing: Stage) -> list[subprocess.Popen[bytes]]:
    return [each for each in playing.running if each.poll() is None]


@pytest.mark.root
def test_a_quota_stops_its_processes_and_is_gone_after(tmp_path: Path) -> None:
    with stage("quota", seconds=PATIENCE_S, work=tmp_path) as playing:
        prepared("cfs-throttling", playing)
        groups = cpu_cgroups(Host(), f"exhume-lab-{playing.directory.name}")

        def throttled() -> bool:
            stat = dict(line.split() for line in (groups[0] / "cpu.stat").read_text().splitlines())
            return int(stat["nr_throttled"]) >= 5

        assert play_until(playing, SCENARIOS["cfs-throttling"].play, throttled)
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
    with stage("locks", seconds=PATIENCE_S, work=tmp_path) as playing:
        prepared("spinlock-contention", playing)
        (owner,) = playing.running

        def waiting() -> bool:
            asking = [spent(each.pid) for each in alive(playing) if each is not owner]
            user, system = (sum(each[i] for each in asking) for i in (1, 2))
            return len(asking) >= 2 and system > max(0.5, 3 * user)

        assert play_until(playing, SCENARIOS["spinlock-contention"].play, waiting)


@pytest.mark.root
def test_a_hog_and_its_peers_share_a_core(tmp_path: Path) -> None:
    cores: set[int] = set()
    began: dict[int, float] = {}
    since: dict[int, float] = {}
    with stage("hog", seconds=PATIENCE_S, work=tmp_path) as playing:
        prepared("user-hog", playing)
        peers = len(playing.running)

        def takes_more_than_its_part() -> bool:
            """Both want the core from when the hog is there; whenever that is, it soon has had more of it."""
            for each in alive(playing):
                cores.update(os.sched_getaffinity(each.pid))
                used = sum(spent(each.pid)[1:])
                since[each.pid] = used - began.setdefault(each.pid, used)
            *others, hog = (since[each.pid] for each in playing.running)
            return hog > max(0.5, sum(others))

        assert play_until(playing, SCENARIOS["user-hog"].play, takes_more_than_its_part)
        assert len(playing.running) == peers + 1 >= 2
        assert cores == {playing.core}


def test_a_cpuset_on_v1_has_the_memory_of_its_parent(tmp_path: Path) -> None:
    mounts = "32 20 0:32 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    group = cpuset_cgroup(machine(tmp_path, mounts), "lab")
    group.mkdir(parents=True)
    (group.parent / "cpuset.mems").write_text("0-1\n")
    set_cores(group, [2, 1])
    assert ((group / "cpuset.cpus").read_text(), (group / "cpuset.mems").read_text()) == ("1,2", "0-1\n")


def test_a_cpuset_on_v2_needs_the_controller(tmp_path: Path) -> None:
    host = machine(tmp_path, V2, cgroup_controllers="cpu cpuset", cgroup_subtree_control="cpu")
    with pytest.raises(LabError, match=r"echo \+cpuset"):
        cpuset_cgroup(host, "lab")
    (host.sys / "fs/cgroup/cgroup.subtree_control").write_text("cpu cpuset")
    group = cpuset_cgroup(host, "lab")
    group.mkdir()
    set_cores(group, [0])
    assert (group / "cpuset.cpus").read_text() == "0"


@pytest.mark.root
def test_work_in_a_cpuset_may_use_its_cores_only_and_the_cpuset_is_gone_after(tmp_path: Path) -> None:
    allowed: set[frozenset[int]] = set()
    with stage("squeeze", seconds=1.0, work=tmp_path) as playing:
        prepared("cpuset-squeeze", playing)
        parent = cpuset_cgroup(Host(), f"exhume-lab-{playing.directory.name}")
        cores = parse_cpulist((parent / playing.name / "cpuset.cpus").read_text())
        playing.progress = lambda done: allowed.update(
            frozenset(os.sched_getaffinity(each.pid)) for each in alive(playing)
        )
        SCENARIOS["cpuset-squeeze"].play(playing)
    assert playing.core in cores and len(cores) <= max(1, len(playing.cores) // 2)
    assert frozenset(cores) in allowed
    assert not parent.exists()


def runnable(pids: set[int]) -> int:
    """Threads of these processes, or of their children, that run or want to."""
    count = 0
    for stat in Path("/proc").glob("[0-9]*/task/[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            count += fields[0] == "R" and (int(stat.parts[2]) in pids or int(fields[1]) in pids)
    return count


@pytest.mark.root
@pytest.mark.parametrize("name", ["overcommit-noisy", "overcommit-equal", "overcommit-builds", "overcommit-background"])
def test_more_threads_want_to_run_than_there_are_cores(tmp_path: Path, name: str) -> None:
    with stage(name, seconds=PATIENCE_S, work=tmp_path) as playing:

        def wanted() -> bool:
            return runnable({each.pid for each in alive(playing)}) >= 2 * len(playing.cores)

        assert play_until(playing, SCENARIOS[name].play, wanted)
        nices = {os.getpriority(os.PRIO_PROCESS, each.pid) for each in alive(playing)}
        usual = os.getpriority(os.PRIO_PROCESS, 0)
        assert (
            nices <= {min(19, usual + 15), min(19, usual + 19)} if name == "overcommit-background" else nices == {usual}
        )


@pytest.mark.root
def test_stacked_threads_are_on_one_core(tmp_path: Path) -> None:
    cores: set[int] = set()
    with stage("stack", seconds=1.0, work=tmp_path) as playing:
        playing.progress = lambda done: [cores.update(os.sched_getaffinity(each.pid)) for each in alive(playing)]
        SCENARIOS["overcommit-stacked"].play(playing)
        assert len(playing.running) >= 4
    assert cores == {playing.core}

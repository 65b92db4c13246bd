"""Commands of remedies can be typed on the node that was recorded: its version of cgroups, the pid of a process
wherever it runs, the name of what it belongs to."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.diagnose.causes.paging import test_cause_page_fault_storm as faults
from tests.diagnose.causes.test_cause_audit_storm import WRITE, audited
from tests.diagnose.causes.test_cause_fork_storm import calm, storm
from tests.diagnose.causes.test_cause_memory_shortage import LIMIT, TOTAL, kill
from tests.diagnose.causes.test_cause_overcommit import SINCE, bound
from tests.diagnose.causes.test_cause_writeback_storm import stalled
from tests.diagnose.judged import judged
from tests.diagnose.scenes import Scene

from exhume.diagnose.catalogue import catalogue
from exhume.model.finding import Remedy

CONTAINER = "c" * 64
IN_DOCKER = f"/docker/{CONTAINER}"
V1 = {"cpu_cgroups": "/sys/fs/cgroup/cpu,cpuacct", "cpu_cgroup_version": 1}
V2 = {"cpu_cgroups": "/sys/fs/cgroup", "cpu_cgroup_version": 2}
# Commands that only read, by how they begin; `timeout` and redirections of errors aside.
READING = re.compile(
    r"(timeout \d+ )?(strace|perf (record|lock)|cat|grep|ps|awk|tcpdump|lsns|journalctl|exhume (zombies|events|flame)"
    r"|kubectl (logs|describe)|(docker|crictl) logs|auditctl -[sl]|aureport|conntrack -L|nft monitor|iptables-save"
    r"|ipvsadm -Ln|find /sys/fs/cgroup -type d)\b"
)


def remedy(scene: Scene, directory: Path, cause: str, number: str) -> Remedy | None:
    found = next(each for each in judged(scene, directory).findings if each.cause == cause)
    return next((each for each in found.remedies if each.id == number), None)


def command(scene: Scene, directory: Path, cause: str, number: str) -> str | None:
    found = remedy(scene, directory, cause, number)
    return None if found is None else found.command


def test_what_only_reads_is_marked_as_that_and_nothing_else() -> None:
    for cause in catalogue().values():
        for each in cause.remedies:
            # That of `unknown-kernel-path` is the command of the page.
            assert each.read_only == bool(READING.match(each.template)), (cause.id, each.id)


@pytest.mark.parametrize(
    ("scene_of", "pid", "cause", "number"),
    [
        (lambda: faults.storm(Scene(cores=4), 2), 4711, "page-fault-storm", "make-room"),
        (lambda: audited(Scene(cores=4), 2, WRITE), 600, "audit-storm", "exclude-program"),
        (lambda: stalled(Scene(cores=4)), 700, "writeback-storm", "idle-io"),
    ],
    ids=["page-fault-storm", "audit-storm", "writeback-storm"],
)
def test_a_command_for_a_process_of_a_container_has_its_pid(
    scene_of: Callable[[], Scene], pid: int, cause: str, number: str, tmp_path: Path
) -> None:
    scene = scene_of().row("processes", 2, pid=pid, comm="worker", cgroup=IN_DOCKER, container=CONTAINER)
    line = command(scene, tmp_path, cause, number)
    assert line is not None and re.search(rf"\b{pid}\b", line) and CONTAINER not in line


@pytest.mark.parametrize(
    ("facts", "path", "line"),
    [
        (V1, "/pinned/db", "echo CORES > /sys/fs/cgroup/cpuset/pinned/db/cpuset.cpus"),
        (V2, "/pinned/db", "echo CORES > /sys/fs/cgroup/pinned/db/cpuset.cpus"),
        # On v1 systemd has no cpusets.
        (V1, "/db.service", "echo CORES > /sys/fs/cgroup/cpuset/db.service/cpuset.cpus"),
        (V2, "/db.service", "systemctl set-property --runtime db.service AllowedCPUs=CORES"),
    ],
)
def test_a_cpuset_is_widened_in_the_file_of_its_version(
    facts: dict[str, object], path: str, line: str, tmp_path: Path
) -> None:
    scene = bound("2", cpuset=path, **facts).row("cgroup_cpu", SINCE, cgroup=path, cores="2")
    [found] = [each for each in judged(scene, tmp_path).findings if each.cause == "cpuset-squeeze"]
    assert [each.command for each in found.remedies] == [line]


@pytest.mark.parametrize(
    ("facts", "file"),
    [(V1, "/sys/fs/cgroup/memory/loads/memory.limit_in_bytes"), (V2, "/sys/fs/cgroup/loads/memory.max")],
    ids=["v1", "v2"],
)
def test_a_limit_is_raised_in_the_file_of_its_version(facts: dict[str, object], file: str, tmp_path: Path) -> None:
    reclaim = Scene(**facts).node(0, 40, mem_total=TOTAL, mem_available=TOTAL // 2)  # type: ignore[arg-type]
    reclaim.core(3, 20, 30, system=980).stack(3, 20, 30, 0.9, "loader", 51, LIMIT)
    reclaim.row("processes", 20, pid=51, comm="loader", cgroup="/loads", start=1)
    kills = Scene(**facts).node(0, 40, oom_kill=0)  # type: ignore[arg-type]
    for second in range(20, 30, 2):
        kill(kills, second + 0.5, "renderer", 500 + second, "/loads")
    for cause, scene in {"memory-reclaim": reclaim, "oom-thrash": kills}.items():
        assert command(scene, tmp_path / cause, cause, "raise-limit") == f"echo SIZE > {file}"


@pytest.mark.parametrize(
    ("facts", "cgroup", "line"),
    [
        (V2, "/batch/tar", "echo 'MAJOR:MINOR wbps=104857600' > /sys/fs/cgroup/batch/tar/io.max"),
        (V2, "/tar.service", "systemctl set-property --runtime tar.service 'IOWriteBandwidthMax=DEVICE 100M'"),
        (V1, "/batch/tar", None),
    ],
)
def test_a_writer_is_limited_where_the_kernel_can(
    facts: dict[str, object], cgroup: str, line: str | None, tmp_path: Path
) -> None:
    scene = stalled(Scene(cores=4, **facts))  # type: ignore[arg-type]
    scene.row("processes", 2, pid=700, comm="archiver", cgroup=cgroup)
    assert command(scene, tmp_path, "writeback-storm", "limit-writer") == line


@pytest.mark.parametrize(
    ("cgroup", "line"),
    [
        ("/system.slice/cgi.service", "systemctl set-property --runtime cgi.service TasksMax=256 CPUQuota=50%"),
        (IN_DOCKER, f"docker update --pids-limit 256 --cpus 0.5 {CONTAINER[:12]}"),
        ("/web", None),
    ],
)
def test_what_forks_is_limited_by_the_name_of_its_unit_or_container(
    cgroup: str, line: str | None, tmp_path: Path
) -> None:
    scene = storm(calm(Scene(cores=4, seconds=30)), 2, 12, 22)
    scene.row("processes", 13, pid=700, ppid=1, start=0, comm="cgi-handler", cgroup=cgroup)
    assert command(scene, tmp_path, "fork-storm", "limit-tasks") == line

"""Work items, spinning and unknown paths of the kernel are named by function, process and core."""

from pathlib import Path

import pytest
from tests.diagnose.codes import reason
from tests.diagnose.judged import judged_recording
from tests.diagnose.nodes import READING, healthy
from tests.diagnose.scenes import Scene, at

from exhume.diagnose import messages
from exhume.model.clock import NANOS
from exhume.model.finding import Diagnosis, Finding

WORK = ["ret_from_fork_asm", "kthread", "worker_thread", "process_scheduled_works", "process_one_work"]
HOG = [*WORK, "zorp_scrub_work_fn", "zorp_scrub_one"]
LINE = "workqueue: zorp_scrub_work_fn hogged CPU for >10000us 16 times, consider switching to WQ_UNBOUND"


def work_finding(found: Diagnosis) -> Finding | None:
    return next((each for each in found.findings if each.cause == "workqueue-hog"), None)


def hog(scene: Scene, cpu: int, share: float = 0.96) -> Scene:
    return scene.core(cpu, 20, 28, user=0, system=round(1000 * share)).stack(
        cpu, 20, 28, share, "kworker/1:2+zorp", 321, HOG
    )


@pytest.mark.slow
def test_a_work_item_on_one_core_of_96(tmp_path: Path) -> None:
    scene = hog(healthy(cores=96), 17)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    top = found.findings[0]
    assert (top.cause, top.culprit.cpu, top.culprit.function) == ("workqueue-hog", 17, "zorp_scrub_work_fn")
    assert top.severity == "warning"
    assert top.confidence >= 0.75


def test_with_the_kernels_own_line_it_is_grave(tmp_path: Path) -> None:
    scene = hog(Scene(cores=8, seconds=40), 5)
    scene.event(25, "workqueue-hog", LINE, "warning", comm="zorp_scrub_work_fn")
    top = judged_recording(scene.write(tmp_path), scene.window).findings[0]
    assert (top.cause, top.severity) == ("workqueue-hog", "critical")
    assert top.confidence >= 0.85


def test_the_line_alone_is_worth_knowing(tmp_path: Path) -> None:
    """The kernel writes it after a few hundredths of a second."""
    scene = Scene(cores=8, seconds=40).without("samples")
    scene.event(25, "workqueue-hog", LINE, "warning", comm="zorp_scrub_work_fn")
    reported = work_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None
    assert (reported.severity, reported.culprit.function) == ("info", "zorp_scrub_work_fn")
    assert reported.confidence < 0.6


def test_a_worker_that_works_a_little_is_healthy(tmp_path: Path) -> None:
    assert (
        work_finding(
            judged_recording((scene := hog(Scene(cores=4, seconds=40), 1, share=0.2)).write(tmp_path), scene.window)
        )
        is None
    )


CALL = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64", "do_fcntl", "fcntl_getlk", "posix_test_lock"]
SPINNING = [*CALL, "_raw_spin_lock", "native_queued_spin_lock_slowpath"]
PARAVIRTUAL = [*CALL, "_raw_spin_lock", "__raw_callee_save___pv_queued_spin_lock_slowpath", "pv_wait_node"]
# Of 4.18, with a part in assembly between the semaphore's functions.
SEMAPHORE = ["do_syscall_64", "zorp_ioctl", "down_write", "call_rwsem_down_write_failed", "rwsem_down_write_failed"]
XEN = ["do_syscall_64", "zorp_ioctl", "_raw_spin_lock", "__pv_queued_spin_lock_slowpath", "xen_qlock_wait"]
ARM = ["el0_svc", "zorp_ioctl", "_raw_spin_lock_irqsave", "queued_spin_lock_slowpath"]
MUTEX = ["do_syscall_64", "zorp_ioctl", "mutex_lock", "__mutex_lock.constprop.0", "osq_lock"]


def spinning_finding(found: Diagnosis) -> Finding | None:
    return next((each for each in found.findings if each.cause == "spinlock-contention"), None)


def contended(scene: Scene, cpus: range, path: list[str], share: float = 0.5) -> Scene:
    for cpu in cpus:
        scene.core(cpu, 20, 30, user=0, system=990)
        scene.stack(cpu, 20, 30, share, "locker", 500 + cpu, path)
        scene.stack(cpu, 20, 30, 0.98 - share, "locker", 500 + cpu, path[: path.index("posix_test_lock") + 1])
    return scene


def test_two_cores_that_spin_for_one_lock(tmp_path: Path) -> None:
    scene = contended(Scene(cores=2, seconds=40), range(2), SPINNING)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    top = found.findings[0]
    assert (top.cause, top.culprit.function, top.culprit.comm) == ("spinlock-contention", "posix_test_lock", "locker")
    assert top.severity in ("warning", "critical")
    assert top.confidence >= 0.8
    assert any("posix_test_lock" in remedy.command for remedy in top.remedies)


def test_other_ways_to_spin(tmp_path: Path) -> None:
    for number, path in enumerate((PARAVIRTUAL, MUTEX, [*SEMAPHORE, "osq_lock"], XEN, ARM)):
        scene = Scene(cores=4, seconds=40).core(1, 20, 30, system=980).stack(1, 20, 30, 0.9, "locker", 7, path)
        reported = spinning_finding(judged_recording(scene.write(tmp_path / str(number)), scene.window))
        assert reported is not None
        assert reported.culprit.function == ("posix_test_lock" if path is PARAVIRTUAL else "zorp_ioctl")


@pytest.mark.slow
def test_one_core_of_96(tmp_path: Path) -> None:
    scene = healthy(cores=96)
    scene.core(70, 20, 30, user=0, system=980).stack(70, 20, 30, 0.95, "locker", 7, SPINNING)
    reported = spinning_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None
    assert (reported.culprit.cpu, reported.severity) == (70, "warning")


@pytest.mark.slow
def test_a_little_spinning_on_every_core_of_a_large_node_is_its_daily_life(tmp_path: Path) -> None:
    scene = healthy(cores=32)
    for cpu in range(32):
        scene.stack(cpu, 0, 40, 0.03, "locker", 500, SPINNING)
    reported = spinning_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is None or reported.severity == "info"


def test_the_lock_of_a_fork_storm_is_how_that_shows(tmp_path: Path) -> None:
    path = ["do_syscall_64", "kernel_clone", "copy_process", "dup_mm", "_raw_spin_lock", SPINNING[-1]]
    scene = Scene(cores=4, seconds=40)
    scene.core(1, 20, 30, system=990)
    for number in range(50):
        scene.stack(1, 20 + number // 5, 21 + number // 5, 0.19, "spawner", 600 + number, path)
    scene.node(20, 30, forks=4_000)
    found = judged_recording(scene.write(tmp_path), scene.window)
    causes = [each.cause for each in found.findings]
    assert "fork-storm" in causes and "spinlock-contention" not in causes


def test_sleeping_for_a_lock_is_not_spinning(tmp_path: Path) -> None:
    path = ["do_syscall_64", "zorp_ioctl", "mutex_lock", "__mutex_lock.constprop.0", "schedule"]
    scene = Scene(cores=4, seconds=40).core(1, 20, 30, system=600).stack(1, 20, 30, 0.6, "waiter", 7, path)
    assert spinning_finding(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_a_healthy_node_and_one_without_stacks(tmp_path: Path) -> None:
    assert spinning_finding(judged_recording((scene := healthy()).write(tmp_path / "a"), scene.window)) is None
    blind = contended(Scene(cores=2, seconds=40), range(2), SPINNING).without("samples")
    found = judged_recording(blind.write(tmp_path / "b"), blind.window)
    assert spinning_finding(found) is None
    assert reason(found, "spinlock-contention") == "spinlock-contention.no-stacks-sampled"


PATH = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64", "zorp_ioctl", "zorp_scan_table", "zorp_hash"]
SERVING = ["do_syscall_64", "__sys_sendto", "sock_sendmsg", "tcp_sendmsg", "tcp_sendmsg_locked", "skb_copy"]


def test_an_unknown_path_on_one_core_of_many_is_named(tmp_path: Path) -> None:
    scene = Scene(cores=96, seconds=40).core(39, 20, 28, system=990).stack(39, 20, 28, 0.98, "zorpd", 4711, PATH)
    for cpu in range(96):
        if cpu != 39:
            # Together the others are in the kernel for more than ten cores' worth, before and now.
            scene.core(cpu, 0, 40, user=300, system=120).stack(cpu, 0, 40, 0.12, "app", 100 + cpu, READING)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    top = found.findings[0]
    assert (top.cause, top.culprit.cpu, top.culprit.pid) == ("unknown-kernel-path", 39, 4711)
    assert top.culprit.function == "zorp_hash"
    assert found.verdict == "starved"
    assert at(19) <= found.focus[0] and found.focus[1] <= at(30)


@pytest.mark.parametrize("steal", [0, 80])
def test_a_path_below_a_read_is_not_an_ordinary_read(tmp_path: Path, steal: int) -> None:
    """Files that the kernel makes up are read the same way as those on a disk. Of a guest, what the hypervisor left of
    the core counts."""
    path = ["do_syscall_64", "ksys_read", "vfs_read", "seq_read_iter", "zorp_show"]
    scene = Scene(cores=8, seconds=40).core(3, 20, 28, system=990 - steal, steal=steal)
    scene.stack(3, 20, 28, 0.98 - steal / 1000, "agent", 4711, path)
    top = judged_recording(scene.write(tmp_path), scene.window).findings[0]
    assert (top.cause, top.severity, top.culprit.function) == ("unknown-kernel-path", "critical", "zorp_show")


@pytest.mark.parametrize("path", [READING, SERVING])
def test_a_program_that_reads_files_or_serves_is_worth_knowing_at_most(tmp_path: Path, path: list[str]) -> None:
    scene = Scene(cores=8, seconds=40).core(3, 20, 35, system=970, user=30).stack(3, 20, 35, 0.96, "server", 9, path)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert {each.severity for each in found.findings} <= {"info"}
    assert found.verdict == "healthy"


def test_the_same_with_a_ksoftirqd_that_gets_its_turns_is_not(tmp_path: Path) -> None:
    scene = Scene(cores=8, seconds=40).core(3, 20, 35, system=970, user=30).stack(3, 20, 35, 0.96, "server", 9, READING)
    waited = {"run_ns": 90_000_000, "wait_ns": NANOS * 8 // 10, "slices": 120}
    scene.row("threads", 30, tid=9, comm="ksoftirqd/3", cpu=3, **waited)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert {each.severity for each in found.findings} <= {"info"}
    assert found.verdict != "starved"


def test_the_same_with_a_ksoftirqd_that_waits_is_grave(tmp_path: Path) -> None:
    scene = Scene(cores=8, seconds=40).core(3, 20, 35, system=970, user=30).stack(3, 20, 35, 0.96, "server", 9, READING)
    scene.row("threads", 30, tid=9, comm="ksoftirqd/3", cpu=3, run_ns=0, wait_ns=3 * NANOS)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert found.findings[0].severity == "critical"
    assert found.verdict == "starved"


OPENAT = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64", "do_sys_openat2", "do_filp_open", "path_openat"]
CREATING = [*OPENAT, "ext4_create", "__ext4_new_inode", "find_inode_bit", "recently_deleted"]


@pytest.mark.parametrize("waiting", [0, 3])
def test_short_jobs_that_create_files_on_a_full_node_are_ordinary_work(tmp_path: Path, waiting: int) -> None:
    """A ksoftirqd waits for its turn like all others, where threads queue for every core; where none does, what runs
    there is to blame."""
    scene = Scene(cores=2, seconds=40)
    for cpu in range(2):
        scene.core(cpu, 20, 30, system=780, user=210, wait_ns=waiting * NANOS)
        for second in range(20, 30):
            pid = 10_000 + 2 * second + cpu
            scene.stack(cpu, second, second + 1, 0.75, "tar", pid, CREATING)
            scene.stack(cpu, second, second + 1, 0.2, "tar", pid, ["main"])
        scene.row("threads", 25, tid=9 + cpu, comm=f"ksoftirqd/{cpu}", cpu=cpu, run_ns=0, wait_ns=800_000_000)
    found = judged_recording(scene.write(tmp_path), scene.window)
    path = next(each for each in found.findings if each.cause == "unknown-kernel-path")
    assert path.severity == ("info" if waiting else "critical")


@pytest.mark.parametrize(("jobs", "verdict"), [(10, "healthy"), (1, "starved")])
def test_a_core_that_many_jobs_fill_with_files_is_not_lost_to_the_kernel(
    tmp_path: Path, jobs: int, verdict: str
) -> None:
    """Builds, unpacking and backups do; a single process that holds a core in the kernel for so long does not."""
    scene = Scene(cores=4, seconds=40)
    for cpu in range(2):
        scene.core(cpu, 20, 30, system=980, user=20)
        for second in range(20, 30):
            pid = 10_000 + 100 * cpu + second % jobs
            scene.stack(cpu, second, second + 1, 0.97, "tar", pid, CREATING)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert found.verdict == verdict


def test_a_process_that_wanders_over_the_cores_is_named(tmp_path: Path) -> None:
    scene = Scene(cores=8, seconds=40)
    for second in range(20, 30):
        for part in range(2):
            cpu = (second + part) % 8
            scene.core(cpu, second, second + 1, system=500).stack(cpu, second, second + 1, 0.48, "zorpd", 4711, PATH)
    top = judged_recording(scene.write(tmp_path), scene.window).findings[0]
    assert (top.cause, top.culprit.pid, top.severity) == ("unknown-kernel-path", 4711, "warning")


def test_a_steady_path_that_moved_to_another_core_is_nothing_new(tmp_path: Path) -> None:
    scene = Scene(cores=8, seconds=100).core(2, 0, 85, system=800).core(5, 85, 100, system=900)
    scene.stack(2, 0, 85, 0.8, "zorpd", 4711, PATH).stack(5, 85, 100, 0.9, "zorpd", 4711, PATH)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert not found.findings


@pytest.mark.parametrize("busy_from", [0, 20])
def test_a_busy_node_is_healthy(tmp_path: Path, busy_from: int) -> None:
    scene = healthy(busy_from=busy_from)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert found.verdict == "healthy"
    assert {each.severity for each in found.findings} <= {"info"}


@pytest.mark.parametrize("stolen", [0, 80])
def test_without_stacks_the_hot_core_is_still_a_symptom(tmp_path: Path, stolen: int) -> None:
    scene = Scene(cores=8, seconds=40).core(3, 20, 28, system=990 - stolen).without("samples")
    for cpu in range(8):
        scene.core(cpu, 0, 40, steal=stolen)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert found.verdict == "starved"
    assert "blind-spot.stacks" in [spot.code for spot in found.blind_spots]


SYSCALL = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64"]
OPENING = [*SYSCALL, "do_sys_openat2", "do_filp_open", "path_openat", "link_path_walk"]
# As sampled on Linux 6.18.
WALKS = {
    "processes": [*SYSCALL, "vfs_read", "seq_read_iter", "proc_single_show", "do_task_stat"],
    "memory-maps": [*SYSCALL, "vfs_read", "seq_read_iter", "show_smap", "walk_page_vma", "smaps_pte_range"],
    "open-files": [
        *SYSCALL,
        "do_readlinkat",
        "vfs_readlink",
        "proc_pid_readlink",
        "call_proc_get_link",
        "proc_fd_link",
    ],
    "sockets": [*SYSCALL, "vfs_read", "proc_reg_read", "seq_read_iter", "tcp4_seq_show", "seq_printf", "vsnprintf"],
    "cgroups": [*SYSCALL, "iterate_dir", "kernfs_fop_readdir"],
    "files": [*SYSCALL, "iterate_dir", "ext4_readdir", "ext4_htree_fill_tree"],
}
DUMP = [*SYSCALL, "netlink_recvmsg", "netlink_dump", "__inet_diag_dump", "tcp_diag_dump", "sk_diag_fill"]


def walker(scene: Scene, frames: list[str], share: float = 0.7, opening: float = 0.2) -> Scene:
    """A process that wanders over the cores."""
    for second in range(20, 40):
        cpu = second % scene.cores
        scene.core(cpu, second, second + 1, system=round(900 * (share + opening)))
        scene.stack(cpu, second, second + 1, share, "monitor", 500, frames)
        scene.stack(cpu, second, second + 1, opening, "monitor", 500, OPENING)
    scene.row("processes", 20, pid=500, ppid=1, comm="monitor", cmdline="/opt/monitor --all")
    return scene


def walk_finding(found: Diagnosis) -> Finding | None:
    return next((each for each in found.findings if each.cause == "kernel-walk"), None)


@pytest.mark.parametrize("subject", WALKS)
def test_a_walker_is_named_with_what_it_walks(tmp_path: Path, subject: str) -> None:
    found = judged_recording(
        (scene := walker(Scene(cores=4, seconds=60), WALKS[subject])).write(tmp_path), scene.window
    )
    finding = walk_finding(found)
    assert finding is not None and "unknown-kernel-path" not in {each.cause for each in found.findings}
    assert (finding.culprit.comm, finding.culprit.pid) == ("monitor", 500)
    assert finding.culprit.function in WALKS[subject]
    assert finding.severity == ("info" if subject == "files" else "warning")
    what = messages.render(f"kernel-walk.{subject}", {})
    assert what in finding.summary
    assert finding.remedies[1].command.endswith("-p 500")


def test_sockets_by_netlink(tmp_path: Path) -> None:
    scene = walker(Scene(cores=4, seconds=60), DUMP, opening=0.0)
    finding = walk_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None and messages.render("kernel-walk.sockets", {}) in finding.summary


def test_programs_of_one_name_that_come_and_go_are_named_together(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=60)
    for second in range(20, 40):
        scene.core(1, second, second + 1, system=800)
        scene.stack(1, second, second + 1, 0.6, "ps", 9_000 + second, WALKS["processes"])
    finding = walk_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None and (finding.culprit.comm, finding.culprit.pid) == ("ps", None)
    assert [remedy.id for remedy in finding.remedies] == ["walk-less"]


def test_a_walk_that_takes_little_or_is_not_what_a_process_does_is_none(tmp_path: Path) -> None:
    busy = walker(Scene(cores=4, seconds=60), WALKS["processes"], share=0.25, opening=0.0)
    for second in range(20, 40):
        busy.stack(second % 4, second, second + 1, 0.6, "monitor", 500, ["monitor:compute"])
    for name, scene in {"light": walker(Scene(cores=4, seconds=60), WALKS["sockets"], 0.1, 0.02), "busy": busy}.items():
        assert walk_finding(judged_recording(scene.write(tmp_path / name), scene.window)) is None, name


def test_a_walk_that_was_always_there_is_worth_knowing(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=130).core(1, 0, 130, system=700)
    scene.stack(1, 0, 130, 0.7, "monitor", 500, WALKS["sockets"])
    finding = walk_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None and finding.severity == "info"

"""Work that fills a core in the kernel because that is what it is for starves nobody: never critical, never STARVED."""

from pathlib import Path

import pytest
from tests.diagnose.judged import judged_recording
from tests.diagnose.scenes import Scene

from exhume.model.finding import Severity, Verdict

CALL = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64"]
WORK = {
    "a large process ends": [*CALL, "do_exit", "mmput", "exit_mmap", "unmap_vmas", "zap_pte_range"],
    "polling for disks": ["ret_from_fork", "io_sq_thread", "io_submit_sqes"],
    "a check of disks": ["ret_from_fork", "kthread", "md_thread", "raid5d", "handle_stripe"],
    "copying nothing": [*CALL, "ksys_read", "vfs_read", "read_zero", "clear_user"],
    "direct writes": [*CALL, "vfs_write", "ext4_file_write_iter", "iomap_dio_rw", "bio_iov_iter_get_pages"],
    "reading files": [*CALL, "ksys_read", "vfs_read", "filemap_read", "copy_page_to_iter"],
}
COPYING = [*CALL, "tcp_sendmsg", "tcp_sendmsg_locked", "skb_copy_to_page_nocache"]
TO_ITSELF = [
    *CALL, "tcp_sendmsg", "tcp_push", "ip_finish_output2", "__local_bh_enable_ip", "do_softirq", "handle_softirqs",
    "net_rx_action", "process_backlog", "ip_local_deliver", "tcp_v4_rcv",
]  # fmt: skip


@pytest.mark.parametrize("work", WORK)
def test_it_is_not_called_starvation(tmp_path: Path, work: str) -> None:
    scene = Scene(cores=8).core(3, 20, 30, system=970, user=30).stack(3, 20, 30, 0.97, "worker", 77, WORK[work])
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert not [each.cause for each in found.findings if each.severity is Severity.CRITICAL]
    assert found.verdict is not Verdict.STARVED


def test_sending_to_itself_is_not_either(tmp_path: Path) -> None:
    scene = Scene(cores=8).core(3, 20, 30, system=970, user=30)
    scene.stack(3, 20, 30, 0.47, "sender", 77, COPYING).stack(3, 20, 30, 0.50, "sender", 77, TO_ITSELF)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert not [each.cause for each in found.findings if each.severity is Severity.CRITICAL]
    assert found.verdict is not Verdict.STARVED


def test_a_warning_line_alone_is_no_symptom(tmp_path: Path) -> None:
    scene = Scene(cores=8).core(3, 20, 30, system=750).stack(3, 20, 30, 0.75, "rsync", 77, WORK["reading files"])
    scene.event(24, "workqueue-hog", "workqueue: zorp hogged CPU for >10000us 4 times", "warning", comm="zorp")
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert not [each.cause for each in found.findings if each.severity is Severity.CRITICAL]


def test_a_node_with_too_much_to_do_is_no_cores_fault(tmp_path: Path) -> None:
    scene = Scene(cores=4).core(3, 20, 30, system=800).stack(3, 20, 30, 0.8, "walker", 77, [*CALL, "zorp", "zorp_scan"])
    for cpu in range(4):
        scene.core(cpu, 20, 30, wait_ns=1_500_000_000)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert not [each.cause for each in found.findings if each.severity is Severity.CRITICAL]


def test_kills_of_one_cgroup_at_once_are_one_time(tmp_path: Path) -> None:
    scene = Scene(cores=4).node(0, 40, oom_kill=0).node(25, 26, oom_kill=9)
    for worker in range(9):
        scene.event(
            25.2, "oom-kill", f"Killed process {100 + worker} (nginx) total-vm:1kB", comm="nginx", pid=100 + worker
        )
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert not [each.cause for each in found.findings if each.severity is Severity.CRITICAL]


def test_a_timers_job_that_ends_well_is_no_loop(tmp_path: Path) -> None:
    scene = Scene(cores=2, seconds=90)
    path = "/system.slice/report.service"
    for number, second in enumerate(range(5, 85, 10)):
        for op, moment in (("mkdir", second), ("rmdir", second + 1), ("release", second + 1.05)):
            scene.row(
                "cgroup_events", moment, hierarchy=4, op=op, id=500 + number, level=2, path=path, pid=1, comm="systemd"
            )
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert all(each.severity is Severity.INFO for each in found.findings)

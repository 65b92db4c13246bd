"""More is written than the disk takes: the writer is named, not the threads that write for it."""

from pathlib import Path

from tests.diagnose.codes import doubts, reason
from tests.diagnose.judged import judged
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding

WRITE = ["libc.so:write", "do_syscall_64", "vfs_write", "ext4_buffered_write_iter", "generic_perform_write"]
COPY = [*WRITE, "ext4_da_write_begin"]
HELD = [*WRITE, "balance_dirty_pages_ratelimited_flags", "balance_dirty_pages", "io_schedule_timeout"]
SYNC = ["libc.so:fsync", "do_syscall_64", "do_fsync", "ext4_sync_file", "jbd2_log_wait_commit"]
FLUSH = [
    "ret_from_fork",
    "kthread",
    "worker_thread",
    "process_one_work",
    "wb_workfn",
    "wb_writeback",
    "ext4_writepages",
]
COMMIT = ["ret_from_fork", "kthread", "kjournald2", "jbd2_journal_commit_transaction"]
TMPFS = ["libc.so:write", "vfs_write", "generic_perform_write", "shmem_write_begin"]
CALM = {"pgpgout": 500, "pgpgin": 20, "dirty": 3_000, "writeback": 0, "blocked": 0, "psi_io_some": 4_000, "pswpout": 0}
STALLED = {"pgpgout": 180_000, "dirty": 900_000, "writeback": 240_000, "blocked": 9, "psi_io_some": 880_000}


def calm(scene: Scene) -> Scene:
    return scene.node(0, scene.seconds, mem_available=8_000_000, psi_io_full=0, **CALM)


def stalled(scene: Scene) -> Scene:
    """Writers that mostly sleep: little CPU, many that wait."""
    calm(scene).node(20, 30, **STALLED)
    for cpu in range(2):
        scene.core(cpu, 20, 30, system=180, iowait=600)
    scene.stack(0, 20, 30, 0.05, "kworker/u8:1", 90, FLUSH).stack(0, 20, 30, 0.02, "jbd2/vda-8", 91, COMMIT)
    scene.stack(1, 20, 30, 0.10, "archiver", 700, COPY).stack(1, 20, 30, 0.02, "archiver", 700, HELD)
    return scene.stack(0, 20, 30, 0.02, "logger", 701, COPY)


def of(found: Diagnosis, cause: str = "writeback-storm") -> Finding | None:
    return next((each for each in found.findings if each.cause == cause), None)


def test_writers_that_are_held_back(tmp_path: Path) -> None:
    scene = stalled(Scene(cores=4))
    scene.row(
        "processes", 2, pid=700, comm="archiver", cmdline="archiver /data", cgroup="/system.slice/archiver.service"
    )
    found = judged(scene, tmp_path)
    top = found.findings[0]
    assert (top.cause, top.severity) == ("writeback-storm", "warning")
    assert (top.culprit.pid, top.culprit.cgroup) == (700, "/system.slice/archiver.service")
    assert top.confidence >= 0.8
    assert any("jbd2/vda-8" in link.text for link in top.chain)
    assert found.verdict == "degraded"


def test_a_hung_task_makes_it_grave(tmp_path: Path) -> None:
    scene = stalled(Scene(cores=4))
    scene.event(28, "hung-task", "INFO: task postgres:55 blocked for more than 120 seconds", "warning", pid=55)
    found = of(judged(scene, tmp_path))
    assert found is not None and found.severity == "critical"


def test_a_flusher_that_takes_a_core(tmp_path: Path) -> None:
    """One core of many; the culprit is who writes, not who flushes."""
    scene = calm(Scene(cores=96)).node(20, 30, pgpgout=900_000, dirty=700_000, psi_io_some=200_000, blocked=2)
    scene.core(39, 20, 30, system=990).stack(39, 20, 30, 0.97, "kworker/u200:3", 90, FLUSH)
    scene.core(12, 20, 30, system=400).stack(12, 20, 30, 0.35, "archiver", 700, COPY)
    # A thread of the kernel that writes for others is not who wants it written.
    scene.core(13, 20, 30, system=600).stack(
        13, 20, 30, 0.6, "kworker/13:1", 92, ["kthread", "loop_process_work", *WRITE]
    )
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.severity, top.culprit.pid) == ("writeback-storm", "critical", 700)
    assert any("core 39" in link.text for link in top.chain)


def test_many_that_want_it_on_disk_at_once(tmp_path: Path) -> None:
    scene = calm(Scene(cores=4)).node(20, 30, pgpgout=40_000, blocked=12, psi_io_some=950_000, writeback=4_000)
    scene.core(1, 20, 30, system=300, iowait=500).stack(1, 20, 30, 0.2, "ledger", 800, SYNC)
    scene.stack(0, 20, 30, 0.15, "jbd2/sdb1-8", 91, COMMIT)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.culprit.comm) == ("writeback-storm", "ledger")
    assert any("fsync" in link.text for link in top.chain)


def test_one_that_waits_for_its_own_disk_is_no_storm(tmp_path: Path) -> None:
    """A database writes its log: somebody always waits, but only that one."""
    scene = calm(Scene(cores=4)).node(20, 30, pgpgout=20_000, blocked=1, psi_io_some=850_000)
    scene.core(1, 20, 30, system=150, iowait=600).stack(1, 20, 30, 0.1, "postgres", 55, SYNC)
    found = judged(scene, tmp_path)
    assert of(found) is None and found.verdict == "healthy"


def test_two_that_wait_are_worth_knowing(tmp_path: Path) -> None:
    """A single writer that fills the disk's queue, and the flusher that waits with it."""
    scene = calm(Scene(cores=4)).node(20, 30, pgpgout=200_000, dirty=900_000, blocked=2, psi_io_some=800_000)
    scene.core(1, 20, 30, system=250, iowait=500).stack(1, 20, 30, 0.2, "dd", 60, COPY)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.severity, top.culprit.pid) == ("writeback-storm", "info", 60)


def test_a_backup_at_the_speed_of_the_disk_is_no_storm(tmp_path: Path) -> None:
    scene = calm(Scene(cores=4)).node(20, 30, pgpgout=200_000, dirty=200_000, blocked=1, psi_io_some=300_000)
    scene.core(1, 20, 30, system=350, user=300).stack(1, 20, 30, 0.33, "tar", 60, COPY)
    found = judged(scene, tmp_path)
    assert all(each.severity == "info" for each in found.findings)


def test_a_program_that_copies_into_files_takes_its_own_time(tmp_path: Path) -> None:
    scene = calm(Scene(cores=4)).node(20, 30, pgpgout=900_000, dirty=700_000, blocked=1, psi_io_some=100_000)
    scene.core(1, 20, 30, system=880, user=100).stack(1, 20, 30, 0.88, "cp", 60, COPY)
    found = judged(scene, tmp_path)
    assert [(each.cause, each.severity, each.culprit.pid) for each in found.findings] == [
        ("writeback-storm", "info", 60)
    ]


def test_reading_is_not_writing(tmp_path: Path) -> None:
    scene = calm(Scene(cores=4)).node(20, 30, pgpgin=400_000, pgpgout=2_000, blocked=12, psi_io_some=950_000)
    scene.core(1, 20, 30, system=200, iowait=700)
    found = judged(scene, tmp_path)
    assert of(found) is None
    assert reason(found, "writeback-storm") == "writeback-storm.reads"


def test_swapping_is_not_it(tmp_path: Path) -> None:
    scene = stalled(Scene(cores=4)).node(20, 30, pswpout=40_000)
    assert of(judged(scene, tmp_path)) is None


def test_files_in_memory_burden_no_disk(tmp_path: Path) -> None:
    scene = calm(Scene(cores=4)).core(1, 20, 30, system=950).stack(1, 20, 30, 0.9, "cache", 66, TMPFS)
    assert of(judged(scene, tmp_path)) is None


def test_without_stacks_no_process_is_named(tmp_path: Path) -> None:
    sure = of(judged(stalled(Scene(cores=4)), tmp_path / "whole"))
    scene = stalled(Scene(cores=4)).without("samples", "stacks", "frames")
    found = of(judged(scene, tmp_path / "part"))
    assert sure is not None and found is not None
    assert found.culprit.pid is None and found.confidence < sure.confidence
    assert "shared.no-stacks" in doubts(found)

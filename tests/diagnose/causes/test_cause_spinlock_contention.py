"""Cores that spin are told with the lock's place; where another cause accounts for it, the lock is how that shows."""

from pathlib import Path

import pytest
from tests.diagnose.codes import reason
from tests.diagnose.judged import judged_recording
from tests.diagnose.nodes import healthy
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding

CALL = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64", "do_fcntl", "fcntl_getlk", "posix_test_lock"]
SPINNING = [*CALL, "_raw_spin_lock", "native_queued_spin_lock_slowpath"]
PARAVIRTUAL = [*CALL, "_raw_spin_lock", "__raw_callee_save___pv_queued_spin_lock_slowpath", "pv_wait_node"]
# Of 4.18, with a part in assembly between the semaphore's functions.
SEMAPHORE = ["do_syscall_64", "zorp_ioctl", "down_write", "call_rwsem_down_write_failed", "rwsem_down_write_failed"]
XEN = ["do_syscall_64", "zorp_ioctl", "_raw_spin_lock", "__pv_queued_spin_lock_slowpath", "xen_qlock_wait"]
ARM = ["el0_svc", "zorp_ioctl", "_raw_spin_lock_irqsave", "queued_spin_lock_slowpath"]
MUTEX = ["do_syscall_64", "zorp_ioctl", "mutex_lock", "__mutex_lock.constprop.0", "osq_lock"]


def finding(found: Diagnosis) -> Finding | None:
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
        told = finding(judged_recording(scene.write(tmp_path / str(number)), scene.window))
        assert told is not None
        assert told.culprit.function == ("posix_test_lock" if path is PARAVIRTUAL else "zorp_ioctl")


@pytest.mark.slow
def test_one_core_of_96(tmp_path: Path) -> None:
    scene = healthy(cores=96)
    scene.core(70, 20, 30, user=0, system=980).stack(70, 20, 30, 0.95, "locker", 7, SPINNING)
    told = finding(judged_recording(scene.write(tmp_path), scene.window))
    assert told is not None
    assert (told.culprit.cpu, told.severity) == (70, "warning")


def test_a_little_spinning_on_every_core_of_a_large_node_is_its_daily_life(tmp_path: Path) -> None:
    scene = healthy(cores=32)
    for cpu in range(32):
        scene.stack(cpu, 0, 40, 0.03, "locker", 500, SPINNING)
    told = finding(judged_recording(scene.write(tmp_path), scene.window))
    assert told is None or told.severity == "info"


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
    assert finding(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_a_healthy_node_and_one_without_stacks(tmp_path: Path) -> None:
    assert finding(judged_recording((scene := healthy()).write(tmp_path / "a"), scene.window)) is None
    blind = contended(Scene(cores=2, seconds=40), range(2), SPINNING).without("samples")
    found = judged_recording(blind.write(tmp_path / "b"), blind.window)
    assert finding(found) is None
    assert reason(found, "spinlock-contention") == "spinlock-contention.no-stacks-sampled"

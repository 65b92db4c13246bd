"""A path of the kernel that no signature knows is still named: by function, process and core."""

from pathlib import Path

import pytest
from tests.diagnose.judged import judged_recording
from tests.diagnose.nodes import READING, healthy
from tests.diagnose.scenes import Scene, at

from exhume.model.clock import NANOS

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


def test_a_path_below_a_read_is_not_an_ordinary_read(tmp_path: Path) -> None:
    """Files that the kernel makes up are read the same way as those on a disk."""
    path = ["do_syscall_64", "ksys_read", "vfs_read", "seq_read_iter", "zorp_show"]
    scene = Scene(cores=8, seconds=40).core(3, 20, 28, system=990).stack(3, 20, 28, 0.98, "agent", 4711, path)
    top = judged_recording(scene.write(tmp_path), scene.window).findings[0]
    assert (top.cause, top.severity, top.culprit.function) == ("unknown-kernel-path", "critical", "zorp_show")


@pytest.mark.parametrize("path", [READING, SERVING])
def test_a_program_that_reads_files_or_serves_is_worth_knowing_at_most(tmp_path: Path, path: list[str]) -> None:
    scene = Scene(cores=8, seconds=40).core(3, 20, 35, system=970, user=30).stack(3, 20, 35, 0.96, "server", 9, path)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert {each.severity for each in found.findings} <= {"info"}
    assert found.verdict == "healthy"


def test_the_same_with_a_ksoftirqd_that_waits_is_grave(tmp_path: Path) -> None:
    scene = Scene(cores=8, seconds=40).core(3, 20, 35, system=970, user=30).stack(3, 20, 35, 0.96, "server", 9, READING)
    scene.row("threads", 30, tid=9, comm="ksoftirqd/3", cpu=3, run_ns=0, wait_ns=3 * NANOS)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert found.findings[0].severity == "critical"
    assert found.verdict == "starved"


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


def test_without_stacks_the_hot_core_is_still_a_symptom(tmp_path: Path) -> None:
    scene = Scene(cores=8, seconds=40).core(3, 20, 28, system=990).without("samples")
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert found.verdict == "starved"
    assert "blind-spot.stacks" in [spot.code for spot in found.blind_spots]

"""A mount table that is read and changed all the time: reader and maker are named; a few mounts are nothing."""

from pathlib import Path

import pytest
from tests.diagnose.judged import judged_recording
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding

READ = [
    "do_syscall_64",
    "ksys_read",
    "vfs_read",
    "seq_read_iter",
    "m_show",
    "show_mountinfo",
    "seq_path_root",
    "d_path",
]
READ_5_4 = ["do_syscall_64", "ksys_read", "vfs_read", "seq_read", "m_show", "show_mountinfo", "prepend_path"]
CHANGE = ["do_syscall_64", "__x64_sys_umount", "path_umount", "do_umount", "umount_tree"]
CHANGE_5_4 = ["do_syscall_64", "ksys_mount", "do_mount", "attach_recursive_mnt"]
MAPS = ["do_syscall_64", "vfs_read", "seq_read_iter", "show_map_vma", "seq_path", "d_path", "prepend_path"]


def node(scene: Scene, mounts: int) -> Scene:
    for second in range(0, scene.seconds, 10):
        scene.node(second, second + 1, mounts=mounts)
    return scene


def storm(scene: Scene, cpu: int, since: int, until: int, stacks: tuple[list[str], list[str]]) -> Scene:
    read, change = stacks
    scene.row("processes", 2, pid=1, ppid=0, start=0, comm="systemd", cmdline="/sbin/init", cgroup="/init.scope")
    scene.core(cpu, since, until, system=930, user=60).stack(cpu, since, until, 0.9, "systemd", 1, read)
    other = (cpu + 1) % scene.cores
    return scene.core(other, since, until, system=250).stack(other, since, until, 0.24, "volume-plugin", 90, change)


def reported(found: Diagnosis) -> Finding | None:
    return next((finding for finding in found.findings if finding.cause == "mount-storm"), None)


@pytest.mark.parametrize(("read", "change"), [(READ, CHANGE), (READ_5_4, CHANGE_5_4)])
def test_reader_and_maker_are_named(tmp_path: Path, read: list[str], change: list[str]) -> None:
    scene = storm(node(Scene(cores=4, seconds=30), 9_000), 2, 12, 22, (read, change))
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    top = found.findings[0]
    assert (top.cause, top.severity) == ("mount-storm", "warning")
    assert (top.culprit.comm, top.culprit.pid, top.culprit.cpu) == ("systemd", 1, 2)
    culprits = [link.text for link in top.chain if link.role == "culprit"]
    assert any("systemd" in text for text in culprits)
    assert any("volume-plugin" in text for text in culprits)
    assert top.confidence >= 0.85


def test_it_is_critical_where_the_core_is_lost(tmp_path: Path) -> None:
    scene = storm(node(Scene(cores=4, seconds=30), 9_000), 2, 12, 22, (READ, CHANGE)).core(
        2, 12, 22, system=995, user=0
    )
    assert judged_recording(scene.write(tmp_path), scene.window).findings[0].severity == "critical"


def test_one_core_of_96_is_found_in_a_namespace_that_is_not_counted(tmp_path: Path) -> None:
    scene = storm(node(Scene(cores=96, seconds=20), 60), 42, 10, 16, (READ, CHANGE))
    top = judged_recording(scene.write(tmp_path), scene.window).findings[0]
    assert (top.cause, top.culprit.cpu) == ("mount-storm", 42)
    assert top.confidence < 0.85
    assert any("namespace of its own" in link.text for link in top.chain)


def test_a_pod_that_starts_is_no_storm(tmp_path: Path) -> None:
    scene = node(Scene(cores=4, seconds=30), 400).core(1, 12, 22, user=300, system=80)
    scene.stack(1, 12, 22, 0.04, "systemd", 1, READ).stack(1, 12, 22, 0.03, "runc", 70, CHANGE)
    assert reported(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_reading_the_maps_of_processes_is_not_it(tmp_path: Path) -> None:
    """It writes out paths with the same functions."""
    scene = node(Scene(cores=4, seconds=30), 60).core(1, 12, 22, system=900)
    scene.stack(1, 12, 22, 0.9, "profiler", 80, MAPS)
    assert reported(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_many_mounts_alone_are_worth_knowing(tmp_path: Path) -> None:
    scene = node(Scene(cores=4, seconds=30), 20_000).stack(0, 0, 30, 0.05, "app", 9, ["do_syscall_64", "vfs_read"])
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None
    assert finding.severity == "info"


def test_without_stacks_the_table_has_less_confidence(tmp_path: Path) -> None:
    scene = storm(node(Scene(cores=4, seconds=40), 9_000), 2, 12, 22, (READ, CHANGE))
    scene.node(20, 21, mounts=12_000).without("samples")
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None
    assert (finding.severity, finding.culprit.pid) == ("warning", None)
    assert finding.confidence < 0.6

"""Names that don't exist: found by their number and by who makes them or walks them; not by lookups alone."""

from pathlib import Path

import pytest
from tests.diagnose.codes import doubts
from tests.diagnose.judged import judged_recording
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding

STAT = ["do_syscall_64", "__do_sys_newstat", "vfs_statx", "filename_lookup", "path_lookupat", "walk_component"]
MISSING = [*STAT, "lookup_slow", "__lookup_slow", "d_alloc_parallel", "d_alloc", "__d_alloc"]
ON_DISK = [*STAT, "__lookup_slow", "ext4_lookup", "ext4_find_entry"]
CACHED = [*STAT, "lookup_fast", "__d_lookup_rcu"]
WATCH = ["do_syscall_64", "inotify_update_watch", "__fsnotify_update_child_dentry_flags"]
FREE = ["do_syscall_64", "drop_slab", "prune_dcache_sb", "shrink_dentry_list", "__dentry_kill"]


def node(scene: Scene, level: int = 60_000) -> Scene:
    scene.node(0, scene.seconds, dentries=200_000 + level, dentries_negative=level, inodes=150_000)
    return scene.node(0, scene.seconds, mem_total=64 << 20)


def rising(scene: Scene, since: int, until: int, step: int, level: int = 60_000) -> Scene:
    for second in range(since, scene.seconds):
        more = step * (min(second, until) - since)
        scene.node(second, second + 1, dentries=200_000 + level + more, dentries_negative=level + more)
    return scene


def prober(scene: Scene, cpu: int, since: int, until: int) -> Scene:
    scene.core(cpu, since, until, system=850, user=150)
    scene.row("processes", 2, pid=321, ppid=1, start=0, comm="finder", cmdline="/opt/finder --path", cgroup="/opt")
    scene.stack(cpu, since, until, 0.55, "finder", 321, MISSING)
    return scene.stack(cpu, since, until, 0.30, "finder", 321, ON_DISK)


def reported(found: Diagnosis) -> Finding | None:
    return next((finding for finding in found.findings if finding.cause == "negative-dentries"), None)


def test_a_prober_is_found_with_the_rise_it_makes(tmp_path: Path) -> None:
    scene = prober(rising(node(Scene(cores=4, seconds=30)), 12, 22, 250_000), 3, 12, 22)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    top = found.findings[0]
    assert (top.cause, top.severity) == ("negative-dentries", "warning")
    assert (top.culprit.pid, top.culprit.comm, top.culprit.cpu) == (321, "finder", 3)
    assert top.culprit.cmdline == "/opt/finder --path"
    assert top.confidence >= 0.8
    assert "250,000" in top.summary


def test_one_core_of_96_is_found(tmp_path: Path) -> None:
    scene = prober(rising(node(Scene(cores=96, seconds=20)), 10, 16, 200_000), 77, 10, 16)
    top = judged_recording(scene.write(tmp_path), scene.window).findings[0]
    assert (top.cause, top.culprit.cpu) == ("negative-dentries", 77)


def test_a_kernel_that_does_not_count_them_is_reckoned_with(tmp_path: Path) -> None:
    scene = rising(node(Scene(cores=4, seconds=30)), 12, 22, 250_000)
    prober(scene.node(0, 30, dentries_negative=None), 3, 12, 22)
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None
    assert "negative-dentries.estimated" in doubts(finding)


def test_a_first_walk_over_files_that_exist_is_not_it(tmp_path: Path) -> None:
    """Dentries grow as fast, but each has an inode."""
    scene = node(Scene(cores=4, seconds=30))
    for second in range(12, 30):
        more = 200_000 * (min(second, 22) - 12)
        scene.node(second, second + 1, dentries=260_000 + more, inodes=150_000 + more)
    prober(scene, 3, 12, 22)
    assert reported(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_removing_many_files_is_not_it(tmp_path: Path) -> None:
    """Their names stay behind until their directory goes."""
    remove = ["do_syscall_64", "do_unlinkat", "lookup_one_qstr_excl", "d_alloc"]
    scene = rising(node(Scene(cores=4, seconds=30)), 12, 22, 120_000).core(1, 12, 22, system=900, user=90)
    scene.stack(1, 12, 22, 0.4, "rm", 55, remove).stack(1, 12, 22, 0.5, "rm", 55, [*remove[:2], "vfs_unlink"])
    assert reported(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_one_that_gets_half_a_core_of_96_is_a_warning_still(tmp_path: Path) -> None:
    scene = rising(node(Scene(cores=96, seconds=20)), 10, 18, 90_000).core(7, 10, 18, system=400, user=300)
    scene.row("processes", 2, pid=321, ppid=1, start=0, comm="finder")
    scene.stack(7, 10, 18, 0.38, "finder", 321, MISSING)
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None
    assert (finding.severity, finding.culprit.cpu) == ("warning", 7)


def test_many_lookups_of_known_names_are_not_it(tmp_path: Path) -> None:
    scene = node(Scene(cores=4, seconds=30)).core(1, 12, 22, system=900, user=90)
    scene.stack(1, 12, 22, 0.9, "indexer", 55, CACHED)
    assert reported(judged_recording(scene.write(tmp_path), scene.window)) is None


@pytest.mark.parametrize("frames", [WATCH, FREE])
def test_walking_many_of_them_is_critical_where_it_holds_a_core(tmp_path: Path, frames: list[str]) -> None:
    scene = node(Scene(cores=8, seconds=30), level=60_000_000).core(5, 12, 20, system=995)
    scene.stack(5, 12, 20, 0.98, "watcher", 77, frames)
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None
    assert (finding.severity, finding.culprit.comm, finding.culprit.cpu) == ("critical", "watcher", 5)
    assert finding.culprit.function in frames


def test_walking_few_of_them_is_another_cause(tmp_path: Path) -> None:
    scene = node(Scene(cores=8, seconds=30)).core(5, 12, 20, system=995)
    scene.stack(5, 12, 20, 0.98, "watcher", 77, WATCH)
    assert reported(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_many_of_them_alone_are_worth_knowing_and_more_where_they_fill_memory(tmp_path: Path) -> None:
    large = node(Scene(cores=4, seconds=30, node="large"), level=25_000_000).node(0, 30, mem_total=1 << 30)
    small = node(Scene(cores=4, seconds=30, node="small"), level=40_000_000).node(0, 30, mem_total=64 << 20)
    for scene, severity in ((large, "info"), (small, "warning")):
        finding = reported(judged_recording(scene.write(tmp_path / severity), scene.window))
        assert finding is not None
        assert finding.severity == severity


def test_without_stacks_the_rise_has_less_confidence(tmp_path: Path) -> None:
    scene = prober(rising(node(Scene(cores=4, seconds=30)), 12, 22, 250_000), 3, 12, 22).without("samples")
    finding = reported(judged_recording(scene.write(tmp_path), scene.window))
    assert finding is not None
    assert finding.culprit.pid is None
    assert 0.3 <= finding.confidence < 0.6
    assert "shared.no-stacks" in doubts(finding)


def test_without_the_counts_nothing_is_claimed(tmp_path: Path) -> None:
    scene = prober(Scene(cores=4, seconds=30), 3, 12, 22)
    assert reported(judged_recording(scene.write(tmp_path), scene.window)) is None

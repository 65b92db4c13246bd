"""Compaction is reported with who pays for it and what asks for it."""

from pathlib import Path

from tests.diagnose.codes import codes, doubts
from tests.diagnose.judged import judged
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding

FAULT = ["db:grow", "asm_exc_page_fault", "exc_page_fault", "do_user_addr_fault", "handle_mm_fault"]
DIRECT = [*FAULT, "do_huge_pmd_anonymous_page", "try_to_compact_pages", "compact_zone", "isolate_migratepages_block"]
CLEAR = [*FAULT, "do_huge_pmd_anonymous_page", "clear_huge_page"]
BACKGROUND = ["ret_from_fork", "kthread", "kcompactd", "compact_zone", "migrate_pages", "isolate_freepages_block"]
COLLAPSE = ["kthread", "khugepaged", "khugepaged_scan_mm_slot", "hpage_collapse_scan_pmd", "collapse_huge_page"]
BY_HAND = ["do_syscall_64", "vfs_write", "sysctl_compaction_handler", "compact_node", "compact_zone"]


def calm(scene: Scene) -> Scene:
    return scene.node(0, scene.seconds, compact_stall=0, compact_migrate_scanned=500, pgfault=2_000, forks=2)


def of(found: Diagnosis, cause: str = "compaction-thp") -> Finding | None:
    return next((each for each in found.findings if each.cause == cause), None)


def direct(scene: Scene, cpu: int) -> Scene:
    calm(scene).node(20, 30, compact_stall=400, compact_migrate_scanned=3_000_000, pgfault=9_000)
    scene.core(cpu, 20, 30, system=980).stack(cpu, 20, 30, 0.8, "db", 500, DIRECT)
    return scene.stack(cpu, 20, 30, 0.15, "db", 500, CLEAR)


def test_direct_compaction_on_one_core_of_many(tmp_path: Path) -> None:
    scene = direct(Scene(cores=96), 39)
    found = judged(scene, tmp_path)
    top = found.findings[0]
    assert (top.cause, top.severity, top.culprit.cpu, top.culprit.pid) == ("compaction-thp", "critical", 39, 500)
    assert top.culprit.function == "isolate_migratepages_block"
    assert "compaction-thp.by-direct" in codes(top)
    assert of(found, "page-fault-storm") is None
    assert top.confidence >= 0.9


def test_threads_of_the_kernel(tmp_path: Path) -> None:
    for name, frames, code in (
        ("kcompactd0", BACKGROUND, "compaction-thp.by-background"),
        ("khugepaged", COLLAPSE, "compaction-thp.by-huge-pages"),
        ("sysctl", BY_HAND, "compaction-thp.by-by-hand"),
    ):
        scene = calm(Scene(cores=4)).node(20, 30, compact_migrate_scanned=3_000_000).core(1, 20, 30, system=980)
        scene.stack(1, 20, 30, 0.95, name, 44, frames)
        top = judged(scene, tmp_path / name).findings[0]
        assert (top.cause, top.culprit.comm) == ("compaction-thp", name)
        assert code in codes(top)


def test_a_little_compaction_is_nothing(tmp_path: Path) -> None:
    scene = calm(Scene(cores=4)).node(20, 30, compact_stall=3, compact_migrate_scanned=30_000)
    scene.core(1, 20, 30, user=800, system=100).stack(1, 20, 30, 0.08, "db", 500, DIRECT)
    found = judged(scene, tmp_path)
    assert of(found) is None and found.verdict == "healthy"


def test_huge_pages_that_are_there_need_no_compaction(tmp_path: Path) -> None:
    scene = calm(Scene(cores=4)).node(20, 30, thp_fault_alloc=4_000).core(1, 20, 30, system=980)
    scene.stack(1, 20, 30, 0.95, "db", 500, CLEAR)
    assert of(judged(scene, tmp_path)) is None


def test_without_stacks(tmp_path: Path) -> None:
    scene = direct(Scene(cores=4), 1).without("samples", "stacks", "frames")
    found = of(judged(scene, tmp_path))
    assert found is not None and found.culprit.pid is None
    assert found.confidence <= 0.5
    assert "shared.no-stacks" in doubts(found)

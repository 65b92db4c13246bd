"""NUMA balancing that costs a part of a core is reported; a machine with one node never has it."""

from pathlib import Path

from tests.diagnose.codes import reason
from tests.diagnose.judged import judged
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding

SCAN = [
    "app:work",
    "irqentry_exit_to_user_mode",
    "task_work_run",
    "task_numa_work",
    "change_prot_numa",
    "change_pte_range",
]
FAULT = [
    "app:work",
    "asm_exc_page_fault",
    "exc_page_fault",
    "handle_mm_fault",
    "do_numa_page",
    "migrate_misplaced_folio",
]
FAULT_5_4 = [
    "page_fault",
    "do_page_fault",
    "handle_mm_fault",
    "do_numa_page",
    "migrate_misplaced_page",
    "migrate_pages",
]
PROTECT = ["libc.so:mprotect", "do_syscall_64", "do_mprotect_pkey", "change_protection", "change_pte_range"]


def of(found: Diagnosis, cause: str = "numa-balancing") -> Finding | None:
    return next((each for each in found.findings if each.cause == cause), None)


def balanced(scene: Scene, cpu: int, fault: list[str] = FAULT) -> Scene:
    scene.node(0, scene.seconds, numa_pte_updates=2_000, numa_pages_migrated=10, pgfault=3_000, forks=2)
    scene.node(20, 30, numa_pte_updates=2_500_000, numa_pages_migrated=90_000, pgfault=150_000)
    scene.core(cpu, 20, 30, system=500, user=450).stack(cpu, 20, 30, 0.2, "sim", 900, SCAN)
    return scene.stack(cpu, 20, 30, 0.25, "sim", 900, fault).stack(cpu, 20, 30, 0.45, "sim", 900, ["app:work"])


def test_one_core_of_many(tmp_path: Path) -> None:
    for name, fault in (("new", FAULT), ("old", FAULT_5_4)):
        scene = balanced(Scene(cores=96), 39, fault)
        found = judged(scene, tmp_path / name)
        top = found.findings[0]
        assert (top.cause, top.severity, top.culprit.cpu, top.culprit.pid) == ("numa-balancing", "warning", 39, 900)
        assert any("numa_balancing=0" in remedy.command for remedy in top.remedies)
        assert of(found, "page-fault-storm") is None


def test_a_core_lost_to_it_is_grave(tmp_path: Path) -> None:
    scene = balanced(Scene(cores=4), 1).core(1, 20, 30, system=990, user=10).stack(1, 20, 30, 0.5, "sim", 900, SCAN)
    found = of(judged(scene, tmp_path))
    assert found is not None and found.severity == "critical"


def test_a_little_of_it_everywhere_is_what_it_is_for(tmp_path: Path) -> None:
    scene = Scene(cores=8).node(0, 40, numa_pte_updates=100_000, numa_pages_migrated=500)
    for cpu in range(8):
        scene.core(cpu, 0, 40, user=900, system=60).stack(cpu, 0, 40, 0.03, "sim", 900, SCAN)
        scene.stack(cpu, 0, 40, 0.9, "sim", 900, ["app:work"])
    found = judged(scene, tmp_path)
    assert of(found) is None and found.verdict == "healthy"


def test_a_program_that_protects_its_memory_is_not_it(tmp_path: Path) -> None:
    scene = Scene(cores=4).node(0, 40, numa_pte_updates=0).core(1, 20, 30, system=980)
    scene.stack(1, 20, 30, 0.95, "gc", 9, PROTECT)
    found = judged(scene, tmp_path)
    assert of(found) is None
    assert reason(found, "numa-balancing") == "numa-balancing.none"


def test_without_stacks_it_is_worth_knowing_at_most(tmp_path: Path) -> None:
    scene = balanced(Scene(cores=4), 1).without("samples", "stacks", "frames")
    found = of(judged(scene, tmp_path))
    assert found is not None and found.severity == "info" and found.confidence <= 0.5

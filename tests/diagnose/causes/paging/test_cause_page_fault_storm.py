"""A program that touches and frees memory over and over is reported from one that starts or fills its memory."""

from pathlib import Path

from tests.diagnose.codes import codes, doubts, reason
from tests.diagnose.judged import judged
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding

TOUCH = ["app:refill", "asm_exc_page_fault", "exc_page_fault", "do_user_addr_fault", "handle_mm_fault"]
CLEAR = [*TOUCH, "do_anonymous_page", "clear_page_erms"]
FREE = ["libc.so:madvise", "do_syscall_64", "do_madvise", "zap_page_range_single", "zap_pte_range"]
# The same on an older kernel, and on another machine.
CLEAR_5_4 = ["page_fault", "do_page_fault", "__do_page_fault", "handle_mm_fault", "do_anonymous_page", "clear_page_rep"]
FREE_5_4 = ["do_syscall_64", "__do_munmap", "unmap_region", "unmap_vmas", "unmap_page_range"]
CLEAR_ARM = ["el0t_64_sync", "el0_da", "do_mem_abort", "do_translation_fault", "handle_mm_fault", "__pi_clear_page"]
FREE_ARM = ["el0_svc", "do_madvise", "zap_page_range", "zap_pte_range"]


def storm(scene: Scene, cpu: int, clear: list[str] = CLEAR, free: list[str] = FREE) -> Scene:
    scene.node(0, scene.seconds, pgfault=2_000, forks=3, mem_available=8_000_000, oom_kill=0)
    scene.core(cpu, 20, 30, system=960, user=30).node(20, 30, pgfault=380_000)
    scene.stack(cpu, 20, 30, 0.80, "refiller", 4711, clear)
    return scene.stack(cpu, 20, 30, 0.15, "refiller", 4711, free)


def of(found: Diagnosis, cause: str = "page-fault-storm") -> Finding | None:
    return next((each for each in found.findings if each.cause == cause), None)


def test_the_program_its_core_and_its_function_are_named(tmp_path: Path) -> None:
    scene = storm(Scene(cores=4), 2)
    scene.row(
        "processes", 3, pid=4711, comm="refiller", cmdline="/opt/refiller --all", cgroup="/system.slice/r.service"
    )
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.severity) == ("page-fault-storm", "critical")
    assert (top.culprit.cpu, top.culprit.pid, top.culprit.comm) == (2, 4711, "refiller")
    assert top.culprit.function == "clear_page_erms" and top.culprit.cgroup == "/system.slice/r.service"
    assert top.confidence >= 0.85
    assert [each.table for link in top.chain for each in link.evidence].count("node") == 1
    assert any("4711" in remedy.command for remedy in top.remedies)


def test_older_kernels_and_other_machines_have_other_names(tmp_path: Path) -> None:
    for name, clear, free in (("old", CLEAR_5_4, FREE_5_4), ("arm", CLEAR_ARM, FREE_ARM)):
        scene = storm(Scene(cores=2), 1, clear, free)
        top = judged(scene, tmp_path / name).findings[0]
        assert (top.cause, top.culprit.pid) == ("page-fault-storm", 4711)
        assert "page-fault-storm.freeing" in codes(top)


def test_one_core_of_many(tmp_path: Path) -> None:
    scene = storm(Scene(cores=96), 39)
    scene.node(0, 20, pgfault=900_000, forks=2_000).node(20, 30, pgfault=1_280_000, forks=2_000)
    scene.node(30, 40, pgfault=900_000, forks=2_000)
    for cpu in range(0, 96, 8):
        if cpu != 39:
            scene.core(cpu, 0, 40, user=500, system=40).stack(cpu, 0, 40, 0.02, "web", 100 + cpu, CLEAR)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.culprit.cpu, top.culprit.pid) == ("page-fault-storm", 39, 4711)


def test_a_program_that_wanders_over_the_cores(tmp_path: Path) -> None:
    scene = Scene(cores=8).node(0, 40, pgfault=2_000, forks=3).node(20, 30, pgfault=300_000)
    for cpu in range(8):
        scene.core(cpu, 20, 30, system=110).stack(cpu, 20, 30, 0.1, "refiller", 4711, CLEAR)
        scene.stack(cpu, 20, 30, 0.01, "refiller", 4711, FREE)
    found = of(judged(scene, tmp_path))
    assert found is not None and (found.severity, found.culprit.pid) == ("warning", 4711)


def test_a_program_that_has_to_share_its_core(tmp_path: Path) -> None:
    """Two others want the core: it gets a third of it, and spends all of that in page faults."""
    scene = Scene(cores=4).node(0, 40, pgfault=2_000, forks=3).node(20, 30, pgfault=130_000)
    scene.core(2, 0, 20, user=1000).core(2, 20, 30, system=330, user=670).core(2, 30, 40, user=1000)
    scene.stack(2, 0, 40, 0.65, "render", 10, ["app:work"])
    scene.stack(2, 20, 30, 0.30, "refiller", 4711, CLEAR).stack(2, 20, 30, 0.04, "refiller", 4711, FREE)
    found = of(judged(scene, tmp_path / "shared"))
    assert found is not None and (found.severity, found.culprit.pid) == ("warning", 4711)
    # On a core with time left it could have had more: then it doesn't want it.
    scene = Scene(cores=4).node(0, 40, pgfault=2_000, forks=3).node(20, 30, pgfault=130_000)
    scene.core(2, 20, 30, system=330).stack(2, 20, 30, 0.30, "refiller", 4711, CLEAR)
    assert of(judged(scene.stack(2, 20, 30, 0.04, "refiller", 4711, FREE), tmp_path / "free")) is None


def test_starting_processes_is_not_it(tmp_path: Path) -> None:
    """Known by their count: the faults are those of a shell that lives on, after each fork."""
    scene = Scene(cores=2).node(0, 40, pgfault=2_000, forks=3).node(20, 30, pgfault=300_000, forks=900)
    scene.core(1, 20, 30, system=960, user=40).stack(1, 20, 30, 0.8, "sh", 7, CLEAR)
    scene.stack(1, 20, 30, 0.1, "sh", 7, ["do_syscall_64", "kernel_clone", "copy_process", "dup_mmap"])
    assert of(judged(scene, tmp_path)) is None


def test_processes_that_others_start_meanwhile_hide_nothing(tmp_path: Path) -> None:
    scene = storm(Scene(cores=4), 2).node(20, 30, pgfault=700_000, forks=1_500, oom_kill=1)
    scene.core(1, 20, 30, system=900)
    for second in range(20, 30):
        scene.stack(1, second, second + 1, 0.8, "sh", 100 + second, ["do_syscall_64", "kernel_clone", "copy_process"])
    found = of(judged(scene, tmp_path))
    assert found is not None and (found.culprit.cpu, found.culprit.pid) == (2, 4711)


def test_faults_that_other_programs_always_take_hide_nothing(tmp_path: Path) -> None:
    """Next to a storm of forks, and to programs that fault before, during and after the storm."""
    scene = storm(Scene(cores=2), 1).node(20, 30, forks=800)
    for second in range(scene.seconds):
        scene.stack(0, second, second + 1, 0.2, "spawner", 500 + second, CLEAR)
    top = of(judged(scene, tmp_path))
    assert top is not None and (top.severity, top.culprit.comm) == ("critical", "refiller")


def test_processes_that_run_for_a_moment_are_not_it(tmp_path: Path) -> None:
    """Known by their samples, where forks were not counted."""
    scene = Scene(cores=2).node(0, 40, pgfault=2_000).node(20, 30, pgfault=300_000)
    scene.core(1, 20, 30, system=960, user=40)
    for second in range(20, 30):
        for child in range(20):
            scene.stack(1, second, second + 1, 0.04, "sh", 10_000 + second * 50 + child, CLEAR)
    assert of(judged(scene, tmp_path)) is None


def test_fork_and_exit_are_not_page_faults(tmp_path: Path) -> None:
    scene = Scene(cores=2).node(0, 40, pgfault=2_000).node(20, 30, pgfault=100_000).core(1, 20, 30, system=980)
    scene.stack(1, 20, 30, 0.9, "make", 5, ["do_syscall_64", "do_exit", "exit_mmap", "unmap_vmas", "zap_pte_range"])
    assert of(judged(scene, tmp_path)) is None


def test_faults_that_have_to_free_memory_first_are_not_it(tmp_path: Path) -> None:
    scene = storm(Scene(cores=2), 1)
    scene.stack(1, 20, 30, 0.5, "refiller", 4711, [*TOUCH, "try_to_free_mem_cgroup_pages", "shrink_lruvec"])
    found = judged(scene, tmp_path)
    assert of(found) is None
    assert reason(found, "page-fault-storm") == "page-fault-storm.inside-reclaim"


def test_a_program_that_comes_up_is_no_trouble(tmp_path: Path) -> None:
    """It fills twelve gigabytes in ten seconds, and gives nothing back."""
    scene = Scene(cores=4).node(0, 40, pgfault=2_000, mem_available=64_000_000).core(2, 20, 30, system=900, user=90)
    for second in range(20, 30):
        scene.node(second, second + 1, pgfault=310_000, mem_available=64_000_000 - (second - 19) * 1_240_000)
    scene.node(30, 40, mem_available=51_600_000).stack(2, 20, 30, 0.88, "java", 8, CLEAR)
    found = judged(scene, tmp_path)
    assert [(each.cause, each.severity) for each in found.findings] == [("page-fault-storm", "info")]


def test_how_much_is_touched_goes_by_the_size_of_a_page(tmp_path: Path) -> None:
    """60,000 faults of 64 KiB a second while memory grows by 200 MB: a fortieth of what is touched stays."""
    for pages, severity in ((None, "info"), (65_536, "critical")):
        scene = Scene(cores=4, page_bytes=pages).node(0, 40, pgfault=2_000, mem_available=64_000_000)
        for second in range(20, 30):
            scene.node(second, second + 1, pgfault=60_000, mem_available=64_000_000 - (second - 19) * 200_000)
        scene.core(2, 20, 30, system=960, user=30).stack(2, 20, 30, 0.95, "refiller", 4711, CLEAR_ARM)
        found = of(judged(scene, tmp_path / str(pages)))
        assert found is not None and found.severity == severity


def test_a_second_of_it_is_worth_knowing_at_most(tmp_path: Path) -> None:
    scene = Scene(cores=4).node(0, 40, pgfault=2_000).node(20, 21, pgfault=400_000).core(2, 20, 21, system=900)
    scene.stack(2, 20, 21, 0.9, "java", 8, CLEAR)
    found = judged(scene, tmp_path)
    assert all(each.severity == "info" for each in found.findings)


def test_a_busy_healthy_node(tmp_path: Path) -> None:
    scene = Scene(cores=8).node(0, 40, pgfault=60_000, forks=20)
    for cpu in range(8):
        scene.core(cpu, 0, 40, user=800, system=80).stack(cpu, 0, 40, 0.06, "web", 10 + cpu, CLEAR)
        scene.core(cpu, 20, 30, user=850, system=120).stack(cpu, 20, 30, 0.05, "web", 10 + cpu, FREE)
    assert of(judged(scene, tmp_path)) is None


def test_without_stacks_it_has_less_confidence(tmp_path: Path) -> None:
    sure = of(judged(storm(Scene(cores=4), 2), tmp_path / "whole"))
    scene = storm(Scene(cores=4), 2).without("samples", "stacks", "frames")
    unsure = of(judged(scene, tmp_path / "part"))
    assert sure is not None and unsure is not None
    assert unsure.confidence <= 0.5 < sure.confidence
    assert unsure.culprit.cpu == 2 and unsure.culprit.pid is None
    assert "shared.no-stacks" in doubts(unsure)

"""Reclaim of a cgroup or of the node, and kills for memory: one is worth knowing, many are a pattern."""

from pathlib import Path

import pytest
from tests.diagnose.codes import doubts, reason
from tests.diagnose.judged import judged_recording
from tests.diagnose.scenes import Scene, at

from exhume.model.finding import Diagnosis, Finding, Severity

SYSCALL = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64", "ksys_read", "vfs_read", "filemap_read"]
PAGES = ["shrink_node", "shrink_lruvec", "shrink_folio_list"]
LIMIT = [*SYSCALL, "__mem_cgroup_charge", "try_charge_memcg", "try_to_free_mem_cgroup_pages", *PAGES]
DIRECT = ["asm_exc_page_fault", "do_anonymous_page", "__alloc_pages_slowpath", "try_to_free_pages", *PAGES]
OLD = ["page_fault", "do_page_fault", "__alloc_pages_nodemask", "try_to_free_pages", "shrink_node", "shrink_page_list"]
KSWAPD = ["ret_from_fork", "kthread", "kswapd", "balance_pgdat", *PAGES]
ZOMBIES = [*SYSCALL, "mem_cgroup_force_empty_write", "do_try_to_free_pages", "shrink_node_memcgs", "mem_cgroup_iter"]
TOTAL = 16_000_000


def reclaim_examined(scene: Scene, directory: Path) -> tuple[Diagnosis, Finding | None]:
    recording = scene.write(directory)
    answer = judged_recording(recording, scene.window)
    return answer, next((each for each in answer.findings if each.cause == "memory-reclaim"), None)


def found(scene: Scene, directory: Path) -> Finding:
    answer, finding = reclaim_examined(scene, directory)
    assert finding is not None and answer.findings[0] is finding
    return finding


def test_a_cgroup_at_its_limit_is_named(tmp_path: Path) -> None:
    scene = Scene().node(0, 40, mem_total=TOTAL, mem_available=TOTAL // 2)
    scene.core(3, 20, 30, system=980).stack(3, 20, 30, 0.9, "loader", 51, LIMIT).stack(
        3, 20, 30, 0.08, "loader", 51, SYSCALL
    )
    scene.row("processes", 20, pid=51, comm="loader", cgroup="/system.slice/loader.service", start=1)
    finding = found(scene, tmp_path)
    assert (finding.culprit.cpu, finding.culprit.pid, finding.culprit.comm) == (3, 51, "loader")
    assert finding.culprit.cgroup == "/system.slice/loader.service" and "loader.service is at its" in finding.summary
    assert finding.severity is Severity.CRITICAL and finding.confidence >= 0.75
    assert [each.id for each in finding.remedies] == ["raise-limit", "see-pressure"]


@pytest.mark.parametrize("frames", [DIRECT, OLD])
def test_direct_reclaim_slows_the_allocating_process(tmp_path: Path, frames: list[str]) -> None:
    scene = Scene().node(0, 40, mem_total=TOTAL, mem_available=TOTAL // 2)
    scene.node(20, 30, mem_available=TOTAL // 50, pgscan_direct=300_000, allocstall=900, psi_memory_some=600_000)
    for cpu in (0, 1):
        scene.core(cpu, 20, 30, system=900).stack(cpu, 20, 30, 0.85, "trainer", 60, frames)
    finding = found(scene, tmp_path)
    assert finding.culprit.comm == "trainer" and finding.confidence >= 0.9
    assert "the node is short of memory: 2% of it was available" in [link.text for link in finding.chain]


def test_kswapd_on_a_whole_core(tmp_path: Path) -> None:
    scene = Scene().node(0, 40, mem_total=TOTAL, mem_available=TOTAL // 30, pgscan_kswapd=400_000)
    scene.core(1, 20, 30, system=990).stack(1, 20, 30, 0.98, "kswapd0", 88, KSWAPD)
    finding = found(scene, tmp_path)
    assert finding.culprit.comm == "kswapd0" and finding.severity is Severity.CRITICAL


def test_kswapd_that_keeps_ahead_of_a_page_cache_is_only_worth_knowing(tmp_path: Path) -> None:
    scene = Scene().node(0, 40, mem_total=TOTAL, mem_available=TOTAL // 2, pgscan_kswapd=100_000)
    for cpu in range(4):
        scene.core(cpu, 0, 40, user=600, system=200).stack(cpu, 0, 40, 0.6, "db", 10, ["db:scan"])
    scene.core(2, 10, 30, user=300, system=500).stack(2, 10, 30, 0.4, "kswapd0", 88, KSWAPD)
    _, finding = reclaim_examined(scene, tmp_path)
    assert finding is None or finding.severity is Severity.INFO


def test_a_busy_page_cache_with_a_little_reclaim_is_healthy(tmp_path: Path) -> None:
    scene = Scene().node(0, 40, mem_total=TOTAL, mem_available=TOTAL // 3, psi_memory_some=5_000)
    for cpu in range(4):
        scene.core(cpu, 0, 40, user=500, system=300).stack(cpu, 0, 40, 0.1, "db", 10, SYSCALL)
        scene.stack(cpu, 0, 40, 0.02, "db", 10, LIMIT)
    answer, finding = reclaim_examined(scene, tmp_path)
    assert finding is None and answer.verdict == "healthy"


def test_a_little_on_each_of_96_cores_is_nothing(tmp_path: Path) -> None:
    scene = Scene(cores=96, seconds=20).node(0, 20, mem_total=TOTAL, mem_available=TOTAL // 3)
    for cpu in range(96):
        scene.core(cpu, 0, 20, user=500, system=60).stack(cpu, 0, 20, 0.02, "db", 10, LIMIT)
    _, finding = reclaim_examined(scene, tmp_path)
    assert finding is None


def test_one_core_of_96(tmp_path: Path) -> None:
    scene = Scene(cores=96, seconds=30).core(71, 15, 22, system=990).stack(71, 15, 22, 0.97, "loader", 51, LIMIT)
    for cpu in range(96):
        if cpu != 71:
            scene.core(cpu, 0, 30, user=500)
    assert found(scene, tmp_path).culprit.cpu == 71


def test_a_walk_over_zombies_is_not_reclaim(tmp_path: Path) -> None:
    scene = Scene().core(2, 20, 28, system=990).stack(2, 20, 28, 0.98, "kubelet", 77, ZOMBIES)
    for second in range(0, 40, 10):
        scene.row("cgroups", second, hierarchy="memory", parent="", kernel=30_240, visible=240, dying=30_000)
    answer, finding = reclaim_examined(scene, tmp_path)
    assert finding is None and answer.findings[0].cause == "zombie-memcgs"


def test_zombies_without_a_walk_do_not_explain_reclaim(tmp_path: Path) -> None:
    scene = Scene().core(2, 20, 28, system=700).stack(2, 20, 28, 0.7, "loader", 51, LIMIT)
    for second in range(0, 40, 10):
        scene.row("cgroups", second, hierarchy="memory", parent="", kernel=30_240, visible=240, dying=30_000)
    answer, finding = reclaim_examined(scene, tmp_path)
    assert finding is not None
    assert {"memory-reclaim", "zombie-memcgs"} <= {each.cause for each in answer.findings}


def test_with_few_zombies_it_is_reclaim(tmp_path: Path) -> None:
    scene = Scene().core(2, 20, 28, system=990).stack(2, 20, 28, 0.95, "loader", 51, LIMIT)
    for second in range(0, 40, 10):
        scene.row("cgroups", second, hierarchy="memory", parent="", kernel=300, visible=240, dying=60)
    assert found(scene, tmp_path).culprit.pid == 51


def test_without_stacks_the_counters_speak_and_less_surely(tmp_path: Path) -> None:
    scene = Scene().node(0, 40, mem_total=TOTAL, mem_available=TOTAL // 2)
    scene.node(20, 30, mem_available=TOTAL // 50, pgscan_direct=300_000, allocstall=900, psi_memory_some=600_000)
    scene.core(1, 20, 30, system=900)
    _, finding = reclaim_examined(scene, tmp_path)
    assert finding is not None and finding.severity is Severity.WARNING
    assert 0.3 <= finding.confidence <= 0.6 and "shared.no-stacks" in doubts(finding)


FAULT = ["asm_exc_page_fault", "do_anonymous_page", "try_charge_memcg"]
RECLAIM = [*FAULT, "try_to_free_mem_cgroup_pages", "shrink_node", "shrink_lruvec"]
KILLING = [*FAULT, "mem_cgroup_out_of_memory", "oom_kill_process", "dump_header", "dump_tasks"]
CONTAINER = "c" * 63 + "7"


def kill(
    scene: Scene, second: float, comm: str, pid: int, cgroup: str = f"/docker/{CONTAINER}", *, old: bool = False
) -> Scene:
    """The lines of a kill at the limit of a cgroup, as the kernel writes them, or wrote them before 5.0."""
    scene.node(int(second), int(second) + 1, oom_kill=1)
    scene.event(second, "oom", f"{comm} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0", comm=comm)
    words = f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={cgroup},"
    words += f"task_memcg={cgroup},task={comm},pid={pid},uid=0"
    words = f"Task in {cgroup}/step killed as a result of limit of {cgroup}" if old else words
    scene.event(second + 0.01, "kernel-line", words, severity="info")
    text = f"Memory cgroup out of memory: Killed process {pid} ({comm}) total-vm:70000kB, anon-rss:60000kB"
    return scene.event(second + 0.02, "oom-kill", text, comm=comm, pid=pid)


def thrashing(scene: Scene, *, old: bool = False) -> Scene:
    scene.node(0, scene.seconds, oom_kill=0)
    for second in range(20, 30, 2):
        kill(scene, second + 0.5, "renderer", 500 + second, old=old)
        scene.core(1, second, second + 2, system=900)
        scene.stack(1, second, second + 2, 0.5, "renderer", 500 + second, RECLAIM)
        scene.stack(1, second, second + 2, 0.3, "renderer", 500 + second, KILLING)
    return scene


def oom_examined(scene: Scene, directory: Path) -> tuple[Diagnosis, Finding | None]:
    recording = scene.write(directory)
    answer = judged_recording(recording, scene.window)
    return answer, next((each for each in answer.findings if each.cause == "oom-thrash"), None)


@pytest.mark.parametrize("old", [False, True])
def test_the_victim_and_its_cgroup_are_named(tmp_path: Path, old: bool) -> None:
    answer, finding = oom_examined(thrashing(Scene(), old=old), tmp_path)
    assert finding is not None and answer.findings[0] is finding
    assert finding.severity is Severity.CRITICAL and finding.confidence >= 0.85
    assert (finding.culprit.comm, finding.culprit.container) == ("renderer", CONTAINER)
    assert "renderer" in finding.summary and "5 times" in finding.summary
    # Reclaim before a kill is how this shows, no second trouble.
    assert "memory-reclaim" not in [each.cause for each in answer.findings]


def test_the_process_killed_in_the_focus_is_named(tmp_path: Path) -> None:
    scene = Scene(seconds=60).node(0, 60, oom_kill=0)
    for number in range(12):
        kill(scene, 1 + number / 4, "bygone", number, "/bygone")
    for second in (40, 42, 44, 46):
        kill(scene, second, "renderer", second)
    recording = scene.write(tmp_path)
    answer = judged_recording(recording, scene.window, at=at(44))
    finding = next(each for each in answer.findings if each.cause == "oom-thrash")
    assert (finding.culprit.comm, finding.culprit.container) == ("renderer", CONTAINER)
    assert "renderer" in finding.summary and "4 times" in finding.summary


def test_on_a_large_node_kills_need_no_hot_core(tmp_path: Path) -> None:
    scene = Scene(cores=96, seconds=30).node(0, 30, oom_kill=0)
    for cpu in range(96):
        scene.core(cpu, 0, 30, user=500)
    for second in (16, 18, 20, 22):
        kill(scene, second, "renderer", second)
    _, finding = oom_examined(scene, tmp_path)
    assert finding is not None and finding.culprit.comm == "renderer"


def test_one_kill_is_worth_knowing_and_no_more(tmp_path: Path) -> None:
    scene = kill(Scene().node(0, 40, oom_kill=0), 20, "renderer", 9)
    _, finding = oom_examined(scene, tmp_path)
    assert finding is not None and finding.severity is Severity.INFO


def test_kills_further_apart_than_a_focus_are_a_warning(tmp_path: Path) -> None:
    scene = Scene(seconds=150).node(0, 150, oom_kill=0)
    for second in (10, 75, 140):
        kill(scene, second, "renderer", second)
    answer = judged_recording(scene.write(tmp_path), scene.window, at=None)
    finding = next(each for each in answer.findings if each.cause == "oom-thrash")
    assert finding.severity is Severity.WARNING


def test_reclaim_without_kills_is_something_else(tmp_path: Path) -> None:
    scene = Scene().node(0, 40, oom_kill=0).core(1, 20, 30, system=950).stack(1, 20, 30, 0.9, "renderer", 5, RECLAIM)
    answer, finding = oom_examined(scene, tmp_path)
    assert finding is None and answer.findings[0].cause == "memory-reclaim"
    assert reason(answer, "oom-thrash") == "oom-thrash.none"


def test_without_the_log_the_count_speaks_and_less_surely(tmp_path: Path) -> None:
    _, reported = oom_examined(thrashing(Scene()), tmp_path / "reported")
    _, unreported = oom_examined(thrashing(Scene()).without("events"), tmp_path / "untold")
    assert reported is not None and unreported is not None
    assert unreported.confidence <= reported.confidence - 0.15 and unreported.culprit.comm is None
    assert "oom-thrash.no-log" in doubts(unreported)


def test_without_stacks_kills_are_reported(tmp_path: Path) -> None:
    _, finding = oom_examined(thrashing(Scene()).without("samples", "stacks", "frames"), tmp_path)
    assert finding is not None and finding.culprit.comm == "renderer"

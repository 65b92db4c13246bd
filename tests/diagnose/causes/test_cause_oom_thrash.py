"""Kills for memory: one is worth knowing, the same victim again and again is a pattern."""

from pathlib import Path

import pytest
from tests.diagnose.codes import doubts, reason
from tests.diagnose.judged import judged_recording
from tests.diagnose.scenes import Scene, at

from exhume.model.finding import Diagnosis, Finding, Severity

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


def examined(scene: Scene, directory: Path) -> tuple[Diagnosis, Finding | None]:
    recording = scene.write(directory)
    answer = judged_recording(recording, scene.window)
    return answer, next((each for each in answer.findings if each.cause == "oom-thrash"), None)


@pytest.mark.parametrize("old", [False, True])
def test_the_victim_and_its_cgroup_are_named(tmp_path: Path, old: bool) -> None:
    answer, finding = examined(thrashing(Scene(), old=old), tmp_path)
    assert finding is not None and answer.findings[0] is finding
    assert finding.severity is Severity.CRITICAL and finding.confidence >= 0.85
    assert (finding.culprit.comm, finding.culprit.container) == ("renderer", CONTAINER)
    assert "renderer" in finding.summary and "5 times" in finding.summary
    # Reclaim before a kill is how this shows, no second trouble.
    assert "memory-reclaim" not in [each.cause for each in answer.findings]


def test_whoever_is_killed_now_is_named_though_another_was_more_often_before(tmp_path: Path) -> None:
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
    _, finding = examined(scene, tmp_path)
    assert finding is not None and finding.culprit.comm == "renderer"


def test_one_kill_is_worth_knowing_and_no_more(tmp_path: Path) -> None:
    scene = kill(Scene().node(0, 40, oom_kill=0), 20, "renderer", 9)
    _, finding = examined(scene, tmp_path)
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
    answer, finding = examined(scene, tmp_path)
    assert finding is None and answer.findings[0].cause == "memory-reclaim"
    assert reason(answer, "oom-thrash") == "oom-thrash.none"


def test_without_the_log_the_count_speaks_and_less_surely(tmp_path: Path) -> None:
    _, told = examined(thrashing(Scene()), tmp_path / "told")
    _, untold = examined(thrashing(Scene()).without("events"), tmp_path / "untold")
    assert told is not None and untold is not None
    assert untold.confidence <= told.confidence - 0.15 and untold.culprit.comm is None
    assert "oom-thrash.no-log" in doubts(untold)


def test_without_stacks_the_kills_are_still_told(tmp_path: Path) -> None:
    _, finding = examined(thrashing(Scene()).without("samples", "stacks", "frames"), tmp_path)
    assert finding is not None and finding.culprit.comm == "renderer"

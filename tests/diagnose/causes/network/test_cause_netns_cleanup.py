"""Network namespaces that come and go: who makes them, and the worker that takes them down."""

from pathlib import Path

import pytest
from tests.diagnose.codes import doubts
from tests.diagnose.judged import judged
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding

WORKER = ["ret_from_fork", "kthread", "worker_thread", "process_one_work", "cleanup_net"]
MAKING = ["do_syscall_64", "__x64_sys_unshare", "ksys_unshare", "create_new_namespaces", "copy_net_ns", "setup_net"]


def find(found: Diagnosis) -> Finding | None:
    return next((each for each in found.findings if each.cause == "netns-cleanup"), None)


def counted(scene: Scene, *counts: int) -> Scene:
    """Namespaces at each ten seconds."""
    for turn, count in enumerate(counts):
        scene.node(turn * 10, turn * 10 + 1, net_namespaces=count)
    return scene


@pytest.mark.parametrize(
    "below",
    [["ops_exit_list", "default_device_exit_batch"], ["ops_undo_list", "nf_tables_exit_net"], ["inet_twsk_purge"]],
)
def test_the_worker_and_the_maker_on_one_core_of_96(tmp_path: Path, below: list[str]) -> None:
    scene = counted(Scene(cores=96), 40, 40, 900, 1_400).core(50, 20, 30, system=990)
    scene.stack(50, 20, 30, 0.97, "kworker/u192:3", 700, [*WORKER, *below])
    scene.core(8, 20, 30, system=300).stack(8, 20, 30, 0.25, "runc", 801, [*MAKING, "ops_init"])
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.severity) == ("netns-cleanup", "critical")
    assert top.culprit.comm == "runc"
    assert top.confidence >= 0.9
    assert any("900" in link.text or "1,400" in link.text for link in top.chain)


def test_many_short_lived_makers_share_a_name(tmp_path: Path) -> None:
    scene = Scene().core(1, 20, 30, system=950)
    for second in range(20, 30):
        for child in range(5):
            pid = 3_000 + second * 10 + child
            scene.stack(1, second, second + 1, 0.12, "sandboxer", pid, MAKING)
    scene.stack(1, 20, 30, 0.3, "kworker/u8:1+netns", 60, WORKER)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.culprit.comm) == ("netns-cleanup", "sandboxer")
    named = {link.code: [entity.name for entity in link.entities] for link in top.chain}
    assert named["netns-cleanup.maker"] == ["sandboxer"]
    assert named["netns-cleanup.cleaner"] == ["kworker/u8:1"]


def children(maker_share: float) -> Scene:
    """A parent that forks a child for each namespace: most of so short a life is its birth and death."""
    scene = Scene().core(1, 20, 30, system=850, user=50).node(0, 20, forks=20).node(20, 30, forks=600)
    scene.row("processes", 1, pid=700, ppid=1, start=0, comm="sandboxer", cmdline="/opt/sandboxer")
    scene.stack(1, 20, 30, 0.2, "sandboxer", 700, ["do_syscall_64", "kernel_clone", "copy_process", "dup_mm"])
    ending = ["do_syscall_64", "__x64_sys_exit_group", "do_exit", "mmput", "exit_mmap"]
    for second in range(20, 30):
        for child in range(20):
            pid = 10_000 + second * 100 + child
            scene.row("processes", second, pid=pid, ppid=700, comm="sandboxer")
            making = child < round(20 * maker_share)
            scene.stack(1, second, second + 1, 0.02, "sandboxer", pid, MAKING if making else ending)
    scene.stack(1, 20, 30, 0.08, "kworker/u8:1+netns", 60, WORKER)
    return scene


def test_children_that_are_started_for_a_namespace_each_are_no_fork_storm(tmp_path: Path) -> None:
    """Neither the rate of forks decides nor that their birth takes more than the namespaces do."""
    found = judged(children(0.3), tmp_path)
    top = found.findings[0]
    assert (top.cause, top.severity, top.culprit.comm) == ("netns-cleanup", "warning", "sandboxer")
    assert "netns-cleanup.children" in [link.code for link in top.chain]
    assert "fork-storm" not in [each.cause for each in found.findings]
    assert [each.code for each in found.ruled_out if each.cause == "fork-storm"] == ["shared.explained"]


def test_a_few_namespaces_do_not_explain_a_fork_storm(tmp_path: Path) -> None:
    found = judged(children(0.05), tmp_path)
    assert found.findings[0].cause == "fork-storm" and find(found) is None


def test_one_namespace_per_process_is_reported_once(tmp_path: Path) -> None:
    """Sandboxes: a process and a namespace at once, so that its birth holds the namespace's."""
    birth = ["do_syscall_64", "kernel_clone", "copy_process", "create_new_namespaces", "copy_net_ns", "setup_net"]
    scene = Scene().core(1, 20, 30, system=980).node(20, 30, forks=400)
    scene.stack(1, 20, 30, 0.97, "sandboxer", 500, birth).core(2, 20, 30, system=600)
    scene.stack(2, 20, 30, 0.6, "kworker/u8:1", 60, WORKER)
    found = judged(scene, tmp_path)
    assert found.findings[0].cause == "netns-cleanup"
    assert not any(each.cause in ("fork-storm", "workqueue-hog") for each in found.findings)


def test_a_worker_without_a_maker_in_sight_leaves_doubt(tmp_path: Path) -> None:
    scene = Scene().core(1, 20, 30, system=990).stack(1, 20, 30, 0.97, "kworker/u8:1", 60, WORKER)
    found = find(judged(scene, tmp_path))
    assert found is not None and found.culprit.comm == "kworker/u8:1"
    assert "netns-cleanup.no-maker" in doubts(found)


def test_other_work_in_a_worker_is_not_it(tmp_path: Path) -> None:
    scene = counted(Scene(), 40, 40, 41, 40).core(1, 20, 30, system=990)
    scene.stack(1, 20, 30, 0.97, "kworker/u8:1", 60, [*WORKER[:-1], "zorp_work"])
    assert find(judged(scene, tmp_path)) is None


def test_containers_that_start_now_and_then_are_normal(tmp_path: Path) -> None:
    scene = counted(Scene(cores=16), 60, 62, 64, 61)
    for cpu in range(16):
        scene.core(cpu, 0, 40, user=700, system=60)
    scene.stack(3, 20, 30, 0.05, "runc", 801, MAKING).stack(4, 20, 30, 0.06, "kworker/u32:3", 70, WORKER)
    assert find(judged(scene, tmp_path)) is None


def test_without_stacks_a_growing_count_is_all_there_is(tmp_path: Path) -> None:
    scene = counted(Scene(), 40, 40, 900, 1_400).core(1, 20, 30, system=900).without("samples")
    found = find(judged(scene, tmp_path))
    assert found is not None and found.severity == "info"
    assert found.confidence < 0.5

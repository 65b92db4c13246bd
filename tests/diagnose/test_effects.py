"""Findings by their effect on others: independent ones side by side, what explains nothing below."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.diagnose.incidents.recordings import HERE, diagnosis_of, expected, joined
from tests.diagnose.judged import judged
from tests.diagnose.nodes import COMPUTING
from tests.diagnose.scenes import Scene, at
from tests.parts import sampled

from exhume.diagnose.engine import judge, overcommit_after_causes, weigh
from exhume.diagnose.evidence.builder import Found
from exhume.diagnose.evidence.case import Case
from exhume.lab.score.plan import PAIRS
from exhume.model.clock import Window
from exhume.model.finding import Culprit, Diagnosis, Finding, Severity, TimeKind
from exhume.store.read.recording import Recording

WALK = ["do_syscall_64", "memcg_stat_show", "mem_cgroup_iter"]
MOUNTS = ["do_syscall_64", "ksys_read", "vfs_read", "seq_read_iter", "m_next", "show_mountinfo"]
GROUP = "/system.slice/shop.service"


def lost_by(found: Diagnosis) -> dict[str, float]:
    assert found.accounting is not None
    return {row.id: row.seconds for row in found.accounting.lost.by_cause if row.kind is TimeKind.CAUSE}


@pytest.mark.parametrize("pair", sampled(PAIRS), ids="+".join)
def test_both_causes_of_a_pair_are_found_and_share_the_lost_time(pair: tuple[str, str], tmp_path: Path) -> None:
    """Recordings of two real scenarios, as one of a larger node."""
    found = diagnosis_of(joined(Recording.open(HERE / pair[0]), Recording.open(HERE / pair[1]), tmp_path))
    causes = {expected(name)["expected"] for name in pair}
    assert causes <= {each.cause for each in found.findings if each.severity != "info"}
    assert causes <= {cause for each in found.findings for cause in [each.cause] if each.lost_s > 0}
    if len({each.focus for each in found.findings if each.cause in causes}) == 1:
        assert causes <= set(lost_by(found))


def crowded(cores: int, queue: float, seconds: int = 60, shared: int | None = None, left: float = 0.0) -> Scene:
    """Every core is full of batch work all the time, and so many threads wait for each. Of the core that is shared it
    has only what is left from second 30 to 42."""
    scene = Scene(cores=cores, seconds=seconds).node(0, seconds, psi_cpu_some=950_000, running=round(cores * queue) + 1)
    for cpu in range(cores):
        scene.core(cpu, 0, seconds, user=960, system=40, wait_ns=round(queue * 1e9))
        spans = [(0, 30, 0.3), (30, 42, left), (42, seconds, 0.3)] if cpu == shared else [(0, seconds, 0.3)]
        for since, until, share in spans:
            scene.stack(cpu, since, until, share, f"build{cpu}", 800 + cpu, COMPUTING)
    return scene


def throttled(scene: Scene) -> Scene:
    scene.row("processes", 0, pid=500, comm="shop", cgroup=GROUP)
    scene.stack(0, 30, 42, 0.3, "shop", 500, COMPUTING)
    for second in range(30, 42):
        scene.row("throttling", second, cgroup=GROUP, periods=10, throttled=8, throttled_ns=500_000_000, quota=0.3)
    return scene


def walked(scene: Scene, cpu: int, share: float) -> Scene:
    scene.core(cpu, 30, 42, user=round(1000 - 1000 * share), system=round(1000 * share))
    for second in range(5, 60, 10):
        scene.row("cgroups", second, hierarchy="memory", parent="", kernel=30_300, visible=300, dying=30_000)
    return scene.stack(cpu, 30, 42, share, "kubelet", 77, WALK)


@pytest.mark.parametrize("share", [0.97, 0.35])
@pytest.mark.parametrize("queue", [0.0, 2.0])
def test_a_throttled_group_and_a_walker_on_another_core(share: float, queue: float, tmp_path: Path) -> None:
    """Also where every core has a queue, and the walker gets no more than its turn."""
    scene = crowded(4, queue, shared=2, left=min(0.3, 1 - share)) if queue else Scene(cores=4, seconds=60)
    found = judged(walked(throttled(scene), 2, share), tmp_path)
    graves = {each.cause: each for each in found.findings if each.severity != "info"}
    assert {"cfs-throttling", "zombie-memcgs"} <= set(graves)
    lost = lost_by(found)
    assert lost["cfs-throttling"] == pytest.approx(6.0, rel=0.2)
    assert lost["zombie-memcgs"] >= 0.7 * 12 * share
    assert all(graves[cause].lost_s == pytest.approx(lost[cause], abs=0.01) for cause in graves if cause in lost)


def small_finding(scene: Scene) -> Scene:
    """A program that reads a long table of mounts for a while, with a third of a core."""
    scene.node(0, scene.seconds, mounts=6_000)
    return scene.core(3, 30, 42, user=640, system=360).stack(3, 30, 42, 0.33, "agent", 900, MOUNTS)


def test_where_threads_wait_for_every_core_a_part_of_a_core_matters(tmp_path: Path) -> None:
    severities = {}
    for queue in (0.2, 2.5):
        scene = small_finding(crowded(4, queue))
        found = judged(scene, tmp_path / str(queue))
        severities[queue] = {each.cause: each.severity for each in found.findings}.get("mount-storm")
    assert severities == {0.2: Severity.INFO, 2.5: Severity.WARNING}


@pytest.mark.parametrize(
    ("waited", "severity"), [(0.8, Severity.WARNING), (0.05, Severity.INFO)], ids=["wants-a-core", "wants-no-more"]
)
def test_a_path_that_waits_to_hold_a_core_matters_where_a_real_time_thread_left_one(
    waited: float, severity: Severity, tmp_path: Path
) -> None:
    """One of two cores is held, and all else queues for the other: a reader gets no more than its turn."""
    scene = Scene(cores=2, seconds=60).node(0, 60, mounts=6_000, psi_cpu_some=950_000, running=11)
    for cpu in (0, 1):
        scene.core(cpu, 0, 60, user=980, wait_ns=4_000_000_000)
    scene.stack(0, 30, 42, 0.97, "control", 600, COMPUTING).core(0, 30, 42, wait_ns=1_000_000_000)
    scene.row("processes", 30, pid=600, comm="control", cgroup="/app", policy=1, rt_priority=10)
    scene.core(1, 30, 42, user=840, system=140, wait_ns=8_000_000_000)
    scene.stack(1, 30, 42, 0.14, "agent", 900, MOUNTS)
    for number in range(8):
        scene.stack(1, 0, 60, 0.1, f"build{number}", 800 + number, COMPUTING)
    for second in range(30, 42):
        spent = {"run_ns": 140_000_000, "wait_ns": round(waited * 1e9)}
        scene.row("run_delays", second, tid=900, pid=900, comm="agent", cpu=1, nice=0, policy=0, **spent)
    found = {each.cause: each.severity for each in judged(scene, tmp_path).findings}
    assert (found["rt-hog"], found["mount-storm"]) == (Severity.CRITICAL, severity)


def test_what_explains_nothing_of_much_lost_time_is_only_worth_knowing(tmp_path: Path) -> None:
    scene = small_finding(walked(Scene(cores=4, seconds=60), 2, 0.97)).core(2, 30, 42, wait_ns=6_000_000_000)
    one = judge(Case(scene.write(tmp_path), Window(at(30), at(42)), Window(at(0), at(29))))
    assert one.ledger.lost_s > 80
    [small] = [each for each in one.found if each.finding.cause == "mount-storm"]
    weighed = {
        severity: weigh(replace(small, finding=replace(small.finding, severity=severity)), one.ledger, one.symptoms)
        for severity in Severity
    }
    assert weighed[Severity.WARNING].finding.severity is Severity.INFO
    # What is critical made a symptom, or is so by its own evidence.
    assert weighed[Severity.CRITICAL].finding.severity is Severity.CRITICAL


def test_of_one_severity_the_one_that_cost_others_more_comes_first(tmp_path: Path) -> None:
    """Two walks of the same kind of severity: one for which threads queue, and one on a core that no other needs."""
    scene = Scene(cores=4, seconds=60).node(0, 60, mounts=6_000)
    scene.core(1, 30, 42, system=700).stack(1, 30, 42, 0.7, "agent", 900, MOUNTS)
    scene.core(3, 30, 42, system=700, wait_ns=3_000_000_000)
    scene.stack(3, 30, 42, 0.7, "scanner", 901, ["do_syscall_64", "__audit_syscall_exit", "audit_log_exit"])
    found = judged(scene, tmp_path)
    graves = [each for each in found.findings if each.severity == found.findings[0].severity]
    assert [each.cause for each in graves][:2] == ["audit-storm", "mount-storm"]
    assert graves[0].lost_s > 3 * graves[1].lost_s


@pytest.mark.parametrize(
    ("before", "first"),
    [pytest.param(4.5, "user-hog", id="as-many-before"), pytest.param(0.3, "cpu-overcommit", id="new-too")],
)
def test_a_new_hog_comes_before_overcommit_that_was_always_there(before: float, first: str, tmp_path: Path) -> None:
    scene = crowded(2, 6.0, shared=1, left=0.05)
    for cpu in (0, 1):
        scene.core(cpu, 0, 30, wait_ns=round(before * 1e9)).core(cpu, 42, 60, wait_ns=round(before * 1e9))
        for pid in range(900, 920):
            # Others are as many as wait, and are there all the time.
            scene.stack(cpu, 0, 60, 0.03 if cpu == 0 else 0.0, f"test{pid % 5}", pid, COMPUTING)
    scene.stack(1, 30, 42, 0.9, "solver", 700, COMPUTING)
    graves = [each for each in judged(scene, tmp_path).findings if each.severity == "warning"]
    assert {"user-hog", "cpu-overcommit"} == {each.cause for each in graves}
    assert graves[0].cause == first


@pytest.mark.parametrize(
    ("seconds", "first"), [pytest.param(1, "cpu-overcommit", id="a-moment"), pytest.param(6, "fork-storm", id="lasts")]
)
def test_what_takes_a_core_for_a_moment_does_not_come_before_lasting_overcommit(seconds: int, first: str) -> None:
    """Each in its own focus: of the second in which processes started, starting them took a third of a core."""

    def ranked(cause: str, length: int, cores: float) -> tuple[Any, Found]:
        finding = Finding(cause, "", Severity.WARNING, 0.8, "", (), Culprit())
        focus, ledger = Window(at(0), at(length)), SimpleNamespace(cores_of=lambda _: cores)
        return SimpleNamespace(case=SimpleNamespace(focus=focus), ledger=ledger), Found(
            finding, np.ones(1, np.bool_), 1
        )

    order = overcommit_after_causes([ranked("cpu-overcommit", 12, 1.9), ranked("fork-storm", seconds, 0.37)])
    assert order[0][1].finding.cause == first


@pytest.mark.parametrize("other", sampled(["oom-thrash", "zombie-memcgs", "crash-loop", "memory-reclaim"]))
def test_a_group_at_its_own_limit_comes_after_what_harms_the_node(other: str, tmp_path: Path) -> None:
    found = diagnosis_of(joined(Recording.open(HERE / "cfs-throttling"), Recording.open(HERE / other), tmp_path))
    graves = [each.cause for each in found.findings if each.severity != "info"]
    assert graves.index(expected(other)["expected"]) < graves.index("cfs-throttling")


def test_a_leak_that_grows_comes_before_a_group_at_its_own_limit(tmp_path: Path) -> None:
    scene = throttled(Scene(cores=4, seconds=60))
    for second in range(0, 60, 10):
        count = 2_000 + 100 * second
        scene.row("cgroups", second, hierarchy="memory", parent="", kernel=300 + count, visible=300, dying=count)
    found = judged(scene, tmp_path)
    assert [each.cause for each in found.findings[:2]] == ["zombie-memcgs", "cfs-throttling"]


def test_a_path_that_another_focus_accounts_for_is_not_unknown(tmp_path: Path) -> None:
    """Two troubles at once give two foci: what is a fault storm in the one is no unknown path in the other."""
    one, other = (Recording.open(HERE / name) for name in ("fork-storm", "page-fault-storm"))
    found = diagnosis_of(joined(one, other, tmp_path))
    graves = [each.cause for each in found.findings if each.severity != "info"]
    assert set(graves) == {"page-fault-storm", "fork-storm"}
    assert "unknown-kernel-path" in [each.cause for each in found.ruled_out]

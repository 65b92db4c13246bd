"""Quotas and stolen time: who is stopped in most periods, and which core the host keeps."""

from pathlib import Path
from typing import Any

import pytest
from tests.diagnose.judged import judged_recording
from tests.diagnose.nodes import healthy
from tests.diagnose.scenes import Scene, at

from exhume.diagnose.engine import judge
from exhume.diagnose.evidence.case import Case
from exhume.model.clock import Window
from exhume.model.finding import Diagnosis, Finding

ID = "5a" * 32
GROUP = f"/docker/{ID}"


def throttle(scene: Scene, since: int, until: int, throttled: int, cgroup: str = GROUP) -> Scene:
    for second in range(since, until):
        scene.row(
            "throttling",
            second,
            cgroup=cgroup,
            periods=10,
            throttled=throttled,
            throttled_ns=throttled * 150_000_000,
            quota=0.5,
        )
    return scene


def throttling_finding(found: Diagnosis) -> Finding | None:
    return next((each for each in found.findings if each.cause == "cfs-throttling"), None)


def test_a_container_that_stands_still_in_most_periods(tmp_path: Path) -> None:
    scene = throttle(Scene(cores=8, seconds=40), 20, 30, 9)
    scene.stack(2, 20, 30, 0.3, "trainer", 77, ["app:main"])
    scene.row("processes", 5, pid=77, comm="trainer", cmdline="trainer --all", cgroup=GROUP, container=ID)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    top = found.findings[0]
    # Its own limit slows it, and no other: the node is well.
    assert (top.cause, top.severity, top.scope) == ("cfs-throttling", "warning", "workload")
    assert found.verdict == "healthy"
    assert (top.culprit.cgroup, top.culprit.container, top.culprit.comm) == (GROUP, ID, "trainer")
    assert top.confidence >= 0.85
    assert "0.5 cores" in top.summary and top.summary.startswith("trainer in container")
    assert [remedy.id for remedy in top.remedies] == ["raise-container-quota", "raise-cgroup-quota"]


@pytest.mark.parametrize(
    ("facts", "hierarchy", "command"),
    [
        ({}, "unified", f"echo max > /sys/fs/cgroup{GROUP}/cpu.max"),
        # Early recordings don't say where the cpu controller is.
        ({}, "memory", f"echo -1 > /sys/fs/cgroup/cpu{GROUP}/cpu.cfs_quota_us"),
        (
            {"cpu_cgroups": "/sys/fs/cgroup/cpu,cpuacct", "cpu_cgroup_version": 1},
            "unified",
            f"echo -1 > /sys/fs/cgroup/cpu,cpuacct{GROUP}/cpu.cfs_quota_us",
        ),
    ],
)
def test_the_command_is_that_of_the_nodes_cgroups(
    tmp_path: Path, facts: dict[str, Any], hierarchy: str, command: str
) -> None:
    scene = throttle(Scene(cores=8, seconds=40, **facts), 20, 30, 9)
    scene.row("cgroups", 5, hierarchy=hierarchy, parent="", kernel=40, visible=40, dying=0)
    reported = throttling_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None and [each.command for each in reported.remedies if "quota" in each.id][-1] == command


def test_what_the_node_feels_comes_before_a_limit_of_a_workload(tmp_path: Path) -> None:
    scene = throttle(Scene(cores=8, seconds=40), 20, 30, 9)
    scene.core(3, 20, 30, user=500, steal=250)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert [(each.cause, each.severity, each.scope) for each in found.findings[:2]] == [
        ("cpu-steal", "warning", "node"),
        ("cfs-throttling", "warning", "workload"),
    ]
    assert found.verdict == "degraded"


def test_one_of_many_groups_on_a_large_node(tmp_path: Path) -> None:
    scene = Scene(cores=96, seconds=40)
    for number in range(30):
        throttle(scene, 0, 40, number % 2, f"/pods/{number}")
    throttle(scene, 20, 28, 10, "/pods/bad")
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert found.findings[0].culprit.cgroup == "/pods/bad"
    assert found.findings[0].severity == "critical"


def test_without_idle_cores_it_is_not_the_quota_alone(tmp_path: Path) -> None:
    scene = throttle(healthy(), 20, 30, 9)
    reported = throttling_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None and reported.severity == "warning"


def test_one_that_is_always_stopped_lives_with_it(tmp_path: Path) -> None:
    scene = throttle(Scene(cores=4, seconds=100), 0, 100, 8)
    scene.core(1, 70, 80, system=900)
    reported = throttling_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None and reported.severity == "warning"


def test_one_that_is_throttled_as_always_does_not_hide_a_new_one(tmp_path: Path) -> None:
    """All that are slowed are named: the new one first, a group above it is the same."""
    scene = throttle(Scene(seconds=40), 0, 40, throttled=10, cgroup="/batch/always")
    throttle(scene, 20, 30, throttled=8, cgroup="/shop/new")
    throttle(scene, 20, 30, throttled=7, cgroup="/shop")
    case = Case(scene.write(tmp_path), Window(at(20), at(30)), Window(at(0), at(19)))
    [finding] = [each.finding for each in judge(case).found if each.finding.cause == "cfs-throttling"]
    assert finding.culprit.cgroup == "/shop/new"
    others = [link.entities[0].id for link in finding.chain if link.code == "cfs-throttling.also"]
    assert others == ["/batch/always"]


def test_now_and_then_is_worth_knowing_at_most(tmp_path: Path) -> None:
    scene = throttle(Scene(cores=4, seconds=40), 20, 30, 2)
    reported = throttling_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None and reported.severity == "info"
    rare = throttle(Scene(cores=4, seconds=40), 20, 21, 1)
    assert throttling_finding(judged_recording(rare.write(tmp_path / "rare"), rare.window)) is None


def test_a_healthy_node_has_none(tmp_path: Path) -> None:
    scene = healthy()
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert throttling_finding(found) is None
    assert "cfs-throttling" in {each.cause for each in found.ruled_out}


def test_without_stacks_the_cgroup_is_still_named(tmp_path: Path) -> None:
    scene = throttle(Scene(cores=8, seconds=40).without("samples", "processes"), 20, 30, 9)
    reported = throttling_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None
    assert (reported.culprit.cgroup, reported.culprit.pid) == (GROUP, None)


def steal_finding(found: Diagnosis) -> Finding | None:
    return next((each for each in found.findings if each.cause == "cpu-steal"), None)


@pytest.mark.slow
@pytest.mark.parametrize(("steal", "severity"), [(450, "critical"), (250, "warning"), (80, "info")])
def test_one_core_of_96(tmp_path: Path, steal: int, severity: str) -> None:
    scene = healthy(cores=96).core(11, 20, 30, user=500, system=0, steal=steal)
    # Something else makes the focus where so little would not.
    scene.core(12, 20, 30, user=0, system=800)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    reported = steal_finding(found)
    assert reported is not None
    assert (reported.culprit.cpu, reported.severity) == (11, severity)
    assert reported.confidence >= 0.85


def test_all_the_time_on_all_cores(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=90)
    for cpu in range(4):
        scene.core(cpu, 0, 90, user=500, steal=400 + cpu)
    reported = steal_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None
    assert reported.severity == "critical"
    assert "4 cores" in reported.summary


def test_a_small_share_is_not_reported(tmp_path: Path) -> None:
    scene = healthy().core(1, 20, 30, user=700, steal=20)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert steal_finding(found) is None
    assert found.verdict == "healthy"


def test_it_needs_no_stacks(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=40).core(1, 20, 30, user=500, steal=450).without("samples")
    reported = steal_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None and reported.confidence >= 0.85

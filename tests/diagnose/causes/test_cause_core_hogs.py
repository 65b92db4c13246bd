"""Real-time threads that keep their core, and busy programs: they matter where another process loses."""

from pathlib import Path

import pytest
from tests.diagnose.codes import doubts
from tests.diagnose.judged import judged_recording
from tests.diagnose.nodes import COMPUTING, healthy
from tests.diagnose.scenes import Scene

from exhume.model.clock import NANOS
from exhume.model.finding import Diagnosis, Finding

LINE = "sched: RT throttling activated"


def real_time_hog(
    scene: Scene, cpu: int = 2, since: int = 20, until: int = 28, *, policy: int | None = 1, share: float = 0.95
) -> Scene:
    scene.core(cpu, since, until, user=round(share * 1000), system=0)
    scene.stack(cpu, since, until, share, "mixer", 99, COMPUTING)
    return scene.row("processes", since, pid=99, comm="mixer", cmdline="mixer -v", policy=policy, rt_priority=50)


def real_time_finding(found: Diagnosis) -> Finding | None:
    return next((each for each in found.findings if each.cause == "rt-hog"), None)


def test_a_real_time_thread_on_one_core_of_96(tmp_path: Path) -> None:
    scene = real_time_hog(Scene(cores=96, seconds=40), cpu=63)
    scene.stack(63, 0, 20, 0.5, "peer", 50, COMPUTING).core(63, 0, 20, user=500)
    scene.stack(63, 20, 28, 0.04, "peer", 50, COMPUTING)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    top = found.findings[0]
    assert (top.cause, top.severity) == ("rt-hog", "critical")
    assert (top.culprit.cpu, top.culprit.pid, top.culprit.comm) == (63, 99, "mixer")
    assert top.confidence >= 0.8
    assert any("SCHED_FIFO, priority 50" in link.text for link in top.chain)
    assert "user-hog" not in {each.cause for each in found.findings}
    assert any("99" in remedy.command for remedy in top.remedies)


def test_an_ordinary_hog_is_not_one(tmp_path: Path) -> None:
    scene = real_time_hog(Scene(cores=4, seconds=40), policy=0)
    scene.event(24, "rt-throttling", LINE, "warning")
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert real_time_finding(found) is None
    assert "user-hog" in {each.cause for each in found.findings}


def test_without_policies_a_waiting_ksoftirqd_is_evidence(tmp_path: Path) -> None:
    scene = real_time_hog(Scene(cores=4, seconds=40), policy=None)
    scene.row("threads", 26, tid=9, comm="ksoftirqd/2", cpu=2, run_ns=0, wait_ns=2 * NANOS)
    reported = real_time_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None
    assert reported.severity == "critical"
    assert 0.4 <= reported.confidence < 0.8
    assert "rt-hog.no-policy" in doubts(reported)


def test_a_ksoftirqd_that_takes_turns_is_no_evidence(tmp_path: Path) -> None:
    """Any ordinary program makes it wait for short times, which add up."""
    scene = real_time_hog(Scene(cores=4, seconds=40), policy=None)
    scene.row("threads", 26, tid=9, comm="ksoftirqd/2", cpu=2, run_ns=90_000_000, wait_ns=NANOS * 7 // 10, slices=200)
    assert real_time_finding(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_without_policy_wait_or_line_it_is_a_busy_program(tmp_path: Path) -> None:
    scene = real_time_hog(Scene(cores=4, seconds=40), policy=None)
    assert real_time_finding(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_a_core_that_was_set_aside_is_worth_knowing_at_most(tmp_path: Path) -> None:
    scene = real_time_hog(Scene(cores=8, seconds=120), since=0, until=120)
    scene.core(5, 80, 90, user=900).stack(5, 80, 90, 0.9, "job", 7, COMPUTING)
    reported = real_time_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None and reported.severity == "info"


def test_a_real_time_thread_that_works_a_little_is_healthy(tmp_path: Path) -> None:
    scene = real_time_hog(healthy(), share=0.3)
    assert real_time_finding(judged_recording(scene.write(tmp_path), scene.window)) is None


def test_without_stacks_the_log_line_is_reported(tmp_path: Path) -> None:
    scene = real_time_hog(Scene(cores=4, seconds=40).without("samples", "processes"))
    scene.event(24, "rt-throttling", LINE, "warning")
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    reported = real_time_finding(found)
    assert reported is not None
    assert (reported.culprit.cpu, reported.culprit.pid, reported.severity) == (2, None, "warning")
    assert reported.confidence < 0.6


def user_finding(found: Diagnosis) -> Finding | None:
    return next((each for each in found.findings if each.cause == "user-hog"), None)


def user_hog(scene: Scene, cpu: int, since: int = 20, until: int = 30, share: float = 0.97) -> Scene:
    return scene.core(cpu, since, until, user=1000, system=0).stack(cpu, since, until, share, "solver", 4242, COMPUTING)


def test_who_had_the_core_before_gets_little_now(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=40).core(1, 0, 40, user=450).stack(1, 0, 20, 0.45, "peer", 50, COMPUTING)
    user_hog(scene, 1, share=0.92).stack(1, 20, 30, 0.07, "peer", 50, COMPUTING)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    top = found.findings[0]
    assert (top.cause, top.severity, top.culprit.cpu, top.culprit.pid) == ("user-hog", "warning", 1, 4242)
    assert any("peer" in link.text for link in top.chain)
    assert top.confidence >= 0.7
    assert found.verdict == "degraded"


@pytest.mark.parametrize(
    ("waiting", "hurts"),
    [pytest.param(6.0, True, id="crowded"), pytest.param(0.0, False, id="with-room")],
)
def test_where_threads_queue_each_has_less_to_lose(tmp_path: Path, waiting: float, hurts: bool) -> None:
    """The same small loss: where many want the core it is most of what the process had for its turn."""
    scene = Scene(cores=2, seconds=40)
    for cpu in range(2):
        scene.core(cpu, 0, 40, user=1000, wait_ns=round(waiting * NANOS))
        for pid in range(100 + 10 * cpu, 110 + 10 * cpu):
            scene.stack(cpu, 0, 20 if cpu else 40, 0.085, "job", pid, COMPUTING)
            scene.stack(cpu, 20, 40, 0.02 if cpu else 0.0, "job", pid, COMPUTING)
    scene.stack(1, 0, 20, 0.13, "peer", 50, COMPUTING).stack(1, 20, 40, 0.05, "peer", 50, COMPUTING)
    scene.stack(1, 20, 40, 0.73, "solver", 4242, COMPUTING).node(0, 40, running=2 + round(2 * waiting))
    reported = user_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert (reported is not None and reported.severity == "warning") is hurts


@pytest.mark.parametrize(
    ("wait_s", "hurts"),
    [
        pytest.param(0.02, False, id="has-what-it-wants"),
        pytest.param(0.45, True, id="waits"),
        pytest.param(None, True, id="not-followed"),
    ],
)
def test_two_that_share_a_core_with_niced_work_harm_each_other_if_one_waits(
    tmp_path: Path, wait_s: float | None, hurts: bool
) -> None:
    """Niced programs fill every core; two others happen to be on the same, and leave time between them."""
    scene = Scene(cores=2, seconds=40).core(0, 0, 40, nice=990, user=0)
    scene.core(1, 0, 40, nice=150, user=840).stack(0, 0, 40, 0.99, "miner", 60, COMPUTING)
    scene.stack(1, 0, 40, 0.15, "miner", 61, COMPUTING)
    for name, pid in (("pack", 70), ("index", 71)):
        scene.stack(1, 0, 40, 0.42, name, pid, COMPUTING)
        for second in range(40) if wait_s is not None else ():
            times = {"run_ns": 420_000_000, "wait_ns": round((wait_s or 0) * NANOS)}
            about = {"nice": 0, "policy": 0, "affinity": "0-1", "cgroup": "/", "cpuset": "/"}
            scene.row("run_delays", second, tid=pid, pid=pid, comm=name, cpu=1, **times, **about)
    reported = user_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert (reported is not None and reported.severity == "warning") is hurts


def test_one_that_has_to_share_its_core_while_others_idle(tmp_path: Path) -> None:
    """Without a calm time before: the trouble fills the whole recording."""
    scene = Scene(cores=96, seconds=30)
    user_hog(scene, 41, 0, 30, share=0.5).stack(41, 0, 30, 0.49, "pinned", 51, COMPUTING)
    reported = user_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None
    assert (reported.severity, reported.culprit.cpu) == ("warning", 41)


@pytest.mark.slow
def test_the_one_core_with_two_of_96_that_all_compute(tmp_path: Path) -> None:
    scene = Scene(cores=96, seconds=30)
    for cpu in range(95):
        share = 0.49 if cpu == 41 else 0.98
        scene.core(cpu, 0, 30, user=990).stack(cpu, 0, 30, share, "solver", 100 + cpu, COMPUTING)
    scene.stack(41, 0, 30, 0.49, "pinned", 51, COMPUTING)
    reported = user_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None
    assert (reported.culprit.cpu, reported.severity) == (41, "warning")


def test_threads_that_wait_for_this_core_and_no_other(tmp_path: Path) -> None:
    scene = user_hog(healthy(cores=16), 3).core(3, 20, 30, wait_ns=2_500_000_000)
    reported = user_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None
    assert (reported.severity, reported.culprit.cpu, reported.culprit.comm) == ("warning", 3, "solver")


@pytest.mark.parametrize("busy_from", [0, 20])
def test_a_busy_healthy_node_has_nothing_above_info(tmp_path: Path, busy_from: int) -> None:
    scene = healthy(cores=8, busy_from=busy_from)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert {each.severity for each in found.findings} <= {"info"}
    assert found.verdict == "healthy"


def test_a_hog_without_victims_is_info(tmp_path: Path) -> None:
    scene = user_hog(Scene(cores=4, seconds=40), 2)
    found = judged_recording(scene.write(tmp_path), scene.window)
    reported = user_finding(found)
    assert reported is not None and reported.severity == "info"
    assert found.verdict == "healthy"


def test_one_that_was_always_there_comes_after_what_is_new(tmp_path: Path) -> None:
    scene = user_hog(Scene(cores=4, seconds=100), 2, 0, 100)
    scene.core(0, 60, 70, user=1000).stack(0, 60, 70, 0.95, "newcomer", 88, COMPUTING)
    reported = user_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None and reported.culprit.comm == "newcomer"


def test_one_that_ended_was_not_held_back(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=40).core(1, 0, 20, user=450).stack(1, 0, 20, 0.45, "before", 50, COMPUTING)
    reported = user_finding(judged_recording(user_hog(scene, 1).write(tmp_path), scene.window))
    assert reported is not None and reported.severity == "info"


def test_one_that_went_to_another_core_was_not_held_back(tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=40).core(1, 0, 20, user=450).stack(1, 0, 20, 0.45, "peer", 50, COMPUTING)
    user_hog(scene, 1, share=0.9).stack(1, 20, 30, 0.05, "peer", 50, COMPUTING)
    scene.stack(3, 20, 30, 0.4, "peer", 50, COMPUTING).core(3, 20, 30, user=400)
    reported = user_finding(judged_recording(scene.write(tmp_path), scene.window))
    assert reported is not None and reported.severity == "info"


def test_without_stacks_only_the_core_is_reported(tmp_path: Path) -> None:
    scene = user_hog(Scene(cores=4, seconds=40).without("samples"), 2).core(2, 20, 30, wait_ns=1_500_000_000)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    reported = user_finding(found)
    assert reported is not None
    assert (reported.culprit.cpu, reported.culprit.pid, reported.severity) == (2, None, "warning")
    assert reported.confidence < 0.7

"""More work than cores: whose, in which form, who waits; and full nodes on which nothing waits for long."""

from pathlib import Path
from typing import Any

import pytest
from tests.diagnose.codes import codes, doubts
from tests.diagnose.incidents.recordings import diagnosed
from tests.diagnose.judged import judged
from tests.diagnose.nodes import COMPUTING, READING
from tests.diagnose.scenes import Scene, at

from exhume.diagnose.causes import examiners
from exhume.diagnose.evidence.builder import Found
from exhume.diagnose.evidence.case import Case
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Diagnosis, EntityKind, Finding, Severity, Verdict

CORES, SECONDS, SINCE, UNTIL = 4, 40, 20, 34
ALL = "0-3"


def run_delay(  # noqa: PLR0917
    scene: Scene,
    pid: int,
    comm: str,
    run_s: float,
    wait_s: float,
    tid: int | None = None,
    cpu: int = 0,
    **about: object,
) -> None:
    """A followed thread, each second of the trouble."""
    row = {"nice": 0, "policy": 0, "affinity": ALL, "cgroup": "/", "cpuset": "/", **about}
    times = {"run_ns": round(run_s * NANOS), "wait_ns": round(wait_s * NANOS)}
    for second in range(SINCE, UNTIL):
        scene.row("run_delays", second, tid=tid or pid, pid=pid, comm=comm, cpu=cpu, **times, **row)


def full(waiting: float | None, *, cores: int = CORES, state: str = "user") -> Scene:
    """A node with a little to do, all of whose cores are full from one second to another, with waiting threads."""
    scene = Scene(cores=cores, seconds=SECONDS)
    for cpu in range(cores):
        nanos = None if waiting is None else round(waiting * NANOS)
        scene.core(cpu, 0, SECONDS, user=150, wait_ns=None if waiting is None else 10_000_000)
        scene.core(cpu, SINCE, UNTIL, **{"user": 0, state: 990}, wait_ns=nanos)
        scene.stack(cpu, 0, SINCE, 0.15, "api", 500 + cpu, COMPUTING)
        scene.stack(cpu, UNTIL, SECONDS, 0.15, "api", 500 + cpu, COMPUTING)
        scene.stack(cpu, SINCE, UNTIL, 0.1, "api", 500 + cpu, COMPUTING)
    scene.node(0, SECONDS, running=2, psi_cpu_some=30_000)
    running = cores * 4 if waiting is None else round(cores * (1 + waiting))
    scene.node(SINCE, UNTIL, running=running, psi_cpu_some=980_000)
    return scene


def noisy(**about: object) -> Scene:
    """One program with many threads."""
    scene = full(2.0)
    for cpu in range(CORES):
        scene.stack(cpu, SINCE, UNTIL, 0.88, "encoder", 900, COMPUTING)
        run_delay(scene, 500 + cpu, "api", 0.1, 0.3, cpu=cpu)
    for tid in range(900, 912):
        run_delay(scene, 900, "encoder", 0.29, 0.6, tid=tid, **about)
    return scene


def found(diagnosis: Diagnosis, cause: str = "cpu-overcommit") -> Finding:
    return next(each for each in diagnosis.findings if each.cause == cause)


def remedies(finding: Finding) -> set[str]:
    return {each.id for each in finding.remedies}


def test_one_noisy_neighbour_is_named_with_what_waits_and_what_changed(tmp_path: Path) -> None:
    diagnosis = judged(noisy(), tmp_path)
    finding = diagnosis.findings[0]
    assert (finding.cause, finding.severity, diagnosis.verdict) == (
        "cpu-overcommit",
        Severity.WARNING,
        Verdict.DEGRADED,
    )
    assert (finding.culprit.pid, finding.culprit.comm) == (900, "encoder")
    assert {"cpu-overcommit.queue", "cpu-overcommit.pressure", "cpu-overcommit.changed"} <= set(codes(finding))
    assert finding.names("api", EntityKind.PROCESS), "one of the others waits longest"
    assert remedies(finding) == {"give-way", "give-way-in-session", "move-work"}
    assert all(each.target in ("900", "") for each in finding.remedies)


def test_the_unit_of_a_noisy_neighbour_has_the_remedy(tmp_path: Path) -> None:
    scene = noisy(cgroup="/system.slice/encoder.service")
    scene.row("processes", 1, pid=900, comm="encoder", cgroup="/system.slice/encoder.service")
    scene.row("cgroup_cpu", SINCE, cgroup="/system.slice/encoder.service", shares=1024, quota=3.0)
    finding = found(judged(scene, tmp_path))
    assert [(each.id, each.target) for each in finding.remedies] == [
        ("lower-unit-weight", "encoder.service"),
        ("move-work", ""),
    ]
    demand = next(link for link in finding.chain if link.code == "cpu-overcommit.demand")
    assert "1,024" in demand.text and "quota 3 cores" in demand.text
    assert finding.names("encoder.service", EntityKind.UNIT)
    assert ("cgroup_cpu", "shares", 1024) in [(each.table, each.column, each.value) for each in demand.evidence]


def test_the_shares_of_a_pod_are_its_request(tmp_path: Path) -> None:
    path = "/kubepods/burstable/pod0f3c2e1a-0000-4000-8000-000000000001/" + "a" * 64
    scene = noisy(cgroup=path).row("processes", 1, pid=900, comm="encoder", cgroup=path)
    scene.row("cgroup_cpu", SINCE, cgroup=path, shares=512)
    finding = found(judged(scene, tmp_path))
    assert "set-requests" in remedies(finding)
    assert any("a request of 0.5 cores" in link.text for link in finding.chain)


def many(**about: object) -> Scene:
    scene = full(2.0, state=str(about.pop("state", "user")))
    for number in range(12):
        pid, cpu = 900 + number, number % CORES
        scene.stack(cpu, SINCE, UNTIL, 0.29, f"worker{number % 5}", pid, COMPUTING)
        run_delay(scene, pid, f"worker{number % 5}", 0.29, 0.6, cpu=cpu, **about)
    return scene


def test_many_programs_alike_have_no_single_culprit(tmp_path: Path) -> None:
    finding = judged(many(), tmp_path).findings[0]
    assert (finding.cause, finding.severity, finding.culprit.pid) == ("cpu-overcommit", Severity.WARNING, None)
    assert remedies(finding) == {"move-work"}


@pytest.mark.parametrize(
    "about", [{"nice": 19, "state": "nice"}, {"policy": 5}, {"cgroup": "/kubepods/besteffort/pod1"}]
)
def test_work_that_gives_way_to_others_harms_no_one(tmp_path: Path, about: dict[str, object]) -> None:
    scene = many(**about)
    scene.row("cgroup_cpu", SINCE, cgroup="/kubepods/besteffort/pod1", shares=2)
    for cpu in range(CORES):
        run_delay(scene, 500 + cpu, "api", 0.1, 0.02, cpu=cpu)
    diagnosis = judged(scene, tmp_path)
    assert diagnosis.verdict is Verdict.HEALTHY
    assert {each.severity for each in diagnosis.findings} <= {Severity.INFO}
    assert not found(diagnosis).remedies


def test_niced_work_that_makes_others_wait_is_reported(tmp_path: Path) -> None:
    scene = many(nice=19, state="nice")
    for number in range(8):
        run_delay(scene, 700 + number, "api", 0.1, 0.8)
    assert found(judged(scene, tmp_path)).severity is Severity.WARNING


@pytest.mark.parametrize(
    ("before", "code", "doubted"),
    [
        pytest.param(5.0, "cpu-overcommit.queue-as-before", True, id="more-before"),
        pytest.param(0.4, "cpu-overcommit.queue", False, id="fewer-before"),
    ],
)
def test_a_queue_that_is_no_longer_than_before_is_not_presented_as_new(
    tmp_path: Path, before: float, code: str, doubted: bool
) -> None:
    scene = many()
    for cpu in range(CORES):
        scene.core(cpu, 0, SINCE, user=990, wait_ns=round(before * NANOS))
        scene.core(cpu, UNTIL, SECONDS, user=990, wait_ns=round(before * NANOS))
    case = Case(scene.write(tmp_path), Window(at(SINCE), at(UNTIL)), Window(at(0), at(SINCE - 1)))
    answer = examiners()["cpu-overcommit"](case)
    assert isinstance(answer, Found)
    assert code in codes(answer.finding)
    assert ("shared.not-new" in doubts(answer.finding)) is doubted


def test_jobs_of_a_build_are_named_as_short_lived(tmp_path: Path) -> None:
    scene = full(2.0)
    for second in range(SINCE, UNTIL):
        for cpu in range(CORES):
            for number in range(3):
                pid = 5000 + second * 100 + cpu * 10 + number
                scene.stack(cpu, second, second + 1, 0.29, "cc1", pid, COMPUTING)
    run_delay(scene, 500, "api", 0.1, 0.5)
    finding = judged(scene, tmp_path).findings[0]
    assert (finding.cause, finding.severity) == ("cpu-overcommit", Severity.WARNING)
    assert (finding.culprit.comm, finding.culprit.pid) == ("cc1", None)
    assert "cpu-overcommit.short-lived" in codes(finding) and "fewer-jobs" in remedies(finding)


@pytest.mark.parametrize(
    ("counts", "severity"),
    [
        pytest.param((16, 15, 17), Severity.WARNING, id="counts-agree"),
        pytest.param((12, 40, 8), Severity.INFO, id="a-crowd-at-some-ticks"),
    ],
)
def test_jobs_too_short_to_be_followed_wait_as_the_counts_say(
    tmp_path: Path, counts: tuple[int, ...], severity: Severity
) -> None:
    """The followed threads are those of other work, which sleeps in between and hardly waits."""
    scene = full(None)
    for cpu in range(CORES):
        run_delay(scene, 600 + cpu, "pack", 0.7, 0.3, cpu=cpu)
        scene.stack(cpu, SINCE, UNTIL, 0.65, "pack", 600 + cpu, COMPUTING)
        for second in range(SINCE, UNTIL):
            scene.stack(cpu, second, second + 1, 0.2, "cc1", 2_000 + 10 * second + cpu, COMPUTING)
    for second in range(SINCE, UNTIL):
        scene.node(second, second + 1, running=counts[second % len(counts)])
    assert found(judged(scene, tmp_path)).severity is severity


def test_two_cores_ten_tasks_and_a_ksoftirqd_that_waits_is_starved(tmp_path: Path) -> None:
    """On a kernel that doesn't count waits: only runnable threads, pressure and ksoftirqd are known."""
    scene = full(None, cores=2)
    for number in range(10):
        scene.stack(number % 2, SINCE, UNTIL, 0.17, "cc1plus", 900 + number, COMPUTING)
    scene.row("threads", 27, tid=14, comm="ksoftirqd/0", cpu=0, run_ns=1_000_000, wait_ns=1_400_000_000)
    diagnosis = judged(scene, tmp_path)
    finding = diagnosis.findings[0]
    assert (finding.cause, finding.severity, diagnosis.verdict) == (
        "cpu-overcommit",
        Severity.CRITICAL,
        Verdict.STARVED,
    )
    assert {"symptom.ksoftirqd", "cpu-overcommit.queue"} <= set(codes(finding))
    assert {"cpu-overcommit.only-counted", "cpu-overcommit.no-threads"} <= {each.code for each in finding.doubts}


@pytest.mark.parametrize(
    ("waited_s", "slices", "severity", "verdict"),
    [
        pytest.param(0.8, 55, Severity.WARNING, Verdict.DEGRADED, id="turns"),
        pytest.param(0.8, 2, Severity.CRITICAL, Verdict.STARVED, id="one-long-wait"),
        pytest.param(1.4, 55, Severity.CRITICAL, Verdict.STARVED, id="longer-than-the-tick"),
        pytest.param(0.8, None, Severity.CRITICAL, Verdict.STARVED, id="turns-not-counted"),
    ],
)
def test_a_ksoftirqd_that_gets_its_turns_does_not_starve(
    tmp_path: Path, waited_s: float, slices: int | None, severity: Severity, verdict: Verdict
) -> None:
    """On a full node its many short waits add up to most of a second, like those of every other thread."""
    scene, waited = many(), round(waited_s * NANOS)
    row = {"tid": 14, "comm": "ksoftirqd/0", "cpu": 0, "run_ns": 40_000_000, "slices": slices}
    scene.row("threads", 27, wait_ns=waited, **row)
    diagnosis = judged(scene, tmp_path)
    finding = diagnosis.findings[0]
    assert (finding.cause, finding.severity, diagnosis.verdict) == ("cpu-overcommit", severity, verdict)
    assert "symptom.ksoftirqd" in codes(finding)


@pytest.mark.parametrize(
    ("share", "starved"),
    [
        pytest.param(0.88, False, id="whole-core"),
        pytest.param(0.55, False, id="twice-its-turn"),
        pytest.param(0.25, True, id="its-turn"),
    ],
)
def test_a_ksoftirqd_that_waited_behind_one_process_is_not_its_symptom(
    tmp_path: Path, share: float, starved: bool
) -> None:
    """The core was held by one process meanwhile: the others on it are not the reason."""
    scene = full(2.0)
    walk = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64", "memcg_stat_show", "mem_cgroup_iter"]
    for number in range(12):
        pid, cpu = 900 + number, number % CORES
        for since, until in ((SINCE, 24), (28, UNTIL)) if cpu == 0 else ((SINCE, UNTIL),):
            scene.stack(cpu, since, until, 0.29, "worker", pid, COMPUTING)
        run_delay(scene, pid, "worker", 0.29, 0.6, cpu=cpu)
    scene.stack(0, 24, 28, share, "collector", 77, walk)
    for pid in (600, 601, 602):
        scene.stack(0, 24, 28, (0.88 - share) / 3, "worker", pid, COMPUTING)
    scene.row("threads", 27, tid=14, comm="ksoftirqd/0", cpu=0, run_ns=1_000_000, wait_ns=2_400_000_000)
    assert (found(judged(scene, tmp_path)).severity is Severity.CRITICAL) is starved


def test_a_process_with_the_turns_of_its_many_threads_holds_no_core(tmp_path: Path) -> None:
    """Two programs with four threads for each core have half of it each: more than the turn of one thread."""
    scene = full(3.0)
    for pid, comm in ((900, "left"), (901, "right")):
        for cpu in range(CORES):
            scene.stack(cpu, SINCE, UNTIL, 0.44, comm, pid, COMPUTING)
        for number in range(4 * CORES):
            run_delay(scene, pid, comm, 0.11, 0.85, tid=1000 * pid + number)
    scene.row("threads", 27, tid=14, comm="ksoftirqd/0", cpu=0, run_ns=1_000_000, wait_ns=2_400_000_000)
    assert found(judged(scene, tmp_path)).severity is Severity.CRITICAL


def test_a_full_batch_node_where_nothing_waits_long_is_healthy(tmp_path: Path) -> None:
    scene = full(0.2)
    for cpu in range(CORES):
        scene.stack(cpu, SINCE, UNTIL, 0.88, "batch", 900 + cpu, COMPUTING)
        run_delay(scene, 900 + cpu, "batch", 0.88, 0.1, cpu=cpu)
        run_delay(scene, 500 + cpu, "api", 0.1, 0.05, cpu=cpu)
    diagnosis = judged(scene, tmp_path)
    assert diagnosis.verdict is Verdict.HEALTHY
    assert "cpu-overcommit" not in [each.cause for each in diagnosis.findings]


def test_a_cause_with_a_real_share_stands_above_and_a_small_one_below(tmp_path: Path) -> None:
    lock = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64", "do_futex", "native_queued_spin_lock_slowpath"]
    for share, first in ((0.5, "spinlock-contention"), (0.0, "cpu-overcommit")):
        scene = full(2.0)
        for number in range(12):
            scene.stack(number % CORES, SINCE, UNTIL, 0.29 * (1 - share), "worker", 900 + number, COMPUTING)
            run_delay(scene, 900 + number, "worker", 0.29, 0.6)
        for cpu in range(CORES):
            scene.core(cpu, SINCE, UNTIL, user=990 - round(900 * share), system=round(900 * share))
            scene.stack(cpu, SINCE, UNTIL, 0.87 * share + 0.03, "locker", 800 + cpu, lock)
        diagnosis = judged(scene, tmp_path / str(share))
        assert diagnosis.findings[0].cause == first
        assert found(diagnosis), "it is never hidden"


def test_a_loop_that_costs_next_to_nothing_stands_below_mild_overcommit(tmp_path: Path) -> None:
    scene = full(0.8)
    for cpu in range(CORES):
        run_delay(scene, 600 + cpu, "pack", 0.9, 0.8, cpu=cpu)
        scene.stack(cpu, SINCE, UNTIL, 0.85, "pack", 600 + cpu, COMPUTING)
    for second in (25.0, 30.0):
        more = {"source": "recorder", "comm": "curl", "pid": 3_000, "value": 4.0, "exit_code": 22}
        scene.event(second, "restart", "curl was started 4 times", "warning", **more)
    diagnosis = judged(scene, tmp_path)
    assert {each.severity for each in diagnosis.findings} == {Severity.INFO}
    causes = [each.cause for each in diagnosis.findings]
    assert causes[0] == "cpu-overcommit" and "crash-loop" in causes


def test_the_calm_seconds_of_a_focus_are_no_room_for_what_waits_in_the_others(tmp_path: Path) -> None:
    scene = full(2.0)
    for cpu in range(CORES):
        scene.stack(cpu, SINCE, UNTIL, 0.88, "encoder", 900, COMPUTING)
    begin = SINCE - (UNTIL - SINCE) - 2
    case = Case(scene.write(tmp_path), Window(at(begin), at(UNTIL)), Window(at(0), at(begin)))
    assert isinstance(examiners()["cpu-overcommit"](case), Found)


def test_without_followed_threads_it_is_found_with_a_doubt(tmp_path: Path) -> None:
    finding = found(judged(many().without("run_delays"), tmp_path))
    assert finding.severity is Severity.WARNING
    assert "cpu-overcommit.no-threads" in {each.code for each in finding.doubts}


def bound(cores: str, *, cpuset: str = "/", threads: int = 4, **facts: Any) -> Scene:
    """Threads on core 2, while the other cores have room."""
    scene = Scene(cores=CORES, seconds=SECONDS, **facts)
    scene.core(2, SINCE, UNTIL, user=995, wait_ns=round((threads - 1) * NANOS))
    for number in range(threads):
        pid = 900 + number
        scene.stack(2, SINCE, UNTIL, 0.99 / threads, "poller", pid, COMPUTING)
        run_delay(scene, pid, "poller", 1 / threads, 1 - 1 / threads, cpu=2, affinity=cores, cpuset=cpuset)
    return scene


def test_threads_that_are_bound_to_one_core_wait_for_each_other(tmp_path: Path) -> None:
    diagnosis = judged(bound("2"), tmp_path)
    finding = diagnosis.findings[0]
    assert (finding.cause, finding.severity, finding.culprit.cpu) == ("cpu-overcommit", Severity.WARNING, 2)
    assert {"cpu-overcommit.stacked", "cpu-overcommit.room"} <= set(codes(finding))
    assert "spread-threads" in remedies(finding)
    assert "user-hog" not in [each.cause for each in diagnosis.findings], "none of them is the hog"


def test_a_hog_and_its_victim_on_one_core_are_not_a_stack(tmp_path: Path) -> None:
    diagnosis = judged(bound("2", threads=2), tmp_path)
    assert [each.cause for each in diagnosis.findings] == ["user-hog"]


def test_a_cpuset_that_is_too_small_while_others_idle(tmp_path: Path) -> None:
    scene = bound("2", cpuset="/pinned/db").row("cgroup_cpu", SINCE, cgroup="/pinned/db", cores="2")
    finding = judged(scene, tmp_path).findings[0]
    assert (finding.cause, finding.severity) == ("cpuset-squeeze", Severity.WARNING)
    assert (finding.culprit.cgroup, finding.culprit.cpu) == ("/pinned/db", 2)
    assert [(each.id, each.target) for each in finding.remedies] == [("widen-cpuset", "/pinned/db")]


def test_the_cpuset_of_a_pod_has_the_remedy_of_the_kubelet(tmp_path: Path) -> None:
    path = "/kubepods/pod0f3c2e1a-0000-4000-8000-000000000001/" + "a" * 64
    scene = bound("2", cpuset=path).row("cgroup_cpu", SINCE, cgroup=path, cores="2")
    finding = judged(scene, tmp_path).findings[0]
    assert (finding.cause, [each.id for each in finding.remedies]) == ("cpuset-squeeze", ["fit-pod-cpuset"])


def test_a_cpuset_with_room_or_on_a_full_node_is_not_squeezed(tmp_path: Path) -> None:
    idle = bound("2", cpuset="/db").row("cgroup_cpu", SINCE, cgroup="/db", cores="1-2")
    full_node = many(cpuset="/db", affinity="0-1").row("cgroup_cpu", SINCE, cgroup="/db", cores="0-1")
    for number, scene in enumerate((idle, full_node)):
        causes = [each.cause for each in judged(scene, tmp_path / str(number)).findings]
        assert "cpuset-squeeze" not in causes


def test_a_cpuset_whose_threads_wait_while_those_on_other_full_cores_hardly_do(tmp_path: Path) -> None:
    def scene(waiting_elsewhere: float) -> Scene:
        scene = bound("2", cpuset="/pinned/db", threads=8).row("cgroup_cpu", SINCE, cgroup="/pinned/db", cores="2")
        for cpu in (0, 1, 3):
            scene.core(cpu, SINCE, UNTIL, user=990, wait_ns=round(waiting_elsewhere * NANOS))
            for number in range(2):
                pid = 600 + 2 * cpu + number
                scene.stack(cpu, SINCE, UNTIL, 0.49, "api", pid, COMPUTING)
                run_delay(scene, pid, "api", 0.49, waiting_elsewhere / 2, cpu=cpu)
        scene.node(SINCE, UNTIL, running=15, psi_cpu_some=980_000)
        return scene

    diagnosis = judged(scene(0.1), tmp_path / "unfair")
    finding = diagnosis.findings[0]
    assert (finding.cause, finding.severity, finding.culprit.cgroup) == (
        "cpuset-squeeze",
        Severity.WARNING,
        "/pinned/db",
    )
    assert "cpuset-squeeze.gain" in codes(finding)
    # Where all wait alike, other cores are no way out.
    causes = [each.cause for each in judged(scene(2.0), tmp_path / "fair").findings]
    assert causes[0] == "cpu-overcommit" and "cpuset-squeeze" not in causes


def test_reading_files_on_full_cores_without_waiting_is_no_overcommit(tmp_path: Path) -> None:
    scene = full(0.3)
    for cpu in range(CORES):
        scene.stack(cpu, SINCE, UNTIL, 0.88, "backup", 900 + cpu, READING)
    assert "cpu-overcommit" not in [each.cause for each in judged(scene, tmp_path).findings]


@pytest.mark.parametrize(
    ("scenario", "of_one", "jobs"),
    [
        ("overcommit-noisy", True, False),
        ("overcommit-equal", False, False),
        ("overcommit-builds", False, True),
    ],
)
def test_recorded_forms_are_distinguished(scenario: str, of_one: bool, jobs: bool) -> None:
    finding = diagnosed(scenario).findings[0]
    assert (finding.culprit.pid is not None) is of_one
    assert ("fewer-jobs" in remedies(finding)) is jobs
    assert any(link.code == "cpu-overcommit.waiter" for link in finding.chain)

"""Where the time of a window went: every breakdown adds up, and what was lost has its cause, or none."""

from pathlib import Path

import pytest
from tests.diagnose.incidents.recordings import SCENARIOS, STACKS, diagnosed, diagnosis_of, expected, without
from tests.diagnose.judged import judged
from tests.diagnose.nodes import COMPUTING, healthy
from tests.diagnose.scenes import Scene, at
from tests.parts import sampled

from exhume.diagnose.engine import judge
from exhume.diagnose.evidence.case import Case
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Accounting, Diagnosis, TimeKind, TimeRow

WALK = ["do_syscall_64", "memcg_stat_show", "mem_cgroup_iter"]
POD = "0a1b2c3d-1111-2222-3333-444455556666"
IN_POD = f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{'ab' * 32}.scope"


def accounting_of(found: Diagnosis) -> Accounting:
    assert found.accounting is not None
    return found.accounting


def seconds(rows: tuple[TimeRow, ...]) -> dict[str, float]:
    return {row.id: row.seconds for row in rows}


def assert_whole(accounting: Accounting) -> None:
    """Every breakdown that applies adds up to its total, and the shares to one."""
    for table in (accounting.cpu, accounting.waiting, accounting.lost):
        for rows in (table.by_state, table.by_cause, table.by_owner):
            assert all(row.seconds >= 0 for row in rows)
            assert len({(row.kind, row.id) for row in rows}) == len(rows)
            if rows:
                assert sum(row.seconds for row in rows) == pytest.approx(table.total_s, abs=1e-3)
                assert sum(row.share for row in rows) == pytest.approx(1.0 if table.total_s else 0.0, abs=1e-3)
    assert accounting.cpu.by_state and accounting.cpu.by_cause and accounting.cpu.by_owner


@pytest.mark.parametrize("scenario", sampled(SCENARIOS))
def test_the_times_of_real_recordings_add_up(scenario: str, tmp_path: Path) -> None:
    found = diagnosed(scenario)
    accounting = accounting_of(found)
    assert_whole(accounting)
    assert (accounting.since, accounting.until) == found.focus
    cause = expected(scenario)["expected"]
    lost = seconds(accounting.lost.by_cause)
    graves = [each.cause for each in found.findings if each.severity != "info"]
    if not graves:
        assert all(row.kind is TimeKind.REST for row in accounting.lost.by_cause)
    else:
        # More work than cores may cost more than what one program does to others.
        assert (
            max((key for key in lost if key in graves and key in (cause, *graves[:1])), key=lost.__getitem__) == cause
        )
        assert found.findings[0].lost_s == pytest.approx(lost[cause], abs=0.01)
    assert_whole(accounting_of(diagnosis_of(without(scenario, STACKS, tmp_path))))


def two_causes() -> Scene:
    """A throttled cgroup that loses 0.6 s a second, and a walker that has core 2 and for which threads wait."""
    scene = Scene(cores=4, seconds=40)
    scene.stack(0, 0, 40, 0.3, "shop", 500, COMPUTING).core(0, 0, 40, user=300)
    scene.row("processes", 0, pid=500, comm="shop", cgroup=IN_POD, container="ab" * 32, pod=POD, pod_name="shop/web-0")
    for second in range(20, 30):
        scene.row("throttling", second, cgroup=IN_POD, periods=10, throttled=9, throttled_ns=600_000_000, quota=0.3)
    scene.core(2, 20, 30, system=980, wait_ns=400_000_000).stack(2, 20, 30, 0.97, "kubelet", 77, WALK)
    for second in (5, 15, 25):
        scene.row("cgroups", second, hierarchy="memory", parent="", kernel=30_300, visible=300, dying=30_000)
    return scene


def test_each_of_two_causes_has_its_share_of_the_lost_time(tmp_path: Path) -> None:
    found = judged(two_causes(), tmp_path)
    accounting = accounting_of(found)
    assert {each.cause for each in found.findings[:2]} == {"cfs-throttling", "zombie-memcgs"}
    assert_whole(accounting)
    lost = seconds(accounting.lost.by_cause)
    # What the walker took, and what was queued for its core: that of other threads than the throttled ones.
    assert lost["cfs-throttling"] == pytest.approx(6.0, abs=0.01)
    assert 9.0 < lost["zombie-memcgs"] < 14.0
    assert lost.get("unexplained", 0.0) < 0.1 * accounting.lost.total_s
    assert all(f"{lost[cause]:.1f} to {cause}" in accounting.text for cause in ("cfs-throttling", "zombie-memcgs"))
    assert {each.cause: each.lost_s for each in found.findings}["cfs-throttling"] == pytest.approx(6.0, abs=0.01)
    assert seconds(accounting.waiting.by_owner)[POD] == pytest.approx(6.0, abs=0.01)


def test_waiting_is_that_of_the_threads_that_were_followed(tmp_path: Path) -> None:
    """By their owners; what is more than they waited is that of threads which were not followed."""
    scene = two_causes().row("processes", 0, pid=78, comm="db", cgroup="/system.slice/db.service")
    for second in range(20, 30):
        row = {"cpu": 2, "run_ns": 10_000_000}
        scene.row("run_delays", second, tid=78, pid=78, comm="db", wait_ns=200_000_000, **row)
        scene.row("run_delays", second, tid=79, pid=78, comm="db-writer", wait_ns=50_000_000, **row)
        scene.row("run_delays", second, tid=90, pid=90, comm="cron", wait_ns=30_000_000, **row)
        # Stopped by its quota, which counts once.
        scene.row("run_delays", second, tid=500, pid=500, comm="shop", wait_ns=600_000_000, **row)
        scene.row("threads", second, tid=30, comm="ksoftirqd/2", wait_ns=20_000_000, **row)
        scene.row("run_delays", second, tid=30, pid=30, comm="ksoftirqd/2", wait_ns=20_000_000, **row)
    accounting = accounting_of(judged(scene, tmp_path))
    assert_whole(accounting)
    waited = {(row.kind, row.name): row.seconds for row in accounting.waiting.by_owner}
    assert waited[TimeKind.UNIT, "db.service"] == pytest.approx(2.5, abs=0.01)
    assert waited[TimeKind.PROCESS, "cron"] == pytest.approx(0.3, abs=0.01)
    assert waited[TimeKind.PROCESS, "ksoftirqd/2"] == pytest.approx(0.2, abs=0.01)
    assert waited[TimeKind.POD, "shop/web-0"] == pytest.approx(6.0, abs=0.01)
    assert seconds(accounting.waiting.by_owner)["unknown"] == pytest.approx(4.0 - 3.0, abs=0.1)


def test_owners_are_pods_units_and_processes(tmp_path: Path) -> None:
    scene = two_causes().row("processes", 0, pid=77, comm="kubelet", cgroup="/system.slice/agent.service")
    scene.stack(3, 0, 40, 0.2, "lonely", 9, COMPUTING).core(3, 0, 40, user=200)
    rows = {(row.kind, row.name): row.seconds for row in accounting_of(judged(scene, tmp_path)).cpu.by_owner}
    assert rows[TimeKind.POD, "shop/web-0"] == pytest.approx(3.0, abs=0.1)
    assert rows[TimeKind.UNIT, "agent.service"] == pytest.approx(9.7, abs=0.2)
    assert rows[TimeKind.PROCESS, "lonely"] == pytest.approx(2.0, abs=0.1)


def test_small_owners_are_one_row(tmp_path: Path) -> None:
    scene = Scene(cores=4)
    for number in range(40):
        scene.stack(number % 4, 0, 40, 0.02, f"small-{number}", 100 + number, COMPUTING)
    for cpu in range(4):
        scene.core(cpu, 0, 40, user=200)
    rows = accounting_of(judged(scene, tmp_path)).cpu.by_owner
    assert len([row for row in rows if row.kind is TimeKind.PROCESS]) == 12
    assert seconds(rows)["small"] == pytest.approx(28 * 0.02 * 40, abs=1.0)


def test_waiting_as_before_is_not_lost(tmp_path: Path) -> None:
    """All cores have threads that wait 0.4 s a second, always; for ten seconds those of core 1 wait five times that."""
    scene = healthy(seconds=60).core(1, 30, 40, wait_ns=2 * NANOS)
    accounting = accounting_of(judged(scene, tmp_path))
    waiting = seconds(accounting.waiting.by_cause)
    assert accounting.waiting.total_s == pytest.approx(32.0, rel=0.05)
    assert waiting["usual"] == pytest.approx(16.0, rel=0.05)
    assert accounting.lost.total_s == pytest.approx(16.0, rel=0.05)


def test_a_wait_that_is_counted_late_belongs_to_what_held_the_core(tmp_path: Path) -> None:
    """The kernel counts a wait when the thread runs: after the walker is gone."""
    scene = Scene(cores=2).core(1, 20, 24, system=990).stack(1, 20, 24, 0.98, "kubelet", 77, WALK)
    scene.core(1, 24, 25, user=900, wait_ns=4 * NANOS).stack(1, 24, 25, 0.9, "web", 9, COMPUTING)
    scene.row("cgroups", 15, hierarchy="memory", parent="", kernel=30_300, visible=300, dying=30_000)
    case = Case(scene.write(tmp_path), Window(at(20), at(25)), Window(at(0), at(19)))
    waiting = seconds(judge(case).ledger.accounting().waiting.by_cause)
    assert waiting["zombie-memcgs"] == pytest.approx(4 * 4 / 4.9, abs=0.1)


def test_without_schedstats_waiting_is_estimated_from_pressure(tmp_path: Path) -> None:
    scene = Scene(cores=2).node(0, 40, psi_cpu_some=0, running=2).node(20, 30, psi_cpu_some=900_000, running=7)
    for cpu in range(2):
        scene.core(cpu, 0, 40, wait_ns=None, user=100).core(cpu, 20, 30, user=1000)
        scene.stack(cpu, 20, 30, 0.98, "build", 50 + cpu, COMPUTING)
    accounting = accounting_of(judged(scene, tmp_path))
    assert accounting.estimated
    # Four more than the cores and the recorder.
    assert accounting.waiting.total_s == pytest.approx(10 * 0.9 * 4, rel=0.15)


def test_without_any_cores_there_is_nothing_to_account_for(tmp_path: Path) -> None:
    assert judged(Scene(cores=2).without("cpu"), tmp_path).accounting is None

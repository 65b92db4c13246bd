"""Audit records that cost a part of a core, or that nobody takes away in time."""

from pathlib import Path

from tests.diagnose.codes import codes
from tests.diagnose.judged import judged
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding

CALL = ["app:poll", "entry_SYSCALL_64_after_hwframe", "do_syscall_64"]
WRITE = [
    *CALL,
    "syscall_exit_work",
    "__audit_syscall_exit",
    "audit_log_exit",
    "audit_log_task_info",
    "audit_log_format",
]
FILTER = [*CALL, "syscall_trace_enter", "__audit_syscall_exit", "audit_filter_syscall", "audit_filter_rules"]
SEND = ["kthread", "kauditd_thread", "kauditd_send_queue", "netlink_unicast"]
OPEN = [*CALL, "do_sys_openat2", "path_openat"]


def of(found: Diagnosis, cause: str = "audit-storm") -> Finding | None:
    return next((each for each in found.findings if each.cause == cause), None)


def audited(scene: Scene, cpu: int, frames: list[str]) -> Scene:
    scene.core(cpu, 20, 30, system=850, user=140).stack(cpu, 20, 30, 0.5, "scanner", 600, frames)
    return scene.stack(cpu, 20, 30, 0.34, "scanner", 600, OPEN).stack(cpu - 1, 20, 30, 0.1, "kauditd", 40, SEND)


def test_one_core_of_many(tmp_path: Path) -> None:
    scene = audited(Scene(cores=96), 39, WRITE)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.severity, top.culprit.cpu, top.culprit.pid) == ("audit-storm", "warning", 39, 600)
    assert "audit-storm.writing" in codes(top)
    assert any("pid=600" in remedy.command for remedy in top.remedies)


def test_many_rules_that_match_nothing(tmp_path: Path) -> None:
    scene = audited(Scene(cores=4), 2, FILTER)
    found = of(judged(scene, tmp_path))
    assert found is not None
    assert "audit-storm.filtering" in codes(found)


def test_a_core_lost_to_it_is_grave(tmp_path: Path) -> None:
    scene = Scene(cores=4).core(2, 20, 30, system=990).stack(2, 20, 30, 0.9, "scanner", 600, WRITE)
    found = of(judged(scene, tmp_path))
    assert found is not None and found.severity == "critical"


def test_backlog_lines_of_the_log_are_evidence(tmp_path: Path) -> None:
    scene = audited(Scene(cores=4), 2, WRITE)
    scene.event(25, "kernel-line", "audit: backlog limit exceeded", "warning")
    with_log = of(judged(scene, tmp_path / "log"))
    scene = Scene(cores=4).core(2, 20, 30, system=500)
    scene.event(25, "kernel-line", "audit: audit_backlog=4097 > audit_backlog_limit=4096", "warning")
    log_only = of(judged(scene.without("samples"), tmp_path / "only"))
    assert with_log is not None and with_log.confidence >= 0.9
    assert log_only is not None and log_only.severity == "info" and log_only.confidence <= 0.5


def test_auditing_that_costs_little(tmp_path: Path) -> None:
    scene = Scene(cores=4)
    for cpu in range(4):
        scene.core(cpu, 0, 40, user=700, system=200).stack(cpu, 0, 40, 0.05, "web", 70 + cpu, FILTER)
        scene.stack(cpu, 20, 30, 0.1, "web", 70 + cpu, WRITE).stack(cpu, 0, 40, 0.7, "web", 70 + cpu, ["app:work"])
    found = judged(scene, tmp_path)
    assert of(found) is None and found.verdict == "healthy"

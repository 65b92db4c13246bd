"""A fork storm is reported by what it takes of a core, and by the process that forks; a build is not one."""

from pathlib import Path

from tests.diagnose.codes import doubts, reason
from tests.diagnose.judged import judged_recording
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding

FORKS = ["entry_SYSCALL_64_after_hwframe", "do_syscall_64", "__x64_sys_clone", "kernel_clone", "copy_process", "dup_mm"]
EXITS = ["do_syscall_64", "__x64_sys_exit_group", "do_group_exit", "do_exit", "mmput", "exit_mmap", "unmap_vmas"]
EXEC = ["el0_svc", "__arm64_sys_execve", "do_execveat_common", "bprm_execve", "load_elf_binary"]
FAULT = ["asm_exc_page_fault", "exc_page_fault", "handle_mm_fault", "do_wp_page"]
WORK = ["cc1:parse", "cc1:optimise"]


def storm(scene: Scene, cpu: int, since: int, until: int, forks: int = 3_000) -> Scene:
    """A parent that forks, and children of a moment, each sampled once or twice."""
    scene.core(cpu, since, until, system=880, user=110).node(since, until, forks=forks)
    scene.row("processes", 1, pid=700, ppid=1, start=0, comm="cgi-handler", cmdline="/srv/cgi --fork", cgroup="/web")
    scene.stack(cpu, since, until, 0.35, "cgi-handler", 700, FORKS)
    for second in range(since, until):
        for n in range(10):
            pid = 10_000 + second * 100 + n
            scene.row("processes", second, pid=pid, ppid=700, comm="cgi-handler")
            scene.stack(cpu, second, second + 1, 0.05, "cgi-handler", pid, (EXITS, FAULT, EXEC)[n % 3])
    return scene


def calm(scene: Scene, forks: int = 20) -> Scene:
    for cpu in range(scene.cores):
        scene.core(cpu, 0, scene.seconds, user=200, system=30)
    return scene.node(0, scene.seconds, forks=forks)


def only(found: Diagnosis, cause: str) -> Finding | None:
    return next((finding for finding in found.findings if finding.cause == cause), None)


def test_a_core_that_does_nothing_but_fork_is_found_with_its_parent(tmp_path: Path) -> None:
    scene = storm(calm(Scene(cores=4, seconds=30)), 2, 12, 22)
    recording = scene.write(tmp_path)
    found = judged_recording(recording, scene.window)
    top = found.findings[0]
    assert (top.cause, top.severity) == ("fork-storm", "warning")
    assert (top.culprit.pid, top.culprit.comm, top.culprit.cgroup) == (700, "cgi-handler", "/web")
    assert top.culprit.cpu == 2
    assert top.confidence >= 0.8
    assert [finding.cause for finding in found.findings] == ["fork-storm"]


def test_it_is_critical_where_the_softirqs_of_that_core_wait(tmp_path: Path) -> None:
    scene = storm(calm(Scene(cores=4, seconds=30)), 2, 12, 22)
    scene.row("threads", 15, tid=22, comm="ksoftirqd/2", cpu=2, run_ns=1_000_000, wait_ns=800_000_000)
    assert judged_recording(scene.write(tmp_path), scene.window).findings[0].severity == "critical"


def test_what_many_parents_start_as_always_is_no_storm_on_a_full_node(tmp_path: Path) -> None:
    """Where threads queue for every core, a part of one is enough; birth and death of the usual processes is not."""

    def crowded(before: int, now: int) -> Scene:
        scene = calm(Scene(cores=2, seconds=30), forks=before).node(12, 22, forks=now)
        for cpu in range(2):
            scene.core(cpu, 12, 22, user=700, system=300, wait_ns=6_000_000_000)
        for second in range(12, 22):
            for n in range(12):
                pid = 10_000 + second * 100 + n
                scene.row("processes", second, pid=pid, ppid=700 + n, comm="step")
                scene.stack(n % 2, second, second + 1, 0.05, "step", pid, (EXITS, FAULT, EXEC)[n % 3])
        return scene

    usual = judged_recording((scene := crowded(130, 200)).write(tmp_path / "usual"), scene.window)
    assert only(usual, "fork-storm") is None and reason(usual, "fork-storm") == "fork-storm.usual"
    risen = judged_recording((scene := crowded(30, 200)).write(tmp_path / "risen"), scene.window)
    assert only(risen, "fork-storm") is not None


def test_one_core_of_96_is_found(tmp_path: Path) -> None:
    scene = storm(calm(Scene(cores=96, seconds=20), forks=800), 61, 10, 16)
    top = judged_recording(scene.write(tmp_path), scene.window).findings[0]
    assert (top.cause, top.culprit.cpu, top.culprit.pid) == ("fork-storm", 61, 700)


def test_a_build_forks_a_lot_and_is_no_finding(tmp_path: Path) -> None:
    """Compilers live for a moment as well, but they work in it."""
    scene = calm(Scene(cores=16, seconds=24))
    scene.node(10, 20, forks=1_200)
    scene.row("processes", 9, pid=600, ppid=1, start=0, comm="make")
    for second in range(10, 20):
        for cpu in range(16):
            pid = 20_000 + second * 100 + cpu
            scene.row("processes", second, pid=pid, ppid=600, comm="cc1")
            scene.stack(cpu, second, second + 1, 0.75, "cc1", pid, WORK)
            scene.stack(cpu, second, second + 1, 0.08, "cc1", pid, EXITS)
            scene.stack(cpu, second, second + 1, 0.12, "cc1", pid, FAULT)
        scene.core(second % 16, second, second + 1, user=780, system=200)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert only(found, "fork-storm") is None
    assert reason(found, "fork-storm") == "fork-storm.useful"


def test_many_forks_over_many_cores_are_normal(tmp_path: Path) -> None:
    scene = calm(Scene(cores=96, seconds=24)).node(10, 20, forks=2_500)
    for cpu in range(96):
        scene.core(cpu, 10, 20, user=300, system=60)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert not found.findings


def test_what_is_spread_thin_over_cores_and_programs_is_no_storm(tmp_path: Path) -> None:
    """Sixty programs that each start one now and then: together more than half a core."""
    scene = calm(Scene(cores=64, seconds=24), forks=400).node(10, 20, forks=900)
    for second in range(10, 20):
        for cpu in range(60):
            pid = 20_000 + second * 100 + cpu
            scene.row("processes", second, pid=pid, ppid=900 + cpu, comm=f"app{cpu}")
            scene.stack(cpu, second, second + 1, 0.02, f"app{cpu}", pid, EXITS)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert only(found, "fork-storm") is None


def test_a_storm_that_wanders_over_the_cores_is_found_by_its_parent(tmp_path: Path) -> None:
    scene = calm(Scene(cores=64, seconds=24)).node(10, 20, forks=1_500)
    scene.row("processes", 1, pid=700, ppid=1, start=0, comm="report.sh")
    for second in range(10, 20):
        for n in range(20):
            pid, cpu = 20_000 + second * 100 + n, (second * 7 + n * 3) % 64
            scene.row("processes", second, pid=pid, ppid=700, comm="expr")
            scene.stack(cpu, second, second + 1, 0.05, "expr", pid, (EXITS, EXEC)[n % 2])
        scene.stack(second, second, second + 1, 0.3, "report.sh", 700, FORKS)
    reported = only(judged_recording(scene.write(tmp_path), scene.window), "fork-storm")
    assert reported is not None
    assert (reported.severity, reported.culprit.pid, reported.culprit.comm) == ("warning", 700, "report.sh")


def test_brief_programs_that_are_busy_with_something_else_are_no_storm(tmp_path: Path) -> None:
    scene = calm(Scene(cores=4, seconds=24)).core(1, 10, 20, system=900, user=90).node(10, 20, forks=60)
    for second in range(10, 20):
        for n in range(5):
            pid = 20_000 + second * 100 + n
            scene.row("processes", second, pid=pid, ppid=700, comm="flood")
            scene.stack(1, second, second + 1, 0.17, "flood", pid, ["do_syscall_64", "__sys_sendmmsg", "udp_sendmsg"])
            scene.stack(1, second, second + 1, 0.02, "flood", pid, EXITS)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert only(found, "fork-storm") is None


def test_one_big_process_that_ends_is_no_storm(tmp_path: Path) -> None:
    scene = calm(Scene(cores=4, seconds=30), forks=60).core(1, 12, 16, system=990, user=0)
    scene.stack(1, 12, 16, 0.97, "postgres", 900, EXITS)
    found = judged_recording(scene.write(tmp_path), scene.window)
    assert only(found, "fork-storm") is None


def test_a_burst_of_a_second_is_no_storm(tmp_path: Path) -> None:
    """As when a script sets something up, while something else is the trouble."""
    scene = calm(Scene(cores=4, seconds=30)).core(0, 10, 22, system=990, user=0)
    scene.stack(0, 10, 22, 0.97, "zorpd", 33, ["do_syscall_64", "zorp_ioctl", "zorp_scan"])
    found = judged_recording(storm(scene, 2, 14, 15, forks=300).write(tmp_path), scene.window)
    assert found.findings[0].culprit.comm == "zorpd"
    assert only(found, "fork-storm") is None


def test_without_stacks_the_counter_has_less_confidence(tmp_path: Path) -> None:
    scene = storm(calm(Scene(cores=4, seconds=30)), 2, 12, 22).without("samples", "processes")
    reported = only(judged_recording(scene.write(tmp_path), scene.window), "fork-storm")
    assert reported is not None
    assert reported.severity == "warning"
    assert 0.3 <= reported.confidence < 0.6
    assert reported.culprit.pid is None
    assert "shared.no-stacks" in doubts(reported)


def test_a_short_tick_is_not_extrapolated(tmp_path: Path) -> None:
    """The last tick of a short recording may take a part of a second: more than it counted was never started."""
    scene = storm(calm(Scene(cores=4, seconds=30)), 2, 12, 22, forks=1_900).pause(20, 21)
    scene.row("node", 20, span_ms=400, forks=1_900)
    finding = only(judged_recording(scene.write(tmp_path), scene.window), "fork-storm")
    assert finding is not None
    rate = next(link for link in finding.chain if link.code.endswith("rate"))
    assert rate.evidence[0].value == 1_900
    assert "1,900 " in rate.text

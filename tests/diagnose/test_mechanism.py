"""No symptom is hung on a cause without its mechanism: what happened on a core has to have run there.

Each cause is found on its own cores, while the ksoftirqd of another core waits, which runs a virtual machine and a
browser. That wait is no finding's symptom, and what threads waited for that core is unexplained.
"""

from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from tests.diagnose.causes.paging.test_cause_numa_balancing import balanced
from tests.diagnose.causes.test_cause_audit_storm import WRITE, audited
from tests.diagnose.causes.test_cause_interrupts import POLLING, busy, interrupts
from tests.diagnose.causes.test_cause_kernel_paths import PATH, WALKS, hog
from tests.diagnose.incidents.recordings import HERE, SCENARIOS, STACKS, diagnosis_of, expected, joined
from tests.diagnose.judged import judged, judged_recording
from tests.diagnose.nodes import COMPUTING
from tests.diagnose.scenes import Scene, at
from tests.parts import sampled

from exhume.diagnose.accounting import OVERCOMMIT
from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.engine import with_symptoms
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.focus import find_foci
from exhume.diagnose.symptoms import Symptom, find_symptoms, is_made_by
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Diagnosis, Evidence, Finding, Link, Role, Severity
from exhume.store.read.recording import Recording

WAITED = 700_000_000
NEIGHBOURS = (5001, 5002)
KSOFTIRQD, LINE = "symptom.ksoftirqd", "nic-tx-paused"
GROUP = "/batch"
WALK = ["do_syscall_64", "memcg_stat_show", "mem_cgroup_iter"]
MOUNTS = ["do_syscall_64", "ksys_read", "vfs_read", "seq_read_iter", "m_next", "show_mountinfo"]
VM, BROWSER = ["qemu-system-x86:cpu_exec"], ["chromium:v8::Run"]
TROUBLES = [name for name in SCENARIOS if expected(name)["expected"] != "nothing"]
SCENES: dict[str, Callable[[], Scene]] = {
    "audit-storm": lambda: audited(Scene(cores=5), 2, WRITE),
    "numa-balancing": lambda: balanced(Scene(cores=5), 1),
    "irq-imbalance": lambda: busy(interrupts(Scene(cores=5), dict.fromkeys(range(4), 3)), 3, POLLING),
    "ipvs-estimation": lambda: (
        Scene(cores=5)
        .core(2, 20, 28, softirq=990)
        .stack(2, 20, 28, 0.98, "swapper/2", 0, ["__do_softirq", "call_timer_fn", "estimation_timer"])
    ),
    "kernel-walk": lambda: (
        Scene(cores=5).core(2, 20, 28, system=990).stack(2, 20, 28, 0.98, "monitor", 500, WALKS["processes"])
    ),
    "workqueue-hog": lambda: hog(Scene(cores=5), 2),
    "cpu-steal": lambda: Scene(cores=5).core(2, 20, 30, user=500, steal=450),
    "unknown-kernel-path": lambda: (
        Scene(cores=5).core(2, 20, 28, system=990).stack(2, 20, 28, 0.98, "zorpd", 4711, PATH)
    ),
}


def neighbour(scene: Scene, cpu: int, since: int, until: int, wait: int) -> Scene:
    """A core that is full of a virtual machine and a browser all the time, and whose ksoftirqd waits for them once."""
    scene.core(cpu, 0, scene.seconds, user=950, system=40, wait_ns=200_000_000)
    scene.stack(cpu, 0, scene.seconds, 0.69, "qemu-system-x86", NEIGHBOURS[0], VM)
    scene.stack(cpu, 0, scene.seconds, 0.28, "chromium", NEIGHBOURS[1], BROWSER)
    scene.core(cpu, since, until, wait_ns=2_000_000_000)
    return scene.row("threads", wait, tid=17, comm=f"ksoftirqd/{cpu}", cpu=cpu, run_ns=0, wait_ns=WAITED)


def blind(directory: Path) -> Recording:
    """The recording of a directory, as where stacks can't be sampled."""
    for table in STACKS:
        for file in directory.rglob(f"{table}.*"):
            file.unlink()
    return Recording.open(directory)


def assert_no_other_core(found: Diagnosis, cpu: int) -> None:
    """Without stacks, the wait of that core is hung on what is about that core, or on more work than cores."""
    assert cpu in [link.evidence[0].cpu for link in found.symptoms if link.code == KSOFTIRQD]
    for each in found.findings:
        hung_on = [link for link in each.chain if link.code == KSOFTIRQD and link.evidence[0].cpu == cpu]
        assert not hung_on or each.culprit.cpu == cpu or each.cause == OVERCOMMIT


def assert_not_blamed(found: Diagnosis, cpu: int) -> None:
    """The wait of that core is known, and only what ran there is blamed for it: programs that share a core that others
    don't need may well be."""
    assert cpu in [link.evidence[0].cpu for link in found.symptoms if link.code == KSOFTIRQD]
    hung_on = [
        each
        for each in found.findings
        if any(link.code == KSOFTIRQD and link.evidence[0].cpu == cpu for link in each.chain)
    ]
    # Recordings that are joined keep their processes apart. More work than cores makes any core wait.
    blamed = [
        each.cause for each in hung_on if (each.culprit.pid or 0) % 1_000_000 in NEIGHBOURS or each.cause == OVERCOMMIT
    ]
    assert len(blamed) == len(hung_on)
    assert found.accounting is not None
    waits = {row.id: row.seconds for row in found.accounting.waiting.by_cause}
    assert sum(waits.get(each, 0.0) for each in {"unexplained", OVERCOMMIT, *blamed}) > 1.5


@pytest.mark.parametrize("scenario", sampled(TROUBLES, every=8))
def test_what_the_lab_made_is_not_blamed_for_another_core(scenario: str, tmp_path: Path) -> None:
    recorded = Recording.open(HERE / scenario)
    span = recorded.span()
    assert span is not None
    seconds = int(span.seconds)
    # In the seconds that the diagnosis is about.
    focus = diagnosis_of(recorded).focus
    worst = int((focus[0] + focus[1]) // 2 - span.since) // NANOS
    other = neighbour(Scene(cores=1, seconds=seconds), 0, worst, worst + 2, worst + 1).write(tmp_path / "other")
    found, cpu = diagnosis_of(joined(recorded, other, tmp_path)), recorded.facts.cores
    assert expected(scenario)["expected"] in [each.cause for each in found.findings]
    assert_not_blamed(found, cpu)
    assert_no_other_core(diagnosis_of(blind(tmp_path / "both")), cpu)


@pytest.mark.parametrize("cause", SCENES)
def test_a_cause_is_not_blamed_for_another_core(cause: str, tmp_path: Path) -> None:
    scene = neighbour(SCENES[cause](), 4, 24, 26, 25)
    found = judged(scene, tmp_path)
    assert cause in [each.cause for each in found.findings]
    assert_not_blamed(found, 4)
    assert_no_other_core(judged_recording(blind(tmp_path), scene.window), 4)


def test_every_cause_has_such_a_scene() -> None:
    there = {expected(name)["expected"] for name in TROUBLES} | set(SCENES)
    assert there == set(catalogue())


def stalled_queue(scene: Scene, second: float) -> Scene:
    """A line of the log that names no core."""
    return scene.event(second, LINE, "ena 0000:00:05.0 eth0: TX q 5 is paused for too long (threshold 5000000)")


def lines_of(finding: Finding) -> list[Link]:
    return [link for link in finding.chain if link.code == "symptom.log"]


@pytest.mark.parametrize(("second", "made"), [(18.5, False), (26, True)], ids=["before", "after"])
def test_a_line_of_the_log_comes_after_what_made_it(second: float, made: bool, tmp_path: Path) -> None:
    scene = Scene(cores=4, seconds=60).core(1, 20, 28, user=10, system=980).stack(1, 20, 28, 0.97, "kubelet", 77, WALK)
    scene.row("cgroups", 5, hierarchy="memory", parent="", kernel=30_300, visible=300, dying=30_000)
    found = judged(stalled_queue(scene, second), tmp_path)
    [finding] = [each for each in found.findings if each.cause == "zombie-memcgs"]
    assert bool(lines_of(finding)) is made
    assert "symptom.log" in [link.code for link in found.symptoms]


def test_a_group_that_is_stopped_by_its_quota_stalls_no_network_card(tmp_path: Path) -> None:
    """It is counted, not sampled, and what it does not run can't keep a core from its interrupts."""
    scene = Scene(cores=4, seconds=60).row("processes", 0, pid=500, comm="shop", cgroup=GROUP)
    scene.stack(0, 30, 42, 0.3, "shop", 500, COMPUTING).core(0, 30, 42, user=300)
    for second in range(30, 42):
        scene.row("throttling", second, cgroup=GROUP, periods=10, throttled=8, throttled_ns=500_000_000, quota=0.3)
    found = judged(stalled_queue(scene, 36), tmp_path)
    [finding] = [each for each in found.findings if each.cause == "cfs-throttling"]
    assert finding.severity is not Severity.INFO and not lines_of(finding)
    assert "symptom.log" in [link.code for link in found.symptoms]


def test_a_core_that_a_walker_held_is_not_hung_on_what_passed_by_for_a_second(tmp_path: Path) -> None:
    """The other one reads mounts on a core of its own, and for one second on the walker's."""
    scene = Scene(cores=4, seconds=60).node(0, 60, mounts=6_000).core(1, 20, 32, user=10, system=980)
    scene.row("cgroups", 5, hierarchy="memory", parent="", kernel=30_300, visible=300, dying=30_000)
    for since, until, share in ((20, 26, 0.97), (26, 27, 0.3), (27, 32, 0.97)):
        scene.stack(1, since, until, share, "kubelet", 77, WALK)
    scene.core(3, 20, 32, user=100, system=800).stack(1, 26, 27, 0.65, "agent", 900, MOUNTS)
    for since, until in ((20, 26), (27, 32)):
        scene.stack(3, since, until, 0.8, "agent", 900, MOUNTS)
    found = {each.cause: each for each in judged(scene, tmp_path).findings}
    hot = {cause: [link for link in each.chain if link.code == "symptom.hot-core"] for cause, each in found.items()}
    assert hot["zombie-memcgs"] and not hot["mount-storm"]
    assert found["mount-storm"].severity is Severity.WARNING


@pytest.mark.parametrize(("waited", "harmless"), [(32, False), (34, True)], ids=["while it ran", "then"])
def test_a_walk_that_did_not_run_when_a_ksoftirqd_waited_harms_nothing(
    waited: int, harmless: bool, tmp_path: Path
) -> None:
    """A search through files, as they are run all day, takes turns with a virtual machine."""
    scene = Scene(cores=4, seconds=60)
    for second in range(20, 40, 5):
        scene.core(2, second, second + 3, system=970).stack(2, second, second + 3, 0.97, "find", 500, WALKS["files"])
        scene.core(2, second + 3, second + 5, user=950)
        scene.stack(2, second + 3, second + 5, 0.95, "qemu-system-x86", NEIGHBOURS[0], VM)
    scene.row("threads", waited, tid=17, comm="ksoftirqd/2", cpu=2, run_ns=0, wait_ns=WAITED)
    found = judged(scene, tmp_path)
    [finding] = [each for each in found.findings if each.cause == "kernel-walk"]
    assert finding.focus[0] <= at(waited) < finding.focus[1]
    assert (finding.severity is Severity.INFO) is harmless


def test_zombies_that_no_core_walks_made_no_wait(tmp_path: Path) -> None:
    """As met on a real node: thousands of new zombies, a wait of ksoftirqd, and no sample that walks cgroups."""
    scene = neighbour(Scene(cores=2, seconds=60), 1, 34, 36, 35)
    for second in range(0, 60, 10):
        scene.row(
            "cgroups", second, hierarchy="memory", parent="", kernel=300 + 80 * second, visible=300, dying=80 * second
        )
    found = judged(scene, tmp_path)
    assert "zombie-memcgs" in [each.cause for each in found.findings]
    assert_not_blamed(found, 1)
    assert found.verdict == "starved"


def test_a_core_that_walks_made_the_wait(tmp_path: Path) -> None:
    scene = neighbour(Scene(cores=2), 1, 24, 26, 25).core(1, 24, 26, user=40, system=950)
    scene.stack(1, 23, 26, 0.95, "kubelet", 77, WALK)
    case = Case(scene.write(tmp_path), Window(at(23), at(27)), Window(at(0), at(20)))
    symptom = next(each for each in find_symptoms(case) if each.kind == "ksoftirqd")
    samples = case.samples
    assert symptom.cpu == 1 and symptom.span == (at(25) - WAITED, at(26))
    assert is_made_by(case, symptom, samples.pid == 77)
    assert not is_made_by(case, symptom, (samples.pid == 77) & (samples.wall < at(24)))
    assert not is_made_by(case, symptom, np.zeros(len(samples), np.bool_))


def test_a_line_without_a_core_is_made_by_what_held_one(tmp_path: Path) -> None:
    """The log names no core: a walker that had one is blamed, and a loop of small programs next to it is not."""
    scene = Scene(cores=4).core(1, 22, 28, system=980)
    scene.stack(1, 22, 28, 0.97, "kubelet", 77, WALK)
    for second in range(20, 28):
        scene.stack(2, second, second + 1, 0.2, "agent", 900 + second, ["agent:main"])
    case = Case(stalled_queue(scene, 27).write(tmp_path), Window(at(20), at(28)), Window(at(0), at(19)))
    line = next(each for each in find_symptoms(case) if each.kind == "log")
    samples = case.samples
    assert line.cpu is None
    assert is_made_by(case, line, samples.pid == 77)
    assert not is_made_by(case, line, samples.pid >= 900)


def test_what_is_only_worth_knowing_caused_nothing() -> None:
    wait = Symptom("ksoftirqd", Severity.CRITICAL, 1, "it waited", cpu=3)
    chains = {
        severity: with_symptoms(Finding("user-hog", "", severity, 0.9, "", ()), [wait]).chain for severity in Severity
    }
    assert [severity for severity, chain in chains.items() if chain] == [Severity.CRITICAL, Severity.WARNING]


def overlapping() -> Scene:
    """A walker that has most of a core for 50 s, a reader that holds another for 8 s of them, a line that either may
    have made, and a wait."""
    scene = Scene(cores=4, seconds=120).node(0, 120, mounts=6_000)
    scene.row("cgroups", 5, hierarchy="memory", parent="", kernel=30_300, visible=300, dying=30_000)
    scene.core(1, 30, 80, user=100, system=600).stack(1, 30, 80, 0.6, "kubelet", 77, WALK)
    scene.core(2, 50, 58, user=0, system=980).stack(2, 50, 58, 0.97, "agent", 900, MOUNTS)
    scene.row("threads", 57, tid=17, comm="ksoftirqd/2", cpu=2, run_ns=0, wait_ns=3 * NANOS, slices=1)
    return stalled_queue(scene, 57)


def test_a_symptom_of_overlapping_foci_is_listed_once(tmp_path: Path) -> None:
    scene = overlapping()
    recording = scene.write(tmp_path)
    foci = [focus.window for focus in find_foci(recording, scene.window)]
    assert any(not one.clamp(other).empty for one, other in combinations(foci, 2))
    found = judged_recording(recording, scene.window)
    assert len(set(found.symptoms)) == len(found.symptoms)
    assert {"symptom.log", KSOFTIRQD} <= {link.code for link in found.symptoms}


def test_a_symptom_stands_in_the_chain_of_the_first_finding_that_made_it(tmp_path: Path) -> None:
    found = judged(overlapping(), tmp_path)
    assert [(each.cause, str(each.severity)) for each in found.findings] == [
        ("mount-storm", "critical"),
        ("zombie-memcgs", "warning"),
    ]
    assert [len(lines_of(each)) for each in found.findings] == [1, 0]


def test_a_line_that_a_cause_quotes_itself_stands_in_its_chain_once(tmp_path: Path) -> None:
    scene = hog(Scene(cores=8, seconds=40), 5)
    text = "workqueue: zorp_scrub_work_fn hogged CPU for >10000us 16 times"
    scene.event(25, "workqueue-hog", text, "warning", comm="zorp_scrub_work_fn")
    finding = judged(scene, tmp_path).findings[0]
    assert finding.cause == "workqueue-hog"
    lines = [link for link in finding.chain if any(quote.table == "events" for quote in link.evidence)]
    assert [(link.role, link.code) for link in lines] == [(Role.SYMPTOM, "shared.log")]


def test_symptoms_of_a_finding_before_leave_room_for_others() -> None:
    symptoms = [
        Symptom("log", Severity.CRITICAL, at, "a line", (Evidence("events", "kind", "count", 1, at, at + 1),))
        for at in range(6)
    ]
    first = with_symptoms(Finding("mount-storm", "", Severity.CRITICAL, 0.9, "", ()), symptoms)
    second = with_symptoms(Finding("zombie-memcgs", "", Severity.WARNING, 0.9, "", ()), symptoms, [first])
    assert [link.at for link in first.chain] == [0, 1, 2, 3]
    assert [link.at for link in second.chain] == [4, 5]

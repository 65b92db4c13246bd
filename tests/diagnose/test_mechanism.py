"""No symptom is hung on a cause without its mechanism: what happened on a core has to have run there.

Each cause is found on its own cores, while the ksoftirqd of another core waits, which runs a virtual machine and a
browser. That wait is no finding's symptom, and what threads waited for that core is unexplained.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.diagnose.causes.paging.test_cause_numa_balancing import balanced
from tests.diagnose.causes.test_cause_audit_storm import WRITE, audited
from tests.diagnose.causes.test_cause_interrupts import POLLING, busy, interrupts
from tests.diagnose.causes.test_cause_kernel_paths import PATH, WALKS, hog
from tests.diagnose.incidents.recordings import HERE, SCENARIOS, diagnosis_of, expected, joined
from tests.diagnose.judged import judged
from tests.diagnose.scenes import Scene, at
from tests.parts import sampled

from exhume.diagnose.accounting import OVERCOMMIT
from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.engine import with_symptoms
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.symptoms import Symptom, find_symptoms, is_made_by
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Diagnosis, Finding, Severity
from exhume.store.read.recording import Recording

WAITED = 700_000_000
NEIGHBOURS = (5001, 5002)
KSOFTIRQD = "symptom.ksoftirqd"
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


@pytest.mark.parametrize("cause", SCENES)
def test_a_cause_is_not_blamed_for_another_core(cause: str, tmp_path: Path) -> None:
    found = judged(neighbour(SCENES[cause](), 4, 24, 26, 25), tmp_path)
    assert cause in [each.cause for each in found.findings]
    assert_not_blamed(found, 4)


def test_every_cause_has_such_a_scene() -> None:
    there = {expected(name)["expected"] for name in TROUBLES} | set(SCENES)
    assert there == set(catalogue())


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
    scene.stack(1, 23, 26, 0.95, "kubelet", 77, ["do_syscall_64", "memcg_stat_show", "mem_cgroup_iter"])
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
    scene.stack(1, 22, 28, 0.97, "kubelet", 77, ["do_syscall_64", "memcg_stat_show", "mem_cgroup_iter"])
    for second in range(20, 28):
        scene.stack(2, second, second + 1, 0.2, "agent", 900 + second, ["agent:main"])
    scene.event(27, "nic-tx-paused", "ena 0000:00:05.0 eth0: TX q 5 is paused for too long")
    case = Case(scene.write(tmp_path), Window(at(20), at(28)), Window(at(0), at(19)))
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

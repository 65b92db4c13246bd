"""IPVS adding up its statistics, before and after it got threads of its own."""

from pathlib import Path

from tests.diagnose.codes import reason
from tests.diagnose.judged import judged
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding

TIMER = ["asm_sysvec_apic_timer_interrupt", "irq_exit_rcu", "__do_softirq", "run_timer_softirq", "call_timer_fn"]
THREAD = ["ret_from_fork", "kthread", "ip_vs_estimation_kthread", "ip_vs_tick_estimation", "ip_vs_chain_estimation"]


def find(found: Diagnosis) -> Finding | None:
    return next((each for each in found.findings if each.cause == "ipvs-estimation"), None)


def test_the_timer_every_two_seconds_on_one_core_of_96(tmp_path: Path) -> None:
    scene = Scene(cores=96)
    for second in range(0, 40, 2):
        scene.core(17, second, second + 1, softirq=450)
        scene.stack(17, second, second + 1, 0.45, "swapper/17", 0, [*TIMER, "estimation_timer", "ip_vs_read_cpu_stats"])
    found = find(judged(scene, tmp_path))
    assert found is not None
    assert found.culprit.cpu == 17
    assert found.severity == "info"
    assert found.confidence >= 0.7
    assert any("run_estimation=0" in each.command for each in found.remedies)


def test_a_core_taken_by_it_is_critical(tmp_path: Path) -> None:
    scene = (
        Scene(cores=4).core(2, 20, 28, softirq=990).stack(2, 20, 28, 0.98, "swapper/2", 0, [*TIMER, "estimation_timer"])
    )
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.severity, top.culprit.cpu) == ("ipvs-estimation", "critical", 2)


def test_long_pauses_are_a_warning(tmp_path: Path) -> None:
    scene = Scene(cores=4)
    for second in range(20, 36, 2):
        scene.core(2, second, second + 1, softirq=600)
        scene.stack(2, second, second + 1, 0.6, "swapper/2", 0, [*TIMER, "estimation_timer"])
    found = find(judged(scene, tmp_path))
    assert found is not None and found.severity == "warning"


def test_threads_of_later_kernels(tmp_path: Path) -> None:
    scene = Scene(cores=4).core(0, 20, 30, system=980).stack(0, 20, 30, 0.97, "ipvs-e:0:0", 321, THREAD)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.culprit.comm) == ("ipvs-estimation", "ipvs-e:0:0")


def test_other_timers_and_ipvs_traffic_are_not_it(tmp_path: Path) -> None:
    scene = Scene(cores=4).core(2, 20, 30, softirq=950)
    scene.stack(2, 20, 30, 0.6, "swapper/2", 0, [*TIMER, "zorp_timer"])
    scene.stack(2, 20, 30, 0.3, "swapper/2", 0, ["__do_softirq", "net_rx_action", "ip_vs_in", "ip_vs_conn_in_get"])
    assert find(judged(scene, tmp_path)) is None


def test_a_little_of_it_is_normal(tmp_path: Path) -> None:
    scene = (
        Scene(cores=4).stack(2, 20, 30, 0.03, "swapper/2", 0, [*TIMER, "estimation_timer"]).core(1, 20, 30, user=900)
    )
    assert find(judged(scene, tmp_path)) is None


def test_without_stacks_it_is_not_claimed(tmp_path: Path) -> None:
    scene = Scene(cores=4).core(2, 20, 30, softirq=990).without("samples")
    found = judged(scene, tmp_path)
    assert find(found) is None
    assert reason(found, "ipvs-estimation") == "ipvs-estimation.no-stacks-sampled"

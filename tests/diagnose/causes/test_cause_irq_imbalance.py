"""A device whose interrupts all go to one core, and what only looks like it."""

from pathlib import Path

from tests.diagnose.codes import doubts
from tests.diagnose.judged import judged
from tests.diagnose.scenes import Scene

from exhume.diagnose.facts.packets import device_name
from exhume.model.finding import Diagnosis, Finding

INTERRUPT = ["asm_common_interrupt", "common_interrupt", "irq_exit_rcu", "handle_softirqs", "net_rx_action"]
POLLING = [*INTERRUPT, "__napi_poll", "ena_io_poll", "napi_gro_receive"]
BACKLOG = [*INTERRUPT, "__napi_poll", "process_backlog", "ip_rcv"]


def find(found: Diagnosis, cause: str = "irq-imbalance") -> Finding | None:
    return next((each for each in found.findings if each.cause == cause), None)


def interrupts(scene: Scene, cores: dict[int, int], rate: int = 8_000) -> Scene:
    """Queues of eth0 (number to core), each with so many interrupts a second from second 20 to 30."""
    for second in range(20, 30):
        for queue, cpu in cores.items():
            name, irq = f"eth0-Tx-Rx-{queue}", str(30 + queue)
            scene.row("interrupts", second, irq=irq, name=name, cpu=cpu, count=rate, device="eth0", queue=queue)
    return scene


def busy(scene: Scene, cpu: int, frames: list[str]) -> Scene:
    return scene.core(cpu, 20, 30, softirq=900, irq=80).stack(cpu, 20, 30, 0.97, "swapper", 0, frames)


def test_all_queues_on_one_core(tmp_path: Path) -> None:
    scene = busy(interrupts(Scene(cores=8), {0: 3, 1: 3, 2: 3, 3: 3}), 3, POLLING)
    found = judged(scene, tmp_path)
    top = found.findings[0]
    assert (top.cause, top.severity, top.culprit.cpu) == ("irq-imbalance", "critical", 3)
    assert top.confidence >= 0.85
    assert "4 of its 4 lines" in " ".join(link.text for link in top.chain)
    assert any("/proc/irq/" in each.command and "eth0" in each.command for each in top.remedies)
    assert find(found, "softirq-storm") is None


def test_one_core_of_96(tmp_path: Path) -> None:
    scene = busy(interrupts(Scene(cores=96), dict.fromkeys(range(8), 95)), 95, POLLING)
    for cpu in range(95):
        scene.core(cpu, 0, 40, user=300, softirq=10)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.culprit.cpu) == ("irq-imbalance", 95)


def test_one_queue_alone_leaves_doubt(tmp_path: Path) -> None:
    scene = busy(interrupts(Scene(cores=8), {0: 3}), 3, POLLING)
    interrupts(scene, {1: 4}, rate=20)
    found = find(judged(scene, tmp_path))
    assert found is not None
    assert "irq-imbalance.one-queue" in doubts(found)


def test_spread_interrupts_are_fine(tmp_path: Path) -> None:
    scene = busy(interrupts(Scene(cores=8), {0: 0, 1: 1, 2: 2, 3: 3}), 3, POLLING)
    assert find(judged(scene, tmp_path)) is None


def test_busy_all_over_is_not_a_matter_of_placement(tmp_path: Path) -> None:
    scene = busy(interrupts(Scene(cores=4), {0: 3, 1: 3}), 3, POLLING)
    for cpu in range(3):
        scene.core(cpu, 20, 30, user=950)
    assert find(judged(scene, tmp_path)) is None


def test_packets_from_this_node_are_not_the_devices(tmp_path: Path) -> None:
    scene = busy(interrupts(Scene(cores=8), {0: 3, 1: 3}), 3, BACKLOG)
    found = judged(scene, tmp_path)
    assert find(found) is None
    assert find(found, "softirq-storm") is not None


def test_many_interrupts_that_cost_little_are_fine(tmp_path: Path) -> None:
    scene = interrupts(Scene(cores=8), {0: 3, 1: 3}).core(3, 20, 30, softirq=150, user=500)
    scene.stack(3, 20, 30, 0.15, "swapper", 0, POLLING)
    assert find(judged(scene, tmp_path)) is None


def test_without_stacks(tmp_path: Path) -> None:
    scene = busy(interrupts(Scene(cores=8), {0: 3, 1: 3}), 3, POLLING).without("samples")
    found = find(judged(scene, tmp_path))
    assert found is not None and found.culprit.cpu == 3
    assert 0.4 <= found.confidence < 0.7


def test_names_of_interrupts_become_devices() -> None:
    assert device_name("eth0-Tx-Rx-3", None) == "eth0"
    assert device_name("nvme0q7", None) == "nvme0"
    assert device_name("virtio1-input.0", None) == "virtio1"
    assert device_name("mlx5_comp3@pci:0000:00:05.0", "eth1") == "eth1"
    assert device_name("i8042", None) == "i8042"

"""Softirqs that take a core, devices whose interrupts all go to one, and what only looks like it."""

from pathlib import Path

import pytest
from tests.diagnose.codes import doubts
from tests.diagnose.judged import judged
from tests.diagnose.scenes import Scene

from exhume.diagnose.facts.packets import device_name
from exhume.model.finding import Diagnosis, Finding

KSOFTIRQD = ["ret_from_fork", "kthread", "smpboot_thread_fn", "run_ksoftirqd", "handle_softirqs"]
RECEIVE = ["net_rx_action", "__napi_poll", "process_backlog", "__netif_receive_skb_one_core", "ip_rcv"]
FORWARD = [*RECEIVE, "ip_forward", "ip_output", "__dev_queue_xmit", "veth_xmit"]
SENDING = ["do_syscall_64", "__sys_sendmmsg", "___sys_sendmsg", "udp_sendmsg", "ip_send_skb", "__dev_queue_xmit"]
IDLE = ["secondary_startup_64", "do_idle", "asm_common_interrupt", "irq_exit_rcu", "__do_softirq"]


def softirq_find(found: Diagnosis, cause: str = "softirq-storm") -> Finding | None:
    return next((each for each in found.findings if each.cause == cause), None)


def storm(scene: Scene, cpu: int, frames: list[str], comm: str = "", share: float = 0.96) -> Scene:
    """Ten seconds of a core in softirqs."""
    scene.core(cpu, 20, 30, softirq=970, system=20)
    scene.stack(cpu, 20, 30, share, comm or f"ksoftirqd/{cpu}", 18 + cpu, frames)
    for second in range(20, 30):
        scene.row("threads", second, tid=18 + cpu, comm=f"ksoftirqd/{cpu}", cpu=cpu, run_ns=900_000_000, wait_ns=0)
    return scene


def test_packets_of_a_local_sender_on_another_core(tmp_path: Path) -> None:
    scene = storm(Scene(), 1, [*KSOFTIRQD, *FORWARD])
    scene.core(3, 20, 30, system=400).stack(3, 20, 30, 0.35, "shipper", 900, SENDING)
    scene.row("processes", 20, pid=900, comm="shipper", cgroup="/system.slice/log-shipper.service")
    for second in range(20, 30):
        scene.row("softnet", second, cpu=1, processed=900_000, dropped=40_000, squeezed=300)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.severity) == ("softirq-storm", "critical")
    assert (top.culprit.cpu, top.culprit.comm, top.culprit.pid) == (1, "shipper", 900)
    assert top.confidence >= 0.9
    assert top.remedies[0].command == "exhume fix apply log-shipper.service"
    assert not any("{target}" in each.command + each.text for each in top.remedies)
    assert "network receive" in top.summary and "shipper sends on this node, through veth" in top.summary
    reported = [link.text for link in top.chain]
    assert any("40,000 packets were dropped" in text for text in reported)


@pytest.mark.parametrize(("waiting", "found"), [(6_000_000_000, True), (0, False)])
def test_where_threads_queue_for_every_core_a_ksoftirqd_gets_its_turn_only(
    tmp_path: Path, waiting: int, found: bool
) -> None:
    scene = Scene(cores=2, seconds=40)
    for cpu in range(2):
        scene.core(cpu, 0, 40, user=560, wait_ns=waiting).stack(cpu, 0, 40, 0.56, "job", 700 + cpu, ["job:main"])
    scene.core(1, 20, 30, softirq=400).stack(1, 20, 30, 0.4, "ksoftirqd/1", 19, [*KSOFTIRQD, *FORWARD])
    finding = softirq_find(judged(scene, tmp_path))
    assert (finding is not None) is found
    assert finding is None or finding.severity == "warning"


def test_who_always_sends_is_not_the_sender_of_the_storm(tmp_path: Path) -> None:
    scene = storm(Scene(), 1, [*KSOFTIRQD, *FORWARD])
    scene.core(2, 0, 40, system=500).stack(2, 0, 40, 0.5, "replicator", 800, SENDING)
    scene.core(3, 20, 30, system=150).stack(3, 20, 30, 0.12, "shipper", 900, SENDING)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.culprit.comm, top.culprit.cpu) == ("softirq-storm", "shipper", 1)


def test_softirqs_inside_the_senders_own_call(tmp_path: Path) -> None:
    """Locally sent packets are received in the sender's own time, which counts as system time, not as softirq."""
    inline = [*SENDING, "__local_bh_enable_ip", "do_softirq", "handle_softirqs", *FORWARD]
    scene = Scene(cores=2).core(0, 20, 30, system=990)
    scene.stack(0, 20, 30, 0.85, "gateway", 77, inline).stack(0, 20, 30, 0.13, "gateway", 77, SENDING)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.severity, top.culprit.comm) == ("softirq-storm", "critical", "gateway")


def test_who_is_interrupted_is_not_blamed(tmp_path: Path) -> None:
    victim = ["trainer:step", "asm_common_interrupt", "irq_exit_rcu", "handle_softirqs", "net_rx_action", "ena_io_poll"]
    scene = storm(Scene(cores=8), 5, victim, comm="trainer")
    for second in range(20, 30):
        for cpu in (5, 6):
            scene.row(
                "interrupts", second, irq=str(40 + cpu), name=f"eth0-Tx-Rx-{cpu}", cpu=cpu, device="eth0", queue=cpu,
                count=600 if cpu == 5 else 500,
            )  # fmt: skip
    found = softirq_find(judged(scene, tmp_path))
    assert found is not None
    assert found.culprit.comm is None and found.culprit.cpu == 5


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        (["run_timer_softirq", "expire_timers", "call_timer_fn", "zorp_timer"], "timers"),
        (["rcu_core", "rcu_do_batch", "kmem_cache_free"], "rcu callbacks"),
        (["blk_done_softirq", "blk_mq_end_request"], "block completions"),
        (["tasklet_action_common", "zorp_tasklet"], "tasklets"),
    ],
)
def test_the_kind_of_softirq_is_named(tmp_path: Path, frames: list[str], kind: str) -> None:
    scene = storm(Scene(cores=2), 1, [*KSOFTIRQD[:-1], "__do_softirq", *frames])
    found = softirq_find(judged(scene, tmp_path))
    assert found is not None and kind in found.summary
    assert found.culprit.function == frames[-1]


def test_softirq_one_core_of_96(tmp_path: Path) -> None:
    scene = storm(Scene(cores=96), 61, [*KSOFTIRQD, *FORWARD])
    for cpu in range(96):
        if cpu != 61:
            scene.core(cpu, 0, 40, user=400, softirq=60)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.culprit.cpu, top.severity) == ("softirq-storm", 61, "critical")
    assert top.doubts


def test_what_all_cores_do_a_little_of_does_not_hide_one(tmp_path: Path) -> None:
    """Packets on 47 cores, ten times as much in sum as the timers that one core is lost to."""
    frames = [*KSOFTIRQD[:-1], "__do_softirq", "run_timer_softirq", "call_timer_fn", "zorp_timer"]
    scene = storm(Scene(cores=48, seconds=32), 31, frames)
    for cpu in range(48):
        if cpu != 31:
            scene.core(cpu, 0, 32, user=300, softirq=200)
            scene.stack(cpu, 12, 32, 0.2, "server", 100 + cpu, [*IDLE, "net_rx_action", "mlx5e_napi_poll"])
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.culprit.cpu, top.culprit.function) == ("softirq-storm", 31, "zorp_timer")
    assert "timers" in top.summary and top.severity == "critical"


def test_softirqs_spread_over_a_large_node_are_no_storm(tmp_path: Path) -> None:
    """Two cores' worth of packets, on 32 cores: what a busy node does."""
    scene = Scene(cores=32)
    for cpu in range(32):
        scene.core(cpu, 0, 40, user=500, softirq=60)
        scene.core(cpu, 20, 30, user=600, softirq=120)
        scene.stack(cpu, 20, 30, 0.12, "server", 100 + cpu, [*IDLE, "net_rx_action", "mlx5e_napi_poll"])
    assert softirq_find(judged(scene, tmp_path)) is None


def test_a_core_that_always_has_its_packets_is_no_news(tmp_path: Path) -> None:
    scene = Scene(cores=4).core(2, 0, 40, softirq=650).stack(2, 0, 40, 0.65, "swapper/2", 0, [*IDLE, *FORWARD])
    scene.core(1, 20, 24, system=900)
    assert softirq_find(judged(scene, tmp_path)) is None


def test_a_system_call_storm_is_another_thing(tmp_path: Path) -> None:
    scene = (
        Scene(cores=4).core(2, 20, 30, system=990).stack(2, 20, 30, 0.98, "zorpd", 5, ["do_syscall_64", "zorp_scan"])
    )
    assert softirq_find(judged(scene, tmp_path)) is None


def test_without_stacks_the_counters_tell_with_less_confidence(tmp_path: Path) -> None:
    whole = storm(Scene(), 1, [*KSOFTIRQD, *FORWARD])
    sure = softirq_find(judged(whole, tmp_path / "whole"))
    scene = storm(Scene(), 1, [*KSOFTIRQD, *FORWARD]).without("samples")
    found = softirq_find(judged(scene, tmp_path / "less"))
    assert found is not None and sure is not None
    assert found.culprit.cpu == 1
    assert found.confidence < sure.confidence
    assert "shared.no-stacks" in doubts(found)


def test_a_more_specific_cause_takes_over(tmp_path: Path) -> None:
    """Softirq time that goes to one known job is reported as that job."""
    scene = storm(
        Scene(), 1, [*KSOFTIRQD[:-1], "__do_softirq", "run_timer_softirq", "call_timer_fn", "estimation_timer"]
    )
    found = judged(scene, tmp_path)
    assert [each.cause for each in found.findings] == ["ipvs-estimation"]
    assert any(
        each.code == "shared.explained" and dict(each.values)["by"] == "ipvs-estimation" for each in found.ruled_out
    )


def test_two_troubles_on_two_cores_are_two_findings(tmp_path: Path) -> None:
    scene = storm(Scene(cores=8), 1, [*KSOFTIRQD, *FORWARD])
    scene.core(6, 20, 30, system=990)
    scene.stack(
        6, 20, 30, 0.97, "syncer", 70, ["do_syscall_64", "netlink_sendmsg", "nfnetlink_rcv_batch", "nf_tables_newrule"]
    )
    found = judged(scene, tmp_path)
    reported = {each.cause: (each.culprit.cpu, str(each.severity)) for each in found.findings}
    assert reported == {"softirq-storm": (1, "critical"), "iptables-churn": (6, "critical")}


INTERRUPT = ["asm_common_interrupt", "common_interrupt", "irq_exit_rcu", "handle_softirqs", "net_rx_action"]
POLLING = [*INTERRUPT, "__napi_poll", "ena_io_poll", "napi_gro_receive"]
BACKLOG = [*INTERRUPT, "__napi_poll", "process_backlog", "ip_rcv"]


def irq_find(found: Diagnosis, cause: str = "irq-imbalance") -> Finding | None:
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
    assert irq_find(found, "softirq-storm") is None


def test_irq_one_core_of_96(tmp_path: Path) -> None:
    scene = busy(interrupts(Scene(cores=96), dict.fromkeys(range(8), 95)), 95, POLLING)
    for cpu in range(95):
        scene.core(cpu, 0, 40, user=300, softirq=10)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.culprit.cpu) == ("irq-imbalance", 95)


def test_one_queue_alone_leaves_doubt(tmp_path: Path) -> None:
    scene = busy(interrupts(Scene(cores=8), {0: 3}), 3, POLLING)
    interrupts(scene, {1: 4}, rate=20)
    found = irq_find(judged(scene, tmp_path))
    assert found is not None
    assert "irq-imbalance.one-queue" in doubts(found)


def test_spread_interrupts_are_fine(tmp_path: Path) -> None:
    scene = busy(interrupts(Scene(cores=8), {0: 0, 1: 1, 2: 2, 3: 3}), 3, POLLING)
    assert irq_find(judged(scene, tmp_path)) is None


def test_busy_all_over_is_not_a_matter_of_placement(tmp_path: Path) -> None:
    scene = busy(interrupts(Scene(cores=4), {0: 3, 1: 3}), 3, POLLING)
    for cpu in range(3):
        scene.core(cpu, 20, 30, user=950)
    assert irq_find(judged(scene, tmp_path)) is None


def test_packets_from_this_node_are_not_the_devices(tmp_path: Path) -> None:
    scene = busy(interrupts(Scene(cores=8), {0: 3, 1: 3}), 3, BACKLOG)
    found = judged(scene, tmp_path)
    assert irq_find(found) is None
    assert irq_find(found, "softirq-storm") is not None


def test_many_interrupts_that_cost_little_are_fine(tmp_path: Path) -> None:
    scene = interrupts(Scene(cores=8), {0: 3, 1: 3}).core(3, 20, 30, softirq=150, user=500)
    scene.stack(3, 20, 30, 0.15, "swapper", 0, POLLING)
    assert irq_find(judged(scene, tmp_path)) is None


def test_without_stacks(tmp_path: Path) -> None:
    scene = busy(interrupts(Scene(cores=8), {0: 3, 1: 3}), 3, POLLING).without("samples")
    found = irq_find(judged(scene, tmp_path))
    assert found is not None and found.culprit.cpu == 3
    assert 0.4 <= found.confidence < 0.7


def test_names_of_interrupts_become_devices() -> None:
    assert device_name("eth0-Tx-Rx-3", None) == "eth0"
    assert device_name("nvme0q7", None) == "nvme0"
    assert device_name("virtio1-input.0", None) == "virtio1"
    assert device_name("mlx5_comp3@pci:0000:00:05.0", "eth1") == "eth1"
    assert device_name("i8042", None) == "i8042"

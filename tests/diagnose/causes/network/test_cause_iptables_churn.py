"""Packet filter rules: walked by every packet, or replaced all the time."""

from pathlib import Path

import pytest
from tests.diagnose.codes import codes, reason
from tests.diagnose.judged import judged
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding

RECEIVE = ["run_ksoftirqd", "__do_softirq", "net_rx_action", "__napi_poll", "process_backlog", "ip_rcv", "nf_hook_slow"]


def find(found: Diagnosis) -> Finding | None:
    return next((each for each in found.findings if each.cause == "iptables-churn"), None)


@pytest.mark.parametrize(
    "walk", [["iptable_filter_hook", "ipt_do_table"], ["nft_do_chain_ipv4", "nft_do_chain", "nft_cmp_eval"]]
)
def test_every_packet_walks_the_rules_on_one_core_of_96(tmp_path: Path, walk: list[str]) -> None:
    scene = (
        Scene(cores=96).core(33, 20, 30, softirq=990).stack(33, 20, 30, 0.97, "ksoftirqd/33", 200, [*RECEIVE, *walk])
    )
    found = judged(scene, tmp_path)
    top = found.findings[0]
    assert (top.cause, top.severity, top.culprit.cpu) == ("iptables-churn", "critical", 33)
    assert top.confidence >= 0.85
    assert "iptables-churn.walked" in codes(top)
    assert "iptables-churn.writer" not in codes(top)
    assert [each.cause for each in found.findings] == ["iptables-churn"]


def test_packets_all_over_the_node_do_not_hide_one_core_in_rules(tmp_path: Path) -> None:
    scene = Scene(cores=32, seconds=32).core(9, 20, 30, softirq=990)
    scene.stack(9, 20, 30, 0.97, "ksoftirqd/9", 80, [*RECEIVE, "nft_do_chain"])
    for cpu in range(32):
        if cpu != 9:
            scene.core(cpu, 0, 32, softirq=200, user=300).stack(cpu, 12, 32, 0.2, "server", cpu, RECEIVE[:-1])
    found = judged(scene, tmp_path)
    assert [(each.cause, each.culprit.cpu) for each in found.findings] == [("iptables-churn", 9)]


@pytest.mark.parametrize(
    ("comm", "frames"),
    [
        ("iptables-restor", ["do_syscall_64", "__sys_setsockopt", "do_ipt_set_ctl", "do_replace", "translate_table"]),
        ("nft", ["do_syscall_64", "__sys_sendmsg", "netlink_sendmsg", "nfnetlink_rcv_batch", "nf_tables_newrule"]),
    ],
)
def test_who_rewrites_the_rules_is_named(tmp_path: Path, comm: str, frames: list[str]) -> None:
    scene = Scene().core(1, 20, 30, system=960, user=30)
    for second in range(20, 30):
        scene.stack(1, second, second + 1, 0.95, comm, 5_000 + second, frames)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.culprit.comm, top.culprit.cpu) == ("iptables-churn", comm, 1)
    assert "iptables-churn.writer" in codes(top)
    assert any(comm in each.text for each in top.remedies)


def test_the_sender_whose_packets_walk_them_is_named(tmp_path: Path) -> None:
    inline = ["do_syscall_64", "__sys_sendto", "udp_sendmsg", "ip_local_out", "nf_hook_slow", "nft_do_chain"]
    scene = Scene().core(1, 20, 30, system=990).stack(1, 20, 30, 0.97, "uploader", 66, inline)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.culprit.comm, top.culprit.function) == ("iptables-churn", "uploader", "nft_do_chain")


def test_rules_that_are_most_of_a_storm_are_as_grave(tmp_path: Path) -> None:
    """Less than a whole core by themselves, but most of what that core does."""
    scene = Scene().core(1, 20, 30, softirq=990).stack(1, 20, 30, 0.58, "ksoftirqd/1", 20, [*RECEIVE, "nft_do_chain"])
    scene.stack(1, 20, 30, 0.4, "ksoftirqd/1", 20, [*RECEIVE[:-1], "ip_forward"])
    found = judged(scene, tmp_path)
    assert [(each.cause, each.severity) for each in found.findings] == [("iptables-churn", "critical")]


def test_a_few_rules_in_a_storm_of_packets_are_not_it(tmp_path: Path) -> None:
    scene = (
        Scene().core(1, 20, 30, softirq=980).stack(1, 20, 30, 0.85, "ksoftirqd/1", 20, [*RECEIVE[:-1], "ip_forward"])
    )
    scene.stack(1, 20, 30, 0.1, "ksoftirqd/1", 20, [*RECEIVE, "ipt_do_table"])
    found = judged(scene, tmp_path)
    assert find(found) is None
    assert found.findings[0].cause == "softirq-storm"


def test_rules_on_a_busy_healthy_node(tmp_path: Path) -> None:
    scene = Scene(cores=16)
    for cpu in range(16):
        scene.core(cpu, 0, 40, user=600, softirq=150).stack(cpu, 0, 40, 0.1, "server", 9, [*RECEIVE, "ipt_do_table"])
    assert find(judged(scene, tmp_path)) is None


def test_without_stacks_it_is_not_claimed(tmp_path: Path) -> None:
    scene = Scene().core(1, 20, 30, softirq=990).without("samples")
    found = judged(scene, tmp_path)
    assert find(found) is None
    assert reason(found, "iptables-churn") == "iptables-churn.no-stacks-sampled"

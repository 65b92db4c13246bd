"""The table of tracked connections: full, churning, or read over and over."""

from pathlib import Path

from tests.diagnose.codes import doubts
from tests.diagnose.judged import judged
from tests.diagnose.scenes import Scene

from exhume.model.finding import Diagnosis, Finding

RECEIVE = ["run_ksoftirqd", "handle_softirqs", "net_rx_action", "__napi_poll", "process_backlog", "ip_rcv"]
SEARCH = [*RECEIVE, "nf_hook_slow", "nf_conntrack_in", "init_conntrack", "__nf_conntrack_alloc", "early_drop"]
FULL = "nf_conntrack: table full, dropping packet"


def find(found: Diagnosis) -> Finding | None:
    return next((each for each in found.findings if each.cause == "conntrack-pressure"), None)


def filled(scene: Scene, count: int, size: int = 262_144) -> Scene:
    scene.node(0, 40, conntrack=2_000).node(20, 30, conntrack=count)
    for second in range(0, 40, 10):
        scene.node(second, second + 1, conntrack_max=size)
    return scene


def test_a_full_table_that_drops_is_critical(tmp_path: Path) -> None:
    scene = filled(Scene(cores=8).core(5, 20, 30, softirq=980), 262_144).stack(
        5, 20, 30, 0.97, "ksoftirqd/5", 44, SEARCH
    )
    for second in range(21, 29):
        scene.event(second, "conntrack-full", FULL)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.severity, top.culprit.cpu) == ("conntrack-pressure", "critical", 5)
    assert top.confidence >= 0.9
    reported = " ".join(link.text for link in top.chain)
    assert "262,144 connections are tracked, of at most 262,144" in reported and FULL in reported
    assert top.culprit.comm is None


def test_drops_alone_are_found_without_stacks(tmp_path: Path) -> None:
    scene = filled(Scene(), 262_144).event(24, "conntrack-full", FULL).core(1, 20, 30, softirq=300).without("samples")
    found = find(judged(scene, tmp_path))
    assert found is not None and found.severity == "critical"
    assert "shared.no-stacks" in doubts(found)


def test_a_filling_table_is_reported_early(tmp_path: Path) -> None:
    scene = filled(Scene(), 220_000).core(1, 20, 30, user=900)
    found = find(judged(scene, tmp_path))
    assert found is not None and found.severity == "info"


def test_the_local_process_that_opens_connections_is_named(tmp_path: Path) -> None:
    inline = ["do_syscall_64", "__sys_sendmmsg", "udp_sendmsg", "ip_output", "nf_conntrack_in", "early_drop"]
    scene = Scene(cores=96).core(70, 20, 30, system=990).stack(70, 20, 30, 0.98, "prober", 808, inline)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.culprit.comm, top.culprit.pid, top.culprit.cpu) == ("conntrack-pressure", "prober", 808, 70)


def test_nat_port_search_is_not_reported_as_rules(tmp_path: Path) -> None:
    """A rule calls for the translation, so its search runs below the rules; it is not the rules that cost."""
    rules = ["do_syscall_64", "__sys_sendmmsg", "udp_sendmsg", "nf_hook_slow", "nft_do_chain", "xt_snat_target_v2"]
    search = [*rules, "nf_nat_setup_info", "nf_nat_l4proto_unique_tuple", "nf_conntrack_tuple_taken"]
    scene = Scene().core(1, 20, 30, system=990).stack(1, 20, 30, 0.7, "prober", 808, search)
    scene.stack(1, 20, 30, 0.27, "prober", 808, rules[:-1])
    found = judged(scene, tmp_path)
    assert [(each.cause, each.culprit.comm) for each in found.findings] == [("conntrack-pressure", "prober")]


def test_who_lists_the_table_is_named(tmp_path: Path) -> None:
    listing = ["do_syscall_64", "__sys_recvmsg", "netlink_dump", "ctnetlink_dump_table", "ctnetlink_fill_info"]
    scene = Scene().core(2, 20, 30, system=950, user=40).stack(2, 20, 30, 0.9, "exporter", 12, listing)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.culprit.comm) == ("conntrack-pressure", "exporter")
    assert "listing connections" in top.summary


def test_collecting_the_dead(tmp_path: Path) -> None:
    worker = ["ret_from_fork", "kthread", "worker_thread", "process_one_work", "gc_worker", "nf_ct_gc_expired"]
    scene = Scene().core(2, 20, 30, system=990).stack(2, 20, 30, 0.97, "kworker/2:1", 12, worker)
    top = judged(scene, tmp_path).findings[0]
    assert (top.cause, top.culprit.comm) == ("conntrack-pressure", "kworker/2:1")


def test_a_storm_of_packets_that_is_merely_tracked_is_another_thing(tmp_path: Path) -> None:
    scene = filled(Scene().core(1, 20, 30, softirq=980), 9_000)
    scene.stack(1, 20, 30, 0.8, "ksoftirqd/1", 30, [*RECEIVE, "ip_forward", "veth_xmit"])
    scene.stack(1, 20, 30, 0.15, "ksoftirqd/1", 30, [*RECEIVE, "nf_hook_slow", "nf_conntrack_in"])
    found = judged(scene, tmp_path)
    assert find(found) is None
    assert found.findings[0].cause == "softirq-storm"


def test_a_busy_healthy_node(tmp_path: Path) -> None:
    scene = filled(Scene(cores=16), 60_000)
    for cpu in range(16):
        scene.core(cpu, 0, 40, user=600, softirq=80)
        scene.stack(cpu, 0, 40, 0.05, "server", 50, [*RECEIVE, "nf_conntrack_in"])
    assert find(judged(scene, tmp_path)) is None


def test_when_a_growing_table_will_be_full_is_forecast(tmp_path: Path) -> None:
    """500 connections more a second, of which 40,000 are left."""
    scene = Scene(seconds=120).core(1, 60, 120, user=900)
    for second in range(120):
        scene.node(second, second + 1, conntrack=162_000 + 500 * second, conntrack_max=262_144)
    found = find(judged(scene, tmp_path))
    assert found is not None and found.forecast is not None
    (full,) = found.forecast.milestones
    assert full.code == "full" and full.latest_s is not None
    assert full.earliest_s <= (262_144 - found.forecast.count) / 500 <= full.latest_s
    assert full.in_s < 150

"""The network scenarios, shortly: they do what they say, in namespaces of their own that are gone afterwards."""

import contextlib
import os
import time
from pathlib import Path

import pytest
from tests.lab.lab_program import PATIENCE_S, play_until
from tests.parts import missing

from exhume.lab.scenarios import SCENARIOS
from exhume.lab.scenarios.network import Namespace, core_mask, list_all, long_list, new_namespace
from exhume.lab.stage import Stage, stage

pytestmark = pytest.mark.alone
COUNT = Path("/proc/sys/net/netfilter/nf_conntrack_count")


def namespaces_of(*pids: int) -> set[int]:
    """The network namespaces of processes; none of those that ended."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found.add(Path(f"/proc/{pid}/ns/net").stat().st_ino)
    return found


def children_of(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def alive(pids: list[int]) -> list[int]:
    """Those of the processes that still are: a namespace of the lab goes with the last of its processes."""
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def pids_of(playing: Stage) -> list[int]:
    return [process.pid for process in playing.running]


def received() -> int:
    """Packets that all cores took from their backlogs since boot."""
    lines = Path("/proc/net/softnet_stat").read_text().splitlines()
    return sum(int(line.split()[0], 16) for line in lines)


@pytest.mark.root
@pytest.mark.needs("ip", "nsenter", "unshare")
def test_a_namespace_is_gone_with_its_stage(tmp_path: Path) -> None:
    forwards = Path("/proc/sys/net/ipv4/ip_forward").read_text()
    with stage("try", seconds=1, work=tmp_path) as playing:
        namespace = new_namespace(playing)
        assert namespaces_of(namespace.pid) != namespaces_of(os.getpid())
        pids = pids_of(playing)
        namespace.set("net.ipv4.ip_forward", 1)
    assert pids and not alive(pids)
    assert forwards == Path("/proc/sys/net/ipv4/ip_forward").read_text()


@pytest.mark.root
@pytest.mark.needs("ip", "nsenter", "unshare")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_routing_loop_multiplies_packets(tmp_path: Path, seed: int) -> None:
    """Whether the packets stay on the sender's core or are steered to another (the seeds draw both)."""
    first = received()
    with stage("softirq-storm", seconds=PATIENCE_S, seed=seed, work=tmp_path) as playing:
        assert play_until(playing, SCENARIOS["softirq-storm"].play, lambda: received() - first > 50_000)
        pids = pids_of(playing)
    assert pids and not alive(pids)


@pytest.mark.root
@pytest.mark.needs("ip", "nsenter", "unshare", "iptables-restore")
def test_connections_are_tracked_in_a_namespace_of_their_own(tmp_path: Path) -> None:
    if not COUNT.exists():
        missing("a kernel that tracks connections")
    counted = int(COUNT.read_text())
    there = tmp_path / "there"
    with stage("conntrack-pressure", seconds=PATIENCE_S, work=tmp_path) as playing:
        namespace = new_namespace(playing)

        def tracked() -> bool:
            Namespace(playing.running[0].pid).run("sh", "-c", f"cat {COUNT} > {there}")
            return int(there.read_text()) > 5_000

        assert play_until(playing, lambda playing: list_all(playing, namespace), tracked)
        pids = pids_of(playing)
    assert int(COUNT.read_text()) < counted + 1_000
    assert pids and not alive(pids)


@pytest.mark.root
@pytest.mark.needs("ip", "nsenter", "unshare", "iptables-restore")
def test_rules_are_walked_in_a_namespace_of_their_own(tmp_path: Path) -> None:
    with stage("iptables-churn", seconds=0.6, work=tmp_path) as playing:
        SCENARIOS["iptables-churn"].play(playing)
        pids = pids_of(playing)
    assert pids and not alive(pids)


@pytest.mark.root
@pytest.mark.parametrize("who", ["self", "children"])
def test_namespaces_come_and_go(tmp_path: Path, who: str) -> None:
    seen = set()
    with stage("netns-cleanup", seconds=PATIENCE_S, work=tmp_path) as playing:
        program = playing.start("network.churn_namespaces", str(PATIENCE_S), "200", who, core=playing.core)
        while len(seen) < 4 and program.poll() is None:
            seen |= namespaces_of(program.pid, *children_of(program.pid))
            time.sleep(0.01)
        pids = pids_of(playing)
        assert program.poll() in (None, 0)
    assert len(seen) >= 4
    assert pids and not alive(pids)


def test_masks_of_many_cores() -> None:
    assert core_mask(1) == "00000002"
    assert core_mask(95) == "80000000,00000000,00000000"


def test_a_long_list_of_rules_matches_nothing_that_is_sent() -> None:
    table = long_list(300)
    assert table.count("-A OUTPUT") == 300
    assert "10.0.1.43/32" in table

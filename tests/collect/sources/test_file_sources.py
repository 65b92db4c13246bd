"""All sources together: on this machine, on one that hides everything, and on 96 cores; and what they cost."""

import contextlib
import os
import time
from pathlib import Path

import pytest
from tests.collect.fake_node import FakeNode, tick

from exhume.collect.source import Source
from exhume.collect.sources.cgroups import CgroupSource
from exhume.collect.sources.cpu import CpuSource
from exhume.collect.sources.interrupts import InterruptSource
from exhume.collect.sources.inventory import InventorySource
from exhume.collect.sources.kmsg import KernelLogSource
from exhume.collect.sources.netdev import NetdevSource
from exhume.collect.sources.node import NodeSource
from exhume.collect.sources.softnet import SoftnetSource
from exhume.collect.sources.threads import ThreadSource
from exhume.collect.sources.throttling import ThrottlingSource
from exhume.model.errors import SourceUnavailable
from exhume.model.tables import columns_of
from exhume.procfs.host import Host

EVERY = (
    CpuSource,
    ThreadSource,
    KernelLogSource,
    NodeSource,
    SoftnetSource,
    InterruptSource,
    NetdevSource,
    ThrottlingSource,
    CgroupSource,
    InventorySource,
)


def open_all(host: Host) -> list[Source]:
    """The sources that work on a node."""
    sources: list[Source] = []
    for kind in EVERY:
        with contextlib.suppress(SourceUnavailable):
            sources.append(kind(host))
    return sources


def check(rows) -> None:
    """Columns that exist, of one length, and none that has to be there left out."""
    for table, columns in rows.items():
        lengths = {len(values) for values in columns.values()}
        assert len(lengths) == 1, table
        known = {column.name for column in columns_of(table)}
        assert set(columns) <= known, table
        required = {column.name for column in columns_of(table) if not column.nullable}
        assert required <= set(columns), table


@pytest.mark.root
def test_every_source_works_as_root() -> None:
    sources = open_all(Host())
    assert [source.name for source in sources] == [kind.name for kind in EVERY]
    for second in range(25):
        for source in sources:
            check(source.read(tick(second)))
    for source in sources:
        source.close()


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.name)
def test_a_node_that_hides_everything(node: FakeNode, kind: type[Source]) -> None:
    with pytest.raises(SourceUnavailable) as raised:
        kind(node.host)
    assert raised.value.missing.source == kind.name
    assert raised.value.missing.reason
    assert raised.value.missing.remedy


def test_a_source_that_is_missing_leaves_the_others(node: FakeNode) -> None:
    node.proc("stat", "cpu  1 2 3 4 0 0 0 0 0 0\ncpu0 1 2 3 4 0 0 0 0 0 0\nintr 1\nctxt 1\n")
    sources = open_all(node.host)
    assert [source.name for source in sources] == ["cpu", "node"]
    for second in range(3):
        for source in sources:
            check(source.read(tick(second)))


def large_node(node: FakeNode, cores: int, step: int) -> None:
    node.proc(
        "stat",
        "cpu  0 0 0 0 0 0 0 0 0 0\n"
        + "".join(f"cpu{c} {c + step * 50} 0 {step * 30} {step * 20} 0 0 0 0 0 0\n" for c in range(cores))
        + "intr "
        + " ".join(str(step * i) for i in range(2000))
        + f"\nctxt {step}\nbtime 1\nprocesses {step}\nprocs_running 5\nprocs_blocked 0\n",
    )
    header = " " * 10 + "".join(f"{f'CPU{c}':>11}" for c in range(cores)) + "\n"
    numbers = "".join(f"{step * 7:>11}" for _ in range(cores))
    node.proc("softirqs", header + "".join(f"{n:>10}:{numbers}\n" for n in ("HI", "NET_TX", "NET_RX", "SCHED", "RCU")))
    domain = " ".join(["0"] * 45)
    node.proc(
        "schedstat",
        "version 17\ntimestamp 1\n"
        + "".join(
            f"cpu{c} 0 0 0 0 0 0 {step} {step * 1000} {step}\n" + f"domain0 MC ff {domain}\n" * 3 for c in range(cores)
        ),
    )
    node.proc("net/softnet_stat", "".join(f"{step:08x} " * 12 + f"{c:08x} 0 0\n" for c in range(cores)))
    interrupts = header
    for irq in range(400):
        counts = "".join(f"{step * 100 if irq % cores == c else 0:>11}" for c in range(cores))
        interrupts += f"{irq:>4}:{counts}  PCI-MSI {irq}-edge      eth0-Tx-Rx-{irq}\n"
    node.proc("interrupts", interrupts)


@pytest.mark.alone
def test_ninety_six_cores_stay_cheap(tmp_path: Path) -> None:
    node, cores = FakeNode(tmp_path / "node"), 96
    large_node(node, cores, 0)
    children = []
    for core in range(cores):
        for offset, name in enumerate(("ksoftirqd", "migration", "rcuc")):
            tid = 100 + core * 3 + offset
            node.proc(f"{tid}/comm", f"{name}/{core}\n")
            node.proc(f"{tid}/schedstat", "10 10 1\n")
            children.append(str(tid))
    node.proc("2/task/2/children", " ".join(children))
    sources = open_all(node.host)
    costs = []
    for second in range(12):
        large_node(node, cores, second)
        began = time.thread_time_ns()
        given = [source.read(tick(second)) for source in sources]
        costs.append((time.thread_time_ns() - began) / 1e6)
        for rows in given:
            check(rows)
    assert len(given[0]["cpu"]["cpu"]) == cores
    # The reading side alone (these are not the kernel's files). A wide margin: test machines are busy.
    assert sorted(costs)[len(costs) // 2] < 15, costs


@pytest.mark.root
@pytest.mark.alone
def test_a_tick_costs_little_here() -> None:
    sources = open_all(Host())
    costs = []
    for second in range(40):
        began = time.thread_time_ns()
        for source in sources:
            source.read(tick(second))
        costs.append((time.thread_time_ns() - began) / 1e6)
    # Some sources have a row for each core.
    assert sorted(costs)[len(costs) // 2] < 3 * max(1.0, (os.cpu_count() or 1) / 8), costs
    for source in sources:
        source.close()

"""The node as a whole."""

import os
import time

from tests.collect.fake_node import FakeNode, tick

from exhume.collect.source import Pace
from exhume.collect.sources.node import NodeSource
from exhume.model.clock import NANOS
from exhume.model.tables import columns_of
from exhume.procfs.host import Host

STAT = (
    "cpu  1 2 3 4\ncpu0 1 2 3 4\nintr {intr} 5 6\nctxt {ctxt}\nbtime 1\n"
    "processes {forks}\nprocs_running 3\nprocs_blocked 2\n"
)


def a_node(node: FakeNode, step: int = 0) -> None:
    node.proc("stat", STAT.format(intr=1000 + 50 * step, ctxt=2000 + 70 * step, forks=30 + step))
    node.proc("pressure/cpu", f"some avg10=1.00 avg60=0.98 avg300=0.33 total={4000 + 500 * step}\n")
    for resource in ("memory", "io"):
        node.proc(
            f"pressure/{resource}",
            f"some avg10=0.00 avg60=0.00 avg300=0.00 total={10 + step}\n"
            f"full avg10=0.00 avg60=0.00 avg300=0.00 total={5 + step}\n",
        )
    node.proc(
        "vmstat",
        f"nr_free_pages 1\npgfault {100 + 9 * step}\nallocstall_dma {step}\nallocstall_normal {10 * step}\n"
        f"pgscan_direct {7 * step}\npgscan_direct_throttle 99\nworkingset_refault_anon {step}\n"
        f"workingset_refault_file {2 * step}\noom_kill 0\n",
    )
    node.proc("meminfo", "MemTotal: 1000 kB\nMemFree: 400 kB\nCached: 10 kB\nSUnreclaim: 77 kB\nPercpu: 5 kB\n")
    node.proc("loadavg", "1.25 0.80 0.50 3/200 4242\n")
    node.proc("sys/fs/dentry-state", "47228\t45686\t45\t0\t5851\t0\n")
    node.proc("sys/fs/inode-state", "41220\t0\t0\t0\t0\t0\t0\n")
    node.proc("1/mountinfo", "a\nb\nc\n")
    node.proc("slabinfo", "slabinfo - version: 2.1\n# name <active_objs>\nnet_namespace  12  14 4288 7 8 : x\n")


def test_a_row_has_differences_and_gauges(node: FakeNode) -> None:
    a_node(node)
    source = NodeSource(node.host)
    first = source.read(tick(0))["node"]
    assert "forks" not in first
    assert first["mem_total"] == [1000]
    assert first["mounts"] == [3]
    assert first["net_namespaces"] == [12]
    a_node(node, step=2)
    row = {name: values[0] for name, values in source.read(tick(1))["node"].items()}
    assert (row["interrupts"], row["switches"], row["forks"]) == (100, 140, 2)
    assert (row["running"], row["blocked"]) == (3, 2)
    assert (row["psi_cpu_some"], row["psi_memory_full"], row["psi_io_some"]) == (1000, 2, 2)
    assert row["pgfault"] == 18
    assert row["allocstall"] == 22
    assert row["pgscan_direct"] == 14
    assert row["workingset_refault"] == 6
    assert (row["slab_unreclaimable"], row["percpu"]) == (77, 5)
    assert (row["dentries"], row["dentries_unused"], row["dentries_negative"]) == (47228, 45686, 5851)
    assert (row["inodes"], row["load1"]) == (41220, 1.25)
    # Slow counts come every ten seconds; what the kernel doesn't have stays out of the row.
    assert "mounts" not in row
    assert "conntrack" not in row
    assert "thp_fault_alloc" not in row
    assert set(row) <= {column.name for column in columns_of("node")}
    assert source.read(tick(11))["node"]["mounts"] == [3]


def test_counters_that_go_backwards_are_unknown(node: FakeNode) -> None:
    a_node(node, step=5)
    source = NodeSource(node.host)
    source.read(tick(0))
    a_node(node, step=1)
    row = source.read(tick(1))["node"]
    assert "pgfault" not in row
    assert "psi_cpu_some" not in row
    a_node(node, step=2)
    assert source.read(tick(2))["node"]["pgfault"] == [9]


def test_no_pressure_information(node: FakeNode) -> None:
    a_node(node)
    for resource in ("cpu", "memory", "io"):
        (node.host.proc / "pressure" / resource).unlink()
    source = NodeSource(node.host)
    assert any("psi=1" in missing.remedy for missing in source.missing)
    source.read(tick(0))
    assert "psi_cpu_some" not in source.read(tick(1))["node"]


def test_no_slabinfo_names_the_remedy(node: FakeNode) -> None:
    a_node(node)
    (node.host.proc / "slabinfo").unlink()
    source = NodeSource(node.host)
    assert any("network namespaces" in missing.reason and "root" in missing.remedy for missing in source.missing)
    assert "net_namespaces" not in source.read(tick(0))["node"]


def test_kernels_without_a_count_of_negative_dentries(node: FakeNode) -> None:
    a_node(node)
    node.proc("sys/fs/dentry-state", "100 50 45 0 0 0\n")
    row = NodeSource(node.host).read(tick(0))["node"]
    assert row["dentries"] == [100]
    assert "dentries_negative" not in row


def test_a_dear_read_comes_less_often() -> None:
    pace = Pace(every_s=10, share=0.001)
    assert pace.due(0)
    deadline = time.thread_time_ns() + 30_000_000
    while time.thread_time_ns() < deadline:
        pass
    pace.done(0)
    assert not pace.due(25 * NANOS)
    assert pace.due(3600 * NANOS)


def test_this_machine() -> None:
    source = NodeSource(Host())
    source.read(tick(0))
    row = source.read(tick(1))["node"]
    assert row["mem_total"][0] * 1024 == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert row["running"][0] >= 1
    assert row["pgfault"][0] >= 0

"""Interrupts: which queue, which core; large machines; columns that come and go."""

import itertools
import time

import pytest
from tests.collect.fake_node import FakeNode, tick

from exhume.collect.sources.interrupts import InterruptSource, NicQueue, NicQueues
from exhume.procfs.host import Host


def a_nic(node: FakeNode, interface: str, address: str, irqs: tuple[int, ...] = ()) -> None:
    device = node.host.sys / "devices/pci0000:00" / address
    device.mkdir(parents=True, exist_ok=True)
    for irq in irqs:
        node.sys(f"devices/pci0000:00/{address}/msi_irqs/{irq}", "msix\n")
    link = node.host.sys / "class/net" / interface
    link.mkdir(parents=True)
    (link / "device").symlink_to(device)


def a_virtio_nic(node: FakeNode, interface: str, number: int, irqs: tuple[int, ...]) -> None:
    pci = node.host.sys / "devices/pci0000:00/0000:00:03.0"
    (pci / f"virtio{number}").mkdir(parents=True)
    for irq in irqs:
        node.sys(f"devices/pci0000:00/0000:00:03.0/msi_irqs/{irq}", "msix\n")
    link = node.host.sys / "class/net" / interface
    link.mkdir(parents=True)
    (link / "device").symlink_to(pci / f"virtio{number}")


@pytest.mark.parametrize(
    ("name", "queue"),
    [
        ("eth0-Tx-Rx-5", 5),
        ("eth0-TxRx-12", 12),
        ("i40e-eth0-TxRx-3", 3),
        ("ice-eth0-TxRx-3", 3),
        ("iavf-eth0-TxRx-1", 1),
        ("bnxt_en-eth0-TxRx-7", 7),
        ("eth0-rx-2", 2),
        ("eth0-tx-2", 2),
        ("eth0-rxtx-4", 4),
        ("eth0-fp-6", 6),
        ("eth0-q9", 9),
        ("eth0-Rx3", 3),
        ("eth0-ntfy-block.11", 11),
        ("eth0-8", 8),
        ("mlx5_comp31@pci:0000:05:00.0", 31),
        ("mlx4-2@0000:05:00.0", 2),
        ("mana_q1@pci:0000:05:00.0", 1),
        ("gve-ntfy-blk3@pci:0000:05:00.0", 3),
        ("hns3-0000:05:00.0-TxRx-2", 2),
    ],
)
def test_names_that_drivers_give(node: FakeNode, name: str, queue: int) -> None:
    a_nic(node, "eth0", "0000:05:00.0")
    assert NicQueues(node.host).find("77", name) == NicQueue("eth0", queue)


@pytest.mark.parametrize(
    "name",
    [
        "mlx5_async0@pci:0000:05:00.0",
        "ena-mgmnt@pci:0000:05:00.0",
        "nvme0q3",
        "virtio1-req.0",
        "virtio2-config",
        "ACPI:Ged",
        "ttyS0",
        "eth9-Tx-Rx-1",
        "i8042",
        "",
    ],
)
def test_names_that_are_no_queue_of_a_nic(node: FakeNode, name: str) -> None:
    a_nic(node, "eth0", "0000:05:00.0")
    assert NicQueues(node.host).find("77", name) is None


def test_an_interface_that_was_renamed_is_found_by_its_interrupts(node: FakeNode) -> None:
    a_nic(node, "ens5", "0000:00:05.0", irqs=(77,))
    assert NicQueues(node.host).find("77", "eth0-Tx-Rx-5") == NicQueue("ens5", 5)


def test_virtio_queues(node: FakeNode) -> None:
    a_virtio_nic(node, "eth0", 2, (38, 39))
    queues = NicQueues(node.host)
    assert queues.find("38", "virtio2-input.0") == NicQueue("eth0", 0)
    assert queues.find("40", "virtio2-output.3") == NicQueue("eth0", 3)
    assert queues.find("38", "virtio2-config") is None
    assert queues.find("41", "virtio1-input.0") is None


def table(cpus: list[int], lines: dict[str, tuple[list[int], str]]) -> str:
    text = "      " + "".join(f"{f'CPU{cpu}':>11}" for cpu in cpus) + "\n"
    for label, (counts, rest) in lines.items():
        text += f"{label:>4}:" + "".join(f"{count:>11}" for count in counts) + f"  {rest}\n"
    return text + " ERR:          0\n"


ENA = "PCI-MSI 81920-edge      eth0-Tx-Rx-{}"


def rows_of(rows) -> list[tuple]:
    columns = rows.get("interrupts")
    return list(zip(*columns.values(), strict=True)) if columns else []


def test_rows_where_a_count_moved(node: FakeNode) -> None:
    a_nic(node, "eth0", "0000:00:05.0", irqs=(50, 51))
    node.proc("irq/50/effective_affinity_list", "0\n")
    node.proc("irq/51/effective_affinity_list", "\n")
    node.proc("irq/51/smp_affinity_list", "0-1\n")
    before = {
        "9": ([5, 5], "IO-APIC   9-fasteoi   acpi"),
        "50": ([100, 0], ENA.format(0)),
        "51": ([0, 4294967295], ENA.format(1)),
        "LOC": ([1000, 1000], "Local timer interrupts"),
        "RES": ([10, 10], "Rescheduling interrupts"),
    }
    node.proc("interrupts", table([0, 1], before))
    source = InterruptSource(node.host)
    assert source.read(tick(0)) == {}
    after = {
        "9": ([5, 6], "IO-APIC   9-fasteoi   acpi"),
        "50": ([350, 0], ENA.format(0)),
        "51": ([0, 9], ENA.format(1)),
        "LOC": ([1250, 1250], "Local timer interrupts"),
        "RES": ([10, 90_010], "Rescheduling interrupts"),
    }
    node.proc("interrupts", table([0, 1], after))
    start = tick(1).start
    assert rows_of(source.read(tick(1))) == [
        (start, "9", "acpi", 1, 1, None, None, None),
        (start, "50", "eth0-Tx-Rx-0", 0, 250, "eth0", 0, "0"),
        (start, "51", "eth0-Tx-Rx-1", 1, 10, "eth0", 1, "0-1"),
        (start, "RES", "Rescheduling interrupts", 1, 90_000, None, None, None),
    ]


def test_columns_follow_the_cores_that_are_online(node: FakeNode) -> None:
    node.proc("interrupts", table([0, 1, 2], {"9": ([1, 1000, 3], "IO-APIC 9-edge x")}))
    source = InterruptSource(node.host)
    source.read(tick(0))
    node.proc("interrupts", table([0, 2], {"9": ([2, 5], "IO-APIC 9-edge x")}))
    assert source.read(tick(1)) == {}
    node.proc("interrupts", table([0, 2], {"9": ([2, 9], "IO-APIC 9-edge x")}))
    assert [row[3:5] for row in rows_of(source.read(tick(2)))] == [(2, 4)]


def test_a_number_given_to_another_device_starts_afresh(node: FakeNode) -> None:
    node.proc("interrupts", table([0], {"9": ([100], "IO-APIC 9-edge old")}))
    source = InterruptSource(node.host)
    source.read(tick(0))
    node.proc("interrupts", table([0], {"9": ([150], "IO-APIC 9-edge new")}))
    assert source.read(tick(1)) == {}
    node.proc("interrupts", table([0], {}))
    assert source.read(tick(2)) == {}
    node.proc("interrupts", table([0], {"9": ([200], "IO-APIC 9-edge new")}))
    assert source.read(tick(3)) == {}


def test_a_table_that_is_dear_is_read_in_turns(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.collect.sources.interrupts._CHEAP_NS", 0)
    a_nic(node, "eth0", "0000:00:05.0", irqs=(50,))
    lines = {"9": ([1, 1], "IO-APIC 9-edge acpi"), "50": ([10, 10], ENA.format(0))}
    node.proc("interrupts", table([0, 2], lines))
    node.sys("kernel/irq/50/per_cpu_count", "10,0,10\n")
    source = InterruptSource(node.host)
    source.read(tick(0))
    source.read(tick(1))
    # Only the queue is looked at, and by a file of its own, which has the offline core too.
    node.proc("interrupts", table([0, 2], {**lines, "9": ([8, 8], "IO-APIC 9-edge acpi")}))
    node.sys("kernel/irq/50/per_cpu_count", "10,0,25\n")
    assert [row[1:7] for row in rows_of(source.read(tick(2)))] == [("50", "eth0-Tx-Rx-0", 2, 15, "eth0", 0)]
    assert source.read(tick(3)) == {}
    # Its turn: what moved since the last whole look, and nothing twice.
    lines = {"9": ([8, 8], "IO-APIC 9-edge acpi"), "50": ([10, 26], ENA.format(0))}
    node.proc("interrupts", table([0, 2], lines))
    rows = rows_of(source.read(tick(20)))
    assert [(row[1], row[3], row[4]) for row in rows] == [("9", 0, 7), ("9", 2, 7), ("50", 2, 1)]
    assert rows[0][0] == tick(1).end
    assert rows[2][0] == tick(3).end


def test_this_machine() -> None:
    source = InterruptSource(Host())
    source.read(tick(0))
    # Something on this machine has interrupts at any time: read until it shows.
    rows: list[tuple] = []
    patience = time.monotonic() + 30
    for second in itertools.count(1):
        rows = rows_of(source.read(tick(second)))
        if rows or time.monotonic() > patience:
            break
        time.sleep(0.02)
    assert rows
    assert all(row[4] > 0 for row in rows)

"""Modules and network interfaces."""

import os
import socket
from pathlib import Path

import pytest
from tests.collect.inventory.node_tree import NodeTree

from exhume.collect.inventory.devices import driver_info
from exhume.collect.inventory.reader import read_sections
from exhume.collect.node_root import NodeRoot
from exhume.model.inventory import Reason


def nic(tree: NodeTree, name: str, driver: str, queues: int) -> None:
    device = tree.path / f"sys/devices/pci0/{name}"
    for number in range(queues):
        (device / f"msi_irqs/{40 + number}").parent.mkdir(parents=True, exist_ok=True)
        (device / f"msi_irqs/{40 + number}").write_text("msix\n")
    tree.link(f"/sys/devices/pci0/{name}/driver", f"../../../bus/{driver}")
    (tree.path / f"sys/bus/{driver}").mkdir(parents=True)
    tree.link(f"/sys/class/net/{name}/device", f"../../../devices/pci0/{name}")
    tree.write(f"/sys/class/net/{name}/mtu", "9001\n")
    tree.write(f"/sys/class/net/{name}/speed", "-1\n")
    for number in range(queues):
        for kind in ("rx", "tx"):
            (tree.path / f"sys/class/net/{name}/queues/{kind}-{number}").mkdir(parents=True)


def test_modules_with_the_versions_that_they_have(tree: NodeTree):
    tree.write("/proc/modules", "ena 98304 0 - Live 0x0\nnf_tables 1 2 a,b, Live 0x0\n../x 1 0 - Live 0x0\n\n")
    tree.write("/sys/module/ena/version", "2.11.0g\n")
    (section,) = read_sections(tree.root, ["modules"])
    assert section.value == {"ena": "2.11.0g", "nf_tables": ""}


def test_interfaces_with_hardware_and_the_cores_of_their_queues(tree: NodeTree):
    nic(tree, "ens5", "ena", 3)
    (tree.path / "sys/class/net/veth12").mkdir()
    tree.write("/sys/module/ena/version", "2.11.0g\n")
    header = "            CPU0       CPU1\n"
    rows = [f"  {40 + number}:  1  2  PCI-MSI {number}-edge  ens5-Tx-Rx-{number}\n" for number in range(3)]
    tree.write(
        "/proc/interrupts", header + "".join(rows) + "  39: 1 2 PCI-MSI 9-edge ena-mgmnt@pci:0\nLOC: 5 6 timer\n"
    )
    for number, cores in ((40, "0"), (41, "1"), (42, "0-1")):
        tree.write(f"/proc/irq/{number}/smp_affinity_list", f"{cores}\n")
    tree.write("/proc/irq/42/effective_affinity_list", "1\n")
    (section,) = read_sections(tree.root, ["nics"])
    (found,) = section.value
    assert (found.name, found.driver, found.driver_version, found.mtu) == ("ens5", "ena", "2.11.0g", 9001)
    assert (found.rx_queues, found.tx_queues, found.speed_mbit) == (3, 3, None)
    assert found.queues == {"0": "0", "1": "1", "2": "1"}
    # This process has no such interface: what the driver itself would say can't be had.
    assert [(each.section, each.reason) for each in section.missing] == [("nics.ens5.firmware", Reason.ABSENT)]


def test_without_interrupts_the_queues_are_missing_and_the_rest_is_there(tree: NodeTree):
    nic(tree, "eth0", "ena", 1)
    (section,) = read_sections(tree.root, ["nics"])
    assert section.value[0].queues == {}
    assert ("nics.queues", Reason.ABSENT) in [(each.section, each.reason) for each in section.missing]


def test_no_interface_with_hardware_is_an_empty_list_and_no_sysfs_a_missing_one(tree: NodeTree):
    assert read_sections(tree.root, ["nics"])[0].value is None
    (tree.path / "sys/class/net/lo").mkdir(parents=True)
    (section,) = read_sections(tree.root, ["nics"])
    assert section.value == () and not section.missing


def test_the_driver_of_an_interface_that_is_not_there():
    with pytest.raises(OSError):
        driver_info("no-such-nic0")


def test_a_real_driver_answers():
    """Any virtual interface has a driver that answers; loopback has none."""
    answers = []
    for _, name in socket.if_nameindex():
        try:
            answers.append(driver_info(name))
        except OSError as error:
            assert error.errno in (95, 19, 22), os.strerror(error.errno or 0)
    assert all(driver for driver, _, _ in answers)


def test_this_node():
    (section,) = read_sections(NodeRoot(), ["nics"])
    real = {path.name for path in Path("/sys/class/net").iterdir() if (path / "device").exists()}
    assert {nic.name for nic in section.value} == real

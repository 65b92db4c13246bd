"""Fingerprints move when the inputs of a section do, and not by themselves."""

import os

import pytest
from tests.collect.inventory.node_tree import NodeTree

from exhume.collect.inventory.fingerprints import READ_SECTIONS, fingerprint
from exhume.collect.inventory.reader import READ_SECTIONS as READABLE
from exhume.collect.node_root import NodeRoot
from exhume.model.inventory import SECTIONS

MOUNT = "24 22 259:2 / {} rw - xfs /dev/sdb rw\n"


def changed(tree: NodeTree, section: str, change) -> bool:
    before = fingerprint(tree.root, section)
    assert fingerprint(tree.root, section) == before
    change()
    return fingerprint(tree.root, section) != before


def test_every_section_that_can_be_read_is_looked_at():
    # Labels are part of the recording's facts.
    assert (*READ_SECTIONS, "labels") == SECTIONS and set(READ_SECTIONS) == set(READABLE)


@pytest.mark.parametrize(
    ("section", "path"),
    [
        ("os", "/etc/os-release"),
        ("image", "/etc/image-id"),
        ("packages", "/var/lib/dpkg/status"),
        ("packages", "/usr/lib/sysimage/rpm/rpmdb.sqlite"),
        ("limits", "/etc/security/limits.d/90.conf"),
        ("kernel", "/sys/kernel/mm/transparent_hugepage/enabled"),
        ("sysctls", "/proc/sys/vm/swappiness"),
        ("hardware", "/sys/devices/system/cpu/online"),
        ("units", "/run/systemd/units/invocation:a.service"),
        ("containers", "/var/lib/docker/containers/abc/config.v2.json"),
        ("boot", "/run/cloud-init/result.json"),
    ],
)
def test_a_file_that_comes(tree: NodeTree, section: str, path: str):
    assert changed(tree, section, lambda: tree.write(path, "1\n"))


def test_modules_by_their_names(tree: NodeTree):
    tree.write("/proc/modules", "ena 1 0 - Live 0x0\nxfs 1 5 - Live 0x0\n")
    assert not changed(tree, "modules", lambda: tree.write("/proc/modules", "xfs 1 9 - Live 0x0\nena 1 0 - Live 0x0\n"))
    assert changed(tree, "modules", lambda: tree.write("/proc/modules", "ena 1 0 - Live 0x0\n"))


def test_mounts_of_pods_come_and_go(tree: NodeTree):
    tree.write("/proc/1/mountinfo", MOUNT.format("/data"))
    with_pod = MOUNT.format("/data") + MOUNT.format("/var/lib/kubelet/pods/a/b")
    assert not changed(tree, "mounts", lambda: tree.write("/proc/1/mountinfo", with_pod))
    assert changed(tree, "mounts", lambda: tree.write("/proc/1/mountinfo", MOUNT.format("/data2")))


def test_the_cores_of_an_interrupt(tree: NodeTree):
    tree.write("/sys/class/net/eth0/device/msi_irqs/40", "msix\n")
    tree.write("/proc/irq/40/smp_affinity_list", "0\n")
    assert changed(tree, "nics", lambda: tree.write("/proc/irq/40/smp_affinity_list", "5\n"))


def test_names_that_are_not_unicode(tree: NodeTree):
    (tree.path / "sys/class/net").mkdir(parents=True)
    os.mkdir(os.fsencode(tree.path / "sys/class/net") + b"/\xff\xfe")  # noqa: PTH102
    os.mkdir(os.fsencode(tree.path / "sys/class/net") + b"/\xff\xfe/device")  # noqa: PTH102
    fingerprint(tree.root, "nics")


def test_this_node_does_not_change_by_itself():
    steady = [section for section in SECTIONS if section not in ("units", "containers", "boot", "mounts")]
    root = NodeRoot()
    assert [fingerprint(root, each) for each in steady] == [fingerprint(root, each) for each in steady]

"""Where unit files are from, read from a tree with a database of dpkg."""

import os
from pathlib import Path

import pytest
from tests.diagnose.audit.audit_scenes import unit

from exhume.collect.audit.facts import enabling_links, file_facts, files_of, first_boot
from exhume.collect.node_root import NodeRoot
from exhume.model.audit import Wants

FRAGMENT = "/usr/lib/systemd/system/thing.service"
LINK = "/etc/systemd/system/multi-user.target.wants/thing.service"


@pytest.fixture
def node(tmp_path: Path) -> NodeRoot:
    for name in (FRAGMENT, "/etc/machine-id"):
        place = tmp_path / name.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("x\n")
    (tmp_path / "lib").symlink_to("usr/lib")
    link = tmp_path / LINK.lstrip("/")
    link.parent.mkdir(parents=True)
    link.symlink_to(FRAGMENT)
    lists = tmp_path / "var/lib/dpkg/info"
    lists.mkdir(parents=True)
    # As packages of before the merge of /lib and /usr/lib list it.
    (lists / "thing:amd64.list").write_text("/.\n/lib/systemd/system\n/lib/systemd/system/thing.service\n")
    (lists / "other.list").write_text("/.\n/usr/bin/other\n")
    return NodeRoot(tmp_path)


def test_the_link_that_enables_it_is_found_and_not_followed(node):
    service = unit()
    assert enabling_links(node, service) == (LINK,)
    facts, _ = file_facts(node, [LINK])
    assert facts[LINK].changed == os.lstat(node.path / LINK.lstrip("/")).st_ctime_ns
    assert enabling_links(node, unit(wants=Wants(wanted_by=("other.target",)))) == ()


def test_the_package_that_owns_it(node):
    facts, database = file_facts(node, [FRAGMENT, LINK])
    assert (facts[FRAGMENT].package, facts[LINK].package, database) == ("thing", None, "dpkg")
    merged, _ = file_facts(node, ["/lib/systemd/system/thing.service"])
    assert merged["/lib/systemd/system/thing.service"].package == "thing"


def test_without_a_database_nothing_is_said_of_packages(tmp_path):
    facts, database = file_facts(NodeRoot(tmp_path), [FRAGMENT])
    assert (facts[FRAGMENT].package, facts[FRAGMENT].changed, database) == (None, None, "")


def test_the_first_boot_is_cloud_inits_or_the_machine_ids(node):
    boot = first_boot(node)
    assert boot is not None and boot.by.endswith("machine-id")
    instance = node.path / "var/lib/cloud/instances/i-0123"
    instance.mkdir(parents=True)
    (instance / "boot-finished").write_text("x")
    later = first_boot(node)
    assert later is not None and later.by == "by cloud-init" and later.at >= boot.at
    assert first_boot(NodeRoot(node.path / "usr")) is None


def test_names_that_are_no_names_do_no_harm(node):
    for name in ("../../etc/shadow", "a\nb.service", "$(reboot).service", "x" * 255, "-rf.service"):
        assert enabling_links(node, unit(name, fragment=None)) == ()
        assert files_of(unit(name, fragment=None), ()) == []

"""Installed packages out of the databases of dpkg, rpm and apk."""

import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from tests.collect.inventory.node_tree import NodeTree
from tests.collect.inventory.rpm_databases import berkeley, header, ndb, write_sqlite

from exhume.collect.inventory import packages
from exhume.collect.inventory.packages import header_values
from exhume.collect.inventory.reader import read_sections
from exhume.collect.node_root import NodeRoot
from exhume.model.inventory import Reason

DPKG = """Package: bash
Status: install ok installed
Version: 5.2-1
Description: a shell
 Version: not this one

Package: gone
Status: deinstall ok config-files
Version: 1

Package: libc6
Status: hold ok installed
Architecture: amd64
Version: 2.36-9

Package: libc6
Status: install ok installed
Architecture: i386
Version: 2.36-8
"""
APK = "C:Q1abc=\nP:musl\nV:1.2.4-r2\nA:x86_64\n\nP:busybox\nV:1.36.1-r5\n"
HEADERS = (header("bash", "5.1", "9.el9"), header("dbus", epoch=1), header("gpg-pubkey"), header("kernel" * 200))
EXPECTED = {"bash": "5.1-9.el9", "dbus": "1:1.0-1.el9", ("kernel" * 200)[:300]: "1.0-1.el9"}


def read(root: NodeRoot):
    (section,) = read_sections(root, ["packages"])
    return section


def test_dpkg(tree: NodeTree):
    tree.write("/var/lib/dpkg/status", DPKG)
    found = read(tree.root).value
    assert found.manager == "dpkg"
    assert found.versions == {"bash": "5.2-1", "libc6": "2.36-8,2.36-9"}


def test_an_image_without_a_package_manager_has_a_file_for_each_package(tree: NodeTree):
    tree.write("/var/lib/dpkg/status.d/base", "Package: base-files\nVersion: 12.4\n")
    tree.write("/var/lib/dpkg/status.d/base.md5sums", "Package: x\nVersion: 1\n")
    assert read(tree.root).value.versions == {"base-files": "12.4"}


def test_apk(tree: NodeTree):
    tree.write("/lib/apk/db/installed", APK)
    found = read(tree.root).value
    assert (found.manager, found.versions) == ("apk", {"musl": "1.2.4-r2", "busybox": "1.36.1-r5"})


@pytest.mark.parametrize("container", ["sqlite", "ndb", "berkeley", "berkeley-big-endian"])
@pytest.mark.parametrize("directory", ["/var/lib/rpm", "/usr/lib/sysimage/rpm"])
def test_rpm(tree: NodeTree, container: str, directory: str):
    if container == "sqlite":
        write_sqlite(tree.path / f"{directory[1:]}/rpmdb.sqlite", HEADERS)
    elif container == "ndb":
        tree.write(f"{directory}/Packages.db", ndb(HEADERS))
    else:
        tree.write(f"{directory}/Packages", berkeley(HEADERS, ">" if "big" in container else "<"))
    found = read(tree.root).value
    assert found.manager == "rpm" and found.versions == EXPECTED


@pytest.mark.needs("rpm", "rpmbuild")
def test_a_database_that_rpm_itself_wrote(tree: NodeTree, tmp_path: Path):
    spec = "Name: tiny\nEpoch: 3\nVersion: 1.2\nRelease: 4\nSummary: s\nLicense: x\nBuildArch: noarch\n"
    spec += "%description\nx\n%files\n"
    (tmp_path / "tiny.spec").write_text(spec)
    build = ["rpmbuild", "-bb", "--define", f"_topdir {tmp_path}/b", str(tmp_path / "tiny.spec")]
    subprocess.run(build, check=True, capture_output=True)
    (built,) = (tmp_path / "b").rglob("*.rpm")
    database = tree.path / "var/lib/rpm"
    database.mkdir(parents=True)
    install = ["rpm", "--dbpath", str(database), "--justdb", "--nodeps", "--ignorearch", "-i", str(built)]
    subprocess.run(install, check=True, capture_output=True)
    assert read(tree.root).value.versions == {"tiny": "3:1.2-4"}


def test_the_real_database_of_this_host_agrees_with_its_package_manager():
    query = shutil.which("dpkg-query")
    if query is None or not Path("/var/lib/dpkg/status").exists():
        assert read(NodeRoot()).value is None or read(NodeRoot()).value.manager != "dpkg"
        return
    shown = "${Package}\\t${Version}\\t${db:Status-Status}\\n"
    listed = subprocess.run([query, "-W", "-f", shown], check=True, capture_output=True, text=True).stdout
    rows = [line.split("\t") for line in listed.splitlines()]
    expected = {(name, version) for name, version, state in rows if state == "installed"}
    found = read(NodeRoot()).value.versions
    assert {(name, each) for name, versions in found.items() for each in versions.split(",")} == expected


def test_a_node_without_a_database_says_so(tree: NodeTree):
    section = read(tree.root)
    assert section.value is None and section.missing[0].reason is Reason.ABSENT


@pytest.mark.parametrize("name", ["rpmdb.sqlite", "Packages.db", "Packages"])
def test_a_damaged_database_is_a_failure_and_not_an_empty_list(tree: NodeTree, name: str):
    tree.write(f"/var/lib/rpm/{name}", b"not a database" * 100)
    section = read(tree.root)
    assert section.value is None and section.missing[0].reason is Reason.FAILED


def test_more_packages_than_are_kept_are_counted(tree: NodeTree, monkeypatch):
    monkeypatch.setattr(packages, "MOST_PACKAGES", 10)
    tree.write("/lib/apk/db/installed", "\n\n".join(f"P:p{number}\nV:1" for number in range(30)))
    section = read(tree.root)
    assert len(section.value.versions) == 10
    assert [each.reason for each in section.missing] == [Reason.TRUNCATED] and "30" in section.missing[0].detail


@pytest.mark.parametrize("record", [b"", b"\0" * 7, struct.pack(">2I", 1 << 31, 0), struct.pack(">2I", 0, 5)])
def test_a_header_that_is_none(record: bytes):
    with pytest.raises(ValueError):
        header_values(record)


def test_a_value_beyond_the_end_is_left_out():
    record = struct.pack(">2I4I", 1, 4, 1000, 6, 99, 1) + b"abc\0"
    assert header_values(record) == {}


@pytest.mark.parametrize("make", [ndb, berkeley], ids=["ndb", "berkeley"])
def test_any_bytes_end_in_packages_or_a_reason(tree: NodeTree, make):
    chance = random.Random(7)
    valid = make(HEADERS)
    place = tree.write(f"/var/lib/rpm/{'Packages.db' if make is ndb else 'Packages'}", valid)
    for _ in range(300):
        content = bytearray(valid)
        for _ in range(chance.choice((1, 2, 8))):
            at = chance.randrange(len(content))
            content[at : at + chance.choice((1, 4))] = chance.randbytes(chance.choice((1, 4)))
        place.write_bytes(content[: chance.choice((len(content), chance.randrange(len(content))))])
        section = read(tree.root)
        assert section.value is not None or section.missing

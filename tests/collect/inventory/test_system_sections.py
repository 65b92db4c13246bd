"""Release, image, hardware, kernel, settings, limits, mounts, cgroups and cloud, on made-up nodes."""

import json
import os

import pytest
from tests.collect.inventory.node_tree import NodeTree

from exhume.collect.inventory.files import NodeFiles, Unreadable
from exhume.collect.inventory.reader import read_sections, reader_of, take_inventory
from exhume.collect.inventory.system import kernel_parameters
from exhume.collect.node_root import NodeRoot
from exhume.model.inventory import SECTIONS, Reason

OS_RELEASE = 'ID=ubuntu\nVERSION_ID="20.04"\nPRETTY_NAME="Ubuntu 20.04.6 LTS"\n# a comment\nIMAGE_ID=\n'
MOUNTS = """22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw,discard,errors=remount-ro
23 22 0:20 / /proc rw - proc proc rw
24 22 259:2 / /data ro,noatime - xfs /dev/nvme1n1 rw,attr2
25 22 0:50 / /var/lib/kubelet/pods/aa/volumes/x rw - tmpfs tmpfs rw
26 22 0:51 / /var/lib/docker/overlay2/1/merged rw - overlay overlay rw,lowerdir=/a
27 22 0:52 / /mnt/nas rw - cifs //nas/share rw,username=me,password=hunter2
28 22 0:53 / /mnt/web rw - fuse https://me:hunter2@host/share rw
"""
LIMITS = """Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max open files            1024                 524288               files     
"""  # noqa: W291


def read(tree: NodeTree, section: str):
    files = NodeFiles(tree.root, section)
    return reader_of(section)(files), files.missing


def reason(tree: NodeTree, section: str) -> Reason:
    with pytest.raises(Unreadable) as raised:
        read(tree, section)
    assert raised.value.detail
    return raised.value.reason


def test_the_system_by_os_release(tree: NodeTree):
    tree.write("/usr/lib/os-release", OS_RELEASE)
    tree.link("/etc/os-release", "../usr/lib/os-release")
    tree.link("/etc/localtime", "/usr/share/zoneinfo/Europe/Berlin")
    found, missing = read(tree, "os")
    assert (found.id, found.version, found.name) == ("ubuntu", "20.04", "Ubuntu 20.04.6 LTS")
    assert found.timezone == "Europe/Berlin" and not missing


def test_the_image_by_what_was_written_for_it_first(tree: NodeTree):
    tree.write("/etc/os-release", OS_RELEASE)
    assert reason(tree, "image") is Reason.ABSENT
    tree.write("/etc/cloud/build.info", "build_name: server\nserial: 20250214\n")
    assert read(tree, "image")[0].id == "server"
    tree.write("/run/cloud-init/instance-data.json", json.dumps({"ds": {"meta_data": {"ami-id": "ami-12"}}}))
    assert read(tree, "image")[0].id == "ami-12"
    tree.write("/etc/image-id", 'image_name="al2023"\nimage_version="2023.6"\nsecret_thing=x\n')
    found, _ = read(tree, "image")
    assert (found.id, found.version, found.source) == ("al2023", "2023.6", "/etc/image-id")
    assert not any("secret" in key for key in found.facts)
    tree.write("/etc/os-release", "IMAGE_ID=dl-base\nIMAGE_VERSION=7\n")
    assert (read(tree, "image")[0].id, read(tree, "image")[0].version) == ("dl-base", "7")


def test_the_machine(tree: NodeTree):
    tree.write("/proc/cpuinfo", "model name\t: Xeon 8175\nmicrocode\t: 0x5\n\nprocessor: 1\nmodel name\t: other\n")
    tree.write("/proc/meminfo", "MemTotal:       1048576 kB\nMemFree: 1 kB\n")
    tree.write("/sys/devices/system/cpu/online", "0-95\n")
    tree.write("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,48\n")
    tree.write("/sys/devices/system/node/online", "0-1\n")
    tree.write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n")
    tree.write("/sys/class/dmi/id/sys_vendor", "Amazon EC2\n")
    tree.write("/sys/class/dmi/id/product_name", "p4d.24xlarge\n")
    tree.write("/sys/class/dmi/id/product_serial", "ec2abc-secret\n")
    found, _ = read(tree, "hardware")
    assert (found.cpu, found.microcode, found.cores, found.threads_per_core) == ("Xeon 8175", "0x5", 96, 2)
    assert (found.numa_nodes, found.memory_bytes, found.clocksource) == (2, 1 << 30, "tsc")
    assert (found.vendor, found.product) == ("Amazon EC2", "p4d.24xlarge")
    cloud, _ = read(tree, "cloud")
    assert (cloud.provider, cloud.instance_type) == ("aws", "p4d.24xlarge")


def test_the_kernel_and_its_command_line_without_secrets(tree: NodeTree):
    assert reason(tree, "kernel") is Reason.ABSENT
    tree.write("/proc/sys/kernel/osrelease", "6.1.0-13-cloud-amd64\n")
    tree.write("/proc/sys/kernel/tainted", "4096\n")
    tree.write("/proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=1 ro mitigations=off db.password=hunter2\n")
    tree.write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    tree.write("/sys/devices/system/cpu/vulnerabilities/meltdown", "Mitigation: PTI\n")
    found, _ = read(tree, "kernel")
    assert found.release == "6.1.0-13-cloud-amd64" and found.tainted == 4096
    assert found.transparent_hugepages == "madvise" and found.mitigations == {"meltdown": "Mitigation: PTI"}
    assert found.cmdline == ("BOOT_IMAGE=/vmlinuz", "root=UUID=1", "ro", "mitigations=off", "db.password=***")


@pytest.mark.parametrize(
    "text",
    [
        "systemd.setenv=TOKEN=hunter2",
        "systemd.setenv=HARMLESS=hunter2",
        "systemd.set_credential=mycred:hunter2",
        "systemd.set_credential_binary=mycred:hunter2",
        "ks=https://me:hunter2@host/ks.cfg",
        "LICENCE=hunter2",
        "api_key=hunter2",
        'quoted="a password=hunter2 b"',
        'unclosed=" token=hunter2',
    ],
)
def test_no_value_of_an_environment_or_secret_stays_in_the_command_line(text):
    shown = kernel_parameters(f"ro {text} quiet")
    assert "hunter2" not in " ".join(shown)
    assert shown[0] == "ro" and any(text.partition("=")[0].strip() in each for each in shown)


def test_settings_that_a_kernel_lacks_are_left_out_and_closed_ones_named(tree: NodeTree):
    assert reason(tree, "sysctls") is Reason.ABSENT
    tree.write("/proc/sys/vm/swappiness", "60\n")
    tree.write("/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n")
    found, missing = read(tree, "sysctls")
    assert found == {"vm.swappiness": "60", "net.ipv4.tcp_rmem": "4096 131072 6291456"} and not missing


def test_limits(tree: NodeTree):
    tree.write("/proc/1/limits", LIMITS)
    tree.write("/etc/security/limits.conf", "# a comment\n*  soft  nofile  65536 # more\n\n")
    tree.write("/etc/security/limits.d/90.conf", "root hard core 0\n")
    tree.write("/etc/security/limits.d/readme", "not * one 1\n")
    found, _ = read(tree, "limits")
    assert found.init == {"cpu time": "unlimited:unlimited", "open files": "1024:524288"}
    assert found.configured == ("* soft nofile 65536", "root hard core 0")


def test_mounts_of_the_node_alone_and_without_secrets(tree: NodeTree):
    tree.write("/proc/1/mountinfo", MOUNTS)
    found, _ = read(tree, "mounts")
    assert [mount.point for mount in found] == ["/", "/data", "/mnt/nas", "/mnt/web"]
    assert "ro" in found[1].options and "noatime" in found[1].options and "attr2" in found[1].options
    assert "hunter2" not in repr(found)


def test_many_mounts_are_bounded_and_that_is_noted(tree: NodeTree):
    line = "24 22 259:2 / /m{} rw - xfs /dev/sdb rw\n"
    tree.write("/proc/1/mountinfo", "".join(line.format(number) for number in range(3000)))
    found, missing = read(tree, "mounts")
    assert len(found) == 1000
    assert [(each.section, each.reason) for each in missing] == [("mounts", Reason.TRUNCATED)]


def test_the_layout_of_cgroups(tree: NodeTree):
    assert reason(tree, "cgroups") is Reason.ABSENT
    tree.write("/proc/self/mountinfo", "30 1 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n")
    tree.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory io\n")
    for name in ("system.slice", "kubepods.slice", "docker-0123456789abcdef0123"):
        (tree.path / "sys/fs/cgroup" / name).mkdir(parents=True)
    tree.write("/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\ncgroupDriver: systemd\n")
    found, _ = read(tree, "cgroups")
    assert (found.version, found.driver) == ("v2", "systemd")
    assert found.hierarchies[0].controllers == ("cpu", "io", "memory")
    assert found.slices == ("docker-*", "kubepods.slice", "system.slice")


def test_the_cloud_by_what_cloud_init_left_for_every_user(tree: NodeTree):
    data = {
        "v1": {"cloud_name": "aws", "region": "us-east-1", "availability_zone": "us-east-1b"},
        "ds": {"meta_data": {"instance-type": "m5.large", "ami-id": "ami-1", "public-keys": "ssh-rsa hunter2"}},
        "user_data": "hunter2",
    }
    tree.write("/run/cloud-init/instance-data.json", json.dumps(data))
    tree.write("/run/cloud-init/instance-data-sensitive.json", '{"v1": {"region": "wrong"}}')
    found, _ = read(tree, "cloud")
    assert (found.provider, found.zone, found.instance_type) == ("aws", "us-east-1b", "m5.large")
    assert found.image == "ami-1" and found.region == "us-east-1"
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize("text", ["", "[]", "5", '{"v1": 5, "ds": []}', '{"v1": {"region": {}}}', "{" * 50_000, "\xff"])
def test_any_instance_data_is_read_or_refused(tree: NodeTree, text):
    tree.write("/run/cloud-init/instance-data.json", text)
    (section,) = read_sections(tree.root, ["cloud"])
    assert section.value is None and section.missing


def test_what_is_not_a_plain_file_is_not_opened(tree: NodeTree):
    os.mkfifo(tree.path / "etc/os-release")
    (section,) = read_sections(tree.root, ["os"])
    assert section.value is None and section.missing[0].reason is Reason.ABSENT


def test_links_of_the_node_lead_nowhere_outside_of_it(tree: NodeTree, tmp_path):
    (tmp_path / "outside").write_text("ID=outside\n")
    tree.link("/etc/os-release", str(tmp_path / "outside"))
    (section,) = read_sections(tree.root, ["os"])
    assert section.value is None


def test_a_file_that_is_closed_to_us_is_a_permission_that_is_missing(tree: NodeTree, monkeypatch):
    tree.write("/proc/sys/vm/swappiness", "60\n")
    tree.write("/proc/sys/vm/dirty_ratio", "20\n")
    real = os.open

    def closed(path, *args, **others):
        if str(path).endswith(("os-release", "dirty_ratio")):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **others)

    monkeypatch.setattr("exhume.collect.inventory.files.os.open", closed)
    system, settings = read_sections(tree.root, ["os", "sysctls"])
    assert system.value is None and [each.reason for each in system.missing] == [Reason.PERMISSION]
    assert settings.value == {"vm.swappiness": "60"}
    assert [(each.section, each.reason) for each in settings.missing] == [("sysctls.vm.dirty_ratio", Reason.PERMISSION)]


def test_an_empty_node_has_a_reason_for_each_section(tree: NodeTree):
    found = take_inventory(tree.root)
    assert all(getattr(found, section) is None for section in SECTIONS)
    assert {each.section for each in found.missing} >= set(SECTIONS)
    assert all(each.detail for each in found.missing)


def test_this_node_has_the_sections_that_every_kernel_gives():
    sections = {each.name: each for each in read_sections(NodeRoot(), ["kernel", "hardware", "sysctls", "modules"])}
    assert sections["kernel"].value.release == os.uname().release
    assert sections["hardware"].value.cores >= len(os.sched_getaffinity(0))
    assert sections["sysctls"].value["kernel.pid_max"].isdigit()

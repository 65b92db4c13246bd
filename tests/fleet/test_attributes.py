"""Attributes of inventories: two nodes that were made alike have the same."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fleet.inventories import AGENT, BOOTSTRAP, NOW, condition_unit, crash_loop, node, unit
from tests.parts import examples

from exhume.fleet.attributes import MOST_BYTES, Normalizer, attributes_of, container_name, section_of_key, unit_key
from exhume.model.audit import Exit, History, Manager, Service, Wants
from exhume.model.inventory import SECTIONS, Kernel, Limits, Missing, MountPoint, Nic, Reason, assemble


def test_the_keys_that_the_lake_promises():
    found = attributes_of(node())
    assert found["zone"] == "us-east-1a" and found["image"] == "dl-base 7" and found["kernel"] == "5.4.0-1103"
    assert found["instance_type"] == "p4d.24xlarge" and found["nic.driver"] == "ena" and found["nic.firmware"] == "1.0"
    assert found["os"] == "ubuntu 20.04" and found["cgroup.version"] == "v1"
    assert found["sysctl.net.core.somaxconn"] == "4096" and found["package.bash"] == "5.0"
    assert found["module.ena"] == "2.11.0g" and found["module.xfs"] == "loaded"
    assert found[f"unit.{AGENT}"] == "failed/crash-loop" and found[f"unit.{AGENT}.restarts"] == "100+"
    assert found[f"unit.{BOOTSTRAP}"] == "active" and found["bootstrap"] == "ok"
    assert "uptime" not in found and all(value for value in found.values())


def test_a_unit_that_never_started_names_the_first_cause():
    found = attributes_of(node(bootstrap=False))
    assert found[f"unit.{AGENT}"] == "inactive/never-started" and found[f"unit.{AGENT}.because"] == BOOTSTRAP
    assert found[f"unit.{BOOTSTRAP}"] == "failed" and found[f"unit.{BOOTSTRAP}.exit"] == "code 22"
    assert found["bootstrap"] == "failed" and found["bootstrap.because"] == BOOTSTRAP


@pytest.mark.parametrize(
    ("service", "state"),
    [
        (unit("a.service", age_s=900.0), "active"),
        (unit("a.service", "activating", age_s=1.0), "active"),
        (unit("a.service", "inactive"), "inactive"),
        (unit("a.service", "inactive", enabled="masked"), "inactive/masked"),
        (unit("a.service", "inactive", enabled="disabled"), "inactive/disabled"),
        (unit("a.service", "inactive", wants=Wants(triggered_by=("a.timer",))), "triggered"),
        (unit("a.service", "active", age_s=1.0, wants=Wants(triggered_by=("a.timer",))), "triggered"),
        (unit("a.service", "active", wants=Wants(triggered_by=("a.socket",))), "active"),
        (unit("a.service", "failed"), "failed"),
        (condition_unit("a.service"), "inactive/condition"),
        (crash_loop("a.service"), "failed/crash-loop"),
    ],
)
def test_states_of_units(service, state):
    assert attributes_of(node(units=(service,)))["unit.a.service"] == state


def test_nodes_made_alike_differ_in_nothing():
    other = node(
        "ip-10-0-2-99",
        kernel=Kernel("5.4.0-1103", cmdline=("root=UUID=aaaaaaaa-0000-4000-8000-00000000000f", "ro", "console=ttyS0")),
        units=(crash_loop(AGENT, restarts=5000), *(each for each in node().units if each.id != AGENT)),
    )
    assert attributes_of(other) == attributes_of(node())


def test_ids_addresses_times_and_names_of_nodes_are_no_values():
    normal = Normalizer("worker-17.example.org")
    for one, other in (
        ("host worker-17 up", "host <node> up"),
        ("a 10.1.2.3:80", "a <address>:80"),
        ("fe80:0:0:1:2:3:4:5", "<address>"),
        ("aa:bb:cc:dd:ee:0f", "<mac>"),
        ("6f1c5a9e-0000-4000-8000-000000000001", "<uuid>"),
        ("x-0123456789ab", "x-<id>"),
        ("i-0abc123def456", "<id>"),
        ("at 2026-01-02T03:04:05Z", "at <time>"),
        ("version 5.4.0-1103", "version 5.4.0-1103"),
    ):
        assert normal(one) == other


def test_a_node_that_is_called_like_a_program_replaces_nothing():
    assert Normalizer("docker")("docker.service") == "docker.service"


def test_unit_names_without_what_is_of_one_node():
    disk = r"systemd-fsck@dev-disk-by\x2duuid-6f1c5a9e\x2d0000\x2d4000\x2d8000\x2d000000000001.service"
    assert unit_key(disk) == "systemd-fsck@dev-disk-by-uuid-<uuid>.service"
    assert unit_key("user@1000.service") == "user@*.service"
    assert unit_key("getty@tty1.service") == "getty@tty1.service"
    assert unit_key("k8s-agent2.service") == "k8s-agent2.service"
    transient = unit("run-u17.service", fragment="/run/systemd/transient/run-u17.service")
    assert "unit.run-u17.service" not in attributes_of(node(units=(transient,)))


def test_mounts_without_sizes_addresses_and_disks():
    mounts = (
        MountPoint("/data", "nfs4", "10.0.0.7:/x", ("rw", "addr=10.0.0.7", "vers=4.2")),
        MountPoint("/dev/shm", "tmpfs", "tmpfs", ("rw", "size=65536k")),
        MountPoint("/run", "tmpfs", "tmpfs", ("rw", "size=6553k", "mode=755")),
    )
    found = attributes_of(node(mounts=mounts))
    assert found["mount./data"] == "nfs4 rw,vers=4.2"
    assert found["mount./dev/shm"] == "tmpfs rw,size=65536k" and found["mount./run"] == "tmpfs mode=755,rw"


def test_interfaces_in_other_slots_are_the_same():
    one = node(nics=(Nic("ens5", "ena", queues={"0": "0", "1": "1"}), Nic("ens6", "ena")))
    other = node(nics=(Nic("eth0", "ena"), Nic("eth1", "ena", queues={"0": "3", "1": "9"})))
    assert attributes_of(one) == attributes_of(other)
    crowded = node(nics=(Nic("ens5", "ena", queues={"0": "0", "1": "0"}), Nic("ens6", "ena")))
    assert attributes_of(crowded)["nic.queue_cores"] == "1" != attributes_of(one)["nic.queue_cores"]


def test_containers_by_what_keeps_them():
    def container(name, pod=None, workload=None, **others):
        return Service(Manager.CRI, "", name, state="running", age_s=900.0, pod=pod, workload=workload, **others)

    web = container("shop/web-6c9-x2/nginx", "shop/web-6c9-x2", "deployment/web", image="nginx:1.25")
    assert container_name(web) == "shop/web/nginx"
    assert container_name(container("plain")) == "plain"
    assert container_name(container("a/b/c", "a/b", "job/import")) == ""
    found = attributes_of(node(containers=(web,)))
    assert found["container.shop/web/nginx"] == "running" and found["container.image.shop/web/nginx"] == "nginx:1.25"
    ends = tuple(Exit(NOW - ago * 10**10, code=1) for ago in range(1, 6))
    loop = replace(web, state="restarting", history=History("runtime", 1.0, 60, 60, 60.0, ends))
    assert attributes_of(node(containers=(loop,)))["container.shop/web/nginx"] == "failed/crash-loop"


def test_labels_name_the_place_before_anything_else_does():
    found = attributes_of(replace(node(), labels={"zone": "b", "instance-type": "m5", "team": "ml", "hostname": "x"}))
    assert found["zone"] == "b" and found["instance_type"] == "m5" and found["label.team"] == "ml"
    assert not any("hostname" in key for key in found)


def test_limits_by_their_names():
    found = attributes_of(node(limits=Limits({"open files": "1:2"}, ("* soft nofile 65536", "alone"))))
    assert found["limit.open_files"] == "1:2" and found["limit.configured.*.soft.nofile"] == "65536"


def test_what_is_missing_is_named_with_its_reason():
    found = attributes_of(assemble("n", NOW, {}, [Missing("packages", Reason.PERMISSION)]))
    assert found["missing.packages"] == "permission" and found["missing.units"] == "absent"
    assert {key.partition(".")[2] for key in found} == set(SECTIONS)


def test_the_section_of_a_key():
    for key in attributes_of(node()):
        assert key.startswith("missing.") or section_of_key(key) in SECTIONS, key


@pytest.mark.slow
@examples(100)
@given(st.text(max_size=300), st.dictionaries(st.text(max_size=300), st.text(max_size=300), max_size=5))
def test_any_names_give_short_values(name, values):
    odd = node(name, sysctls=values, labels=values, units=(unit(name), crash_loop(name + "x")), modules=values)
    for key, value in attributes_of(odd).items():
        assert len(key.encode()) <= MOST_BYTES and 0 < len(value.encode()) <= MOST_BYTES


def test_long_names_take_no_longer_than_their_length():
    began = time.thread_time()
    for text in ("0" * 100_000, "a1" * 50_000, "a:" * 50_000, "1." * 50_000, "-" * 100_000, "ip-1" + "-1" * 50_000):
        Normalizer("worker-17")(text)
        unit_key(text)
    assert time.thread_time() - began < 5.0

"""The catalogue of agents: whole, without doubles, and true to its page."""

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.diagnose.audit.audit_scenes import container, unit

from exhume.diagnose.audit.agents import agents, agents_table, questions, recognise
from exhume.model.audit import CheckKind

ROOT = Path(__file__).resolve().parents[3]
ENTRIES = list(agents().values())
WITH_FILES = {CheckKind.FILE, CheckKind.LINE, CheckKind.SOCKET, CheckKind.CREDENTIALS}
CHECKED = [(entry, check) for entry in ENTRIES for check in questions(entry)]


def protected(name: str) -> bool:
    entry = recognise(unit(name))
    return entry is not None and entry.protected


def ids(value) -> str:
    return getattr(value, "id", getattr(value, "kind", ""))


def test_it_knows_the_agents_that_images_bring():
    assert len(ENTRIES) >= 50
    wanted = (
        "ecs-agent ssm-agent cloudwatch-agent datadog fluentd fluent-bit node-exporter kube-proxy docker containerd"
    )
    wanted += " kubelet snapd unattended-upgrades cri-o multipathd iscsi azure-agent google-guest-agent telegraf falco"
    assert set(wanted.split()) <= set(agents())


@pytest.mark.parametrize("entry", ENTRIES, ids=ids)
def test_every_entry_is_whole(entry):
    assert entry.title and entry.purpose and entry.source.startswith("https://")
    assert entry.units or entry.images
    assert not entry.purpose.endswith(".") and entry.purpose[0].islower()
    assert all(need.what and need.checks for need in entry.needs)
    assert len({need.what for need in entry.needs}) == len(entry.needs)


@pytest.mark.parametrize(("entry", "check"), CHECKED, ids=ids)
def test_every_check_has_what_its_kind_needs(entry, check):
    assert bool(check.paths) or check.kind not in WITH_FILES
    assert all(path.startswith("/") for path in check.paths)
    assert bool(check.pattern) == (check.kind is CheckKind.LINE)
    re.compile(check.pattern)
    assert bool(check.names) == (check.kind in {CheckKind.ENV, CheckKind.PROCESS, CheckKind.UNIT, CheckKind.MOUNT})
    assert (check.port is not None) == (check.kind is CheckKind.PORT)


def test_nothing_is_claimed_by_two_agents():
    for names in ("units", "programs", "images"):
        counted = Counter(name for entry in ENTRIES for name in getattr(entry, names))
        assert not [name for name, times in counted.items() if times > 1]
    for entry in ENTRIES:
        for name in (each for each in entry.units if "*" not in each):
            assert recognise(unit(name.replace("@.", "@x."))) is entry
        for name in (each for each in entry.images if "*" not in each):
            assert recognise(container(image=f"{name}:1.2.3")) is entry


def test_what_keeps_the_node_running_has_no_decisive_needs():
    """Nothing may ever lead to stopping it."""
    assert not [e.id for e in ENTRIES if e.protected and any(need.decisive for need in e.needs)]


def test_a_role_that_cannot_be_seen_never_decides():
    kinds = {CheckKind.CREDENTIALS, CheckKind.PEER}
    guessed = [n for e in ENTRIES for n in e.needs if n.decisive and any(c.kind in kinds for c in n.checks)]
    assert not guessed


def test_protected_units():
    for name in (
        "sshd.service",
        "ssh@7.service",
        "kubelet.service",
        "docker.service",
        "dbus.service",
        "user@0.service",
    ):
        assert protected(name)
    for name in ("ecs.service", "sshguard.service", "nginx.service"):
        assert not protected(name)


@pytest.mark.parametrize(
    ("image", "known"),
    [
        ("amazon/amazon-ecs-agent", "ecs-agent"),
        ("docker.io/amazon/amazon-ecs-agent:latest", "ecs-agent"),
        ("localhost:5000/mirror/amazon-ecs-agent@sha256:" + "0" * 64, "ecs-agent"),
        ("registry.k8s.io/kube-proxy:v1.31.0", "kube-proxy"),
        ("gcr.io/datadoghq/agent:7.60.0", "datadog"),
        ("docker.io/library/telegraf:1.32", "telegraf"),
        ("localhost:5000/telegraf-like:1", None),
        ("", None),
        (None, None),
    ],
)
def test_images_are_known_with_any_tag_and_registry(image, known):
    entry = recognise(container(image=image))
    assert (entry.id if entry else None) == known


@pytest.mark.parametrize(
    ("command", "known"),
    [
        ("/usr/local/bin/node_exporter --web.listen-address=:9100", "node-exporter"),
        ("-/usr/sbin/dockerd -H fd://", "docker"),
        ("/opt/acme/run node_exporter", None),
        ("", None),
        ("   ", None),
    ],
)
def test_a_unit_of_another_name_is_known_by_its_program(command, known):
    entry = recognise(unit("acme.service", command=command))
    assert (entry.id if entry else None) == known


def test_the_page_has_the_table():
    assert agents_table() in (ROOT / "docs/agents.md").read_text()


@pytest.mark.parametrize(
    "name",
    [
        "chronyd.service",
        "auditd.service",
        "cloud-final.service",
        "wg-quick@wg0.service",
        "rbdmap.service",
        "ssh.socket",
        "systemd-logind.service",
        "getty@tty1.service",
        "serial-getty@ttyS0.service",
        "etcd.service",
    ],
)
def test_what_a_node_stands_on_is_protected(name):
    assert protected(name)


@pytest.mark.parametrize(
    "image",
    [
        "quay.io/calico/node:v3.27.0",
        "docker.io/calico/node:v3",
        "quay.io/cilium/cilium:v1.15@sha256:ab12",
        "602401143452.dkr.ecr.us-west-2.amazonaws.com/amazon-k8s-cni:v1.16.0",
        "ghcr.io/flannel-io/flannel:v0.25.1",
        "registry.k8s.io/etcd:3.5.12-0",
        "registry.k8s.io/kube-apiserver:v1.30.0",
        "registry.k8s.io/coredns/coredns:v1",
        "public.ecr.aws/ebs-csi-driver/aws-ebs-csi-driver:v1.30.0",
        "quay.io/cephcsi/cephcsi:v3",
        "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.10.0",
    ],
)
def test_what_the_pods_of_a_node_stand_on_is_protected(image):
    entry = recognise(container(image=image))
    assert entry is not None and entry.protected

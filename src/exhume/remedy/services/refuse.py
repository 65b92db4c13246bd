"""What is not stopped, and why: what the node, or whoever sits at it, can't be without.

By name where the name is the rule, and by evidence, which also knows a service that nobody has heard of.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from exhume.model.audit import Agent, Manager, Service
from exhume.remedy.services.names import STOPPABLE, is_unit_name, kind_of
from exhume.remedy.services.surroundings import Surroundings, is_within

_WAY_IN, _NETWORK, _SYSTEM = "the way into this node", "the network", "a part of the system itself"
_RUNTIME, _KUBELET, _STORAGE = "the container runtime", "the kubelet", "storage that others stand on"
# Names of units without what comes after the dot (* stands for anything), by what they are.
_UNITS = {
    _WAY_IN: "ssh sshd ssh@* sshd@* sshd-* dropbear dropbear@* tailscaled teleport",
    _NETWORK: "network networking network-* NetworkManager NetworkManager-* systemd-networkd systemd-networkd-* "
    "systemd-resolved systemd-resolved-* connman connman-* wicked wickedd* wpa_supplicant wpa_supplicant@* dhclient* "
    "dhcpcd dhcpcd@* netplan-* ifup@* cloud-init cloud-init-* firewalld nftables iptables ip6tables flanneld",
    _SYSTEM: "init dbus dbus-* udev polkit emergency rescue user@* user-runtime-dir@* getty@* *-getty@* console-getty "
    "systemd-journal* systemd-logind* systemd-udev* systemd-remount-fs systemd-modules-load systemd-sysctl "
    "systemd-sysusers systemd-tmpfiles-* systemd-user-sessions systemd-fsck* systemd-machine-id-commit "
    "systemd-random-seed systemd-boot-* systemd-vconsole-setup systemd-initctl systemd-halt systemd-reboot "
    "systemd-poweroff systemd-exit systemd-update-*",
    _RUNTIME: "docker dockerd snap.docker.* containerd crio cri-o podman cri-docker cri-dockerd",
    _KUBELET: "kubelet k3s k3s-* rke2 rke2-* k0s* snap.microk8s.* snap.kubelet*",
    _STORAGE: "lvm2-* dm-event mdadm mdmonitor multipathd iscsid open-iscsi systemd-cryptsetup@* zfs-*",
}
_NAMED = tuple((pattern, what) for what, patterns in _UNITS.items() for pattern in patterns.split())
_PROGRAMS = {
    _WAY_IN: ("sshd", "dropbear"),
    _NETWORK: ("NetworkManager", "systemd-networkd", "dhclient", "dhcpcd"),
    _SYSTEM: ("systemd", "init", "dbus-daemon", "dbus-broker-launch", "systemd-udevd", "systemd-journald"),
    _RUNTIME: ("dockerd", "containerd", "crio"),
    _KUBELET: ("kubelet", "k3s", "rke2"),
}
_PROGRAM = {program: what for what, programs in _PROGRAMS.items() for program in programs}


def refusal(service: Service, around: Surroundings, agent: Agent | None = None) -> str:
    """Why a service is not stopped, whatever is asked, in a sentence; empty where it may be."""
    if service.manager is Manager.SYSTEMD:
        if not is_unit_name(service.id):
            return f"{service.id!r} is no name that systemd would take"
        if why := unit_refusal(service.id):
            return why
        program = _program(service.command)
        if program in _PROGRAM:
            return f"{service.key} runs {program}: it is {_PROGRAM[program]}"
    if agent is not None and agent.protected:
        return f"{service.key} is {agent.title}: {agent.purpose}"
    return _by_evidence(service, around)


def unit_refusal(name: str) -> str:
    """The same by the name of a unit alone."""
    if kind_of(name) not in STOPPABLE:
        return f"{name} is a {kind_of(name)}, which others stand on; exhume stops services, sockets, timers and paths"
    stem = name.rpartition(".")[0]
    what = next((what for pattern, what in _NAMED if fnmatchcase(stem, pattern)), "")
    return f"{name} is {what}" if what else ""


def required_refusal(name: str, along: Mapping[str, str]) -> str:
    """Why a unit that others require isn't stopped unless that is asked for."""
    if not along:
        return ""
    several = len(along) > 1
    return (
        f"{', '.join(along)} {'require' if several else 'requires'} {name} and would be stopped with it; "
        "--force-required does it all the same"
    )


def _by_evidence(service: Service, around: Surroundings) -> str:
    if service.pid is not None and service.pid in around.ours:
        return f"this very session runs below process {service.pid} of {service.key}"
    if any(is_within(cgroup, service.cgroup) for cgroup in around.our_cgroups):
        return f"this very process runs in {service.key} (cgroup {service.cgroup})"
    if any(is_within(cgroup, service.cgroup) for cgroup in around.way_in):
        return f"{service.key} listens on port {around.ssh_port}, where this SSH session came in"
    if service.manager is Manager.SYSTEMD and any(is_within(cgroup, service.cgroup) for cgroup in around.shims):
        return f"{service.key} is a container runtime: a containerd-shim of a live container belongs to it"
    return ""


def _program(command: str | None) -> str:
    """The program of a command line; systemd's marks before it don't belong to it."""
    words = (command or "").split()
    return words[0].lstrip("-@:+!|").rpartition("/")[2] if words else ""

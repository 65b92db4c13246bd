"""What is not stopped, and why: what the node, or whoever sits at it, can't be without.

By name where the name is the rule, and by evidence, which also knows a service that nobody has heard of.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from exhume.model.audit import Agent, Manager, Service
from exhume.remedy.services.names import STOPPABLE, is_container_id, is_unit_name, kind_of
from exhume.remedy.services.surroundings import SSH_PORT, Surroundings, is_within

_WAY_IN, _NETWORK, _SYSTEM = "the way into this node", "the network", "a part of the system itself"
_RUNTIME, _KUBELET, _STORAGE = "the container runtime", "the kubelet", "storage that others stand on"
# Names of units without what comes after the dot (* stands for anything), by what they are.
_UNITS = {
    _WAY_IN: "ssh sshd ssh@* sshd@* sshd-* dropbear dropbear@* tailscaled teleport wg-quick@* openvpn openvpn@* "
    "openvpn-client@* openvpn-server@* strongswan strongswan-* ipsec",
    _NETWORK: "network networking network-* NetworkManager NetworkManager-* systemd-networkd systemd-networkd-* "
    "systemd-resolved systemd-resolved-* connman connman-* wicked wickedd* wpa_supplicant wpa_supplicant@* dhclient* "
    "dhcpcd dhcpcd@* netplan-* ifup@* cloud-init cloud-init-* firewalld nftables iptables ip6tables flanneld "
    "frr bird openvswitch openvswitch-switch ovs-* ovsdb-server",
    _SYSTEM: "init dbus dbus-broker dbus-broker-* dbus-daemon "
    "udev polkit emergency rescue user@* user-runtime-dir@* getty@* *-getty@* console-getty "
    "systemd-journal* systemd-logind* systemd-udev* systemd-remount-fs systemd-modules-load systemd-sysctl "
    "systemd-sysusers systemd-tmpfiles-* systemd-user-sessions systemd-fsck* systemd-machine-id-commit "
    "systemd-random-seed systemd-boot-* systemd-vconsole-setup systemd-initctl systemd-halt systemd-reboot "
    "systemd-poweroff systemd-exit systemd-update-*",
    _RUNTIME: "docker dockerd snap.docker.* containerd crio cri-o podman cri-docker cri-dockerd",
    _KUBELET: "kubelet k3s k3s-* rke2 rke2-* k0s* snap.microk8s.* snap.k8s.* snap.kubelet*",
    _STORAGE: "lvm2-* dm-event mdadm mdmonitor multipathd iscsid open-iscsi systemd-cryptsetup@* zfs-*",
}
_NAMED = tuple((pattern, what) for what, patterns in _UNITS.items() for pattern in patterns.split())
_PROGRAMS = {
    _WAY_IN: ("sshd", "sshd-session", "dropbear", "tailscaled"),
    _NETWORK: (
        *("NetworkManager", "systemd-networkd", "systemd-resolved", "dhclient", "dhcpcd", "connmand", "wickedd"),
        *("wpa_supplicant", "firewalld", "ovs-vswitchd", "ovsdb-server"),
    ),
    _SYSTEM: (
        *("systemd", "init", "dbus-daemon", "dbus-broker-launch", "dbus-broker", "systemd-udevd", "systemd-journald"),
        "systemd-logind",
    ),
    _RUNTIME: ("dockerd", "containerd", "crio", "cri-dockerd"),
    _KUBELET: ("kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent", "rke2", "k0s"),
}
_PROGRAM = {program: what for what, programs in _PROGRAMS.items() for program in programs}
# Programs that only start another one, which is told by the directory that it is in, or by the word before it.
_LAUNCHING = (
    "sh bash dash ash zsh ksh busybox env nice ionice chrt taskset setsid setpriv numactl stdbuf timeout flock tini "
    "dumb-init catatonit runuser su sudo systemd-cat chroot nsenter unshare ip"
)
_LAUNCHERS = frozenset(_LAUNCHING.split())
# Whatever a unit starts is a copy of systemd for a moment.
_BEGINS_ALL = frozenset({"systemd", "init"})
_PLACES = frozenset({"bin", "sbin", "libexec", "systemd"})
_GIVES_WAY = frozenset({"exec", "-c"})
_APART = re.compile(r"[\s;&|()\"'`$={}]+")


def refusal(
    service: Service, around: Surroundings, agent: Agent | None = None, names: Iterable[str] = (), listens: str = ""
) -> str:
    """Why a service is not stopped, whatever is asked, in a sentence; empty where it may be. `names` are all that a
    unit goes by, `listens` says where a socket does."""
    if service.manager is Manager.SYSTEMD:
        if not is_unit_name(service.id):
            return f"{service.id!r} is no name that systemd would take"
        if why := unit_refusal(service.id):
            return why
        for name in names:
            if why := unit_refusal(name):
                return f"{service.key} goes by the name of {name} too, and {why}"
        for program in _programs(service.command):
            if program in _PROGRAM:
                return f"{service.key} runs {program}: it is {_PROGRAM[program]}"
        if any(where.rpartition(":")[2] == str(SSH_PORT) for where in listens.split()):
            return f"{service.key} listens on port {SSH_PORT}: it is {_WAY_IN}"
    if agent is not None and agent.protected:
        return f"{service.key} is {agent.title}: {agent.purpose}"
    return _by_evidence(service, around)


def unit_as_it_stands(name: str, state: Mapping[str, str], command: str | None = None) -> Service:
    """A unit by what systemd says of its state, as far as a refusal asks for it."""
    pid = int(state["pid"]) if state.get("pid", "").isdigit() else 0
    return Service(
        Manager.SYSTEMD,
        name,
        name,
        state=state.get("active", ""),
        pid=pid or None,
        cgroup=state.get("cgroup") or None,
        command=command,
    )


def unit_refusal(name: str) -> str:
    """The same by the name of a unit alone."""
    if kind_of(name) not in STOPPABLE:
        return f"{name} is a {kind_of(name)}, which others stand on; exhume stops services, sockets, timers and paths"
    stem = name.rpartition(".")[0]
    what = next((what for pattern, what in _NAMED if fnmatchcase(stem, pattern)), "")
    return f"{name} is {what}" if what else ""


def required_refusal(name: str, along: Mapping[str, str], *, forced: bool) -> str:
    """Why a unit that others require isn't stopped: one of those is protected, or it is not `forced`."""
    for each in along:
        if kind_of(each) in STOPPABLE and (why := unit_refusal(each)):
            return f"{each} requires {name} and would be stopped with it, and {why}"
    if not along or forced:
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
    if service.manager is not Manager.SYSTEMD:
        return _way_in_by_container(service, around)
    if any(is_within(cgroup, service.cgroup) for cgroup in around.shims):
        return f"{service.key} is a container runtime: a containerd-shim of a live container belongs to it"
    if any(is_within(cgroup, service.cgroup) for cgroup in around.doors):
        return f"{service.key} listens on port {SSH_PORT}: it is {_WAY_IN}"
    for cgroup, program in sorted(around.programs):
        if program in _PROGRAM and program not in _BEGINS_ALL and is_within(cgroup, service.cgroup):
            return f"{program} runs in {service.key}: it is {_PROGRAM[program]}"
    return ""


def _way_in_by_container(service: Service, around: Surroundings) -> str:
    """Why a container is not stopped: people may come to the node through it, by the node's network or a port of its
    own."""
    if around.ssh_port is not None and around.ssh_port in service.published:
        return f"port {around.ssh_port}, where this SSH session came in, leads to {service.key}"
    if SSH_PORT in service.published:
        return f"port {SSH_PORT} of this node leads to {service.key}: it is {_WAY_IN}"
    if any(_is_of_container(cgroup, service) for cgroup in around.way_in):
        return f"{service.key} listens on port {around.ssh_port}, where this SSH session came in"
    if any(_is_of_container(cgroup, service) for cgroup in around.doors):
        return f"{service.key} listens on port {SSH_PORT} of this node: it is {_WAY_IN}"
    running = {program for cgroup, program in around.programs | around.inside if _is_of_container(cgroup, service)}
    for program in sorted({*running, *_entry_programs(service.command)}):
        if _PROGRAM.get(program) == _WAY_IN:
            return f"{service.key} runs {program}: it may be {_WAY_IN}"
    return ""


def _is_of_container(cgroup: str, service: Service) -> bool:
    """Cgroups of containers have the container's id in their path, wherever they are looked at from."""
    return is_within(cgroup, service.cgroup) or (is_container_id(service.id) and service.id in cgroup)


def _entry_programs(command: str | None) -> Iterator[str]:
    """The program of a container, and what the script starts that comes first in most images: it stands next."""
    yield from _programs(command)
    words = _APART.split(command or "")
    yield from words[1:2]
    yield from (
        name for word in words for place, _, name in [word.rpartition("/")] if place.rpartition("/")[2] in _PLACES
    )


def _programs(command: str | None) -> Iterator[str]:
    """The program of a command line, and what it starts where it does no more than that; systemd's marks before it
    don't belong to it."""
    first, _, rest = (command or "").strip().partition(" ")
    program = first.lstrip("-@:+!|").rpartition("/")[2]
    yield program
    if program in _LAUNCHERS:
        words = _APART.split(rest)
        for before, word in zip(("", *words), words, strict=False):
            place, slash, name = word.rpartition("/")
            # Not every word that is called so is a program: `rm -r /var/lib/containerd`.
            if place.rpartition("/")[2] in _PLACES if slash else before in _GIVES_WAY:
                yield name

"""Refusals: services that are never stopped, because the node or the person working on it depends on them.

Some are recognised by name, others by what the kernel shows: this process and its ancestors, the connection of this SSH
session, and runtimes with live containers.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

from exhume.control.containers import is_container_id
from exhume.control.systemd import STOPPABLE, is_unit_name, kind_of
from exhume.model.audit import Agent, Manager, Service
from exhume.model.errors import ExhumeError
from exhume.model.remedy import Step
from exhume.procfs.cgroup import parse_pid_cgroup
from exhume.procfs.host import Host, subdirectories
from exhume.procfs.pid_status import status_values
from exhume.remedy.services.actions import CONTAINER_ACTIONS, STOPPING_UNIT_ACTIONS, UNIT_ACTIONS, stopped_along
from exhume.remedy.services.node import Node

_SHIM = "containerd-shim"
_LISTENS = "0A"
_MOST_ANCESTORS = 64
# The usual port for logins, whichever program listens on it.
SSH_PORT = 22
_INIT_SCOPE = "/init.scope"
_GONE = " (deleted)"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Processes and cgroups, with the node's own pids and paths. `ours` is this process with its ancestors; `way_in`
    are the cgroups of what listens on the port of our SSH session, `shims` those with a live containerd-shim, `doors`
    those of what listens on the usual SSH port; `programs` are cgroups with the programs that run in them, `inside`
    those with programs in pid namespaces of their own, as in containers."""

    ours: Set[int] = frozenset()
    our_cgroups: Set[str] = frozenset()
    ssh_port: int | None = None
    way_in: Set[str] = frozenset()
    shims: Set[str] = frozenset()
    doors: Set[str] = frozenset()
    programs: Set[tuple[str, str]] = frozenset()
    inside: Set[tuple[str, str]] = frozenset()


def look_around(host: Host) -> Surroundings:
    """Read a node's /proc; nothing about this process if it does not run on that node."""
    proc = host.proc
    ours = list(_ancestors(proc))
    port = next((found for pid in ours if (found := _ssh_port(proc / str(pid))) is not None), None)
    listening = _listening(proc / "net", port) if port is not None else set()
    # The sockets of the node's own network namespace, whichever namespace we run in.
    usual = _listening(proc / "1/net", SSH_PORT)
    # The prefix of systemd's own paths if it runs in a container while /proc shows the whole path.
    first = (path.removesuffix(_INIT_SCOPE) for path in sorted(_cgroups(proc / "1", "")) if path.endswith(_INIT_SCOPE))
    above, space = next(first, ""), _link(proc / "1/ns/pid")
    way_in: set[str] = set()
    shims: set[str] = set()
    doors: set[str] = set()
    programs: set[tuple[str, str]] = set()
    inside: set[tuple[str, str]] = set()
    for process in (proc / name for name in subdirectories(proc) if name.isdigit()):
        cgroups = _cgroups(process, above)
        comm = _read(process / "comm").removesuffix(b"\n").decode(errors="replace")
        if comm.startswith(_SHIM):
            shims |= cgroups
        held = _held(process, listening | usual) if listening or usual else set()
        way_in |= cgroups if held & listening else set()
        doors |= cgroups if held & usual else set()
        where = programs if _link(process / "ns/pid") == space else inside
        # Both the executable's name and the comm: a script only has the latter.
        names = {_link(process / "exe").removesuffix(_GONE).rpartition("/")[2], comm} - {""}
        where |= set(product(cgroups, names))
    our_cgroups = set().union(*(_cgroups(proc / str(pid), above) for pid in ours if pid != 1))
    return Surroundings(set(ours) - {1}, our_cgroups, port, way_in, shims, doors, programs, inside)


def is_within(cgroup: str, whole: str | None) -> bool:
    """Whether a cgroup is `whole` or below it. Being below the root is meaningless, since everything is."""
    return bool(whole) and whole != "/" and (cgroup == whole or cgroup.startswith(f"{whole}/"))


def _ancestors(proc: Path) -> Iterator[int]:
    """The pids of this process and its ancestors, in the node's pid namespace."""
    try:
        # procfs returns our pid in the namespace of that mount, or fails if we are not in it.
        pid = int((proc / "self").readlink().name)
    except (OSError, ValueError):
        return
    for _ in range(_MOST_ANCESTORS):
        yield pid
        pid = next(iter(status_values(_read(proc / str(pid) / "status"), b"PPid")), 0)
        if pid == 0:
            return


def _ssh_port(process: Path) -> int | None:
    """The port of the process's SSH session. sudo hides it from our environment, but not from our ancestors'."""
    for each in _read(process / "environ").split(b"\0"):
        name, _, value = each.partition(b"=")
        fields = value.split()
        if name == b"SSH_CONNECTION" and len(fields) == 4 and fields[3].isdigit():
            return int(fields[3])
    return None


def _listening(net: Path, port: int) -> set[str]:
    """Sockets that listen on a port, in the form of /proc/PID/fd links."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in _read(net / name).decode(errors="replace").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(f"socket:[{fields[9]}]")
    return found


def _held(process: Path, sockets: set[str]) -> set[str]:
    """The given sockets that a process has open."""
    # PID 1 holds the sockets of all socket-activated units.
    if process.name == "1":
        return set()
    try:
        return {target for each in (process / "fd").iterdir() if (target := _link(each)) in sockets}
    except OSError:
        return set()


def _cgroups(process: Path, above: str) -> set[str]:
    paths = set(parse_pid_cgroup(_read(process / "cgroup")).values()) - {"/"}
    return {path.removeprefix(above) if path.startswith(f"{above}/") else path for path in paths}


def _link(path: Path) -> str:
    try:
        return os.fspath(path.readlink())
    except OSError:
        return ""


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


_WAY_IN, _NETWORK, _SYSTEM = "the way into this node", "the network", "a part of the system itself"
_RUNTIME, _KUBELET, _STORAGE = "the container runtime", "the kubelet", "storage that others stand on"
# Unit names without their suffix (* matches anything), by the unit's purpose.
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
# Programs that only start another one, which is recognised by its directory, or by the preceding argument.
_LAUNCHING = (
    "sh bash dash ash zsh ksh busybox env nice ionice chrt taskset setsid setpriv numactl stdbuf timeout flock tini "
    "dumb-init catatonit runuser su sudo systemd-cat chroot nsenter unshare ip"
)
_LAUNCHERS = frozenset(_LAUNCHING.split())
# Between fork and exec, everything that systemd starts is a copy of systemd.
_BEGINS_ALL = frozenset({"systemd", "init"})
_PLACES = frozenset({"bin", "sbin", "libexec", "systemd"})
_GIVES_WAY = frozenset({"exec", "-c"})
_APART = re.compile(r"[\s;&|()\"'`$={}]+")


def refusal(
    service: Service, around: Surroundings, agent: Agent | None = None, names: Iterable[str] = (), listens: str = ""
) -> str:
    """Why a service is never stopped, in a sentence; empty if it may be. `names` are all names of a unit, `listens` the
    addresses of a socket."""
    if service.manager is Manager.SYSTEMD:
        if not is_unit_name(service.id):
            return f"{service.id!r} is no name that systemd would take"
        if why := unit_refusal(service.id):
            return why
        for name in names:
            if why := unit_refusal(name):
                return f"{service.key} goes by the name of {name} too, and {why}"
        for program in _command_programs(service.command):
            if program in _PROGRAM:
                return f"{service.key} runs {program}: it is {_PROGRAM[program]}"
        if any(where.rpartition(":")[2] == str(SSH_PORT) for where in listens.split()):
            return f"{service.key} listens on port {SSH_PORT}: it is {_WAY_IN}"
    if agent is not None and agent.protected:
        return f"{service.key} is {agent.title}: {agent.purpose}"
    return _by_evidence(service, around)


def unit_as_it_stands(name: str, state: Mapping[str, str], command: str | None = None) -> Service:
    """Build a service from a unit's state, as far as refusals need it."""
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


def unit_refusal_now(name: str, state: Mapping[str, str], around: Surroundings, command: str | None = None) -> str:
    """Why a unit must not be stopped, according to its current state."""
    service = unit_as_it_stands(name, state, command)
    return refusal(service, around, None, state.get("names", "").split(), state.get("listens", ""))


def unit_refusal(name: str) -> str:
    """Why a unit must not be stopped, according to its name alone."""
    if kind_of(name) not in STOPPABLE:
        return f"{name} is a {kind_of(name)}, which others stand on; exhume stops services, sockets, timers and paths"
    stem = name.rpartition(".")[0]
    what = next((what for pattern, what in _NAMED if fnmatchcase(stem, pattern)), "")
    return f"{name} is {what}" if what else ""


def required_refusal(name: str, along: Mapping[str, str], *, forced: bool) -> str:
    """Why a unit that others require isn't stopped: one of those is protected, or the stop is not `forced`."""
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
    def holds(cgroups: Iterable[str]) -> bool:
        return any(is_within(cgroup, service.cgroup) for cgroup in cgroups)

    if service.pid is not None and service.pid in around.ours:
        return f"this very session runs below process {service.pid} of {service.key}"
    if holds(around.our_cgroups):
        return f"this very process runs in {service.key} (cgroup {service.cgroup})"
    if holds(around.way_in):
        return f"{service.key} listens on port {around.ssh_port}, where this SSH session came in"
    if service.manager is not Manager.SYSTEMD:
        return _way_in_by_container(service, around)
    if holds(around.shims):
        return f"{service.key} is a container runtime: a containerd-shim of a live container belongs to it"
    if holds(around.doors):
        return f"{service.key} listens on port {SSH_PORT}: it is {_WAY_IN}"
    for cgroup, program in sorted(around.programs):
        if program in _PROGRAM and program not in _BEGINS_ALL and holds([cgroup]):
            return f"{program} runs in {service.key}: it is {_PROGRAM[program]}"
    return ""


def _way_in_by_container(service: Service, around: Surroundings) -> str:
    """Why a container must not be stopped: logins to the node may go through it, over the node's network or a published
    port."""

    def has(cgroup: str) -> bool:
        """Whether it is the container's cgroup: its path contains the container id, in every cgroup namespace."""
        return is_within(cgroup, service.cgroup) or (is_container_id(service.id) and service.id in cgroup)

    if around.ssh_port is not None and around.ssh_port in service.published:
        return f"port {around.ssh_port}, where this SSH session came in, leads to {service.key}"
    if SSH_PORT in service.published:
        return f"port {SSH_PORT} of this node leads to {service.key}: it is {_WAY_IN}"
    if any(map(has, around.way_in)):
        return f"{service.key} listens on port {around.ssh_port}, where this SSH session came in"
    if any(map(has, around.doors)):
        return f"{service.key} listens on port {SSH_PORT} of this node: it is {_WAY_IN}"
    running = {program for cgroup, program in around.programs | around.inside if has(cgroup)}
    for program in sorted({*running, *_entry_programs(service.command)}):
        if _PROGRAM.get(program) == _WAY_IN:
            return f"{service.key} runs {program}: it may be {_WAY_IN}"
    return ""


def _entry_programs(command: str | None) -> Iterator[str]:
    """The programs of a container: its entrypoint, and the next argument, which entrypoint scripts usually start."""
    yield from _command_programs(command)
    args = _APART.split(command or "")
    yield from args[1:2]
    yield from (name for arg in args for place, _, name in [arg.rpartition("/")] if place.rpartition("/")[2] in _PLACES)


def _command_programs(command: str | None) -> Iterator[str]:
    """The program of a command line, and the program it starts if it is only a launcher. systemd's prefix characters
    are stripped."""
    first, _, rest = (command or "").strip().partition(" ")
    program = first.lstrip("-@:+!|").rpartition("/")[2]
    yield program
    if program in _LAUNCHERS:
        args = _APART.split(rest)
        for before, arg in zip(("", *args), args, strict=False):
            place, slash, name = arg.rpartition("/")
            # An argument with that name need not be a program: `rm -r /var/lib/containerd`.
            if place.rpartition("/")[2] in _PLACES if slash else before in _GIVES_WAY:
                yield name


def refusals_now(steps: Sequence[Step], node: Node, *, forced: bool) -> list[str]:
    """Why some services of a plan must not be stopped by this process now. Units that the plan listed as stopped along
    were accepted with the plan."""
    around = look_around(node.root.host)
    refusals: list[str] = []
    for step in steps:
        if step.action in CONTAINER_ACTIONS:
            refusals += [_container_refusal(target, around, node) for target in step.targets]
        elif step.action in UNIT_ACTIONS:
            control = node.controls.systemd()
            refusals += [unit_refusal_now(name, control.unit_state(name), around) for name in step.targets]
            along = stopped_along(control, step.targets) if step.action in STOPPING_UNIT_ACTIONS else {}
            unplanned = {name: how for name, how in along.items() if name not in step.dependents}
            refusals.append(required_refusal(step.targets[-1], unplanned, forced=forced))
    return list(dict.fromkeys(filter(None, refusals)))


def _container_refusal(target: str, around: Surroundings, node: Node) -> str:
    """Why a container, MANAGER:ID, must not be stopped; empty if it may be."""
    manager, _, number = target.partition(":")
    # The path of a container's cgroup contains its id.
    if any(number in cgroup for cgroup in around.our_cgroups):
        return f"this very process runs in {target}"
    try:
        ports = node.controls.engine(Manager(manager)).published(number)
    except ExhumeError:
        # It is gone, or its engine does not respond: the stop will report that.
        ports = ()
    return refusal(Service(Manager(manager), number, number, published=ports), around)

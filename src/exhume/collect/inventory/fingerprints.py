"""Detect changes in the inputs of a section at the cost of a few dozen system calls: mtimes of files, names in
directories, and the content of small kernel files. Reading a section takes a separate process; this is done in the
recorder's."""

import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path

from exhume.collect.node_root import NodeRoot
from exhume.procfs.host import Host

# The sections that are read on a node, in the order in which they are checked. Not imported from the model: its classes
# would stay in the memory of the recorder, which handles sections only as text.
READ_SECTIONS = (
    *("os", "image", "hardware", "kernel", "packages", "sysctls", "limits", "mounts", "modules", "nics", "cgroups"),
    *("units", "containers", "boot", "cloud"),
)
# Files and directories of the node whose state is checked. A directory's mtime changes when an entry is added or
# removed.
_RPM = ("/var/lib/rpm", "/usr/lib/sysimage/rpm")
_PATHS: dict[str, tuple[str, ...]] = {
    "os": ("/etc/os-release", "/usr/lib/os-release", "/etc/localtime"),
    "image": ("/etc/os-release", "/etc/image-id", "/etc/cloud/build.info", "/run/cloud-init/instance-data.json"),
    "packages": (
        *("/var/lib/dpkg/status", "/var/lib/dpkg/status.d", "/lib/apk/db/installed"),
        *(f"{top}/{name}" for top in _RPM for name in ("rpmdb.sqlite", "Packages")),
    ),
    "limits": ("/etc/security/limits.conf", "/etc/security/limits.d"),
    # systemd keeps a link for each run of a unit (src/core/unit.c, unit_export_invocation_id).
    "units": ("/run/systemd/units", "/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"),
    "boot": ("/run/cloud-init/result.json", "/run/cloud-init/status.json"),
    "containers": (
        *("/var/lib/docker/containers", "/run/containerd/io.containerd.runtime.v2.task/k8s.io", "/run/crio"),
        *("/run/containerd/io.containerd.runtime.v2.task/moby", "/var/lib/containers/storage/overlay-containers"),
    ),
    "cloud": ("/run/cloud-init/instance-data.json",),
}
# Files below /proc and /sys whose content is checked.
_PROC = {
    "kernel": ("sys/kernel/osrelease", "sys/kernel/tainted"),
    "sysctls": (
        *("sys/vm/swappiness", "sys/vm/overcommit_memory", "sys/vm/dirty_ratio", "sys/vm/dirty_bytes"),
        *("sys/vm/min_free_kbytes", "sys/vm/zone_reclaim_mode", "sys/vm/max_map_count", "sys/vm/nr_hugepages"),
        *("sys/net/core/somaxconn", "sys/net/core/netdev_max_backlog", "sys/net/core/netdev_budget"),
        *("sys/net/core/rmem_max", "sys/net/core/wmem_max", "sys/net/core/default_qdisc"),
        *("sys/net/ipv4/tcp_congestion_control", "sys/net/ipv4/tcp_rmem", "sys/net/ipv4/tcp_wmem"),
        *("sys/net/netfilter/nf_conntrack_max", "sys/kernel/numa_balancing", "sys/kernel/pid_max"),
        *("sys/kernel/sched_rt_runtime_us", "sys/kernel/watchdog_thresh", "sys/fs/file-max"),
    ),
    "limits": ("1/limits",),
}
_SYS = {
    "kernel": ("kernel/mm/transparent_hugepage/enabled",),
    "hardware": ("devices/system/cpu/online", "devices/system/clocksource/clocksource0/current_clocksource"),
}
_MOST_BYTES = 8 << 20
_MOST_IRQS = 256
# Lines of mountinfo that are not part of the inventory, by filesystem type and by mount point.
_PASSING = re.compile(
    rb" /(?:proc|sys|run/(?:containerd|docker|user|netns|credentials|k3s|crio|systemd)|snap"
    rb"|var/lib/(?:kubelet|docker|containers|containerd|rancher))/"
)


def fingerprint(root: NodeRoot, section: str) -> int:
    """A number that almost certainly changes when the section does."""
    host = root.host
    state = repr([_stat(root, path) for path in _PATHS.get(section, ())]).encode()
    for top, names in ((host.proc, _PROC.get(section, ())), (host.sys, _SYS.get(section, ()))):
        state += b"\0".join(_content(top / name) for name in names)
    own = _OWN.get(section)
    return zlib.crc32(own(host) if own is not None else b"", zlib.crc32(state))


def _stat(root: NodeRoot, path: str) -> tuple[int, int, int] | None:
    try:
        found = root.file(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _content(path: Path, most: int = 4096) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        parts, left = [], most
        while left > 0 and (part := os.read(fd, min(left, 1 << 16))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    except OSError:
        return b""
    finally:
        os.close(fd)


def _modules(host: Host) -> bytes:
    """Only the names: reference counts change all the time."""
    return b" ".join(sorted(line.partition(b" ")[0] for line in _content(host.proc / "modules", 1 << 20).split(b"\n")))


def _mounts(host: Host) -> bytes:
    lines = _content(host.proc / "1/mountinfo", _MOST_BYTES).split(b"\n")
    # Without the mount IDs, which are new after each remount.
    return b"\n".join(sorted(b" ".join(line.split(b" ")[3:]) for line in lines if not _PASSING.search(line)))


def _nics(host: Host) -> bytes:
    """Interfaces with their MTU, and the cores that their interrupts may be routed to."""
    found = []
    for name in _listed(host.sys / "class/net"):
        device = host.sys / "class/net" / name
        if _listed(device / "device"):
            found.append(name.encode("utf-8", "replace") + _content(device / "mtu"))
            irqs = _listed(device / "device/msi_irqs")[:_MOST_IRQS]
            found += [_content(host.proc / "irq" / irq / "smp_affinity_list") for irq in irqs]
    return b"\0".join(found)


def _cgroups(host: Host) -> bytes:
    return repr(_listed(host.sys / "fs/cgroup")[:_MOST_IRQS]).encode("utf-8", "replace")


def _listed(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208  names only
    except OSError:
        return []


_OWN: dict[str, Callable[[Host], bytes]] = {
    "modules": _modules,
    "mounts": _mounts,
    "nics": _nics,
    "cgroups": _cgroups,
}

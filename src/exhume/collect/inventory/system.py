"""The system itself: release, image, hardware, kernel, settings, limits, mounts, cgroups, and its cloud."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

from exhume.collect.cgroup.layout import find_v1, find_v2, hierarchies
from exhume.collect.inventory.files import NodeFiles, Unreadable, assignments, clean
from exhume.model.inventory import (
    CgroupMount,
    Cgroups,
    Cloud,
    Hardware,
    Image,
    Kernel,
    Limits,
    MountPoint,
    OsRelease,
    Reason,
)
from exhume.model.redaction import MASK, redact, redact_line
from exhume.model.text import path_pattern
from exhume.procfs.cpulist import online_cpus, parse_cpulist
from exhume.procfs.host import subdirectories
from exhume.procfs.mountinfo import Mount, parse_mountinfo

_OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
# Written by image builders: Amazon Linux, Ubuntu's cloud images, Amazon EKS, Flatcar, Azure's images.
_IMAGE_FILES = {
    "/etc/image-id": "=",
    "/etc/cloud/build.info": ":",
    "/etc/eks/release": "=",
    "/usr/share/oem/oem-release": "=",
}
_IMAGE_KEYS = (
    *("image_name", "image_version", "image_arch", "image_file", "image_stamp", "recipe_name", "recipe_id"),
    *("build_name", "serial", "BASE_AMI_ID", "BUILD_TIME", "BUILD_KERNEL", "ID", "VERSION_ID"),
)
# cloud-init's world-readable file; the variant with user data and keys is a separate file, which is never opened.
_INSTANCE_DATA = "/run/cloud-init/instance-data.json"
_MOST_INSTANCE_DATA = 4 << 20
# Vendors in the firmware's tables, and the clouds that they indicate.
_VENDORS = {
    "amazon": "aws",
    "google": "gce",
    "microsoft corporation": "azure",
    "digitalocean": "digitalocean",
    "alibaba cloud": "aliyun",
    "hetzner": "hetzner",
    "openstack": "openstack",
    "oraclecloud": "oracle",
}
# Values of these are settings of processes, or secrets: systemd.setenv=NAME=VALUE among them (kernel-command-line(7)).
# Parameters unknown to the kernel become environment variables of init.
_MASKED_PARAMETERS = frozenset(("systemd.setenv", "systemd.set_credential", "systemd.set_credential_binary"))
_MOST_PARAMETERS = 200
_MOST_MITIGATIONS = 100
_MOST_LIMITS, _MOST_MOUNTS, _MOST_SLICES = 500, 1000, 200
_LIMIT = re.compile(r"^(Max .+?)\s{2,}(\S+)\s+(\S+)", re.MULTILINE)

SYSCTLS = (
    *(f"kernel.{name}" for name in (
        "sched_rt_runtime_us", "sched_autogroup_enabled", "sched_schedstats", "sched_migration_cost_ns",
        "sched_min_granularity_ns", "numa_balancing", "timer_migration", "perf_event_paranoid",
        "perf_event_max_sample_rate", "perf_cpu_time_max_percent", "pid_max", "threads-max", "panic", "panic_on_oops",
        "watchdog", "watchdog_thresh", "nmi_watchdog", "softlockup_panic", "hung_task_timeout_secs", "kptr_restrict",
        "randomize_va_space", "unprivileged_bpf_disabled", "io_uring_disabled",
    )),
    *(f"vm.{name}" for name in (
        "swappiness", "overcommit_memory", "overcommit_ratio", "dirty_ratio", "dirty_background_ratio", "dirty_bytes",
        "dirty_background_bytes", "dirty_expire_centisecs", "dirty_writeback_centisecs", "min_free_kbytes",
        "vfs_cache_pressure", "zone_reclaim_mode", "max_map_count", "watermark_scale_factor",
        "watermark_boost_factor", "compaction_proactiveness", "nr_hugepages", "panic_on_oom",
        "oom_kill_allocating_task", "percpu_pagelist_high_fraction", "stat_interval",
    )),
    *(f"fs.{name}" for name in (
        "file-max", "nr_open", "aio-max-nr", "inotify.max_user_watches", "inotify.max_user_instances",
        "inotify.max_queued_events",
    )),
    *(f"net.core.{name}" for name in (
        "somaxconn", "netdev_max_backlog", "netdev_budget", "netdev_budget_usecs", "dev_weight", "rmem_max",
        "wmem_max", "rmem_default", "wmem_default", "optmem_max", "busy_poll", "busy_read", "default_qdisc",
        "bpf_jit_enable", "rps_sock_flow_entries",
    )),
    *(f"net.ipv4.{name}" for name in (
        "ip_forward", "ip_local_port_range", "tcp_congestion_control", "tcp_rmem", "tcp_wmem", "tcp_mem",
        "tcp_max_syn_backlog", "tcp_tw_reuse", "tcp_fin_timeout", "tcp_keepalive_time", "tcp_syncookies",
        "tcp_mtu_probing", "tcp_slow_start_after_idle", "neigh.default.gc_thresh1", "neigh.default.gc_thresh2",
        "neigh.default.gc_thresh3", "conf.all.rp_filter",
    )),
    "net.ipv6.conf.all.disable_ipv6",
    "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_tcp_timeout_established",
    "net.bridge.bridge-nf-call-iptables",
    "user.max_user_namespaces",
)  # fmt: skip


def read_os(files: NodeFiles) -> OsRelease:
    known = os_release(files)
    zone = ""
    try:
        zone = os.fspath((files.root.file("/etc") / "localtime").readlink()).partition("zoneinfo/")[2]
    except OSError:
        zone = files.line("/etc/timezone")
    return OsRelease(
        id=known.get("ID", ""),
        version=known.get("VERSION_ID", ""),
        name=known.get("PRETTY_NAME", ""),
        variant=known.get("VARIANT_ID", ""),
        build=known.get("BUILD_ID", ""),
        timezone=clean(zone),
    )


def os_release(files: NodeFiles) -> dict[str, str]:
    """Read os-release. Raises Unreadable when there is none."""
    try:
        text = files.text(_OS_RELEASE[0], 1 << 16)
    except Unreadable:
        text = files.text(_OS_RELEASE[1], 1 << 16)
    return dict(assignments(text))


def read_image(files: NodeFiles) -> Image:
    """The image, from the first file that names it: from files with that purpose to mere hints."""
    facts = {
        f"{name}:{key}": value
        for name, separator in _IMAGE_FILES.items()
        for key, value in assignments(files.optional(name, 1 << 16), separator)
        if key in _IMAGE_KEYS
    }
    try:
        release = os_release(files)
    except Unreadable:
        release = {}
    data = _instance_data(files)
    ways = (
        (release.get("IMAGE_ID", ""), release.get("IMAGE_VERSION", ""), _OS_RELEASE[0]),
        (facts.get("/etc/image-id:image_name", ""), facts.get("/etc/image-id:image_version", ""), "/etc/image-id"),
        (_cloud_image(data), "", _INSTANCE_DATA),
        (facts.get("/etc/eks/release:BASE_AMI_ID", ""), "", "/etc/eks/release"),
        (
            facts.get("/etc/cloud/build.info:build_name", ""),
            facts.get("/etc/cloud/build.info:serial", ""),
            "/etc/cloud/build.info",
        ),
    )
    number, version, source = next((way for way in ways if way[0]), ("", "", ""))
    if not number and not facts:
        raise Unreadable(Reason.ABSENT, "nothing on the node names its image")
    return Image(number, version, source, facts)


def read_hardware(files: NodeFiles) -> Hardware:
    host = files.root.host
    dmi = host.sys / "class/dmi/id"
    info = files.optional(host.proc / "cpuinfo", 1 << 16)
    # Only of the first core: the others say the same.
    lines = (line.partition(":") for line in info.partition("\n\n")[0].split("\n"))
    known = {name.strip(): clean(value.strip()) for name, _, value in lines}
    part = " ".join(filter(None, (known.get("CPU implementer", ""), known.get("CPU part", ""))))
    memory = re.search(r"^MemTotal:\s+(\d{1,15}) kB", files.optional(host.proc / "meminfo", 1 << 16), re.MULTILINE)
    online = online_cpus(host)
    first = host.sys / f"devices/system/cpu/cpu{online[0] if online else 0}"
    found = Hardware(
        vendor=files.line(dmi / "sys_vendor"),
        product=files.line(dmi / "product_name"),
        bios=files.line(dmi / "bios_version"),
        arch=clean(os.uname().machine),
        cpu=known.get("model name") or part,
        microcode=known.get("microcode", ""),
        cores=len(online) if online else None,
        threads_per_core=_counted(files, first / "topology/thread_siblings_list"),
        numa_nodes=_counted(files, host.sys / "devices/system/node/online"),
        memory_bytes=int(memory[1]) * 1024 if memory else None,
        clocksource=files.line(host.sys / "devices/system/clocksource/clocksource0/current_clocksource"),
    )
    if not info and online is None:
        raise Unreadable(Reason.ABSENT, "neither /proc/cpuinfo nor /sys/devices/system/cpu can be seen")
    return found


def _counted(files: NodeFiles, path: Path) -> int | None:
    try:
        return len(parse_cpulist(files.line(path))) or None
    except ValueError:
        return None


def read_kernel(files: NodeFiles) -> Kernel:
    host = files.root.host
    release = files.text(host.proc / "sys/kernel/osrelease", 4096).strip()
    huge = re.search(r"\[(\w+)\]", files.line(host.sys / "kernel/mm/transparent_hugepage/enabled"))
    weak = host.sys / "devices/system/cpu/vulnerabilities"
    names = _names(weak)[:_MOST_MITIGATIONS]
    tainted = files.line(host.proc / "sys/kernel/tainted")
    return Kernel(
        release=clean(release),
        version=files.line(host.proc / "sys/kernel/version"),
        cmdline=kernel_parameters(files.optional(host.proc / "cmdline", 1 << 16)),
        tainted=int(tainted) if tainted.isascii() and tainted.isdigit() else None,
        transparent_hugepages=huge[1] if huge else "",
        mitigations={name: value for name in names if (value := files.line(weak / name))},
    )


def kernel_parameters(text: str) -> tuple[str, ...]:
    """The kernel's command line without secrets and without values of environment variables."""
    try:
        parameters = shlex.split(text.strip(), posix=False)
    except ValueError:
        # Unbalanced quotes.
        parameters = text.split()
    return tuple(clean(_masked(each)) for each in redact(["", *parameters[:_MOST_PARAMETERS]])[1:])


def _masked(parameter: str) -> str:
    name, assigned, value = parameter.partition("=")
    # The kernel passes unknown parameters to init: NAME=value becomes an environment variable (init/main.c,
    # unknown_bootoption). The boot loader's own parameter names a file.
    is_variable = name.isupper() and name != "BOOT_IMAGE"
    if name in _MASKED_PARAMETERS:
        return f"{name}={value.partition(':' if 'credential' in name else '=')[0]}={MASK}"
    return f"{name}={MASK}" if assigned and is_variable else parameter


def read_sysctls(files: NodeFiles) -> dict[str, str]:
    top = files.root.host.proc / "sys"
    if not top.is_dir():
        raise Unreadable(Reason.ABSENT, f"there is no {top}")
    found = {}
    for name in SYSCTLS:
        try:
            found[name] = " ".join(files.text(top / name.replace(".", "/"), 4096).split())[:200]
        except Unreadable as error:
            # Not every kernel has all of them.
            if error.reason is Reason.PERMISSION:
                files.note(name, error.reason, error.detail)
    return found


def read_limits(files: NodeFiles) -> Limits:
    text = files.text(files.root.host.proc / "1/limits", 1 << 16)
    init = {name.removeprefix("Max ").strip(): f"{soft}:{hard}" for name, soft, hard in _LIMIT.findall(text)}
    lines: list[str] = []
    for name in ("/etc/security/limits.conf", *_limit_files(files)):
        rows = (" ".join(line.partition("#")[0].split()) for line in files.optional(name, 1 << 18).splitlines())
        lines += [clean(row) for row in rows if row]
    if len(lines) > _MOST_LIMITS:
        files.note("configured", Reason.TRUNCATED, f"{len(lines):,} lines, of which {_MOST_LIMITS:,} are kept")
    return Limits(init, tuple(lines[:_MOST_LIMITS]))


def _limit_files(files: NodeFiles) -> list[str]:
    directory = "/etc/security/limits.d"
    return [f"{directory}/{name}" for name in _names(files.root.file(directory)) if name.endswith(".conf")][:50]


# Filesystems of the kernel itself: the same on every node of a kind.
_PSEUDO = (
    *("proc", "sysfs", "devtmpfs", "devpts", "securityfs", "debugfs", "tracefs", "pstore", "bpf", "configfs"),
    *("fusectl", "mqueue", "cgroup", "cgroup2", "efivarfs", "ramfs", "autofs", "nsfs", "rpc_pipefs", "binfmt_misc"),
    "selinuxfs",
)
# Below these are the mounts of containers, pods, sessions and snaps, which are transient.
_OTHERS = re.compile(
    r"/(?:var/lib/(?:kubelet/(?:pods|plugins)|docker|containers|containerd|rancher)|run/(?:containerd|docker|user|netns"
    r"|credentials|k3s|crio|systemd)|proc|sys|snap|dev/hugepages)(?:/|$)"
)


def read_mounts(files: NodeFiles) -> tuple[MountPoint, ...]:
    """The mounts of init; services may have their own."""
    content = files.read(files.root.host.proc / "1/mountinfo", 8 << 20)
    kept = [mount for mount in parse_mountinfo(content) if mount.kind not in _PSEUDO and not _OTHERS.match(mount.point)]
    if len(kept) > _MOST_MOUNTS:
        files.note("", Reason.TRUNCATED, f"{len(kept):,} mounts, of which {_MOST_MOUNTS:,} are kept")
    # Of several mounts at one mount point only the last is visible.
    points = {mount.point: _mount_point(mount) for mount in kept[:_MOST_MOUNTS]}
    return tuple(points[point] for point in sorted(points))


def _mount_point(mount: Mount) -> MountPoint:
    options = sorted({*mount.flags, *mount.options})
    shown = redact(["", *options])[1:]
    return MountPoint(
        clean(mount.point), clean(mount.kind), clean(redact_line(mount.source)), tuple(map(clean, shown[:40]))
    )


def read_cgroups(files: NodeFiles) -> Cgroups:
    found = hierarchies(files.root.host)
    if not found:
        raise Unreadable(Reason.ABSENT, "no cgroup hierarchy is mounted")
    v1, v2 = find_v1(found, "memory"), find_v2(found)
    version = "v2" if v1 is None else "hybrid" if v2 is not None else "v1"
    top = v1 or v2 or found[0]
    slices = {path_pattern(name) for name in subdirectories(top.path)}
    mounts = [
        CgroupMount(each.version, clean(os.fspath(each.path)), tuple(sorted(_controllers(each.controllers))))
        for each in sorted(found, key=lambda each: os.fspath(each.path))
    ]
    driver = re.search(r"^cgroupDriver:\s*[\"']?(\w+)", files.optional("/var/lib/kubelet/config.yaml"), re.MULTILINE)
    return Cgroups(
        version, tuple(mounts[:50]), tuple(map(clean, sorted(slices)[:_MOST_SLICES])), driver[1] if driver else ""
    )


def _controllers(options: frozenset[str]) -> list[str]:
    """Mount options of v1 include the controllers."""
    others = ("rw", "ro", "xattr", "clone_children", "noprefix")
    return [each for each in options if each not in others and not each.startswith("release_agent=")]


def read_cloud(files: NodeFiles) -> Cloud:
    data = _instance_data(files)
    v1, meta = _mapping(data, "v1"), _mapping(_mapping(data, "ds"), "meta_data")
    dmi = files.root.host.sys / "class/dmi/id"
    vendor, product = files.line(dmi / "sys_vendor"), files.line(dmi / "product_name")
    by_vendor = next((cloud for start, cloud in _VENDORS.items() if vendor.lower().startswith(start)), "")
    provider = _first(v1, "cloud_name", "cloud-name") or by_vendor
    # On EC2 the product name in the firmware is the instance type.
    by_product = product if by_vendor == "aws" and "." in product else ""
    found = Cloud(
        provider=provider,
        region=_first(v1, "region"),
        zone=_first(v1, "availability_zone", "availability-zone") or _first(meta, "availability-zone"),
        instance_type=_first(meta, "instance-type", "instance_type", "machine-type") or by_product,
        image=_cloud_image(data),
    )
    if found == Cloud():
        raise Unreadable(Reason.ABSENT, f"there is no {_INSTANCE_DATA}, and the firmware names no cloud")
    return found


def _cloud_image(data: dict[str, Any]) -> str:
    return _first(_mapping(_mapping(data, "ds"), "meta_data"), "ami-id", "ami_id", "image", "image-id", "image_id")


def _instance_data(files: NodeFiles) -> dict[str, Any]:
    """cloud-init's data about the instance; single values are extracted by name."""
    text = files.optional(_INSTANCE_DATA, _MOST_INSTANCE_DATA)
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        files.note("instance-data", Reason.FAILED, f"{_INSTANCE_DATA} is not JSON")
        return {}
    return found if isinstance(found, dict) else {}


def _mapping(data: dict[str, Any], name: str) -> dict[str, Any]:
    found = data.get(name)
    return found if isinstance(found, dict) else {}


def _first(data: dict[str, Any], *names: str) -> str:
    """The first of these that is a string. On Azure and GCE they are paths: the last component is the name."""
    found = next((value for name in names if isinstance(value := data.get(name), str) and value), "")
    return clean(found.rpartition("/")[2])


def _names(directory: Path) -> list[str]:
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208  names only
    except OSError:
        return []

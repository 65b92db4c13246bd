"""The vitals of a node, read once without a recording: uptime, memory, pressure, steal, OOM kills, quotas, failed units
and restarts."""

import os
import time
from collections import Counter

from exhume.collect.cgroup.layout import find_v1, find_v2, hierarchies
from exhume.collect.node_root import NodeRoot
from exhume.collect.processes import ProcessReader
from exhume.collect.sources.netdev import transmit_queues
from exhume.collect.systemd.bus import BusError
from exhume.collect.systemd.units import open_units
from exhume.model.clock import NANOS
from exhume.model.finding import QuotaCount, Restarted, Vitals
from exhume.procfs.cgroup import parse_cpu_stat
from exhume.procfs.cpulist import online_cpus
from exhume.procfs.dentry_state import parse_dentry_state
from exhume.procfs.flat_keyed import parse_flat_keyed, parse_meminfo
from exhume.procfs.host import Host, ProcFile, subdirectories
from exhume.procfs.pressure import parse_pressure
from exhume.procfs.stat import CPU_STATES, parse_machine_times

# Walking the cgroups of a node that has far too many of them must not take long.
WALK_S = 2.0
_STEAL = CPU_STATES.index("steal")
_NICE, _IDLE, _IOWAIT = (CPU_STATES.index(state) for state in ("nice", "idle", "iowait"))
# Long enough for some clock ticks on every core.
_MOMENT_S = 0.2


def read_vitals(host: Host) -> Vitals:
    """Read all vitals; those that cannot be read are listed with the reason."""
    unseen: dict[str, str] = {}

    def content(name: str, path: str) -> bytes:
        """The content of a file below /proc; empty, with the reason noted, when it cannot be read."""
        found = ProcFile(host.proc / path).read_or_none()
        if found is None:
            unseen.setdefault(name, f"{host.proc / path} can't be read")
        return found or b""

    def number(name: str, path: str) -> int | None:
        text = content(name, path).strip()
        return int(text) if text.isdigit() else None

    uptime = content("uptime_s", "uptime")
    dentries = parse_dentry_state(content("dentries_negative", "sys/fs/dentry-state"))
    # Init has the node's mounts; this process may be in a mount namespace of its own.
    mounts = ProcFile(host.proc / "1/mountinfo").read_or_none() or content("mounts", "self/mountinfo")
    # Guest time, which follows, is part of user time.
    times = parse_machine_times(content("steal", "stat"))[: _STEAL + 1]
    pressure = {name: parse_pressure(content("pressure", f"pressure/{name}")) for name in ("cpu", "memory", "io")}
    try:
        failed: list[str] | None = failed_units()
    except OSError as error:
        unseen["failed_units"] = str(error)
        failed = None
    return Vitals(
        uptime_s=float(uptime.split()[0]) if uptime else time.clock_gettime(time.CLOCK_BOOTTIME),
        memory_bytes=parse_meminfo(content("memory_bytes", "meminfo")).get("MemTotal"),
        dentries_negative=None if dentries is None else dentries.negative,
        mounts=mounts.count(b"\n") or None,
        conntrack=number("conntrack", "sys/net/netfilter/nf_conntrack_count"),
        conntrack_max=number("conntrack", "sys/net/netfilter/nf_conntrack_max"),
        steal=times[_STEAL] / max(1, sum(times)) if len(times) > _STEAL else None,
        oom_kills=parse_flat_keyed(content("oom_kills", "vmstat")).get(b"oom_kill"),
        tx_timeouts=_tx_timeouts(host, unseen),
        load=_load_per_core(host, content("load", "loadavg")),
        niced=_niced_part(host),
        pressure={name: (each["some"].avg60, each["some"].avg300) for name, each in pressure.items() if "some" in each},
        quotas=_quotas(host, unseen),
        failed_units=failed,
        unseen=unseen,
    )


def _load_per_core(host: Host, content: bytes) -> float | None:
    """The 5-minute load average per core (kernel/sched/loadavg.c); None when either cannot be read."""
    fields, cores = content.split(), online_cpus(host)
    return float(fields[1]) / len(cores) if len(fields) > 1 and cores else None


def _niced_part(host: Host) -> float | None:
    """The share of niced work in the busy time of a moment; None when nothing was busy."""
    file = ProcFile(host.proc / "stat")
    before = parse_machine_times(file.read_or_none() or b"")[: _STEAL + 1]
    time.sleep(_MOMENT_S)
    after = parse_machine_times(file.read_or_none() or b"")[: _STEAL + 1]
    if len(before) <= _STEAL or len(after) <= _STEAL:
        return None
    spent = [end - start for start, end in zip(before, after, strict=True)]
    busy = sum(spent) - spent[_IDLE] - spent[_IOWAIT]
    return spent[_NICE] / busy if busy > 0 else None


def _tx_timeouts(host: Host, unseen: dict[str, str]) -> dict[str, int] | None:
    """Transmit timeouts by device, for devices backed by hardware."""
    devices = host.sys / "class/net"
    if not devices.is_dir():
        unseen["tx_timeouts"] = f"{devices} can't be seen"
        return None
    counted: Counter[str] = Counter()
    for device, _, path in transmit_queues(devices):
        content = (ProcFile(path).read_or_none() or b"").strip()
        if content.isdigit():
            counted[device] += int(content)
    return dict(counted)


def _quotas(host: Host, unseen: dict[str, str]) -> list[QuotaCount] | None:
    layout = hierarchies(host)
    hierarchy = find_v1(layout, "cpu") or find_v2(layout)
    if hierarchy is None:
        unseen["quotas"] = "no hierarchy with the cpu controller is mounted"
        return None
    found: list[QuotaCount] = []
    root, began = os.fspath(hierarchy.path), time.monotonic()
    pending = [root]
    while pending:
        path = pending.pop()
        counts = parse_cpu_stat(ProcFile(f"{path}/cpu.stat").read_or_none() or b"")
        if counts is not None and counts.periods:
            found.append(QuotaCount(path[len(root) :] or "/", counts.periods, counts.throttled))
        pending += [f"{path}/{name}" for name in subdirectories(path)]
        if time.monotonic() - began > WALK_S:
            unseen["quotas"] = f"there are more cgroups than could be walked in {WALK_S:.0f} s"
            break
    return found


def failed_units(root: NodeRoot | None = None) -> list[str]:
    """The names of failed units. Raises OSError, with the reason, when systemd is not running or does not answer."""
    try:
        with open_units(root or NodeRoot()) as units:
            return sorted(row.name for row in units.listed().values() if row.active == "failed")
    except BusError as error:
        raise OSError(str(error)) from None


def oldest_processes(host: Host) -> dict[str, tuple[str, int]]:
    """The oldest process of each container and service: its name, and its start time since boot (nanoseconds)."""
    reader = ProcessReader(host)
    found: dict[str, tuple[str, int]] = {}
    for name in subdirectories(host.proc):
        if not name.isdigit():
            continue
        row = reader.describe(int(name))
        home = _home(row.get("cgroup"), row.get("container"))
        if home is None or row.get("start") is None:
            continue
        if home not in found or row["start"] < found[home][1]:
            found[home] = (row.get("comm") or "?", row["start"])
    return found


def restarted_between(before: dict[str, tuple[str, int]], after: dict[str, tuple[str, int]]) -> list[Restarted]:
    """What existed before, and exists again with only younger processes."""
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return [
        Restarted(home, comm, max(0.0, (now - start) / NANOS))
        for home, (comm, start) in sorted(after.items())
        if home in before and start > before[home][1]
    ]


def _home(cgroup: str | None, container: str | None) -> str | None:
    """What a process belongs to, if that is something that can be restarted."""
    if container is not None:
        return f"container {container[:12]}"
    parts = (cgroup or "").split("/")
    unit = next((part for part in reversed(parts) if part.endswith(".service")), None)
    # A user's session is not a service of the node, and neither is the session's manager.
    return None if unit is None or unit.startswith("user@") else unit

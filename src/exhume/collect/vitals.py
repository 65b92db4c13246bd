"""The vitals of a node, read once without a recording: uptime, memory, pressure, steal, OOM kills, quotas, failed units
and restarts."""

import os
import time

from exhume.collect.cgroup.layout import find_v1, find_v2, hierarchies
from exhume.collect.node_root import NodeRoot
from exhume.collect.processes import ProcessReader
from exhume.collect.systemd.bus import BusError
from exhume.collect.systemd.units import open_units
from exhume.model.clock import NANOS
from exhume.model.finding import QuotaCount, Restarted, Vitals
from exhume.procfs.cgroup import parse_cpu_stat
from exhume.procfs.dentry_state import parse_dentry_state
from exhume.procfs.flat_keyed import parse_flat_keyed, parse_meminfo
from exhume.procfs.host import Host, ProcFile, subdirectories
from exhume.procfs.pressure import parse_pressure
from exhume.procfs.stat import CPU_STATES, parse_machine_times

# Walking the cgroups of a node that has far too many of them must not take long.
WALK_S = 2.0
_STEAL = CPU_STATES.index("steal")


def read_vitals(host: Host) -> Vitals:
    """All that can be read; the rest is listed with the reason."""
    unseen: dict[str, str] = {}
    reader = _Reader(host, unseen)
    return Vitals(
        uptime_s=reader.uptime(),
        memory_bytes=reader.memory(),
        dentries_negative=reader.negative_dentries(),
        mounts=reader.mounts(),
        conntrack=reader.number("conntrack", "sys/net/netfilter/nf_conntrack_count"),
        conntrack_max=reader.number("conntrack", "sys/net/netfilter/nf_conntrack_max"),
        steal=reader.steal(),
        oom_kills=reader.oom_kills(),
        tx_timeouts=reader.tx_timeouts(),
        pressure=reader.pressure(),
        quotas=reader.quotas(),
        failed_units=reader.failed_units(),
        unseen=unseen,
    )


class _Reader:
    def __init__(self, host: Host, unseen: dict[str, str]) -> None:
        self._host = host
        self._unseen = unseen

    def content(self, name: str, path: str) -> bytes:
        """A file below /proc; empty, with the reason noted, where it can't be read."""
        content = ProcFile(self._host.proc / path).read_or_none()
        if content is None:
            self._unseen.setdefault(name, f"{self._host.proc / path} can't be read")
        return content or b""

    def number(self, name: str, path: str) -> int | None:
        content = self.content(name, path).strip()
        return int(content) if content.isdigit() else None

    def uptime(self) -> float:
        content = self.content("uptime_s", "uptime")
        return float(content.split()[0]) if content else time.clock_gettime(time.CLOCK_BOOTTIME)

    def memory(self) -> int | None:
        return parse_meminfo(self.content("memory_bytes", "meminfo")).get("MemTotal")

    def negative_dentries(self) -> int | None:
        state = parse_dentry_state(self.content("dentries_negative", "sys/fs/dentry-state"))
        return None if state is None else state.negative

    def mounts(self) -> int | None:
        # The first process has the node's mounts, this one may be in a namespace of its own.
        for path in ("1/mountinfo", "self/mountinfo"):
            content = ProcFile(self._host.proc / path).read_or_none()
            if content:
                return content.count(b"\n")
        self._unseen["mounts"] = f"{self._host.proc}/self/mountinfo can't be read"
        return None

    def steal(self) -> float | None:
        # Guest time, which follows, is part of user time.
        times = parse_machine_times(self.content("steal", "stat"))[: _STEAL + 1]
        return times[_STEAL] / max(1, sum(times)) if len(times) > _STEAL else None

    def oom_kills(self) -> int | None:
        return parse_flat_keyed(self.content("oom_kills", "vmstat")).get(b"oom_kill")

    def tx_timeouts(self) -> dict[str, int] | None:
        """Transmit timeouts by device, of devices that have hardware behind them."""
        devices = self._host.sys / "class/net"
        if not devices.is_dir():
            self._unseen["tx_timeouts"] = f"{devices} can't be seen"
            return None
        counted: dict[str, int] = {}
        for device in subdirectories(devices):
            if not (devices / device / "device").exists():
                continue
            for queue in subdirectories(devices / device / "queues"):
                content = ProcFile(devices / device / "queues" / queue / "tx_timeout").read_or_none()
                if queue.startswith("tx-") and content and content.strip().isdigit():
                    counted[device] = counted.get(device, 0) + int(content)
        return counted

    def pressure(self) -> dict[str, tuple[float, float]]:
        found = {}
        for resource in ("cpu", "memory", "io"):
            some = parse_pressure(self.content("pressure", f"pressure/{resource}")).get("some")
            if some is not None:
                found[resource] = (some.avg60, some.avg300)
        return found

    def failed_units(self) -> list[str] | None:
        try:
            return failed_units()
        except OSError as error:
            self._unseen["failed_units"] = str(error)
            return None

    def quotas(self) -> list[QuotaCount] | None:
        layout = hierarchies(self._host)
        root = find_v1(layout, "cpu") or find_v2(layout)
        if root is None:
            self._unseen["quotas"] = "no hierarchy with the cpu controller is mounted"
            return None
        found: list[QuotaCount] = []
        pending, began = [os.fspath(root.path)], time.monotonic()
        while pending:
            path = pending.pop()
            counts = parse_cpu_stat(ProcFile(f"{path}/cpu.stat").read_or_none() or b"")
            if counts is not None and counts.periods:
                found.append(QuotaCount(path[len(os.fspath(root.path)) :] or "/", counts.periods, counts.throttled))
            pending += [f"{path}/{name}" for name in subdirectories(path)]
            if time.monotonic() - began > WALK_S:
                self._unseen["quotas"] = f"there are more cgroups than could be walked in {WALK_S:.0f} s"
                break
        return found


def failed_units(root: NodeRoot | None = None) -> list[str]:
    """The names of failed units. Raises OSError, with the reason, where systemd doesn't run or doesn't answer."""
    try:
        with open_units(root or NodeRoot()) as units:
            return sorted(row.name for row in units.listed().values() if row.active == "failed")
    except BusError as error:
        raise OSError(str(error)) from None


def oldest_processes(host: Host) -> dict[str, tuple[str, int]]:
    """For each container and service its oldest process: name, and start on the clock of the boot (nanoseconds)."""
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
    """What was there before, and is there again with younger processes alone."""
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return [
        Restarted(home, comm, max(0.0, (now - start) / NANOS))
        for home, (comm, start) in sorted(after.items())
        if home in before and start > before[home][1]
    ]


def _home(cgroup: str | None, container: str | None) -> str | None:
    """What a process belongs to, where that is something that gets restarted."""
    if container is not None:
        return f"container {container[:12]}"
    parts = (cgroup or "").split("/")
    unit = next((part for part in reversed(parts) if part.endswith(".service")), None)
    # A user's session is no service of the node, and neither is the manager of it.
    return None if unit is None or unit.startswith("user@") else unit

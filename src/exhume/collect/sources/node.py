"""Pressure stall information: microseconds in which some or all tasks were held up for want of a resource."""

from exhume.collect.source import Pace, TickRows
from exhume.model.clock import Tick
from exhume.model.facts import MissingSource
from exhume.procfs.counters import Differences, NamedCounters
from exhume.procfs.host import Host, ProcFile
from exhume.procfs.stat import StatFile

_COLUMNS = {
    "cpu": {b"some": "psi_cpu_some"},
    "memory": {b"some": "psi_memory_some", b"full": "psi_memory_full"},
    "io": {b"some": "psi_io_some", b"full": "psi_io_full"},
}


class Pressure:
    """Running totals of /proc/pressure, by column of the node table."""

    def __init__(self, host: Host) -> None:
        self._files = {resource: ProcFile(host.proc / "pressure" / resource) for resource in _COLUMNS}
        self.missing: tuple[MissingSource, ...] = ()
        # A kernel that has it compiled in but switched off shows the files and fails the read.
        if all(file.read_or_none() is None for file in self._files.values()):
            self.missing = (
                MissingSource("node", "no pressure stall information", "boot with psi=1 (needs CONFIG_PSI)"),
            )
            self._files = {}

    def totals(self) -> dict[str, int]:
        totals = {}
        for resource, file in self._files.items():
            content = file.read_or_none()
            if content is None:
                continue
            columns = _COLUMNS[resource]
            for line in content.split(b"\n"):
                column = columns.get(line[:4])
                if column:
                    totals[column] = int(line[line.rfind(b"=") + 1 :])
        return totals

    def close(self) -> None:
        for file in self._files.values():
            file.close()


_ZONES = ("dma", "dma32", "normal", "high", "movable", "device")


def _by_zone(name: str) -> tuple[str, ...]:
    """A counter that some kernels keep as one and others for each memory zone."""
    return (name, *(f"{name}_{zone}" for zone in _ZONES))


_VMSTAT = {
    "pgfault": ("pgfault",),
    "pgmajfault": ("pgmajfault",),
    "pgscan_kswapd": _by_zone("pgscan_kswapd"),
    "pgscan_direct": _by_zone("pgscan_direct"),
    "pgsteal_kswapd": _by_zone("pgsteal_kswapd"),
    "pgsteal_direct": _by_zone("pgsteal_direct"),
    "allocstall": _by_zone("allocstall"),
    "compact_stall": ("compact_stall",),
    "compact_fail": ("compact_fail",),
    "compact_migrate_scanned": ("compact_migrate_scanned",),
    "thp_fault_alloc": ("thp_fault_alloc",),
    "thp_collapse_alloc": ("thp_collapse_alloc",),
    "thp_split_page": ("thp_split_page",),
    "numa_pte_updates": ("numa_pte_updates",),
    "numa_pages_migrated": ("numa_pages_migrated",),
    "pswpin": ("pswpin",),
    "pswpout": ("pswpout",),
    "pgpgin": ("pgpgin",),
    "pgpgout": ("pgpgout",),
    "oom_kill": ("oom_kill",),
    "workingset_refault": ("workingset_refault", "workingset_refault_anon", "workingset_refault_file"),
    "drop_pagecache": ("drop_pagecache",),
    "drop_slab": ("drop_slab",),
}

_MEMINFO = {
    "mem_total": ("MemTotal:",),
    "mem_free": ("MemFree:",),
    "mem_available": ("MemAvailable:",),
    "cached": ("Cached:",),
    "dirty": ("Dirty:",),
    "writeback": ("Writeback:",),
    "shmem": ("Shmem:",),
    "slab_reclaimable": ("SReclaimable:",),
    "slab_unreclaimable": ("SUnreclaim:",),
    "percpu": ("Percpu:",),
    "kernel_stack": ("KernelStack:",),
    "swap_total": ("SwapTotal:",),
    "swap_free": ("SwapFree:",),
}

_STAT = {
    "interrupts": b"\nintr ",
    "switches": b"\nctxt ",
    "forks": b"\nprocesses ",
    "running": b"\nprocs_running ",
    "blocked": b"\nprocs_blocked ",
}
_GAUGES = ("running", "blocked")


class NodeSource:
    """Rows of the node table."""

    name = "node"

    def __init__(self, host: Host, stat: StatFile | None = None) -> None:
        self._stat = stat or StatFile(host)
        self._stat.require(self.name)
        self._pressure = Pressure(host)
        self._vmstat = ProcFile(host.proc / "vmstat")
        self._meminfo = ProcFile(host.proc / "meminfo")
        self._loadavg = ProcFile(host.proc / "loadavg")
        self._dentries = ProcFile(host.proc / "sys/fs/dentry-state")
        self._inodes = ProcFile(host.proc / "sys/fs/inode-state")
        self._conntrack = ProcFile(host.proc / "sys/net/netfilter/nf_conntrack_count")
        self._vmstat_columns = NamedCounters(_VMSTAT)
        self._meminfo_columns = NamedCounters(_MEMINFO)
        self._differences = Differences()
        self._slow = SlowCounts(host)
        self.missing = (*self._pressure.missing, *self._slow.missing)

    def read(self, tick: Tick) -> TickRows:
        gauges: dict[str, int | float] = {}
        totals = stat_totals(self._stat.read(tick))
        for name in _GAUGES:
            if name in totals:
                gauges[name] = totals.pop(name)
        totals |= self._pressure.totals()
        if content := self._vmstat.read_or_none():
            totals |= self._vmstat_columns.read(content)
        if content := self._meminfo.read_or_none():
            gauges |= self._meminfo_columns.read(content)
        if content := self._loadavg.read_or_none():
            gauges["load1"] = float(content.split(b" ", 1)[0])
        gauges |= self._hidden_state()
        gauges |= self._slow.read(tick)
        row = {"time": tick.start, "span_ms": tick.nanos // 1_000_000, **gauges, **self._differences.since(totals)}
        return {"node": {name: [value] for name, value in row.items()}}

    def _hidden_state(self) -> dict[str, int]:
        """Kernel objects that nobody sees until they are in the way."""
        counts = {}
        if content := self._dentries.read_or_none():
            fields = content.split()
            counts["dentries"], counts["dentries_unused"] = int(fields[0]), int(fields[1])
            # Kernels that don't count negative dentries say 0; one that does never has none.
            if len(fields) > 4 and fields[4] != b"0":
                counts["dentries_negative"] = int(fields[4])
        if content := self._inodes.read_or_none():
            counts["inodes"] = int(content.split(None, 1)[0])
        if content := self._conntrack.read_or_none():
            counts["conntrack"] = int(content)
        return counts

    def close(self) -> None:
        self._stat.close()
        self._pressure.close()
        self._slow.close()
        for file in (self._vmstat, self._meminfo, self._loadavg, self._dentries, self._inodes, self._conntrack):
            file.close()


def stat_totals(stat: bytes) -> dict[str, int]:
    """The machine-wide lines of /proc/stat, by column of the node table."""
    totals = {}
    for column, label in _STAT.items():
        start = stat.find(label)
        if start >= 0:
            # Only the first number: the interrupt line goes on with one for each interrupt of the machine.
            first = start + len(label)
            end = min(at for at in (stat.find(b" ", first), stat.find(b"\n", first), len(stat)) if at >= 0)
            totals[column] = int(stat[first:end])
    return totals


class SlowCounts:
    """Counts that cost too much for every second: mounts, network namespaces, the size of the conntrack table."""

    def __init__(self, host: Host) -> None:
        # Init's view where it can be had: the recorder itself may live in a container.
        first = host.proc / "1/mountinfo"
        self._mounts = ProcFile(first if ProcFile(first).read_or_none() else host.proc / "self/mountinfo")
        self._slabs = ProcFile(host.proc / "slabinfo")
        self._conntrack_max = ProcFile(host.proc / "sys/net/netfilter/nf_conntrack_max")
        self._mounts_pace, self._slabs_pace = Pace(), Pace()
        self.missing: tuple[MissingSource, ...] = ()
        if self._slabs.read_or_none() is None:
            self.missing = (
                MissingSource(
                    "node",
                    f"no count of network namespaces ({self._slabs.path} can't be read)",
                    "run as root (it needs no capability, but the file is root's alone)",
                ),
            )

    def read(self, tick: Tick) -> dict[str, int]:
        counts = {}
        if self._mounts_pace.due(tick.end):
            if content := self._mounts.read_or_none():
                counts["mounts"] = content.count(b"\n")
            if content := self._conntrack_max.read_or_none():
                counts["conntrack_max"] = int(content)
            self._mounts_pace.done(tick.end)
        if not self.missing and self._slabs_pace.due(tick.end):
            namespaces = _active_objects(self._slabs.read_or_none() or b"", b"net_namespace")
            if namespaces is not None:
                counts["net_namespaces"] = namespaces
            self._slabs_pace.done(tick.end)
        return counts

    def close(self) -> None:
        for file in (self._mounts, self._slabs, self._conntrack_max):
            file.close()


def _active_objects(slabinfo: bytes, cache: bytes) -> int | None:
    """Objects in use in a slab cache; None when the kernel merged it into another and can't tell."""
    start = slabinfo.find(b"\n" + cache + b" ")
    if start < 0:
        return None
    return int(slabinfo[start : slabinfo.find(b"\n", start + 1)].split(None, 2)[1])

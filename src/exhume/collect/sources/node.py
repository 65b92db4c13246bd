"""The node as a whole, every second: pressure, memory, faults and reclaim, forks and switches, and kernel objects that
have to be counted to be noticed (dentries, conntrack entries, mounts, network namespaces)."""

from exhume.collect.source import Pace, StatFile, TickRows
from exhume.model.clock import Tick
from exhume.model.facts import MissingSource
from exhume.procfs.counters import Differences
from exhume.procfs.dentry_state import parse_dentry_state
from exhume.procfs.flat_keyed import NamedCounters
from exhume.procfs.host import Host, ProcFile
from exhume.procfs.pressure import parse_pressure
from exhume.procfs.slabinfo import active_objects
from exhume.procfs.stat import parse_totals

_PRESSURE = {"cpu": ("some",), "memory": ("some", "full"), "io": ("some", "full")}


class PressureTotals:
    """Microseconds in which some or all tasks stalled for want of a resource, by column of the node table."""

    def __init__(self, host: Host) -> None:
        self._files = {resource: ProcFile(host.proc / "pressure" / resource) for resource in _PRESSURE}
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
            found = parse_pressure(content)
            for kind in _PRESSURE[resource]:
                if kind in found:
                    totals[f"psi_{resource}_{kind}"] = found[kind].total_us
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

# By the names that /proc/stat has.
_STAT_TOTALS = {"interrupts": "intr", "switches": "ctxt", "forks": "processes"}
_STAT_GAUGES = {"running": "procs_running", "blocked": "procs_blocked"}


class NodeSource:
    """Rows of the node table."""

    name = "node"

    def __init__(self, host: Host, stat: StatFile | None = None) -> None:
        self._stat = stat or StatFile(host)
        self._stat.require(self.name)
        self._pressure = PressureTotals(host)
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
        stat = parse_totals(self._stat.read(tick))
        gauges: dict[str, int | float] = {column: stat[name] for column, name in _STAT_GAUGES.items() if name in stat}
        totals = {column: stat[name] for column, name in _STAT_TOTALS.items() if name in stat}
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
        """Kernel objects that go unnoticed until there are too many."""
        counts = {}
        if content := self._dentries.read_or_none():
            state = parse_dentry_state(content)
            if state is not None:
                counts["dentries"], counts["dentries_unused"] = state.total, state.unused
                if state.negative is not None:
                    counts["dentries_negative"] = state.negative
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
            namespaces = active_objects(self._slabs.read_or_none() or b"", b"net_namespace")
            if namespaces is not None:
                counts["net_namespaces"] = namespaces
            self._slabs_pace.done(tick.end)
        return counts

    def close(self) -> None:
        for file in (self._mounts, self._slabs, self._conntrack_max):
            file.close()

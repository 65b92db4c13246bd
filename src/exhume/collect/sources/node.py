"""The node as a whole, every second: pressure, memory, faults and reclaim, forks and switches, and kernel objects whose
growth shows only in their counts (dentries, conntrack entries, mounts, network namespaces)."""

from exhume.collect.source import Pace, StatFile, TickRows
from exhume.model.clock import MILLIS, Tick
from exhume.model.facts import MissingSource
from exhume.procfs.counters import Differences
from exhume.procfs.dentry_state import parse_dentry_state
from exhume.procfs.flat_keyed import NamedCounters
from exhume.procfs.host import Host, ProcFile
from exhume.procfs.pressure import parse_stall_totals
from exhume.procfs.slabinfo import SlabCounter
from exhume.procfs.stat import parse_totals

_PRESSURE = {"cpu": ("some",), "memory": ("some", "full"), "io": ("some", "full")}


_ZONES = ("dma", "dma32", "normal", "high", "movable", "device")


def _by_zone(name: str) -> tuple[str, ...]:
    """The names of a counter that some kernels keep as one and others per memory zone."""
    return (name, *(f"{name}_{zone}" for zone in _ZONES))


_VMSTAT = {
    **{name: _by_zone(name) for name in ("pgscan_kswapd", "pgscan_direct", "pgsteal_kswapd", "pgsteal_direct")},
    "allocstall": _by_zone("allocstall"),
    "workingset_refault": ("workingset_refault", "workingset_refault_anon", "workingset_refault_file"),
    **{
        name: (name,)
        for name in (
            *("pgfault", "pgmajfault", "pswpin", "pswpout", "pgpgin", "pgpgout", "oom_kill"),
            *("compact_stall", "compact_fail", "compact_migrate_scanned"),
            *("thp_fault_alloc", "thp_collapse_alloc", "thp_split_page"),
            *("numa_pte_updates", "numa_pages_migrated", "drop_pagecache", "drop_slab"),
        )
    },
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

# By their names in /proc/stat.
_STAT_TOTALS = {"interrupts": "intr", "switches": "ctxt", "forks": "processes"}
_STAT_GAUGES = {"running": "procs_running", "blocked": "procs_blocked"}


# Files read besides /proc/stat.
_CONNTRACK = "sys/net/netfilter/nf_conntrack_"
_SINGLE_FILES = (
    *("meminfo", "loadavg", "sys/fs/dentry-state", "sys/fs/inode-state"),
    *(f"{_CONNTRACK}{name}" for name in ("count", "max")),
)


class NodeSource:
    """Rows of the node table."""

    name = "node"

    def __init__(self, host: Host, stat: StatFile | None = None) -> None:
        self._stat = stat or StatFile(host)
        self._stat.require(self.name)
        self._files = {"vmstat": ProcFile(host.proc / "vmstat")}
        self._files |= {path: ProcFile(host.proc / path, single=True) for path in _SINGLE_FILES}
        # Prefer init's view: the recorder itself may run in a container.
        first = host.proc / "1/mountinfo"
        self._files["mounts"] = ProcFile(first if ProcFile(first).read_or_none() else host.proc / "self/mountinfo")
        self._pressure = {name: ProcFile(host.proc / "pressure" / name, single=True) for name in _PRESSURE}
        self._vmstat_columns = NamedCounters(_VMSTAT)
        self._meminfo_columns = NamedCounters(_MEMINFO)
        self._differences = Differences()
        self._mounts_pace, self._slabs_pace = Pace(), Pace()
        missing = []
        # A kernel with PSI compiled in but disabled has the files, but reading them fails.
        if all(file.read_or_none() is None for file in self._pressure.values()):
            missing.append(MissingSource("node", "no pressure stall information", "boot with psi=1 (needs CONFIG_PSI)"))
            self._pressure = {}
        self._namespaces = SlabCounter(host, "net_namespace")
        if not self._namespaces.readable:
            reason = f"no count of network namespaces ({self._namespaces.path} can't be read)"
            remedy = "run as root (it needs no capability, but the file is root's alone)"
            missing.append(MissingSource("node", reason, remedy))
        self.missing = tuple(missing)

    def read(self, tick: Tick) -> TickRows:
        stat = parse_totals(self._stat.read(tick))
        gauges: dict[str, int | float] = {column: stat[name] for column, name in _STAT_GAUGES.items() if name in stat}
        totals = {column: stat[name] for column, name in _STAT_TOTALS.items() if name in stat}
        for resource, file in self._pressure.items():
            found = parse_stall_totals(file.read_or_none() or b"")
            totals |= {f"psi_{resource}_{kind}": found[kind] for kind in _PRESSURE[resource] if kind in found}
        if content := self._content("vmstat"):
            totals |= self._vmstat_columns.read(content)
        if content := self._content("meminfo"):
            gauges |= self._meminfo_columns.read(content)
        if content := self._content("loadavg"):
            gauges["load1"] = float(content.split(b" ", 1)[0])
        gauges |= self._hidden_state()
        gauges |= self._slow_counts(tick)
        row = {"time": tick.start, "span_ms": tick.nanos // MILLIS, **gauges, **self._differences.since(totals)}
        return {"node": {name: [value] for name, value in row.items()}}

    def _content(self, path: str) -> bytes | None:
        return self._files[path].read_or_none()

    def _hidden_state(self) -> dict[str, int]:
        """Counts of kernel objects that go unnoticed until there are too many."""
        counts = {}
        state = parse_dentry_state(self._content("sys/fs/dentry-state") or b"")
        if state is not None:
            counts["dentries"], counts["dentries_unused"] = state.total, state.unused
            if state.negative is not None:
                counts["dentries_negative"] = state.negative
        if content := self._content("sys/fs/inode-state"):
            counts["inodes"] = int(content.split(None, 1)[0])
        if content := self._content(f"{_CONNTRACK}count"):
            counts["conntrack"] = int(content)
        return counts

    def _slow_counts(self, tick: Tick) -> dict[str, int]:
        """Counts that are too expensive for every second: mounts, network namespaces, the size of the
        conntrack table."""
        counts = {}
        if self._mounts_pace.due(tick.end):
            if content := self._content("mounts"):
                counts["mounts"] = content.count(b"\n")
            if content := self._content(f"{_CONNTRACK}max"):
                counts["conntrack_max"] = int(content)
            self._mounts_pace.done(tick.end)
        if self._namespaces.readable and self._slabs_pace.due(tick.end):
            namespaces = self._namespaces.count()
            if namespaces is not None:
                counts["net_namespaces"] = namespaces
            self._slabs_pace.done(tick.end)
        return counts

    def close(self) -> None:
        self._stat.close()
        self._namespaces.close()
        for file in (*self._files.values(), *self._pressure.values()):
            file.close()

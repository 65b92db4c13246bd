"""The metric families: names, types, units, labels and help, in the order in which they are exposed.

Names follow Prometheus' conventions: base units, the unit at the end, `_total` for counters (added where they are
exposed). docs/metrics.md has the table of this module; a test compares them.
"""

from dataclasses import dataclass

COUNTER, GAUGE, INFO = "counter", "gauge", "info"
# Series of a family with free labels: the busiest, and one with this label for the rest.
MOST_NAMED = 20
OTHER = "other"
# Maxima are of this many seconds: longer than the scrape interval of most, so that no peak falls between two scrapes.
WINDOW_S = 60


# Each is one object: compared by identity, which is quick where values are looked up by family.
@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """One family. The name of a counter is without `_total`, that of an info without `_info`."""

    name: str
    kind: str
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()

    @property
    def sample(self) -> str:
        """The name of its samples."""
        return self.name + {COUNTER: "_total", INFO: "_info"}.get(self.kind, "")


_WORKLOAD = ("namespace", "pod", "cgroup")
_RESTARTED = ("kind", "namespace", "name")
_NIC = ("device", "driver", "reason")

CORES = Family("exhume_cores", GAUGE, "Online cores.")
CPU = Family("exhume_cpu_seconds", COUNTER, "CPU time of all cores by state.", "seconds", ("state",))
BUSIEST = Family(
    "exhume_busiest_core_ratio",
    GAUGE,
    f"State shares of the busiest second of a core in the last {WINDOW_S} s; of equally busy ones, the one with the "
    "largest part in the kernel.",
    "ratio",
    ("state",),
)
BUSIEST_CORE = Family("exhume_busiest_core_number", GAUGE, "The core that exhume_busiest_core_ratio is about.")
STALL = Family(
    "exhume_core_stall_seconds",
    COUNTER,
    "Seconds in which the core was at 95% or more in system, irq and softirq, of the time without steal.",
    "seconds",
    ("cpu",),
)
RUN_QUEUE = Family(
    "exhume_run_queue_wait_seconds",
    COUNTER,
    "Time that runnable threads waited for a core, all cores; missing where the kernel has no /proc/schedstat.",
    "seconds",
)
RUNNABLE = Family(
    "exhume_runnable_thread_seconds",
    COUNTER,
    "Threads that ran or waited for a core, looked at once a second, times the seconds.",
    "seconds",
)
WORST_QUEUE = Family(
    "exhume_run_queue_worst_core_threads",
    GAUGE,
    f"Threads that waited for one core in a second, on average: the highest of all cores in the last {WINDOW_S} s.",
)
KSOFTIRQD = Family(
    "exhume_ksoftirqd_wait_seconds", COUNTER, "Time that the ksoftirqd threads waited for their core.", "seconds"
)
KSOFTIRQD_LONGEST = Family(
    "exhume_ksoftirqd_longest_wait_seconds",
    GAUGE,
    f"Longest wait of a ksoftirqd thread that ended in the last {WINDOW_S} s: all that it waited in a second if it "
    "stood still, the mean of its waits if it took turns with other threads.",
    "seconds",
)
PRESSURE = Family(
    "exhume_pressure_stalled_seconds",
    COUNTER,
    "Time in which some or all (full) tasks stalled for a resource (PSI).",
    "seconds",
    ("resource", "kind"),
)
OOM_KILLS = Family("exhume_oom_kills", COUNTER, "Processes that the kernel killed for lack of memory.")
TRACKED = Family("exhume_memory_cgroups_tracked", GAUGE, "Memory cgroups that the kernel keeps.", labels=("hierarchy",))
VISIBLE = Family("exhume_memory_cgroups_visible", GAUGE, "Memory cgroups that have a directory.", labels=("hierarchy",))
DYING = Family(
    "exhume_memory_cgroups_dying",
    GAUGE,
    "Memory cgroups that were removed and that the kernel still keeps (zombies).",
    labels=("hierarchy",),
)
GROWTH = Family(
    "exhume_memory_cgroups_dying_growth_per_second",
    GAUGE,
    "Dying memory cgroups that were added a second, over at most the last 30 minutes; 0 once the growth has ended.",
    labels=("hierarchy",),
)
FORECAST = Family(
    "exhume_memory_cgroups_dying_forecast_seconds",
    GAUGE,
    "Time until there are this many dying memory cgroups at the present pace; +Inf where they don't grow.",
    "seconds",
    ("hierarchy", "threshold"),
)
MADE = Family(
    "exhume_cgroups_made",
    COUNTER,
    f"Memory cgroups that were made, by path with * for ids and numbers; the top {MOST_NAMED}, and the rest as other.",
    labels=("path",),
)
LEAKED = Family(
    "exhume_cgroups_leaked",
    COUNTER,
    "Memory cgroups that the kernel still kept 10 s after they were removed, by the same paths.",
    labels=("path",),
)
NIC_TIMEOUTS = Family(
    "exhume_nic_timeouts", COUNTER, "Transmit timeouts, hangs and lost completions of network devices.", labels=_NIC
)
NIC_RESETS = Family(
    "exhume_nic_resets",
    COUNTER,
    "Resets of network devices; the reason is the last timeout of the device in the minute before.",
    labels=_NIC,
)
THROTTLED = Family(
    "exhume_throttled_seconds",
    COUNTER,
    f"Time that a pod (or another cgroup) was held back by its CPU quota; the top {MOST_NAMED}.",
    "seconds",
    _WORKLOAD,
)
SAMPLED = Family(
    "exhume_sampled_cpu_seconds",
    COUNTER,
    "CPU time of a pod (or another cgroup), by stack samples.",
    "seconds",
    _WORKLOAD,
)
RECLAIM = Family(
    "exhume_direct_reclaim_seconds",
    COUNTER,
    "CPU time of a pod (or another cgroup) in direct reclaim, by stack samples.",
    "seconds",
    _WORKLOAD,
)
RESTARTS = Family(
    "exhume_restarts",
    COUNTER,
    f"Restarts of units, containers and programs; the top {MOST_NAMED}.",
    labels=_RESTARTED,
)
EXITS = Family(
    "exhume_exits",
    COUNTER,
    "Ends of units, containers and restarted programs, by result (success or failure).",
    labels=(*_RESTARTED, "result"),
)
INCIDENTS = Family(
    "exhume_incidents", COUNTER, "Incidents that the recorder marked, by what it marked them for.", labels=("trigger",)
)
FINDINGS = Family(
    "exhume_findings",
    COUNTER,
    "Findings of diagnosed incidents, by cause.",
    labels=("cause",),
)
BUILD = Family("exhume_build", INFO, "The version of exhume.", labels=("version",))
NODE = Family("exhume_node", INFO, "The node that is recorded.", labels=("node", "kernel", "arch"))
LAST_TICK = Family(
    "exhume_recorder_last_tick_timestamp_seconds", GAUGE, "Wall time of the last recorded second.", "seconds"
)
TICK_AGE = Family(
    "exhume_recorder_last_tick_age_seconds",
    GAUGE,
    "Time since the last recorded second, by the monotonic clock.",
    "seconds",
)
TICKS = Family("exhume_recorder_ticks", COUNTER, "Ticks that were recorded.")
OWN_CPU = Family("exhume_recorder_cpu_seconds", COUNTER, "CPU time of the recorder.", "seconds", ("mode",))
OWN_MEMORY = Family("exhume_recorder_resident_memory_bytes", GAUGE, "Resident memory of the recorder.", "bytes")
OWN_TICK = Family("exhume_recorder_tick_duration_seconds", GAUGE, "Time that the last tick took.", "seconds")
WRITTEN = Family("exhume_recorder_written_bytes", COUNTER, "Bytes that were written to the recording.", "bytes")
SAMPLES = Family("exhume_recorder_samples", COUNTER, "Stack samples that were recorded.")
RATE = Family("exhume_recorder_sampling_rate_hertz", GAUGE, "Stack samples a second on each core.", "hertz")
RING_FILL = Family(
    "exhume_recorder_ring_fill_ratio", GAUGE, "How full the fullest ring of samples was in the last tick.", "ratio"
)
LOSSES = Family(
    "exhume_recorder_losses", COUNTER, "What was not recorded, by source and kind.", labels=("source", "kind")
)
UNAVAILABLE = Family(
    "exhume_recorder_source_unavailable",
    GAUGE,
    "1 for each source that was off, or lacked a part, when the recorder started.",
    labels=("source",),
)

FAMILIES: tuple[Family, ...] = (
    *(
        CORES,
        CPU,
        BUSIEST,
        BUSIEST_CORE,
        STALL,
        RUN_QUEUE,
        RUNNABLE,
        WORST_QUEUE,
        KSOFTIRQD,
        KSOFTIRQD_LONGEST,
        PRESSURE,
    ),
    *(OOM_KILLS, TRACKED, VISIBLE, DYING, GROWTH, FORECAST, MADE, LEAKED, NIC_TIMEOUTS, NIC_RESETS, THROTTLED),
    *(SAMPLED, RECLAIM, RESTARTS, EXITS, INCIDENTS, FINDINGS, BUILD, NODE, LAST_TICK, TICK_AGE, TICKS, OWN_CPU),
    *(OWN_MEMORY, OWN_TICK, WRITTEN, SAMPLES, RATE, RING_FILL, LOSSES, UNAVAILABLE),
)


def families_table() -> str:
    """The table of docs/metrics.md."""
    lines = ["| metric | type | labels | what it is |", "|---|---|---|---|"]
    for family in FAMILIES:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        lines.append(f"| `{family.sample}` | {family.kind} | {labels} | {family.help} |")
    return "\n".join(lines) + "\n"

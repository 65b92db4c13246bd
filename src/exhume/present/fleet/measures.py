"""The measures that nodes are coloured by: columns of the minute summaries, and how an hour of them is reduced to one
value.

Downsampling keeps maxima; only counts are summed.
"""

from typing import Literal, NamedTuple

Fold = Literal["max", "sum"]
Scale = Literal["linear", "log"]


class Measure(NamedTuple):
    """A measure. `full` is the value of the strongest colour, the same at every hour, so that hours can be compared.
    `hue` is the CPU state whose colour is used; without one the text colour is used."""

    name: str
    title: str
    unit: str
    fold: Fold
    full: float
    scale: Scale = "log"
    hue: str = ""


# In the order of the page's list; the first one is the default.
MEASURES = (
    Measure("longest_stall_s", "longest stall", "s", "max", 10.0, hue="system"),
    Measure("incidents", "incidents", "", "sum", 10.0),
    Measure("memcgs_dying", "dying memory cgroups", "", "max", 50_000.0),
    Measure("nic_resets", "NIC resets", "", "sum", 10.0),
    Measure("nic_timeouts", "NIC timeouts", "", "sum", 10.0),
    Measure("stall_s", "stalled core time", "s", "sum", 600.0, hue="system"),
    Measure("busiest_share", "busiest core", "share", "max", 1.0, "linear"),
    Measure("kernel_share", "time in the kernel", "share", "max", 1.0, "linear", "system"),
    Measure("ksoftirqd_wait_s", "ksoftirqd waited", "s", "max", 10.0, hue="softirq"),
    Measure("runqueue_wait_s", "run-queue wait", "s", "max", 60.0, hue="wait"),
    Measure("pressure_cpu", "CPU pressure", "share", "max", 1.0, "linear", "wait"),
    Measure("pressure_memory", "memory pressure", "share", "max", 1.0, "linear", "wait"),
    Measure("pressure_io", "I/O pressure", "share", "max", 1.0, "linear", "iowait"),
    Measure("throttled_s", "throttled", "s", "sum", 600.0, hue="wait"),
    Measure("reclaim_share", "memory reclaim", "share", "max", 1.0, "linear", "system"),
    Measure("cgroups_leaked", "leaked cgroups", "", "sum", 1_000.0),
    Measure("unit_restarts", "restarts of units", "", "sum", 100.0),
    Measure("container_restarts", "restarts of containers", "", "sum", 100.0),
    Measure("oom_kills", "OOM kills", "", "sum", 10.0),
    Measure("uptime_s", "uptime", "s", "max", 30 * 86_400.0, "linear"),
    Measure("lost_s", "seconds not recorded", "s", "sum", 600.0),
    Measure("recorder_cpu", "cost of the recorder", "share", "max", 0.05, "linear"),
)
BY_NAME = {measure.name: measure for measure in MEASURES}

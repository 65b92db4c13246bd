"""The recorder's CPU cost by source, with an explanation for each source that costs more than it should."""

from collections.abc import Iterator, Sequence

from rich.text import Text

from exhume.model.text import percent
from exhume.present.terminal.console import hung, table
from exhume.store.read.recording import CostOfSource

# A source that uses more of a core than this, in percent, is shown with an explanation.
EXPLAINED_PERCENT = 0.1

# What the cost of each source grows with.
_REASONS = {
    "stacks": "decodes every stack sample, fork, exec and mapping of the second: grows with the sampling rate, the "
    "cores and the processes that start",
    "symbols": "reads the symbols of programs that were sampled for the first time, in a confined process",
    "children": "reads the inventory (after the start, and what changed), seals what a killed recorder left, diagnoses",
    "store": "writes the rows of the second to live files: grows with the tables that have rows, less with the rows",
    "background": "seals each segment into Parquet (once in one to five minutes), brings live files to the disk every "
    "five seconds, and hands files of programs to the process that reads symbols: the last grows with new programs",
    "loop": "looks for incidents in the rows, counts the recorder's own cost, draws the status",
    "cpu": "reads /proc/stat, /proc/softirqs and /proc/schedstat: the kernel prints a line for each core",
    "node": "reads /proc/vmstat, /proc/meminfo and pressure: some hundred counters, whatever the size of the node",
    "softnet": "reads /proc/net/softnet_stat: a line for each core",
    "interrupts": "reads /proc/interrupts: grows with cores times interrupts",
    "threads": "reads one file for each kernel thread that is bound to a core",
    "throttling": "reads cpu.stat of each cgroup with a quota, and looks for new ones: grows with the cgroups",
    "cgroups": "counts the cgroups of the memory hierarchy every ten seconds: grows with the cgroups",
    "cgroup-trace": "reads the cgroups that were made and removed from a trace buffer: grows with their number",
    "cgroup-churn": "lists the newest cgroup after each count",
    "netdev": "reads the timeouts of each transmit queue, at most 64 in a second",
    "kernel-log": "reads and classifies new lines of the kernel's log",
    "docker": "takes in the events of Docker's containers",
    "cri": "takes in the events of containerd's or CRI-O's containers",
    "systemd": "takes in the state changes of units",
    "inventory": "compares what the node is made of with what it was",
    "job-events": "takes in events that jobs report",
    "job-events-http": "takes in events that jobs report over HTTP",
    "pod-owners": "takes in what the cluster's API says of pods",
    "health-file": "writes the file that exhume health reads",
    "systemd-notify": "reports to systemd that the recorder lives",
    "metrics": "turns the rows of each second into metrics",
    "notifications": "hands incidents over to be diagnosed and reported",
    "kubernetes": "hands incidents over to be reported to the cluster",
}


def reason_of(cost: CostOfSource) -> str | None:
    """Why a source costs as much as it does; None if it costs little."""
    return _REASONS.get(cost.source) if cost.cpu_percent > EXPLAINED_PERCENT else None


def cost_lines(costs: Sequence[CostOfSource], width: int) -> Iterator[Text]:
    """The table of all sources, then explanations for the most expensive ones."""
    if not costs:
        yield Text("no cost by source: it is recorded every ten seconds, from version 0.2 on")
        return
    total = sum(each.cpu_seconds for each in costs)
    rows = [
        (each.source, percent(each.cpu_percent / 100, 2), percent(each.cpu_seconds / total if total else 0.0, 0))
        for each in costs
    ]
    yield from table(("source", "of one core", "of all"), rows, right=(1, 2))
    for each in costs:
        if (reason := reason_of(each)) is not None:
            yield from hung(f"  {each.source}: ", reason, width)

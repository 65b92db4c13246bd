"""What programs ask the kernel for all day: files in memory, pipes, sockets. A core full of that is busy, not lost."""

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.evidence.samples import Names

# An ordinary request may have to do with these on its way: then they are what its time goes to.
_OUTWEIGH = (
    "zombie-memcgs",
    "cgroup-excess",
    "memory-reclaim",
    "oom-thrash",
    "compaction-thp",
    "conntrack-pressure",
    "iptables-churn",
    "audit-storm",
    "softirq-storm",
    "spinlock-contention",
)
_NO_MORE = Names.of(())


def is_by_design(case: Case, mask: Mask) -> bool:
    """Whether most of the masked time in the kernel went to work that fills a core because it is meant to: checking
    disks, polling for them, tearing down a large process."""
    if not case.has_stacks:
        return False
    cause = catalogue()["unknown-kernel-path"]
    sampled = case.samples
    chosen = mask & sampled.in_kernel
    total = float(sampled.weight[chosen].sum())
    meant = float(sampled.weight[chosen & sampled.holding(cause.named("by_design"))].sum())
    return total > 0 and meant >= cause.limit("ordinary_part") * total


def is_ordinary(case: Case, mask: Mask, more: Names = _NO_MORE, *, to_itself: bool = False) -> bool:
    """Whether most of the masked time in the kernel went to ordinary requests, or to more functions; `to_itself` counts
    what a node sends to itself, whose softirqs run in the sender's own call."""
    if not case.has_stacks:
        return False
    cause = catalogue()["unknown-kernel-path"]
    sampled = case.samples
    chosen = mask & sampled.in_kernel
    total = float(sampled.weight[chosen].sum())
    outweighing = Names.of(name for other in _OUTWEIGH for name in catalogue()[other].functions)
    aside = ~sampled.holding(outweighing)
    if to_itself:
        aside |= sampled.holding(cause.named("to_itself"))
    usual = chosen & (sampled.holding(cause.named("ordinary")) | sampled.holding(more)) & aside
    ordinary = float(sampled.weight[usual].sum())
    return total > 0 and ordinary >= cause.limit("ordinary_part") * total

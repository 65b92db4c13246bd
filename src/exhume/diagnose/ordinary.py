"""What programs ask the kernel for all day: files in memory, pipes, sockets. A core full of that is busy, not lost."""

from exhume.diagnose.case import Case
from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.rows import Mask
from exhume.diagnose.sampled import Names

# An ordinary request may have to do with these on its way: then they are what its time goes to.
_OUTWEIGH = (
    "zombie-memcgs",
    "cgroup-excess",
    "memory-reclaim",
    "oom-thrash",
    "compaction-thp",
    "softirq-storm",
    "conntrack-pressure",
    "iptables-churn",
    "audit-storm",
    "spinlock-contention",
)
_NO_MORE = Names.of(())


def is_ordinary(case: Case, mask: Mask, more: Names = _NO_MORE) -> bool:
    """Whether most of the masked time in the kernel went to ordinary requests, or to more functions."""
    if not case.has_stacks:
        return False
    cause = catalogue()["unknown-kernel-path"]
    sampled = case.sampled
    chosen = mask & sampled.in_kernel
    total = float(sampled.weight[chosen].sum())
    outweighing = Names.of(name for other in _OUTWEIGH for name in catalogue()[other].functions)
    usual = chosen & (sampled.holding(cause.named("ordinary")) | sampled.holding(more)) & ~sampled.holding(outweighing)
    ordinary = float(sampled.weight[usual].sum())
    return total > 0 and ordinary >= cause.limit("ordinary_part") * total

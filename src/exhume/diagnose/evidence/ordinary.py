"""Kernel time of ordinary requests: cached files, pipes, sockets. A core full of that is busy, not lost."""

from functools import cache

from exhume.diagnose.catalogue import Cause, catalogue
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.evidence.samples import Names

_NO_MORE = Names.of(())


def is_by_design(case: Case, mask: Mask) -> bool:
    """Whether most of the masked kernel time went to work that is meant to fill a core: checking disks, polling them,
    tearing down a large process."""
    return _is_mostly(case, mask, case.samples.holding(_unknown().group("by_design"))) if case.has_stacks else False


def is_ordinary(case: Case, mask: Mask, more: Names = _NO_MORE, *, to_itself: bool = False) -> bool:
    """Whether most of the masked kernel time went to ordinary requests, or to more functions; `to_itself` includes
    packets that a node sends to itself, whose softirqs run in the sender's own call."""
    if not case.has_stacks:
        return False
    cause, samples = _unknown(), case.samples
    aside = ~samples.holding(_outweighing())
    if to_itself:
        aside |= samples.holding(cause.group("to_itself"))
    return _is_mostly(case, mask, (samples.holding(cause.group("ordinary")) | samples.holding(more)) & aside)


def _is_mostly(case: Case, mask: Mask, part: Mask) -> bool:
    samples = case.samples
    chosen = mask & samples.in_kernel
    total = float(samples.weight[chosen].sum())
    return total > 0 and float(samples.weight[chosen & part].sum()) >= _unknown().limit("ordinary_part") * total


def _unknown() -> Cause:
    return catalogue()["unknown-kernel-path"]


@cache
def _outweighing() -> Names:
    return Names.of(name for cause in catalogue().values() if cause.outweighs_ordinary for name in cause.functions)

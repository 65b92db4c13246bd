"""The share of a core that a process, or everybody, spent in some functions of the kernel, as it can be found again.

A cause may leave samples out of its load for reasons of its own; what it quotes has to be the plain sum over the store.
"""

from exhume.diagnose.case import Case
from exhume.diagnose.load import Load
from exhume.diagnose.sampled import Names, plain_name
from exhume.model.clock import NANOS
from exhume.model.finding import Evidence
from exhume.model.window import Window


def share_in(case: Case, load: Load, functions: tuple[str, ...], pid: int | None = None) -> Evidence:
    """The part of a load's worst second on its core that went to these functions, of one process or of all."""
    second = Window(load.at, load.at + NANOS)
    sampled = case.sampled
    mask = sampled.holding(Names.of(functions)) & sampled.within(second)
    if load.cpu is not None:
        mask &= sampled.cpu == load.cpu
    match: tuple[tuple[str, str], ...] = ()
    if pid is not None:
        mask &= sampled.pid == pid
        match = (("pid", str(pid)),)
    value = float(sampled.weight[mask].sum()) / 1e6
    return Evidence(
        "samples",
        "weight_us",
        "share",
        round(min(1.0, value), 3),
        second.since,
        second.until,
        load.cpu,
        match,
        functions,
    )


def present(case: Case, names: Names) -> tuple[str, ...]:
    """Those of the named functions that stacks of this case hold: what evidence can name."""
    return tuple(sorted({plain_name(each) for each in case.sampled.functions if each in names}))


def told_load(load: Load, what: str) -> str:
    """How much of what core something took, now and before, in words."""
    text = f"{what} took {load.peak:.0%} of core {load.cpu} in a second, {load.cores:.2f} cores over all"
    return text if load.before is None else f"{text} (before: {load.before:.2f})"

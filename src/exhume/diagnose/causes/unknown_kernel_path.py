"""A core is busy in the kernel, and no cause accounts for it: it is named by function, process and core.

A program that reads files or serves a network may well spend a core in the kernel, and nobody suffers: such ordinary
paths are worth knowing at most, unless somebody is known to wait.
"""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import KERNEL_STATES, Case
from exhume.diagnose.evidence.impact import hurts_others
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.ordinary import is_by_design, is_ordinary
from exhume.diagnose.evidence.quotes import quote_load
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.evidence.samples import Names, plain_name
from exhume.diagnose.facts.core_hogs import find_core_hogs
from exhume.model.finding import Role, RuledOut, Severity

CAUSE = catalogue()["unknown-kernel-path"]


@dataclass(frozen=True, slots=True)
class Path:
    """The way to the deepest function that holds most of a load, and the load below that function."""

    functions: list[str]
    load: Load

    @property
    def function(self) -> str:
        return self.functions[-1]


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    if not case.has_stacks:
        return builder.rule_out("no stacks were sampled: a path can't be named")
    load = _unexplained(case)
    if load is None:
        return builder.rule_out("no core was lost to a path of the kernel that nothing explains")
    path = _dominant(case, load)
    owned = path.load
    evidence = quote_load(case, owned, (path.function,))
    where = f"core {owned.cpu}" if owned.peak >= CAUSE.limit("core_share") * owned.together else "several cores"
    owner = owned.owner
    who = owner.comm if owner is not None and owner.part >= 1 / 3 else "many processes"
    way = f" (by way of {' -> '.join(path.functions[:-1][-4:])})" if path.functions[:-1] else ""
    builder.add(
        Role.MECHANISM,
        f"{who} spent {owned.peak:.0%} of a second of {where} in {path.function}{way}",
        evidence,
        strength=CAUSE.limit("strong"),
        at=owned.at,
    )
    if not case.baseline.empty:
        text = f"{who} took {owned.cores:.2f} cores there, {owned.before or 0:.2f} before"
        builder.add(Role.CULPRIT, text, evidence, at=owned.at)
    ordinary = (
        path.function in CAUSE.named("entries")
        or is_ordinary(case, load.mask, CAUSE.named("walking"), to_itself=True)
        or is_by_design(case, load.mask)
    )
    severity = _severity(case, load, ordinary=ordinary)
    nobody = severity is Severity.INFO
    if nobody:
        builder.doubt("nobody is known to suffer from it", CAUSE.limit("unfelt_factor"))
    tail = ": a usual thing for a program to do, and nobody is known to wait" if nobody and ordinary else ""
    summary = f"{who} keeps {where} in {path.function}, which no known cause accounts for{tail}"
    return builder.found(severity, summary, culprit=case.culprit(owned, path.function), load=load)


def _unexplained(case: Case) -> Load | None:
    """The time in the kernel that no finding accounts for, of one core or of one process: whichever was taken longer.
    That of a whole node says nothing: on a large one it is always more than a core."""
    sampled = case.samples
    left = sampled.in_kernel & ~case.explained
    for cause in case.found:
        # A finding is about the worst that there is of its kind; less of the same is not unknown either.
        left &= ~sampled.holding(catalogue()[cause].names)
    found = [load for load in (_of_core(case, left), _of_process(case, left)) if load is not None]
    return max(found, key=lambda each: each.taken_s, default=None)


def _of_core(case: Case, left: Mask) -> Load | None:
    load = case.load_of(left)
    # Whether it is new is judged before the others are left out: it may have come from another core.
    if load.cpu is None or load.core_s < CAUSE.limit("seconds") or not load.is_new:
        return None
    return case.load_of(left, cpus=[load.cpu])


def _of_process(case: Case, left: Mask) -> Load | None:
    """Of the process that took most, on whichever cores."""
    sampled = case.samples
    now = left & sampled.within(case.focus) & (sampled.pid > 0)
    if not now.any():
        return None
    pids, members = np.unique(sampled.pid[now], return_inverse=True)
    pid = int(pids[int(np.argmax(np.bincount(members, sampled.weight[now])))])
    load = case.load_of(left & (sampled.pid == pid))
    return load if load.taken_s >= CAUSE.limit("seconds") and load.is_new else None


def _dominant(case: Case, load: Load) -> Path:
    """The deepest function of the kernel that holds most of the load, with the way to it."""
    sampled = case.samples
    used = load.mask
    total = float(sampled.weight[used].sum())
    stacks = np.bincount(sampled.stack[used], sampled.weight[used])
    best = [plain_name(name) for name in sampled.frames_of(int(np.argmax(stacks)))]
    held = dict(sampled.inclusive(used))
    # From the root on, as deep as more than half of the load goes with it.
    path = [name for name in best if held.get(name, 0.0) >= total / 2] or [sampled.inclusive(used)[0][0]]
    earlier = sampled.within(case.baseline) & sampled.in_kernel
    return Path(path, case.load_of((used | earlier) & sampled.holding(Names.of([path[-1]]))))


def _severity(case: Case, load: Load, *, ordinary: bool) -> Severity:
    suffered = hurts_others(case, load.cpu)
    if ordinary and not suffered:
        return Severity.INFO
    lost = case.core_share(KERNEL_STATES, load.cpu)[0] >= CAUSE.limit("lost")
    # One process alone that holds its core in the kernel; many short visits leave room between them.
    alone = bool(find_core_hogs(case, seconds=CAUSE.limit("lost_seconds"), among=case.samples.in_kernel))
    if suffered or (lost and alone and load.core_s >= CAUSE.limit("lost_seconds")):
        return Severity.CRITICAL
    return Severity.WARNING

"""A core is busy in the kernel, and no cause accounts for it: it is named by function, process and core."""

import numpy as np

from exhume.diagnose.case import Case
from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence import of_load
from exhume.diagnose.hold import hold_of
from exhume.diagnose.load import Load
from exhume.diagnose.sampled import Names, plain_name
from exhume.diagnose.sheet import Found, Sheet
from exhume.model.finding import Role, RuledOut, Severity

CAUSE = catalogue()["unknown-kernel-path"]


def examine(case: Case) -> Found | RuledOut:
    sheet = Sheet(case, CAUSE)
    if not case.has_stacks:
        return sheet.rule_out("no stacks were sampled: a path can't be named")
    sampled = case.sampled
    left = sampled.in_kernel & ~case.explained
    load = case.load_of(left)
    # Of one core, or of one process: a little on each of many cores is what any busy node has.
    hold = hold_of(case, load, CAUSE.limit("core_share"))
    if hold.seconds < CAUSE.limit("seconds") or not load.is_new:
        return sheet.rule_out(f"at most {load.peak:.0%} of a core went to paths that nothing explains")
    path, owned = _dominant(case, load)
    function = path[-1]
    evidence = of_load(case, owned, (function,))
    where = f"core {owned.cpu}" if owned.peak >= 0.7 * owned.together else "several cores"
    owner = owned.owner
    who = owner.comm if owner is not None and owner.part >= 1 / 3 else "many processes"
    sheet.add(
        Role.MECHANISM,
        f"{who} spent {owned.peak:.0%} of a second of {where} in {function} (by way of {' -> '.join(path[:-1][-4:])})",
        evidence,
        strength=0.75,
        at=owned.at,
    )
    if not case.baseline.empty:
        sheet.add(
            Role.CULPRIT,
            f"{who} took {owned.cores:.2f} cores there, {owned.before or 0:.2f} before",
            evidence,
            at=owned.at,
        )
    felt = case.core_share(("system", "irq", "softirq"))[0] >= 0.95
    severity = Severity.CRITICAL if felt and load.taken_s >= 3 else Severity.WARNING
    summary = f"{who} keeps {where} in {function}, which no known cause accounts for"
    return sheet.found(severity, summary, culprit=case.culprit(owned, function), load=load)


def _dominant(case: Case, load: Load) -> tuple[list[str], Load]:
    """The deepest function of the kernel that holds most of the load, with the way to it."""
    sampled = case.sampled
    used = load.mask
    total = float(sampled.weight[used].sum())
    stacks = np.bincount(sampled.stack[used], sampled.weight[used])
    best = [plain_name(name) for name in sampled.frames_of(int(np.argmax(stacks)))]
    held = dict(sampled.inclusive(used))
    # From the root on, as deep as more than half of the load goes with it.
    path = [name for name in best if held.get(name, 0.0) >= 0.5 * total] or [sampled.inclusive(used)[0][0]]
    return path, case.load_of(used & sampled.holding(Names.of([path[-1]])))

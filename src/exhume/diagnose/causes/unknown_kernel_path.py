"""A core is busy in the kernel, and no cause accounts for it: it is named by function, process and core.

A program that reads files or serves a network may well spend a core in the kernel without harm: such ordinary paths are
worth knowing at most, unless another process is known to wait.
"""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
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
# Callers that are named with the function.
_CALLERS = 4


@dataclass(frozen=True, slots=True)
class Path:
    """The path to the deepest function that holds most of a load, and the load below that function."""

    functions: list[str]
    load: Load

    @property
    def function(self) -> str:
        return self.functions[-1]


@examines(CAUSE)
def unknown_kernel_path(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if not case.has_stacks:
        return builder.rule_out("no-stacks-sampled")
    load = _unexplained(case)
    if load is None:
        return builder.rule_out("none")
    path = _dominant(case, load)
    owned = path.load
    quote = quote_load(case, owned, (path.function,))
    owner = owned.main_owner
    values: dict[str, object] = {
        "who": None if owner is None else owner.entity,
        "cpu": owned.cpu if owned.peak >= CAUSE.limit("core_share") * owned.together else None,
        "function": path.function,
    }
    callers = " -> ".join(path.functions[:-1][-_CALLERS:]) or None
    builder.add(
        Role.MECHANISM, "path", quote, strength="strong", at=owned.at, peak=owned.peak, callers=callers, values=values
    )
    if not case.baseline.empty:
        before = {"cores": owned.cores, "before": owned.before or 0.0}
        builder.add(Role.CULPRIT, "before", quote, at=owned.at, who=values["who"], values=before)
    ordinary = (
        path.function in CAUSE.group("entries")
        or is_ordinary(case, load.mask, CAUSE.group("walking"), to_itself=True)
        or is_by_design(case, load.mask)
    )
    severity = _severity(case, load, ordinary=ordinary)
    harmless = severity is Severity.INFO
    if harmless:
        builder.doubt("harmless", "harmless_factor")
    culprit = case.culprit(owned, path.function)
    key = "summary-ordinary" if harmless and ordinary else "summary"
    return builder.found(severity, key, culprit=culprit, load=load, values=values)


def _unexplained(case: Case) -> Load | None:
    """The kernel time that no finding accounts for, of one core or of one process: the one that was taken longer. That
    of a whole node says nothing: on a large one it is always more than a core."""
    samples = case.samples
    left = samples.in_kernel & ~case.explained
    for cause in case.found:
        # A finding is about the worst of its kind; less of the same is not unknown either.
        left &= ~samples.holding(catalogue()[cause].names)
    found = [load for load in (_of_core(case, left), _of_process(case, left)) if load is not None]
    return max(found, key=lambda each: each.taken_s, default=None)


def _of_core(case: Case, left: Mask) -> Load | None:
    load = case.load_of(left)
    # Whether it is new is judged before the other cores are left out: it may have come from another core.
    if load.cpu is None or load.core_s < CAUSE.limit("seconds") or not load.is_new:
        return None
    return case.load_of(left, cpus=[load.cpu])


def _of_process(case: Case, left: Mask) -> Load | None:
    """Of the process that took most, on any core."""
    samples = case.samples
    now = left & samples.within(case.focus) & (samples.pid > 0)
    if not now.any():
        return None
    pids, members = np.unique(samples.pid[now], return_inverse=True)
    pid = int(pids[int(np.argmax(np.bincount(members, samples.weight[now])))])
    load = case.load_of(left & (samples.pid == pid))
    return load if load.taken_s >= CAUSE.limit("seconds") and load.is_new else None


def _dominant(case: Case, load: Load) -> Path:
    """The deepest function of the kernel that holds most of the load, with the path to it."""
    samples = case.samples
    used = load.mask
    total = float(samples.weight[used].sum())
    stacks = np.bincount(samples.stack[used], samples.weight[used])
    best = [plain_name(name) for name in samples.frames_of(int(np.argmax(stacks)))]
    held = dict(samples.inclusive(used))
    # From the root on, as deep as at least half of the load goes with it.
    path = [name for name in best if held.get(name, 0.0) >= total / 2] or [samples.inclusive(used)[0][0]]
    earlier = samples.within(case.baseline) & samples.in_kernel
    return Path(path, case.load_of((used | earlier) & samples.holding(Names.of([path[-1]]))))


def _severity(case: Case, load: Load, *, ordinary: bool) -> Severity:
    hurts = hurts_others(case, load.cpu)
    if ordinary and not hurts:
        return Severity.INFO
    lost = case.core_share(KERNEL_STATES, load.cpu)[0] >= CAUSE.limit("lost")
    # One process alone that holds its core in the kernel; many short visits leave room between them.
    alone = bool(find_core_hogs(case, seconds=CAUSE.limit("lost_seconds"), among=case.samples.in_kernel))
    if hurts or (lost and alone and load.core_s >= CAUSE.limit("lost_seconds")):
        return Severity.CRITICAL
    return Severity.WARNING

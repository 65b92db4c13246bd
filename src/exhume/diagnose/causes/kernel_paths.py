"""Cores that the kernel keeps: for a work item, for spinning on a lock, for a walk over live objects, or in a path that
no cause accounts for, which is named by function, process and core.

A program that reads files or serves a network may well spend a core in the kernel without harm: such ordinary paths are
reported as info at most, unless another process is known to wait.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from exhume.diagnose import messages
from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import log_lines, present_functions, quote_event, quote_share
from exhume.diagnose.evidence.rows import Mask
from exhume.diagnose.evidence.samples import Names
from exhume.diagnose.facts.core_hogs import find_core_hogs
from exhume.diagnose.facts.leaks import cgroup_counts
from exhume.diagnose.symptoms import hurts_others, is_by_design, is_ordinary, severity_of, waits_in_turn
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity
from exhume.model.tables import KERNEL_STATES
from exhume.store.read.events import EventView

WORK = catalogue()["workqueue-hog"]
SPIN = catalogue()["spinlock-contention"]
UNKNOWN = catalogue()["unknown-kernel-path"]
WALK = catalogue()["kernel-walk"]
_FILES = "files"
_SUBJECTS = ("processes", "memory-maps", "open-files", "sockets", "cgroups", "devices", "routes", _FILES)
# Processes with the same name are named together only if they spend this many times as much as the busiest of them.
_BY_NAME = 1.5
# Number of callers that are named with the function of an unknown path.
_CALLERS = 4


@examines(WORK)
def workqueue_hog(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    lines, samples = log_lines(case, WORK.log), case.samples
    working = samples.holding(WORK.names)
    # The work function that took most of the time, and its load.
    functions = samples.adjacent(working & samples.within(case.focus), WORK.names, called=True)
    function = functions[0][0] if functions else None
    load = case.load_of(working & samples.holding(Names.of([function] if function else [])))
    if function is None or load.core_s < WORK.limit("seconds"):
        named = next((line for line in lines if function is not None and line.comm == function), None)
        if lines and (not case.has_stacks or named is not None or load.peak >= WORK.limit("supported")):
            return _logged(builder, case, named or lines[0], function, load)
        return builder.rule_out("share", share=load.peak)
    quote, values = quote_share(case, load, (function,)), {"function": function, "seconds": load.core_s}
    builder.add(Role.MECHANISM, "work", quote, strength="strong", load=load, values=values)
    if not load.is_new:
        builder.doubt("not-new", "not_new_factor")
    own = [line for line in lines if line.comm in (None, function)]
    for line in own[:1]:
        builder.add(Role.SYMPTOM, "log", quote_event(line), strength="line", line=line.text)
    severity = Severity.INFO
    if load.is_new or own:
        severity = Severity.CRITICAL if own or hurts_others(case, load.cpu, load.mask) else Severity.WARNING
    culprit = case.culprit(load, function)
    return builder.found(severity, "summary", culprit=culprit, load=load, target=function, function=function)


def _logged(builder: EvidenceBuilder, case: Case, line: EventView, work: str | None, load: Load) -> Found:
    """A hog that the log reports, but that the stacks don't show or show as less than a core."""
    builder.add(Role.MECHANISM, "log", quote_event(line), strength="line", line=line.text)
    function, culprit = line.comm or work, Culprit()
    if work is not None:
        builder.add(Role.CULPRIT, "workers", quote_share(case, load, (work,)), load=load)
        culprit = case.culprit(load)
    # The kernel reports hogs of some hundredths of a second; a lockup takes half a minute.
    severity = Severity.CRITICAL if line.severity == "critical" else Severity.INFO
    culprit, target = replace(culprit, function=function), function or "it"
    return builder.found(severity, "summary-logged", culprit=culprit, weight=1.0, target=target, function=function)


@examines(SPIN)
def spinlock_contention(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if not case.has_stacks:
        return builder.rule_out("no-stacks-sampled")
    samples, spinning = case.samples, case.load(SPIN.names)
    if spinning.together < SPIN.limit("reported") or spinning.cores < SPIN.limit("reported_mean"):
        return builder.rule_out("share", together=spinning.together)
    function = samples.nearest(spinning.mask, SPIN.names) or SPIN.functions[0]
    # The caller of the locking functions shows where the lock is.
    takers = Names.of((*SPIN.functions, *SPIN.groups["wrappers"]))
    sites = samples.adjacent(spinning.mask, takers, called=False)
    top = sites[0][0] if sites else None
    part = sites[0][1] / max(1.0, sum(weight for _, weight in sites)) if sites else 0.0
    site = top if part >= SPIN.limit("one_site") else None
    culprit = case.culprit(spinning, site or function)
    long = spinning.taken_s >= SPIN.limit("seconds")
    strength = "strong" if spinning.together >= SPIN.limit("strong_share") and long else "medium"
    quote, named = quote_share(case, spinning, SPIN.functions), {"function": function, "site": site}
    builder.add(Role.MECHANISM, "spinning", quote, strength=strength, load=spinning, values=named)
    if site is not None:
        at_site = case.load(Names.of([site]))
        values = {"part": part, "site": site, "who": culprit.process}
        quote = quote_share(case, at_site, (site,))
        builder.add(Role.CULPRIT, "site", quote, strength="weak", load=at_site, values=values)
    else:
        builder.doubt("no-site", "no_site_factor")
    if not spinning.is_new:
        builder.doubt("not-new", "not_new_factor")
    severity = Severity.INFO
    # Some spinning is normal on a large busy node: it has to take much of one core, or of all CPU time.
    much = spinning.core_s >= SPIN.limit("seconds") or spinning.part >= SPIN.limit("slowed_part")
    if spinning.is_new and much and spinning.cores >= SPIN.limit("slowed_mean"):
        severity = Severity.CRITICAL if long and hurts_others(case, spinning.cpu, spinning.mask) else Severity.WARNING
    values, target = {"who": culprit.process, **named}, top or function
    return builder.found(severity, "summary", culprit=culprit, load=spinning, target=target, values=values)


@dataclass(frozen=True, slots=True)
class _Walk:
    """What one process, or all processes with one name (`comm`), walk: the subject, and the masks of the walk and of
    all their time."""

    subject: str
    comm: str | None
    mask: Mask
    own: Mask


@examines(WALK)
def kernel_walk(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if not case.has_stacks:
        return builder.rule_out("no-stacks-sampled")
    walk, samples = _find_walk(case), case.samples
    if walk is None:
        return builder.rule_out("none")
    load, names = case.load_of(walk.mask), WALK.group(walk.subject)
    function = samples.nearest(load.mask, names)
    culprit = case.culprit(load, function)
    if walk.comm is not None:
        culprit = replace(culprit, pid=None, comm=walk.comm)
    if load.peak < WALK.limit("own_part"):
        # The processes share no single core.
        culprit = replace(culprit, cpu=None)
    part = samples.time(load.mask) / max(samples.time(walk.own & samples.within(case.focus)), 1.0)
    known = present_functions(case, names)
    who = culprit.process if culprit.pid is not None else None
    values: dict[str, object] = {"who": who, "comm": culprit.comm, "function": function}
    values |= {"what": messages.render(f"{WALK.id}.{walk.subject}", {}), "part": part}
    strength = "strong" if part >= WALK.limit("mostly") else "fair"
    quote = quote_share(case, load, known, culprit.pid)
    builder.add(Role.MECHANISM, "walk", quote, strength=strength, load=load, values=values)
    command = None if culprit.pid is None else case.command(culprit.pid)
    if command is not None:
        builder.add(Role.CULPRIT, "command", command=command)
    count = _number_of(case, walk.subject)
    if count is not None:
        builder.add(Role.ROOT_CAUSE, "count", count[1], strength="fair", count=count[0])
    severity, hurts = Severity.INFO, hurts_others(case, load.cpu, load.mask)
    # Builds, searches and backups go through files all day.
    usual = walk.subject == _FILES or not load.is_new
    if hurts and load.cores >= WALK.limit("busy"):
        severity = severity_of(case, load)
    elif not usual and load.cores >= WALK.limit("busy"):
        severity = Severity.WARNING
    else:
        builder.doubt("harmless", 1.0)
    values["count"] = None if count is None else count[0]
    # A short-lived process can't be traced by its pid.
    targets = {"walk-less": culprit.comm, "see-calls": None if culprit.pid is None else str(culprit.pid)}
    remedies = tuple(aim((each,), target)[0] for each in WALK.remedies if (target := targets[each.id]) is not None)
    return builder.found(severity, "summary", culprit=culprit, load=load, remedies=remedies, values=values)


def _find_walk(case: Case) -> _Walk | None:
    """The process, or the name shared by short-lived processes, that spends most on walking one kind of object."""
    samples = case.samples
    now = samples.within(case.focus) & (samples.pid > 0)
    left = now & ~case.explained
    subjects = {name: samples.holding(WALK.group(name)) & left for name in _SUBJECTS}
    # Files of sysfs and of cgroups take the same path, and so do a process's open files and the list of processes.
    subjects["cgroups"] &= ~subjects["devices"]
    subjects["processes"] &= ~(subjects["open-files"] | subjects["memory-maps"])
    anything = np.logical_or.reduce(list(subjects.values()))
    if not anything.any():
        return None
    paths = samples.holding(WALK.group("paths")) & left
    walking = anything | paths
    best: tuple[float, _Walk] | None = None
    for of in (samples.pid, samples.comm):
        keys, members = np.unique(of[walking], return_inverse=True)
        busy = np.bincount(members, samples.weight[walking]) >= WALK.limit("cores") * case.focus.seconds * 1e6
        for key in keys[busy].tolist():
            mine = of == key
            walk = _main_walk(case, mine & now, subjects, paths & ~anything & mine)
            # Prefer a single process over its name if both spend about the same.
            if walk is not None and (best is None or walk[0] > _BY_NAME * best[0]):
                subject = walk[1]
                walked = (samples.holding(WALK.group(subject)) | samples.holding(WALK.group("paths"))) & mine
                comm = samples.comms[key] if of is samples.comm else None
                best = (walk[0], _Walk(subject, comm, walked, mine))
    return best[1] if best is not None else None


def _main_walk(case: Case, own: Mask, subjects: Mapping[str, Mask], paths: Mask) -> tuple[float, str] | None:
    """What these samples mostly walk, and the time (us) they spend on it; None if that is not much of their time, or if
    their stacks don't show what is walked."""
    samples = case.samples
    named = {name: samples.time(mask & own) for name, mask in subjects.items()}
    subject = max(named, key=lambda name: named[name])
    specific, whole = named[subject], samples.time(own)
    about = specific + samples.time(paths)
    fits = (
        about >= WALK.limit("cores") * case.focus.seconds * 1e6
        and about >= WALK.limit("own_part") * whole
        and specific >= WALK.limit("named_part") * whole
        and specific >= WALK.limit("mostly") * sum(named.values())
        and int((subjects[subject] & own).sum()) >= WALK.limit("samples")
    )
    return (about, subject) if fits else None


def _number_of(case: Case, subject: str) -> tuple[int, Evidence] | None:
    """The number of objects of the walked kind, if recorded."""
    if subject != "cgroups":
        return None
    found = [each for each in cgroup_counts(case) if each.visible is not None]
    most = max(found, key=lambda each: each.visible or 0, default=None)
    return None if most is None else (most.visible or 0, most.evidence("visible"))


@examines(UNKNOWN)
def unknown_kernel_path(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    if not case.has_stacks:
        return builder.rule_out("no-stacks-sampled")
    load, samples = _unexplained(case), case.samples
    if load is None:
        return builder.rule_out("none")
    # The deepest function with at least half of the load, the path to it, and the load below it.
    path = samples.main_path(load.mask, 0.5)[1] or [samples.inclusive(load.mask)[0][0]]
    function, earlier = path[-1], samples.within(case.baseline) & samples.in_kernel
    owned = case.load_of((load.mask | earlier) & samples.holding(Names.of([function])))
    quote, owner = quote_share(case, owned, (function,)), owned.main_owner
    values: dict[str, object] = {
        "who": None if owner is None else owner.entity,
        "cpu": owned.cpu if owned.peak >= UNKNOWN.limit("core_share") * owned.together else None,
        "function": function,
    }
    callers = " -> ".join(path[:-1][-_CALLERS:]) or None
    builder.add(Role.MECHANISM, "path", quote, strength="strong", load=owned, callers=callers, values=values)
    if not case.baseline.empty:
        builder.add(Role.CULPRIT, "before", quote, load=owned, who=values["who"])
    ordinary = (
        function in UNKNOWN.group("entries")
        or is_ordinary(case, load.mask, UNKNOWN.group("walking"), to_itself=True)
        or is_by_design(case, load.mask)
    )
    severity, hurts = Severity.WARNING, hurts_others(case, load.cpu, load.mask)
    held, seconds = case.core_held(KERNEL_STATES, load.cpu), UNKNOWN.limit("held_seconds")
    # A single process that holds its core in the kernel; many short system calls leave room between them.
    alone = bool(held and load.core_s >= seconds and find_core_hogs(case, seconds=seconds, among=samples.in_kernel))
    # Where threads queue for every core, others wait for their turn next to ordinary work of any kind.
    queued = not alone and waits_in_turn(case, load.cpu, load.mask)
    key = "summary"
    if ordinary and (queued or not hurts):
        severity, key = Severity.INFO, "summary-queued" if hurts else "summary-ordinary"
        builder.doubt("queued" if hurts else "harmless", "harmless_factor")
    elif hurts or alone:
        severity = Severity.CRITICAL
    culprit = case.culprit(owned, function)
    return builder.found(severity, key, culprit=culprit, load=load, values=values)


def _unexplained(case: Case) -> Load | None:
    """Kernel time of one core or one process, whichever was taken longer, that no finding accounts for. A sum over the
    node says nothing: on a large node it always exceeds a core."""
    samples, seconds = case.samples, UNKNOWN.limit("seconds")
    left = samples.in_kernel & ~case.explained
    for cause in case.found:
        # A finding is about the worst of its kind; smaller loads of the same kind are not unknown either.
        left &= ~samples.holding(catalogue()[cause].names)
    found = []
    load = case.load_of(left)
    # Judge whether it is new before leaving out the other cores: it may have migrated from one of them.
    if load.cpu is not None and load.core_s >= seconds and load.is_new:
        found.append(case.load_of(left, cpus=[load.cpu]))
    now = left & samples.within(case.focus) & (samples.pid > 0)
    if now.any():
        # The process that took most, on any core.
        pids, members = np.unique(samples.pid[now], return_inverse=True)
        pid = int(pids[int(np.argmax(np.bincount(members, samples.weight[now])))])
        load = case.load_of(left & (samples.pid == pid))
        if load.taken_s >= seconds and load.is_new:
            found.append(load)
    return max(found, key=lambda each: each.taken_s, default=None)

"""More runnable work than cores: on the whole node, on a core that threads are bound to, or in a cpuset that is too
small for its work while other cores idle.

A full node is not a fault by itself. It matters if threads that don't give way to others wait for long: work that was
niced, or whose cgroup has the lowest possible shares, waits by its owner's choice.
"""

import shlex
from dataclasses import dataclass, replace

import numpy as np

from exhume.diagnose.catalogue import Cause, catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column
from exhume.diagnose.evidence.rows import Rows
from exhume.diagnose.facts.contention import Contention, Demand, Waiter, turnover
from exhume.diagnose.facts.core_hogs import waits_of_cores
from exhume.diagnose.facts.hierarchies import V2, controller_root
from exhume.diagnose.facts.owners import CgroupOwner, for_engine, owner_of
from exhume.diagnose.symptoms import find_symptoms
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Culprit, Entity, EntityKind, Evidence, Remedy, Role, RuledOut, Severity

OVERCOMMIT = catalogue()["cpu-overcommit"]
SQUEEZE = catalogue()["cpuset-squeeze"]
_IDLE = ("idle", "iowait")
# How far back to look for the beginning of the competition.
_EARLIER_S = 600.0


@dataclass(frozen=True, slots=True)
class Stack:
    """Threads that may use only the same few cores while other cores have `room` (cores' worth), or while the threads
    on the other cores hardly wait: then there is no room, and `gain` is what the stacked threads would have had in
    addition."""

    cores: frozenset[int]
    threads: list[Waiter]
    queue: float
    room: float
    gain: float = 0.0


@examines(OVERCOMMIT)
def cpu_overcommit(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    contention = Contention(case, background_nice=OVERCOMMIT.limit("background_nice"))
    if not contention.cores:
        return builder.rule_out("uncounted")
    queue, counted = contention.queue, contention.queue is not None
    if queue is None:
        queue = _queue_by_count(case.now("node"), len(contention.cores))
    if queue is None:
        return builder.rule_out("uncounted")
    # Comes first, because niced work keeps the other cores busy and still leaves them room.
    stacked = _stacked_threads(contention, case)
    if stacked is not None:
        return _stacked(builder, case, stacked)
    idle = contention.idle()
    if idle > OVERCOMMIT.limit("idle_left"):
        return builder.rule_out("idle", idle=idle, queue=queue)
    if queue < OVERCOMMIT.limit("reported"):
        return builder.rule_out("queue-short", queue=queue)
    return _whole_node(builder, case, contention, queue, counted=counted)


def _queue_by_count(node: Rows, cores: int) -> float | None:
    """Mean number of threads that waited per core, from the runnable threads at each tick, one of which is the
    recorder."""
    running = node.middle("running")
    return None if running is None else max(0.0, running - 1 - cores) / cores


def _whole_node(builder: EvidenceBuilder, case: Case, contention: Contention, queue: float, *, counted: bool) -> Found:
    cpu, node, cores = case.now("cpu"), case.now("node"), len(contention.cores)
    quotes = [quote_column(cpu, state, "mean", "permille") for state in _IDLE]
    builder.add(Role.MECHANISM, "full", *quotes, strength="weak", cores=cores, idle=contention.share(_IDLE))
    waiting = queue * cores
    is_usual = _add_queue(builder, case, waiting, cores, counted=counted)
    psi = node.per_second("psi_cpu_some")
    if psi is not None:
        quote = quote_column(node, "psi_cpu_some", "sum", "us")
        builder.add(Role.MECHANISM, "pressure", quote, strength="weak", share=min(1.0, psi / 1e6))
    steal = contention.share(("steal",))
    if steal >= OVERCOMMIT.limit("stolen"):
        quote = quote_column(cpu, "steal", "mean", "permille")
        builder.add(Role.MECHANISM, "stolen", quote, share=steal, cores=steal * cores)
    lasted = _lasted(case, OVERCOMMIT.limit("reported"))
    starved = _starved_softirq(case, contention, queue)
    harmful = _harmful_queue(contention, case, queue, counted=counted)
    harms = starved or (harmful >= OVERCOMMIT.limit("waiting") and lasted >= OVERCOMMIT.limit("seconds"))
    demands = [each for each in contention.demands if each.total >= OVERCOMMIT.limit("least_demand")]
    wanting = [each for each in demands if not each.background] if harms else demands
    pids = {pid for each in wanting for pid in each.pids}
    form, culprit = _form(case, wanting)
    # Background work comes after the work that it gives way to.
    for demand in sorted(demands, key=lambda each: harms and each.background)[: int(OVERCOMMIT.limit("most_named"))]:
        _add_demand(builder, case, contention, demand)
    if form == "short-lived":
        values = {"who": wanting[0].name, "count": len(wanting[0].pids), "seconds": case.focus.seconds}
        builder.add(Role.CULPRIT, "short-lived", values=values)
    _add_waiter(builder, case, contention, wanting[0] if form == "noisy" else None)
    _add_change(builder, wanting, lasted)
    if not contention.waiters:
        builder.doubt("no-threads")
    if not case.has_stacks:
        builder.doubt("no-process", "no_process_factor")
    severity, key = Severity.WARNING, f"summary-{form}"
    if starved:
        severity = Severity.CRITICAL
    if not harms:
        background = harmful < OVERCOMMIT.limit("harmless") and harmful < queue / 2
        severity, key = Severity.INFO, "summary-background" if background else "summary-mild"
    elif _explained_part(case) >= OVERCOMMIT.limit("explained"):
        # The cores are busy because of another cause: without it there would be room.
        severity = Severity.INFO
        builder.doubt("explained", "explained_factor")
    top = wanting[0] if wanting else None
    values = {"who": top.name if top else None, "count": len(top.pids) if top else 0, "waiting": waiting}
    values |= {"cores": cores, "wanted": top.total if top else None, "usual": is_usual}
    remedies = _remedies(top, form) if harms else ()
    # Overcommit ranks behind a cause that takes a real share of a core, and before causes that take less.
    weight = OVERCOMMIT.limit("real_share") * case.focus.seconds
    load = _load_of(case, pids - _bound(contention) - _holders(case))
    return builder.found(severity, key, culprit=culprit, load=load, weight=weight, remedies=remedies, values=values)


def _bound(contention: Contention) -> set[int]:
    """Processes that may not use all cores. They compete for their own cores, which this cause doesn't explain."""
    return {each.pid for each in contention.waiters if each.allowed not in (None, contention.cores)}


def _holders(case: Case) -> set[int]:
    """Processes that have most of one core: they don't wait, and their effect on others there is another finding."""
    samples = case.samples
    now = samples.within(case.focus)
    keys, members = np.unique(samples.cpu[now] << 32 | samples.pid[now], return_inverse=True)
    spent = np.bincount(members, samples.weight[now], len(keys)) / 1e6
    return set((keys[spent >= OVERCOMMIT.limit("held") * case.focus.seconds] & 0xFFFFFFFF).tolist())


def _load_of(case: Case, pids: set[int], cores: frozenset[int] | None = None) -> Load:
    """The CPU time of these processes, on some cores."""
    return case.load_of(np.isin(case.samples.pid, list(pids)), cpus=cores)


def _add_queue(builder: EvidenceBuilder, case: Case, waiting: float, cores: int, *, counted: bool) -> bool:
    """Add the number of threads that waited; return whether it is no more than usual."""
    before = _queue_before(case, cores)
    is_usual = before is not None and waiting < OVERCOMMIT.limit("rise") * before
    quote = quote_column(case.now("node"), "running", "mean")
    if counted:
        quote = quote_column(case.now("cpu"), "wait_ns", "sum", "ns")
    key, values = "queue-as-before" if is_usual else "queue", {"waiting": waiting, "cores": cores, "before": before}
    builder.add(Role.MECHANISM, key, quote, strength="strong", values=values)
    if is_usual:
        builder.doubt("not-new", "not_new_factor")
    if not counted:
        builder.doubt("only-counted")
    return is_usual


def _queue_before(case: Case, cores: int) -> float | None:
    """Mean number of threads that waited in the baseline."""
    queues = waits_of_cores(case.before("cpu"))
    if queues:
        return sum(queues.values())
    by_count = _queue_by_count(case.before("node"), cores)
    return None if by_count is None else by_count * cores


def _harmful_queue(contention: Contention, case: Case, queue: float, *, counted: bool) -> float:
    """Mean number of threads that waited per core neither by choice nor because they may not use other cores, where
    they would wait less."""
    cores, nice = len(contention.cores), contention.share(("nice",))
    busy = max(1.0 - contention.share(_IDLE), 1e-9)
    mostly_nice = nice / busy >= OVERCOMMIT.limit("mostly")
    squeezed = {each.tid for stack in _squeezes(contention, case).values() for each in stack.threads}
    apart: list[Waiter] = []
    followed: list[Waiter] = []
    for each in contention.waiters:
        elsewhere = each.tid in squeezed or _is_squeezed(contention, each)
        (apart if each.background or elsewhere else followed).append(each)
    if counted and contention.waiters and not mostly_nice:
        return max(0.0, queue - sum(each.wait_s for each in apart) / contention.seconds / cores)
    ran, waited = sum(each.run_s for each in followed), sum(each.wait_s for each in followed)
    harmful = waited / contention.seconds / cores
    # Threads that were not followed are very short-lived. Assume that they wait as long for their time as the others
    # do, and that they are the remaining runnable threads, as far as the counts agree: at a tick any program may just
    # have started.
    if ran >= OVERCOMMIT.limit("least_known") * contention.seconds:
        others = min(busy - sum(each.run_s for each in apart) / contention.seconds / cores, busy - nice)
        harmful = max(harmful, waited / ran * others)
    rest = queue - sum(each.wait_s for each in apart) / contention.seconds / cores
    rest -= 0.0 if counted else _error_of_count(case.now("node"), cores)
    return max(harmful, rest * (1.0 - nice / busy))


def _error_of_count(node: Rows, cores: int) -> float:
    """By how much the mean number of waiting threads per core may be lower than counted (98% confidence)."""
    counts = node.numbers("running")
    counts = counts[~np.isnan(counts)]
    return float(2 * counts.std() / np.sqrt(max(len(counts), 1)) / cores)


def _is_squeezed(contention: Contention, waiter: Waiter) -> bool:
    """Whether a thread may not use cores that have room."""
    outside = contention.cores - (waiter.allowed or contention.cores)
    return contention.room(outside) >= OVERCOMMIT.limit("room")


def _starved_softirq(case: Case, contention: Contention, queue: float) -> bool:
    """Whether the ksoftirqd of a core stood still while threads waited for that core as well, and none of them had it
    to itself. One that takes turns is like any other thread that waits."""
    least = OVERCOMMIT.limit("shared")
    return any(
        each.kind == "ksoftirqd"
        and each.severity is Severity.CRITICAL
        and each.cpu is not None
        and contention.queues.get(each.cpu, queue) >= least
        and not _is_held_by_one(case, contention, each.cpu, each.at, round(float(each.evidence[0].value)))
        for each in find_symptoms(case)
    )


def _is_held_by_one(case: Case, contention: Contention, cpu: int, at: int, waited_ns: int) -> bool:
    """Whether one process had clearly more of a core than its threads' turns while ksoftirqd waited; not without
    samples."""
    samples = case.samples
    here = samples.within(Window(at - waited_ns, at + NANOS)) & (samples.cpu == cpu)
    if not here.any():
        return False
    pids, members = np.unique(samples.pid[here], return_inverse=True)
    parts = np.bincount(members, samples.weight[here]) / samples.weight[here].sum()
    busiest = int(np.argmax(parts))
    threads = sum(each.pid == int(pids[busiest]) for each in contention.waiters)
    turns = min(1.0, case.turn * max(1.0, threads / len(contention.cores)))
    return bool(parts[busiest] >= OVERCOMMIT.limit("held") * turns)


def _explained_part(case: Case) -> float:
    """The fraction of the focus's kernel CPU time that other causes account for."""
    samples = case.samples
    now = samples.within(case.focus)
    known = now & samples.in_kernel
    if len(case.explained) == len(samples):
        known &= case.explained
    else:
        return 0.0
    return samples.time(known) / max(samples.time(now), 1.0)


def _form(case: Case, demands: list[Demand]) -> tuple[str, Culprit]:
    """The kind of overcommit, and its culprit."""
    if not demands:
        return "many", Culprit()
    top, total = demands[0], sum(each.total for each in demands)
    largest = top.largest
    comm = top.name.name if top.name.kind is EntityKind.PROCESS else None
    known = case.processes.get(largest)
    owner = top.owner
    culprit = case.culprit_of(largest, comm or (known.comm if known else None), None)
    culprit = replace(culprit, container=owner.container or culprit.container, pod=owner.pod or culprit.pod)
    jobs = len(top.pids) >= OVERCOMMIT.limit("jobs")
    if jobs and turnover(case, top.pids) >= OVERCOMMIT.limit("turnover"):
        return "short-lived", culprit if owner else Culprit(comm=comm)
    of_one = bool(owner) or top.pids[largest] >= OVERCOMMIT.limit("noisy_part") * sum(top.pids.values())
    if top.total >= OVERCOMMIT.limit("noisy_part") * total and of_one:
        return "noisy", culprit
    return "many", Culprit(comm=comm) if top.total >= OVERCOMMIT.limit("noisy_part") * total else Culprit()


def _add_demand(builder: EvidenceBuilder, case: Case, contention: Contention, demand: Demand) -> None:
    """Add what an owner wants, and what it may use."""
    use = contention.use(demand.cgroup)
    focus, samples = case.focus, case.samples
    largest = demand.largest
    micros = samples.time(samples.within(focus) & (samples.pid == largest))
    match = (("pid", str(largest)),)
    quotes = [Evidence("samples", "weight_us", "sum", micros, focus.since, focus.until, match=match, unit="us")]
    quotes = quotes if micros else []
    quotes += [each.evidence for each in contention.waiters if each.pid == largest][:1]
    if use.shares is not None and demand.cgroup not in (None, "/"):
        quotes += contention.quote_use(demand.cgroup or "", "shares", "quota")
    values = {
        "who": demand.name,
        "count": len(demand.pids) if len(demand.pids) > 1 else None,
        "wanted": demand.total,
        "run": demand.run,
        "before": demand.before,
        "where": demand.cgroup if not demand.owner and demand.cgroup != "/" else None,
        "shares": use.shares if demand.cgroup not in (None, "/") else None,
        # kubelet derives shares from requests (pkg/kubelet/cm/helpers_linux.go, MilliCPUToShares).
        "request": use.shares / 1024 if use.shares is not None and demand.owner.pod is not None else None,
        "quota": use.quota,
        "background": demand.background,
    }
    builder.add(Role.CULPRIT, "demand", *quotes, values=values)


def _add_waiter(builder: EvidenceBuilder, case: Case, contention: Contention, culprit: Demand | None) -> None:
    """Add the thread that waited longest, preferably not one of the culprit's."""
    least = OVERCOMMIT.limit("least_wait") * case.focus.seconds
    waiters = [each for each in contention.waiters if not each.background and each.wait_s >= least]
    others = [each for each in waiters if culprit is None or each.pid not in culprit.pids]
    for waiter in (others or waiters)[:1]:
        values = {"who": waiter.entity, "waited": waiter.wait_s, "ran": waiter.run_s, "seconds": case.focus.seconds}
        builder.add(Role.SYMPTOM, "waiter", waiter.evidence, strength="weak", values=values)


def _add_change(builder: EvidenceBuilder, demands: list[Demand], lasted: float) -> None:
    """Add how long this has lasted, and which owner wants more than before."""
    rises = [(each.run - each.before, each) for each in demands if each.before is not None]
    rise, changed = max(rises, key=lambda each: each[0], default=(0.0, None))
    if changed is not None and rise >= OVERCOMMIT.limit("least_rise"):
        values = {"who": changed.name, "cores": changed.run, "before": changed.before, "seconds": lasted}
        builder.add(Role.ROOT_CAUSE, "changed", strength="weak", values=values)
    else:
        builder.add(Role.ROOT_CAUSE, "lasted", seconds=lasted, compared=bool(rises))


def _lasted(case: Case, least: float) -> float:
    """For how many seconds, up to the end of the focus, threads had been waiting for each core."""
    window = Window(case.focus.since - round(_EARLIER_S * NANOS), case.focus.until)
    cpu, node = case.read("cpu", window), case.read("node", window)
    waits = cpu.numbers("wait_ns")
    known = ~np.isnan(waits)
    if known.any():
        ago, queues = (window.until - cpu.wall[known]) // NANOS, waits[known] / NANOS
    else:
        runnable = node.numbers("running")
        known = ~np.isnan(runnable)
        ago, queues = (window.until - node.wall[known]) // NANOS, (runnable[known] - 1) / case.cores - 1
    if not len(ago):
        return case.focus.seconds
    means = np.bincount(ago, queues) / np.maximum(np.bincount(ago), 1)
    calm = np.flatnonzero(means < least / 2)
    # A single calm second doesn't end it, nor do calm seconds after its worst time.
    ends = calm[:-1][np.diff(calm) == 1]
    ends = ends[ends >= case.focus.seconds / 2]
    return float(max(ends[0] if len(ends) else len(means), 1))


# Threads that are bound to a core


def _stacked_threads(contention: Contention, case: Case) -> Stack | None:
    """The largest stack of threads whose affinity leaves them fewer cores than their cpuset has."""
    by_cores: dict[frozenset[int], list[Waiter]] = {}
    for each in contention.waiters:
        cpuset = contention.use(each.cpuset).cores or contention.cores
        if each.allowed is not None and each.allowed < (cpuset & contention.cores):
            by_cores.setdefault(each.allowed, []).append(each)
    found = [_stack(contention, case, OVERCOMMIT, cores, threads) for cores, threads in by_cores.items()]
    stacks = [each for each in found if each is not None and _is_even(each)]
    return max(stacks, key=lambda each: each.queue, default=None)


def _is_even(stack: Stack) -> bool:
    """Whether several threads want more than they get, and none of them has most of the cores to itself."""
    hungry = [each for each in stack.threads if each.delayed >= OVERCOMMIT.limit("hungry")]
    ran = [each.run_s for each in stack.threads]
    return len(hungry) >= OVERCOMMIT.limit("stacked") and max(ran) < OVERCOMMIT.limit("mostly") * sum(ran)


def _stack(
    contention: Contention, case: Case, cause: Cause, cores: frozenset[int], threads: list[Waiter]
) -> Stack | None:
    """A stack of threads on these cores, if the cores are full, the threads wait and other cores have room."""
    wanting = [each for each in threads if not each.background]
    wanting = [each for each in wanting if each.wait_s + each.run_s >= cause.limit("least_demand") * case.focus.seconds]
    queue = sum(each.wait_s for each in wanting) / max(case.focus.seconds, 1e-9) / max(1, len(cores))
    outside = contention.cores - cores
    room = contention.room(outside)
    if contention.idle(cores) > cause.limit("idle_left") or room < cause.limit("room"):
        return None
    return Stack(cores, wanting, queue, room) if wanting and queue >= cause.limit("waiting") else None


def _stacked(builder: EvidenceBuilder, case: Case, stack: Stack) -> Found:
    one = next(iter(stack.cores)) if len(stack.cores) == 1 else None
    _add_stack(builder, case, stack, one)
    pids = {each.pid for each in stack.threads}
    comms = {each.comm for each in stack.threads}
    comm = next(iter(comms)) if len(comms) == 1 else None
    first = stack.threads[0]
    culprit = Culprit(cpu=one, comm=comm)
    if len(pids) == 1:
        culprit = replace(case.culprit_of(first.pid, first.comm, one), cpu=one)
    severity = Severity.CRITICAL if _softirq_on(case, stack.cores) else Severity.WARNING
    cores = _listed(stack.cores)
    values = {"count": len(stack.threads), "cores": cores, "room": stack.room, "who": first.entity if comm else None}
    fitting = tuple(each for each in OVERCOMMIT.remedies if each.id in ("spread-threads", "set-cores-apart"))
    weight = stack.queue * case.focus.seconds
    return builder.found(
        severity,
        "summary-stacked",
        culprit=culprit,
        load=_load_of(case, pids, stack.cores),
        weight=weight,
        remedies=aim(fitting, str(first.pid)),
        values=values,
    )


def _add_stack(builder: EvidenceBuilder, case: Case, stack: Stack, one: int | None) -> None:
    """Add the threads, that their cores are full, and that other cores have room."""
    cores, cpu = _listed(stack.cores), case.now("cpu")
    inside = cpu.where(np.isin(cpu.cpu, list(stack.cores)))
    quotes = [
        quote_column(inside.on(core), column, how, unit, core)
        for core in sorted(stack.cores)[:2]
        for column, how, unit in (("idle", "mean", "permille"), ("wait_ns", "sum", "ns"))
    ]
    values = {"count": len(stack.threads), "cores": cores, "waiting": stack.queue * len(stack.cores)}
    builder.add(Role.MECHANISM, "stacked", *quotes, strength="strong", values=values)
    for waiter in stack.threads[: int(OVERCOMMIT.limit("most_named"))]:
        values = {"who": waiter.entity, "waited": waiter.wait_s, "ran": waiter.run_s, "seconds": case.focus.seconds}
        builder.add(Role.SYMPTOM, "waiter", waiter.evidence, strength="weak", values=values)
    if stack.gain:
        builder.add(Role.ROOT_CAUSE, "gain", strength="strong", gain=stack.gain)
        return
    builder.add(Role.ROOT_CAUSE, "room", *_quote_room(cpu, stack.cores), strength="strong", room=stack.room, cpu=one)


def _quote_room(cpu: Rows, cores: frozenset[int]) -> list[Evidence | None]:
    """Evidence of the idle time of the core outside with the most of it."""
    outside = cpu.where(~np.isin(cpu.cpu, list(cores)))
    means = {core: outside.on(core).mean("idle") or 0.0 for core in np.unique(outside.cpu).tolist()}
    best = max(means, key=lambda core: means[core])
    return [quote_column(outside.on(best), "idle", "mean", "permille", best)]


def _softirq_on(case: Case, cores: frozenset[int]) -> bool:
    """Whether the ksoftirqd of one of these cores stood still."""
    return any(
        each.kind == "ksoftirqd" and each.severity is Severity.CRITICAL and each.cpu in cores
        for each in find_symptoms(case)
    )


def _listed(cores: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(cores)))


# A cpuset that is too small


@examines(SQUEEZE)
def cpuset_squeeze(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    contention = Contention(case, background_nice=OVERCOMMIT.limit("background_nice"))
    if not contention.waiters:
        return builder.rule_out("none-followed")
    found = _squeezes(contention, case)
    if not found:
        return builder.rule_out("none")
    path = max(found, key=lambda each: found[each].queue * len(found[each].cores))
    return _squeezed(builder, case, contention, path, found[path])


def _squeezes(contention: Contention, case: Case) -> dict[str, Stack]:
    """The cpusets that are too small for their threads, by path."""
    by_path: dict[str, list[Waiter]] = {}
    for each in contention.waiters:
        cores = contention.use(each.cpuset).cores
        if each.cpuset is not None and cores is not None and cores < contention.cores and each.allowed in (None, cores):
            by_path.setdefault(each.cpuset, []).append(each)
    found = {}
    for path, threads in by_path.items():
        cores = contention.use(path).cores or frozenset()
        stack = _stack(contention, case, SQUEEZE, cores, threads) or _worse_off(contention, case, cores, threads)
        if stack is not None:
            found[path] = stack
    return found


def _worse_off(contention: Contention, case: Case, cores: frozenset[int], threads: list[Waiter]) -> Stack | None:
    """A stack of a cpuset's threads when no core has room: they wait, and the threads on the other cores hardly do."""
    wanting = [each for each in threads if not each.background]
    others = [each for each in contention.waiters if each not in threads and not each.background]
    if contention.idle(cores) > SQUEEZE.limit("idle_left") or not wanting or not others:
        return None
    waited, delayed = sum(each.wait_s for each in wanting), _delayed(wanting)
    queue, gain = waited / max(case.focus.seconds, 1e-9) / max(1, len(cores)), contention.gain(wanting)
    unfair = delayed >= SQUEEZE.limit("delayed") and _delayed(others) <= SQUEEZE.limit("delayed_elsewhere")
    fits = unfair and queue >= SQUEEZE.limit("waiting") and gain >= SQUEEZE.limit("room")
    return Stack(cores, wanting, queue, 0.0, gain) if fits else None


def _delayed(threads: list[Waiter]) -> float:
    """Of the time that these threads wanted a core, the fraction they had to wait."""
    waited = sum(each.wait_s for each in threads)
    return waited / max(waited + sum(each.run_s for each in threads), 1e-9)


def _squeezed(builder: EvidenceBuilder, case: Case, contention: Contention, path: str, stack: Stack) -> Found:
    cgroup, one = Entity(EntityKind.CGROUP, path, path), next(iter(stack.cores)) if len(stack.cores) == 1 else None
    cores = _listed(stack.cores)
    owner = owner_of(case, path)
    where = owner or None
    quotes = contention.quote_use(path, "cores")
    builder.add(Role.MECHANISM, "cpuset", *quotes, strength="strong", cgroup=cgroup, where=where, cores=cores)
    _add_stack(builder, case, stack, one)
    first = stack.threads[0]
    culprit = replace(case.culprit_of(first.pid, first.comm, one), cgroup=path)
    culprit = replace(culprit, container=owner.container or culprit.container, pod=owner.pod or culprit.pod)
    severity = Severity.CRITICAL if _softirq_on(case, stack.cores) else Severity.WARNING
    values = {"who": first.entity, "cgroup": cgroup, "where": where, "cores": cores, "room": stack.room}
    values |= {"waiting": stack.queue * len(stack.cores), "size": len(stack.cores)}
    version, root = controller_root(case, "cpuset")
    kinds: dict[str, str | None] = {
        "widen-container-cpuset": owner.target if owner.container is not None and owner.pod is None else None,
        # systemd sets cpusets on v2 only (systemd.resource-control, AllowedCPUs=).
        "widen-unit-cpuset": owner.unit if version == V2 else None,
        "fit-pod-cpuset": owner.target if owner.pod is not None else None,
        "widen-cpuset": path if not owner or (owner.unit is not None and version != V2) else None,
    }
    weight = stack.queue * len(stack.cores) * case.focus.seconds
    remedies, load = (
        _aimed(SQUEEZE, kinds, owner, root),
        _load_of(case, {each.pid for each in stack.threads}, stack.cores),
    )
    values |= {"gain": stack.gain}
    key = "summary-worse-off" if stack.gain else "summary"
    return builder.found(severity, key, culprit=culprit, load=load, weight=weight, remedies=remedies, values=values)


# Remedies


def _remedies(top: Demand | None, form: str) -> tuple[Remedy, ...]:
    """The remedies that fit the owner that wants most."""
    owner = top.owner if top is not None else CgroupOwner()
    process = str(top.largest) if top is not None and not owner and form == "noisy" else None
    kinds: dict[str, str | None] = {
        "fewer-jobs": "" if form == "short-lived" else None,
        "lower-container-shares": owner.target if owner.container is not None and owner.pod is None else None,
        "lower-unit-weight": owner.unit,
        "set-requests": owner.target if owner.pod is not None else None,
        "give-way": process,
        "give-way-in-session": process,
        "spread-threads": None,
        "set-cores-apart": None,
        "move-work": "",
    }
    return _aimed(OVERCOMMIT, kinds, owner)


def _aimed(cause: Cause, kinds: dict[str, str | None], owner: CgroupOwner, root: str = "") -> tuple[Remedy, ...]:
    """The remedies that have a target; `root` is where their cgroups are mounted."""
    chosen: list[Remedy] = []
    for each in cause.remedies:
        target = kinds.get(each.id, "")
        if target is not None:
            rooted = replace(each, template=each.template.replace("{root}", shlex.quote(root)))
            chosen += aim((for_engine(rooted, owner),), target) if target else [each]
    return tuple(chosen)

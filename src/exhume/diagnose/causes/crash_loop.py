"""The same program is started again and again, seconds after it ended."""

import re
import signal
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import isnan

import numpy as np

from exhume.collect.containers.owner import Workload
from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case, KnownProcess
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column
from exhume.diagnose.facts.lifetimes import DIED, OUT_OF_MEMORY, Restarts, Series, find_restarts, series_of_cgroups
from exhume.diagnose.facts.owners import NO_OWNER, CgroupOwner, fit_remedies, owner_of
from exhume.diagnose.facts.unit_starts import UnitStarter, find_starter
from exhume.model.clock import NANOS
from exhume.model.finding import Culprit, Entity, EntityKind, Evidence, Role, RuledOut, Scope, Severity, process_entity

CAUSE = catalogue()["crash-loop"]
_UNIT = re.compile(r"([^/]+\.service)(?:/|$)")
_COMMAND_WIDTH, _SHORT_WIDTH = 160, 60
# A supervisor may start a script that starts a subshell that starts the program.
_GENERATIONS = 4
# How a broken program ends: by a signal of the kernel for a fault or of abort(3), or with the shell's exit status for a
# command that was not found or not executable (POSIX, Shell Command Language, 2.8.2).
_FAULTS = (
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGSEGV,
    signal.SIGSYS,
)
_BROKEN = frozenset({126, 127, *(-each for each in _FAULTS)})


@dataclass(frozen=True)
class Loop:
    """What is known about a loop: from its cgroups, from its ends, or from both. `pids` are processes of it;
    `supervisor` is the name of the one process that started all of them, None if no such process is known."""

    cgroups: Series | None
    restarts: Restarts | None
    known: KnownProcess | None
    commands: tuple[str, ...]
    # The owner of what loops, if it is a container of a pod.
    owner: CgroupOwner = NO_OWNER
    pids: frozenset[int] = frozenset()
    supervisor: str | None = None
    # The unit that starts a container.
    starter: UnitStarter | None = None

    @property
    def failed(self) -> bool:
        return self.restarts is not None and self.restarts.failed

    @property
    def is_managed(self) -> bool:
        """Whether a unit or a container loops, rather than the child of another process."""
        restarts = self.restarts
        return self.cgroups is not None or (restarts is not None and (restarts.is_container or restarts.is_unit))

    @property
    def is_broken(self) -> bool:
        """Whether its end can't be the result of a working program: a fault ended it, or it could not be executed."""
        return self.exit_code is not None and self.exit_code in _BROKEN

    @property
    def is_one_thing(self) -> bool:
        """Whether the same thing is known to be started each time: a unit by its name, or one command."""
        unit = self.cgroups is not None and len({life.path for life in self.cgroups.lives}) == 1
        unit = unit or (self.restarts is not None and self.restarts.is_unit)
        # In a running pod, kubelet only creates the containers that it restarts.
        return unit or self.owner.pod is not None or (len(self.commands) > 1 and len(set(self.commands)) == 1)

    @property
    def interval_s(self) -> float | None:
        if self.cgroups is not None:
            return self.cgroups.interval_s
        return self.restarts.interval_s if self.restarts is not None else None

    @property
    def exit_code(self) -> int | None:
        """How it last ended: its exit code, or its signal as a negative number; None if that was not recorded."""
        if self.restarts is None:
            return None
        managed = self.restarts.is_container or self.restarts.is_unit
        code = self.restarts.rows.newest("value" if managed else "exit_code")
        return None if code is None else int(code)

    @property
    def command(self) -> str | None:
        """The command line of a program that belongs to neither unit nor container: its name may say little."""
        if self.is_managed or self.known is None or self.known.cmdline is None:
            return None
        return self.known.cmdline[:_SHORT_WIDTH] if self.known.cmdline != self.known.comm else None

    @property
    def entity(self) -> Entity:
        """The unit, container, program or cgroup that loops."""
        unit = _UNIT.search(self.cgroups.lives[-1].path) if self.cgroups is not None else None
        if unit is not None:
            return Entity(EntityKind.UNIT, unit[1], unit[1])
        if self.restarts is not None and self.restarts.is_container:
            # By its newest id, as the culprit has it: one entity, not two of the same name.
            return replace(self.restarts.entity, id=self.owner.container or self.restarts.name)
        if self.restarts is not None and self.owner.pod is None:
            return self.restarts.entity
        if self.owner.name_in_pod is not None:
            return Entity(EntityKind.CONTAINER, self.owner.name_in_pod, self.owner.name_in_pod)
        if self.owner.pod is not None:
            return Entity(EntityKind.POD, self.owner.pod, self.owner.pod_name or self.owner.pod)
        if self.known is not None and self.known.comm:
            return process_entity(self.known.comm)
        assert self.cgroups is not None
        return Entity(EntityKind.CGROUP, self.cgroups.pattern, self.cgroups.pattern)


@examines(CAUSE)
def crash_loop(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    seconds = CAUSE.limit("seconds")
    churn = case.recorded("cgroup_events", seconds)
    restarts = find_restarts(case.recorded("events", seconds), CAUSE.limit("least_ends"))
    # The recorder can't follow faster loops: what ends more often under one name is called by several scripts.
    fastest = CAUSE.limit("fastest_s")
    restarts = [each for each in restarts if not each.is_program or (each.interval_s or fastest) >= fastest]
    restarts += _slow_pods(case, {each.name for each in restarts})
    series = [each for each in series_of_cgroups(churn) if _is_steady(each)]
    loops = [loop for each in series if (loop := _of_cgroups(case, each, restarts)) is not None]
    apart = [each for each in restarts if all(loop.restarts is not each for loop in loops)]
    loops += [_of_restarts(case, each) for each in apart if each.is_container or each.is_unit]
    loops += [_of_restarts(case, each) for each in apart if each.is_program and not _is_part(case, each, loops)]
    if not loops:
        return builder.rule_out("none")
    loops = [replace(loop, starter=_starter_of(case, loop)) for loop in loops]
    # Loops that are known to fail or are managed come first, then the more severe, then those that cost most. OOM kills
    # have a cause of their own: if a loop of OOM kills led this finding, that cause would explain it away, together
    # with the other loops.
    killed = case.around("events", CAUSE.limit("pod_seconds")).matching("kind", OUT_OF_MEMORY)
    starved = set(killed.texts("container_name"))
    ranked = sorted(
        ((loop, _load(case, loop)) for loop in loops),
        key=lambda each: (
            _place(each[0], starved),
            -_severity(*each).rank,
            -each[1].cores,
            each[0].interval_s or seconds,
        ),
    )
    loop, load = ranked[0]
    _describe(builder, loop, load)
    culprit = _culprit(loop)
    severity, spent = _severity(loop, load), load.cores * case.focus.seconds
    # The work it should have done is not done, which weighs more than its CPU time, unless nothing is known to be
    # wrong.
    weight = spent if severity is Severity.INFO else max(1.0, spent)
    remedies = fit_remedies(CAUSE.remedies, *_aim_at(case, loop, culprit))
    # Next to a loop that is certain, the helpers of a script are not worth naming.
    others = [other for other, _ in ranked[1:] if other.is_managed][: int(CAUSE.limit("most_others"))]
    for other in others:
        builder.add(Role.CULPRIT, "also", *_quotes(other)[:1], values=_values(other))
        # A unit that starts a container of these loops may be the first of them itself.
        own = fit_remedies(CAUSE.remedies, *_aim_at(case, other, _culprit(other)))[:1]
        remedies += tuple(each for each in own if each not in remedies)
    values = {**_values(loop), "others": len(others) or None}
    # kubelet restarts a container at growing intervals, so only its own users notice.
    scope = Scope.WORKLOAD if loop.owner.pod is not None else Scope.NODE
    return builder.found(
        severity, "summary", culprit=culprit, load=load, weight=weight, remedies=remedies, scope=scope, values=values
    )


def _place(loop: Loop, starved: Collection[str]) -> float:
    of_memory = loop.restarts is not None and loop.restarts.is_container and loop.restarts.name in starved
    # A unit comes before the container that it starts.
    return -loop.failed - loop.is_managed + 0.5 * of_memory + 0.25 * (loop.starter is not None)


def _starter_of(case: Case, loop: Loop) -> UnitStarter | None:
    """The unit that starts the container that loops."""
    restarts = loop.restarts
    is_container = restarts is not None and restarts.is_container and loop.owner.pod is None
    return find_starter(case, restarts.name, ()) if restarts is not None and is_container else None


def _values(loop: Loop) -> dict[str, object]:
    return {
        "what": loop.entity,
        "workload": loop.owner.workload_label,
        "interval": loop.interval_s,
        "failed": loop.failed,
        "code": loop.exit_code,
        "command": loop.command,
    }


def _slow_pods(case: Case, known: set[str]) -> list[Restarts]:
    """Containers of pods that kubelet still restarts, at intervals that grow up to five minutes
    (pkg/kubelet/kubelet.go, MaxContainerBackOff). A focus of seconds seldom contains three ends of each, so the ends of
    the whole requested window count. Each pause is twice as long as the one before, so the longest one decides how long
    a container may be silent."""
    reach = CAUSE.limit("pod_seconds")
    events, end = case.around("events", reach), case.end_within(reach)
    events = events.where(np.array([pod is not None for pod in events.texts("pod").tolist()], np.bool_))
    found = []
    for each in find_restarts(events, CAUSE.limit("least_ends")):
        silent_s = (end - int(each.rows.wall.max())) / NANOS
        if each.name not in known and each.failed and silent_s <= CAUSE.limit("silent_part") * each.longest_pause_s:
            found.append(each)
    return found


def _is_part(case: Case, program: Restarts, loops: list[Loop]) -> bool:
    """Whether a program is what a looping container or unit runs."""
    known = _processes(case, program)
    managed = [loop.restarts for loop in loops if loop.restarts is not None and not loop.restarts.is_program]
    return any(_is_of(process, restarts) for process in known for restarts in managed)


def _processes(case: Case, restarts: Restarts) -> list[KnownProcess]:
    """Those that the events about it name, as far as they are known."""
    pids = restarts.rows.numbers("pid")
    return [case.processes[int(pid)] for pid in pids[~np.isnan(pids)].tolist() if int(pid) in case.processes]


def _is_steady(series: Series) -> bool:
    """Whether cgroups of a place follow each other like restarts of one thing rather than like jobs."""
    return (
        len(series.lives) >= CAUSE.limit("least")
        and series.life_s <= CAUSE.limit("life_s")
        and series.interval_s >= CAUSE.limit("fastest_s")
        and series.longest_pause_s <= CAUSE.limit("pause_s")
        and series.at_once <= CAUSE.limit("at_once")
        and series.irregularity <= CAUSE.limit("irregular")
    )


def _of_cgroups(case: Case, series: Series, restarts: list[Restarts]) -> Loop | None:
    """What is known about a series of cgroups; None if a different program ran in each of them, as in jobs."""
    paths = tuple(life.path for life in series.lives)
    inside = [known for known in case.processes.values() if known.cgroup is not None and known.cgroup.startswith(paths)]
    commands: dict[str, str] = {}
    for known in inside:
        # The first process of a cgroup stands for it.
        commands.setdefault(known.cgroup or "", known.cmdline or known.comm or "")
    if len(commands) > 1 and len(set(commands.values())) > len(commands) / 2:
        return None
    names = {known.comm for known in inside}
    # The unit of these cgroups or a unit above them; otherwise a program that ran in them, or their container.
    units = [each for each in restarts if each.is_unit and any(each.name in path.split("/") for path in paths)]
    others = [
        each
        for each in restarts
        if (each.name in names and _may_be_in(case, each, paths))
        or any(number in path for number in each.containers for path in paths)
    ]
    # A container's own ends say more than those of a program in it.
    others.sort(key=lambda each: not each.is_container)
    main = next((known for known in inside if known.cmdline), inside[0] if inside else None)
    found = next(iter((*units, *others)), None)
    owner = _pod_of(case, found) or owner_of(case, paths[-1])
    owner = owner if owner.pod is not None and not units else CgroupOwner()
    return Loop(series, found, main, tuple(commands.values()), owner)


def _may_be_in(case: Case, restarts: Restarts, paths: tuple[str, ...]) -> bool:
    """Whether what ended may have run in these cgroups: programs elsewhere may have the same name."""
    cgroups = [known.cgroup for known in _processes(case, restarts) if known.cgroup is not None]
    return not cgroups or any(cgroup.startswith(paths) for cgroup in cgroups)


def _of_restarts(case: Case, restarts: Restarts) -> Loop:
    own = [known for known in case.processes.values() if _is_of(known, restarts)]
    # Other processes may have the same name: prefer those that are known to have failed.
    failed = {int(pid) for pid in restarts.rows.numbers("pid").tolist() if not isnan(pid)}
    own = [known for known in own if known.pid in failed] or own
    known = next((each for each in reversed(own) if each.cmdline), own[-1] if own else None)
    commands = tuple(each.cmdline for each in own if each.cmdline)
    supervisor, pids = _family(case, restarts.name, failed) if restarts.is_program else (None, frozenset())
    return Loop(None, restarts, known, commands, _pod_of(case, restarts), pids, supervisor)


def _family(case: Case, name: str, failed: set[int]) -> tuple[str | None, frozenset[int]]:
    """The name of the nearest process above all of those that failed, and the processes with their name below it. They
    have one parent, or a wrapper each; if several parents have several failed children each, they are several scripts
    that a third process started. Init adopts orphans and starts no loop."""
    rows = case.recorded("processes", CAUSE.limit("seconds"))
    comms = dict(rows.listed("pid", "comm"))
    parents = {pid: ppid for pid, ppid in rows.listed("pid", "ppid") if ppid is not None}
    lines = [_ancestors(pid, parents) for pid in sorted(failed) if pid in parents]
    nearest = len({line[0] for line in lines if line})
    several = len(lines) > 1 and nearest in (1, len(lines))
    shared = [pid for pid in lines[0] if all(pid in line for line in lines)] if several else []
    supervisor = shared[0] if shared else None
    named = {pid for pid, comm in rows.listed("pid", "comm") if comm == name}
    below = {pid for pid in named if supervisor is not None and supervisor in _ancestors(pid, parents)}
    return None if supervisor is None else comms.get(supervisor), frozenset(failed | below)


def _ancestors(pid: int, parents: Mapping[int, int]) -> list[int]:
    """The ancestors of a process, the nearest first, without init."""
    found: list[int] = []
    while len(found) < _GENERATIONS and (pid := parents.get(pid, 0)) > 1 and pid not in found:
        found.append(pid)
    return found


def _pod_of(case: Case, restarts: Restarts | None) -> CgroupOwner:
    """The owner of the newest container that ended, with its pod and the pod's controller; empty if it is in no pod."""
    if restarts is None or not restarts.is_container:
        return CgroupOwner()
    columns = ("container", "pod", "pod_name", "owner", "image")
    newest = restarts.rows.listed(*columns)[int(restarts.rows.wall.argmax())]
    container, pod, name, owner, image = newest
    if pod is None or name is None:
        return CgroupOwner()
    workload = Workload.parse(name, case.pod_owners.get(pod, owner))
    return CgroupOwner(container, pod=pod, image=image, pod_name=name, name_in_pod=restarts.name, workload=workload)


def _is_of(known: KnownProcess, restarts: Restarts) -> bool:
    """Whether a process belongs to what restarted."""
    if restarts.is_container:
        # Container ids may be recorded short or in full.
        own = known.container
        return own is not None and any(each.startswith(own) or own.startswith(each) for each in restarts.containers)
    if restarts.is_unit:
        return restarts.name in (known.cgroup or "").split("/")
    return known.comm == restarts.name


def _describe(builder: EvidenceBuilder, loop: Loop, load: Load) -> None:
    series, restarts, known = loop.cgroups, loop.restarts, loop.known
    if series is not None:
        quotes = _births(series)
        values: dict[str, object] = {"pattern": series.pattern, "times": len(series.lives)}
        values |= {"maker": process_entity(series.maker) if series.maker else None}
        values |= {"interval": series.interval_s, "life": series.life_s}
        builder.add(Role.MECHANISM, "cgroups", *quotes, strength="cgroup_strength", values=values)
        if loop.is_one_thing:
            builder.support("same_command_strength")
        elif restarts is None:
            builder.doubt("unknown-program", "unknown_program_factor")
    if restarts is not None:
        # A script's helpers may fail as a matter of course.
        sure = restarts.failed and (loop.is_managed or loop.is_one_thing or load.cores >= CAUSE.limit("burns_share"))
        strength = "failed_strength" if sure else "restart_strength"
        values = {"line": restarts.line, "times": restarts.times, "runs": restarts.runs, "ok": restarts.succeeded}
        builder.add(Role.ROOT_CAUSE, "ends", restarts.evidence, strength=strength, values=values)
        if len(restarts.rows) > 1:
            builder.support("regular_strength")
        if not restarts.failed and series is None:
            builder.doubt("helper")
    if loop.owner.pod_name is not None:
        pod = Entity(EntityKind.POD, loop.owner.pod or "", loop.owner.pod_name)
        builder.add(Role.CULPRIT, "pod", _quote_pod(loop), pod=pod, workload=loop.owner.workload_label)
    if loop.starter is not None:
        starter = loop.starter
        values = {"unit": starter.entity, "times": starter.times, "code": starter.code, "command": starter.command}
        builder.add(Role.CULPRIT, "started", *starter.evidence, container=loop.entity.name, values=values)
    if known is not None and known.cmdline:
        rows = builder.case.now("processes").matching("cmdline", known.cmdline)
        quote = quote_column(rows, "pid", "count", match=(("cmdline", known.cmdline),))
        builder.add(Role.CULPRIT, "command", quote, command=known.cmdline[:_COMMAND_WIDTH])


def _quote_pod(loop: Loop) -> Evidence | None:
    """The event that names the pod; None if its processes do."""
    restarts = loop.restarts
    if restarts is None or not restarts.is_container:
        return None
    at, match = int(restarts.rows.wall.max()), (("kind", DIED), ("container_name", restarts.name))
    return Evidence("events", "pod_name", "last", loop.owner.pod_name or "", at, at + 1, match=match)


def _births(series: Series) -> list[Evidence]:
    """Evidence of the first and the last of its cgroups."""
    return [
        Evidence("cgroup_events", "path", how, life.path, life.born, life.born + 1, match=(("path", life.path),))
        for how, life in (("first", series.lives[0]), ("last", series.lives[-1]))
    ]


def _quotes(loop: Loop) -> list[Evidence]:
    ends = [loop.restarts.evidence] if loop.restarts is not None and loop.restarts.evidence is not None else []
    return ends + (_births(loop.cgroups) if loop.cgroups is not None else [])


def _load(case: Case, loop: Loop) -> Load:
    """The sampled CPU time of what is started. Older processes of its name below a supervisor are not part of it; a
    very short-lived process has no row, and counts unless it is known to be older."""
    samples = case.samples
    names = {loop.known.comm if loop.known else None, loop.restarts.name if loop.restarts else None}
    mask = samples.of_comms({name for name in names if name})
    if not loop.is_managed and loop.pids:
        others = [pid for pid, known in case.processes.items() if known.comm in names and pid not in loop.pids]
        mask &= ~np.isin(samples.pid, others)
    return case.load_of(mask)


def _severity(loop: Loop, load: Load) -> Severity:
    """The severity of a loop, which starves no other work by itself: a warning if it is certain, and fast or costly.

    A command that fails each time may be a script's question ("is it up yet?"), which is not a failure of anything: it
    must cost something, or be a service, that is, something a service manager restarts at a regular pace. A program
    that a fault ends each time answers no question, whatever starts it."""
    interval = loop.interval_s
    if interval is not None and interval > CAUSE.limit("slow_s"):
        return Severity.INFO
    # If it is not known to fail, it may be a timer's job, unless it restarts faster than any timer would.
    hurried = interval is not None and interval <= CAUSE.limit("hurried_s") and loop.is_managed
    hurried = hurried or loop.owner.pod is not None
    known = loop.is_managed and (loop.failed or (loop.is_one_thing and hurried))
    costs = loop.failed and load.cores >= CAUSE.limit("burns_share")
    # The same command that fails each time, for as long as it was recorded, never completes.
    restarts = loop.restarts
    lasts = loop.failed and loop.is_one_thing and loop.supervisor is not None
    lasts = lasts and restarts is not None and restarts.irregularity <= CAUSE.limit("regular")
    serves = loop.is_broken or loop.supervisor in CAUSE.groups["service_managers"]
    return Severity.WARNING if known or costs or (lasts and serves) else Severity.INFO


def _culprit(loop: Loop) -> Culprit:
    known, restarts = loop.known, loop.restarts
    cgroup = loop.cgroups.lives[-1].path if loop.cgroups is not None else None
    container = restarts.name if restarts is not None and restarts.is_container else None
    program = restarts.name if restarts is not None and not (restarts.is_container or restarts.is_unit) else None
    pod = loop.owner.pod
    if pod is not None:
        # Name it by its id, from which the engine gets the name.
        container = loop.owner.container
    if known is None:
        return Culprit(comm=program, cgroup=cgroup, container=container, pod=pod)
    comm = program or known.comm
    return Culprit(
        None, known.pid, comm, known.cmdline, cgroup or known.cgroup, container or known.container, pod or known.pod
    )


def _aim_at(case: Case, loop: Loop, culprit: Culprit) -> tuple[CgroupOwner, str]:
    """The owner that starts it (a unit, its own or that of its container; a container according to Docker's events,
    otherwise the owner of its cgroup), and what to stop: the unit, the container, otherwise the program by its name."""
    if loop.owner.pod_name is not None:
        return loop.owner, loop.owner.target
    if loop.starter is not None:
        return CgroupOwner(unit=loop.starter.unit), loop.starter.unit
    match, restarts = _UNIT.search(culprit.cgroup or ""), loop.restarts
    unit = match[1] if match is not None else None
    if unit is None and restarts is not None and restarts.is_unit and culprit.container is None:
        unit = restarts.name
    target = unit or culprit.container or loop.entity.name
    if unit is not None:
        return CgroupOwner(unit=unit), target
    if restarts is not None and restarts.is_container:
        return CgroupOwner(container=target, runtime="docker", name=target), target
    return owner_of(case, culprit.cgroup), target

"""The same program is started again and again, seconds after it ended."""

import re
from dataclasses import dataclass

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case, KnownProcess
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column
from exhume.diagnose.facts.lifetimes import Restarts, Series, find_restarts, series_of_cgroups
from exhume.diagnose.facts.owners import CgroupOwner, fit_remedies, owner_of
from exhume.model.finding import Culprit, Entity, EntityKind, Evidence, Role, RuledOut, Severity, process_entity

CAUSE = catalogue()["crash-loop"]
_UNIT = re.compile(r"([^/]+\.service)(?:/|$)")
_COMMAND_WIDTH = 160


@dataclass(frozen=True)
class Loop:
    """A loop as far as it is known: by its cgroups, by its ends, or by both."""

    cgroups: Series | None
    restarts: Restarts | None
    known: KnownProcess | None
    commands: tuple[str, ...]

    @property
    def failed(self) -> bool:
        return self.restarts is not None and self.restarts.failed

    @property
    def is_managed(self) -> bool:
        """Whether it is a unit or a container rather than the child of another process."""
        restarts = self.restarts
        return self.cgroups is not None or (restarts is not None and (restarts.is_container or restarts.is_unit))

    @property
    def is_one_thing(self) -> bool:
        """Whether the same thing is known to be started each time: a unit by its name, or one command."""
        unit = self.cgroups is not None and len({life.path for life in self.cgroups.lives}) == 1
        unit = unit or (self.restarts is not None and self.restarts.is_unit)
        return unit or (len(self.commands) > 1 and len(set(self.commands)) == 1)

    @property
    def interval_s(self) -> float | None:
        if self.cgroups is not None:
            return self.cgroups.interval_s
        return self.restarts.interval_s if self.restarts is not None else None

    @property
    def entity(self) -> Entity:
        """The unit, container, program or cgroup that loops."""
        unit = _UNIT.search(self.cgroups.lives[-1].path) if self.cgroups is not None else None
        if unit is not None:
            return Entity(EntityKind.UNIT, unit[1], unit[1])
        if self.restarts is not None:
            return self.restarts.entity
        if self.known is not None and self.known.comm:
            return process_entity(self.known.comm)
        assert self.cgroups is not None
        return Entity(EntityKind.CGROUP, self.cgroups.pattern, self.cgroups.pattern)


@examines(CAUSE)
def crash_loop(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    seconds = CAUSE.limit("seconds")
    churn = case.recorded("cgroup_events", seconds)
    restarts = find_restarts(case.recorded("events", seconds), CAUSE.limit("least_ends"))
    series = [each for each in series_of_cgroups(churn) if _is_steady(each)]
    loops = [loop for each in series if (loop := _of_cgroups(case, each, restarts)) is not None]
    loops += [_of_restarts(case, each) for each in restarts if all(loop.restarts is not each for loop in loops)]
    if not loops:
        return builder.rule_out("none")
    loads = [_load(case, loop) for loop in loops]
    # One that is known to fail or is managed, then the one that costs most.
    loop, load = max(
        zip(loops, loads, strict=True),
        key=lambda each: (each[0].failed + each[0].is_managed, each[1].cores, -(each[0].interval_s or seconds)),
    )
    _describe(builder, loop, load)
    culprit = _culprit(loop)
    weight, severity = max(1.0, load.cores * case.focus.seconds), _severity(loop, load)
    remedies = fit_remedies(CAUSE.remedies, *_aim_at(case, loop, culprit))
    values = {"what": loop.entity, "interval": loop.interval_s, "failed": loop.failed}
    return builder.found(
        severity, "summary", culprit=culprit, load=load, weight=weight, remedies=remedies, values=values
    )


def _is_steady(series: Series) -> bool:
    """Whether cgroups of a place follow each other like restarts of one thing, rather than like jobs."""
    return (
        len(series.lives) >= CAUSE.limit("least")
        and series.life_s <= CAUSE.limit("life_s")
        and series.interval_s >= CAUSE.limit("fastest_s")
        and series.longest_pause_s <= CAUSE.limit("pause_s")
        and series.at_once <= CAUSE.limit("at_once")
        and series.irregularity <= CAUSE.limit("irregular")
    )


def _of_cgroups(case: Case, series: Series, restarts: list[Restarts]) -> Loop | None:
    """What is known of a series of cgroups; None where another program ran in each of them: those are jobs."""
    paths = tuple(life.path for life in series.lives)
    inside = [known for known in case.processes.values() if known.cgroup is not None and known.cgroup.startswith(paths)]
    commands: dict[str, str] = {}
    for known in inside:
        # The first process of a cgroup stands for it.
        commands.setdefault(known.cgroup or "", known.cmdline or known.comm or "")
    if len(commands) > 1 and len(set(commands.values())) > len(commands) / 2:
        return None
    names = {known.comm for known in inside}
    # The unit of these cgroups, or a unit above them; else a program that ran in them, or their container.
    units = [each for each in restarts if each.is_unit and any(each.name in path.split("/") for path in paths)]
    others = [
        each
        for each in restarts
        if each.name in names or any(number in path for number in each.containers for path in paths)
    ]
    main = next((known for known in inside if known.cmdline), inside[0] if inside else None)
    return Loop(series, next(iter((*units, *others)), None), main, tuple(commands.values()))


def _of_restarts(case: Case, restarts: Restarts) -> Loop:
    own = [known for known in case.processes.values() if _is_of(known, restarts)]
    known = next((each for each in reversed(own) if each.cmdline), own[-1] if own else None)
    return Loop(None, restarts, known, tuple(each.cmdline for each in own if each.cmdline))


def _is_of(known: KnownProcess, restarts: Restarts) -> bool:
    """Whether a process is one of what restarted."""
    if restarts.is_container:
        # Ids may be recorded short or whole.
        own = known.container
        return own is not None and any(each.startswith(own) or own.startswith(each) for each in restarts.containers)
    if restarts.is_unit:
        return restarts.name in (known.cgroup or "").split("/")
    return known.comm == restarts.name


def _describe(builder: EvidenceBuilder, loop: Loop, load: Load) -> None:
    series, restarts, known = loop.cgroups, loop.restarts, loop.known
    if series is not None:
        quotes = [
            Evidence("cgroup_events", "path", how, life.path, life.born, life.born + 1, match=(("path", life.path),))
            for how, life in (("first", series.lives[0]), ("last", series.lives[-1]))
        ]
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
        sure = restarts.failed and (loop.is_managed or load.cores >= CAUSE.limit("burns_share"))
        strength = "failed_strength" if sure else "restart_strength"
        values = {"line": restarts.line, "times": restarts.times, "runs": restarts.runs, "ok": restarts.succeeded}
        builder.add(Role.ROOT_CAUSE, "ends", restarts.evidence, strength=strength, values=values)
        if len(restarts.rows) > 1:
            builder.support("regular_strength")
        if not restarts.failed and series is None:
            builder.doubt("helper")
    if known is not None and known.cmdline:
        rows = builder.case.now("processes").matching("cmdline", known.cmdline)
        quote = quote_column(rows, "pid", "count", match=(("cmdline", known.cmdline),))
        builder.add(Role.CULPRIT, "command", quote, command=known.cmdline[:_COMMAND_WIDTH])


def _load(case: Case, loop: Loop) -> Load:
    """The CPU time of what is started, as far as it was sampled."""
    names = {loop.known.comm if loop.known else None, loop.restarts.name if loop.restarts else None}
    return case.load_of(case.samples.of_comms({name for name in names if name}))


def _severity(loop: Loop, load: Load) -> Severity:
    """A loop starves no other work by itself: a warning where it is known to be one and is fast or costs something."""
    interval = loop.interval_s
    if interval is not None and interval > CAUSE.limit("slow_s"):
        return Severity.INFO
    # What is not known to fail may be a timer's job, unless it restarts faster than any timer would.
    hurried = interval is not None and interval <= CAUSE.limit("hurried_s") and loop.is_managed
    known = loop.is_managed and (loop.failed or (loop.is_one_thing and hurried))
    costs = loop.failed and load.cores >= CAUSE.limit("burns_share")
    return Severity.WARNING if known or costs else Severity.INFO


def _culprit(loop: Loop) -> Culprit:
    known, restarts = loop.known, loop.restarts
    cgroup = loop.cgroups.lives[-1].path if loop.cgroups is not None else None
    container = restarts.name if restarts is not None and restarts.is_container else None
    program = restarts.name if restarts is not None and not (restarts.is_container or restarts.is_unit) else None
    if known is None:
        return Culprit(comm=program, cgroup=cgroup, container=container)
    comm = program or known.comm
    return Culprit(
        None, known.pid, comm, known.cmdline, cgroup or known.cgroup, container or known.container, known.pod
    )


def _aim_at(case: Case, loop: Loop, culprit: Culprit) -> tuple[CgroupOwner, str]:
    """What starts it (a unit, a container by Docker's events, else the owner of its cgroup), and what to stop: the
    unit, the container, else the program by its name."""
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

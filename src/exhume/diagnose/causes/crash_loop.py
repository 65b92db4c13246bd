"""The same program is started again and again, seconds after it ended."""

import re
from dataclasses import dataclass

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case, KnownProcess
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.facts.lifetimes import Series, series_of_cgroups
from exhume.diagnose.facts.owners import CgroupOwner, fit_remedies, owner_of
from exhume.diagnose.facts.restarts import Restarts, find_restarts
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity

CAUSE = catalogue()["crash-loop"]
_UNIT = re.compile(r"([^/]+\.service)(?:/|$)")


@dataclass(frozen=True)
class Loop:
    """A loop as far as it is known: by its cgroups, by its ends, or by both."""

    cgroups: Series | None
    repeat: Restarts | None
    known: KnownProcess | None
    commands: tuple[str, ...]

    @property
    def failed(self) -> bool:
        return self.repeat is not None and self.repeat.failed

    @property
    def is_managed(self) -> bool:
        """Whether it is a unit or a container rather than somebody's child."""
        repeat = self.repeat
        return self.cgroups is not None or (repeat is not None and (repeat.is_container or repeat.is_unit))

    @property
    def is_one_thing(self) -> bool:
        """Whether it is known that the same thing is started each time: a unit by its name, or one command."""
        unit = self.cgroups is not None and len({life.path for life in self.cgroups.lives}) == 1
        unit = unit or (self.repeat is not None and self.repeat.is_unit)
        return unit or (len(self.commands) > 1 and len(set(self.commands)) == 1)

    @property
    def pace_s(self) -> float | None:
        if self.cgroups is not None:
            return self.cgroups.pace_s
        return self.repeat.pace_s if self.repeat is not None else None

    @property
    def name(self) -> str:
        unit = _UNIT.search(self.cgroups.lives[-1].path) if self.cgroups is not None else None
        if unit is not None:
            return unit[1]
        if self.repeat is not None:
            return self.repeat.name
        if self.known is not None and self.known.comm:
            return self.known.comm
        assert self.cgroups is not None
        return self.cgroups.pattern


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    seconds = CAUSE.limit("seconds")
    churn = case.recorded("cgroup_events", seconds)
    repeats = find_restarts(case.recorded("events", seconds), CAUSE.limit("least_ends"))
    series = [each for each in series_of_cgroups(churn) if _is_steady(each)] if len(churn) else []
    loops = [loop for each in series if (loop := _of_cgroups(case, each, repeats)) is not None]
    loops += [_of_repeat(case, repeat) for repeat in repeats if all(loop.repeat is not repeat for loop in loops)]
    if not loops:
        return builder.rule_out("nothing was started again and again at a steady pace")
    loads = [_load(case, loop) for loop in loops]
    loop, load = max(zip(loops, loads, strict=True), key=lambda each: _weight(*each))
    _tell(builder, loop, load)
    culprit = _culprit(loop)
    times = f" every {loop.pace_s:.1f} s" if loop.pace_s is not None else " again and again"
    return builder.found(
        _severity(loop, load),
        f"{loop.name} is started{times}{', and fails each time' if loop.failed else ''}",
        culprit=culprit,
        load=load,
        weight=max(1.0, load.cores * case.focus.seconds),
        remedies=fit_remedies(CAUSE.remedies, _whose(case, loop, culprit), _target(loop, culprit)),
    )


def _is_steady(series: Series) -> bool:
    """Whether cgroups of a place follow each other like a thing that is started again, rather than like jobs."""
    return (
        len(series.lives) >= CAUSE.limit("least")
        and series.life_s <= CAUSE.limit("life_s")
        and series.pace_s >= CAUSE.limit("fastest_s")
        and series.longest_pause_s <= CAUSE.limit("pause_s")
        and series.at_once <= CAUSE.limit("at_once")
        and series.irregularity <= CAUSE.limit("irregular")
    )


def _of_cgroups(case: Case, series: Series, repeats: list[Restarts]) -> Loop | None:
    """What is known of a series of cgroups; None where another program ran in each of them: those are jobs."""
    paths = tuple(life.path for life in series.lives)
    inside = [known for known in case.processes if known.cgroup is not None and known.cgroup.startswith(paths)]
    commands: dict[str, str] = {}
    for known in inside:
        # The first process that is seen in a cgroup stands for it.
        commands.setdefault(known.cgroup or "", known.cmdline or known.comm or "")
    if len(commands) > 1 and len(set(commands.values())) > len(commands) / 2:
        return None
    names = {known.comm for known in inside}
    repeat = next((each for each in repeats if _is_unit_of(each, paths)), None) or next(
        (each for each in repeats if each.name in names or _has_id(each, paths)), None
    )
    main = next((known for known in inside if known.cmdline), inside[0] if inside else None)
    return Loop(series, repeat, main, tuple(commands.values()))


def _is_unit_of(repeat: Restarts, paths: tuple[str, ...]) -> bool:
    """Whether these cgroups are those of a unit that ended again and again, or below it."""
    return repeat.is_unit and any(repeat.name in path.split("/") for path in paths)


def _has_id(repeat: Restarts, paths: tuple[str, ...]) -> bool:
    """Whether one of these cgroups is that of a container that ended again and again."""
    return any(number in path for number in repeat.containers for path in paths)


def _of_repeat(case: Case, repeat: Restarts) -> Loop:
    if repeat.is_container:
        own = [known for known in case.processes if known.container is not None and _is_of(known.container, repeat)]
    elif repeat.is_unit:
        own = [known for known in case.processes if repeat.name in (known.cgroup or "").split("/")]
    else:
        own = [known for known in case.processes if known.comm == repeat.name]
    known = next((each for each in reversed(own) if each.cmdline), own[-1] if own else None)
    return Loop(None, repeat, known, tuple(each.cmdline for each in own if each.cmdline))


def _is_of(container: str, repeat: Restarts) -> bool:
    """Ids may be told short or whole."""
    return any(number.startswith(container) or container.startswith(number) for number in repeat.containers)


def _weight(loop: Loop, load: Load) -> tuple[float, ...]:
    """Which of several loops to tell of: one that is known to fail or is managed, then what costs most."""
    return (float(loop.failed) + float(loop.is_managed), load.cores, -(loop.pace_s or CAUSE.limit("seconds")))


def _tell(builder: EvidenceBuilder, loop: Loop, load: Load) -> None:
    series, repeat = loop.cgroups, loop.repeat
    if series is not None:
        _tell_cgroups(builder, series)
        if loop.is_one_thing:
            builder.support(CAUSE.limit("same_command_strength"))
        elif repeat is None:
            builder.doubt("what ran in those cgroups is not known: they may be jobs that follow each other", 0.7)
    if repeat is not None:
        # A script's little helpers may fail as a matter of course.
        sure = repeat.failed and (loop.is_managed or load.cores >= CAUSE.limit("burns_share"))
        strength = CAUSE.limit("failed_strength") if sure else CAUSE.limit("repeat_strength")
        builder.add(
            Role.ROOT_CAUSE, f"{repeat.told} ({repeat.times:.0f} times in all)", repeat.evidence, strength=strength
        )
        if len(repeat.rows) > 1:
            builder.support(CAUSE.limit("regular_strength"))
        if not repeat.failed and series is None:
            builder.doubt("it may be a script's helper: it lives for a moment only, or how it ends is not known")
    if loop.known is not None and loop.known.cmdline:
        match = (("cmdline", loop.known.cmdline),)
        rows = builder.case.now("processes").matching("cmdline", loop.known.cmdline)
        since, until = int(rows.wall.min()), int(rows.wall.max()) + 1
        told = Evidence("processes", "pid", "count", len(rows), since, until, match=match)
        builder.add(Role.CULPRIT, f"what is started is {loop.known.cmdline[:160]}", told)


def _tell_cgroups(builder: EvidenceBuilder, series: Series) -> None:
    first, last = series.lives[0], series.lives[-1]
    made = [
        Evidence("cgroup_events", "path", how, life.path, life.born, life.born + 1, match=(("path", life.path),))
        for how, life in (("first", first), ("last", last))
    ]
    maker = f" (made by {series.maker})" if series.maker else ""
    builder.add(
        Role.MECHANISM,
        f"{series.pattern}{maker} came and went {len(series.lives)} times, every {series.pace_s:.1f} s, "
        f"and lived for {series.life_s:.1f} s: one after the other",
        *made,
        strength=CAUSE.limit("cgroup_strength"),
        at=first.born,
    )


def _load(case: Case, loop: Loop) -> Load:
    """The CPU time of what is started, as far as it was sampled."""
    both = (loop.known.comm if loop.known else None, loop.repeat.name if loop.repeat else None)
    names = {name for name in both if name}
    return case.load_of(case.samples.of_comms(names)) if case.has_stacks else case.load(())


def _severity(loop: Loop, load: Load) -> Severity:
    """A loop starves nobody by itself: a warning where it is known to be one and turns fast or costs something."""
    if loop.pace_s is not None and loop.pace_s > CAUSE.limit("slow_s"):
        return Severity.INFO
    # What is not known to fail may be a timer's job, unless it comes again faster than anybody would want that.
    hurried = loop.pace_s is not None and loop.pace_s <= CAUSE.limit("hurried_s") and loop.is_managed
    known = loop.is_managed and (loop.failed or (loop.is_one_thing and hurried))
    costs = loop.failed and load.cores >= CAUSE.limit("burns_share")
    return Severity.WARNING if known or costs else Severity.INFO


def _culprit(loop: Loop) -> Culprit:
    known, repeat = loop.known, loop.repeat
    cgroup = loop.cgroups.lives[-1].path if loop.cgroups is not None else None
    container = repeat.name if repeat is not None and repeat.is_container else None
    program = repeat.name if repeat is not None and not (repeat.is_container or repeat.is_unit) else None
    if known is None:
        return Culprit(comm=program, cgroup=cgroup, container=container)
    comm = program or known.comm
    return Culprit(
        None, known.pid, comm, known.cmdline, cgroup or known.cgroup, container or known.container, known.pod
    )


def _target(loop: Loop, culprit: Culprit) -> str:
    """What to stop: the unit, the container, else the program by its name."""
    unit = _UNIT.search(culprit.cgroup or "")
    if unit is not None:
        return unit[1]
    return culprit.container or loop.name


def _whose(case: Case, loop: Loop, culprit: Culprit) -> CgroupOwner:
    """Who starts it: a unit, a container that Docker told of by its name, else as its cgroup tells."""
    target = _target(loop, culprit)
    if target.endswith(".service"):
        return CgroupOwner(unit=target)
    if loop.repeat is not None and loop.repeat.is_container:
        return CgroupOwner(container=target, runtime="docker", name=target)
    return owner_of(case, culprit.cgroup)

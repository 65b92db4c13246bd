"""The same program is started again and again, seconds after it ended."""

import re
from dataclasses import dataclass

from exhume.diagnose.case import Case, Known
from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.lives import Series, series_of_cgroups
from exhume.diagnose.load import Load
from exhume.diagnose.rows import Rows
from exhume.diagnose.sheet import Found, Sheet, aimed
from exhume.model.clock import NANOS
from exhume.model.events import RESTART
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity

CAUSE = catalogue()["crash-loop"]
_UNIT = re.compile(r"([^/]+\.service)(?:/|$)")


@dataclass(frozen=True)
class Repeat:
    """What the recorder saw started again: a name, how often, and whether each ended with a failure (None: the kernel
    didn't say). `pace_s` is None for one that was told of once."""

    comm: str
    times: float
    failed: bool
    pace_s: float | None
    rows: Rows

    @property
    def since(self) -> int:
        return int(self.rows.wall.min())

    @property
    def until(self) -> int:
        return int(self.rows.wall.max()) + 1


@dataclass(frozen=True)
class Loop:
    """A loop as far as it is known: by its cgroups, by its ends, or by both."""

    cgroups: Series | None
    repeat: Repeat | None
    known: Known | None
    commands: tuple[str, ...]

    @property
    def is_one_thing(self) -> bool:
        """Whether it is known that the same thing is started each time: a unit by its name, or one command."""
        unit = self.cgroups is not None and len({life.path for life in self.cgroups.lives}) == 1
        return unit or (len(self.commands) > 1 and len(set(self.commands)) == 1)

    @property
    def pace_s(self) -> float | None:
        if self.cgroups is not None:
            return self.cgroups.pace_s
        return self.repeat.pace_s if self.repeat is not None else None

    @property
    def name(self) -> str:
        if self.cgroups is not None:
            unit = _UNIT.search(self.cgroups.lives[-1].path)
            if unit is not None:
                return unit[1]
        if self.repeat is not None:
            return self.repeat.comm
        if self.known is not None and self.known.comm:
            return self.known.comm
        assert self.cgroups is not None
        return self.cgroups.pattern


def examine(case: Case) -> Found | RuledOut:
    sheet = Sheet(case, CAUSE)
    seconds = CAUSE.limit("seconds")
    churn = case.recorded("cgroup_events", seconds)
    repeats = _repeats(case.recorded("events", seconds))
    series = [each for each in series_of_cgroups(churn) if _is_steady(each)] if len(churn) else []
    loops = [loop for each in series if (loop := _of_cgroups(case, each, repeats)) is not None]
    loops = loops or [_of_repeat(case, repeat) for repeat in repeats]
    if not loops:
        return sheet.rule_out("nothing was started again and again at a steady pace")
    loop = max(loops, key=_weight)
    _tell(sheet, loop)
    load = _load(case, loop)
    severity = _severity(loop, load)
    culprit = _culprit(loop)
    times = f" every {loop.pace_s:.1f} s" if loop.pace_s is not None else " again and again"
    failing = ", and fails each time" if loop.repeat is not None and loop.repeat.failed else ""
    return sheet.found(
        severity,
        f"{loop.name} is started{times}{failing}",
        culprit=culprit,
        load=load,
        weight=max(1.0, load.cores * case.focus.seconds),
        remedies=aimed(CAUSE.remedies, _target(loop, culprit)),
    )


def _is_steady(series: Series) -> bool:
    """Whether cgroups of a place follow each other like a thing that is started again, rather than like jobs."""
    return (
        len(series.lives) >= CAUSE.limit("least")
        and series.life_s <= CAUSE.limit("life_s")
        and CAUSE.limit("fastest_s") <= series.pace_s
        and series.longest_pause_s <= CAUSE.limit("pause_s")
        and series.at_once <= CAUSE.limit("at_once")
        and series.irregularity <= CAUSE.limit("irregular")
    )


def _repeats(events: Rows) -> list[Repeat]:
    rows = events.matching("kind", RESTART) if len(events) else events
    found = []
    for comm in sorted({comm for comm in rows.texts("comm").tolist() if comm}) if len(rows) else []:
        own = rows.matching("comm", comm)
        times = own.total("value") or 0.0
        span = (int(own.wall.max()) - int(own.wall.min())) / NANOS
        # The first row tells of lives before it: they don't belong to the time between the rows.
        later = times - float(own.numbers("value")[own.wall.argmin()])
        pace = span / later if later > 0 and span > 0 else None
        failed = all(severity != "info" for severity in own.texts("severity").tolist())
        found.append(Repeat(comm, times, failed, pace, own))
    return found


def _of_cgroups(case: Case, series: Series, repeats: list[Repeat]) -> Loop | None:
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
    repeat = next((each for each in repeats if each.comm in names), None)
    main = next((known for known in inside if known.cmdline), inside[0] if inside else None)
    return Loop(series, repeat, main, tuple(commands.values()))


def _of_repeat(case: Case, repeat: Repeat) -> Loop:
    own = [known for known in case.processes if known.comm == repeat.comm]
    known = next((each for each in reversed(own) if each.cmdline), own[-1] if own else None)
    return Loop(None, repeat, known, tuple(each.cmdline for each in own if each.cmdline))


def _weight(loop: Loop) -> tuple[float, ...]:
    """Which of several loops to tell of: known failures first, then the one that turns fastest."""
    failed = loop.repeat is not None and loop.repeat.failed
    return (float(failed) + float(loop.cgroups is not None), -(loop.pace_s or CAUSE.limit("seconds")))


def _tell(sheet: Sheet, loop: Loop) -> None:
    series, repeat = loop.cgroups, loop.repeat
    if series is not None:
        _tell_cgroups(sheet, series)
        if loop.is_one_thing:
            sheet.support(CAUSE.limit("same_command_strength"))
        elif repeat is None:
            sheet.doubt("what ran in those cgroups is not known: they may be jobs that follow each other", 0.7)
    if repeat is not None:
        told = Evidence(
            "events",
            "value",
            "sum",
            repeat.times,
            repeat.since,
            repeat.until,
            match=(("kind", RESTART), ("comm", repeat.comm)),
        )
        text = str(repeat.rows.texts("text")[repeat.rows.wall.argmax()])
        strength = CAUSE.limit("failed_strength") if repeat.failed else CAUSE.limit("repeat_strength")
        sheet.add(Role.ROOT_CAUSE, f"{text} ({repeat.times:.0f} times in all)", told, strength=strength)
        if len(repeat.rows) > 1:
            sheet.support(CAUSE.limit("regular_strength"))
        if not repeat.failed:
            sheet.doubt("whether it fails is not known: the kernel didn't tell exit codes")
    if loop.known is not None and loop.known.cmdline:
        match = (("cmdline", loop.known.cmdline),)
        rows = sheet.case.now("processes").matching("cmdline", loop.known.cmdline)
        since, until = int(rows.wall.min()), int(rows.wall.max()) + 1
        told = Evidence("processes", "pid", "count", len(rows), since, until, match=match)
        sheet.add(Role.CULPRIT, f"what is started is {loop.known.cmdline[:160]}", told)


def _tell_cgroups(sheet: Sheet, series: Series) -> None:
    first, last = series.lives[0], series.lives[-1]
    made = [
        Evidence("cgroup_events", "path", "last", last.path, last.born, last.born + 1, match=(("path", last.path),)),
        Evidence(
            "cgroup_events",
            "path",
            "first",
            first.path,
            first.born,
            first.born + 1,
            match=(("path", first.path),),
        ),
    ]
    maker = f" (made by {series.maker})" if series.maker else ""
    sheet.add(
        Role.MECHANISM,
        f"{series.pattern}{maker} came and went {len(series.lives)} times, every {series.pace_s:.1f} s, "
        f"and lived for {series.life_s:.1f} s: one after the other",
        *made,
        strength=CAUSE.limit("cgroup_strength"),
        at=first.born,
    )


def _load(case: Case, loop: Loop) -> Load:
    """The CPU time of what is started, as far as it was sampled."""
    names = {
        each for each in (loop.known.comm if loop.known else None, loop.repeat.comm if loop.repeat else None) if each
    }
    return case.load_of(case.sampled.of_comms(names)) if case.has_stacks else case.load(())


def _severity(loop: Loop, load: Load) -> Severity:
    """A loop starves nobody by itself: a warning where it is known to be one and turns fast or costs something."""
    pace = loop.pace_s
    if pace is not None and pace > CAUSE.limit("slow_s"):
        return Severity.INFO
    failed = loop.repeat is not None and loop.repeat.failed
    costs = load.cores >= CAUSE.limit("burns_share")
    managed = loop.cgroups is not None and (loop.is_one_thing or failed)
    return Severity.WARNING if managed or (failed and costs) else Severity.INFO


def _culprit(loop: Loop) -> Culprit:
    known = loop.known
    cgroup = loop.cgroups.lives[-1].path if loop.cgroups is not None else None
    if known is None:
        return Culprit(comm=loop.repeat.comm if loop.repeat else None, cgroup=cgroup)
    comm = loop.repeat.comm if loop.repeat is not None else known.comm
    return Culprit(None, known.pid, comm, known.cmdline, cgroup or known.cgroup, known.container, known.pod)


def _target(loop: Loop, culprit: Culprit) -> str:
    """What to stop: the unit, the container, else the program by its name."""
    unit = _UNIT.search(culprit.cgroup or "")
    if unit is not None:
        return unit[1]
    return culprit.container or loop.name

"""Names that don't exist are looked up by the million: each is remembered, and whoever walks them pays."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.case import Case
from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence import of_column, of_load
from exhume.diagnose.felt import gravity
from exhume.diagnose.load import Load
from exhume.diagnose.rows import Floats, Rows
from exhume.diagnose.sheet import Found, Sheet, aimed
from exhume.model.clock import NANOS
from exhume.model.finding import Evidence, Role, RuledOut, Severity

CAUSE = catalogue()["negative-dentries"]
MAKING, WALKING = CAUSE.named("making"), CAUSE.named("walking")
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class State:
    """How many there are and how fast they come or go (a second, in the fastest stretch of the focus). `exact` is False
    where the kernel doesn't count them: then they are the dentries beyond the inodes."""

    level: float
    rise: float
    fall: float
    exact: bool
    rows: Rows

    @property
    def column(self) -> str:
        return "dentries_negative" if self.exact else "dentries"


def examine(case: Case) -> Found | RuledOut:
    sheet = Sheet(case, CAUSE)
    state = _state(case)
    if state is None:
        return sheet.rule_out("the number of dentries was not recorded")
    making, walking = case.load(MAKING), case.load(WALKING)
    grows = state.rise >= CAUSE.limit("rise_per_s")
    many = state.level >= CAUSE.limit("many")
    busy_making = grows and (making.together >= CAUSE.limit("core_share") or not case.has_stacks)
    busy_walking = walking.together >= CAUSE.limit("core_share") and (many or _shrinks(state))
    if not (busy_making or busy_walking or many):
        return sheet.rule_out(
            f"{state.level:,.0f} negative dentries, growing by {max(state.rise, 0):,.0f} a second at most: few"
        )
    load = case.load_of(making.mask | walking.mask) if case.has_stacks else making
    _tell_state(sheet, state, grows=grows, many=many)
    if busy_making and case.has_stacks:
        _tell_load(sheet, making, CAUSE.more_functions or {}, "making", "looks up names that don't exist, each a new")
    if busy_walking:
        _tell_load(sheet, walking, CAUSE.more_functions or {}, "walking", "has to go through them, one after another:")
    severity = _severity(case, state, load if busy_making or busy_walking else None, many=many)
    actor = making if busy_making else walking
    culprit = case.culprit(actor, case.sampled.nearest(actor.mask, CAUSE.names) if case.has_stacks else None)
    if busy_making and case.has_stacks:
        _tell_prober(sheet, making, state)
    who = culprit.comm or "somebody"
    size = state.level * CAUSE.limit("bytes") / _MIB
    if busy_making:
        summary = f"{who} looks up names that don't exist: {state.rise:,.0f} negative dentries more a second"
    elif busy_walking:
        summary = f"{who} walks {state.level:,.0f} negative dentries on core {walking.cpu}"
    else:
        summary = f"{state.level:,.0f} negative dentries are kept (about {size:,.0f} MiB)"
    return sheet.found(
        severity,
        summary,
        culprit=culprit if busy_making or busy_walking else None,
        load=load if busy_making or busy_walking else None,
        remedies=aimed(CAUSE.remedies, str(culprit.pid or "PID")),
    )


def _state(case: Case) -> State | None:
    """Counts of the focus and the seconds around it: a focus may be as short as what it is about."""
    rows = case.recorded("node", case.focus.seconds + 2)
    exact = len(rows) > 0 and rows.newest("dentries_negative") is not None
    if exact:
        counts = rows.numbers("dentries_negative")
    elif len(rows) and rows.newest("dentries") is not None and rows.newest("inodes") is not None:
        # One that has no inode is negative; the two are counted at the same moment.
        counts = rows.numbers("dentries") - rows.numbers("inodes")
    else:
        return None
    rise, fall = _fastest(rows.wall, counts)
    return State(float(np.nanmax(counts)), rise, fall, exact, rows)


def _fastest(wall: "np.ndarray[tuple[int], np.dtype[np.int64]]", counts: Floats) -> tuple[float, float]:
    """The steepest rise and fall over two seconds or so: one second may be a late tick."""
    known = np.flatnonzero(~np.isnan(counts))
    if len(known) < 3:
        return 0.0, 0.0
    order = known[np.argsort(wall[known])]
    values, times = counts[order], wall[order] / NANOS
    steps = (values[2:] - values[:-2]) / np.maximum(times[2:] - times[:-2], 0.5)
    return float(steps.max()), float(-steps.min())


def _shrinks(state: State) -> bool:
    return state.fall >= CAUSE.limit("rise_per_s") and state.exact


def _tell_state(sheet: Sheet, state: State, *, grows: bool, many: bool) -> None:
    how = "there are" if state.exact else "by dentries and inodes there are about"
    peak = of_column(state.rows, state.column, "max")
    least = of_column(state.rows, state.column, "min")
    evidence = [each for each in (least, peak) if each is not None]
    if not state.exact:
        evidence += [each for each in (of_column(state.rows, "inodes", "max"),) if each is not None]
        sheet.doubt("this kernel doesn't count negative dentries: they were reckoned from dentries and inodes")
    text = f"{how} {state.level:,.0f} negative dentries"
    text += f", {state.rise:,.0f} more a second at the fastest" if state.rise > 0 else ""
    strong = CAUSE.limit("state_strength")
    sheet.add(Role.ROOT_CAUSE, text, *evidence, strength=strong if grows or many else strong / 2)


def _tell_load(sheet: Sheet, load: Load, groups: dict[str, tuple[str, ...]], group: str, what: str) -> None:
    owner = load.owner
    who = owner.comm if owner is not None and owner.part >= 1 / 3 else "many processes"
    function = sheet.case.sampled.nearest(load.mask, CAUSE.named(group))
    sheet.add(
        Role.MECHANISM,
        f"{who} {what} {function} took {load.peak:.0%} of a second of core {load.cpu}",
        of_load(sheet.case, load, groups[group]),
        strength=CAUSE.limit("load_strength") * min(1.0, load.together / CAUSE.limit("whole_core")),
        at=load.at,
    )


def _tell_prober(sheet: Sheet, making: Load, state: State) -> None:
    owner = making.owner
    if owner is None or owner.part < 1 / 3:
        sheet.doubt("many processes look up names: none of them stands out")
        return
    functions = (CAUSE.more_functions or {})["making"]
    own = sheet.case.load_of(making.mask & sheet.case.sampled.of_comms([owner.comm]))
    known = sheet.case.process(owner.pid)
    command = f": {known.cmdline[:120]}" if known is not None and known.cmdline else ""
    told = Evidence(
        "samples",
        "weight_us",
        "share",
        round(own.peak, 3),
        own.at,
        own.at + NANOS,
        own.cpu,
        match=(("comm", owner.comm),),
        functions=functions,
    )
    sheet.add(
        Role.CULPRIT, f"{owner.comm} ({owner.pid}) makes {owner.part:.0%} of those lookups{command}", told, at=own.at
    )


def _severity(case: Case, state: State, load: Load | None, *, many: bool) -> Severity:
    memory = case.now("node").highest("mem_total")
    part = state.level * CAUSE.limit("bytes") / (memory * 1024) if memory else 0.0
    heavy = many and part >= CAUSE.limit("memory_part")
    if load is None:
        return Severity.WARNING if heavy else Severity.INFO
    severity = gravity(case, load)
    return Severity.WARNING if severity is Severity.INFO and heavy else severity

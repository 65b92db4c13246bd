"""Names that don't exist are looked up by the million: each is remembered, and whoever walks them pays."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.impact import severity_of
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column, quote_share
from exhume.diagnose.evidence.rows import Floats, Rows
from exhume.model.clock import NANOS
from exhume.model.finding import Role, RuledOut, Severity

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
    builder = EvidenceBuilder(case, CAUSE)
    state = _state(case)
    if state is None:
        return builder.rule_out("the number of dentries was not recorded")
    making, walking = _making(case), case.load(WALKING)
    lookups = _lookups(case, making)
    many = state.level >= CAUSE.limit("many")
    grows = state.rise >= CAUSE.limit("rise_per_s")
    busy = making.together >= CAUSE.limit("maker_share") and lookups.together >= CAUSE.limit("lookups_share")
    made = grows and (busy or not case.has_stacks)
    walked = walking.together >= CAUSE.limit("core_share") and (many or _shrinks(state))
    if not (made or walked or many):
        return builder.rule_out(
            f"{state.level:,.0f} negative dentries, growing by {max(state.rise, 0):,.0f} a second at most: few"
        )
    _tell_state(builder, state, full=grows or many)
    if made and case.has_stacks:
        _tell_load(builder, making, lookups, "making")
    if walked:
        _tell_load(builder, walking, walking, "walking")
    if not made and not walked:
        size = state.level * CAUSE.limit("bytes") / _MIB
        return builder.found(
            Severity.WARNING if _is_heavy(case, state) else Severity.INFO,
            f"{state.level:,.0f} negative dentries are kept (about {size:,.0f} MiB)",
            remedies=aim(CAUSE.remedies, "PID"),
        )
    actor = lookups if made else walking
    load = case.load_of(walking.mask | lookups.mask) if made and walked else actor
    culprit = case.culprit(actor, case.samples.nearest(actor.mask, CAUSE.names) if case.has_stacks else None)
    who = culprit.comm or "somebody"
    summary = f"{who} walks {state.level:,.0f} negative dentries on core {walking.cpu}"
    if made:
        summary = f"{who} looks up names that don't exist: {state.rise:,.0f} negative dentries more a second"
    return builder.found(
        _severity(case, state, load, made=made),
        summary,
        culprit=culprit,
        load=load,
        remedies=aim(CAUSE.remedies, str(culprit.pid or "PID")),
    )


def _making(case: Case) -> Load:
    """Whoever removes files leaves their names behind as well, for a while: that is no search for what isn't there."""
    return case.load_of(case.samples.holding(MAKING) & ~case.samples.holding(CAUSE.named("removing")))


def _lookups(case: Case, making: Load) -> Load:
    """All that those who make them spend on looking up names."""
    probers = [owner.comm for owner in making.owners if owner.part >= CAUSE.limit("maker_share")]
    return case.load_of(case.samples.holding(CAUSE.named("looking")) & case.samples.of_comms(probers) | making.mask)


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


def _tell_state(builder: EvidenceBuilder, state: State, *, full: bool) -> None:
    how = "there are" if state.exact else "by dentries and inodes there are about"
    evidence = [quote_column(state.rows, state.column, "min"), quote_column(state.rows, state.column, "max")]
    if not state.exact:
        evidence.append(quote_column(state.rows, "inodes", "max"))
        builder.doubt("this kernel doesn't count negative dentries: they were reckoned from dentries and inodes")
    text = f"{how} {state.level:,.0f} negative dentries"
    text += f", {state.rise:,.0f} more a second at the fastest" if state.rise > 0 else ""
    strength = CAUSE.limit("state_strength") / (1 if full else 2)
    builder.add(Role.ROOT_CAUSE, text, *[each for each in evidence if each is not None], strength=strength)


def _tell_load(builder: EvidenceBuilder, load: Load, spent: Load, group: str) -> None:
    """What it takes to make or to walk them (`load`, with all that goes with it in `spent`), and who does it."""
    case, functions = builder.case, (CAUSE.more_functions or {})[group]
    function = case.samples.nearest(load.mask, CAUSE.named(group))
    what = {"making": "names that don't exist are looked up", "walking": "they are walked, one after the other"}[group]
    builder.add(
        Role.MECHANISM,
        f"{what}: that took {spent.peak:.0%} of a second of core {spent.cpu}, most of all in {function}",
        quote_share(case, load, functions),
        strength=CAUSE.limit("load_strength") * min(1.0, spent.together / CAUSE.limit("whole_core")),
        at=load.at,
    )
    owner = load.owner
    if owner is None or owner.part < 1 / 3:
        builder.doubt("many processes do it: none of them stands out")
        return
    own = case.load_of(load.mask & (case.samples.pid == owner.pid))
    told = quote_share(case, own, functions, owner.pid)
    known = case.process(owner.pid)
    command = f": {known.cmdline[:120]}" if known is not None and known.cmdline else ""
    builder.add(Role.CULPRIT, f"{owner.comm} ({owner.pid}) does {owner.part:.0%} of it{command}", told, at=own.at)


def _is_heavy(case: Case, state: State) -> bool:
    """Whether they take a good part of all memory."""
    memory = case.now("node").highest("mem_total")
    part = state.level * CAUSE.limit("bytes") / (memory * 1024) if memory else 0.0
    return part >= CAUSE.limit("memory_part")


def _severity(case: Case, state: State, load: Load, *, made: bool) -> Severity:
    """A core that is lost is grave. Memory that fills up is slow, and never only worth knowing."""
    severity = severity_of(case, load)
    lasting = made and state.rise * case.focus.seconds >= CAUSE.limit("lasting_rise")
    return Severity.WARNING if severity is Severity.INFO and (lasting or _is_heavy(case, state)) else severity

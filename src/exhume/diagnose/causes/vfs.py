"""The VFS: negative dentries, and long or churning mount tables."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.impact import severity_of
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column, quote_core, quote_load, quote_share
from exhume.diagnose.evidence.rows import Floats, Ints, Rows
from exhume.model.clock import NANOS
from exhume.model.finding import Entity, Evidence, Role, RuledOut, Severity

DENTRIES = catalogue()["negative-dentries"]
MOUNTS = catalogue()["mount-storm"]
_MIB = 1 << 20
_COMMAND_WIDTH = 120
# Mounts are counted every ten seconds: a focus may lie between two counts.
_COUNTED_WITHIN_S = 60


def _command(case: Case, pid: int) -> str | None:
    known = case.process(pid)
    return known.cmdline[:_COMMAND_WIDTH] if known is not None and known.cmdline else None


# Negative dentries


@dataclass(frozen=True, slots=True)
class Dentries:
    """How many there are and how fast they come or go (a second, in the fastest two seconds of the focus). `exact` is
    False where the kernel doesn't count them: then they are the dentries beyond the inodes."""

    level: float
    rise: float
    fall: float
    exact: bool
    rows: Rows

    @property
    def column(self) -> str:
        return "dentries_negative" if self.exact else "dentries"

    @property
    def shrinks(self) -> bool:
        return self.fall >= DENTRIES.limit("rise_per_s") and self.exact


@examines(DENTRIES)
def negative_dentries(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    state = _dentries(case)
    if state is None:
        return builder.rule_out("uncounted")
    making, walking = _making(case), case.load(DENTRIES.group("walking"))
    lookups = _lookups(case, making)
    many = state.level >= DENTRIES.limit("many")
    grows = state.rise >= DENTRIES.limit("rise_per_s")
    busy = making.together >= DENTRIES.limit("maker_share") and lookups.together >= DENTRIES.limit("lookups_share")
    made = grows and (busy or not case.has_stacks)
    walked = walking.together >= DENTRIES.limit("core_share") and (many or state.shrinks)
    if not (made or walked or many):
        return builder.rule_out("few", level=state.level, rise=max(state.rise, 0))
    _add_dentries(builder, state, full=grows or many)
    if made and case.has_stacks:
        _add_lookups(builder, making, lookups, "making")
    if walked:
        _add_lookups(builder, walking, walking, "walking")
    if not made and not walked:
        mib = state.level * DENTRIES.limit("bytes") / _MIB
        severity = Severity.WARNING if _is_heavy(case, state) else Severity.INFO
        remedies = aim(DENTRIES.remedies, "PID")
        return builder.found(severity, "summary-kept", remedies=remedies, level=state.level, mib=mib)
    actor = lookups if made else walking
    culprit = case.culprit(actor, case.samples.nearest(actor.mask, DENTRIES.names) if case.has_stacks else None)
    load = case.load_of(walking.mask | lookups.mask) if made and walked else actor
    return builder.found(
        _dentry_severity(case, state, load, made=made),
        "summary-made" if made else "summary-walked",
        culprit=culprit,
        load=load,
        remedies=aim(DENTRIES.remedies, str(culprit.pid or "PID")),
        who=culprit.process,
        level=state.level,
        rise=state.rise,
        cpu=walking.cpu,
    )


def _making(case: Case) -> Load:
    """A process that removes files leaves negative dentries as well, for a while: that is no search."""
    return case.load_of(
        case.samples.holding(DENTRIES.group("making")) & ~case.samples.holding(DENTRIES.group("removing"))
    )


def _lookups(case: Case, making: Load) -> Load:
    """All time that their makers spend on looking up names."""
    probers = [owner.comm for owner in making.owners if owner.part >= DENTRIES.limit("maker_share")]
    looking = case.samples.holding(DENTRIES.group("looking"))
    return case.load_of(looking & case.samples.of_comms(probers) | making.mask)


def _dentries(case: Case) -> Dentries | None:
    """Counts of the focus and the seconds around it: a focus may be very short."""
    rows = case.recorded("node", case.focus.seconds + 2)
    exact = len(rows) > 0 and rows.newest("dentries_negative") is not None
    if exact:
        counts = rows.numbers("dentries_negative")
    elif len(rows) and rows.newest("dentries") is not None and rows.newest("inodes") is not None:
        # A dentry without an inode is negative; both are counted at the same moment.
        counts = rows.numbers("dentries") - rows.numbers("inodes")
    else:
        return None
    rise, fall = _fastest(rows.wall, counts)
    return Dentries(float(np.nanmax(counts)), rise, fall, exact, rows)


def _fastest(wall: Ints, counts: Floats) -> tuple[float, float]:
    """The steepest rise and fall over about two seconds: one second may be a late tick."""
    known = np.flatnonzero(~np.isnan(counts))
    if len(known) < 3:
        return 0.0, 0.0
    order = known[np.argsort(wall[known])]
    values, times = counts[order], wall[order] / NANOS
    steps = (values[2:] - values[:-2]) / np.maximum(times[2:] - times[:-2], 0.5)
    return float(steps.max()), float(-steps.min())


def _add_dentries(builder: EvidenceBuilder, state: Dentries, *, full: bool) -> None:
    quotes = [quote_column(state.rows, state.column, "min"), quote_column(state.rows, state.column, "max")]
    if not state.exact:
        quotes.append(quote_column(state.rows, "inodes", "max"))
        builder.doubt("estimated")
    builder.add(
        Role.ROOT_CAUSE,
        "level",
        *[each for each in quotes if each is not None],
        strength=DENTRIES.limit("state_strength") / (1 if full else 2),
        exact=state.exact,
        level=state.level,
        rise=state.rise if state.rise > 0 else None,
    )


def _add_lookups(builder: EvidenceBuilder, load: Load, spent: Load, group: str) -> None:
    """What it takes to make or to walk them (`load`, with all that goes with it in `spent`), and the process behind."""
    case, functions = builder.case, DENTRIES.groups[group]
    function = case.samples.nearest(load.mask, DENTRIES.group(group))
    strength = DENTRIES.limit("load_strength") * min(1.0, spent.together / DENTRIES.limit("whole_core"))
    spending = {"peak": spent.peak, "cpu": spent.cpu, "function": function}
    quote = quote_share(case, load, functions)
    builder.add(Role.MECHANISM, group, quote, strength=strength, at=load.at, values=spending)
    owner = load.main_owner
    if owner is None:
        builder.doubt("many-processes")
        return
    own = case.load_of(load.mask & (case.samples.pid == owner.pid))
    quote = quote_share(case, own, functions, owner.pid)
    values = {"who": owner.entity, "part": owner.part, "command": _command(case, owner.pid)}
    builder.add(Role.CULPRIT, "owner", quote, at=own.at, values=values)


def _is_heavy(case: Case, state: Dentries) -> bool:
    """Whether they take a good part of all memory."""
    memory = case.now("node").highest("mem_total")
    part = state.level * DENTRIES.limit("bytes") / (memory * 1024) if memory else 0.0
    return part >= DENTRIES.limit("memory_part")


def _dentry_severity(case: Case, state: Dentries, load: Load, *, made: bool) -> Severity:
    """A lost core is severe. Memory that fills up is slow, and never only worth knowing."""
    severity = severity_of(case, load)
    lasting = made and state.rise * case.focus.seconds >= DENTRIES.limit("lasting_rise")
    return Severity.WARNING if severity is Severity.INFO and (lasting or _is_heavy(case, state)) else severity


# Mounts


@examines(MOUNTS)
def mount_storm(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    counts = case.recorded("node", case.focus.seconds + _COUNTED_WITHIN_S)
    level = counts.highest("mounts") if len(counts) else None
    least = counts.lowest("mounts") if len(counts) else None
    many = level is not None and level >= MOUNTS.limit("many")
    if not case.has_stacks:
        return _mounts_by_count(builder, level, least)
    reading, making = case.load(MOUNTS.group("reading")), case.load(MOUNTS.group("making"))
    load = case.load_of(reading.mask | making.mask)
    busy = load.together >= MOUNTS.limit("core_share")
    if not busy and not many:
        return builder.rule_out("share", level=level, together=load.together)
    if level is not None and least is not None:
        _add_mounts(builder, level, least)
    else:
        builder.doubt("uncounted")
    if not busy:
        return builder.found(Severity.INFO, "summary-idle", remedies=aim(MOUNTS.remedies, "PID"), level=level)
    _add_table_time(builder, load)
    reader, maker = _add_owner(builder, reading, "reading"), _add_owner(builder, making, "making")
    main = reading if reading.cores >= making.cores else making
    severity = severity_of(case, load)
    if severity is Severity.INFO and load.cores >= MOUNTS.limit("noted_share"):
        # Its readers have other work to do: process 1 its children, a runtime its containers.
        severity = Severity.WARNING
    culprit = case.culprit(main, case.samples.nearest(main.mask, MOUNTS.names))
    return builder.found(
        severity,
        "summary",
        culprit=culprit,
        load=load,
        remedies=aim(MOUNTS.remedies, str(culprit.pid or "PID")),
        reader=reader,
        maker=maker,
        both=reader is not None and maker is not None,
        neither=reader is None and maker is None,
        together=load.together,
    )


def _add_mounts(builder: EvidenceBuilder, level: float, least: float) -> None:
    counts = builder.case.recorded("node", builder.case.focus.seconds + _COUNTED_WITHIN_S)
    quotes = [each for each in (quote_column(counts, "mounts", how) for how in ("min", "max")) if each is not None]
    changed = level - least >= MOUNTS.limit("changed")
    part = 1.0 if changed else min(1.0, level / MOUNTS.limit("many"))
    few = part < MOUNTS.limit("few_part")
    builder.add(
        Role.ROOT_CAUSE,
        "level",
        *quotes,
        strength=0.0 if few else MOUNTS.limit("state_strength") * part,
        level=level,
        least=least if changed else None,
        few=few,
    )


def _add_table_time(builder: EvidenceBuilder, load: Load) -> None:
    function = builder.case.samples.nearest(load.mask, MOUNTS.names)
    strength = MOUNTS.limit("load_strength") * min(1.0, load.together / MOUNTS.limit("whole_core"))
    quote = quote_load(builder.case, load, MOUNTS.functions)
    values = {"peak": load.peak, "cpu": load.cpu, "function": function}
    builder.add(Role.MECHANISM, "load", quote, strength=strength, at=load.at, values=values)
    if load.before is not None and not load.is_new:
        builder.doubt("not-new")


def _add_owner(builder: EvidenceBuilder, load: Load, group: str) -> Entity | None:
    """Name the owner of a group's time; None where no process owns it."""
    owner = load.main_owner
    if owner is None or load.together < MOUNTS.limit("owner_share"):
        return None
    case = builder.case
    own = case.load_of(load.mask & case.samples.of_comms([owner.comm]))
    quote = Evidence(
        "samples",
        "weight_us",
        "share",
        round(own.peak, 3),
        own.at,
        own.at + NANOS,
        own.cpu,
        match=(("comm", owner.comm),),
        functions=MOUNTS.groups[group],
    )
    values = {"who": owner.entity, "peak": own.peak, "command": _command(case, owner.pid)}
    builder.add(Role.CULPRIT, group, quote, at=own.at, values=values)
    return owner.entity


def _mounts_by_count(builder: EvidenceBuilder, level: float | None, least: float | None) -> Found | RuledOut:
    if level is None or least is None:
        return builder.rule_out("unrecorded")
    changed = level - least >= MOUNTS.limit("changed")
    if level < MOUNTS.limit("many") and not changed:
        return builder.rule_out("steady", level=level)
    _add_mounts(builder, level, least)
    share, cpu, at = builder.case.core_share(("system",))
    busy = share >= MOUNTS.limit("whole_core")
    if busy:
        builder.add(Role.MECHANISM, "kernel", quote_core("system", share, cpu, at), cpu=cpu, share=share)
    severity = Severity.WARNING if busy and changed else Severity.INFO
    remedies = aim(MOUNTS.remedies, "PID")
    return builder.found(severity, "summary-counted", remedies=remedies, level=level, changed=changed)

"""The VFS: negative dentries, and long or churning mount tables."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column, quote_core, quote_named_share, quote_share
from exhume.diagnose.evidence.rows import Rows
from exhume.diagnose.facts.forecasts import count_forecast, memory_forecast
from exhume.diagnose.symptoms import severity_of
from exhume.model.clock import NANOS
from exhume.model.finding import Entity, Forecast, Role, RuledOut, Severity

DENTRIES = catalogue()["negative-dentries"]
MOUNTS = catalogue()["mount-storm"]
_MIB = 1 << 20
# Mounts are counted every ten seconds, so a focus may lie between two counts.
_COUNTED_WITHIN_S = 60


@dataclass(frozen=True, slots=True)
class Dentries:
    """The number of negative dentries, and how fast they come or go: per second, over the fastest two seconds of the
    focus. `exact` is False if the kernel doesn't count them: then they are the dentries in excess of the inodes.
    `heavy`: they take a good part of all memory."""

    level: float
    rise: float
    fall: float
    exact: bool
    heavy: bool
    rows: Rows


@examines(DENTRIES)
def negative_dentries(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    state, samples = _dentries(case), case.samples
    if state is None:
        return builder.rule_out("uncounted")
    # A process that removes files also leaves negative dentries for a while: that is not a search.
    making = case.load_of(samples.holding(DENTRIES.group("making")) & ~samples.holding(DENTRIES.group("removing")))
    walking = case.load(DENTRIES.group("walking"))
    # All the time that their makers spend looking up names.
    probers = samples.of_comms([each.comm for each in making.owners if each.part >= DENTRIES.limit("maker_share")])
    lookups = case.load_of(samples.holding(DENTRIES.group("looking")) & probers | making.mask)
    steep = DENTRIES.limit("rise_per_s")
    many, grows = state.level >= DENTRIES.limit("many"), state.rise >= steep
    made_share, lookups_share, turn = DENTRIES.limit("maker_share"), DENTRIES.limit("lookups_share"), case.turn
    busy = making.together >= turn * made_share and lookups.together >= turn * lookups_share
    made = grows and (busy or not case.has_stacks)
    shrinks = state.fall >= steep and state.exact
    walked = walking.together >= turn * DENTRIES.limit("core_share") and (many or shrinks)
    if not (made or walked or many):
        return builder.rule_out("few", level=state.level, rise=max(state.rise, 0))
    _add_dentries(builder, state, full=grows or many)
    if made and case.has_stacks:
        _add_lookups(builder, making, lookups, "making")
    if walked:
        _add_lookups(builder, walking, walking, "walking")
    if not made and not walked:
        kept = {"level": state.level, "mib": state.level * DENTRIES.limit("bytes") / _MIB}
        severity = Severity.WARNING if state.heavy else Severity.INFO
        return builder.found(severity, "summary-kept", target="PID", forecast=_dentries_ahead(case, state), values=kept)
    actor = lookups if made else walking
    culprit = case.culprit(actor, samples.nearest(actor.mask, DENTRIES.names))
    load = case.load_of(walking.mask | lookups.mask) if made and walked else actor
    # A lost core is critical. Filling memory is slow, but never just info.
    severity = severity_of(case, load)
    lasting = made and state.rise * case.focus.seconds >= DENTRIES.limit("lasting_rise")
    if severity is Severity.INFO and (lasting or state.heavy):
        severity = Severity.WARNING
    key, target = "summary-made" if made else "summary-walked", str(culprit.pid or "PID")
    values = {"who": culprit.process, "level": state.level, "rise": state.rise, "cpu": walking.cpu}
    ahead = _dentries_ahead(case, state)
    return builder.found(severity, key, culprit=culprit, load=load, target=target, forecast=ahead, values=values)


def _dentries_ahead(case: Case, state: Dentries) -> Forecast | None:
    """When negative dentries will take a good part of all memory: they are reclaimable slab."""
    column, less = ("dentries_negative", None) if state.exact else ("dentries", "inodes")
    return memory_forecast(case, "dentries", column, ("slab_reclaimable",), less)


def _dentries(case: Case) -> Dentries | None:
    """The counts of the focus and of the seconds around it, as a focus may be very short."""
    rows = case.recorded("node", case.focus.seconds + 2)
    exact = rows.newest("dentries_negative") is not None
    # A dentry without an inode is negative; both are counted at the same moment.
    counts = rows.numbers("dentries_negative") if exact else rows.numbers("dentries") - rows.numbers("inodes")
    known = np.flatnonzero(~np.isnan(counts))
    if not len(known):
        return None
    rise = fall = 0.0
    if len(known) > 2:
        # The steepest rise and fall over about two seconds, as a single second may be a late tick.
        order = known[np.argsort(rows.wall[known])]
        values, times = counts[order], rows.wall[order] / NANOS
        steps = (values[2:] - values[:-2]) / np.maximum(times[2:] - times[:-2], 0.5)
        rise, fall = float(steps.max()), float(-steps.min())
    level, memory = float(counts[known].max()), case.now("node").highest("mem_total")
    part = level * DENTRIES.limit("bytes") / (memory * 1024) if memory else 0.0
    return Dentries(level, rise, fall, exact, part >= DENTRIES.limit("memory_part"), rows)


def _add_dentries(builder: EvidenceBuilder, state: Dentries, *, full: bool) -> None:
    column = "dentries_negative" if state.exact else "dentries"
    quotes = [quote_column(state.rows, column, "min"), quote_column(state.rows, column, "max")]
    if not state.exact:
        quotes.append(quote_column(state.rows, "inodes", "max"))
        builder.doubt("estimated")
    strength = DENTRIES.limit("state_strength") / (1 if full else 2)
    values = {"exact": state.exact, "level": state.level, "rise": state.rise if state.rise > 0 else None}
    builder.add(Role.ROOT_CAUSE, "level", *quotes, strength=strength, values=values)


def _add_lookups(builder: EvidenceBuilder, load: Load, spent: Load, group: str) -> None:
    """Add the cost of creating or walking them (`load`, and in `spent` with all that belongs to it), and the process
    responsible."""
    case, functions = builder.case, DENTRIES.groups[group]
    function = case.samples.nearest(load.mask, DENTRIES.group(group))
    strength = DENTRIES.limit("load_strength") * min(1.0, spent.together / (case.turn * DENTRIES.limit("whole_core")))
    quote = quote_share(case, load, functions)
    builder.add(Role.MECHANISM, group, quote, strength=strength, load=spent, at=load.at, function=function)
    owner = load.main_owner
    if owner is None:
        builder.doubt("many-processes")
        return
    own = case.load_of(load.mask & (case.samples.pid == owner.pid))
    quote = quote_share(case, own, functions, owner.pid)
    values = {"who": owner.entity, "part": owner.part, "command": case.command(owner.pid)}
    builder.add(Role.CULPRIT, "owner", quote, at=own.at, values=values)


@examines(MOUNTS)
def mount_storm(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    counts = case.recorded("node", case.focus.seconds + _COUNTED_WITHIN_S)
    level, least = counts.highest("mounts"), counts.lowest("mounts")
    if not case.has_stacks:
        return _mounts_by_count(builder, counts, level, least)
    reading, making = case.load(MOUNTS.group("reading")), case.load(MOUNTS.group("making"))
    load = case.load_of(reading.mask | making.mask)
    busy = load.together >= case.turn * MOUNTS.limit("core_share")
    if not busy and (level is None or level < MOUNTS.limit("many")):
        return builder.rule_out("share", level=level, together=load.together)
    if level is not None and least is not None:
        _add_mounts(builder, counts, level, least)
    else:
        builder.doubt("uncounted")
    if not busy:
        ahead = _mounts_ahead(case, reading)
        return builder.found(Severity.INFO, "summary-idle", target="PID", forecast=ahead, level=level)
    function = case.samples.nearest(load.mask, MOUNTS.names)
    whole = case.turn * MOUNTS.limit("whole_core")
    strength = MOUNTS.limit("load_strength") * min(1.0, load.together / whole)
    quote = quote_share(case, load, MOUNTS.functions)
    builder.add(Role.MECHANISM, "load", quote, strength=strength, load=load, function=function)
    if load.before is not None and not load.is_new:
        builder.doubt("not-new")
    reader, maker = _add_owner(builder, reading, "reading"), _add_owner(builder, making, "making")
    main = reading if reading.cores >= making.cores else making
    severity = severity_of(case, load)
    if severity is Severity.INFO and load.cores >= MOUNTS.limit("noted_share"):
        # Its readers have other work to do: process 1 has its children, a container runtime its containers.
        severity = Severity.WARNING
    culprit = case.culprit(main, case.samples.nearest(main.mask, MOUNTS.names))
    values = {"reader": reader, "maker": maker, "both": bool(reader and maker), "neither": not reader and not maker}
    target, ahead = str(culprit.pid or "PID"), _mounts_ahead(case, reading)
    return builder.found(severity, "summary", culprit=culprit, load=load, target=target, forecast=ahead, values=values)


def _mounts_ahead(case: Case, reading: Load | None = None) -> Forecast | None:
    """When a mount namespace will have as many mounts as it may, or reading the mount table will take a core."""
    return count_forecast(case, "mounts", "mounts", MOUNTS.limit("most_mounts"), reading)


def _add_mounts(builder: EvidenceBuilder, counts: Rows, level: float, least: float) -> None:
    changed = level - least >= MOUNTS.limit("changed")
    part = 1.0 if changed else min(1.0, level / MOUNTS.limit("many"))
    few = part < MOUNTS.limit("few_part")
    quotes = [quote_column(counts, "mounts", how) for how in ("min", "max")]
    values = {"level": level, "least": least if changed else None, "few": few}
    strength = 0.0 if few else MOUNTS.limit("state_strength") * part
    builder.add(Role.ROOT_CAUSE, "level", *quotes, strength=strength, values=values)


def _add_owner(builder: EvidenceBuilder, load: Load, group: str) -> Entity | None:
    """Name the owner of a group's time; None if no process owns it."""
    owner, case = load.main_owner, builder.case
    if owner is None or load.together < MOUNTS.limit("owner_share"):
        return None
    own = case.load_of(load.mask & case.samples.of_comms([owner.comm]))
    quote = quote_named_share(own, owner.comm, MOUNTS.groups[group])
    values = {"who": owner.entity, "command": case.command(owner.pid)}
    builder.add(Role.CULPRIT, group, quote, load=own, values=values)
    return owner.entity


def _mounts_by_count(
    builder: EvidenceBuilder, counts: Rows, level: float | None, least: float | None
) -> Found | RuledOut:
    if level is None or least is None:
        return builder.rule_out("unrecorded")
    changed = level - least >= MOUNTS.limit("changed")
    if level < MOUNTS.limit("many") and not changed:
        return builder.rule_out("steady", level=level)
    _add_mounts(builder, counts, level, least)
    share, cpu, at = builder.case.core_share(("system",))
    busy = share >= MOUNTS.limit("whole_core")
    if busy:
        builder.add(Role.MECHANISM, "kernel", quote_core("system", share, cpu, at), cpu=cpu, share=share)
    severity, ahead = Severity.WARNING if busy and changed else Severity.INFO, _mounts_ahead(builder.case)
    values = {"level": level, "changed": changed}
    return builder.found(severity, "summary-counted", target="PID", forecast=ahead, values=values)

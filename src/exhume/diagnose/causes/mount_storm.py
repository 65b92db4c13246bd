"""The mount table is long or changes all the time, and every change makes its readers read all of it again."""

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.impact import severity_of
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import quote_column, quote_load
from exhume.model.clock import NANOS
from exhume.model.finding import Evidence, Role, RuledOut, Severity

CAUSE = catalogue()["mount-storm"]
GROUPS = CAUSE.more_functions or {}
READING, MAKING = CAUSE.named("reading"), CAUSE.named("making")
# Counted every ten seconds: a focus may lie between two counts.
_COUNTED_WITHIN_S = 60


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    counts = case.recorded("node", case.focus.seconds + _COUNTED_WITHIN_S)
    level = counts.highest("mounts") if len(counts) else None
    least = counts.lowest("mounts") if len(counts) else None
    many = level is not None and level >= CAUSE.limit("many")
    if not case.has_stacks:
        return _by_level(builder, level, least)
    reading, making = case.load(READING), case.load(MAKING)
    load = case.load_of(reading.mask | making.mask)
    busy = load.together >= CAUSE.limit("core_share")
    if not busy and not many:
        told = "not counted" if level is None else f"{level:,.0f} mounts"
        return builder.rule_out(f"{told}; reading and changing the mount table took {load.together:.0%} of a core")
    if level is not None and least is not None:
        _tell_level(builder, level, least)
    else:
        builder.doubt("how many mounts there are was not recorded")
    if not busy:
        assert level is not None
        summary = f"{level:,.0f} mounts are in the mount table: whoever reads it pays for each"
        return builder.found(Severity.INFO, summary, remedies=aim(CAUSE.remedies, "PID"))
    _tell_load(builder, load)
    names = [_tell_owners(builder, reading, "reading", "reads the mount table")]
    names.append(_tell_owners(builder, making, "making", "mounts and unmounts"))
    main = reading if reading.cores >= making.cores else making
    severity = severity_of(case, load)
    if severity is Severity.INFO and load.cores >= CAUSE.limit("noted_share"):
        # Its readers have other work to do: process 1 its children, a runtime its containers.
        severity = Severity.WARNING
    culprit = case.culprit(main, case.samples.nearest(main.mask, CAUSE.names))
    told = " and ".join(name for name in names if name)
    summary = f"{told or 'many processes'}: the mount table takes {load.together:.1f} cores at its height"
    return builder.found(
        severity, summary, culprit=culprit, load=load, remedies=aim(CAUSE.remedies, str(culprit.pid or "PID"))
    )


def _tell_level(builder: EvidenceBuilder, level: float, least: float) -> None:
    counts = builder.case.recorded("node", builder.case.focus.seconds + _COUNTED_WITHIN_S)
    evidence = [each for each in (quote_column(counts, "mounts", how) for how in ("min", "max")) if each is not None]
    changed = level - least >= CAUSE.limit("changed")
    text = f"the node's mount table has {level:,.0f} entries"
    text += f" (between {least:,.0f} and {level:,.0f} in the last minute)" if changed else ""
    part = 1.0 if changed else min(1.0, level / CAUSE.limit("many"))
    if part < CAUSE.limit("few_part"):
        part = 0.0
        text += ": if the storm is in a mount namespace of its own, its table is not counted here"
    builder.add(Role.ROOT_CAUSE, text, *evidence, strength=CAUSE.limit("state_strength") * part)


def _tell_load(builder: EvidenceBuilder, load: Load) -> None:
    function = builder.case.samples.nearest(load.mask, CAUSE.names)
    builder.add(
        Role.MECHANISM,
        f"reading and changing the mount table took {load.peak:.0%} of a second of core {load.cpu}, in {function}",
        quote_load(builder.case, load, CAUSE.functions),
        strength=CAUSE.limit("load_strength") * min(1.0, load.together / CAUSE.limit("whole_core")),
        at=load.at,
    )
    if load.before is not None and not load.is_new:
        builder.doubt("it was much the same before")


def _tell_owners(builder: EvidenceBuilder, load: Load, group: str, what: str) -> str:
    """Name whoever owns most of a group's time; the words for the summary, empty where nobody does."""
    owner = load.owner
    if owner is None or owner.part < 1 / 3 or load.together < CAUSE.limit("owner_share"):
        return ""
    own = builder.case.load_of(load.mask & builder.case.samples.of_comms([owner.comm]))
    told = Evidence(
        "samples",
        "weight_us",
        "share",
        round(own.peak, 3),
        own.at,
        own.at + NANOS,
        own.cpu,
        match=(("comm", owner.comm),),
        functions=GROUPS[group],
    )
    known = builder.case.process(owner.pid)
    command = f": {known.cmdline[:120]}" if known is not None and known.cmdline else ""
    builder.add(Role.CULPRIT, f"{owner.comm} ({owner.pid}) {what}, {own.peak:.0%} of a core{command}", told, at=own.at)
    return f"{owner.comm} {what}"


def _by_level(builder: EvidenceBuilder, level: float | None, least: float | None) -> Found | RuledOut:
    if level is None or least is None:
        return builder.rule_out("neither stacks nor the number of mounts were recorded")
    changed = level - least >= CAUSE.limit("changed")
    if level < CAUSE.limit("many") and not changed:
        return builder.rule_out(f"{level:,.0f} mounts, which hardly change")
    _tell_level(builder, level, least)
    share, cpu, at = builder.case.core_share(("system",))
    busy = share >= CAUSE.limit("whole_core")
    if busy:
        core = Evidence("cpu", "system", "max", round(share * 1000), at, at + 1, cpu, unit="permille")
        builder.add(Role.MECHANISM, f"core {cpu} spent {share:.0%} of a second in the kernel", core)
    severity = Severity.WARNING if busy and changed else Severity.INFO
    summary = f"the mount table has {level:,.0f} entries" + (" and changes all the time" if changed else "")
    return builder.found(severity, summary, remedies=aim(CAUSE.remedies, "PID"))

"""More is written than the disk takes: writers are throttled, and flushers and journals burn a core."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.core_hold import core_hold
from exhume.diagnose.evidence.impact import has_symptom, hurts_others
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import present_functions, quote_column, quote_share
from exhume.diagnose.evidence.rates import Rate, node_rate, rise_of
from exhume.diagnose.evidence.rows import Floats
from exhume.diagnose.evidence.stack_cause import describe_load, target_of
from exhume.model.finding import Culprit, Entity, EntityKind, Evidence, Role, RuledOut, Severity, process_entity

CAUSE = catalogue()["writeback-storm"]
# Threads of file systems that carry the name of their device.
_JOURNALS = ("jbd2/", "xfsaild/", "xfs-", "btrfs-transacti")
# pgpgout counts KiB and pswpout pages of 4 KiB (mm/vmstat.c).
_PAGE_KIB = 4


@dataclass(frozen=True, slots=True)
class Stalls:
    """How much tasks stalled for I/O: `some` of PSI (None where the kernel has none), `blocked` tasks at a time, now
    and before, and the worst core's iowait."""

    some: Rate | None
    blocked: float
    blocked_before: float | None
    iowait: float

    @property
    def share(self) -> float:
        """The part of the time in which tasks stalled; without PSI, the worst core's iowait."""
        return self.iowait if self.some is None else min(1.0, self.some.now / 1e6)

    @property
    def share_before(self) -> float:
        return 0.0 if self.some is None or self.some.before is None else self.some.before / 1e6

    def are(self, limit: str) -> bool:
        """Whether it is a trouble: tasks stall, more of them than that, and much more than before."""
        more = self.share - self.share_before >= CAUSE.limit("stalled_more")
        risen = self.blocked_before is None or self.blocked >= CAUSE.limit("rise") * self.blocked_before
        return self.share >= CAUSE.limit("stalled") and more and risen and self.blocked >= CAUSE.limit(limit)


@dataclass(frozen=True, slots=True)
class WriteHold:
    """Seconds of a core that all writing took, and those of writeback alone: flushers, journals, syncs and throttled
    writers. A program that copies into the page cache on its own time harms no other."""

    by_writing: float
    by_writeback: float


@examines(CAUSE)
def writeback_storm(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    out, into = node_rate(case, "pgpgout", "KiB"), rise_of(case, "pgpgin")
    if out is None:
        return builder.rule_out("uncounted")
    samples = case.samples
    # Files in memory (tmpfs) never reach a disk.
    load = case.load_of(samples.holding(CAUSE.names) & ~samples.holding(CAUSE.group("in_memory")))
    hold = _hold(case, load)
    stalls = _stalls(case)
    takes_core = hold.by_writing >= CAUSE.limit("seconds")
    if not takes_core and not stalls.are("blocked"):
        return builder.rule_out("share", peak=load.peak, blocked=stalls.blocked)
    if not takes_core and into > CAUSE.limit("reads") * max(out.rise, 0.0):
        return builder.rule_out("reads")
    if rise_of(case, "pswpout") * _PAGE_KIB > out.rise * CAUSE.limit("swap_part"):
        return builder.rule_out("swap")
    return _found(builder, case, load, out, stalls, hold)


def _hold(case: Case, load: Load) -> WriteHold:
    if not load.samples:
        return WriteHold(0.0, 0.0)
    share = CAUSE.limit("core_share")
    writeback = case.load_of(load.mask & case.samples.holding(CAUSE.group("writeback")))
    return WriteHold(core_hold(case, load, share).seconds, core_hold(case, writeback, share).seconds)


def _stalls(case: Case) -> Stalls:
    node, before = case.now("node"), case.before("node")
    return Stalls(
        node_rate(case, "psi_io_some", "us"),
        _mean(node.numbers("blocked")) or 0.0,
        _mean(before.numbers("blocked")) if len(before) else None,
        case.core_share(("iowait",))[0],
    )


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _found(  # noqa: PLR0917
    builder: EvidenceBuilder, case: Case, load: Load, out: Rate, stalls: Stalls, hold: WriteHold
) -> Found:
    _add_writing(builder, case, load, hold)
    strength = "written" if out.is_far_above(CAUSE.limit("rise")) else 0.0
    before = None if out.before is None else out.before / 1024
    builder.add(Role.MECHANISM, "written", out.evidence, strength=strength, now=out.now / 1024, before=before)
    _add_dirty(builder, case)
    stalled = _add_stalls(builder, case, stalls)
    culprit, who = _add_writer(builder, case, load)
    hung = any(event.kind in CAUSE.log for event in case.recording.events(case.focus))
    pressed = hold.by_writeback >= CAUSE.limit("seconds")
    waited = stalls.share >= CAUSE.limit("waited")
    return builder.found(
        _severity(case, load, pressed=pressed, hung=hung, stalled=stalled, waited=waited),
        "summary-stalled" if stalled else "summary-pressed" if pressed else "summary",
        culprit=culprit,
        load=load,
        weight=max(load.cores, stalls.share if stalled else 0.0) * case.focus.seconds,
        remedies=aim(CAUSE.remedies, target_of(culprit)),
        who=who,
        cores=load.cores,
        blocked=stalls.blocked,
    )


def _severity(case: Case, load: Load, *, pressed: bool, hung: bool, stalled: bool, waited: bool) -> Severity:
    # A flusher that keeps up with its disk makes no task wait, however busy it is.
    symptom = hurts_others(case, load.cpu) or (waited and has_symptom(case, load.cpu))
    if (pressed and symptom and load.is_new) or (stalled and hung):
        return Severity.CRITICAL
    if stalled or (pressed and load.is_new) or symptom:
        return Severity.WARNING
    return Severity.INFO


def _add_writing(builder: EvidenceBuilder, case: Case, load: Load, hold: WriteHold) -> None:
    if not load.samples:
        return
    strength = "little"
    if hold.by_writeback >= CAUSE.limit("seconds"):
        strength = "held"
    elif load.is_new and load.cores >= CAUSE.limit("some_cores"):
        strength = "some"
    describe_load(builder, load, present_functions(case, CAUSE.names), strength=strength)
    journal = next((comm for comm in _comms(case, load) if comm.startswith(_JOURNALS)), None)
    if journal is not None:
        builder.add(Role.MECHANISM, "journal", _quote_time(case, journal), thread=process_entity(journal))


def _quote_time(case: Case, comm: str) -> Evidence:
    """The CPU time of the threads with a name."""
    samples = case.samples
    mask = samples.of_comms([comm]) & samples.within(case.focus)
    value = float(samples.weight[mask].sum())
    since, until = case.focus.since, case.focus.until
    return Evidence("samples", "weight_us", "sum", value, since, until, match=(("comm", comm),), unit="us")


def _comms(case: Case, load: Load) -> list[str]:
    """The names of the threads of a load, the busiest first."""
    samples = case.samples
    weights = np.bincount(samples.comm[load.mask], samples.weight[load.mask], len(samples.comms))
    return [samples.comms[i] for i in np.argsort(-weights).tolist() if weights[i] > 0]


def _add_dirty(builder: EvidenceBuilder, case: Case) -> None:
    """Pages that still have to be written."""
    node = case.now("node")
    waiting = node.sums(("dirty", "writeback"))
    known = waiting[~np.isnan(waiting)]
    room = node.lowest("mem_available")
    dirty = quote_column(node, "dirty", "max", "KiB")
    if not len(known) or not room or dirty is None:
        return
    before = case.before("node")
    usual = _mean(before.sums(("dirty", "writeback"))) if len(before) else None
    most = float(known.max())
    part = most / room
    more = usual is not None and most >= CAUSE.limit("rise") * usual and part >= CAUSE.limit("dirty_more")
    strength = "dirtied" if part >= CAUSE.limit("dirty") or more else 0.0
    quotes = [each for each in (dirty, quote_column(node, "writeback", "max", "KiB")) if each]
    builder.add(Role.MECHANISM, "dirty", *quotes, strength=strength, mib=most / 1024, part=part)


def _add_stalls(builder: EvidenceBuilder, case: Case, stalls: Stalls) -> bool:
    """Add the tasks that stall; True when that is what makes it a trouble."""
    blocked = quote_column(case.now("node"), "blocked", "max", "tasks")
    quotes: list[Evidence] = [each for each in (blocked, stalls.some and stalls.some.evidence) if each]
    if quotes:
        values = {"share": stalls.share, "blocked": stalls.blocked}
        before = {"share_before": stalls.share_before, "blocked_before": stalls.blocked_before}
        strength = "stalls" if stalls.are("blocked") else 0.0
        builder.add(Role.SYMPTOM, "stalls", *quotes, strength=strength, values={**values, **before})
    if stalls.some is None:
        builder.doubt("no-psi")
    return stalls.are("blocked_many")


def _add_writer(builder: EvidenceBuilder, case: Case, load: Load) -> tuple[Culprit, Entity | None]:
    """The process that dirties pages or syncs them: not the kernel threads that write them out."""
    samples = case.samples
    if not load.samples:
        builder.doubt("no-writer")
        return Culprit(), None
    mask = samples.holding(CAUSE.group("writers")) & ~samples.holding(CAUSE.group("kernel_threads"))
    writers = case.load_of(mask & load.mask)
    owner = writers.owner
    if owner is None:
        builder.doubt("no-writer")
        return case.culprit(load, samples.nearest(load.mask, CAUSE.names)), None
    culprit = case.culprit(writers, samples.nearest(writers.mask, CAUSE.group("writers")))
    functions = present_functions(case, CAUSE.group("writers"))
    values: dict[str, object] = {"syncing": case.part_in(writers, CAUSE.group("syncing")) >= CAUSE.limit("sync_part")}
    if culprit.pid is None:
        values |= {"who": culprit.process, "cores": writers.cores}
        builder.add(Role.CULPRIT, "writers", quote_share(case, writers, functions), at=writers.at, values=values)
        return culprit, culprit.process
    where = culprit.cgroup if culprit.cgroup != "/" else None
    values |= {"who": owner.entity, "part": owner.part}
    values["cgroup"] = Entity(EntityKind.CGROUP, where, where) if where else None
    quote = quote_share(case, writers, functions, owner.pid)
    builder.add(Role.CULPRIT, "writer", quote, strength="writer", at=writers.at, values=values)
    return culprit, owner.entity

"""More is written than the disk can take: writers are throttled, and flushers and journals burn a core."""

import shlex
from dataclasses import dataclass, replace

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import Rate, node_rate, present_functions, quote_column, quote_share, rise_of
from exhume.diagnose.evidence.stack_cause import target_of
from exhume.diagnose.facts.hierarchies import V2, controller_root
from exhume.diagnose.facts.owners import owner_of
from exhume.diagnose.symptoms import has_symptom, hurts_others
from exhume.model.finding import (
    Culprit,
    Entity,
    EntityKind,
    Evidence,
    Remedy,
    Role,
    RuledOut,
    Severity,
    process_entity,
)

CAUSE = catalogue()["writeback-storm"]
# Threads of file systems; apart from btrfs, their names contain the device.
_JOURNALS = ("jbd2/", "xfsaild/", "xfs-", "btrfs-transacti")
# pgpgout counts KiB and pswpout pages of 4 KiB (mm/vmstat.c).
_PAGE_KIB = 4


@dataclass(frozen=True, slots=True)
class Stalls:
    """How much tasks stalled for I/O, now and before: `share` is the fraction of time by PSI (without it, the worst
    core's iowait), `blocked` the mean number of blocked tasks."""

    some: Rate | None
    share: float
    share_before: float
    blocked: float
    blocked_before: float | None

    def are(self, limit: str) -> bool:
        """Whether the stalls matter: tasks stall more than this limit, and much more than before."""
        more = self.share - self.share_before >= CAUSE.limit("stalled_more")
        risen = self.blocked_before is None or self.blocked >= CAUSE.limit("rise") * self.blocked_before
        return self.share >= CAUSE.limit("stalled") and more and risen and self.blocked >= CAUSE.limit(limit)


@examines(CAUSE)
def writeback_storm(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    out, into = node_rate(case, "pgpgout", "KiB"), rise_of(case, "pgpgin")
    if out is None:
        return builder.rule_out("uncounted")
    some, samples = node_rate(case, "psi_io_some", "us"), case.samples
    share = case.core_share(("iowait",))[0] if some is None else min(1.0, some.now / 1e6)
    share_before = 0.0 if some is None or some.before is None else some.before / 1e6
    blocked, blocked_before = case.now("node").mean("blocked") or 0.0, case.before("node").mean("blocked")
    stalls = Stalls(some, share, share_before, blocked, blocked_before)
    # Files in memory (tmpfs) never reach a disk.
    load = case.load_of(samples.holding(CAUSE.names) & ~samples.holding(CAUSE.group("in_memory")))
    share, long = CAUSE.limit("core_share"), CAUSE.limit("seconds")
    takes_core = case.hold(load, share).seconds >= long
    if not takes_core and not stalls.are("blocked"):
        return builder.rule_out("share", peak=load.peak, blocked=stalls.blocked)
    if not takes_core and into > CAUSE.limit("reads") * max(out.rise, 0.0):
        return builder.rule_out("reads")
    if rise_of(case, "pswpout") * _PAGE_KIB > out.rise * CAUSE.limit("swap_part"):
        return builder.rule_out("swap")
    # Writeback alone: flushers, journals, syncs and throttled writers. A program that copies into the page cache on its
    # own time harms no other work.
    writeback = case.load_of(load.mask & samples.holding(CAUSE.group("writeback")))
    pressed = case.hold(writeback, share).seconds >= long
    _add_writing(builder, case, load, pressed=pressed)
    strength = "written" if out.is_far_above(CAUSE.limit("rise")) else 0.0
    before = None if out.before is None else out.before / 1024
    builder.add(Role.MECHANISM, "written", out.evidence, strength=strength, now=out.now / 1024, before=before)
    _add_dirty(builder, case)
    _add_stalls(builder, case, stalls)
    culprit, who = _add_writer(builder, case, load)
    stalled = stalls.are("blocked_many")
    hung = any(event.kind in CAUSE.log for event in case.recording.events(case.focus))
    # A flusher that keeps up with its disk makes no task wait, however busy it is.
    waited = stalls.share >= CAUSE.limit("waited")
    symptom = hurts_others(case, load.cpu, load.mask) or (waited and has_symptom(case, load.cpu, load.mask))
    severity = Severity.WARNING if stalled or (pressed and load.is_new) or symptom else Severity.INFO
    if (pressed and symptom and load.is_new) or (stalled and hung):
        severity = Severity.CRITICAL
    key = "summary-stalled" if stalled else "summary-pressed" if pressed else "summary"
    weight = max(load.cores, stalls.share if stalled else 0.0) * case.focus.seconds
    values, remedies = {"who": who, "blocked": stalls.blocked}, _remedies(case, culprit)
    return builder.found(severity, key, culprit=culprit, load=load, weight=weight, remedies=remedies, values=values)


def _remedies(case: Case, culprit: Culprit) -> tuple[Remedy, ...]:
    """The remedies for a process; the limit of what a cgroup writes only on v2, as v1 does not know whose pages its
    flusher writes (Documentation/admin-guide/cgroup-v1/blkio-controller.rst)."""
    version, root = controller_root(case, "io")
    owner, cgroup = owner_of(case, culprit.cgroup), culprit.cgroup
    chosen: list[Remedy] = []
    for each in CAUSE.remedies:
        if each.id != "limit-writer":
            chosen += aim((each,), target_of(culprit))
        elif version == V2 and owner.unit is not None and owner.container is None:
            template = "systemctl set-property --runtime {target} 'IOWriteBandwidthMax=DEVICE 100M'"
            chosen += aim((replace(each, template=template),), owner.unit)
        elif version == V2 and cgroup not in (None, "/"):
            template = each.template.replace("{root}", shlex.quote(root))
            chosen += aim((replace(each, template=template),), cgroup)
    return tuple(chosen)


def _add_writing(builder: EvidenceBuilder, case: Case, load: Load, *, pressed: bool) -> None:
    if not load.samples:
        return
    some = load.is_new and load.cores >= CAUSE.limit("some_cores")
    strength, samples = "held" if pressed else "some" if some else "little", case.samples
    quote = quote_share(case, load, present_functions(case, CAUSE.names))
    builder.add(Role.MECHANISM, "load", quote, strength=strength, load=load)
    # The busiest of the file system's own threads.
    weights = np.bincount(samples.comm[load.mask], samples.weight[load.mask], len(samples.comms))
    comms = [samples.comms[i] for i in np.argsort(-weights).tolist() if weights[i] > 0]
    journal = next((comm for comm in comms if comm.startswith(_JOURNALS)), None)
    if journal is not None:
        value = samples.time(samples.of_comms([journal]) & samples.within(case.focus))
        since, until, match = case.focus.since, case.focus.until, (("comm", journal),)
        quote = Evidence("samples", "weight_us", "sum", value, since, until, match=match, unit="us")
        builder.add(Role.MECHANISM, "journal", quote, thread=process_entity(journal))


def _add_dirty(builder: EvidenceBuilder, case: Case) -> None:
    """Add the pages that still have to be written."""
    node = case.now("node")
    waiting, usual = (rows.sums(("dirty", "writeback")) for rows in (node, case.before("node")))
    quotes = [quote_column(node, column, "max", "KiB") for column in ("dirty", "writeback")]
    room = node.lowest("mem_available")
    if np.isnan(waiting).all() or not room or quotes[0] is None:
        return
    most = float(np.nanmax(waiting))
    part = most / room
    risen = not np.isnan(usual).all() and most >= CAUSE.limit("rise") * float(np.nanmean(usual))
    more = risen and part >= CAUSE.limit("dirty_more")
    strength = "dirtied" if part >= CAUSE.limit("dirty") or more else 0.0
    builder.add(Role.MECHANISM, "dirty", *quotes, strength=strength, mib=most / 1024, part=part)


def _add_stalls(builder: EvidenceBuilder, case: Case, stalls: Stalls) -> None:
    some = None if stalls.some is None else stalls.some.evidence
    quotes = [quote_column(case.now("node"), "blocked", "max", "tasks"), some]
    if any(quotes):
        values: dict[str, object] = {"share": stalls.share, "blocked": stalls.blocked}
        values |= {"share_before": stalls.share_before, "blocked_before": stalls.blocked_before}
        strength = "stalls" if stalls.are("blocked") else 0.0
        builder.add(Role.SYMPTOM, "stalls", *quotes, strength=strength, values=values)
    if stalls.some is None:
        builder.doubt("no-psi")


def _add_writer(builder: EvidenceBuilder, case: Case, load: Load) -> tuple[Culprit, Entity | None]:
    """The process that dirties or syncs pages, as opposed to the kernel threads that write them out."""
    samples = case.samples
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
        quote = quote_share(case, writers, functions)
        builder.add(Role.CULPRIT, "writers", quote, load=writers, who=culprit.process, values=values)
        return culprit, culprit.process
    where = culprit.cgroup if culprit.cgroup != "/" else None
    values |= {"who": owner.entity, "part": owner.part}
    values["cgroup"] = Entity(EntityKind.CGROUP, where, where) if where else None
    quote = quote_share(case, writers, functions, owner.pid)
    builder.add(Role.CULPRIT, "writer", quote, strength="writer", at=writers.at, values=values)
    return culprit, owner.entity

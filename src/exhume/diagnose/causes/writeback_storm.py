"""More is written than the disk takes: writers are held back, and flushers and journals burn a core."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.core_hold import core_hold
from exhume.diagnose.evidence.impact import has_symptom, hurts_others
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import present_functions, quote_column, quote_share, told_load
from exhume.diagnose.evidence.rates import Rate, node_rate, rise_of
from exhume.model.finding import Culprit, Evidence, Role, RuledOut, Severity

CAUSE = catalogue()["writeback-storm"]
# Threads of file systems that carry the name of their device.
_JOURNALS = ("jbd2/", "xfsaild/", "xfs-", "btrfs-transacti")
_HUNG = "hung-task"


@dataclass(frozen=True, slots=True)
class Stalls:
    """How much tasks were held up by I/O: `some` and `full` as parts of the time (None where the kernel doesn't tell),
    `blocked` tasks at a time, now and before."""

    some: Rate | None
    blocked: float
    blocked_before: float | None
    iowait: float

    @property
    def share(self) -> float:
        """The part of the time in which somebody stood still; without pressure figures, the worst core's idle wait."""
        return self.iowait if self.some is None else min(1.0, self.some.now / 1e6)

    @property
    def share_before(self) -> float:
        return 0.0 if self.some is None or self.some.before is None else self.some.before / 1e6

    def are(self, limit: str) -> bool:
        """Whether it is a trouble: tasks stand still, more of them than that, and much more than before."""
        more = self.share - self.share_before >= CAUSE.limit("stalled_more")
        risen = self.blocked_before is None or self.blocked >= CAUSE.limit("rise") * self.blocked_before
        return self.share >= CAUSE.limit("stalled") and more and risen and self.blocked >= CAUSE.limit(limit)


@dataclass(frozen=True, slots=True)
class Held:
    """Seconds of a core that all writing took, and those that bringing it to the disk took by itself: flushers,
    journals, syncs and writers that are held back. A program that copies into files on its own time harms nobody."""

    by_writing: float
    by_pressing: float


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    out, into = node_rate(case, "pgpgout", "KiB"), rise_of(case, "pgpgin")
    if out is None:
        return builder.rule_out("what is written to disks was not counted")
    load = _load(case)
    held = _held(case, load)
    stalls = _stalls(case)
    takes_core = held.by_writing >= CAUSE.limit("seconds")
    if not takes_core and not stalls.are("blocked"):
        text = (
            f"writing took at most {load.peak:.0%} of a core, and {stalls.blocked:.1f} tasks at a time waited for disks"
        )
        return builder.rule_out(text)
    if not takes_core and into > CAUSE.limit("reads") * max(out.rise, 0.0):
        return builder.rule_out("more is read than written: it is reading that tasks wait for")
    if rise_of(case, "pswpout") * 4 > out.rise / 2:
        return builder.rule_out("what is written is mostly swap: memory is short")
    return _found(case, builder, load, out, stalls, held)


def _load(case: Case) -> Load:
    """The CPU time of writing to files that end on a disk: files in memory are nobody's burden."""
    sampled = case.samples
    return case.load_of(sampled.holding(CAUSE.names) & ~sampled.holding(CAUSE.named("in_memory")))


def _held(case: Case, load: Load) -> Held:
    if not load.samples:
        return Held(0.0, 0.0)
    share = CAUSE.limit("core_share")
    pressing = case.load_of(load.mask & case.samples.holding(CAUSE.named("pressing")))
    return Held(core_hold(case, load, share).seconds, core_hold(case, pressing, share).seconds)


def _stalls(case: Case) -> Stalls:
    node = case.now("node")
    before = case.before("node")
    return Stalls(
        node_rate(case, "psi_io_some", "us"),
        _mean(node.numbers("blocked")) or 0.0,
        _mean(before.numbers("blocked")) if len(before) else None,
        case.core_share(("iowait",))[0],
    )


def _mean(values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _found(case: Case, builder: EvidenceBuilder, load: Load, out: Rate, stalls: Stalls, held: Held) -> Found:  # noqa: PLR0917
    _add_writing(case, builder, load, held)
    far = out.is_far_above(CAUSE.limit("rise"))
    text = f"{out.now / 1024:,.0f} MiB a second were written"
    text += "" if out.before is None else f" (before: {out.before / 1024:,.0f})"
    builder.add(Role.MECHANISM, text, out.evidence, strength=0.45 if far else 0.0)
    _add_level(case, builder)
    stood = _add_stalls(case, builder, stalls)
    culprit, who = _culprit(case, builder, load)
    hung = [event for event in case.recording.events(case.focus) if event.kind == _HUNG]
    severity = _severity(case, load, held, hung=bool(hung), stood=stood, waited=stalls.share >= CAUSE.limit("waited"))
    summary = f"{who} spends {load.cores:.2f} cores on writing to files"
    if stood or held.by_pressing >= CAUSE.limit("seconds"):
        how = f"{stalls.blocked:.0f} tasks wait for it at a time" if stood else f"{load.cores:.2f} cores go to writing"
        summary = f"{who} writes more than the disk takes: {how}"
    weight = max(load.cores, stalls.share if stood else 0.0) * case.focus.seconds
    target = culprit.container or (str(culprit.pid) if culprit.pid is not None else who)
    remedies = aim(CAUSE.remedies, target)
    return builder.found(severity, summary, culprit=culprit, load=load, weight=weight, remedies=remedies)


def _severity(case: Case, load: Load, held: Held, *, hung: bool, stood: bool, waited: bool) -> Severity:
    pressed = held.by_pressing >= CAUSE.limit("seconds")
    # A flusher that keeps up with its disk keeps nobody waiting, however busy it is.
    felt = hurts_others(case, load.cpu) or (waited and has_symptom(case, load.cpu))
    if (pressed and felt and load.is_new) or (stood and hung):
        return Severity.CRITICAL
    if stood or (pressed and load.is_new) or felt:
        return Severity.WARNING
    return Severity.INFO


def _add_writing(case: Case, builder: EvidenceBuilder, load: Load, held: Held) -> None:
    if not load.samples:
        return
    names = present_functions(case, CAUSE.names)
    text = told_load(load, "writing to files")
    strong = 0.75 if held.by_pressing >= CAUSE.limit("seconds") else 0.4 if load.is_new and load.cores >= 0.1 else 0.15
    builder.add(Role.MECHANISM, text, quote_share(case, load, names), strength=strong, at=load.at)
    journals = [comm for comm in _comms(case, load) if comm.startswith(_JOURNALS)]
    if journals:
        text = f"the file system's own thread {journals[0]} is busy with it"
        builder.add(Role.MECHANISM, text, _time_of(case, journals[0]))


def _time_of(case: Case, comm: str) -> Evidence:
    """The CPU time of the threads with a name."""
    sampled = case.samples
    mask = sampled.of_comms([comm]) & sampled.within(case.focus)
    value = float(sampled.weight[mask].sum())
    since, until = case.focus.since, case.focus.until
    return Evidence("samples", "weight_us", "sum", value, since, until, match=(("comm", comm),), unit="us")


def _comms(case: Case, load: Load) -> list[str]:
    """The names of the threads of a load, the busiest first."""
    sampled = case.samples
    weights = np.bincount(sampled.comm[load.mask], sampled.weight[load.mask], len(sampled.comms))
    return [sampled.comms[i] for i in np.argsort(-weights).tolist() if weights[i] > 0]


def _add_level(case: Case, builder: EvidenceBuilder) -> None:
    """Pages that still have to be written: a tenth of the free memory is where the kernel begins to press."""
    node = case.now("node")
    waiting = node.sums(("dirty", "writeback"))
    known = waiting[~np.isnan(waiting)]
    room = node.lowest("mem_available")
    told = quote_column(node, "dirty", "max", "KiB")
    if not len(known) or not room or told is None:
        return
    before = case.before("node")
    usual = _mean(before.sums(("dirty", "writeback"))) if len(before) else None
    part = float(known.max()) / room
    full = part >= CAUSE.limit("dirty")
    more = usual is not None and known.max() >= CAUSE.limit("rise") * usual and part >= CAUSE.limit("dirty_more")
    text = f"up to {known.max() / 1024:,.0f} MiB waited to be written, {part:.1%} of the memory that is available"
    back = quote_column(node, "writeback", "max", "KiB")
    builder.add(Role.MECHANISM, text, *(each for each in (told, back) if each), strength=0.3 if full or more else 0.0)


def _add_stalls(case: Case, builder: EvidenceBuilder, stalls: Stalls) -> bool:
    """Tell who waits; True when that is what makes it a trouble."""
    blocked = quote_column(case.now("node"), "blocked", "max", "tasks")
    evidence: list[Evidence] = [each for each in (blocked, stalls.some and stalls.some.evidence) if each]
    stood = stalls.are("blocked_many")
    if evidence:
        text = f"tasks stood still for disks in {stalls.share:.0%} of the time, {stalls.blocked:.1f} at a time"
        if stalls.blocked_before is not None:
            text += f" (before: {stalls.share_before:.0%}, {stalls.blocked_before:.1f})"
        builder.add(Role.SYMPTOM, text, *evidence, strength=0.4 if stalls.are("blocked") else 0.0)
    if stalls.some is None:
        builder.doubt("this kernel tells no I/O pressure", 0.9)
    return stood


def _culprit(case: Case, builder: EvidenceBuilder, load: Load) -> tuple[Culprit, str]:
    """Whoever makes pages dirty or wants them on disk at once: not the threads of the kernel that do it for them."""
    sampled = case.samples
    if not load.samples:
        builder.doubt("who writes could not be seen", 0.9)
        return Culprit(), "something"
    mask = sampled.holding(CAUSE.named("writers")) & ~sampled.holding(CAUSE.named("kernel_threads"))
    writers = case.load_of(mask & load.mask)
    owner = writers.owner
    if owner is None:
        builder.doubt("who writes could not be seen", 0.9)
        return case.culprit(load, sampled.nearest(load.mask, CAUSE.names)), "something"
    function = sampled.nearest(writers.mask, CAUSE.named("writers"))
    culprit = case.culprit(writers, function)
    syncing = case.load_of(writers.mask & sampled.holding(CAUSE.named("syncing")))
    names = present_functions(case, CAUSE.named("writers"))
    sync = syncing.cores / max(writers.cores, 1e-9)
    how = ", most of it to have it on disk at once (fsync)" if sync >= 0.5 else ""
    if culprit.pid is None:
        who = culprit.comm or "many processes together"
        text = f"{who}: many processes write, {writers.cores:.2f} cores in all{how}"
        builder.add(Role.CULPRIT, text, quote_share(case, writers, names), at=writers.at)
        return culprit, who
    where = f" in {culprit.cgroup}" if culprit.cgroup and culprit.cgroup != "/" else ""
    text = f"{owner.comm} (pid {owner.pid}){where} does {owner.part:.0%} of the writing{how}"
    builder.add(Role.CULPRIT, text, quote_share(case, writers, names, owner.pid), strength=0.15, at=writers.at)
    return culprit, owner.comm

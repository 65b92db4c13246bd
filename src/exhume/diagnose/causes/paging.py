"""Memory pages: page fault storms of one program, automatic NUMA balancing, and compaction for huge pages."""

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found
from exhume.diagnose.evidence.case import Case, CoreHold
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import node_rate, present_functions, quote_column, quote_share, rise_of
from exhume.diagnose.evidence.rows import Floats
from exhume.diagnose.evidence.stack_cause import Answer, StackCause
from exhume.model.clock import NANOS
from exhume.model.finding import Culprit, Role, RuledOut, Severity
from exhume.model.tables import KERNEL_STATES

FAULTS = catalogue()["page-fault-storm"]
NUMA = catalogue()["numa-balancing"]
COMPACTION = catalogue()["compaction-thp"]
# Page size for recordings that don't have it; some aarch64 kernels use 16 or 64 KiB.
_PAGE = 4096
# Size of a page table entry in bytes; a page table is itself one page.
_ENTRY = 8
# The path that leads to compaction; the first group with most of the time is reported.
_PATHS = ("by_hand", "huge_pages", "background", "contiguous", "direct")


class PageFaultStorm(StackCause):
    """A program maps, touches and frees memory over and over, and its time goes to page faults."""

    def examine(self, builder: EvidenceBuilder, case: Case) -> Answer:
        if not case.has_stacks:
            return _faults_counted(builder, case)
        samples = case.samples
        # Starting and ending processes touches and frees memory as well, but that is another cause.
        load = case.load_of(samples.holding(FAULTS.names) & ~samples.holding(FAULTS.group("births")))
        hold = case.hold(load, FAULTS.limit("core_share"))
        if not self.is_present(case, hold):
            return builder.rule_out("share", peak=load.peak)
        alone = self._of_one_process(case, load)
        if alone is not None:
            # Other faults on the same node at the same time are a different matter.
            load, hold = alone
        for group in ("reclaim", "compaction", "numa", "reading"):
            # What the faults themselves wait for, if that is the cause.
            part = case.part_in(load, FAULTS.group(group))
            if part >= FAULTS.limit("inside"):
                return builder.rule_out(f"inside-{group}", part=part)
        against = None if alone is not None else self._others(builder, case, load)
        return against or self.conclude(builder, case, load, hold)

    def _of_one_process(self, case: Case, load: Load) -> tuple[Load, CoreHold] | None:
        """The part of a single process, if it alone holds a core, lasts from beginning to end and starts no others:
        then the faults come neither from starting processes nor from one that is killed and restarted."""
        if load.owner is None:
            return None
        samples = case.samples
        its = (samples.pid == load.owner.pid) & samples.within(case.focus)
        births = samples.time(its & samples.holding(FAULTS.group("births")))
        own = case.load_of(load.mask & its)
        hold = case.hold(own, FAULTS.limit("core_share"))
        if births >= FAULTS.limit("births_part") * samples.time(its) or not self.is_present(case, hold):
            return None
        # Other programs always take some page faults, which are not part of the storm.
        seconds = _by_second(case, load)
        storm = seconds >= FAULTS.limit("storm_part") * seconds.max()
        lasting = (_by_second(case, own) > 0)[storm].sum() >= FAULTS.limit("lasting") * storm.sum()
        return (own, hold) if lasting else None

    def _others(self, builder: EvidenceBuilder, case: Case, load: Load) -> RuledOut | None:
        """Rule the cause out if the faults come from processes that are killed or started: each takes hundreds when it
        starts."""
        kills, forks = node_rate(case, "oom_kill"), rise_of(case, "forks")
        if kills is not None and kills.evidence.value:
            return builder.rule_out("oom-kills", kills=kills.evidence.value)
        touched = _touched(case) / _page(case)
        if forks >= FAULTS.limit("births") and forks * FAULTS.limit("faults_per_birth") >= touched:
            return builder.rule_out("births", forks=forks)
        pids = len(set(case.samples.pid[load.mask].tolist()))
        if load.samples / max(pids, 1) < FAULTS.limit("samples_per_process"):
            return builder.rule_out("brief-processes", processes=pids)
        return None

    def collect(self, builder: EvidenceBuilder, case: Case, load: Load) -> dict[str, object]:
        faults = node_rate(case, "pgfault", "faults")
        if faults is None:
            builder.doubt("uncounted")
        else:
            # A core that does nothing else takes some hundred thousand faults per second, or some thousand faults of
            # huge pages.
            huge = rise_of(case, "thp_fault_alloc") / FAULTS.limit("huge_faults_per_core")
            worth = faults.rise / FAULTS.limit("faults_per_core") + huge
            enough = worth >= max(load.risen, 0.0) * FAULTS.limit("counted") and worth > 0
            counted = "counted_far" if faults.is_far_above(FAULTS.limit("rise")) else "counted_usual"
            builder.add(Role.MECHANISM, "faults", faults.evidence, strength=counted if enough else 0.0, rate=faults)
            if not enough and load.is_new:
                builder.doubt("too-few", "too_few_factor")
        part = case.part_in(load, FAULTS.group("freeing"))
        if part >= FAULTS.limit("freeing"):
            quote = quote_share(case, load, present_functions(case, FAULTS.group("freeing")))
            builder.add(Role.ROOT_CAUSE, "freeing", quote, strength="freed", at=load.at, part=part)
        filling = part < FAULTS.limit("freeing") and _is_filling(case)
        if filling:
            builder.doubt("filling", "filling_factor")
        return {"who": load.main_owner.entity if load.main_owner is not None else None, "filling": filling}

    def function(self, case: Case, load: Load) -> str | None:
        return case.samples.nearest(load.mask, FAULTS.group("named")) or super().function(case, load)

    def taken_seconds(self, case: Case, load: Load) -> float:
        return load.taken_s

    def severity(self, case: Case, load: Load, hold: CoreHold) -> Severity:
        filling = case.part_in(load, FAULTS.group("freeing")) < FAULTS.limit("freeing") and _is_filling(case)
        return Severity.INFO if filling else super().severity(case, load, hold)


def _by_second(case: Case, load: Load) -> Floats:
    """Cores' worth of a load in each second of the focus."""
    samples, seconds = case.samples, -(-case.focus.nanos // NANOS)
    second = (samples.wall[load.mask] - case.focus.since) // NANOS
    return np.bincount(second, samples.weight[load.mask] / 1e6, seconds).astype(np.float64)


def _is_filling(case: Case) -> bool:
    """Whether memory in use grew by about what was touched: a program that starts up, not one that reuses its
    memory."""
    available = case.now("node").numbers("mem_available")
    if len(available) < 2:
        return False
    grown, touched = float(available[0] - available[-1]) * 1024 / case.focus.seconds, _touched(case)
    return touched > 0 and grown >= FAULTS.limit("filling") * touched


def _touched(case: Case) -> float:
    """Bytes touched for the first time, per second, above the usual."""
    page = _page(case)
    return rise_of(case, "pgfault") * page + rise_of(case, "thp_fault_alloc") * page * (page // _ENTRY)


def _page(case: Case) -> int:
    return case.facts.page_bytes or _PAGE


def _faults_counted(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    """Without stacks: a core busy in the kernel, and enough faults to fill it."""
    faults = node_rate(case, "pgfault", "faults")
    share, cpu, _ = case.core_share(KERNEL_STATES)
    if faults is None or share < FAULTS.limit("kernel_share"):
        return builder.rule_out("idle")
    worth = faults.rise / FAULTS.limit("faults_of_a_core")
    if worth < FAULTS.limit("core_share") or not faults.is_far_above(FAULTS.limit("rise")):
        return builder.rule_out("few", rate=faults)
    if rise_of(case, "forks") * FAULTS.limit("faults_per_birth") >= faults.rise:
        return builder.rule_out("births-counted")
    if rise_of(case, "pgscan_direct") > 0 or rise_of(case, "oom_kill") > 0:
        return builder.rule_out("short")
    builder.add(Role.MECHANISM, "faults", faults.evidence, strength="counted_far", rate=faults)
    quote = quote_column(case.now("cpu").on(cpu), "system", "max", "permille", cpu)
    builder.add(Role.MECHANISM, "kernel", quote, strength="counted_usual", cpu=cpu, share=share)
    severity, weight = Severity.INFO if _is_filling(case) else Severity.WARNING, worth * case.focus.seconds
    return builder.found(severity, "summary-counted", culprit=Culprit(cpu=cpu), weight=weight, cpu=cpu)


class NumaBalancing(StackCause):
    def precheck(self, builder: EvidenceBuilder, case: Case) -> Answer | None:
        updates = node_rate(case, "numa_pte_updates", "pages")
        if updates is not None and not updates.evidence.value:
            return builder.rule_out("none")
        if case.has_stacks:
            return None
        many = updates is not None and updates.rise >= NUMA.limit("updates") * case.cores
        if updates is None or not many or not updates.is_far_above(NUMA.limit("rise")):
            return builder.rule_out("usual")
        builder.add(Role.MECHANISM, "unmapped", updates.evidence, strength="counted", rate=updates)
        return builder.found(Severity.INFO, "busier")

    def collect(self, builder: EvidenceBuilder, case: Case, load: Load) -> dict[str, object]:
        updates, moved = (node_rate(case, column, "pages") for column in ("numa_pte_updates", "numa_pages_migrated"))
        if updates is None:
            builder.doubt("uncounted", "uncounted_factor")
        else:
            strength = "counted" if updates.is_far_above(NUMA.limit("rise")) else "counted_usual"
            builder.add(Role.MECHANISM, "unmapped", updates.evidence, strength=strength, rate=updates)
        if moved is not None and moved.evidence.value:
            builder.add(Role.MECHANISM, "moved", moved.evidence, strength="moved", rate=moved)
        return {}


class Compaction(StackCause):
    def precheck(self, builder: EvidenceBuilder, case: Case) -> Answer | None:
        if case.has_stacks:
            return None
        stalls, rise = node_rate(case, "compact_stall", "stalls"), COMPACTION.limit("rise")
        if stalls is None or stalls.rise < COMPACTION.limit("stalls") or not stalls.is_far_above(rise):
            return builder.rule_out("no-stalls")
        builder.add(Role.MECHANISM, "stalls", stalls.evidence, strength="stalls_alone", rate=stalls)
        severity = Severity.WARNING if stalls.now >= COMPACTION.limit("many_stalls") else Severity.INFO
        return builder.found(severity, "stalling")

    def collect(self, builder: EvidenceBuilder, case: Case, load: Load) -> dict[str, object]:
        stalls, scanned = (
            node_rate(case, "compact_stall", "stalls"),
            node_rate(case, "compact_migrate_scanned", "pages"),
        )
        if stalls is not None and stalls.evidence.value:
            strength = "many_stalled" if stalls.rise >= COMPACTION.limit("stalls") else "few_stalled"
            builder.add(Role.MECHANISM, "stalls", stalls.evidence, strength=strength, rate=stalls)
        if scanned is None:
            builder.doubt("scans-uncounted", "uncounted_factor")
        else:
            enough = scanned.rise >= COMPACTION.limit("scanned_per_core") * max(load.risen, 0.0) and scanned.rise > 0
            builder.add(
                Role.MECHANISM, "scanned", scanned.evidence, strength="scanned" if enough else 0.0, rate=scanned
            )
        parts = {path: case.part_in(load, COMPACTION.group(path)) for path in _PATHS}
        main = next((path for path in _PATHS if parts[path] >= COMPACTION.limit("path_part")), None)
        functions = present_functions(case, COMPACTION.group(main) if main else COMPACTION.names)
        key = f"by-{main.replace('_', '-')}" if main else "by-fragmentation"
        builder.add(Role.ROOT_CAUSE, key, quote_share(case, load, functions), at=load.at)
        return {}

    def function(self, case: Case, load: Load) -> str | None:
        return case.samples.nearest(load.mask, COMPACTION.group("named"))

    def taken_seconds(self, case: Case, load: Load) -> float:
        # Compaction runs in many callers at once, so count seconds in which their sum takes a core as well.
        return load.taken_s


for cause, examiner in ((FAULTS, PageFaultStorm), (NUMA, NumaBalancing), (COMPACTION, Compaction)):
    examines(cause)(examiner(cause).examine)

"""Page migration by the kernel: automatic NUMA balancing, and compaction for huge pages."""

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.evidence.load import Load
from exhume.diagnose.evidence.quotes import present_functions, quote_share
from exhume.diagnose.evidence.rates import Rate, node_rate
from exhume.diagnose.evidence.samples import Names
from exhume.diagnose.evidence.stack_cause import Answer, StackCause
from exhume.model.finding import Role, Severity

NUMA = catalogue()["numa-balancing"]
COMPACTION = catalogue()["compaction-thp"]
# Which path leads to compaction; the first group that holds most of the time is reported.
_PATHS = ("by_hand", "huge_pages", "background", "contiguous", "direct")


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
    @property
    def named_functions(self) -> Names:
        return COMPACTION.group("named")

    def precheck(self, builder: EvidenceBuilder, case: Case) -> Answer | None:
        if case.has_stacks:
            return None
        stalls = node_rate(case, "compact_stall", "stalls")
        rise = COMPACTION.limit("rise")
        if stalls is None or stalls.rise < COMPACTION.limit("stalls") or not stalls.is_far_above(rise):
            return builder.rule_out("no-stalls")
        builder.add(Role.MECHANISM, "stalls", stalls.evidence, strength="stalls_alone", rate=stalls)
        severity = Severity.WARNING if stalls.now >= COMPACTION.limit("many_stalls") else Severity.INFO
        return builder.found(severity, "stalling")

    def collect(self, builder: EvidenceBuilder, case: Case, load: Load) -> dict[str, object]:
        stalls = node_rate(case, "compact_stall", "stalls")
        if stalls is not None and stalls.evidence.value:
            strength = "many_stalled" if stalls.rise >= COMPACTION.limit("stalls") else "few_stalled"
            builder.add(Role.MECHANISM, "stalls", stalls.evidence, strength=strength, rate=stalls)
        self._add_scanned(builder, load, node_rate(case, "compact_migrate_scanned", "pages"))
        path, functions = self._path(case, load)
        builder.add(Role.ROOT_CAUSE, f"by-{path}", quote_share(case, load, functions), at=load.at)
        return {}

    def taken_seconds(self, case: Case, load: Load) -> float:
        # Compaction runs in many callers at once: their sum takes a core as well.
        return load.taken_s

    def _add_scanned(self, builder: EvidenceBuilder, load: Load, scanned: Rate | None) -> None:
        if scanned is None:
            builder.doubt("scans-uncounted", "uncounted_factor")
            return
        enough = scanned.rise >= COMPACTION.limit("scanned_per_core") * max(load.risen, 0.0) and scanned.rise > 0
        strength = "scanned" if enough else 0.0
        builder.add(Role.MECHANISM, "scanned", scanned.evidence, strength=strength, rate=scanned)

    def _path(self, case: Case, load: Load) -> tuple[str, tuple[str, ...]]:
        """The functions that lead to most of it."""
        for path in _PATHS:
            if case.part_in(load, COMPACTION.group(path)) >= COMPACTION.limit("path_part"):
                return path.replace("_", "-"), present_functions(case, COMPACTION.group(path))
        return "fragmentation", present_functions(case, COMPACTION.names)


examines(NUMA)(NumaBalancing(NUMA).examine)
examines(COMPACTION)(Compaction(COMPACTION).examine)

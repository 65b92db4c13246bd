"""CPU time that is withheld: by a cgroup's quota, period after period, or by the hypervisor."""

import shlex
from dataclasses import dataclass, replace

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case, KnownProcess
from exhume.diagnose.evidence.quotes import quote_column
from exhume.diagnose.evidence.rows import Rows
from exhume.diagnose.facts.hierarchies import V2, controller_root
from exhume.diagnose.facts.owners import CgroupOwner, for_engine, for_pod, is_workload, owner_of
from exhume.model.clock import NANOS, Window
from exhume.model.finding import (
    Culprit,
    Entity,
    EntityKind,
    Place,
    Remedy,
    Role,
    RuledOut,
    Scope,
    Severity,
    process_entity,
)

QUOTA = catalogue()["cfs-throttling"]
STEAL = catalogue()["cpu-steal"]
# Niced programs leave their core to a throttled cgroup as well.
_ROOM = ("idle", "iowait", "nice")


@dataclass(frozen=True, slots=True)
class Throttled:
    """A throttled cgroup: the throttled fraction of its periods (now and before), and the seconds in which most of its
    periods were throttled."""

    cgroup: str
    share: float
    seconds: float
    before: float | None
    rows: Rows

    @property
    def is_risen(self) -> bool:
        """Whether it is throttled more than usual: one that is always throttled runs as the owner of its quota
        intended."""
        return self.before is None or self.share >= QUOTA.limit("rise") * self.before

    @property
    def is_slowed(self) -> bool:
        return self.share >= QUOTA.limit("slowed_share") and self.seconds >= QUOTA.limit("seconds")


@examines(QUOTA)
def cfs_throttling(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    throttled = _throttled_cgroups(case)
    if not throttled:
        return builder.rule_out("none")
    worst = throttled[0]
    cgroup, match = Entity(EntityKind.CGROUP, worst.cgroup, worst.cgroup), (("cgroup", worst.cgroup),)
    if worst.share < QUOTA.limit("reported_share"):
        return builder.rule_out("usual", cgroup=cgroup, share=worst.share)
    owner, known = owner_of(case, worst.cgroup), _member(case, worst.cgroup)
    if not owner and known is not None and known.pod is not None:
        owner = owner_of(case, known.cgroup).without_container()
    values = {
        "who": process_entity(known.comm, known.pid) if known is not None and known.comm is not None else None,
        "where": owner or None,
        "cgroup": cgroup,
        "share": worst.share,
        "quota": worst.rows.newest("quota"),
    }
    strength = "strong" if worst.seconds >= QUOTA.limit("seconds") else "weak"
    quotes = [quote_column(worst.rows, column, "sum", match=match) for column in ("throttled", "periods")]
    builder.add(Role.MECHANISM, "throttled", *quotes, strength=strength, before=worst.before, values=values)
    stopped = (worst.rows.total("throttled_ns") or 0) / NANOS
    quote = quote_column(worst.rows, "throttled_ns", "sum", "ns", match=match)
    builder.add(Role.CULPRIT, "stopped", quote, strength="weak", stopped=stopped, seconds=case.focus.seconds)
    _add_others(builder, case, worst, throttled)
    cpu = case.now("cpu")
    spans = cpu.numbers("span_ms")
    seconds = float(spans.sum()) / 1000 / max(1, len(np.unique(cpu.cpu)))
    idle = float((cpu.sums(_ROOM) * spans / 1e6).sum()) / max(seconds, 1e-9)
    if idle >= QUOTA.limit("idle_cores"):
        quotes = [quote_column(cpu, state, "mean", "permille") for state in _ROOM]
        builder.add(Role.ROOT_CAUSE, "idle", *quotes, strength="weak", cores=idle)
    culprit = Culprit() if known is None else case.culprit_of(known.pid, known.comm, None)
    container, pod_id = owner.container or culprit.container, owner.pod or culprit.pod
    culprit = replace(culprit, cgroup=worst.cgroup, container=container, pod=pod_id)
    severity, mostly = Severity.INFO, QUOTA.limit("most_periods")
    if worst.is_slowed:
        stands = worst.share >= mostly and worst.seconds >= QUOTA.limit("starved_seconds")
        room = idle >= QUOTA.limit("idle_cores")
        severity = Severity.CRITICAL if stands and worst.is_risen and room else Severity.WARNING
    scope = Scope.WORKLOAD if is_workload(worst.cgroup) else Scope.GROUP
    if scope is Scope.WORKLOAD:
        # A cgroup's own limit slows only its own workload: the node is well.
        severity = min(severity, Severity.WARNING, key=lambda each: each.rank)
    if owner.pod is not None and owner.container is None and known is not None:
        # A pod's limit is the sum of its containers' limits: the container that used most of it is the one that needs
        # more.
        owner = replace(owner, name_in_pod=owner_of(case, known.cgroup).name_in_pod)
    remedies = _quota_remedies(case, worst.cgroup, owner)
    return builder.found(
        severity,
        "summary",
        culprit=culprit,
        weight=worst.seconds,
        remedies=remedies,
        scope=scope,
        values=values,
    )


def _add_others(builder: EvidenceBuilder, case: Case, worst: Throttled, throttled: list[Throttled]) -> None:
    """Name the other slowed cgroups, except those above or below the worst: they contain the same processes."""
    named = [worst]
    for each in throttled[1:]:
        related = any(_is_above(each.cgroup, other.cgroup) or _is_above(other.cgroup, each.cgroup) for other in named)
        if not each.is_slowed or related or len(named) > QUOTA.limit("most_others"):
            continue
        named.append(each)
        match = (("cgroup", each.cgroup),)
        quotes = [quote_column(each.rows, column, "sum", match=match) for column in ("throttled", "periods")]
        values = {"cgroup": Entity(EntityKind.CGROUP, each.cgroup, each.cgroup), "share": each.share}
        values |= {"where": owner_of(case, each.cgroup) or None, "before": each.before}
        builder.add(Role.CULPRIT, "also", *quotes, values=values)


def _is_above(one: str, other: str) -> bool:
    return f"{other}/".startswith(f"{one.rstrip('/')}/")


def _throttled_cgroups(case: Case) -> list[Throttled]:
    """The throttled cgroups: those that are slowed more than usual first, then those that stood still longest."""
    rows, usual_time = case.now("throttling"), case.baseline
    if usual_time.empty:
        # A cgroup that is always throttled has no calm time: compare it with what was recorded before or after.
        span, focus = case.recording.span() or case.focus, case.focus
        earlier, later = (
            Window(min(span.since, focus.since), focus.since),
            Window(focus.until, max(span.until, focus.until)),
        )
        longer = max(earlier, later, key=lambda window: window.nanos)
        if longer.seconds >= QUOTA.limit("usual_seconds"):
            usual_time = longer
    before = case.read("throttling", usual_time)
    found = []
    for cgroup in sorted(set(rows.texts("cgroup"))):
        own = rows.matching("cgroup", cgroup)
        usual = None if usual_time.empty else _over(before.matching("cgroup", cgroup), usual_time.seconds)
        shares = own.numbers("throttled") / np.maximum(own.numbers("periods"), 1)
        seconds = float((shares >= QUOTA.limit("most_periods")).sum())
        found.append(Throttled(cgroup, _over(own, case.focus.seconds), seconds, usual, own))
    return sorted(found, key=lambda each: (not (each.is_slowed and each.is_risen), -each.seconds, -each.share))


def _over(rows: Rows, seconds: float) -> float:
    """The throttled fraction of all periods in a time. Only ticks with throttling have rows; assume as many periods in
    the others."""
    if not len(rows):
        return 0.0
    periods = rows.numbers("periods")
    all_periods = max(float(periods.sum()), float(np.median(periods)) * seconds)
    return float(rows.numbers("throttled").sum()) / max(all_periods, 1.0)


def _member(case: Case, cgroup: str) -> KnownProcess | None:
    """The process in that cgroup or below it with the most samples."""
    samples = case.samples
    now = samples.within(case.focus)
    pids = np.unique(samples.pid[now]).tolist()
    known = [case.processes[pid] for pid in pids if pid in case.processes]
    inside = [each for each in known if f"{each.cgroup}/".startswith(cgroup.rstrip("/") + "/")]
    return max(inside, key=lambda each: samples.time(now & (samples.pid == each.pid)), default=None)


def _quota_remedies(case: Case, cgroup: str, owner: CgroupOwner) -> tuple[Remedy, ...]:
    version, root = controller_root(case, "cpu")
    fitting = {
        "raise-container-quota": owner.target if owner.container is not None and owner.pod is None else None,
        "raise-unit-quota": owner.unit,
        "raise-cgroup-quota": cgroup if version == V2 else None,
        "raise-cgroup-quota-v1": cgroup if version != V2 else None,
    }
    chosen: list[Remedy] = []
    for each in QUOTA.remedies:
        target = fitting.get(each.id)
        if each.place is Place.CLUSTER:
            chosen += [for_pod(each, owner)] if owner.pod_name is not None else []
        elif target:
            rooted = replace(each, template=each.template.replace("{root}", shlex.quote(root)))
            chosen += aim((for_engine(rooted, owner),), target)
    return tuple(chosen)


@examines(STEAL)
def cpu_steal(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    rows = case.now("cpu")
    if not len(rows):
        return builder.rule_out("uncounted")
    shares = {cpu: (rows.on(cpu).mean("steal") or 0.0) / 1000 for cpu in np.unique(rows.cpu).tolist()}
    cpu = max(shares, key=lambda each: shares[each])
    share, own = shares[cpu], rows.on(cpu)
    if share < STEAL.limit("reported"):
        return builder.rule_out("share", share=share)
    most = (own.highest("steal") or 0) / 1000
    quotes = [quote_column(own, "steal", how, "permille", cpu) for how in ("mean", "max")]
    # Steal time is counted by the kernel: there is little to doubt.
    builder.add(Role.MECHANISM, "stolen", *quotes, strength="strong", cpu=cpu, share=share, worst=most)
    before = quote_column(case.before("cpu").on(cpu), "steal", "mean", "permille", cpu)
    if before is not None:
        builder.add(Role.CULPRIT, "before", before, share=float(before.value) / 1000)
    slowed = own.numbers("steal") >= 1000 * STEAL.limit("slowed")
    seconds = float(own.numbers("span_ms")[slowed].sum()) / 1000
    severity = Severity.WARNING if seconds >= STEAL.limit("seconds") else Severity.INFO
    if seconds >= STEAL.limit("starved_seconds") and share >= STEAL.limit("starved"):
        severity = Severity.CRITICAL
    cores = len(np.unique(rows.cpu[rows.numbers("steal") >= 1000 * STEAL.limit("slowed")]))
    values = {"cpu": cpu, "worst": most, "cores": cores if cores > 1 else None}
    weight = share * case.focus.seconds
    return builder.found(severity, "summary", culprit=Culprit(cpu=cpu), weight=weight, values=values)

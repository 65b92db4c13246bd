"""A cgroup has used up its CPU quota, period after period, and is throttled until the next one begins."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.causes import examines
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case, KnownProcess
from exhume.diagnose.evidence.rows import Rows
from exhume.diagnose.facts.owners import CgroupOwner, for_engine, owner_of
from exhume.model.clock import NANOS, Window
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

CAUSE = catalogue()["cfs-throttling"]
# Niced programs leave their core to it as well.
_ROOM = ("idle", "iowait", "nice")
_FOR_CONTAINER, _FOR_UNIT, _FOR_POD = "raise-container-quota", "raise-unit-quota", "raise-pod-limit"


@dataclass(frozen=True, slots=True)
class Throttled:
    """A cgroup in the focus: the throttled part of its periods, the seconds in which most periods were, and what that
    part was before."""

    cgroup: str
    share: float
    seconds: float
    before: float | None
    rows: Rows

    def quote(self, column: str, unit: str = "") -> Evidence:
        value, match = self.rows.total(column) or 0, (("cgroup", self.cgroup),)
        return Evidence("throttling", column, "sum", value, *_span(self.rows), match=match, unit=unit)


@examines(CAUSE)
def cfs_throttling(builder: EvidenceBuilder, case: Case) -> Found | RuledOut:
    worst = _worst(case)
    if worst is None:
        return builder.rule_out("none")
    cgroup = Entity(EntityKind.CGROUP, worst.cgroup, worst.cgroup)
    if worst.share < CAUSE.limit("reported_share"):
        return builder.rule_out("usual", cgroup=cgroup, share=worst.share)
    owner, known = owner_of(case, worst.cgroup), _member(case, worst.cgroup)
    pod = _pod_name(case, owner, known)
    if not owner and pod:
        owner = CgroupOwner(pod=owner.pod or (known.pod if known else None), pod_name=pod)
    values = {
        "who": process_entity(known.comm, known.pid) if known is not None and known.comm is not None else None,
        "where": owner or None,
        "cgroup": cgroup,
        "share": worst.share,
        "quota": worst.rows.newest("quota"),
    }
    strength = "strong" if worst.seconds >= CAUSE.limit("seconds") else "weak"
    quotes = (worst.quote("throttled"), worst.quote("periods"))
    builder.add(Role.MECHANISM, "throttled", *quotes, strength=strength, before=worst.before, values=values)
    stopped = (worst.rows.total("throttled_ns") or 0) / NANOS
    quote = worst.quote("throttled_ns", "ns")
    builder.add(Role.CULPRIT, "stopped", quote, strength="weak", stopped=stopped, seconds=case.focus.seconds)
    idle = _idle_cores(case)
    if idle is not None and idle[0] >= CAUSE.limit("idle_cores"):
        builder.add(Role.ROOT_CAUSE, "idle", *idle[1], strength="weak", cores=idle[0])
    return builder.found(
        _severity(worst, idle[0] if idle else 0.0),
        "summary",
        culprit=_culprit(worst.cgroup, owner, known),
        weight=worst.seconds,
        remedies=_remedies(worst, owner, pod),
        values=values,
    )


def _worst(case: Case) -> Throttled | None:
    rows, usual_time = case.now("throttling"), _usual_time(case)
    before = Rows("throttling", case.recording.read("throttling", usual_time))
    if not len(rows):
        return None
    names = rows.texts("cgroup")
    then = before.texts("cgroup") if len(before) else np.array([], object)
    found = []
    for cgroup in sorted(set(names)):
        own = rows.where(names == cgroup)
        earlier = before.where(then == cgroup) if len(before) else before
        usual = None if usual_time.empty else _over(earlier, usual_time.seconds)
        shares = own.numbers("throttled") / np.maximum(own.numbers("periods"), 1)
        seconds = float((shares >= CAUSE.limit("most_periods")).sum())
        found.append(Throttled(cgroup, _over(own, case.focus.seconds), seconds, usual, own))
    return max(found, key=lambda each: (each.seconds, each.share))


def _usual_time(case: Case) -> Window:
    """The time to compare with: the calm time, or where there is none what was recorded before or after; a cgroup that
    is always throttled has no calm time."""
    if not case.baseline.empty:
        return case.baseline
    span = case.recording.span() or case.focus
    earlier = Window(min(span.since, case.focus.since), case.focus.since)
    later = Window(case.focus.until, max(span.until, case.focus.until))
    longer = max(earlier, later, key=lambda window: window.nanos)
    return longer if longer.seconds >= CAUSE.limit("usual_seconds") else Window(case.focus.since, case.focus.since)


def _over(rows: Rows, seconds: float) -> float:
    """The throttled part of all periods of a time. Only ticks with throttling have rows; the others had periods too, as
    many as these."""
    if not len(rows):
        return 0.0
    periods, throttled = rows.numbers("periods"), rows.numbers("throttled")
    all_periods = max(float(periods.sum()), float(np.median(periods)) * seconds)
    return float(throttled.sum()) / max(all_periods, 1.0)


def _severity(worst: Throttled, idle: float) -> Severity:
    if worst.share < CAUSE.limit("slowed_share") or worst.seconds < CAUSE.limit("seconds"):
        return Severity.INFO
    # A cgroup that is always throttled runs as its owner chose the quota.
    risen = worst.before is None or worst.share >= CAUSE.limit("rise") * worst.before
    mostly = worst.share >= CAUSE.limit("most_periods") and worst.seconds >= CAUSE.limit("starved_seconds")
    return Severity.CRITICAL if mostly and risen and idle >= CAUSE.limit("idle_cores") else Severity.WARNING


def _idle_cores(case: Case) -> tuple[float, tuple[Evidence, ...]] | None:
    rows = case.now("cpu")
    if not len(rows):
        return None
    idle = rows.sums(_ROOM) * rows.numbers("span_ms") / 1e6
    quotes = tuple(
        Evidence("cpu", state, "mean", round(float(rows.numbers(state).mean()), 3), *_span(rows), unit="permille")
        for state in _ROOM
    )
    seconds = float(rows.numbers("span_ms").sum()) / 1000 / max(1, len(np.unique(rows.cpu)))
    return float(idle.sum()) / max(seconds, 1e-9), quotes


def _span(rows: Rows) -> tuple[int, int]:
    return int(rows.wall.min()), int(rows.wall.max()) + 1


def _member(case: Case, cgroup: str) -> KnownProcess | None:
    """The process of that cgroup, or below it, that was sampled most."""
    below = cgroup.rstrip("/") + "/"
    samples = case.samples
    now = samples.within(case.focus) if len(samples) else np.zeros(0, np.bool_)
    found: list[tuple[float, KnownProcess]] = []
    for pid in np.unique(samples.pid[now]).tolist() if now.any() else []:
        known = case.process(pid)
        path = known.cgroup if known is not None else None
        if known is not None and path is not None and (path == cgroup or path.startswith(below)):
            found.append((float(samples.weight[now & (samples.pid == pid)].sum()), known))
    return max(found, key=lambda each: each[0])[1] if found else None


def _culprit(cgroup: str, owner: CgroupOwner, known: KnownProcess | None) -> Culprit:
    if known is None:
        return Culprit(cgroup=cgroup, container=owner.container, pod=owner.pod)
    return Culprit(
        pid=known.pid,
        comm=known.comm,
        cmdline=known.cmdline,
        cgroup=cgroup,
        container=owner.container or known.container,
        pod=owner.pod or known.pod,
    )


def _pod_name(case: Case, owner: CgroupOwner, known: KnownProcess | None) -> str | None:
    """The pod's name; its uid where the name was not recorded."""
    pod = owner.pod or (known.pod if known else None)
    return None if pod is None else case.pod_names.get(pod, pod)


def _remedies(worst: Throttled, owner: CgroupOwner, pod: str | None) -> tuple[Remedy, ...]:
    fitting = {
        _FOR_CONTAINER: owner.target if owner.container is not None and pod is None else "",
        _FOR_UNIT: owner.unit or "",
        _FOR_POD: pod or "",
    }
    chosen: list[Remedy] = []
    for each in CAUSE.remedies:
        target = fitting.get(each.id, worst.cgroup)
        if target:
            chosen += aim((for_engine(each, owner),), target)
    return tuple(chosen)

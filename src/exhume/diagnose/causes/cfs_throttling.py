"""A cgroup has used up its CPU quota, period after period, and stands still until the next one begins."""

from dataclasses import dataclass

import numpy as np

from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.evidence.builder import EvidenceBuilder, Found, aim
from exhume.diagnose.evidence.case import Case, KnownProcess
from exhume.diagnose.evidence.rows import Rows
from exhume.diagnose.facts.owners import CgroupOwner, for_engine, owner_of
from exhume.model.clock import NANOS
from exhume.model.finding import Culprit, Evidence, Remedy, Role, RuledOut, Severity
from exhume.model.window import Window

CAUSE = catalogue()["cfs-throttling"]
# Programs that give way leave their core to it as well.
_ROOM = ("idle", "iowait", "nice")
# Which of the table's remedies fits whom.
_FOR_CONTAINER, _FOR_UNIT, _FOR_POD = "raise-container-quota", "raise-unit-quota", "raise-pod-limit"


@dataclass(frozen=True, slots=True)
class Held:
    """A cgroup in the focus: the part of its periods in which it was stopped, over how many seconds it was stopped in
    most of them, and what that was before."""

    cgroup: str
    share: float
    seconds: float
    before: float | None
    rows: Rows

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        match = (("cgroup", self.cgroup),)
        return tuple(
            Evidence("throttling", column, "sum", self.rows.total(column) or 0, *_span(self.rows), match=match)
            for column in ("throttled", "periods")
        )


def examine(case: Case) -> Found | RuledOut:
    builder = EvidenceBuilder(case, CAUSE)
    held = _worst(case)
    if held is None:
        return builder.rule_out("no cgroup was stopped by its CPU quota")
    if held.share < CAUSE.limit("told_share"):
        return builder.rule_out(f"{held.cgroup} was stopped in {held.share:.0%} of its periods: every quota does that")
    whose, known = owner_of(case, held.cgroup), _member(case, held.cgroup)
    pod = _pod_name(case, whose, known)
    who = whose.words or (f"pod {pod}" if pod else f"cgroup {held.cgroup}")
    if known is not None and known.comm is not None:
        who = f"{known.comm} in {who}"
    allowed = _allowed(held)
    builder.add(
        Role.MECHANISM,
        f"{who} was stopped in {held.share:.0%} of its periods{_before(held)}{allowed}",
        *held.evidence,
        strength=CAUSE.limit("strong") if held.seconds >= CAUSE.limit("seconds") else CAUSE.limit("weak"),
    )
    stood = held.rows.total("throttled_ns") or 0
    since, until = int(held.rows.wall.min()), int(held.rows.wall.max()) + 1
    told = Evidence(
        "throttling", "throttled_ns", "sum", stood, since, until, match=(("cgroup", held.cgroup),), unit="ns"
    )
    builder.add(
        Role.CULPRIT,
        f"its threads stood still for {stood / NANOS:.1f} s in {case.focus.seconds:.0f} s, added up over the cores",
        told,
        strength=CAUSE.limit("weak"),
    )
    idle = _idle_cores(case)
    if idle is not None and idle[0] >= CAUSE.limit("idle_cores"):
        text = f"meanwhile {idle[0]:.1f} cores' worth of time was idle: the quota is what it lacks, not a core"
        builder.add(Role.ROOT_CAUSE, text, *idle[1], strength=CAUSE.limit("weak"))
    severity = _severity(held, idle[0] if idle else 0.0)
    summary = f"{who} is stopped by its CPU quota in {held.share:.0%} of its periods{allowed}"
    return builder.found(
        severity,
        summary,
        culprit=_culprit(held.cgroup, whose, known),
        weight=held.seconds,
        remedies=_remedies(held, whose, pod),
    )


def _worst(case: Case) -> Held | None:
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
        found.append(Held(cgroup, _over(own, case.focus.seconds), seconds, usual, own))
    return max(found, key=lambda each: (each.seconds, each.share))


def _usual_time(case: Case) -> Window:
    """What to hold the focus against: the calm time, or where there is none what was recorded before or after it; a
    cgroup that is always stopped has no calm time."""
    if not case.baseline.empty:
        return case.baseline
    span = case.recording.span() or case.focus
    earlier = Window(min(span.since, case.focus.since), case.focus.since)
    later = Window(case.focus.until, max(span.until, case.focus.until))
    longer = max(earlier, later, key=lambda window: window.nanos)
    return longer if longer.seconds >= CAUSE.limit("usual_seconds") else Window(case.focus.since, case.focus.since)


def _over(rows: Rows, seconds: float) -> float:
    """The throttled part of all periods of a stretch. Only ticks with throttling have rows; the others had periods too,
    as many as these."""
    if not len(rows):
        return 0.0
    periods, throttled = rows.numbers("periods"), rows.numbers("throttled")
    all_periods = max(float(periods.sum()), float(np.median(periods)) * seconds)
    return float(throttled.sum()) / max(all_periods, 1.0)


def _severity(held: Held, idle: float) -> Severity:
    if held.share < CAUSE.limit("slowed_share") or held.seconds < CAUSE.limit("seconds"):
        return Severity.INFO
    # One that is always stopped lives with it: its owner chose the quota.
    risen = held.before is None or held.share >= 2 * held.before
    mostly = held.share >= CAUSE.limit("most_periods") and held.seconds >= CAUSE.limit("starved_seconds")
    return Severity.CRITICAL if mostly and risen and idle >= CAUSE.limit("idle_cores") else Severity.WARNING


def _idle_cores(case: Case) -> tuple[float, tuple[Evidence, ...]] | None:
    rows = case.now("cpu")
    if not len(rows):
        return None
    idle = rows.sums(_ROOM) * rows.numbers("span_ms") / 1e6
    told = tuple(
        Evidence("cpu", state, "mean", round(float(rows.numbers(state).mean()), 3), *_span(rows), unit="permille")
        for state in _ROOM
    )
    seconds = float(rows.numbers("span_ms").sum()) / 1000 / max(1, len(np.unique(rows.cpu)))
    return float(idle.sum()) / max(seconds, 1e-9), told


def _span(rows: Rows) -> tuple[int, int]:
    return int(rows.wall.min()), int(rows.wall.max()) + 1


def _allowed(held: Held) -> str:
    quota = held.rows.newest("quota")
    return "" if quota is None else f", which allows it {quota:.2g} cores"


def _before(held: Held) -> str:
    return "" if held.before is None else f" ({held.before:.0%} before)"


def _member(case: Case, cgroup: str) -> KnownProcess | None:
    """The process of that cgroup, or below it, that was sampled most."""
    below = cgroup.rstrip("/") + "/"
    sampled = case.samples
    now = sampled.within(case.focus) if len(sampled) else np.zeros(0, np.bool_)
    found: list[tuple[float, KnownProcess]] = []
    for pid in np.unique(sampled.pid[now]).tolist() if now.any() else []:
        known = case.process(pid)
        if (
            known is not None
            and known.cgroup is not None
            and (known.cgroup == cgroup or known.cgroup.startswith(below))
        ):
            found.append((float(sampled.weight[now & (sampled.pid == pid)].sum()), known))
    return max(found, key=lambda each: each[0])[1] if found else None


def _culprit(cgroup: str, whose: CgroupOwner, known: KnownProcess | None) -> Culprit:
    if known is None:
        return Culprit(cgroup=cgroup, container=whose.container, pod=whose.pod)
    return Culprit(
        pid=known.pid,
        comm=known.comm,
        cmdline=known.cmdline,
        cgroup=cgroup,
        container=whose.container or known.container,
        pod=whose.pod or known.pod,
    )


def _pod_name(case: Case, whose: CgroupOwner, known: KnownProcess | None) -> str | None:
    """What the pod is called; its uid where that was not recorded."""
    pod = whose.pod or (known.pod if known else None)
    return None if pod is None else case.pod_names.get(pod, pod)


def _remedies(held: Held, whose: CgroupOwner, pod: str | None) -> tuple[Remedy, ...]:
    fitting = {
        _FOR_CONTAINER: whose.target if whose.container is not None and pod is None else "",
        _FOR_UNIT: whose.unit or "",
        _FOR_POD: pod or "",
    }
    chosen: list[Remedy] = []
    for each in CAUSE.remedies:
        target = fitting.get(each.id, held.cgroup)
        if target:
            chosen += aim((for_engine(each, whose),), target)
    return tuple(chosen)

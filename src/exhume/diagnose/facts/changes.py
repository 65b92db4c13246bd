"""What changed just before a focus: units, containers, cgroups and processes that started, and limits that were set.

What starts again and again is not a change. A finding names a change only if it concerns something that the finding
names: a coincidence on a busy node explains nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from exhume.diagnose import messages
from exhume.diagnose.catalogue import thresholds
from exhume.diagnose.evidence.case import Case
from exhume.diagnose.facts.lifetimes import path_pattern
from exhume.model.clock import NANOS, Window
from exhume.model.finding import Entity, EntityKind, Evidence, Finding, Link, Role, process_entity

_LIMITS = ("shares", "quota", "cores")


@dataclass(frozen=True, slots=True)
class Change:
    """A change at a wall time: the message `code` with its `values`, the entity it concerns, and the recorded
    evidence."""

    code: str
    at: int
    about: Entity
    evidence: Evidence
    values: messages.Values


def _limit(name: str) -> float:
    return float(thresholds("changes")[name])


def with_changes(case: Case, finding: Finding) -> Finding:
    """Return the finding with the changes just before it that concern what it names, the newest first."""
    found = sorted(_changes(case, finding), key=lambda each: -each.at)[: int(_limit("most"))]
    links = tuple(_link(case, each) for each in found)
    return replace(finding, chain=(*finding.chain, *links)) if links else finding


def _link(case: Case, change: Change) -> Link:
    ago = (case.focus.since - change.at) / NANOS
    values = {**change.values, "who": change.about, "ago": ago if ago >= 1 else None}
    text = messages.render(change.code, values)
    return Link(Role.ROOT_CAUSE, change.at, text, (change.evidence,), change.code, (change.about,))


def _changes(case: Case, finding: Finding) -> Iterator[Change]:
    """The changes that concern what a finding names. A process that started adds nothing to its container or unit."""
    since = case.focus.since
    span = Window(since - round(_limit("before_s") * NANOS), since + round(_limit("after_s") * NANOS))
    owners = [*_events(case, span), *_limits(case, span), *_cgroups(case, span)]
    named = [each for each in owners if _concerns(each.about, finding)]
    seen: set[Entity] = set()
    for each in named:
        if each.about not in seen:
            seen.add(each.about)
            yield each
    if not named:
        yield from _processes(case, span, finding)


def _concerns(entity: Entity, finding: Finding) -> bool:
    culprit = finding.culprit
    if entity.kind is EntityKind.CGROUP:
        return entity.id in {each.id for each in finding.entities if each.kind is entity.kind} | {culprit.cgroup}
    return finding.names(entity.id, entity.kind) or finding.names(entity.name, entity.kind)


def _events(case: Case, span: Window) -> Iterator[Change]:
    """Units and containers that were started, and deployments recorded as events."""
    kinds: list[str] = thresholds("changes")["kinds"]
    rows = case.read("events", Window(span.since - round(_limit("again_s") * NANOS), span.until)).matching(
        "kind", *kinds
    )
    columns = ("wall", "kind", "comm", "container", "container_name", "pod", "pod_name")
    listed = rows.listed(*columns)
    often = Counter((kind, unit, name) for _, kind, unit, _, name, _, _ in listed)
    for wall, kind, unit, container, name, pod, pod_name in listed:
        if not span.since <= wall < span.until or often[kind, unit, name] > 1:
            continue
        quote = Evidence("events", "kind", "first", kind, wall, wall + 1, match=(("kind", kind),))
        # A pod's container concerns both: findings name either the container or the pod.
        if container:
            yield Change("change.started", wall, Entity(EntityKind.CONTAINER, container, name or container), quote, {})
        if pod:
            yield Change("change.started", wall, Entity(EntityKind.POD, pod, pod_name or pod), quote, {})
        if unit and not container:
            yield Change("change.started", wall, Entity(EntityKind.UNIT, unit, unit), quote, {})


def _limits(case: Case, span: Window) -> Iterator[Change]:
    """Cgroup limits that changed."""
    rows = case.read("cgroup_cpu", Window(span.since - round(_limit("again_s") * NANOS), case.focus.until))
    known: dict[str, tuple[object, ...]] = {}
    for wall, cgroup, *values in sorted(rows.listed("wall", "cgroup", *_LIMITS), key=lambda row: (row[1], row[0])):
        before, known[cgroup] = known.get(cgroup), tuple(values)
        if before is None or not span.since <= wall < case.focus.until:
            continue
        for column, old, new in zip(_LIMITS, before, values, strict=True):
            if old == new or new is None:
                continue
            quote = Evidence("cgroup_cpu", column, "first", new, wall, wall + 1, match=(("cgroup", cgroup),))
            limits = {"old": None if old is None else _shown(old), "new": _shown(new)}
            yield Change(f"change.{column}", wall, Entity(EntityKind.CGROUP, cgroup, cgroup), quote, limits)


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _cgroups(case: Case, span: Window) -> Iterator[Change]:
    """Cgroups that were created, except in places where they come and go."""
    rows = case.read("cgroup_events", Window(span.since - round(_limit("again_s") * NANOS), span.until))
    made = [row for row in rows.matching("op", "mkdir").listed("wall", "path", "comm") if row[1]]
    # On v1 each hierarchy has its own cgroup with the same path: count the path once.
    places = Counter(path_pattern(path) for path in {path for _, path, _ in made})
    for wall, path, comm in made:
        if span.since <= wall < span.until and places[path_pattern(path)] == 1:
            quote = Evidence("cgroup_events", "path", "first", path, wall, wall + 1, match=(("path", path),))
            maker = process_entity(comm) if comm else None
            yield Change("change.made", wall, Entity(EntityKind.CGROUP, path, path), quote, {"maker": maker})


def _processes(case: Case, span: Window, finding: Finding) -> Iterator[Change]:
    """The culprits among the processes that started, if no other process with the same command is known."""
    pids = {each.id for each in finding.entities if each.kind is EntityKind.PROCESS and each.id}
    pids |= {str(finding.culprit.pid)} if finding.culprit.pid is not None else set()
    names = {each.name for each in finding.entities if each.kind is EntityKind.PROCESS and not each.id}
    rows = case.recorded("processes", _limit("again_s") + case.focus.seconds)
    listed = list(_begun(rows.listed("wall", "time", "pid", "start", "comm", "cmdline")))
    alike = Counter((comm, command) for _, _, comm, command, _, _ in listed)
    for pid, began, comm, command, wall, start in listed:
        wanted = str(pid) in pids or (not pids and comm in names)
        if wanted and span.since <= began < span.until and alike[comm, command] == 1:
            match = (("pid", str(pid)),)
            quote = Evidence("processes", "start", "max", start, wall, wall + 1, match=match, unit="ns")
            yield Change("change.started", began, process_entity(comm, pid), quote, {})


def _begun(
    rows: Iterable[tuple[int, int, int, int | None, str, str | None]],
) -> Iterator[tuple[int, int, str, str, int, int]]:
    """The newest row of each process with its start: pid, start (wall), name, command line, wall time of the row,
    start."""
    newest = {row[2]: row for row in rows if row[3] is not None}
    for pid, (wall, moment, _, start, comm, command) in newest.items():
        if start is not None:
            # `time` and `start` are both on CLOCK_MONOTONIC.
            yield pid, wall - moment + start, comm, command or "", wall, start

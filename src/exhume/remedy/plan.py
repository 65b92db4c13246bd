"""Turn a target into a plan: the services it refers to, the action for each, and the remaining zombies."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path

from exhume.collect.cgroup.census import take_census
from exhume.collect.cgroup.pins import KnownPins
from exhume.diagnose.catalogue import catalogue
from exhume.diagnose.growth import THRESHOLDS
from exhume.model.audit import Audit, Manager, Service
from exhume.model.clock import SystemClock
from exhume.model.errors import ExhumeError, UsageError
from exhume.model.finding import Finding
from exhume.model.remedy import NotIncluded, Plan, Step
from exhume.model.stop import Stop
from exhume.model.text import count, listed
from exhume.model.times import format_moment
from exhume.remedy.audit import take_audit
from exhume.remedy.ledger import SavedPlan, new_id
from exhume.remedy.services.actions import CPU_WEIGHT
from exhume.remedy.services.node import Node
from exhume.remedy.services.planner import Planner, check_target, choose, fingerprints, manager_of, unneeded
from exhume.remedy.services.refusals import look_around
from exhume.remedy.services.steps import Selection
from exhume.remedy.zombies.apply import free_zombies_step
from exhume.remedy.zombies.plan import make_plan
from exhume.remedy.zombies.situation import Scope, Watch
from exhume.store.read.recording import Recording

ZOMBIES, EVERYTHING = "zombies", "everything that is in trouble and not needed"

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The input of a plan. `find` returns the finding of a cause, `recording` the recording of this boot and a note if
    there is none; each is called only if needed. `known` keeps the files that pin zombies for when the plan is
    applied; `stop` ends the search for them early."""

    target: str | None
    work_dir: Path
    find: Callable[[str], Finding]
    force_required: bool = False
    free_zombies: bool = True
    cpu_weight: int | None = None
    scope: Scope = field(default_factory=Scope)
    recording: Callable[[], tuple[Recording | None, str]] = lambda: (None, "")
    progress: Progress = lambda stage, share: None
    known: KnownPins = field(default_factory=KnownPins)
    stop: Stop | None = None


@dataclass(frozen=True, slots=True)
class Resolved:
    """The services, steps for a person and zombies that a target resolves to."""

    target: str
    selected: tuple[Selection, ...] = ()
    by_hand: tuple[Step, ...] = ()
    zombies: bool = False
    blind_spots: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    not_included: tuple[NotIncluded, ...] = ()
    containers: tuple[Service, ...] = ()


def plan_fix(node: Node, request: PlanRequest) -> SavedPlan:
    """Make the plan for a target, with the state that it was based on. Raises ExhumeError."""
    now = SystemClock().wall_ns()
    fix = new_id(now)
    steps: list[Step] = []
    if request.target == ZOMBIES:
        plan = _zombie_plan(node, request)
    else:
        resolved = resolve(node, request)
        planner = Planner(
            node.controls,
            node.files,
            look_around(node.root.host),
            fix,
            format_moment(now, UTC, digits=0),
            force_required=request.force_required,
            containers=resolved.containers,
            cpu_weight=request.cpu_weight,
        )
        steps, refused = planner.steps(resolved.selected)
        # A service that keeps running, with a lower CPU weight, may keep leaking.
        free = resolved.zombies and request.free_zombies and request.cpu_weight is None
        zombies = _zombie_step(node, request) if free else None
        ordered = (*steps, *([zombies] if zombies else []), *resolved.by_hand)
        plan = Plan(
            target=resolved.target,
            count=None,
            summary=summary_of(resolved, ordered),
            steps=ordered,
            blind_spots=resolved.blind_spots,
            refusals=(*resolved.refusals, *refused),
            not_included=resolved.not_included,
        )
    prints = fingerprints(steps, node.controls)
    return SavedPlan(fix, plan, node.name, node.machine, str(node.root.path), node.boot_id, now, prints)


def resolve(node: Node, request: PlanRequest) -> Resolved:
    """Resolve a target other than zombies. Raises ExhumeError."""
    target = request.target
    if target is None:
        many = (take_census(node.root.host).dying or 0) >= THRESHOLDS.many
        audit = _audited(node, request)
        taken, not_included = unneeded(audit)
        return Resolved(
            EVERYTHING,
            tuple(taken),
            zombies=many,
            blind_spots=audit.blind_spots,
            not_included=tuple(not_included),
            containers=_containers(audit),
        )
    if manager_of(target) is None and target in catalogue():
        return _of_finding(node, request, target)
    return _of_services(node, request, target, [target])


def _of_services(node: Node, request: PlanRequest, target: str, names: list[str], cause: str = "") -> Resolved:
    # An impossible target is reported before the audit; of several named by a finding, each is reported by itself.
    if not cause:
        check_target(target, node.controls)
    audit = _audited(node, request)
    selected, refused = [], []
    for name in names:
        try:
            selected.append(replace(choose(name, audit.services, node.controls), cause=cause))
        except ExhumeError as error:
            # A service that is gone is no reason to leave out the others.
            if not cause:
                raise
            refused.append(str(error))
    leaks = any(each.service.costs is not None and each.service.costs.cgroups_leaked for each in selected)
    return Resolved(
        target if cause or not selected else selected[0].service.key,
        tuple(selected),
        zombies=leaks,
        blind_spots=audit.blind_spots,
        refusals=tuple(refused),
        containers=_containers(audit),
    )


def _containers(audit: Audit) -> tuple[Service, ...]:
    return tuple(each.service for each in audit.services if each.service.manager is not Manager.SYSTEMD)


def _audited(node: Node, request: PlanRequest) -> Audit:
    """The audit of the node; empty, with the reason, if no service manager is reachable."""
    recording, note = request.recording()
    try:
        return take_audit(node.root, recording=recording, note=note, progress=request.progress)
    except ExhumeError as error:
        return Audit(node.name, 0, blind_spots=(str(error),))


def _of_finding(node: Node, request: PlanRequest, cause: str) -> Resolved:
    """Resolve the remedies of a finding: what exhume can do, then what is left to a person."""
    finding = request.find(cause)
    targets = dict.fromkeys(each.fix_target for each in finding.remedies if each.fix_target is not None)
    services = [target for target in targets if target != ZOMBIES]
    by_hand = tuple(
        Step(
            id=remedy.id,
            title=remedy.text,
            why=finding.summary,
            commands=(remedy.command,) if remedy.command else (),
            reversible=remedy.reversible,
            undo="up to the person who does it",
        )
        for remedy in finding.remedies
        if remedy.fix_target is None
    )
    resolved = _of_services(node, request, cause, services, cause) if services else Resolved(cause)
    return replace(resolved, by_hand=by_hand, zombies=resolved.zombies or ZOMBIES in targets)


def _zombie_plan(node: Node, request: PlanRequest) -> Plan:
    """A plan for zombies alone: one step that frees them, in parts, and what is left to a person."""
    plan = _look_at_zombies(node, request)
    known = [step.id for step in plan.steps if step.automatic]
    for name in request.scope.only:
        if name not in known:
            raise UsageError(f"the plan has no step {name!r}; it has {', '.join(known) or 'none'}")
    step = free_zombies_step(plan, request.scope)
    by_hand = (each for each in plan.steps if not each.automatic)
    return replace(plan, steps=(*([step] if step else []), *by_hand))


def _zombie_step(node: Node, request: PlanRequest) -> Step | None:
    """The step that frees zombies once the services are stopped; None if there are none, or no more than normal."""
    dying = take_census(node.root.host).dying
    if dying is not None and dying <= THRESHOLDS.normal:
        return None
    return free_zombies_step(_look_at_zombies(node, request), request.scope)


def _look_at_zombies(node: Node, request: PlanRequest) -> Plan:
    scope = request.scope
    watch = Watch(node.root.host, request.work_dir, scope.below, scope.search, known=request.known, stop=request.stop)
    return make_plan(watch.situation(lambda share: request.progress("searching for files that pin zombies", share)))


def summary_of(resolved: Resolved, steps: tuple[Step, ...]) -> str:
    """Summarise the plan in a sentence."""
    names = listed([each.service.key for each in resolved.selected])
    automatic = [step for step in steps if step.automatic]
    if not steps and resolved.not_included:
        few = count(len(resolved.not_included), "service is", "services are")
        return f"Nothing is done unless it is named: {few} in trouble and not needed, but only as it never worked."
    if not steps and resolved.target == EVERYTHING:
        return "There is nothing to do: nothing is in trouble that is not needed."
    if not steps:
        return f"There is nothing to do about {resolved.target}."
    if not automatic:
        return f"{resolved.target}: {count(len(steps), 'step')}, for a person to take."
    if all(step.action == CPU_WEIGHT for step in automatic):
        return f"{resolved.target}: lower the CPU weight of {names}, in {count(len(automatic), 'step')}."
    what = f"stop {names}, and keep it from being started again" if names else "free the zombies"
    return f"{resolved.target}: {what}, in {count(len(automatic), 'step')}."

"""From a TARGET to a plan: the services that it means, what is done to each, and the zombies that are left."""

from argparse import Namespace
from dataclasses import dataclass, replace
from datetime import UTC
from typing import TYPE_CHECKING

from exhume.cli.args import value_of
from exhume.model.audit import Audit, Manager, Service
from exhume.model.clock import SystemClock
from exhume.model.errors import ExhumeError, UsageError
from exhume.model.remedy import Plan, Step, Unasked
from exhume.model.settings import DIR
from exhume.model.text import count, listed
from exhume.remedy.ledger import new_id
from exhume.remedy.plans import SavedPlan
from exhume.remedy.services.node import Node

if TYPE_CHECKING:
    from exhume.model.finding import Finding
    from exhume.remedy.services.chosen import Chosen

ZOMBIES, EVERYTHING = "zombies", "everything that is in trouble and not needed"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a target came down to."""

    target: str
    chosen: tuple["Chosen", ...] = ()
    by_hand: tuple[Step, ...] = ()
    zombies: bool = False
    blind_spots: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    not_included: tuple[Unasked, ...] = ()
    containers: tuple[Service, ...] = ()


def make_saved_plan(node: Node, options: Namespace) -> SavedPlan:
    """The plan for what was asked for, with the state that it was made from. Raises ExhumeError."""
    from exhume.model.times import format_moment
    from exhume.remedy.services.fingerprint import fingerprints
    from exhume.remedy.services.plan import Planner
    from exhume.remedy.services.surroundings import look_around

    now = SystemClock().wall_ns()
    fix = new_id(now)
    wanted = _wanted(node, options)
    when = format_moment(now, UTC, digits=0)
    planner = Planner(
        node.controls,
        node.files,
        look_around(node.root.host),
        fix,
        when,
        force_required=options.force_required,
        containers=wanted.containers,
    )
    steps, refused = planner.steps(wanted.chosen)
    zombies = _zombie_step(node, options) if wanted.zombies and not options.no_zombies else None
    ordered = (*steps, *([zombies] if zombies else []), *wanted.by_hand)
    plan = Plan(
        target=wanted.target,
        count=None,
        summary=_summary(wanted, ordered),
        steps=ordered,
        blind_spots=wanted.blind_spots,
        refusals=(*wanted.refusals, *refused),
        not_included=wanted.not_included,
    )
    prints = fingerprints(steps, node.controls)
    return SavedPlan(fix, plan, node.name, node.machine, str(node.root.path), node.boot_id, now, prints)


def _wanted(node: Node, options: Namespace) -> Wanted:
    from exhume.diagnose.catalogue import catalogue
    from exhume.remedy.services.choose import manager_of

    target = options.target
    if target == ZOMBIES:
        return Wanted(ZOMBIES, zombies=True)
    if target is None:
        return _everything(node, options)
    if manager_of(target) is None and target in catalogue():
        return _of_finding(node, options, target)
    return _of_services(node, options, target, [target])


def _everything(node: Node, options: Namespace) -> Wanted:
    from exhume.collect.cgroup.census import take_census
    from exhume.diagnose.zombies import THRESHOLDS
    from exhume.remedy.services.choose import unneeded

    many = (take_census(node.root.host).dying or 0) >= THRESHOLDS.many
    audit = _audited(node, options)
    taken, unasked = unneeded(audit)
    return Wanted(
        EVERYTHING,
        tuple(taken),
        (),
        many,
        audit.blind_spots,
        not_included=tuple(unasked),
        containers=_containers(audit),
    )


def _of_services(node: Node, options: Namespace, target: str, names: list[str], cause: str = "") -> Wanted:
    from exhume.remedy.services.choose import check_target, choose

    # What can't be is told before everything is looked at; of several that a finding names, each is told by itself.
    if not cause:
        check_target(target, node.controls)
    audit = _audited(node, options)
    chosen, refused = [], []
    for name in names:
        try:
            chosen.append(replace(choose(name, audit.services, node.controls), cause=cause))
        except ExhumeError as error:
            # One that is gone is no reason to leave the others.
            if not cause:
                raise
            refused.append(str(error))
    leaks = any(each.service.costs is not None and each.service.costs.cgroups_leaked for each in chosen)
    named = target if cause or not chosen else chosen[0].service.key
    return Wanted(
        named,
        tuple(chosen),
        zombies=leaks,
        blind_spots=audit.blind_spots,
        refusals=tuple(refused),
        containers=_containers(audit),
    )


def _containers(audit: Audit) -> tuple[Service, ...]:
    return tuple(each.service for each in audit.services if each.service.manager is not Manager.SYSTEMD)


def _audited(node: Node, options: Namespace) -> Audit:
    """What runs here, judged; nothing, and the reason, where nobody can be asked."""
    from exhume.cli.auditing import open_recording, take_audit
    from exhume.cli.terminal import StagedProgress

    # What a service costs is told by a recording, where there is one of this boot.
    recording, note = open_recording(node.root, value_of(options, DIR), given=False)
    try:
        with StagedProgress() as progress:
            return take_audit(node.root, recording=recording, note=note, progress=progress)
    except ExhumeError as error:
        return Audit(node.name, 0, blind_spots=(str(error),))


def _of_finding(node: Node, options: Namespace, cause: str) -> Wanted:
    """The remedies of a finding: what exhume can do itself, then what is left for a person."""
    finding = _finding(options, cause)
    ours = [remedy.fix_target for remedy in finding.remedies if remedy.fix_target is not None]
    services = [target for target in dict.fromkeys(ours) if target != ZOMBIES]
    by_hand = tuple(
        Step(
            id=remedy.id,
            title=remedy.text,
            why=finding.summary,
            commands=(remedy.command,) if remedy.command else (),
            reversible=remedy.reversible,
            undo="up to whoever does it",
        )
        for remedy in finding.remedies
        if remedy.fix_target is None
    )
    wanted = _of_services(node, options, cause, services, cause) if services else Wanted(cause)
    return replace(wanted, by_hand=by_hand, zombies=wanted.zombies or ZOMBIES in ours)


def _finding(options: Namespace, cause: str) -> "Finding":
    from exhume.cli.commands.diagnose import find_target
    from exhume.cli.recording_args import RecordingView
    from exhume.cli.terminal import ProgressBar
    from exhume.diagnose.engine import diagnose
    from exhume.store.read.cached import CachedRecording

    when = Namespace(**vars(options), last=None, since=None, until=None, utc=False)
    view = RecordingView.open(when)
    view = replace(view, recording=CachedRecording(view.recording))
    asked = find_target(view, when)
    if asked.window.empty:
        raise UsageError("nothing was recorded at that time; exhume info tells what is recorded")
    with ProgressBar("diagnosing") as bar:
        found = diagnose(view.recording, asked.window, at=asked.at, progress=bar)
    fitting = [finding for finding in found.findings if finding.cause == cause]
    if not fitting:
        others = listed([finding.cause for finding in found.findings]) or "nothing"
        raise UsageError(f"the recording shows no {cause} at that time, but {others}; choose another moment with --at")
    return fitting[0]


def _zombie_step(node: Node, options: Namespace) -> Step | None:
    """What frees zombies; None where there is nothing to free, or so few that it is normal."""
    from exhume.cli.terminal import ProgressBar
    from exhume.collect.cgroup.census import take_census
    from exhume.diagnose.zombies import THRESHOLDS
    from exhume.remedy.services.effects import zombies_freed
    from exhume.remedy.zombies.as_step import as_step
    from exhume.remedy.zombies.look import Watch
    from exhume.remedy.zombies.plan import make_plan

    dying = take_census(node.root.host).dying
    if options.target != ZOMBIES and dying is not None and dying <= THRESHOLDS.normal:
        return None
    with ProgressBar("looking at zombies") as bar:
        step = as_step(make_plan(Watch(node.root.host, options.work_dir.absolute()).situation(bar)))
    return None if step is None else replace(step, effects=zombies_freed())


def _summary(wanted: Wanted, steps: tuple[Step, ...]) -> str:
    names = listed([each.service.key for each in wanted.chosen])
    automatic = [step for step in steps if step.automatic]
    if not steps and wanted.not_included:
        few = count(len(wanted.not_included), "service is", "services are")
        return f"Nothing is done unless it is named: {few} in trouble and not needed, but only as it never worked."
    if not steps:
        return f"There is nothing to do about {wanted.target}."
    if not automatic:
        return f"{wanted.target}: {count(len(steps), 'step')}, for a person to take."
    what = f"stop {names}, and keep it from being started again" if names else "free the zombies"
    return f"{wanted.target}: {what}, in {count(len(automatic), 'step')}."

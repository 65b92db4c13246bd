"""The steps that stop a unit or a container and keep it from being started again, and what they should change."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

from exhume.collect.containers.owner import COMPOSE_PROJECT
from exhume.control.containers import check_container_id
from exhume.control.managers import Controls
from exhume.control.unit_files import (
    NOWHERE,
    OwnFiles,
    directory_of,
    drop_in_of,
    drop_in_text,
    has_room_for_drop_in,
    mask_of,
)
from exhume.model.audit import Judged, Manager, Needed, Service, Trait
from exhume.model.remedy import Effect, Measure, Risk, Step
from exhume.model.text import listed
from exhume.remedy.services.actions import HOLD_UNITS, MASK_UNITS, RESTART_POLICY, STOP_CONTAINER, STOP_UNITS

# Fewer starts show no rhythm.
_FEW_STARTS = 2
# Nothing that is stopped may make these worse.
_WATCHED = (Measure.BUSIEST_CORE, Measure.KERNEL_CORE, Measure.THROTTLING, Measure.RECLAIM, Measure.NIC_TIMEOUTS)
# What a finding is about has to become better when its cause goes.
_BY_CAUSE = {
    "zombie-memcgs": (Measure.ZOMBIE_GROWTH, Measure.KERNEL_CORE),
    "cgroup-excess": (Measure.KERNEL_CORE,),
    "crash-loop": (Measure.FORKS,),
    "fork-storm": (Measure.FORKS, Measure.KERNEL_CORE),
    "memory-reclaim": (Measure.RECLAIM,),
    "oom-thrash": (Measure.RECLAIM,),
    "cfs-throttling": (Measure.THROTTLING,),
    "netns-cleanup": (Measure.KERNEL_CORE,),
    "softirq-storm": (Measure.BUSIEST_CORE,),
    "user-hog": (Measure.BUSIEST_CORE, Measure.RUN_QUEUE_WAIT),
}


def effects_of(service: Service, judged: Judged | None = None, cause: str = "") -> tuple[Effect, ...]:
    """What should change when it is stopped."""
    found = [Effect(measure, "fall") for measure in _BY_CAUSE.get(cause, ())]
    costs = service.costs
    if costs is not None and costs.cgroups_leaked:
        found.append(Effect(Measure.ZOMBIE_GROWTH, "fall"))
    named = {effect.measure for effect in found}
    watched = [Effect(measure, "stay") for measure in _WATCHED if measure not in named]
    return (*_restarts(service, judged), *dict.fromkeys(found), *watched)


def _restarts(service: Service, judged: Judged | None) -> tuple[Effect, ...]:
    loops = judged is not None and any(trait in (Trait.CRASH_LOOP, Trait.FLAPPING) for trait in judged.traits)
    rate = service.history.restarts_per_hour if service.history is not None else None
    again = loops or service.restarts or rate or _is_driven(service)
    return (Effect(Measure.RESTARTS, "stop", service.key),) if again else ()


def _is_driven(service: Service) -> bool:
    """Whether a timer, a path or another unit starts it again and again; systemd does not count that as restarts."""
    history, wants = service.history, service.wants
    again = history is not None and history.starts > _FEW_STARTS and history.failures > _FEW_STARTS
    return again and bool(wants.triggered_by or wants.restarted_by)


@dataclass(frozen=True, slots=True)
class Selection:
    """A service that is to be stopped, with what the audit says of it (None: nothing), and the cause that led to it."""

    service: Service
    judged: Judged | None = None
    cause: str = ""

    @property
    def why(self) -> str:
        """Why it is to be stopped."""
        said = list(self.judged.explained) if self.judged is not None else []
        if self.judged is not None and self.judged.need.needed is Needed.NO:
            said.append(self.judged.need.why)
        return "; ".join(said) or f"it was requested; {self.service.key} is {self.service.state or 'in no known state'}"

    @property
    def risk(self) -> Risk:
        if self.judged is not None and self.judged.need.needed is Needed.YES:
            return Risk.HIGH
        return Risk.LOW if self.judged is not None and self.judged.surely_useless else Risk.MEDIUM

    @property
    def harm(self) -> str:
        if self.judged is None or self.judged.need.needed is Needed.UNKNOWN:
            return "what it does is no longer done; whether anything here needs that is not known"
        needed = self.judged.need.needed is Needed.YES
        return f"{'it is needed' if needed else 'none that is known'}: {self.judged.need.why}"

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What should change when it is stopped."""
        return effects_of(self.service, self.judged, self.cause)


_MARK = re.compile(r"# Made by exhume fix, (\S+), at ")


@dataclass(frozen=True, slots=True)
class UnitCase:
    """A unit, all that has to be stopped for it (what triggers it comes first), what would be stopped along, who wants
    it, and which of its files changed since systemd read them."""

    chosen: Selection
    units: tuple[str, ...]
    along: tuple[str, ...]
    fix: str
    when: str
    wanting: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.chosen.service.id

    @property
    def news(self) -> str:
        """What a reload brings besides exhume's file; empty where all was read."""
        if not self.unread:
            return ""
        return (
            f"; files of {listed(self.unread)} changed since systemd read them: the reload takes them up, and what is "
            "started again later is the new one"
        )


def stop_step(case: UnitCase, running: tuple[str, ...]) -> Step:
    """Stop what runs of it, gracefully."""
    names = " ".join(map(shlex.quote, running))
    again = " ".join(map(shlex.quote, (*running, *case.along)))
    return Step(
        id=f"stop:{case.name}",
        title=f"stop {listed(running)}" + (f", and with it {listed(case.along)}" if case.along else ""),
        why=case.chosen.why,
        action=STOP_UNITS,
        targets=running,
        commands=(f"systemctl stop -- {names}",),
        risk=Risk.HIGH if case.along else case.chosen.risk,
        harm=case.chosen.harm,
        undo="it is started again",
        undo_commands=(f"systemctl start -- {again}",),
        dependents=case.along,
        effects=case.chosen.effects,
    )


def stop_for_good(step: Step) -> Step:
    """The same for a unit that was made at run time: it goes when it is stopped, and its maker has to
    create it again."""
    undo = "it was created at run time and is gone when it ends; its creator has to create it again"
    return replace(step, reversible=False, undo=undo, undo_commands=())


def hold_step(case: UnitCase, files: OwnFiles, undone_by: Mapping[str, str]) -> tuple[Step | None, str]:
    """Keep it from being started; or why that can't be. `undone_by` are files that would make our drop-in useless."""
    for path in undone_by.values():
        return _mask_step(case, files, f"{path} takes all conditions away, so a drop-in would not hold it")
    if not all(map(has_room_for_drop_in, case.units)):
        return _mask_step(case, files, "its name is too long for a drop-in")
    for unit in case.units:
        if why := files.drop_in_obstacle(unit):
            holder = _MARK.match(files.drop_in_now(unit))
            if holder:
                return (
                    None,
                    f"{unit} is held back already by fix {holder[1]}; exhume fix rollback {holder[1]} undoes it",
                )
            return None, f"{unit} can't be held back: {why}"
    texts = tuple((drop_in_of(unit), drop_in_text(unit, case.fix, case.when)) for unit in case.units)
    typed: list[str] = []
    for unit, (path, text) in zip(case.units, texts, strict=True):
        lines = " ".join(shlex.quote(line) for line in text.splitlines() if not line.startswith("#"))
        typed.append(f"mkdir -p -- {shlex.quote(directory_of(unit))}")
        typed.append(f"printf '%s\\n' {lines} > {shlex.quote(path)}")
    quoted_files = " ".join(shlex.quote(path) for path, _ in texts)
    step = Step(
        id=f"hold-back:{case.name}",
        title=f"keep {listed(case.units)} from being started, also at boot, by a drop-in of exhume's own",
        why="what is only stopped is started again at the next boot, or by what asks for it",
        action=HOLD_UNITS,
        targets=case.units,
        commands=(*typed, "systemctl daemon-reload"),
        risk=case.chosen.risk,
        harm=f"{_wanting(case)} without it{case.news}",
        undo="the files are removed again",
        undo_commands=(f"rm -- {quoted_files}", "systemctl daemon-reload"),
        dependents=case.along,
        files=texts,
        effects=case.chosen.effects,
    )
    return step, ""


def _wanting(case: UnitCase) -> str:
    if not case.wanting:
        return "units that want it start"
    return f"{listed(case.wanting)} {'wants it, and starts' if len(case.wanting) == 1 else 'want it, and start'}"


def _mask_step(case: UnitCase, files: OwnFiles, reason: str) -> tuple[Step | None, str]:
    """Where a drop-in is of no use."""
    for unit in case.units:
        if why := files.mask_obstacle(unit):
            return None, f"{unit} can't be held back: {reason}, and {why}, so no mask fits"
    links = tuple(mask_of(unit) for unit in case.units)
    step = Step(
        id=f"mask:{case.name}",
        title=f"mask {listed(case.units)}, also for the next boot",
        why=f"what is only stopped is started again; {reason}",
        action=MASK_UNITS,
        targets=case.units,
        commands=(*(f"ln -s -- {NOWHERE} {shlex.quote(link)}" for link in links), "systemctl daemon-reload"),
        risk=case.chosen.risk,
        harm=f"units that require it can't be started{case.news}",
        undo="the links are removed again",
        undo_commands=(f"rm -- {' '.join(map(shlex.quote, links))}", "systemctl daemon-reload"),
        dependents=case.along,
        files=tuple((link, f"a link to {NOWHERE}") for link in links),
        effects=case.chosen.effects,
    )
    return step, ""


# Prefix of an owner that is a unit of systemd.
_BY_UNIT = "unit "
# One that looks only when it is called.
_BY_COMPOSE = COMPOSE_PROJECT
# Orchestrators that make a new container in the place of one that is stopped.
_BY_SWARM, _BY_ECS = "swarm service ", "ECS task "


def container_steps(chosen: Selection, controls: Controls) -> tuple[list[Step], str]:
    """The steps; or why there are none."""
    service = chosen.service
    if service.manager is Manager.CRI or service.pod is not None:
        return [_by_a_person(chosen)], ""
    if unit := unit_that_keeps(service):
        owner = service.owner.removeprefix(_BY_UNIT)
        return (
            [],
            f"{service.key} is started by {owner}, which would start it again; exhume fix plan {shlex.quote(unit)}",
        )
    if service.owner.startswith((_BY_SWARM, _BY_ECS)):
        return [_by_its_orchestrator(chosen)], ""
    engine, container = controls.engine(service.manager), check_container_id(service.id)
    program, target = service.manager.value, f"{service.manager.value}:{service.id}"
    if engine.goes_when_stopped(container):
        return (
            [],
            f"{service.key} was started with --rm: stopped, it is removed with all that it wrote, and nothing brings "
            f"it back; {program} stop {container} does that",
        )
    policy, runs = engine.restart_policy(container), engine.runs(container)
    paused, harm = runs and engine.is_paused(container), chosen.harm + _compose_note(service)
    steps = []
    if runs:
        steps.append(
            Step(
                id=f"stop:{service.key}",
                title=f"stop container {service.name}",
                why=chosen.why,
                action=STOP_CONTAINER,
                targets=(target,),
                commands=(f"{program} stop -t 30 {container}",),
                risk=chosen.risk,
                harm=harm + ("; it is paused: what it has in memory is lost" if paused else ""),
                undo="it is started, and paused, again" if paused else "it is started again",
                undo_commands=(
                    f"{program} start {container}",
                    *([f"{program} pause {container}"] if paused else []),
                ),
                effects=chosen.effects,
            )
        )
    if policy.name != "no":
        restart = f"{policy.name}:{policy.max_retries}" if policy.max_retries else policy.name
        steps.append(
            Step(
                id=f"restart-policy:{service.key}",
                title=f"keep container {service.name} from being started again: restart policy {restart} -> no",
                why="what is only stopped comes back when the runtime, or the node, starts again",
                action=RESTART_POLICY,
                targets=(target,),
                commands=(f"{program} update --restart=no {container}",),
                risk=chosen.risk,
                harm=harm,
                undo="the policy is put back",
                undo_commands=(f"{program} update --restart={restart} {container}",),
                effects=chosen.effects,
            )
        )
    return steps, "" if steps else f"{service.key} does not run, and nothing starts it again"


def unit_that_keeps(service: Service) -> str | None:
    """The unit that starts a container; None where none is known to."""
    # What may come behind the name is how the unit does it.
    return service.owner.removeprefix(_BY_UNIT).partition(" (")[0] if service.owner.startswith(_BY_UNIT) else None


def _compose_note(service: Service) -> str:
    """What brings it back all the same: the next `docker compose up`."""
    if not service.owner.startswith(_BY_COMPOSE):
        return ""
    where = f" in {service.fragment}" if service.fragment else ""
    return (
        f"; {service.owner} made it: the next docker compose up starts it again, with the restart policy that it has "
        f"there, unless its service is taken out{where}"
    )


def _by_its_orchestrator(chosen: Selection) -> Step:
    """What a swarm or ECS ordered comes back as another container when this one is stopped."""
    service = chosen.service
    if service.owner.startswith(_BY_SWARM):
        name = shlex.quote(service.owner.removeprefix(_BY_SWARM))
        commands: tuple[str, ...] = (f"docker service ps {name}", f"docker service scale {name}=0")
        undo = f"docker service scale {name}=N, with the number that docker service ls showed before"
    else:
        task, _, cluster = service.owner.removeprefix(_BY_ECS).partition(" of cluster ")
        where = f" --cluster {shlex.quote(cluster)}" if cluster else ""
        commands = (f"aws ecs describe-tasks{where} --tasks {shlex.quote(task)}",)
        undo = "set the service's desired count back"
    return Step(
        id=f"owner:{service.key}",
        title=f"change what orders container {service.name}: {service.owner}",
        why=f"{chosen.why}; stopped here, it is ordered again",
        targets=(service.key,),
        commands=commands,
        risk=chosen.risk,
        harm=chosen.harm,
        undo=undo,
        effects=chosen.effects,
    )


def _by_a_person(chosen: Selection) -> Step:
    """What a kubelet looks after is started again by it, whatever is done to the container."""
    service = chosen.service
    namespace, slash, pod = (service.pod or "").partition("/")
    namespace, pod = (namespace, pod) if slash else ("", namespace)
    where = f" -n {shlex.quote(namespace)}" if namespace else ""
    commands = [f"crictl inspect {shlex.quote(service.id)}"]
    if service.fragment:
        title = f"take the static pod's manifest away: {service.fragment}"
        commands = [f"mv -- {shlex.quote(service.fragment)} /root/"]
        undo = "put the manifest back"
    elif pod:
        title = f"change what owns pod {service.pod}" + (f" ({service.owner})" if service.owner else "")
        commands = [
            f"kubectl{where} get pod {shlex.quote(pod)} -o jsonpath='{{.metadata.ownerReferences}}'",
            f"kubectl{where} describe pod {shlex.quote(pod)}",
        ]
        undo = "change it back"
    else:
        title, undo = f"stop container {service.name} where it was ordered", "order it again"
        commands.append(f"crictl stop {shlex.quote(service.id)}")
    return Step(
        id=f"owner:{service.key}",
        title=title,
        why=f"{chosen.why} CRI has no restart policy: the owner of the container orders it again",
        targets=(service.key,),
        commands=tuple(commands),
        risk=chosen.risk,
        harm=chosen.harm,
        undo=undo,
        effects=chosen.effects,
    )

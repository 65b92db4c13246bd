"""Steps that stop a unit or a container and keep it from being restarted, or lower its CPU weight, with the effects
expected of them."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from exhume.collect.containers.owner import (
    COMPOSE_PROJECT,
    Workload,
    WorkloadKind,
    describe_command,
    logs_command,
)
from exhume.control.containers import check_container_id
from exhume.control.managers import Controls
from exhume.control.systemd import DEFAULT_CPU_WEIGHT
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
from exhume.remedy.services.actions import (
    CPU_WEIGHT,
    HOLD_UNITS,
    MASK_UNITS,
    RESTART_POLICY,
    STOP_CONTAINER,
    STOP_UNITS,
    WEIGHT,
)

# Fewer starts than this show no pattern.
_FEW_STARTS = 2
# The default cpu.shares of a cgroup (kernel/sched/sched.h, ROOT_TASK_GROUP_LOAD), equal to a weight of 100.
_DEFAULT_SHARES = 1024
# Measures that must not get worse when a service is stopped or gets a lower weight.
_WATCHED = (Measure.BUSIEST_CORE, Measure.KERNEL_CORE, Measure.THROTTLING, Measure.RECLAIM, Measure.NIC_TIMEOUTS)
# The measures that must improve when a finding's cause is removed.
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


@dataclass(frozen=True, slots=True)
class Selection:
    """A service to be stopped, with the audit's verdict on it (None: there is none), and the cause that led to it."""

    service: Service
    judged: Judged | None = None
    cause: str = ""

    @property
    def needed(self) -> Needed:
        return self.judged.need.needed if self.judged is not None else Needed.UNKNOWN

    @property
    def why(self) -> str:
        """Why the service is to be stopped."""
        reasons = list(self.judged.explained) if self.judged is not None else []
        if self.judged is not None and self.needed is Needed.NO:
            reasons.append(self.judged.need.why)
        return (
            "; ".join(reasons) or f"it was requested; {self.service.key} is {self.service.state or 'in no known state'}"
        )

    @property
    def risk(self) -> Risk:
        if self.needed is Needed.YES:
            return Risk.HIGH
        return Risk.LOW if self.judged is not None and self.judged.surely_useless else Risk.MEDIUM

    @property
    def harm(self) -> str:
        if self.judged is None or self.needed is Needed.UNKNOWN:
            return "what it does is no longer done; whether anything here needs that is not known"
        return f"{'it is needed' if self.needed is Needed.YES else 'none that is known'}: {self.judged.need.why}"

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects expected from stopping the service."""
        service, history = self.service, self.service.history
        falls = [Effect(measure, "fall") for measure in _BY_CAUSE.get(self.cause, ())]
        if service.costs is not None and service.costs.cgroups_leaked:
            falls.append(Effect(Measure.ZOMBIE_GROWTH, "fall"))
        named = {effect.measure for effect in falls}
        watched = [Effect(measure, "stay") for measure in _WATCHED if measure not in named]
        loops = self.judged is not None and not {Trait.CRASH_LOOP, Trait.FLAPPING}.isdisjoint(self.judged.traits)
        again = loops or service.restarts or (history is not None and history.restarts_per_hour)
        if not again and history is not None:
            # A timer, a path or another unit starts it repeatedly; systemd does not count that as restarts.
            driven = bool(service.wants.triggered_by or service.wants.restarted_by)
            again = driven and min(history.starts, history.failures) > _FEW_STARTS
        stops = [Effect(Measure.RESTARTS, "stop", service.key)] if again else []
        return (*stops, *dict.fromkeys(falls), *watched)

    def step(self, verb: str, **fields: Any) -> Step:
        """Build a step for the service, with the fields that all of its steps share."""
        usual = {"why": self.why, "risk": self.risk, "harm": self.harm, "effects": self.effects}
        return Step(id=f"{verb}:{self.service.key}", **{**usual, **fields})


_RELOAD = "systemctl daemon-reload"
_MARK = re.compile(r"# Made by exhume fix, (\S+), at ")


@dataclass(frozen=True, slots=True)
class UnitCase:
    """A unit, all units that have to be stopped for it (those that trigger it come first), the units that would be
    stopped along, who wants it, and which of its files changed since systemd read them."""

    chosen: Selection
    units: tuple[str, ...]
    along: tuple[str, ...]
    fix: str
    when: str
    wanting: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def news(self) -> str:
        """What a reload changes in addition to exhume's file; empty if systemd has read all files."""
        if not self.unread:
            return ""
        return (
            f"; files of {listed(self.unread)} changed since systemd read them: the reload takes them up, and what is "
            "started again later is the new one"
        )

    def step(self, verb: str, action: str, units: tuple[str, ...], **fields: Any) -> Step:
        """Build a step for some of its units."""
        return self.chosen.step(verb, action=action, targets=units, dependents=self.along, **fields)


def stop_step(case: UnitCase, running: tuple[str, ...], *, for_good: bool) -> Step:
    """Stop its running units gracefully. `for_good`: a transient unit, which is removed when it stops."""
    along = f", and with it {listed(case.along)}" if case.along else ""
    return case.step(
        "stop",
        STOP_UNITS,
        running,
        title=f"stop {listed(running)}{along}",
        commands=(f"systemctl stop -- {shlex.join(running)}",),
        risk=Risk.HIGH if case.along else case.chosen.risk,
        reversible=not for_good,
        undo="it was created at run time and is gone when it ends; its creator has to create it again"
        if for_good
        else "it is started again",
        undo_commands=() if for_good else (f"systemctl start -- {shlex.join((*running, *case.along))}",),
    )


def hold_step(case: UnitCase, files: OwnFiles, undone_by: Iterable[str]) -> tuple[Step | None, str]:
    """Keep the unit from being started; or why that can't be done. `undone_by` are files that override our drop-in."""
    for path in undone_by:
        return _mask_step(case, files, f"{path} takes all conditions away, so a drop-in would not hold it")
    if not all(map(has_room_for_drop_in, case.units)):
        return _mask_step(case, files, "its name is too long for a drop-in")
    for unit in case.units:
        if why := files.drop_in_obstacle(unit):
            if holder := _MARK.match(files.drop_in_now(unit)):
                undo = f"exhume fix rollback {holder[1]} undoes it"
                return None, f"{unit} is held back already by fix {holder[1]}; {undo}"
            return None, f"{unit} can't be held back: {why}"
    texts = tuple((drop_in_of(unit), drop_in_text(unit, case.fix, case.when)) for unit in case.units)
    typed: list[str] = []
    for unit, (path, text) in zip(case.units, texts, strict=True):
        lines = shlex.join(line for line in text.splitlines() if not line.startswith("#"))
        typed.append(f"mkdir -p -- {shlex.quote(directory_of(unit))}")
        typed.append(f"printf '%s\\n' {lines} > {shlex.quote(path)}")
    wanting = "units that want it start"
    if case.wanting:
        verb = "wants it, and starts" if len(case.wanting) == 1 else "want it, and start"
        wanting = f"{listed(case.wanting)} {verb}"
    step = case.step(
        "hold-back",
        HOLD_UNITS,
        case.units,
        title=f"keep {listed(case.units)} from being started, also at boot, by a drop-in of exhume's own",
        why="what is only stopped is started again at the next boot, or by what asks for it",
        commands=(*typed, _RELOAD),
        harm=f"{wanting} without it{case.news}",
        undo="the files are removed again",
        undo_commands=(f"rm -- {shlex.join(path for path, _ in texts)}", _RELOAD),
        files=texts,
    )
    return step, ""


def _mask_step(case: UnitCase, files: OwnFiles, reason: str) -> tuple[Step | None, str]:
    """Mask the unit if a drop-in has no effect."""
    for unit in case.units:
        if why := files.mask_obstacle(unit):
            return None, f"{unit} can't be held back: {reason}, and {why}, so no mask fits"
    links = tuple(mask_of(unit) for unit in case.units)
    step = case.step(
        "mask",
        MASK_UNITS,
        case.units,
        title=f"mask {listed(case.units)}, also for the next boot",
        why=f"what is only stopped is started again; {reason}",
        commands=(*(f"ln -s -- {NOWHERE} {shlex.quote(link)}" for link in links), _RELOAD),
        harm=f"units that require it can't be started{case.news}",
        undo="the links are removed again",
        undo_commands=(f"rm -- {shlex.join(links)}", _RELOAD),
        files=tuple((link, f"a link to {NOWHERE}") for link in links),
    )
    return step, ""


def weight_step(chosen: Selection, now: int | None, weight: int) -> tuple[list[Step], str]:
    """Lower the CPU weight of a unit from its current one (None: not set); or why that can't be done."""
    name, shares = chosen.service.id, DEFAULT_CPU_WEIGHT if now is None else now
    if weight >= shares:
        return [], f"{name} has a CPU weight of {shares}; only a weight below that makes it give way"
    typed = f"systemctl set-property --runtime -- {shlex.quote(name)} CPUWeight="
    part = weight / (weight + DEFAULT_CPU_WEIGHT)
    step = chosen.step(
        "cpu-weight",
        title=f"lower the CPU weight of {name} from {shares} to {weight}, until the next boot",
        action=CPU_WEIGHT,
        targets=(name,),
        params=((WEIGHT, str(weight)),),
        commands=(f"{typed}{weight}",),
        risk=Risk.MEDIUM if chosen.needed is Needed.YES else Risk.LOW,
        harm=f"where it competes for a core with one unit of weight {DEFAULT_CPU_WEIGHT}, it gets {part:.0%} of it; "
        "idle cores it uses as before",
        undo="the weight is put back",
        undo_commands=(f"{typed}{'' if now is None else now}",),
        # A weight distributes a full core differently, but leaves it full: no measure of the node has to fall.
        effects=tuple(Effect(measure, "stay") for measure in _WATCHED),
    )
    return [step], ""


def container_weight_step(chosen: Selection, weight: int) -> Step:
    """Lower a container's CPU shares, by hand: Docker interprets shares of 0, the value of a container that was never
    given any, as "unchanged" (container/container_unix.go of moby, UpdateContainer), so exhume could not undo it."""
    service = chosen.service
    shares = max(2, weight * _DEFAULT_SHARES // DEFAULT_CPU_WEIGHT)
    orchestrated = service.manager is Manager.CRI or service.pod is not None
    commands = (
        () if orchestrated else (f"{service.manager.value} update --cpu-shares {shares} {shlex.quote(service.id)}",)
    )
    return chosen.step(
        "cpu-weight",
        title=f"lower the CPU request of {service.pod or service.name} where it is ordered"
        if orchestrated
        else f"lower the CPU shares of container {service.name} to {shares}",
        targets=(service.key,),
        commands=commands,
        undo="create the container again, or set the shares that it had",
        effects=(),
    )


# Prefix of an owner that is a systemd unit.
_BY_UNIT = "unit "
# Orchestrators that create a new container to replace one that is stopped.
_BY_SWARM, _BY_ECS = "swarm service ", "ECS task "


def container_steps(chosen: Selection, controls: Controls) -> tuple[list[Step], str]:
    """The steps for a container; or why there are none."""
    service = chosen.service
    if service.manager is Manager.CRI or service.pod is not None:
        return [_by_a_person(chosen)], ""
    if unit := unit_that_keeps(service):
        owner = service.owner.removeprefix(_BY_UNIT)
        plan = f"exhume fix plan {shlex.quote(unit)}"
        return [], f"{service.key} is started by {owner}, which would start it again; {plan}"
    if service.owner.startswith((_BY_SWARM, _BY_ECS)):
        return [_by_its_orchestrator(chosen)], ""
    engine, container = controls.engine(service.manager), check_container_id(service.id)
    program, target = service.manager.value, (f"{service.manager.value}:{service.id}",)
    if engine.goes_when_stopped(container):
        lost = "stopped, it is removed with all that it wrote, and nothing brings it back"
        return [], f"{service.key} was started with --rm: {lost}; {program} stop {container} does that"
    policy, runs = engine.restart_policy(container), engine.runs(container)
    harm = chosen.harm
    if service.owner.startswith(COMPOSE_PROJECT):
        harm += (
            f"; {service.owner} made it: the next docker compose up starts it again, with the restart policy that it "
            f"has there, unless its service is taken out{f' in {service.fragment}' if service.fragment else ''}"
        )
    steps = []
    if runs:
        paused = engine.is_paused(container)
        steps.append(
            chosen.step(
                "stop",
                title=f"stop container {service.name}",
                action=STOP_CONTAINER,
                targets=target,
                commands=(f"{program} stop -t 30 {container}",),
                harm=harm + ("; it is paused: what it has in memory is lost" if paused else ""),
                undo="it is started, and paused, again" if paused else "it is started again",
                undo_commands=tuple(f"{program} {verb} {container}" for verb in ("start", "pause")[: 1 + paused]),
            )
        )
    if policy.name != "no":
        steps.append(
            chosen.step(
                "restart-policy",
                title=f"keep container {service.name} from being started again: restart policy {policy} -> no",
                why="what is only stopped comes back when the runtime, or the node, starts again",
                action=RESTART_POLICY,
                targets=target,
                commands=(f"{program} update --restart=no {container}",),
                harm=harm,
                undo="the policy is put back",
                undo_commands=(f"{program} update --restart={policy} {container}",),
            )
        )
    return steps, "" if steps else f"{service.key} does not run, and nothing starts it again"


def unit_that_keeps(service: Service) -> str | None:
    """The unit that starts a container; None if none is known."""
    # The name may be followed by how the unit does it, in parentheses.
    return service.owner.removeprefix(_BY_UNIT).partition(" (")[0] if service.owner.startswith(_BY_UNIT) else None


def _by_its_orchestrator(chosen: Selection) -> Step:
    """For containers of a swarm or ECS, which replace a stopped container by a new one."""
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
    title = f"change what orders container {service.name}: {service.owner}"
    why = f"{chosen.why}; stopped here, it is ordered again"
    return chosen.step("owner", title=title, why=why, targets=(service.key,), commands=commands, undo=undo)


def _by_a_person(chosen: Selection) -> Step:
    """For containers of a kubelet, which restarts them whatever is done to the container itself."""
    service = chosen.service
    undo_commands: tuple[str, ...] = ()
    reversible = True
    if service.fragment:
        title, undo = f"take the static pod's manifest away: {service.fragment}", "put the manifest back"
        commands: tuple[str, ...] = (f"mv -- {shlex.quote(service.fragment)} /root/",)
    elif service.pod:
        workload = Workload.parse(service.pod, service.workload)
        container = service.name.rpartition("/")[2]
        logs = logs_command(service.pod, container, previous=bool(service.restarts))
        commands = (describe_command(service.pod), logs, *workload.stop_commands)
        undo_commands, reversible = workload.undo_commands, workload.stops_reversibly
        if workload.kind == WorkloadKind.POD:
            title, undo = f"delete pod {service.pod}, or change what owns it", "make it again from its manifest"
        elif workload.kind == WorkloadKind.JOB:
            title, undo = f"delete {workload}, which makes pod {service.pod}", "make the job again from its manifest"
        elif workload.kind == WorkloadKind.STATIC_POD:
            title, undo = f"take the manifest of {workload} out of kubelet's directory", "put the manifest back"
        elif workload.is_custom and not undo_commands:
            title, undo = f"change {workload}, which keeps pod {service.pod}", "put back what was changed"
        else:
            title, undo = f"stop {workload}, which keeps pod {service.pod}", "scale it to the number it had before"
            undo = "take back what was patched" if undo_commands else undo
    else:
        title, undo = f"stop container {service.name} where it was ordered", "order it again"
        commands = tuple(f"crictl {verb} {shlex.quote(service.id)}" for verb in ("inspect", "stop"))
    why = f"{chosen.why.rstrip('.')}. What is done to the container alone does not last: its owner orders it again"
    return chosen.step(
        "owner",
        title=title,
        why=why,
        targets=(service.key,),
        commands=commands,
        undo=undo,
        undo_commands=undo_commands,
        reversible=reversible,
    )

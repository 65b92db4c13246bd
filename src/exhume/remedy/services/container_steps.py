"""The steps that stop a container and keep it from being started again, by its manager's own means."""

import shlex

from exhume.collect.containers.owner import COMPOSE_PROJECT
from exhume.model.audit import Manager, Service
from exhume.model.remedy import Step
from exhume.remedy.services.actions import RESTART_POLICY, STOP_CONTAINER
from exhume.remedy.services.chosen import Chosen
from exhume.remedy.services.controls import Controls
from exhume.remedy.services.names import check_container_id

# How an owner is told that is a unit of systemd.
_BY_UNIT = "unit "
# One that looks only when it is called.
_BY_COMPOSE = COMPOSE_PROJECT
# Orchestrators that make a new container in the place of one that is stopped.
_BY_SWARM, _BY_ECS = "swarm service ", "ECS task "


def container_steps(chosen: Chosen, controls: Controls) -> tuple[list[Step], str]:
    """The steps; or why there are none."""
    service = chosen.service
    if service.manager is Manager.CRI or service.pod is not None:
        return [_by_a_person(chosen)], ""
    if unit := unit_that_keeps(service):
        told = service.owner.removeprefix(_BY_UNIT)
        return (
            [],
            f"{service.key} is started by {told}, which would start it again; exhume fix plan {shlex.quote(unit)}",
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
    paused, harm = runs and engine.is_paused(container), chosen.harm + _compose_words(service)
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
        word = f"{policy.name}:{policy.max_retries}" if policy.max_retries else policy.name
        steps.append(
            Step(
                id=f"restart-policy:{service.key}",
                title=f"keep container {service.name} from being started again: restart policy {word} -> no",
                why="what is only stopped comes back when the runtime, or the node, starts again",
                action=RESTART_POLICY,
                targets=(target,),
                commands=(f"{program} update --restart=no {container}",),
                risk=chosen.risk,
                harm=harm,
                undo="the policy is put back",
                undo_commands=(f"{program} update --restart={word} {container}",),
                effects=chosen.effects,
            )
        )
    return steps, "" if steps else f"{service.key} does not run, and nothing starts it again"


def unit_that_keeps(service: Service) -> str | None:
    """The unit that starts a container; None where none is known to."""
    # What may come behind the name is how the unit does it.
    return service.owner.removeprefix(_BY_UNIT).partition(" (")[0] if service.owner.startswith(_BY_UNIT) else None


def _compose_words(service: Service) -> str:
    """Who brings it back all the same: compose, the next time that somebody calls it."""
    if not service.owner.startswith(_BY_COMPOSE):
        return ""
    where = f" in {service.fragment}" if service.fragment else ""
    return (
        f"; {service.owner} made it: the next docker compose up starts it again, with the restart policy that it has "
        f"there, unless its service is taken out{where}"
    )


def _by_its_orchestrator(chosen: Chosen) -> Step:
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
        why=f"{chosen.why}; stopped here, it is ordered anew",
        targets=(service.key,),
        commands=commands,
        risk=chosen.risk,
        harm=chosen.harm,
        undo=undo,
        effects=chosen.effects,
    )


def _by_a_person(chosen: Chosen) -> Step:
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
        why=f"{chosen.why} CRI has no restart policy: whoever ordered the container orders it again",
        targets=(service.key,),
        commands=tuple(commands),
        risk=chosen.risk,
        harm=chosen.harm,
        undo=undo,
        effects=chosen.effects,
    )

"""Whether the steps of a plan may still be taken by whoever asks for it now."""

from collections.abc import Sequence

from exhume.model.audit import Manager, Service
from exhume.model.errors import ExhumeError
from exhume.model.remedy import Step
from exhume.remedy.services.actions import (
    HOLD_UNITS,
    MASK_UNITS,
    RESTART_POLICY,
    STOP_CONTAINER,
    STOP_UNITS,
    stopped_along,
)
from exhume.remedy.services.node import Node
from exhume.remedy.services.refuse import refusal, required_refusal, unit_as_it_stands
from exhume.remedy.services.surroundings import Surroundings, look_around


def refusals_now(steps: Sequence[Step], node: Node, *, forced: bool) -> list[str]:
    """Why some services of a plan are not to be stopped from here and now. What the plan said would be stopped along
    was agreed to with the plan."""
    around = look_around(node.root.host)
    said: list[str] = []
    for step in steps:
        if step.action in (STOP_CONTAINER, RESTART_POLICY):
            said += [why for target in step.targets if (why := _container_refusal(target, around, node))]
        if step.action not in (STOP_UNITS, HOLD_UNITS, MASK_UNITS):
            continue
        control = node.controls.systemd()
        for name in step.targets:
            state = control.unit_state(name)
            service = unit_as_it_stands(name, state)
            names, listens = state.get("names", "").split(), state.get("listens", "")
            said += [why] if (why := refusal(service, around, None, names, listens)) else []
        along = {name: how for name, how in stopped_along(control, step.targets).items() if name not in step.dependents}
        said += [why] if (why := required_refusal(step.targets[-1], along, forced=forced)) else []
    return list(dict.fromkeys(said))


def _container_refusal(target: str, around: Surroundings, node: Node) -> str:
    """Why a container, MANAGER:ID, is not to be stopped; empty where it may be."""
    manager, _, number = target.partition(":")
    # Cgroups of containers have its id in their path.
    if any(number in cgroup for cgroup in around.our_cgroups):
        return f"this very process runs in {target}"
    try:
        ports = node.controls.engine(Manager(manager)).published(number)
    except ExhumeError:
        # One that is gone, or an engine that is silent: whoever stops it is told.
        ports = ()
    return refusal(Service(Manager(manager), number, number, published=ports), around)

"""Plans for services that should not run: the steps for each, in order, what is refused, and the state on which the
plan was based."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exhume.collect.containers.docker import EngineError
from exhume.control.managers import Controls
from exhume.control.systemd import RUNS, STOPPABLE, SystemdControl, check_unit_name, is_unit_name, kind_of
from exhume.control.unit_files import OwnFiles
from exhume.model.audit import Audit, Judged, Manager, Needed, Service
from exhume.model.errors import ExhumeError, UsageError
from exhume.model.remedy import NotIncluded, Step
from exhume.model.text import listed
from exhume.remedy.services.actions import CONTAINER_ACTIONS, UNIT_ACTIONS, stopped_along
from exhume.remedy.services.refusals import Surroundings, refusal, required_refusal, unit_as_it_stands, unit_refusal_now
from exhume.remedy.services.steps import (
    Selection,
    UnitCase,
    container_steps,
    container_weight_step,
    hold_step,
    stop_step,
    unit_that_keeps,
    weight_step,
)

# The minimum length of a shortened container id.
_SHORT_ID = 12


def unneeded(audit: Audit) -> tuple[list[Selection], list[NotIncluded]]:
    """What to act on if no target is named, the worst first: troubled services that nothing on the node needs, for
    more reasons than that they never worked. The others have to be named, and are listed with the reason."""
    useless = [each for each in audit.services if each.troubled and each.need.needed is Needed.NO]
    taken = [Selection(each.service, each) for each in useless if each.surely_useless]
    return taken, [NotIncluded(each.service.key, each.need.why) for each in useless if not each.surely_useless]


def manager_of(target: str) -> Manager | None:
    """The manager that a target names before its colon; None for a unit."""
    prefix, colon, _ = target.partition(":")
    known = [each for each in Manager if each is not Manager.SYSTEMD and each.value == prefix]
    return known[0] if colon and known else None


def check_target(target: str, controls: Controls) -> None:
    """Raise ExhumeError if the target can't exist under that name, or its manager is unreachable."""
    manager = manager_of(target)
    if manager is None:
        _unit_named(target)
        controls.systemd()
    elif manager is not Manager.CRI:
        controls.engine(manager)


def _unit_named(target: str) -> str:
    """The unit name of a target; without a unit type it is a service. Raises UsageError."""
    has_kind = is_unit_name(target) or kind_of(target) in STOPPABLE
    return check_unit_name(target if has_kind else f"{target}.service")


def choose(target: str, judged: Sequence[Judged], controls: Controls) -> Selection:
    """Find the service that a target refers to, with what is known about it. Raises UsageError if there is none."""
    manager = manager_of(target)
    if manager is None:
        name = _unit_named(target)
        state = controls.systemd().unit_state(name)
        # Resolve an alias to the real unit.
        name = state.get("id") or name
        units = (each for each in judged if each.service.manager is Manager.SYSTEMD and each.service.id == name)
        known = next(units, None)
        return Selection(unit_as_it_stands(name, state) if known is None else known.service, known)
    name = target.partition(":")[2]
    fitting: dict[str, Judged] = {}
    for each in judged:
        id_, names = each.service.id, (each.service.name, *each.service.earlier)
        named = name in (*names, id_) or (len(name) >= _SHORT_ID and id_.startswith(name))
        if each.service.manager is manager and named:
            fitting.setdefault(id_, each)
    if not fitting:
        raise UsageError(f"there is no container {target}; exhume audit --all lists them")
    if len(fitting) > 1:
        raise UsageError(f"{target} fits several containers; name one by its id")
    (found,) = fitting.values()
    return Selection(found.service, found)


def fingerprints(steps: Iterable[Step], controls: Controls) -> dict[str, dict[str, str]]:
    """Fingerprint each unit and container that these steps change, except those that no longer exist. Raises
    ExhumeError if a manager does not answer."""
    found: dict[str, dict[str, str]] = {}
    targets = {target: step.action for step in steps for target in step.targets}
    for target, action in targets.items():
        if action in UNIT_ACTIONS:
            found[target] = controls.systemd().unit_fingerprint(target)
        elif action in CONTAINER_ACTIONS:
            manager, _, container = target.partition(":")
            try:
                found[target] = controls.engine(Manager(manager)).fingerprint(container)
            except EngineError as error:
                if error.status != 404:
                    raise
    return found


# Where systemd keeps transient units, which are removed when they end.
_TRANSIENT = "/run/systemd/transient/"


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes steps for services of a node. `fix` and `when` mark the files to be written; `containers` are those of the
    node, some of which go down with the unit that runs them. With a `cpu_weight`, services are not stopped, but get a
    lower share of the CPU."""

    controls: Controls
    files: OwnFiles
    around: Surroundings
    fix: str
    when: str
    force_required: bool = False
    containers: Sequence[Service] = ()
    cpu_weight: int | None = None

    def steps(self, chosen: Sequence[Selection]) -> tuple[list[Step], list[str]]:
        """The steps for all selected services, and why some are refused."""
        steps: list[Step] = []
        refused: list[str] = []
        for each in chosen:
            try:
                found, why = self._of(each)
            except ExhumeError as error:
                found, why = [], f"{each.service.key} could not be looked at: {error}"
            steps += found
            refused += [why] if why else []
        return steps, refused

    def _of(self, chosen: Selection) -> tuple[list[Step], str]:
        agent = chosen.judged.agent if chosen.judged is not None else None
        if why := refusal(chosen.service, self.around, agent):
            return [], why
        if chosen.service.manager is not Manager.SYSTEMD:
            if self.cpu_weight is not None:
                return [container_weight_step(chosen, self.cpu_weight)], ""
            return container_steps(chosen, self.controls)
        control, name = self.controls.systemd(), chosen.service.id
        state = control.unit_state(name)
        if state["load"] in ("not-found", ""):
            return [], f"there is no unit {name} on this node"
        if state["load"] == "masked":
            return [], f"{name} is masked already: nothing can start it"
        if why := self._protected(control, name, chosen.service.command):
            return [], why
        if self.cpu_weight is not None:
            if kind_of(name) != "service":
                return [], f"{name} runs nothing itself; name the service that it starts"
            return weight_step(chosen, control.cpu_weight(name), self.cpu_weight)
        for kept in self.containers:
            if unit_that_keeps(kept) == name and (why := refusal(kept, self.around)):
                return [], f"{name} keeps {kept.key}, and {why}"
        print_ = control.unit_fingerprint(name)
        triggers = print_.get("triggered_by", "").split()
        for trigger in triggers:
            why = self._protected(control, trigger) if is_unit_name(trigger) else "that is no name of a unit"
            if why:
                return [], f"{name} is started by {trigger}, which can't be held back: {why}"
        for started in print_.get("triggers", "").split():
            if why := self._protected(control, started) if is_unit_name(started) else "":
                return [], f"{name} starts {started}, and {why}"
        units = (*triggers, name)
        along = stopped_along(control, units)
        for each in along:
            if kind_of(each) in STOPPABLE and (why := self._protected(control, each)):
                return [], f"{each} requires {name} and would be stopped with it, and {why}"
        if why := required_refusal(name, along, forced=self.force_required):
            return [], why
        upholding = _running(control, print_.get("upheld_by", "").split())
        if upholding and not self.force_required:
            conflict = f"{listed(upholding)} starts {name} again and again (Upholds=), and would fill the log with it"
            return [], f"{conflict}; stop that first, or --force-required does it all the same"
        wanting = tuple(print_.get("wanted_by", "").split())
        unread = tuple(unit for unit in units if control.unit_state(unit).get("needs_reload") == "yes")
        case = UnitCase(chosen, units, tuple(along), self.fix, self.when, wanting, unread)
        running = _running(control, units)
        for unit in running:
            if control.unit_state(unit).get("refuses_stop") == "yes":
                return [], f"{unit} does not let itself be stopped: its unit says RefuseManualStop=yes"
        transient = print_.get("fragment", "").startswith(_TRANSIENT)
        stops = [stop_step(case, running, for_good=transient)] if running else []
        if transient:
            return stops, "" if stops else f"{name} was made at run time and does not run: nothing starts it again"
        undoing = (self.files.undone_by(control.unit_fingerprint(unit)) for unit in units)
        held, why = hold_step(case, self.files, filter(None, undoing))
        return ([], why) if held is None else ([*stops, held], "")

    def _protected(self, control: SystemdControl, name: str, command: str | None = None) -> str:
        """Why a unit must not be stopped, according to its current state."""
        return unit_refusal_now(name, control.unit_state(name), self.around, command)


def _running(control: SystemdControl, units: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in units if control.unit_state(name)["active"] in RUNS)

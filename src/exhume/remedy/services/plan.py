"""The plan for services that should not run: what is done to each, in order, and what is refused."""

from collections.abc import Sequence
from dataclasses import dataclass

from exhume.model.audit import Manager, Service
from exhume.model.errors import ExhumeError
from exhume.model.remedy import Step
from exhume.model.text import listed
from exhume.remedy.services.actions import stopped_along
from exhume.remedy.services.chosen import Chosen
from exhume.remedy.services.container_steps import container_steps, unit_that_keeps
from exhume.remedy.services.controls import Controls, UnitControl
from exhume.remedy.services.names import STOPPABLE, is_unit_name, kind_of
from exhume.remedy.services.own_files import OwnFiles
from exhume.remedy.services.refuse import refusal, required_refusal, unit_as_it_stands
from exhume.remedy.services.stopping import RUNS
from exhume.remedy.services.surroundings import Surroundings
from exhume.remedy.services.unit_steps import UnitCase, hold_step, stop_for_good, stop_step

# Where units are that were made at run time, and go when they end.
_TRANSIENT = "/run/systemd/transient/"


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes steps for services of a node. `fix` and `when` mark the files that would be written; `containers` are those
    of the node, some of which go down with the unit that keeps them."""

    controls: Controls
    files: OwnFiles
    around: Surroundings
    fix: str
    when: str
    force_required: bool = False
    containers: Sequence[Service] = ()

    def steps(self, chosen: Sequence[Chosen]) -> tuple[list[Step], list[str]]:
        """The steps for all of them, and why some are refused."""
        steps: list[Step] = []
        refused: list[str] = []
        for each in chosen:
            try:
                found, why = self._of(each)
            except ExhumeError as error:
                found, why = [], f"{each.service.key} could not be looked at: {error}"
            steps += found
            if why:
                refused.append(why)
        return steps, refused

    def _of(self, chosen: Chosen) -> tuple[list[Step], str]:
        service = chosen.service
        agent = chosen.judged.agent if chosen.judged is not None else None
        if why := refusal(service, self.around, agent):
            return [], why
        if service.manager is not Manager.SYSTEMD:
            return container_steps(chosen, self.controls)
        return self._unit(chosen)

    def _unit(self, chosen: Chosen) -> tuple[list[Step], str]:
        control, name = self.controls.systemd(), chosen.service.id
        state = control.unit_state(name)
        if state["load"] in ("not-found", ""):
            return [], f"there is no unit {name} on this node"
        if state["load"] == "masked":
            return [], f"{name} is masked already: nothing can start it"
        if why := self._protected(control, name, chosen.service.command):
            return [], why
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
            said = f"{listed(upholding)} asks for {name} without end (Upholds=), and would fill the log with it"
            return [], f"{said}; stop that first, or --force-required does it all the same"
        wanting = tuple(print_.get("wanted_by", "").split())
        unread = tuple(unit for unit in units if control.unit_state(unit).get("needs_reload") == "yes")
        case = UnitCase(chosen, units, tuple(along), self.fix, self.when, wanting, unread)
        running = _running(control, units)
        for unit in running:
            if control.unit_state(unit).get("refuses_stop") == "yes":
                return [], f"{unit} does not let itself be stopped: its unit says RefuseManualStop=yes"
        if print_.get("fragment", "").startswith(_TRANSIENT):
            if not running:
                return [], f"{name} was made at run time and does not run: nothing starts it again"
            return [stop_for_good(stop_step(case, running))], ""
        undoing = {unit: self.files.undone_by(control.unit_fingerprint(unit)) for unit in units}
        held, why = hold_step(case, self.files, {unit: path for unit, path in undoing.items() if path})
        if held is None:
            return [], why
        return [stop_step(case, running), held] if running else [held], ""

    def _protected(self, control: UnitControl, name: str, command: str | None = None) -> str:
        """Why a unit is not stopped, by all that is known of it now."""
        state = control.unit_state(name)
        service = unit_as_it_stands(name, state, command)
        return refusal(service, self.around, None, state.get("names", "").split(), state.get("listens", ""))


def _running(control: UnitControl, units: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in units if control.unit_state(name)["active"] in RUNS)

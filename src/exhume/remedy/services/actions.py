"""The actions of a fix on services: look, do, undo. Each is idempotent, also after a crash.

`undo` relies only on what `look` found, which is on disk before `do` begins.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from exhume.collect.containers.docker import EngineError
from exhume.collect.systemd.bus import BusSilent
from exhume.control.containers import DockerControl, check_container_id
from exhume.control.managers import ActionFailed, Controls, Kept, Left
from exhume.control.systemd import MAX_CPU_WEIGHT, RUNS, STAYS_UP, SystemdControl, check_unit_name
from exhume.control.unit_files import OwnFiles, drop_in_of
from exhume.model.audit import Manager
from exhume.model.errors import ExhumeError
from exhume.model.remedy import Step, StepResult
from exhume.model.stop import Stop

STOP_UNITS, HOLD_UNITS, MASK_UNITS = "stop-units", "hold-units", "mask-units"
STOP_CONTAINER, RESTART_POLICY = "stop-container", "restart-policy"
CPU_WEIGHT = "cpu-weight"
STOPPING_UNIT_ACTIONS = (STOP_UNITS, HOLD_UNITS, MASK_UNITS)
UNIT_ACTIONS, CONTAINER_ACTIONS = (*STOPPING_UNIT_ACTIONS, CPU_WEIGHT), (STOP_CONTAINER, RESTART_POLICY)
#: The name of the step parameter that sets a weight.
WEIGHT = "weight"
# systemd job results that mean success.
_DONE = ("done", "skipped")
_CONTAINER_GRACE_S = 30
# Fingerprint keys of the relations through which stopping one unit stops another.
_TAKEN_ALONG = ("required_by", "requisite_of", "bound_by", "consists_of", "propagates_stop_to")
_MOST_DEPENDENTS = 500
# systemd kills a unit whose stop times out; on a slow node that takes a while, too.
_MARGIN_S = 30.0
# DefaultTimeoutStopSec=, for units whose own timeout is unknown.
_USUAL_S = 90.0
# After a signal, wait this long for a stop that is about to complete.
_GRACE_S = 5.0

Before = Mapping[str, Any]


class Action(Protocol):
    """One kind of step that a fix can take."""

    def look(self, step: Step) -> dict[str, Any]:
        """Return the state found before the step."""

    def do(self, step: Step, before: Before) -> StepResult:
        """Take the step. Raises Left if exhume must not take it, and ExhumeError on failure."""

    def undo(self, step: Step, before: Before) -> str:
        """Restore the previous state. Raises Kept if that would do harm, and ExhumeError on failure."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a unit without a stop timeout, a callback every second, and what may end the wait early."""

    longest_s: float = 600.0
    notify: Callable[[str, float, float], None] = lambda name, waited, limit: None
    stop: Stop | None = None


def stop_unit(control: SystemdControl, name: str, patience: Patience, along: Iterable[str] = ()) -> str:
    """Stop a unit and return the job result; units that are stopped `along` with it get their timeouts as well. If the
    stop leaves the unit in the failed state, that is reset, since it was stopped on request. Raises ActionFailed if it
    does not stop in time: the job stays queued, and systemd continues with it."""
    ran = control.unit_state(name)["active"] in RUNS
    own = [control.unit_state(each).get("stop_within", "") for each in (name, *along)]
    if "infinity" in own:
        limit, why = patience.longest_s, "its TimeoutStopSec= is infinity"
    else:
        needed = sum(float(each or _USUAL_S) for each in own)
        limit, why = needed + _MARGIN_S, f"it may take {needed:,.0f} s by its TimeoutStopSec="

    def go_on(waited: float) -> bool:
        patience.notify(name, waited, limit)
        return patience.stop is None or not patience.stop.is_set() or waited < _GRACE_S

    try:
        result = control.stop(name, limit, go_on)
    except BusSilent as error:
        state = control.unit_state(name)["active"]
        interrupted = patience.stop is not None and patience.stop.is_set()
        reason = "interrupted" if interrupted else f"it has not stopped in {limit:,.0f} s ({why})"
        raise ActionFailed(
            f"{name} is {state} and was not waited for any longer: {reason}; systemd goes on stopping it, "
            "exhume fix apply waits again, exhume fix rollback starts it again"
        ) from error
    if ran and control.unit_state(name)["active"] == "failed":
        control.reset_failed(name)
    return result


def service_actions(controls: Controls, files: OwnFiles, patience: Patience | None = None) -> dict[str, Action]:
    """The actions, by the names that steps use for them."""
    patience = patience or Patience()
    return {
        STOP_UNITS: StopUnits(controls, files, patience),
        HOLD_UNITS: HoldUnits(controls, files, patience),
        MASK_UNITS: MaskUnits(controls, files, patience),
        STOP_CONTAINER: StopContainer(controls),
        RESTART_POLICY: ChangePolicy(controls),
        CPU_WEIGHT: LowerCpuWeight(controls),
    }


def stopped_along(control: SystemdControl, units: Iterable[str]) -> dict[str, str]:
    """The running units that would be stopped with these, with their state, nearest first."""
    found: dict[str, str] = {}
    pending = list(units)
    known = set(pending)
    while pending and len(known) < _MOST_DEPENDENTS:
        print_ = control.unit_fingerprint(pending.pop(0))
        for name in " ".join(print_.get(key, "") for key in _TAKEN_ALONG).split():
            if name not in known:
                known.add(name)
                state = control.unit_state(name)["active"]
                if state in RUNS:
                    found[name] = state
                    pending.append(name)
    return found


@dataclass(frozen=True, slots=True)
class _UnitAction:
    controls: Controls
    files: OwnFiles
    patience: Patience

    def _stop_again(self, units: Iterable[str]) -> StepResult:
        """Stop units that were started again since their stop; from now on nothing can start them."""
        control = self.controls.systemd()
        again = [name for name in units if control.unit_state(name)["active"] in RUNS]
        for name in again:
            stop_unit(control, name, self.patience)
        return StepResult(f"{', '.join(again)} had been started again meanwhile, and was stopped" if again else "")

    def _take_back(self, removals: Iterable[Callable[[], object]]) -> str:
        """Remove as many of exhume's files as possible, and reload systemd. Files changed since are kept."""
        kept = []
        for remove in removals:
            try:
                remove()
            except Kept as error:
                kept.append(str(error))
        self.controls.systemd().daemon_reload()
        if kept:
            raise Kept("; ".join(kept))
        return ""


class StopUnits(_UnitAction):
    """Stop units in order: a unit that triggers another is stopped before it."""

    def look(self, step: Step) -> dict[str, Any]:
        control = self.controls.systemd()
        states = {name: control.unit_state(check_unit_name(name))["active"] for name in step.targets}
        return {"states": states, "along": stopped_along(control, step.targets)}

    def do(self, step: Step, before: Before) -> StepResult:
        control = self.controls.systemd()
        for name in step.targets:
            result = stop_unit(control, check_unit_name(name), self.patience, before["along"])
            if result not in _DONE:
                raise ActionFailed(f"{name} was not stopped: systemd's job ended with {result}")
        return StepResult()

    def undo(self, step: Step, before: Before) -> str:
        control = self.controls.systemd()
        ran = [name for name, state in before["states"].items() if state in RUNS] + list(before["along"])
        messages, held = [], []
        for name in ran:
            now = control.unit_state(check_unit_name(name))
            if self.files.is_held(name):
                held.append(name)
            elif now["load"] in ("not-found", "masked"):
                messages.append(f"{name} is {now['load']}, so it was not started again")
            elif now["active"] not in STAYS_UP and (news := _start(control, name, now["active"])):
                messages.append(news)
        if held:
            raise Kept(f"{', '.join(held)} can't be started while {drop_in_of(held[0])} is there")
        return "; ".join(messages)


class HoldUnits(_UnitAction):
    """Keep units from being started, by one drop-in each."""

    def look(self, step: Step) -> dict[str, Any]:
        for name in step.targets:
            if why := self.files.drop_in_obstacle(name):
                raise ActionFailed(f"{name} can't be held back: {why}")
        return {"units": {name: self.files.look(name) for name in step.targets}}

    def do(self, step: Step, before: Before) -> StepResult:
        control = self.controls.systemd()
        for name, text in _texts(step).items():
            self.files.write_drop_in(name, text)
        control.daemon_reload()
        for name in step.targets:
            if drop_in_of(name) not in control.unit_fingerprint(name).get("drop_ins", ""):
                raise ActionFailed(f"systemd did not read {drop_in_of(name)}; is its unit directory another one?")
        return self._stop_again(step.targets)

    def undo(self, step: Step, before: Before) -> str:
        removals = (
            partial(self.files.remove_drop_in, name, text, dict(before["units"][name]))
            for name, text in reversed(_texts(step).items())
        )
        return self._take_back(removals)


class MaskUnits(_UnitAction):
    """Keep units from being started by masking them, if their name is too long for a drop-in."""

    def look(self, step: Step) -> dict[str, Any]:
        for name in step.targets:
            if why := self.files.mask_obstacle(name):
                raise ActionFailed(f"{name} can't be masked: {why}")
        return {"free": list(step.targets)}

    def do(self, step: Step, before: Before) -> StepResult:
        for name in step.targets:
            self.files.mask(name)
        self.controls.systemd().daemon_reload()
        return self._stop_again(step.targets)

    def undo(self, step: Step, before: Before) -> str:
        return self._take_back(partial(self.files.unmask, name) for name in reversed(before["free"]))


@dataclass(frozen=True, slots=True)
class LowerCpuWeight:
    """Lower the CPU weight of units on busy cores, until the next boot."""

    controls: Controls

    def look(self, step: Step) -> dict[str, Any]:
        control = self.controls.systemd()
        return {"weights": {name: control.cpu_weight(check_unit_name(name)) for name in step.targets}}

    def do(self, step: Step, before: Before) -> StepResult:
        control, weight = self.controls.systemd(), _weight(step)
        for name in step.targets:
            control.set_cpu_weight(check_unit_name(name), weight)
            if (now := control.cpu_weight(name)) != weight:
                raise ActionFailed(f"the CPU weight of {name} is {now}, not {weight}: systemd did not take it")
        running = [name for name in step.targets if control.unit_state(name)["active"] in RUNS]
        without = [name for name in running if not control.has_cpu_cgroup(name)]
        why = "has no cgroup of the cpu controller here, so that its weight makes no difference"
        return StepResult(f"{', '.join(without)} {why}" if without else "")

    def undo(self, step: Step, before: Before) -> str:
        control, ours = self.controls.systemd(), _weight(step)
        changed = []
        for name in reversed(step.targets):
            now, was = control.cpu_weight(check_unit_name(name)), before["weights"][name]
            if now == ours != was:
                control.set_cpu_weight(name, was)
            elif now != was:
                changed.append(f"the CPU weight of {name} was changed to {now} since, so it is left")
        if changed:
            raise Kept("; ".join(changed))
        return ""


def _weight(step: Step) -> int:
    """The weight of a step. Raises ActionFailed if it is not one that systemd accepts."""
    text = dict(step.params).get(WEIGHT, "")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MAX_CPU_WEIGHT:
        raise ActionFailed(f"{text!r} is not a CPU weight; make a new plan")
    return int(text)


@dataclass(frozen=True, slots=True)
class _ContainerAction:
    controls: Controls

    def _container(self, step: Step) -> tuple[DockerControl, str]:
        """The engine and the container id that a step's single target, MANAGER:ID, refers to."""
        (target,) = step.targets
        manager, _, container = target.partition(":")
        return self.controls.engine(Manager(manager)), check_container_id(container)


class StopContainer(_ContainerAction):
    """Stop a container, by its id."""

    def look(self, step: Step) -> dict[str, Any]:
        engine, container = self._container(step)
        return {"ran": engine.runs(container), "paused": engine.is_paused(container)}

    def do(self, step: Step, before: Before) -> StepResult:
        engine, container = self._container(step)
        engine.stop(container, _CONTAINER_GRACE_S)
        return StepResult()

    def undo(self, step: Step, before: Before) -> str:
        engine, container = self._container(step)
        if not before["ran"]:
            return ""
        if _is_gone(engine, container):
            return "the container was removed since, so it was not started again"
        if not engine.runs(container):
            engine.start(container)
        # Fixes recorded by 0.1.0 lack this key.
        if before.get("paused", False) and not engine.is_paused(container):
            engine.pause(container)
            return "it is paused again, but was restarted: what it had in memory is lost"
        return ""


class ChangePolicy(_ContainerAction):
    """Keep a container from being restarted, by its restart policy."""

    def look(self, step: Step) -> dict[str, Any]:
        engine, container = self._container(step)
        policy = engine.restart_policy(container)
        return {"policy": policy.name, "max_retries": policy.max_retries}

    def do(self, step: Step, before: Before) -> StepResult:
        engine, container = self._container(step)
        if engine.restart_policy(container).name != "no":
            try:
                engine.update_restart_policy(container, "no")
            except ExhumeError as error:
                if not step.targets[0].startswith(f"{Manager.PODMAN.value}:"):
                    raise
                # Podman has no daemon that would restart it before the next boot.
                raise Left(
                    f"{error}; it stays down until something, such as podman-restart.service, starts it"
                ) from None
        if engine.runs(container):
            engine.stop(container, _CONTAINER_GRACE_S)
            return StepResult("it had been started again meanwhile, and was stopped")
        return StepResult()

    def undo(self, step: Step, before: Before) -> str:
        engine, container = self._container(step)
        if _is_gone(engine, container):
            return "the container was removed since, and its restart policy with it"
        now = engine.restart_policy(container)
        if now.name not in ("no", before["policy"]):
            raise Kept(f"its restart policy was changed to {now.name} since, so it is left")
        if now.name != before["policy"]:
            engine.update_restart_policy(container, before["policy"], before["max_retries"])
        return ""


def _texts(step: Step) -> dict[str, str]:
    """The drop-in text for each unit. Raises ActionFailed if a step names files other than exhume's."""
    wanted = {name: drop_in_of(name) for name in step.targets}
    named = dict(step.files)
    if set(named) != set(wanted.values()):
        raise ActionFailed("the step names files that are not exhume's; make a new plan")
    return {name: named[path] for name, path in wanted.items()}


def _start(control: SystemdControl, name: str, was: str) -> str:
    """Start what ran before; returns a remark, if any. Whether it then runs well is not judged."""
    try:
        result = control.start(name)
    except BusSilent:
        if was != "deactivating":
            raise
        # The start job is queued and replaces the stop job.
        return f"{name} is still on its way down; systemd starts it as soon as it is"
    return "" if result in _DONE else f"{name} was started again, and that ended with {result}"


def _is_gone(engine: DockerControl, container: str) -> bool:
    try:
        engine.fingerprint(container)
    except EngineError as error:
        if error.status == 404:
            return True
        raise
    return False

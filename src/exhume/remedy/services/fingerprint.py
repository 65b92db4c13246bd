"""The state that a plan was made from, so that it is only applied to that state."""

from collections.abc import Iterable

from exhume.model.audit import Manager
from exhume.model.errors import ExhumeError
from exhume.model.remedy import Step
from exhume.remedy.services.actions import HOLD_UNITS, MASK_UNITS, RESTART_POLICY, STOP_CONTAINER, STOP_UNITS
from exhume.remedy.services.controls import Controls

_NOT_FOUND = 404


def fingerprints(steps: Iterable[Step], controls: Controls) -> dict[str, dict[str, str]]:
    """One for each unit and container that these steps change; none for what is gone. Raises ExhumeError where a
    manager does not answer."""
    found: dict[str, dict[str, str]] = {}
    for step in steps:
        for target in step.targets:
            if target in found:
                continue
            if step.action in (STOP_UNITS, HOLD_UNITS, MASK_UNITS):
                found[target] = controls.systemd().unit_fingerprint(target)
            elif step.action in (STOP_CONTAINER, RESTART_POLICY):
                _of_container(target, controls, found)
    return found


def _of_container(target: str, controls: Controls, found: dict[str, dict[str, str]]) -> None:
    manager, _, container = target.partition(":")
    try:
        found[target] = controls.engine(Manager(manager)).fingerprint(container)
    except ExhumeError as error:
        if getattr(error, "status", None) != _NOT_FOUND:
            raise

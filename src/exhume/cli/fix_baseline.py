"""The measures that a plan should change, as they are before anything is done."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exhume.model.audit import History
    from exhume.model.remedy import Effect
    from exhume.model.stop import Stop
    from exhume.remedy.services.node import Node
    from exhume.store.read.recording import Recording

# What a loop did a day ago says little of how often it turns now.
_HOURS = 1.0


def measured(
    node: "Node", effects: Sequence["Effect"], directory: Path, seconds: float, stop: "Stop"
) -> dict[str, Any] | None:
    """What a ledger keeps for `exhume fix verify`; None where nothing is to be measured."""
    from exhume.cli.terminal import ProgressBar
    from exhume.remedy.verify.baseline import take_baseline
    from exhume.remedy.verify.restarts import NodeRestarts

    if not effects or seconds <= 0:
        return None
    restarts = NodeRestarts(node.root)
    try:
        with ProgressBar("measuring before anything is done") as bar:
            taken = take_baseline(
                node.root.host,
                effects,
                seconds,
                _recording(node, directory),
                restarts=restarts,
                histories=partial(_histories, node, effects),
                stop=stop,
                progress=bar,
            )
    finally:
        restarts.close()
    return taken.to_dict()


def _recording(node: "Node", directory: Path) -> "Recording | None":
    """The recording that goes on here, if one does."""
    from exhume.model.errors import RecordingError
    from exhume.store.read.recording import Recording

    if not node.root.is_here:
        return None
    try:
        return Recording.open(directory)
    except RecordingError:
        return None


def _histories(node: "Node", effects: Sequence["Effect"]) -> dict[str, "History"]:
    """How the subjects fared of late, as their managers tell it: seconds of looking see few restarts."""
    from exhume.collect.containers.docker_services import docker_services
    from exhume.collect.systemd.journal import unit_history
    from exhume.model.audit import Manager
    from exhume.remedy.services.choose import manager_of

    subjects = {effect.subject for effect in effects if effect.subject}
    units = [subject for subject in subjects if manager_of(subject) is None]
    found = dict(unit_history(node.root, units, _HOURS)) if units else {}
    managers = {manager_of(subject) for subject in subjects}
    for manager, socket in ((Manager.DOCKER, node.root.docker), (Manager.PODMAN, node.root.podman)):
        if manager in managers and socket is not None:
            rows = docker_services(socket, manager, host=node.root.host, hours=_HOURS, log_lines=0).services
            found |= {row.key: row.history for row in rows if row.key in subjects and row.history is not None}
    return found

"""A fix of a real Podman's container goes as far as its API does, says so, and is put back."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.runtimes.own_podman import OwnPodman, own_podman
from tests.system.runtimes.runtime_parts import IMAGE, PATIENCE_S, READY, ends_when_asked
from tests.system.zombies.own_docker import until

from exhume.control.containers import DockerControl
from exhume.control.managers import Controls
from exhume.control.unit_files import OwnFiles
from exhume.model.audit import Manager, Service
from exhume.model.remedy import Plan
from exhume.model.stop import Stop
from exhume.remedy.fixer import Fixer
from exhume.remedy.ledger import FixState, Ledger, SavedPlan, new_id
from exhume.remedy.services.actions import service_actions
from exhume.remedy.services.planner import Planner
from exhume.remedy.services.refusals import Surroundings
from exhume.remedy.services.steps import Selection

pytestmark = [pytest.mark.root, pytest.mark.needs("podman", "conmon", "runc", "busybox")]


@pytest.fixture(scope="module")
def podman() -> Iterator[OwnPodman]:
    with own_podman() as own:
        own.import_busybox(IMAGE)
        yield own


def test_it_is_stopped_and_its_new_policy_is_reported(podman: OwnPodman, tmp_path: Path) -> None:
    container = podman.run("resting", IMAGE, ends_when_asked(0), "--restart", "always")
    until("it listens", lambda: READY in podman("logs", container), PATIENCE_S)
    control = DockerControl(podman.socket)
    controls, ledger = Controls(engines={Manager.PODMAN: control}), Ledger(tmp_path)
    planner = Planner(controls, OwnFiles(Path), Surroundings(), new_id(time.time_ns()), "now")
    steps, refused = planner.steps([Selection(Service(Manager.PODMAN, container, "resting"))])
    assert refused == [] and [step.action for step in steps] == ["stop-container", "restart-policy"]
    saved = SavedPlan(planner.fix, Plan("podman:resting", None, "", tuple(steps)), "n", "m", "/", "b", 1)
    fixer = Fixer(ledger, service_actions(controls, OwnFiles(Path)), Stop())
    done = fixer.apply(ledger.save(saved.begun()))
    assert done.state is FixState.APPLIED
    until("it is down", lambda: not control.runs(container), PATIENCE_S)
    # Newer ones can change it; an older one leaves it, and that is said.
    left = done.entries[1].mark.value == "left" and "not changed" in done.entries[1].why
    assert left or control.restart_policy(container).name == "no"
    assert fixer.roll_back(done).state is FixState.ROLLED_BACK
    assert control.runs(container) and control.restart_policy(container).name == "always"

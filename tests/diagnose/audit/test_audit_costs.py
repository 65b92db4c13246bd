"""What services cost, from recordings of real loops and from live cgroups."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.diagnose.audit.audit_scenes import container, facts, looping, unit
from tests.diagnose.scenes import Scene

from exhume.diagnose.audit.judge import Bill, audit, costs_of
from exhume.model.audit import Costs, Manager, ServiceList, Use
from exhume.model.tables import RESTART
from exhume.store.read.recording import Recording

INCIDENTS = Path(__file__).resolve().parents[1] / "incidents"


@pytest.fixture(scope="module")
def incident() -> Recording:
    """Seconds of the incident as the lab plays it: a container that crashes, and leaks cgroups as it does."""
    return Recording.open(INCIDENTS / "incident")


def test_a_container_is_billed_for_what_it_leaks_under_any_id(incident):
    costs = priced(container("ecs-agent"), incident)
    assert costs.source == "recording" and costs.seconds == pytest.approx(17, abs=2)
    assert costs.cgroups_made is not None and costs.cgroups_made > 100
    # Those that were made before the recording began, and removed in it, are leaked as well.
    assert costs.cgroups_leaked is not None and costs.cgroups_leaked > 100


def test_another_container_is_not_billed_for_it(incident):
    costs = priced(container("web"), incident)
    assert (costs.cgroups_made, costs.cgroups_leaked, costs.cpu_seconds) == (0, 0, 0.0)


def test_a_unit_is_billed_for_the_cpu_of_its_cgroup(incident):
    mine, other = priced(unit("service-1.service"), incident), priced(unit("service-11.service"), incident)
    assert mine.cpu_seconds is not None and mine.cpu_seconds > 0.1
    assert other.cpu_seconds == 0.0


def test_what_was_not_recorded_is_not_zero(tmp_path, incident):
    shutil.copytree(INCIDENTS / "incident", tmp_path / "r")
    for table in ("samples", "cgroup_events"):
        for file in (tmp_path / "r").rglob(f"{table}.*"):
            file.unlink()
    costs = priced(container("ecs-agent"), Recording.open(tmp_path / "r"))
    assert (costs.cpu_seconds, costs.cgroups_made, costs.cgroups_leaked) == (None, None, None)


def test_starts_of_a_program_are_counted_in_its_own_cgroups_alone(tmp_path):
    """A shell loops in a unit and in each attempt of a pod's container, and a person has another one."""
    attempts, name = ["1b" * 32, "2c" * 32], "shop/cart-0/web"
    scene = Scene(cores=1, seconds=40)
    homes = [f"/kubepods/pod0f1e2d3c-0000-4000-8000-0123456789ab/{each}" for each in attempts]
    homes += ["/system.slice/poller.service", "/user.slice/session-3.scope"]
    for number, (home, times) in enumerate(zip(homes, (5.0, 4.0, 7.0, 26.0), strict=True)):
        known = {"container": attempts[number], "container_name": name} if number < 2 else {}
        scene.row("processes", 3 + number, pid=300 + number, comm="sh", cgroup=home, **known)
        scene.event(9 + number, RESTART, "sh", "warning", source="recorder", comm="sh", pid=300 + number, value=times)
        row = {"hierarchy": 4, "id": 900 + number, "level": 2, "path": home}
        scene.row("cgroup_events", 3 + number, op="mkdir", pid=40, comm="runc", **row)
    # A process that was not seen belongs to none of them.
    scene.event(20, RESTART, "sh", "warning", source="recorder", comm="sh", pid=999, value=50.0)
    recording = scene.write(tmp_path)
    newest = replace(container(name), manager=Manager.CRI, id=attempts[1], command="/bin/sh -c 'exit 1'")
    costs = priced(newest, recording)
    assert (costs.forks, costs.cgroups_made) == (9, 2)
    assert priced(looping("poller.service", command="/bin/sh /opt/poll"), recording).forks == 7
    assert priced(looping("other.service", command="/bin/sh /opt/poll"), recording).forks is None
    assert priced(looping("poller.service", command="/usr/bin/nobody"), recording).forks is None


def test_the_leaker_of_two_loops_comes_first(incident):
    services = [looping("a.service", history=None, restarts=9), container("ecs-agent", "restarting", restarts=9)]
    found = audit(ServiceList(services, []), facts(*services), incident)
    assert found.services[0].service.key == "docker:ecs-agent"


def test_without_a_recording_the_live_cgroup_tells():
    use = Use(cpu_seconds=1.5, memory_bytes=4096)
    assert costs_of(unit(age_s=60.0), use, None) == Costs("live", 60.0, 1.5, 4096)
    assert costs_of(unit(), Use(), None) is None


def priced(service, recording) -> Costs:
    bill = Bill.read(recording)
    assert bill is not None
    costs = costs_of(service, Use(), bill)
    assert costs is not None
    return costs

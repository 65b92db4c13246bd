"""What changed just before a focus is named where it is about what the finding names, and where it is a change."""

from pathlib import Path

import pytest
from tests.diagnose.causes.test_cause_overcommit import SINCE, found, noisy
from tests.diagnose.judged import judged
from tests.diagnose.scenes import MONO, Scene

from exhume.model.clock import NANOS
from exhume.model.finding import Diagnosis, EntityKind, Link, Role

UNIT = "encoder.service"
IN_UNIT = f"/system.slice/{UNIT}"
ID = "ab" * 32
IN_CONTAINER = f"/docker/{ID}"


def changes(diagnosis: Diagnosis) -> list[Link]:
    return [link for link in found(diagnosis).chain if link.code.startswith("change.")]


def in_cgroup(path: str) -> Scene:
    scene = noisy(cgroup=path)
    return scene.row("processes", 1, pid=900, comm="encoder", cmdline="encoder --all", cgroup=path)


def test_a_unit_that_was_started_just_before_is_named(tmp_path: Path) -> None:
    scene = in_cgroup(IN_UNIT).event(SINCE - 4, "unit-started", "started", "info", source="systemd", comm=UNIT)
    scene.event(SINCE - 4, "unit-started", "started", "info", source="systemd", comm="other.service")
    [link] = changes(judged(scene, tmp_path))
    assert (link.role, link.code) == (Role.ROOT_CAUSE, "change.started")
    assert [(each.kind, each.id) for each in link.entities] == [(EntityKind.UNIT, UNIT)]
    assert "encoder.service was started" in link.text and "before" in link.text


def test_a_container_that_was_started_just_before_is_named(tmp_path: Path) -> None:
    scene = in_cgroup(IN_CONTAINER)
    row = {"container": ID, "container_name": "encoder", "image": "media/encoder:7"}
    scene.event(SINCE - 10, "container-start", "started", "info", source="docker", **row)
    [link] = changes(judged(scene, tmp_path))
    assert [(each.kind, each.name) for each in link.entities] == [(EntityKind.CONTAINER, "encoder")]


@pytest.mark.parametrize("when", [SINCE - 15, SINCE + 8])
def test_what_began_again_or_later_is_no_change(tmp_path: Path, when: int) -> None:
    scene = in_cgroup(IN_UNIT).event(when, "unit-started", "started", "info", source="systemd", comm=UNIT)
    if when < SINCE:
        scene.event(2, "unit-started", "started", "info", source="systemd", comm=UNIT)
    assert changes(judged(scene, tmp_path)) == []


def test_limits_that_were_changed_are_named_with_what_they_were(tmp_path: Path) -> None:
    scene = in_cgroup(IN_UNIT).row("cgroup_cpu", 2, cgroup=IN_UNIT, shares=200, quota=1.0, cores="0-1")
    scene.row("cgroup_cpu", SINCE - 2, cgroup=IN_UNIT, shares=2048, quota=4.0, cores="0-3")
    scene.row("cgroup_cpu", SINCE - 2, cgroup="/system.slice/other.service", shares=2048)
    diagnosis = judged(scene, tmp_path)
    links = changes(diagnosis)
    # One for each thing that is named.
    assert [link.code for link in links] == ["change.shares"]
    assert "2048 CPU shares, 200 before" in links[0].text
    assert [each.id for each in links[0].entities] == [IN_UNIT]


def test_a_cgroup_that_was_made_is_named_with_its_maker(tmp_path: Path) -> None:
    path = "/jobs/nightly"
    scene = in_cgroup(path)
    row = {"hierarchy": 4, "op": "mkdir", "id": 7, "level": 2, "pid": 40, "comm": "starter"}
    scene.row("cgroup_events", SINCE - 3, path=path, **row)
    scene.row("cgroup_cpu", SINCE, cgroup=path, shares=1024)
    diagnosis = judged(scene, tmp_path)
    assert [link.code for link in changes(diagnosis)] == ["change.made"]
    assert "by starter" in changes(diagnosis)[0].text
    crowd = in_cgroup(path)
    for number in range(20):
        crowd.row("cgroup_events", number, path=f"/jobs/{number}", **row)
    assert changes(judged(crowd, tmp_path / "crowd")) == []


def test_a_process_that_was_started_is_named_unless_its_command_is_started_often(tmp_path: Path) -> None:
    def started(*seconds: int) -> Scene:
        scene = noisy()
        for number, second in enumerate(seconds):
            pid = 900 if number == len(seconds) - 1 else 700 + number
            row = {"pid": pid, "ppid": 1, "comm": "encoder", "cmdline": "encoder --all"}
            scene.row("processes", second + 1, start=MONO + second * NANOS, **row)
        return scene

    [link] = changes(judged(started(SINCE - 2), tmp_path))
    assert [(each.kind, each.id) for each in link.entities] == [(EntityKind.PROCESS, "900")]
    assert changes(judged(started(4, 9, SINCE - 2), tmp_path / "often")) == []

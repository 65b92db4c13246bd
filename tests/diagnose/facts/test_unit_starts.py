"""The unit that starts a container again and again: named only if its runs could not be in step by chance."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.diagnose.scenes import Scene, at

from exhume.diagnose.evidence.case import Case
from exhume.diagnose.facts.unit_starts import UnitStarter, find_starter
from exhume.model.clock import Window

NAME, UNIT, OTHER = "gloom", "murk.service", "haze.service"
# Not quite regular, as on a real node.
STARTS = [2.0, 7.4, 12.9, 18.1, 23.6, 29.0, 34.3, 39.9, 45.2]
CODE = 5


def number_of(run: int) -> str:
    return f"{run + 1:064x}"


def containers(scene: Scene, code: float | None = CODE, *, again: bool = False, **more: object) -> Scene:
    """A container that starts 0.3 s after each start and lives for 2.5 s; the same one `again`, or new ones."""
    for run, second in enumerate(STARTS):
        known = {"container": number_of(0 if again else run), "container_name": NAME, "source": "docker", **more}
        scene.event(second + 0.3, "container-start", f"container {NAME} started", "info", **known)
        scene.event(second + 2.8, "container-die", f"container {NAME} ended", "info", value=code, **known)
    return scene


def unit(
    scene: Scene, name: str = UNIT, starts: Iterable[float] = STARTS, life: float = 2.9, code: float = CODE
) -> Scene:
    for second in starts:
        known = {"source": "systemd", "comm": name}
        scene.event(second, "unit-started", f"unit {name} started", "info", **known)
        scene.event(second + life, "unit-ended", f"unit {name} ended", "info", value=code, **known)
    return scene


def process(scene: Scene, cmdline: str, name: str = UNIT) -> Scene:
    cgroup = f"/system.slice/{name}"
    return scene.row("processes", 41.0, pid=900, ppid=1, comm="docker", cmdline=cmdline, cgroup=cgroup)


def starter(scene: Scene, directory: Path, name: str | None = NAME, ids: Iterable[str] = ()) -> UnitStarter | None:
    case = Case(scene.write(directory), Window(at(0), at(scene.seconds)), Window(at(0), at(0)))
    return find_starter(case, name, frozenset(ids))


def scene_of() -> Scene:
    return Scene(cores=2, seconds=50)


def test_a_unit_that_ends_as_each_new_container_does_starts_it(tmp_path: Path) -> None:
    found = starter(unit(containers(scene_of())), tmp_path)
    assert found is not None
    assert (found.unit, found.times, found.code, found.command) == (UNIT, len(STARTS), CODE, None)
    assert [each.value for each in found.evidence] == [len(STARTS)] * 2


@pytest.mark.parametrize("command", [f"docker run --name {NAME} image", f"/usr/bin/docker start -a {NAME}"])
def test_a_client_in_the_unit_that_names_the_container_shows_it(tmp_path: Path, command: str) -> None:
    """Also where the codes say nothing and the container is always the same."""
    found = starter(process(unit(containers(scene_of(), 0, again=True), code=0), command), tmp_path)
    assert found is not None and (found.unit, found.code, found.command) == (UNIT, None, command)


def test_containers_without_a_lasting_name_have_a_starter_by_their_ids(tmp_path: Path) -> None:
    found = starter(unit(containers(scene_of())), tmp_path, None, [number_of(run) for run in range(len(STARTS))])
    assert found is not None and found.unit == UNIT


def test_lost_events_of_one_run_in_many_do_not_hide_it(tmp_path: Path) -> None:
    assert starter(unit(containers(scene_of()), starts=[*STARTS[:3], *STARTS[4:]]), tmp_path) is not None


def test_a_container_that_docker_restarts_has_no_unit(tmp_path: Path) -> None:
    assert starter(containers(scene_of(), again=True), tmp_path) is None


def test_a_unit_that_fails_with_a_container_that_docker_restarts_does_not_start_it(tmp_path: Path) -> None:
    """A restart policy starts the same container again; a unit that needs it may well be in step with it."""
    assert starter(unit(containers(scene_of(), again=True)), tmp_path) is None


@pytest.mark.parametrize("code", [0, 1])
def test_an_exit_code_of_most_programs_ties_nothing(tmp_path: Path, code: int) -> None:
    assert starter(unit(containers(scene_of(), code), code=code), tmp_path) is None


def test_another_exit_code_is_another_program(tmp_path: Path) -> None:
    assert starter(unit(containers(scene_of()), code=7), tmp_path) is None


@pytest.mark.parametrize(
    ("starts", "life"),
    [
        # Another rhythm; the same with another phase: after the container's start, or long after its end.
        ([second * 4.1 + 1 for second in range(11)], 2.9),
        ([second + 0.5 for second in STARTS], 2.9),
        ([second - 1.9 for second in STARTS], 1.5),
        ([second - 0.2 for second in STARTS], 5.15),
        # Twice as often, half as often, and only of late.
        (sorted([*STARTS, *(second + 3.0 for second in STARTS)]), 2.9),
        (STARTS[::2], 2.9),
        (STARTS[-4:], 2.9),
        # Too few to be in step.
        (STARTS[:3], 2.9),
    ],
)
def test_a_unit_with_other_runs_is_not_named(tmp_path: Path, starts: list[float], life: float) -> None:
    scene = unit(containers(scene_of()), starts=starts, life=life)
    assert starter(process(scene, f"docker run --name {NAME} image"), tmp_path) is None


def test_of_two_units_in_step_none_is_named_but_the_one_with_the_client(tmp_path: Path) -> None:
    both = unit(unit(containers(scene_of())), OTHER)
    assert starter(both, tmp_path / "both") is None
    both = process(unit(unit(containers(scene_of())), OTHER), f"docker run --name={NAME} image", OTHER)
    found = starter(both, tmp_path / "client")
    assert found is not None and found.unit == OTHER


@pytest.mark.parametrize("command", [f"docker logs -f {NAME}", "docker run --name other image", f"tail -f {NAME}"])
def test_a_client_that_does_not_start_the_container_is_no_sign(tmp_path: Path, command: str) -> None:
    assert starter(process(unit(containers(scene_of(), again=True)), command), tmp_path) is None


def test_a_container_of_a_pod_is_started_by_kubelet(tmp_path: Path) -> None:
    assert starter(unit(containers(scene_of(), pod="0f1e2d3c", pod_name="ci/runner")), tmp_path) is None


@pytest.mark.parametrize("shared", ["docker.service", "containerd.service", "kubelet.service"])
def test_a_unit_that_runs_the_work_of_others_is_not_named(tmp_path: Path, shared: str) -> None:
    assert starter(unit(containers(scene_of()), shared), tmp_path) is None

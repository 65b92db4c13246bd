"""A stage: programs under chosen names on chosen cores, gone with their starter, however that ends."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.lab.lab_program import PROGRAM, exhume_lab, until
from tests.lab.lab_traces import command_lines

from exhume.cli.main import main
from exhume.diagnose.catalogue import catalogue
from exhume.lab.programs.keeper import marked
from exhume.lab.scenarios import SCENARIOS
from exhume.lab.stage import Scenario, perform, stage
from exhume.model.errors import LabError, UsageError


def status_of(pid: int, field: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{field}:"))


def test_a_program_has_its_name_and_its_core(tmp_path: Path) -> None:
    core = max(os.sched_getaffinity(0))
    with stage("some", seconds=1, core=core, name="my-name", work=tmp_path) as playing:
        started = playing.start("cpu.compute", "600", core=core, nice=19)
        assert until(lambda: status_of(started.pid, "Name") == "my-name")
        assert os.sched_getaffinity(started.pid) == {core}
        assert os.getpriority(os.PRIO_PROCESS, started.pid) == 19
        directory = playing.directory
    assert started.returncode == -signal.SIGKILL
    assert not directory.exists()
    assert marked(directory.name) == []


def test_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    drawn = []
    for _ in range(2):
        with stage("some", seconds=1, seed=5, work=tmp_path) as playing:
            drawn.append((playing.core, playing.name, playing.rng.random()))
    assert drawn[0] == drawn[1]


def test_two_runs_of_the_same_seed_side_by_side(tmp_path: Path) -> None:
    with (
        stage("some", seconds=1, seed=5, work=tmp_path) as one,
        stage("some", seconds=1, seed=5, work=tmp_path) as other,
    ):
        assert one.directory != other.directory


def test_a_core_that_isnt_there(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="there is no core 8000 here"), stage("x", seconds=1, core=8000, work=tmp_path):
        pass
    assert not any(tmp_path.iterdir())


def test_a_program_that_fails_ends_the_scenario(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="compute ended with code 1"), stage("x", seconds=1, work=tmp_path) as playing:
        playing.start("cpu.compute", "not a number")
        playing.wait(60)
    assert not any(tmp_path.iterdir())


def test_whatever_a_scenario_raises_it_is_cleared_away(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), stage("x", seconds=1, work=tmp_path) as playing:
        started = playing.start("cpu.compute", "600", nice=19)
        raise ZeroDivisionError
    assert started.returncode == -signal.SIGKILL
    assert not any(tmp_path.iterdir())


def test_a_scenario_without_root_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="needs root; run it with sudo"):
        perform(SCENARIOS["quiet"], work=tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.root
def test_a_scenario_without_room_is_refused(tmp_path: Path) -> None:
    greedy = Scenario("", name="greedy", memory=1 << 60)
    with pytest.raises(LabError, match=r"greedy takes up to .* MiB can be spared"):
        perform(greedy, work=tmp_path)


@pytest.mark.root
@pytest.mark.parametrize(("options", "said"), [({"seconds": 0.1}, "lasts from"), ({"name": "a" * 16}, "is no name")])
def test_what_makes_no_sense_is_refused(tmp_path: Path, options: dict, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        perform(SCENARIOS["quiet"], work=tmp_path, **options)


@pytest.mark.root
def test_a_scenario_is_prepared_and_played_on_its_core(tmp_path: Path) -> None:
    order = []
    story = Scenario(
        "", lambda _: order.append("prepared"), name="story", play=lambda playing: order.append(playing.core)
    )
    core = min(os.sched_getaffinity(0))
    assert perform(story, core=core, work=tmp_path).core == core
    assert order == ["prepared", core]
    assert not any(tmp_path.iterdir())


@pytest.mark.root
def test_killed_its_programs_die_with_it_and_the_rest_is_cleaned(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*PROGRAM, "run", "quiet", "--for", "600s", "--seed", "3", "--work", str(tmp_path)]
    ) as process:
        # Also the program that starts one itself, which the kernel doesn't end with its grandparent.
        assert until(lambda: len(programs_of(tmp_path)) >= 2)
        busy = exhume_lab("clean", "--work", str(tmp_path))
        assert busy.returncode == 2 and "still works on" in busy.stderr
        run = next(tmp_path.glob("quiet-*")).name
        process.send_signal(signal.SIGKILL)
    assert until(lambda: not programs_of(tmp_path) and not marked(run))
    assert exhume_lab("list", "--work", str(tmp_path)).stdout.count("left here") == 1
    done = exhume_lab("clean", "--work", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert run in done.stdout
    assert not any(tmp_path.iterdir())
    assert exhume_lab("clean", "--work", str(tmp_path)).stdout == "nothing to remove\n"


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_it_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    command = [*PROGRAM, "run", "quiet", "--for", "600s", "--work", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert until(lambda: programs_of(tmp_path))
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "quiet was stopped, and all that it made is removed\n"
    assert not any(tmp_path.iterdir())
    assert not programs_of(tmp_path)


def programs_of(work: Path) -> list[str]:
    return [line for _, line in command_lines() if line.startswith(str(work))]


def test_every_scenario_has_a_cause_of_the_table_and_a_name_of_its_own():
    assert [name for name in SCENARIOS if name != SCENARIOS[name].name] == []
    assert {each.cause for each in SCENARIOS.values()} - {""} <= set(catalogue())
    assert all(bool(each.cause) is not each.healthy for each in SCENARIOS.values())
    assert all(each.summary and each.seconds <= 30 for each in SCENARIOS.values())


def test_every_scenario_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["lab", "list"])
    printed = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert all([each.name, each.cause or "nothing"] in printed for each in SCENARIOS.values())

"""What `exhume fix plan TARGET` makes of a target, as its users meet it; where no service manager can be asked too."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.cli.commands.fix.plan import is_needless
from exhume.diagnose.catalogue import catalogue
from exhume.model.finding import Action
from exhume.model.remedy import Plan

INCIDENTS = Path(__file__).resolve().parents[3] / "diagnose/incidents"


def test_every_fix_of_the_catalogue_has_a_target():
    fixes = [
        each for cause in catalogue().values() for each in cause.remedies if each.action in (Action.APPLY, Action.PLAN)
    ]
    assert len(fixes) >= 10
    assert {each.template for each in fixes} == {"{target}", "docker:{target}", "zombies"}
    assert replace(fixes[0], target="a b").fix_target == "docker:a b"
    assert replace(fixes[0], target="a b").command == "exhume fix apply 'docker:a b'"
    others = [each for cause in catalogue().values() for each in cause.remedies if each.action is Action.RUN]
    assert others and all(each.fix_target is None for each in others)


@pytest.mark.parametrize(
    ("target", "count", "needless"),
    [("zombies", 34, True), ("zombies", 2_000, False), ("zombies", None, False), ("a.service", 1, False)],
)
def test_freeing_zombies_that_are_few_is_not_the_next_thing_to_do(target, count, needless):
    assert is_needless(Plan(target, count, "")) is needless


@pytest.mark.root
def test_a_finding_becomes_a_plan_of_ours_and_of_what_is_left_for_a_person(exhume, tmp_path):
    words = ("fix", "plan", "zombie-memcgs", "--dir", str(INCIDENTS / "incident"), "--work-dir", str(tmp_path / "fix"))
    plan = json.loads(exhume(*words, "--json", DOCKER_HOST=f"unix://{tmp_path}/no.sock").stdout)
    assert plan["target"] == "zombie-memcgs"
    manual = {step["id"]: step for step in plan["steps"] if not step["automatic"]}
    assert manual["watch-zombies"]["commands"] == ["exhume zombies --watch"]
    assert "stop-container" not in manual, "that is ours to do"
    assert any("docker:ecs-agent" in line for line in plan["refusals"]), "and its container isn't here"
    assert (tmp_path / "fix/plans" / f"{plan['id']}.json").exists()


@pytest.mark.root
@pytest.mark.parametrize(("kept", "instead"), [("crash-loop", ", but crash-loop"), ("quiet", ", nor another cause")])
def test_a_cause_that_the_recording_does_not_show_is_an_error(exhume, tmp_path, kept, instead):
    words = ("fix", "plan", "cpu-steal", "--dir", str(INCIDENTS / kept), "--work-dir", str(tmp_path / "fix"))
    reported = exhume(*words, check=False)
    assert reported.returncode == 2
    assert f"shows no cpu-steal at that time{instead}" in reported.stderr
    assert not (tmp_path / "fix").exists()


@pytest.mark.root
@pytest.mark.parametrize("words", [("apply",), ("rollback",), ("rollback", "20260101-000000-abcd")])
def test_without_a_plan_or_a_fix_there_is_nothing_to_do_and_it_says_what_to_run(exhume, tmp_path, words):
    reported = exhume("fix", *words, "--work-dir", str(tmp_path / "fix"), check=False)
    assert reported.returncode == 2
    assert "exhume fix " in reported.stderr and reported.stderr.count("\n") == 1


@pytest.mark.root
def test_a_root_that_is_no_directory_is_an_error(exhume, tmp_path):
    reported = exhume("fix", "plan", "a.service", "--root", str(tmp_path / "none"), check=False)
    assert reported.returncode == 2 and "--root names where" in reported.stderr


@pytest.mark.root
def test_a_node_without_a_bus_is_reported(exhume, tmp_path):
    reported = exhume("fix", "plan", "a.service", "--root", str(tmp_path), check=False)
    assert reported.returncode == 2
    assert "systemd can't be reached: there is no D-Bus at" in reported.stderr
    assert reported.stderr.count("\n") == 1 and reported.stderr.endswith("name the node's root directory with --root\n")

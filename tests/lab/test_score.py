"""The score: what is drawn, what counts as right, and that nothing is dropped."""

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.lab.lab_program import PROGRAM, exhume_lab, play_until, until
from tests.lab.lab_traces import command_lines

from exhume.lab.leftovers import OwnCgroup
from exhume.lab.programs.keeper import marked
from exhume.lab.scenarios import SCENARIOS
from exhume.lab.scenarios.cpu import BACKGROUNDS
from exhume.lab.score import document, judge, play
from exhume.lab.score.document import fit
from exhume.lab.score.plan import PAIRS, Noise, Outcome, Plan, ReportedFinding, draw, others_busy
from exhume.lab.score.tally import Tally
from exhume.lab.stage import PEER, Stage, stage
from exhume.model.clock import NANOS, Window
from exhume.model.errors import LabError
from exhume.model.finding import Severity
from exhume.store.read.recording import Recording

PLAN = Plan(1, "user-hog", 1, core=1, calm_s=7.0, seconds=8.0, after_s=2.0, background="nothing")
# A run on a machine that others keep busy is taken again, so often at most.
TRIES = 3
QUIET_SHARE = 0.3
QUIET = Plan(2, "quiet", 1, core=0, calm_s=7.0, seconds=8.0, after_s=2.0, background="forks")


def finding(cause: str, severity: str = "critical", confidence: float = 0.9, cpu: int | None = 1) -> ReportedFinding:
    return ReportedFinding(cause, Severity(severity), confidence, cpu, "some", "")


def hog(*findings: ReportedFinding, **more) -> Outcome:
    return Outcome(PLAN, "user-hog", findings, 0.4, on_core=True, **more)


def quiet(*findings: ReportedFinding) -> Outcome:
    return Outcome(QUIET, "", findings, 0.2)


def test_everything_is_drawn_within_bounds_and_the_same_for_a_seed():
    plans = draw({"user-hog": 40, "quiet": 20}, [0, 1, 2], seed=4)
    assert plans == draw({"user-hog": 40, "quiet": 20}, [0, 1, 2], seed=4)
    assert plans != draw({"user-hog": 40, "quiet": 20}, [0, 1, 2], seed=5)
    assert Counter(plan.scenario for plan in plans) == {"user-hog": 40, "quiet": 20}
    assert [plan.number for plan in plans] == list(range(1, 61))
    assert {plan.core for plan in plans} == {0, 1, 2}
    assert {plan.background for plan in plans} == set(BACKGROUNDS)
    assert all(6 <= plan.calm_s <= 10 and 6 <= plan.seconds <= 12 and 2 <= plan.after_s <= 3 for plan in plans)
    # Not one scenario after the other.
    assert "quiet" in {plan.scenario for plan in plans[:20]} and "user-hog" in {plan.scenario for plan in plans[:20]}


def test_pairs_are_drawn_on_two_cores_and_at_every_level_of_noise():
    pairs = dict.fromkeys(PAIRS, 2)
    plans = draw({"quiet": 1}, [0, 1], seed=4, pairs=pairs, noises=[Noise.IDLE, Noise.OVERSUBSCRIBED])
    assert len(plans) == 2 * (1 + 2 * len(PAIRS))
    assert Counter(plan.noise for plan in plans) == {Noise.IDLE: 29, Noise.OVERSUBSCRIBED: 29}
    both = [plan for plan in plans if plan.also]
    assert {(plan.scenario, plan.also) for plan in both} == set(PAIRS)
    assert all(plan.core != plan.also_core for plan in both)
    assert all(plan == Plan.of(json.loads(json.dumps(asdict(plan)))) for plan in plans)


def test_a_sample_has_so_many_of_each_kind_at_each_level_and_none_twice():
    healthy = {name for name, each in SCENARIOS.items() if each.healthy}
    runs, pairs, noises = dict.fromkeys(SCENARIOS, 5), dict.fromkeys(PAIRS, 1), list(Noise)
    plans = draw(runs, [0, 1], seed=4, pairs=pairs, noises=noises, sample=6, healthy=healthy)
    kinds = Counter((plan.noise, "+" in plan.name, plan.name in healthy) for plan in plans)
    assert set(kinds.values()) == {6} and len(kinds) == 3 * len(noises)
    assert len({(plan.noise, plan.name) for plan in plans}) == len(plans)
    assert plans == draw(runs, [0, 1], seed=4, pairs=pairs, noises=noises, sample=6, healthy=healthy)
    many = draw({"user-hog": 1}, [0, 1], seed=4, pairs=pairs, sample=20)
    assert Counter(plan.name for plan in many)["user-hog"] == 20 and len(many) == 40
    assert all(1 <= count <= 2 for name, count in Counter(plan.name for plan in many).items() if "+" in name)


def test_a_run_kept_by_an_earlier_version_has_defaults():
    old = {key: value for key, value in asdict(PLAN).items() if key not in ("also", "also_core", "noise")}
    assert Plan.of(old) == PLAN


def test_pairs_have_different_causes_and_are_enough():
    causes = [{SCENARIOS[name].cause for name in pair} for pair in PAIRS]
    assert len(PAIRS) >= 12 and all(len(each) == 2 and "" not in each for each in causes)


def pair(*findings: ReportedFinding) -> Outcome:
    plan = replace(PLAN, scenario="cfs-throttling", also="user-hog", also_core=0)
    return Outcome(plan, "cfs-throttling", findings, 0.3, also_cause="user-hog", lost_s=10.0, explained_s=8.0)


def test_of_a_pair_both_have_to_be_found():
    both = finding("cfs-throttling"), finding("user-hog", "warning")
    assert pair(*both).right and pair(*reversed(both)).right
    assert not pair(both[0], finding("user-hog", "info")).right, "what is worth knowing at most is not read"
    assert not pair(both[0]).right and not pair(finding("rt-hog")).right
    tally = Tally([pair(*both), pair(both[0]), hog(finding("user-hog"))])
    scores = {each.cause: (each.there, each.right) for each in tally.causes}
    assert scores == {"cfs-throttling": (2, 2), "user-hog": (3, 2)}
    assert [each.scenario for each in tally.scenarios] == ["user-hog", "cfs-throttling+user-hog"]
    [noise] = tally.noises
    assert (noise.single, noise.pairs, noise.explained) == ((1, 1), (2, 1), 0.8)
    assert document.as_json(tally, 3, 1)["noise"]["idle"]["pairs"] == {"runs": 2, "both_found": 1}
    assert "| idle | 1 of 1 (100%) | 1 of 2 (50%) |" in document.as_text(tally)


def test_of_a_pair_each_cause_has_to_be_blamed_on_its_own_scenario():
    quota = replace(finding("cfs-throttling"), comm=None, cgroup="/lab/quota-1")
    hogs = replace(finding("user-hog", "warning"), comm="hog")
    known = {"owners": ("quota-1", "worker"), "also_owners": ("hog",)}
    assert replace(pair(quota, hogs), **known).right
    assert replace(pair(replace(quota, cgroup=None, comm="worker"), hogs), **known).right
    assert replace(pair(quota, replace(hogs, comm="kworker/1:1", named=("hog",))), **known).right
    assert not replace(pair(quota, replace(hogs, comm="worker")), **known).right, "the other scenario's"
    assert not replace(pair(replace(quota, cgroup="/lab/quota-12"), hogs), **known).right
    assert replace(pair(quota, replace(hogs, comm="worker")), owners=known["owners"]).right, "was not kept: not judged"


def test_on_an_oversubscribed_machine_the_cause_needs_its_owner():
    plan = replace(PLAN, noise=Noise.OVERSUBSCRIBED)
    busy = Outcome(plan, "user-hog", (finding("user-hog", "warning"),), 0.3, names=("some",))
    assert replace(busy, owners=("some",)).right and busy.right
    assert not replace(busy, owners=("another",)).right


def test_other_work_next_to_the_trouble_is_not_to_blame(tmp_path):
    with stage("user-hog", seconds=1.0, core=0, name="some", work=tmp_path) as playing:
        for name in ("some", f"some{PEER}0"):
            playing.python_named(name)
        playing.leftovers.add(OwnCgroup(str(tmp_path / "group-1")))
        assert sorted(playing.programs) == ["some", f"some{PEER}0"]
        assert sorted(playing.owners) == ["group-1", "some"]


def test_on_an_oversubscribed_machine_overcommit_is_right_with_its_owner():
    plan = replace(PLAN, noise=Noise.OVERSUBSCRIBED)

    def busy(*findings: ReportedFinding, cause: str = "user-hog") -> Outcome:
        return Outcome(plan, cause, findings, 0.3, names=("some",))

    overcommit = finding("cpu-overcommit", "warning")
    assert busy(overcommit).right and busy(overcommit, finding("user-hog", "info")).right
    another = replace(overcommit, comm="another")
    assert not busy(another).right and not busy(another, finding("user-hog", "info")).right
    assert busy(another, finding("user-hog", "warning")).right
    # Of many that are alike none is the culprit: the first that is named counts.
    assert busy(replace(overcommit, comm=None, named=("some", "another"))).right
    assert not busy(replace(overcommit, comm=None, named=("another", "some"))).right
    assert not busy(replace(overcommit, comm=None)).right
    assert not busy(finding("rt-hog")).right
    assert busy(overcommit, cause="").right and not busy(finding("rt-hog"), cause="").right


def test_heavy_healthy_work_may_be_warned_of_but_is_never_critical():
    def heavy(*findings: ReportedFinding, verdict: str = "healthy") -> Outcome:
        return Outcome(QUIET, "", findings, 0.2, heavy=True, verdict=verdict)

    assert heavy(finding("fork-storm", "warning")).right
    assert not heavy(finding("fork-storm", "critical")).right
    assert not heavy(verdict="starved").right
    busy = replace(QUIET, noise=Noise.OVERSUBSCRIBED)
    crowded = Outcome(busy, "", (finding("cpu-overcommit", "critical"),), 0.2, heavy=True, verdict="starved")
    assert crowded.right, "three times as much work as cores starves"
    assert not replace(crowded, findings=(finding("rt-hog", "critical"),)).right
    assert sum(each.heavy and each.healthy for each in SCENARIOS.values()) >= 10


def test_only_the_first_finding_counts():
    assert hog(finding("user-hog"), finding("fork-storm")).right
    assert not hog(finding("fork-storm"), finding("user-hog")).right
    assert not hog().right and hog().top == "nothing"
    assert hog(finding("user-hog", "info")).right


def test_the_core_is_judged_where_it_is_bound_to_one():
    assert hog(finding("user-hog", cpu=1)).core_right is True
    assert hog(finding("user-hog", cpu=0)).core_right is False
    assert hog(finding("fork-storm", cpu=1)).core_right is None
    assert Outcome(PLAN, "user-hog", (finding("user-hog", cpu=0),), 0.1, on_core=False).core_right is None


def test_a_healthy_machine_may_have_findings_of_info_only():
    assert quiet().right and quiet(finding("fork-storm", "info")).right
    assert not quiet(finding("fork-storm", "info"), finding("user-hog", "warning")).right
    assert quiet(finding("fork-storm", "info"), finding("user-hog", "warning")).top == "user-hog"
    assert not quiet(finding("x", "warning")).false_critical and quiet(finding("x", "critical")).false_critical
    assert not hog(finding("fork-storm", "critical")).false_critical


def test_a_run_that_failed_is_wrong_and_counted():
    tally = Tally([hog(failed="play: no room"), *[hog(finding("user-hog"))] * 4])
    assert (tally.scenarios[0].runs, tally.scenarios[0].right, tally.scenarios[0].failed) == (5, 4, 1)
    assert tally.matrix() == {"user-hog": {"user-hog": 4, "failed": 1}}
    assert "no room" in document.as_text(tally)
    assert tally.missed() == [
        "user-hog: 4 of 5 right, 90% must be",
        "all together: 4 of 5 right, 90% must be",
        "right first cause, quiet machine: 80% of 5, 97% must be",
    ]


def test_what_must_be_reached():
    good = [*[hog(finding("user-hog"))] * 39, hog(finding("fork-storm"))]
    assert Tally(good).missed() == []
    assert Tally([*good, quiet()]).missed() == []
    assert Tally([*good[:9], good[-1]]).missed() == ["right first cause, quiet machine: 90% of 10, 97% must be"]
    # Of one run of a scenario nothing follows for that scenario.
    assert all(each.startswith(("right first", "all together")) for each in Tally([good[-1]]).missed())
    said = Tally([*good, *[quiet()] * 19, quiet(finding("rt-hog"))]).missed()
    assert said == ["a healthy machine was called starved in 1 runs, none may be"]


def test_all_figures_are_in_one_table_with_their_counts():
    half, full = (replace(PLAN, noise=noise) for noise in (Noise.HALF, Noise.OVERSUBSCRIBED))
    heavy = Outcome(QUIET, "", (finding("fork-storm", "critical"),), 0.2, heavy=True)
    runs = [hog(finding("user-hog")), replace(hog(finding("rt-hog")), plan=half)]
    runs += [replace(hog(finding("user-hog", "warning")), plan=full), pair(finding("cfs-throttling")), heavy]
    targets = Tally(runs, [1.2, 4.0, 3.5]).targets
    assert [(each.value, each.runs, each.missed) for each in targets] == [
        (1.0, 1, False),
        (0.0, 1, True),
        (1.0, 1, False),
        (0.0, 1, True),
        (1.0, 1, False),
        (3.5, 3, True),
    ]
    text = document.as_text(Tally(runs, [1.2, 4.0, 3.5]))
    assert "| right first cause, 50% background load | 93% | 98% | 0% | 1 | MISSED |" in text
    assert "| diagnosis of ten minutes, 96 cores | 3 s | 1.5 s | 3.5 s | 3 | MISSED |" in text
    assert "| diagnosis of ten minutes, 96 cores | 3 s | 1.5 s | not measured | 0 |  |" in document.as_text(Tally(runs))
    in_json = document.as_json(Tally(runs), 5, 1)["targets"]
    assert in_json[0] == {
        **{"measure": "right first cause, quiet machine", "must": 0.97, "aim": 1.0, "value": 1.0, "runs": 1},
        **{"unit": "%", "missed": False},
    }


def test_precision_and_recall():
    tally = Tally([hog(finding("user-hog")), hog(finding("rt-hog")), quiet(finding("user-hog", "warning")), quiet()])
    scores = {each.cause: (each.precision, each.recall) for each in tally.causes}
    assert scores == {"user-hog": (0.5, 0.5), "rt-hog": (0.0, None)}
    assert tally.answer_s == (pytest.approx(0.3), 0.4)


def test_findings_by_their_reported_confidence():
    tally = Tally(
        [
            hog(finding("user-hog", confidence=0.97), finding("rt-hog", "warning", 0.55)),
            hog(finding("rt-hog", confidence=0.9)),
            quiet(finding("rt-hog", "info", 0.95), finding("rt-hog", "warning", 0.61)),
        ]
    )
    tops = {round(step.since, 1): (step.reported, step.right) for step in tally.calibration() if step.reported}
    assert tops == {0.9: (2, 1), 0.6: (1, 0)}
    every = {
        round(step.since, 1): (step.reported, step.right) for step in tally.calibration(every=True) if step.reported
    }
    assert every == {0.9: (2, 1), 0.6: (1, 0), 0.5: (1, 0)}


def test_the_line_that_fits():
    assert fit([(0.9, True)] * 19) is None
    honest = fit([*[(0.9, True)] * 90, *[(0.9, False)] * 10, *[(0.6, True)] * 60, *[(0.6, False)] * 40])
    assert abs(honest.shift) < 0.2 and 0.8 < honest.stretch < 1.25
    boastful = fit([*[(0.9, True)] * 60, *[(0.9, False)] * 40])
    assert 1 / (1 + math.exp(-(boastful.shift + boastful.stretch * math.log(9)))) == pytest.approx(0.6, abs=0.06)
    assert boastful.after < boastful.before
    # A few runs in which all went well don't make it sure.
    lucky = fit([(0.6, True)] * 20)
    assert 0.6 < 1 / (1 + math.exp(-(lucky.shift + lucky.stretch * math.log(1.5)))) < 0.9


def test_the_page_shows_what_was_run_and_what_was_missed():
    tally = Tally([hog(finding("user-hog")), quiet(finding("rt-hog"))])
    page = document.as_document(tally, planned=25, seed=77)
    assert "**Unfinished**: 2 of 25 runs." in page and "seed 77" in page and "**Missed**: all together: 1 of 2" in page
    assert "| user-hog | 1 | 1 | 100% | 1 of 1 | 1 | met |" in page
    for title in ("Scenarios", "What was taken for what", "Causes", "Confidence", "Time to answer", "What was wrong"):
        assert f"## {title}\n" in page
    in_json = json.loads(json.dumps(document.as_json(tally, 25, 77)))
    assert in_json["version"] == 4 and len(in_json["runs"]) == 2
    assert in_json["runs"][0]["findings"][0]["severity"] == "critical"


def test_without_root_it_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(judge.os, "geteuid", lambda: 1000)
    with pytest.raises(LabError, match="needs root"):
        next(judge.judge([PLAN], tmp_path))


@pytest.mark.root
@pytest.mark.parametrize(
    ("play", "answer", "reason"),
    [
        ("import sys; sys.exit('no room here')", "", "play: no room here"),
        ("print('{}')", "raise ValueError('odd rows')", "answer: ValueError: odd rows"),
        ("print('{}')", "print('hm')", "answer: printed no result"),
        ("import time; time.sleep(600)", "", "play: not done in 1 s"),
        ("import os; os.kill(os.getpid(), 9)", "", f"play: ended with code {-signal.SIGKILL}"),
    ],
)
def test_whatever_goes_wrong_in_a_run_is_its_outcome(monkeypatch, tmp_path, play: str, answer: str, reason: str):
    """A step that fails, breaks, mumbles, hangs or dies: the next run is played all the same."""
    programs = {"exhume.lab.score.play": play, "exhume.lab.score.answer": answer}
    popen = subprocess.Popen
    monkeypatch.setattr(
        judge.subprocess,
        "Popen",
        lambda command, **more: popen([sys.executable, "-c", programs[command[command.index("-m") + 1]]], **more),
    )
    # Only what hangs is not waited for: a busy machine takes seconds to start anything.
    longest = 1.0 if "sleep" in play else 60.0
    monkeypatch.setattr(judge, "_PREPARING_S", longest - PLAN.calm_s - PLAN.seconds - PLAN.after_s)
    outcomes = list(judge.judge([PLAN, QUIET], tmp_path))
    assert [outcome.failed for outcome in outcomes] == [reason, reason]
    assert not any(outcome.right for outcome in outcomes)
    assert not any(tmp_path.iterdir())


@pytest.mark.root
@pytest.mark.alone
def test_a_run_from_calm_to_answer(tmp_path: Path):
    """A real recorder, a real background and a real scenario, as short as it can be."""
    plan = Plan(1, "quiet", 9, core=0, calm_s=1.0, seconds=1.5, after_s=0.5, background="forks")
    keep = tmp_path / "kept"
    for _ in range(TRIES):
        [outcome] = judge.judge([plan], tmp_path / "work", keep)
        # Where others have the cores, it is true that the machine is starved.
        if max(outcome.others_busy, others_busy(0.5)) < QUIET_SHARE:
            break
    assert (outcome.failed, outcome.false_critical) == ("", False)
    assert outcome.seconds > 0
    kept = keep / "001-quiet"
    truth = json.loads((kept / "run.json").read_text())
    span = Recording.open(kept).span()
    assert span.since < truth["began"] - 0.9 * NANOS and truth["ended"] < span.until
    assert 1.5 <= (truth["ended"] - truth["began"]) / NANOS < 30
    assert any(name.startswith("checks-") for name in truth["names"])
    assert not any((tmp_path / "work").iterdir())
    [again] = judge.judge_again(keep)
    assert (again.plan, again.findings) == (outcome.plan, outcome.findings)


@pytest.mark.root
@pytest.mark.slow
def test_two_scenarios_are_played_at_the_same_time(tmp_path: Path):
    """Both are in the recording, in the same seconds, next to the noise."""
    plan = Plan(1, "user-hog", 9, core=0, calm_s=1.0, seconds=3.0, after_s=0.5, background="nothing")
    plan = replace(plan, also="fork-storm", also_core=1, noise=Noise.HALF)
    [outcome] = judge.judge([plan], tmp_path / "work", tmp_path / "kept")
    assert (outcome.failed, outcome.cause, outcome.also_cause) == ("", "user-hog", "fork-storm")
    kept = tmp_path / "kept/001-user-hog+fork-storm-half"
    truth, recording = json.loads((kept / "run.json").read_text()), Recording.open(kept)
    assert sum(name.startswith("job") for name in truth["names"]) == len(os.sched_getaffinity(0))
    ran = recording.read("samples", Window(truth["began"], truth["ended"])).column("comm").to_pylist()
    assert truth["owners"] and truth["also_owners"]
    assert {*truth["owners"], *truth["also_owners"]} <= set(ran)
    assert not any((tmp_path / "work").iterdir())


@pytest.mark.parametrize(("core", "cores"), [(1, {1, 2}), (0, {0, 1, 2})], ids=["apart", "on-the-same-core"])
def test_the_second_scenario_leaves_the_core_of_the_first_to_it(
    core: int, cores: set[int], monkeypatch: pytest.MonkeyPatch
):
    bound: list[set[int]] = []
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: bound[-1] if bound else {0, 1, 2})
    monkeypatch.setattr("os.sched_setaffinity", lambda pid, mask: bound.append(set(mask)))
    monkeypatch.setattr(play, "stage", lambda *args, **kwargs: pytest.fail(f"{sorted(os.sched_getaffinity(0))}"))
    plan = replace(PLAN, scenario="quiet", core=core, also_core=0)
    with pytest.raises(pytest.fail.Exception, match=re.escape(str(sorted(cores)))):
        play.play_second(plan, Path())


@pytest.mark.root
def test_a_second_scenario_that_fails_is_the_outcome_of_its_run(tmp_path: Path):
    """There is no such core."""
    plan = replace(PLAN, calm_s=0.5, seconds=1.0, also="fork-storm", also_core=4095)
    [outcome] = judge.judge([plan], tmp_path / "work")
    assert "there is no core 4095" in outcome.failed
    assert not any((tmp_path / "work").iterdir())


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, each in SCENARIOS.items() if each.heavy])
def test_heavy_work_works(name: str, tmp_path: Path):
    """Its processes, and what they started, take CPU time, and all that it made is removed."""
    scenario = SCENARIOS[name]
    with stage(name, seconds=30.0, work=tmp_path) as playing:
        if scenario.prepare is not None:
            scenario.prepare(playing)
        assert play_until(playing, scenario.play, lambda: cpu_seconds(playing) > 0.3)
    assert not any(tmp_path.iterdir())


def cpu_seconds(playing: Stage) -> float:
    """The CPU time of a stage's processes, and of those that they waited for."""
    total = 0.0
    for pid in marked(playing.directory.name):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_score_that_is_ended_leaves_nothing_running(tmp_path: Path, number: signal.Signals):
    args = ["score", "--only", "quiet", "--quiet-runs", "2", "--work", str(tmp_path)]
    with subprocess.Popen([*PROGRAM, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert until(lambda: "record" in commands_of(tmp_path))
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
    assert until(lambda: not commands_of(tmp_path))
    if number == signal.SIGTERM:
        assert process.returncode == 130
        assert "stopped after 0 of 2 runs" in said
    else:
        # What the killed one could not remove itself is known.
        assert exhume_lab("clean", "--work", str(tmp_path)).returncode == 0
    assert not any(tmp_path.iterdir())


def commands_of(work: Path) -> str:
    """The command lines of all processes that have to do with a directory, but the score's own."""
    lines = [line for _, line in command_lines() if str(work) in line and " lab " not in line]
    return "\n".join(lines)

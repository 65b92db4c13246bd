"""The score: what is drawn, what counts as right, and that nothing is dropped."""

import json
import math
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.lab.lab_program import PROGRAM, exhume_lab, until
from tests.lab.lab_traces import command_lines

from exhume.lab.scenarios.cpu import BACKGROUNDS
from exhume.lab.score import document, judge
from exhume.lab.score.document import fit
from exhume.lab.score.plan import Outcome, Plan, ReportedFinding, draw, others_busy
from exhume.lab.score.tally import Tally
from exhume.model.clock import NANOS
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


def test_a_healthy_machine_may_be_told_things_worth_knowing_only():
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
    ]


def test_what_must_be_reached():
    good = [*[hog(finding("user-hog"))] * 9, hog(finding("fork-storm"))]
    assert Tally(good).missed() == []
    assert Tally([*good, quiet()]).missed() == []
    said = Tally([*good, *[quiet()] * 19, quiet(finding("rt-hog"))]).missed()
    assert said == ["a healthy machine was called starved in 1 runs, none may be"]


def test_precision_and_recall():
    tally = Tally([hog(finding("user-hog")), hog(finding("rt-hog")), quiet(finding("user-hog", "warning")), quiet()])
    scores = {each.cause: (each.precision, each.recall) for each in tally.causes}
    assert scores == {"user-hog": (0.5, 0.5), "rt-hog": (0.0, None)}
    assert tally.answer_s == (pytest.approx(0.3), 0.4)


def test_findings_by_the_confidence_they_were_told_with():
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
    assert "**Unfinished**: 2 of 25 runs." in page and "seed 77" in page and "**Missed**: quiet: 0 of 1 right" in page
    assert "| user-hog | 1 | 1 | 100% | 1 of 1 | 1 | met |" in page
    for title in ("Scenarios", "What was taken for what", "Causes", "Confidence", "Time to answer", "What was wrong"):
        assert f"## {title}\n" in page
    in_json = json.loads(json.dumps(document.as_json(tally, 25, 77)))
    assert in_json["version"] == 2 and len(in_json["runs"]) == 2
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
        ("print('{}')", "print('hm')", "answer: said nothing that can be read"),
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
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_score_that_is_ended_leaves_nothing_running(tmp_path: Path, number: signal.Signals):
    args = ["score", "--only", "quiet", "--quiet-runs", "2", "--work", str(tmp_path)]
    with subprocess.Popen([*PROGRAM, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert until(lambda: "record" in told_by(tmp_path))
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
    assert until(lambda: not told_by(tmp_path))
    if number == signal.SIGTERM:
        assert process.returncode == 130
        assert "stopped after 0 of 2 runs" in said
    else:
        # What the killed one could not remove itself is known.
        assert exhume_lab("clean", "--work", str(tmp_path)).returncode == 0
    assert not any(tmp_path.iterdir())


def told_by(work: Path) -> str:
    """The command lines of all processes that have to do with a directory, but the score's own."""
    lines = [line for _, line in command_lines() if str(work) in line and " lab " not in line]
    return "\n".join(lines)

"""`exhume fix verify` as its users run it: a ledger entry with measures from before, exit codes, JSON, the page."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.lab.synth import write_synthetic
from exhume.model.clock import NANOS, SystemClock
from exhume.model.remedy import Effect, Measure, Plan, Step
from exhume.remedy.ledger import Entry, Fix, Ledger, Mark, SavedPlan, new_id, save_plan
from exhume.remedy.verify.measures import Series
from exhume.remedy.verify.proof import Baseline
from exhume.store.read.recording import Recording

pytestmark = pytest.mark.root

TIMEOUTS = Effect(Measure.NIC_TIMEOUTS, "stay")
FORKS = Effect(Measure.FORKS, "fall")
PAGE = Path(__file__).resolve().parents[4] / "docs/commands/fix.md"


def machine() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""


def kept(place: Path, *observed: Series, **changes) -> Fix:
    """A fix that was applied just now, in a ledger."""
    now = SystemClock().wall_ns()
    step = Step("stop", "Stop a \x1b[31mloop", "it fails", action="stop", effects=tuple(o.effect for o in observed))
    fix = Fix(
        new_id(now), "node-1", machine(), "/", "", "loop.service", "It is stopped.", now,
        (Entry(step, Mark.DONE, {}, now, now),),
        baseline=Baseline(now - 60 * NANOS, now, "live", observed).to_dict(), applied_at=now, finished_at=now,
    )  # fmt: skip
    return Ledger(place).save(replace(fix, **changes))


def before(effect: Effect, value: float, count: int = 60) -> Series:
    return Series(effect, "live", 0, count * NANOS, (value,) * count, (1.0,) * count)


@pytest.mark.paced
def test_it_proves_what_it_can(exhume, tmp_path):
    """A storm of a million forks a second is surely over here, and no card timed out. Eight looks are the fewest that
    prove anything: where the machine was too busy for one of them, it has to look for longer."""
    kept(tmp_path, before(FORKS, 1e6), before(TIMEOUTS, 0.0))
    page = tmp_path / "proof.html"
    words = ("fix", "verify", "--work-dir", str(tmp_path), "--dir", str(tmp_path / "none"), "--for", "8s", "--json")
    refused = exhume(*words, check=False)
    assert refused.returncode == 3
    assert "none" in refused.stderr
    for length in ("8s", "20s", "40s"):
        result = exhume(*words[:4], "--for", length, "--html", str(page), "--json", check=False)
        reported = json.loads(result.stdout)
        if reported["verdict"] != "unproven":
            break
    assert (result.returncode, reported["verdict"], reported["version"]) == (0, "proved", 1)
    assert [each["change"] for each in reported["measures"]] == ["improved", "unchanged"]
    assert reported["measures"][0]["before"]["value"] == 1e6
    fields = set(re.findall(r'"(\w+)":', result.stdout))
    assert fields <= set(re.findall(r"`(\w+)`", PAGE.read_text()))
    content = page.read_text()
    assert "default-src 'none'" in content
    assert "unsafe" not in content.partition("Content-Security-Policy")[2].partition("/>")[0]
    assert "\x1b" not in content


def test_what_is_not_proved_is_1_and_says_so(exhume, tmp_path):
    kept(tmp_path, before(Effect(Measure.RESTARTS, "stop", "nobody.service"), 1.0, 3))
    result = exhume("fix", "verify", "--work-dir", str(tmp_path), "--for", "2s", check=False)
    assert result.returncode == 1
    assert "UNPROVEN" in result.stdout
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"machine": "0" * 32}, "another machine"),
        ({"baseline": None}, "nothing was measured before"),
        ({"baseline": {"version": 1}}, "can't be read"),
        ({"rollback_at": 1}, "only one that is applied"),
    ],
)
def test_what_can_t_be_verified_is_one_sentence(exhume, tmp_path, changes, sentence):
    fix = kept(tmp_path, before(FORKS, 1e6), **changes)
    result = exhume("fix", "verify", fix.id, "--work-dir", str(tmp_path), "--for", "1s", check=False)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_without_a_fix_there_is_nothing_to_verify(exhume, tmp_path):
    result = exhume("fix", "verify", "--work-dir", str(tmp_path), check=False)
    assert (result.returncode, "no fix was applied" in result.stderr) == (2, True)


def heeds_signals(process: int) -> bool:
    """Whether a program took the end by SIGTERM into its own hands: SIGINT is Python's from its beginning."""
    status = Path(f"/proc/{process}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) & 1 << signal.SIGTERM - 1)


def test_an_interrupt_still_gives_the_report(tmp_path):
    kept(tmp_path, before(FORKS, 1e6))
    words = ("fix", "verify", "--work-dir", str(tmp_path), "--for", "600s", "--json")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "exhume.cli.main", *words]
    # A machine that is held up gives it no look in so short a time: then it is asked to end later.
    for looks_s in (2.5, 10.0, 40.0):
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as running:
            while not heeds_signals(running.pid):
                assert running.poll() is None
                time.sleep(0.05)
            time.sleep(looks_s)
            running.send_signal(signal.SIGINT)
            output, _ = running.communicate(timeout=60)
        assert running.returncode == 130
        reported = json.loads(output)
        assert reported["interrupted"] is True
        looked_s = reported["measures"][0]["after"]["seconds"]
        if looked_s:
            break
    assert 0 < looked_s < 300


def planned(place: Path, *steps: Step) -> SavedPlan:
    """A plan as `exhume fix plan` keeps it."""
    now = SystemClock().wall_ns()
    plan = Plan("cri:prod/web-1/app", None, "1 step, for a person to take.", steps)
    saved = SavedPlan(new_id(now), plan, "node-1", machine(), "/", "", now)
    save_plan(place, saved)
    return saved


BY_HAND = Step("owner", "Stop deployment prod/web", "it fails", effects=(FORKS,))


@pytest.mark.slow
def test_steps_that_a_person_took_become_a_fix(exhume, tmp_path):
    saved = planned(tmp_path, BY_HAND)
    place = ("--work-dir", str(tmp_path), "--dir", str(tmp_path / "recording"))
    write_synthetic(tmp_path / "recording", cores=1, hours=0.05, seed=1)
    moment = Recording.open(tmp_path / "recording").span().until - 60 * NANOS
    since = f"@{moment // NANOS}"
    result = exhume("fix", "verify", *place, "--since", since, "--for", "2s", "--json", check=False)
    assert result.returncode in (0, 1), result.stderr
    (forks,) = json.loads(result.stdout)["measures"]
    assert forks["before"]["source"] == "recording" and forks["before"]["seconds"] > 60
    fix = Ledger(tmp_path).read(saved.id)
    assert [entry.mark for entry in fix.entries] == [Mark.LEFT] and not fix.done
    assert fix.applied_at == moment // NANOS * NANOS
    # It is a fix from now on, and can be verified again without its moment.
    again = exhume("fix", "verify", saved.id, *place, "--for", "2s", "--json", check=False)
    assert json.loads(again.stdout)["fix"] == saved.id


@pytest.mark.parametrize(
    ("since", "sentence"),
    [("10m", "not a time"), ("2999-01-01T00:00:00Z", "in the future"), ("1m ago", "no plan")],
)
def test_a_change_by_hand_needs_a_plan_and_a_moment_of_the_past(exhume, tmp_path, since, sentence):
    if sentence != "no plan":
        planned(tmp_path, BY_HAND)
    result = exhume("fix", "verify", "--work-dir", str(tmp_path), "--since", since, check=False)
    assert result.returncode == 2 and sentence in result.stderr


def test_what_exhume_did_itself_is_not_a_change_by_hand(exhume, tmp_path):
    fix = kept(tmp_path, before(FORKS, 1.0))
    saved = planned(tmp_path, BY_HAND)
    save_plan(tmp_path, replace(saved, id=fix.id))
    result = exhume("fix", "verify", fix.id, "--work-dir", str(tmp_path), "--since", "1m ago", check=False)
    assert result.returncode == 2 and "without --since" in result.stderr

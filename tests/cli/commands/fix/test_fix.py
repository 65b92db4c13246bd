"""`exhume fix` as its users meet it: who may run it, what it prints, and what it refuses."""

import os
import re
from pathlib import Path

import pytest

from exhume.model.remedy import Effect, Measure, Outcome, Plan, Report, Risk, Status, Step
from exhume.present.fix_view import fix_json, list_json, outcome_line, plan_json, plan_lines
from exhume.remedy.ledger import SavedPlan, Shelf, Unreadable
from exhume.remedy.zombies.apply import details_of

PAGE = Path(__file__).resolve().parents[4] / "docs/commands/fix.md"
FILES = tuple(f"/data/{number}" for number in range(70_000))
FADVISE = Step(
    "fadvise",
    "let go of the cached pages of 70,000 files",
    "their data is on disk",
    action="fadvise",
    targets=FILES,
    commands=tuple(f"sync {file}" for file in FILES),
    frees_at_most=70_000,
    cpu_seconds=0.05,
    risk=Risk.NONE,
    harm="they are read again",
    undo="not needed",
)
RECLAIM = Step("reclaim", "reclaim", "cached", action="reclaim", cpu_seconds=18.4, spike=True, frees_at_most=68_000)
HOLDERS = Step("holders", "stop or restart trainer (pid 99)", "it locks", reversible=False, undo="start it again")
FREE = Step(
    "free-zombies",
    "free the zombies",
    "they are many",
    action="free-zombies",
    effects=(Effect(Measure.ZOMBIES, "fall"),),
    files=(("/a", "text"),),
    parts=(FADVISE, RECLAIM),
)
PLAN = Plan("zombies", 70_012, "70,012 zombies.", (FREE, HOLDERS), ("other mount namespaces",))


@pytest.fixture
def nobody(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def test_without_root_it_says_so_in_a_sentence(exhume, nobody):
    for args in (("plan", "zombies"), ("apply", "zombies"), ("plan", "zombies", "--json")):
        result = exhume("fix", *args, check=False)
        assert result.returncode == 2
        assert result.stdout == ""
        assert re.fullmatch(r"exhume: exhume fix needs root: .*; run it with sudo\n", result.stderr)


@pytest.mark.root
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fix",), "ACTION"),
        (("fix", "undo"), "'undo' is not a known action"),
        (("fix", "plan", "two words"), "'two words.service' is not a unit name"),
        (("fix", "plan", "agent.service", "--apply"), "unrecognized arguments: --apply"),
        (("fix", "plan", "zombies", "--apply"), "unrecognized arguments: --apply"),
        (("fix", "plan", "agent.service", "--only", "reclaim"), "--only is for the target zombies"),
        (("fix", "rollback", "../../etc/passwd"), "is not a fix id"),
        (("fix", "apply", "zombies", "--max-time", "soon"), "soon"),
        (("fix", "apply", "zombies", "--max-time", "0s"), "greater than 0"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(exhume, words, said):
    result = exhume(*words, check=False)
    assert result.returncode == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.root
def test_a_cgroup_or_a_step_that_is_not_there_is_refused(exhume, tmp_path):
    place = ("--work-dir", str(tmp_path / "fix"), "--search", str(tmp_path))
    result = exhume("fix", "plan", "zombies", *place, "--below", "/no/such/cgroup", check=False)
    assert result.returncode == 2
    assert "/no/such/cgroup is not a cgroup" in result.stderr
    result = exhume("fix", "plan", "zombies", *place, "--only", "magic", check=False)
    assert result.returncode == 2
    assert "no step 'magic'" in result.stderr
    assert not (tmp_path / "fix").exists(), "a plan leaves nothing behind"


def test_a_plan_for_people_shows_commands_costs_and_blind_spots():
    text = "\n".join(plan_lines(PLAN))
    assert text.startswith("70,012 zombies.\n")
    assert "1. let go of the cached pages of 70,000 files  [fadvise]" in text
    assert "     $ sync /data/2\n     … and 69,997 more; --json has them all" in text
    assert "/data/3\n" not in text
    assert "A CPU SPIKE: one core busy in the kernel for up to 18.4 s (needs --accept-cost)" in text
    assert "not reversible: start it again" in text
    assert "not seen:\n  - other mount namespaces" in text


def test_outcomes_have_what_was_freed_or_why_not():
    done = Outcome(FADVISE, Status.DONE, 512, 12, 0.43, 0.04, core=1)
    assert outcome_line(done) == "fadvise: freed 500, 12 left; 0.4 s, 0.04 s of CPU on core 1"
    refused = Outcome(RECLAIM, Status.REFUSED, 12, 12, why="it may keep one core busy")
    assert outcome_line(refused) == "reclaim: refused: it may keep one core busy"
    late = Outcome(RECLAIM, Status.TIMED_OUT, None, None, 60.0, 3.0, why="its 60 s are over")
    assert outcome_line(late) == "reclaim: freed: not known; 60.0 s, 3.00 s of CPU (timed-out: its 60 s are over)"
    assert Outcome(FADVISE, Status.DONE, 10, 12).freed == 0


def test_every_field_of_json_is_documented():
    report = Report(PLAN, 512, 12, (Outcome(FADVISE, Status.DONE, 512, 12),), ("why",))
    saved = SavedPlan("20260101-000000-abcd", PLAN, "node", "m", "/", "b", 1)
    fix = saved.begun().with_entry(0, details=details_of(report))
    shelf = Shelf([fix], [Unreadable("20260101-000000-abcd", Path("/x"), "why")])
    documented = set(re.findall(r"`([\w-]+)`", PAGE.read_text()))
    for document in (plan_json(saved), fix_json(fix), list_json(shelf)):
        assert document["version"] == 2
        assert fields_of(document) <= documented
    assert {status.value for status in Status} | {risk.value for risk in Risk} <= documented


def fields_of(value) -> set[str]:
    if isinstance(value, list):
        return set().union(*map(fields_of, value)) if value else set()
    return set(value) | set().union(*map(fields_of, value.values())) if isinstance(value, dict) else set()


HOLD = Step(
    "hold-back:zarf.service",
    "keep zarf.service from being started, also at boot, by a drop-in of exhume's own",
    "what is only stopped is started again at the next boot, or by what asks for it; see "
    "/etc/systemd/system/zarf.service.d/a-name-that-is-longer-than-any-narrow-terminal-is-wide.conf",
    action="hold-units",
    commands=("mkdir -p -- /etc/systemd/system/zarf.service.d", "systemctl daemon-reload"),
    undo="the files are removed again",
    undo_commands=("rm -- /etc/systemd/system/zarf.service.d/90-exhume.conf", "systemctl daemon-reload"),
)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_plan_is_as_wide_as_the_terminal_and_breaks_no_command_or_path(width):
    lines = list(plan_lines(Plan("zarf.service", None, "Stop it.", (HOLD,)), width))
    prose = [line for line in lines if "$ " not in line and "/" not in line]
    assert max(map(len, prose)) <= width
    assert all(f"     $ {command}" in lines for command in (*HOLD.commands, *HOLD.undo_commands))
    assert sum("a-name-that-is-longer-than-any-narrow-terminal-is-wide.conf" in line for line in lines) == 1
    # A wide one is made use of.
    assert len(lines) < len(list(plan_lines(Plan("zarf.service", None, "Stop it.", (HOLD,)), 30))) or width == 40


def test_without_a_terminal_no_line_is_broken():
    lines = list(plan_lines(Plan("zarf.service", None, "Stop it.", (HOLD,))))
    assert f"   why: {HOLD.why}" in lines


@pytest.mark.root
def test_a_ledger_that_is_broken_is_named_and_does_not_hide_the_others(exhume, tmp_path):
    fixes = tmp_path / "fix/fixes"
    fixes.mkdir(parents=True, mode=0o700)
    (tmp_path / "fix").chmod(0o700)
    broken = fixes / "20260101-000000-abcd.json"
    broken.write_text('{"version": 1, "id": "20260101-000000-ab')
    place = ("--work-dir", str(tmp_path / "fix"))
    listed = exhume("fix", "list", *place)
    assert "20260101-000000-abcd" in listed.stdout and str(broken) in listed.stdout
    for verb in ("rollback", "verify"):
        reported = exhume("fix", verb, *place, check=False)
        assert reported.returncode == 2 and f"{broken} can't be read" in reported.stderr, (
            "the one that is left out is named"
        )
        assert "there is no fix to roll back" in reported.stderr or "no fix was applied" in reported.stderr
    named = exhume("fix", "rollback", "20260101-000000-abcd", *place, check=False)
    assert named.returncode == 2 and named.stderr.count("\n") == 1
    assert "nothing was undone" in named.stderr and "grep -rl 'exhume fix, 20260101-000000-abcd'" in named.stderr

"""Plans and fixes on the disk: what is written comes back, what others could write is not trusted, and a plan only
holds for the state that it was made from."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.control.journal import JournalError
from exhume.control.managers import ActionFailed, Kept, Left
from exhume.model.clock import NANOS
from exhume.model.errors import ExhumeError, UsageError
from exhume.model.remedy import Effect, Measure, Plan, Risk, Step, StepResult
from exhume.model.stop import Stop
from exhume.present.fix_view import list_json, list_lines
from exhume.remedy.fixer import Fixer
from exhume.remedy.ledger import (
    OLDEST_S,
    Fix,
    FixState,
    Ledger,
    Mark,
    SavedPlan,
    check_id,
    last_plan,
    new_id,
    save_plan,
)

NOW = 1_790_000_000 * NANOS
STEP = Step(
    "hold-back:a.service",
    "keep it",
    "why",
    action="hold-units",
    targets=("a.service",),
    commands=("systemctl daemon-reload",),
    risk=Risk.HIGH,
    dependents=("b.service",),
    files=(("/etc/x", "text\n"),),
    effects=(Effect(Measure.RESTARTS, "stop", "a.service"), Effect(Measure.FORKS, "fall")),
)
PRINTS = {"a.service": {"fragment": "/x sha256:1", "required_by": "b.service"}}


def saved(*steps: Step, id_: str | None = None, at: int = NOW) -> SavedPlan:
    plan = Plan("a.service", None, "stop it", steps or (STEP,), ("blind",), ("refused",))
    return SavedPlan(id_ or new_id(at), plan, "node", "machine", "/", "boot", at, PRINTS)


def test_what_is_written_comes_back_whole(tmp_path):
    made = saved()
    save_plan(tmp_path / "work", made)
    assert last_plan(tmp_path / "work") == made
    ledger = Ledger(tmp_path / "work")
    fix = ledger.save(replace(made.begun({"version": 1}), applied_at=NOW))
    fix = ledger.save(fix.with_entry(0, mark=Mark.BEGUN, before={"directory": False}, began_at=NOW))
    assert ledger.read(fix.id) == fix
    assert fix.effects == STEP.effects


def test_only_root_can_read_or_leave_orders(tmp_path):
    work = tmp_path / "work"
    save_plan(work, saved())
    assert [oct(path.stat().st_mode & 0o777) for path in (work, work / "plans")] == ["0o700", "0o700"]
    work.chmod(0o777)
    with pytest.raises(JournalError, match="can be written by others"):
        save_plan(work, saved())


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 99}', '{"version": 1}', '{"version": 1, "id": "../../x"}']
)
def test_an_unknown_plan_or_fix_is_reported(tmp_path, text):
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans/last.json").write_text(text)
    with pytest.raises(JournalError) as reported:
        last_plan(tmp_path)
    assert "\n" not in str(reported.value)
    (tmp_path / "fixes").mkdir()
    (tmp_path / "fixes/20260101-000000-abcd.json").write_text(text)
    with pytest.raises(JournalError):
        Ledger(tmp_path).read("20260101-000000-abcd")


def test_one_that_can_t_be_read_hides_no_other(tmp_path):
    ledger = Ledger(tmp_path / "work")
    good = ledger.save(saved().begun())
    for name, text in (("20260101-000000-abcd", "{"), ("20290101-000000-abcd", "[" * 100_000)):
        (tmp_path / f"work/fixes/{name}.json").write_text(text)
    (tmp_path / "work/fixes/20260101-000000-0000.json").mkdir()
    shelf = ledger.shelf()
    assert shelf.fixes == [good] and ledger.newest() == good
    assert {each.id for each in shelf.unreadable} == {
        "20260101-000000-abcd",
        "20290101-000000-abcd",
        "20260101-000000-0000",
    }
    assert all(str(each.path) in each.why for each in shelf.unreadable)
    lines = list(list_lines(shelf))
    assert any(good.id in line for line in lines) and any("unreadable" in line for line in lines)
    assert {each["id"] for each in list_json(shelf)["unreadable"]} == {each.id for each in shelf.unreadable}


@pytest.mark.parametrize(
    "id_", ["", "x", "../../../etc/passwd", "20260101-000000-abcd/../x", "20260101-000000-ABCD\n", "-rf"]
)
def test_ids_are_no_paths(tmp_path, id_):
    with pytest.raises(UsageError, match="not a fix id"):
        Ledger(tmp_path).read(id_)
    assert check_id("20260101-000000-abcd")


def test_a_full_disk_is_reported_and_keeps_the_old_ledger(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path)
    fix = ledger.save(saved().begun())

    def full(fd: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JournalError, match="No space left"):
        ledger.save(replace(fix, applied_at=NOW))
    assert ledger.read(fix.id) == fix


def test_the_newest_is_the_newest_also_within_a_second(tmp_path):
    ledger = Ledger(tmp_path)
    first, second = (saved(id_=f"20260101-000000-{name}", at=at) for name, at in (("ffff", NOW), ("0000", NOW + 1)))
    for each in (first, second):
        ledger.save(each.begun())
    assert [fix.id for fix in ledger.fixes()] == [second.id, first.id]
    assert ledger.newest(FixState.APPLIED) is None


def test_a_plan_holds_only_for_its_state():
    made = saved()
    assert made.stale("boot", "machine", NOW + NANOS, PRINTS) == []
    assert made.stale("boot", "another", NOW, PRINTS) == ["it was made for another machine"]
    assert made.stale("later", "machine", NOW, PRINTS) == ["the node was booted since"]
    assert made.stale("boot", "machine", NOW + (OLDEST_S + 7200) * NANOS, PRINTS) == ["it is 26 hours old"]
    assert made.stale("boot", "machine", NOW, {}) == ["a.service is gone"]
    other = {"a.service": {"fragment": "/x sha256:2", "required_by": "b.service", "drop_ins": "/y"}}
    assert made.stale("boot", "machine", NOW, other) == [
        "a.service: drop ins was nothing, and is /y now",
        "a.service: fragment was /x sha256:1, and is /x sha256:2 now",
    ]


def test_only_the_newest_plans_are_kept(tmp_path):
    for number in range(60):
        save_plan(tmp_path / "work", saved(id_=f"20260101-0000{number:02d}-abcd"))
    assert len(list((tmp_path / "work/plans").iterdir())) == 51


class Deed:
    """An action that records its calls, and raises what it is given."""

    def __init__(self, **errors: ExhumeError) -> None:
        self.errors, self.done = errors, []

    def look(self, step):
        self._at("look", step)
        return {"was": step.id}

    def do(self, step, before):
        assert before == {"was": step.id}
        return StepResult(self._at("do", step))

    def undo(self, step, before):
        assert before == {"was": step.id}
        return self._at("undo", step)

    def _at(self, what: str, step: Step) -> str:
        if error := self.errors.get(f"{what}_{step.id}"):
            raise error
        self.done.append(f"{what} {step.id}")
        return ""


def steps(*names: str) -> tuple[Step, ...]:
    return tuple(Step(name, name, "why", action="deed") for name in names)


def fixer(place: Path, deed: Deed, stop: Stop | None = None) -> Fixer:
    return Fixer(Ledger(place), {"deed": deed}, stop or Stop())


def marks(fix: Fix) -> list[str]:
    return [entry.mark.value for entry in fix.entries]


def test_a_step_that_fails_ends_it_and_can_be_tried_again(tmp_path):
    fix = Ledger(tmp_path).save(saved(*steps("one", "two", "three")).begun())
    failed = fixer(tmp_path, Deed(do_two=ActionFailed("the bus is gone"))).apply(fix)
    assert (marks(failed), failed.state) == (["done", "begun", "planned"], FixState.UNFINISHED)
    assert failed.entries[1].why == "the bus is gone" and failed.entries[1].before == {"was": "two"}
    deed = Deed()
    again = fixer(tmp_path, deed).apply(Ledger(tmp_path).read(fix.id))
    assert (marks(again), again.state) == (["done"] * 3, FixState.APPLIED)
    assert deed.done == ["do two", "look three", "do three"], "what was there before is not looked at again"
    assert again.entries[1].why == ""


def test_a_step_that_could_not_be_looked_at_was_not_begun(tmp_path):
    fix = Ledger(tmp_path).save(saved(*steps("one", "two")).begun())
    failed = fixer(tmp_path, Deed(look_two=ActionFailed("no"))).apply(fix)
    assert marks(failed) == ["done", "planned"]
    deed = Deed()
    assert fixer(tmp_path, deed).roll_back(failed).state is FixState.ROLLED_BACK
    assert deed.done == ["undo one"]


def test_a_rollback_goes_backwards_and_keeps_what_it_must(tmp_path):
    fix = fixer(tmp_path, Deed()).apply(Ledger(tmp_path).save(saved(*steps("one", "two", "three")).begun()))
    deed = Deed(undo_two=Kept("somebody changed it"))
    back = fixer(tmp_path, deed).roll_back(fix)
    assert deed.done == ["undo three", "undo one"]
    assert (marks(back), back.state) == (["undone", "kept", "undone"], FixState.PARTLY_ROLLED_BACK)
    with pytest.raises(ActionFailed, match="rolled back"):
        fixer(tmp_path, Deed()).apply(back)
    assert fixer(tmp_path, Deed()).roll_back(back).state is FixState.ROLLED_BACK


def test_a_rollback_that_fails_leaves_the_steps_before_it(tmp_path):
    fix = fixer(tmp_path, Deed()).apply(Ledger(tmp_path).save(saved(*steps("one", "two", "three")).begun()))
    back = fixer(tmp_path, Deed(undo_two=ActionFailed("no bus"))).roll_back(fix)
    assert (marks(back), back.state) == (["done", "undoing", "undone"], FixState.ROLLING_BACK)
    deed = Deed()
    assert fixer(tmp_path, deed).roll_back(back).state is FixState.ROLLED_BACK
    assert deed.done == ["undo two", "undo one"]


def test_a_stop_is_heeded_between_steps_and_manual_steps_are_left(tmp_path):
    by_hand = Step("hand", "by hand", "why")
    fix = Ledger(tmp_path).save(saved(by_hand, *steps("one", "two")).begun())
    stop = Stop()
    stop.set()
    assert marks(fixer(tmp_path, Deed(), stop).apply(fix)) == ["planned"] * 3
    done = fixer(tmp_path, Deed()).apply(fix)
    assert (marks(done), done.state) == (["left", "done", "done"], FixState.APPLIED)


def test_a_step_that_turns_out_to_be_for_a_person_is_left_and_needs_no_undoing(tmp_path):
    fix = Ledger(tmp_path).save(saved(*steps("one", "two")).begun())
    done = fixer(tmp_path, Deed(do_one=Left("this engine can't"))).apply(fix)
    assert (marks(done), done.state, done.entries[0].why) == (["left", "done"], FixState.APPLIED, "this engine can't")
    deed = Deed()
    assert fixer(tmp_path, deed).roll_back(done).state is FixState.ROLLED_BACK
    assert deed.done == ["undo two"]


def test_an_action_that_is_not_known_is_not_taken(tmp_path):
    fix = Ledger(tmp_path).save(saved(Step("x", "x", "x", action="rm -rf /")).begun())
    reported = fixer(tmp_path, Deed()).apply(fix)
    assert "knows no action 'rm -rf /'" in reported.entries[0].why and reported.state is FixState.UNFINISHED
    assert json.loads((tmp_path / f"fixes/{fix.id}.json").read_text())["entries"][0]["mark"] == "planned"


def test_a_ledger_that_cannot_be_written_keeps_an_apply_back_but_no_rollback(tmp_path):
    fix = fixer(tmp_path, Deed()).apply(Ledger(tmp_path).save(saved(*steps("one", "two")).begun()))
    fresh = Ledger(tmp_path).save(saved(*steps("three")).begun())
    # Others could write there now, so it is not written to any more.
    (tmp_path / "fixes").chmod(0o777)
    deed = Deed()
    with pytest.raises(JournalError):
        fixer(tmp_path, deed).apply(fresh)
    assert deed.done == ["look three"]
    deed = Deed()
    with pytest.raises(JournalError):
        fixer(tmp_path, deed).roll_back(fix)
    assert deed.done == ["undo two", "undo one"]
    # Once more, with a ledger: nothing is lost by it.
    (tmp_path / "fixes").chmod(0o700)
    assert fixer(tmp_path, Deed()).roll_back(Ledger(tmp_path).read(fix.id)).state is FixState.ROLLED_BACK

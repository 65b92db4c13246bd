"""Freeing zombies as one step of a fix: on real ones, written down like every other step."""

from pathlib import Path

import pytest
from tests.system.zombies.own_docker import until

from exhume.collect.cgroup.pins import KnownPins
from exhume.collect.cgroup.residuals import ResidualReport
from exhume.control.changes import hold_journal
from exhume.model.remedy import Plan, Step
from exhume.model.stop import Stop
from exhume.model.zombies import ParentResidual, PinReport
from exhume.procfs.host import Host
from exhume.remedy.fixer import Fixer
from exhume.remedy.ledger import FixState, Ledger, Mark, SavedPlan, new_id
from exhume.remedy.zombies import apply, situation
from exhume.remedy.zombies.apply import FREE_ZOMBIES, FreeZombies, Limits, Observer, free_zombies_step
from exhume.remedy.zombies.plan import make_plan
from exhume.remedy.zombies.situation import Scope, Watch

pytestmark = pytest.mark.xdist_group("cgroups")

COUNT = 60


@pytest.mark.root
def test_real_zombies_are_freed_by_a_step_of_a_fix(lab_of, tmp_path):
    host, place, stop = Host(), tmp_path / "fix", Stop()
    with lab_of(COUNT, "ext4") as lab, hold_journal(place, host) as journal:
        watch = Watch(host, place, lab.parent, [lab.directory], pin_seconds=1.0)
        step = free_zombies_step(make_plan(watch.situation()), Scope(lab.parent, (lab.directory,)))
        assert step is not None and step.commands and step.frees_at_most
        fix = SavedPlan(new_id(0), Plan("zombies", None, "", (step,)), "n", "m", "/", "b", 0).begun()
        deed = FreeZombies(host, stop, journal, Limits(accept=lambda step: True), pin_seconds=1.0)
        fixer = Fixer(Ledger(place), {FREE_ZOMBIES: deed}, stop)
        done = fixer.apply(Ledger(place).save(fix))
        assert (done.state, done.entries[0].mark) == (FixState.APPLIED, Mark.DONE)
        assert done.entries[0].details["before"] > done.entries[0].details["after"]
        # The kernel's statistics are late by two seconds and more.
        until("what was charged to them is gone", lambda: held(watch) < COUNT * 4096, 60)
        assert fixer.roll_back(done).state is FixState.ROLLED_BACK


def test_searches_of_a_step_show_how_far_they_are_share_what_they_found_and_can_be_stopped(tmp_path, monkeypatch):
    given, shares, known, stop = [], [], KnownPins(), Stop()

    def search(host, parents, roots, progress, seconds, **named):
        given.append(named)
        progress(0.4)
        return PinReport()

    parents = [ParentResidual("/cg/docker", 1, None, file_bytes=4096)]
    monkeypatch.setattr(situation, "find_residuals", lambda host: ResidualReport(parents))
    monkeypatch.setattr(situation, "likely_pins", search)
    monkeypatch.setattr(apply, "make_plan", lambda situation: Plan("zombies", None, ""))
    monkeypatch.setattr(apply.Applier, "count", lambda *_: 3)
    with hold_journal(tmp_path / "fix", Host()) as journal:
        observer = Observer(searched=shares.append)
        deed = FreeZombies(Host(), stop, journal, Limits(accept=lambda step: False), observer, known=known)
        deed.do(Step(FREE_ZOMBIES, "", "", action=FREE_ZOMBIES), {})
    assert shares == [0.4, 1.0] * 2
    assert [(each["known"] is known, each["stop"] is stop) for each in given] == [(True, True)] * 2


def held(watch: Watch) -> int:
    return sum(parent.bytes for parent in watch.residuals())


def test_a_plan_that_is_for_a_person_is_no_step_of_exhume():
    assert free_zombies_step(Plan("zombies", 5, "reboot"), Scope()) is None


def test_a_plan_can_be_applied_without_it():
    other = Step("stop", "stop it", "it loops", action="stop-units", targets=("a.service",))
    ours = Step(FREE_ZOMBIES, "free them", "they are many", action=FREE_ZOMBIES)
    by_hand = Step("reboot", "reboot", "nothing else helps")
    saved = SavedPlan("20260101-000000-abcd", Plan("t", None, "s", (other, ours, by_hand)), "n", "m", "/", "b", 1)
    left = saved.without(FREE_ZOMBIES)
    assert left.plan.steps == (other, by_hand) and left.begun().entries[0].step == other
    assert (left.id, left.fingerprints) == (saved.id, saved.fingerprints)


def test_the_scope_of_a_step_survives_being_kept():
    scope = Scope(Path("/sys/fs/cgroup/memory/docker"), (Path("/a"), Path("/b")), ("reclaim", "fadvise"))
    assert Scope.from_params(scope.params) == scope
    assert Scope.from_params(()) == Scope()

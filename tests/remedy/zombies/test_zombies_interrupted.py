"""A remedy that is interrupted, killed or not allowed to be expensive: nothing is lost, nothing is left."""

import signal
import time

import pytest
from tests.on_time import on_time

from exhume.control.changes import hold_journal, read_journal
from exhume.control.swap import is_on
from exhume.control.worker import JobResult
from exhume.model.remedy import Plan, Status, Step
from exhume.model.stop import Stop
from exhume.procfs.host import Host
from exhume.remedy.ledger import FixState, Ledger, Mark
from exhume.remedy.zombies import apply
from exhume.remedy.zombies.apply import Applier, Limits, Observer
from exhume.remedy.zombies.situation import Watch

pytestmark = pytest.mark.xdist_group("cgroups")

COUNT = 500


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_the_swapfile_removed_and_nothing_lost(number, lab_of, fix):
    with lab_of(COUNT, "tmpfs") as lab:
        run = fix(lab)
        content = {file: file.read_bytes() for file in lab.files}
        swappiness = swappiness_of(lab)
        process = run.start()
        # The moment that it is on: it is off again within a second or two, however long others hold this one up.
        with on_time():
            wait_for(lambda: is_on(Host(), swapfile(run)))
            process.send_signal(number)
            process.send_signal(number)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 130, output
        (fix_,) = Ledger(run.work_dir).fixes()
        assert (fix_.state, fix_.entries[0].mark) == (FixState.UNFINISHED, Mark.BEGUN)
        assert not is_on(Host(), swapfile(run))
        assert run.left() == set()
        assert swappiness_of(lab) == swappiness
        assert {file: file.read_bytes() for file in lab.files} == content


@pytest.mark.root
@pytest.mark.parametrize("then", ["apply", "rollback"])
def test_after_kill_9_the_next_run_finds_what_is_left_and_removes_it(then, lab_of, fix):
    with lab_of(COUNT, "tmpfs") as lab:
        run = fix(lab)
        content = {file: file.read_bytes() for file in lab.files}
        swappiness = swappiness_of(lab)
        process = run.start()
        with on_time():
            wait_for(lambda: len(read_journal(run.work_dir, Host()).changes) > 1)
            process.kill()
        process.communicate()
        assert is_on(Host(), swapfile(run))
        plan = run.plan()
        assert plan["steps"][0]["parts"][0]["id"] == "clean-up"
        assert is_on(Host(), swapfile(run)), "a plan changes nothing"
        if then == "apply":
            first = run.apply()["outcomes"][0]
            assert (first["id"], first["status"]) == ("clean-up", "done")
        else:
            assert run.rollback()["state"] == "rolled-back"
        assert not is_on(Host(), swapfile(run))
        assert run.left() == set()
        assert swappiness_of(lab) == swappiness
        assert {file: file.read_bytes() for file in lab.files} == content


@pytest.mark.root
def test_a_second_remedy_is_refused_while_one_is_at_work(lab_of, fix):
    with lab_of(50, "tmpfs") as lab:
        run = fix(lab)
        with hold_journal(run.work_dir, Host()):
            process = run.start()
            output, _ = process.communicate(timeout=120)
        assert process.returncode == 2
        assert "another exhume fix is at work" in output


# Bounds, with actions that only pretend.


@pytest.fixture
def applied(tmp_path, monkeypatch):
    """Apply steps whose batches are given, as often as they are asked for; what came of them."""
    monkeypatch.setattr(apply, "idlest_core", lambda host: None)
    monkeypatch.setattr(apply, "REST_S", 0.01)
    monkeypatch.setattr(Applier, "count", lambda self, still_s=0.0: 700)
    monkeypatch.setattr(Watch, "residuals", lambda self: [])
    monkeypatch.setattr(apply, "why_left", lambda situation, outcomes: ())
    monkeypatch.setattr(Watch, "situation", lambda self, progress: None)

    def run(step: Step, batches, limits: Limits, stop: Stop | None = None):
        monkeypatch.setitem(apply.ACTIONS, step.action, batches)
        with hold_journal(tmp_path / "work", Host()) as journal:
            watch = Watch(Host(), tmp_path / "work")
            applier = Applier(Host(), stop or Stop(), journal, None, watch, Observer())
            return applier.apply(Plan("zombies", 700, "", (step,)), limits).outcomes[0]

    return run


def endless(closed: list):
    def batches(step, bench):
        try:
            while True:
                yield JobResult(False, 0, 0.0, 0.01)
        finally:
            closed.append(True)

    return batches


def test_a_spike_is_refused_unless_it_is_accepted(applied):
    step = Step("reclaim", "reclaim", "", action="pretend", cpu_seconds=18.4, spike=True)
    refused = applied(step, once, Limits(lambda step: False))
    assert refused.status == Status.REFUSED
    assert "18.4 s" in refused.why
    assert applied(step, once, Limits(lambda step: True)).status == Status.DONE


def once(step, bench):
    yield JobResult(True, 1, 0.0, 0.0)


def test_a_step_ends_when_its_time_is_over_and_cleans_up(applied):
    closed: list[bool] = []
    outcome = applied(Step("x", "x", "", action="pretend"), endless(closed), Limits(lambda step: True, step_s=0.2))
    assert outcome.status == Status.TIMED_OUT
    assert outcome.cpu_seconds > 0
    assert closed == [True]


def test_a_stop_is_heeded_between_batches(applied):
    closed: list[bool] = []
    stop = Stop()

    def batches(step, bench):
        try:
            yield JobResult(True, 0, 0.0, 0.0)
            stop.set()
            yield JobResult(True, 0, 0.0, 0.0)
            raise AssertionError("it went on")
        finally:
            closed.append(True)

    outcome = applied(Step("x", "x", "", action="pretend"), batches, Limits(lambda step: True), stop)
    assert outcome.status == Status.INTERRUPTED
    assert closed == [True]
    late = applied(Step("x", "x", "", action="pretend"), endless(closed), Limits(lambda step: True), stop)
    assert late.status == Status.INTERRUPTED
    assert late.seconds == 0


def test_steps_for_a_person_and_steps_not_requested_are_left(applied):
    manual = applied(Step("holders", "stop it", ""), endless([]), Limits(lambda step: True))
    assert manual.status == Status.MANUAL
    other = applied(Step("x", "x", "", action="pretend"), endless([]), Limits(lambda step: True, only={"y"}))
    assert other.status == Status.NOT_REQUESTED


def test_a_step_without_anything_left_to_free_is_skipped(applied):
    outcome = applied(Step("reclaim", "x", "", action="reclaim"), endless([]), Limits(lambda step: True))
    assert outcome.status == Status.NOT_NEEDED


def swappiness_of(lab) -> str | None:
    """Only v1 has it for each cgroup."""
    file = lab.parent / "memory.swappiness"
    return file.read_text() if file.exists() else None


def swapfile(run) -> str:
    return str(run.work_dir / "zombies.swap")


def wait_for(condition, seconds: float = 60.0):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.005)
    raise AssertionError("it did not happen")

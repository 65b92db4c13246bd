"""What is trouble, and what only looks like it: each scene beside its nearest neighbour."""

import pytest
from tests.diagnose.audit.audit_scenes import (
    NOW,
    but,
    container,
    held,
    history,
    judged,
    looping,
    some_name,
    unit,
    whole,
)

from exhume.model.audit import Exit, History, Manager, Service, Trait, Wants
from exhume.model.clock import NANOS


def trouble(service, *others, **more) -> list[Trait]:
    return [trait for trait in judged(service, *others, **more).traits if trait is not Trait.DEFAULT_ON]


@pytest.mark.parametrize("seed", range(6))
def test_a_unit_of_any_name_that_fails_every_few_seconds_loops(seed):
    assert trouble(looping(some_name(seed))) == [Trait.CRASH_LOOP]


def test_a_unit_that_ended_once_a_day_does_not_loop():
    assert trouble(unit(restarts=1, history=history(2, 1, ago_s=7200))) == []
    week = history(8, 7, every_s=86400, ago_s=7200, hours=168)
    assert trouble(unit(restarts=7, age_s=7200, history=week)) == [Trait.FLAPPING]


def test_a_loop_that_began_a_minute_ago_is_one_though_the_day_was_calm():
    assert trouble(looping(restarts=5, history=history(6, 6, every_s=10, hours=24))) == [Trait.CRASH_LOOP]


def test_a_past_loop_is_not_reported():
    calm = unit(restarts=311, age_s=5 * 3600, history=history(312, 311, ago_s=5 * 3600))
    assert Trait.CRASH_LOOP not in trouble(calm)


@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_one_that_a_fix_holds_back_is_in_no_trouble_any_more(state):
    ours = "/etc/systemd/system/thing.service.d/90-exhume.conf"
    held_back = looping(state=state, detail="dead", drop_ins=(ours,))
    found = judged(held_back)
    assert not found.troubled and Trait.CONDITION_FAILED in found.traits
    (why,) = found.explained
    assert ours in why and "exhume fix rollback" in why
    # Somebody else's drop-in is no reason; and one that runs all the same is not held back.
    assert judged(but(held_back, drop_ins=(ours.replace("90-exhume", "50-local"),))).troubled
    assert trouble(looping(drop_ins=(ours,))) == [Trait.CRASH_LOOP]


def test_it_is_caught_while_it_runs_for_its_few_seconds_too():
    alive = looping(state="active", detail="running", age_s=1.2)
    assert trouble(alive) == [Trait.CRASH_LOOP]


def test_it_is_caught_while_a_check_before_its_start_takes_longer_than_all_turns_before():
    past = history(40, 40, every_s=0.5, ago_s=30)
    last = Exit(NOW - 30 * NANOS, 78, command="ExecStartPre")
    held_up = looping(detail="start-pre", age_s=None, started=None, history=past, last_exit=last, restarts=39)
    assert trouble(held_up) == [Trait.CRASH_LOOP]
    # Somebody starts it by hand, long after.
    assert Trait.CRASH_LOOP not in trouble(but(held_up, restarts=0))


def test_a_timers_job_that_ends_every_minute_is_none():
    wants = Wants(triggered_by=("thing.timer",))
    job = unit(state="inactive", detail="dead", wants=wants, restart_policy="no", history=history(1440, 0))
    assert trouble(job) == []


def test_a_timers_job_that_fails_every_minute_failed_and_does_not_loop():
    wants = Wants(triggered_by=("thing.timer",))
    past = history(1440, 1440, every_s=60)
    job = unit(state="failed", detail="failed", wants=wants, restart_policy="no", last_exit=Exit(NOW, 1), history=past)
    assert trouble(job) == [Trait.FAILED]


def test_such_a_job_is_reported_while_it_runs():
    wants = Wants(triggered_by=("thing.timer",))
    job = unit(state="activating", detail="start", age_s=1.0, wants=wants, restart_policy="no")
    assert trouble(but(job, history=history(1440, 1440, every_s=60))) == [Trait.FLAPPING]
    assert trouble(but(job, history=history(1440, 5, every_s=60))) == []


def test_one_that_is_started_often_and_seldom_fails_does_not_loop():
    busy = unit(restarts=99, age_s=2.0, history=history(100, 4, every_s=30))
    assert trouble(busy) == [Trait.FLAPPING]


def test_manual_restarts_are_no_loop():
    assert trouble(unit(age_s=3.0, history=history(6, 0))) == []


def test_one_that_is_started_again_after_good_ends_flaps():
    past = History("journal", 24.0, 900, 0, 37.5, (Exit(NOW - NANOS, 0),))
    assert trouble(unit(restarts=899, age_s=2.0, last_exit=Exit(NOW, 0), history=past)) == [Trait.FLAPPING]


def test_a_oneshot_that_remains_after_its_end_is_well():
    assert trouble(unit(detail="exited", restart_policy="no", last_exit=Exit(NOW, 0), history=history(1, 0))) == []


def test_a_oneshot_that_is_done_is_well():
    done = unit(state="inactive", detail="dead", restart_policy="no", last_exit=Exit(NOW, 0), history=history(1, 0))
    assert trouble(done) == []


def test_a_unit_that_systemd_gave_up_on_failed():
    gone = unit(
        state="failed",
        detail="failed",
        result="start-limit-hit",
        restarts=5,
        last_exit=Exit(NOW, 1),
        history=history(6, 6, every_s=1),
    )
    found = judged(gone)
    assert found.traits[0] is Trait.FAILED
    assert "started too often" in found.explained[0]


def test_a_unit_whose_dependency_failed_is_named_with_the_reason():
    failed = unit("bootstrap.service", "failed", "failed", last_exit=Exit(NOW, 7), history=history(1, 1))
    agent = unit(state="inactive", detail="dead", wants=Wants(requires=("bootstrap.service",), failed=(failed.id,)))
    found = judged(agent, failed)
    assert found.traits[0] is Trait.DEPENDENCY_FAILED
    assert "bootstrap.service" in found.explained[0] and "code 7" in found.explained[0]


def test_a_unit_that_runs_although_what_it_required_failed_since_is_well():
    failed = unit("bootstrap.service", "failed", "failed", last_exit=Exit(NOW, 7))
    assert trouble(unit(wants=Wants(failed=(failed.id,))), failed) == []


def test_a_condition_that_did_not_hold_is_no_failure():
    idle = unit(state="inactive", detail="dead", conditions=(held("ConditionPathExists", "/etc/x.conf", False),))
    found = judged(idle)
    assert found.traits[0] is Trait.CONDITION_FAILED and not found.troubled
    assert "ConditionPathExists=/etc/x.conf" in found.explained[0]


def test_a_condition_that_was_not_tried_says_nothing():
    idle = unit(state="inactive", detail="dead", conditions=(held("ConditionPathExists", "/etc/x.conf", None),))
    assert trouble(idle) == []


def test_of_conditions_of_which_one_will_do_all_have_to_fail():
    one = held("ConditionPathExists", "/a", False, trigger=True)
    idle = unit(state="inactive", detail="dead")
    assert trouble(but(idle, conditions=(one, held("ConditionPathExists", "/b", True, trigger=True)))) == []
    both = but(idle, conditions=(one, held("ConditionPathExists", "/b", False, trigger=True)))
    assert trouble(both) == [Trait.CONDITION_FAILED]


def test_instances_of_a_template_are_judged_one_by_one():
    found = whole(looping("work@a.service"), unit("work@b.service"))
    assert {each.service.id: each.troubled for each in found.services} == {
        "work@a.service": True,
        "work@b.service": False,
    }


def test_a_container_that_docker_starts_again_and_again_loops():
    bad = container(state="restarting", restarts=9, last_exit=Exit(NOW, 1), history=history(10, 10, every_s=60))
    assert trouble(bad) == [Trait.CRASH_LOOP]


def test_a_container_that_kubernetes_backs_off_from_loops():
    waits = Service(Manager.CRI, "cd" * 32, "pod/app", state="exited", restarts=20, last_exit=Exit(NOW - 60 * NANOS, 1))
    assert trouble(but(waits, history=history(20, 20, every_s=305, ago_s=60))) == [Trait.CRASH_LOOP]


def test_a_container_that_kubernetes_makes_wait_for_minutes_still_loops():
    waits = Service(Manager.CRI, "cd" * 32, "pod/app", state="exited", restarts=8, last_exit=Exit(NOW, 1))
    assert trouble(but(waits, history=history(8, 8, every_s=2, ago_s=280))) == [Trait.CRASH_LOOP]
    assert trouble(but(waits, history=history(8, 8, every_s=2, ago_s=3000))) == [Trait.FAILED]


def test_a_container_whose_order_to_start_again_was_taken_away_does_not_loop():
    stopped = container(state="exited", restarts=9, last_exit=Exit(NOW, 1), history=history(10, 10, every_s=60))
    assert trouble(stopped) == [Trait.CRASH_LOOP]
    assert trouble(but(stopped, restart_policy="no")) == [Trait.FAILED]


def test_a_container_that_is_up_and_fails_its_own_check_is_unhealthy():
    sick = container(detail="unhealthy", log=("health check ended with code 7, and printed: connection refused",))
    assert trouble(sick) == [Trait.UNHEALTHY] and judged(sick).troubled
    assert judged(sick).explained[1] == "its log says that it can't reach its peer"
    assert trouble(container(detail="healthy")) == [] and trouble(container(detail="starting")) == []


def test_a_container_that_docker_gave_up_on_failed_and_does_not_loop():
    tried = container(state="exited", restart_policy="on-failure:5", restarts=5, last_exit=Exit(NOW, 3))
    tried = but(tried, history=history(6, 6, every_s=1))
    assert trouble(tried) == [Trait.FAILED]
    assert "Docker gave up on it: its restart policy is on-failure:5" in judged(tried).explained[0]
    assert trouble(but(tried, restarts=4)) == [Trait.CRASH_LOOP]


def test_a_unit_that_another_has_started_again_and_again_loops_also_while_it_is_down():
    """As two do of which each is the other's OnFailure=, and one that an active unit upholds."""
    down = unit(state="failed", detail="failed", restart_policy="no", last_exit=Exit(NOW, 1))
    down = but(down, history=history(40, 40, every_s=1.5))
    assert trouble(down) == [Trait.FAILED] and "it stays down" in judged(down).explained[0]
    again = but(down, wants=Wants(restarted_by=("other.service",)))
    assert trouble(again) == [Trait.CRASH_LOOP]
    assert "other.service has it started again" in judged(again).explained[0]
    # The audit itself may take a while.
    assert trouble(but(again, history=history(40, 40, every_s=1.5, ago_s=40))) == [Trait.CRASH_LOOP]
    past = but(again, history=history(40, 40, every_s=1.5, ago_s=600))
    assert trouble(past) == [Trait.FAILED] and "stays down" not in judged(past).explained[0]


def test_a_container_recreated_each_time_loops():
    recreated = container(state="exited", restart_policy="no", restarts=0, last_exit=Exit(NOW, 1))
    assert trouble(but(recreated, history=history(50, 50, every_s=4))) == [Trait.CRASH_LOOP]


@pytest.mark.parametrize("code", [0, 137, 143])
def test_a_stopped_container_did_not_fail(code):
    assert trouble(container(state="exited", restart_policy="no", last_exit=Exit(NOW, code))) == []


def test_a_container_that_ended_with_an_error_failed():
    assert trouble(container(state="exited", restart_policy="no", last_exit=Exit(NOW, 3))) == [Trait.FAILED]


def test_a_container_whose_memory_ran_out_failed_though_it_looks_stopped():
    out = container(state="exited", restart_policy="no", result="oom-killed", last_exit=Exit(NOW, 137))
    assert trouble(out) == [Trait.FAILED]


def test_without_a_history_a_look_at_the_moment_has_to_do():
    assert trouble(looping(history=None, restarts=4)) == [Trait.CRASH_LOOP]
    assert trouble(looping(history=None, restarts=1)) == []
    assert trouble(unit(history=None, restarts=40, age_s=20 * 3600)) == []


def test_the_worst_come_first():
    services = [
        unit("a-well.service"),
        unit("b-failed.service", "failed", "failed", last_exit=Exit(NOW, 1)),
        looping("c-slow.service", history=history(80, 80, every_s=600, ago_s=5)),
        looping("d-fast.service"),
    ]
    assert [each.service.id for each in whole(*services).services] == [
        "d-fast.service",
        "c-slow.service",
        "b-failed.service",
        "a-well.service",
    ]

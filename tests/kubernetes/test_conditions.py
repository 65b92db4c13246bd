"""When conditions are set, hold and clear."""

import numpy as np
import pytest
from tests.notify.conftest import WALL, finding, report_of

from exhume.diagnose.catalogue import catalogue
from exhume.kubernetes.conditions import LEAK_CAUSES, MAX_MESSAGE, Conditions, ConditionType, reason_of
from exhume.model.clock import NANOS
from exhume.notify.report import Mark

STARVED, LEAK, RESET = ConditionType.CPU_STARVED, ConditionType.CGROUP_LEAK, ConditionType.NIC_RESET
QUIET_NS = 300 * NANOS


def mark(trigger, device=None):
    return Mark(5 * NANOS, WALL, trigger, f"marked {trigger}", None, device)


def cpu(*permille):
    zeros = np.zeros(len(permille), np.int64)
    return {"cpu": [{"system": np.array(permille), "irq": zeros, "softirq": zeros, "steal": zeros}]}


def dying(count):
    return {"cgroups": [{"hierarchy": ["memory", "memory"], "parent": ["", "/x"], "dying": [count, 3]}]}


def set_types(conditions):
    return {type_ for type_, state in conditions.states.items() if state is not None and state.status}


def test_a_network_reset_needs_no_diagnosis():
    conditions = Conditions(QUIET_NS)
    assert conditions.mark(mark("nic-reset", "eth0"), 5 * NANOS)
    assert set_types(conditions) == {RESET}
    state = conditions.states[RESET]
    assert (state.reason, state.since) == ("NicReset", WALL) and "eth0" in state.message


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (report_of(finding("rt-hog")), {STARVED}),
        (report_of(finding("zombie-memcgs")), {STARVED, LEAK}),
        (report_of(finding("zombie-memcgs", "warning"), verdict="degraded"), {LEAK}),
        (report_of(finding("cfs-throttling", "warning", scope="workload"), verdict="healthy"), set()),
        (report_of(), {STARVED}),
        (report_of(verdict="unknown"), set()),
        (report_of(finding("softirq-storm"), marks=[mark("nic-reset", "eth0")]), {STARVED, RESET}),
    ],
)
def test_what_a_diagnosis_sets(report, expected):
    conditions = Conditions(QUIET_NS)
    assert conditions.report(report, 0) == bool(expected)
    assert set_types(conditions) == expected


def test_it_clears_after_the_quiet_time_and_not_before():
    conditions = Conditions(QUIET_NS)
    conditions.report(report_of(finding("rt-hog")), 0)
    assert not conditions.expire(QUIET_NS - 1, WALL)
    assert conditions.expire(QUIET_NS, WALL + QUIET_NS)
    assert (conditions.states[STARVED].status, conditions.states[STARVED].since) == (False, WALL + QUIET_NS)
    assert not conditions.expire(QUIET_NS * 2, WALL)


def test_starvation_that_goes_on_holds_it():
    conditions = Conditions(QUIET_NS)
    conditions.report(report_of(finding("rt-hog")), 0)
    for minute in range(1, 20):
        conditions.observe(cpu(10, 960), minute * 60 * NANOS)
        assert not conditions.expire(minute * 60 * NANOS, WALL)
    conditions.observe(cpu(10, 900), 20 * 60 * NANOS)
    assert conditions.expire(19 * 60 * NANOS + QUIET_NS, WALL)


def waiting(slices: int) -> dict[str, list[dict[str, list]]]:
    """The rows of a ksoftirqd that waited for most of a second."""
    waited = {"run_ns": [NANOS // 10], "wait_ns": [NANOS * 9 // 10], "slices": [slices]}
    return {"threads": [{"comm": ["ksoftirqd/3"], "cpu": [3], **waited}]}


def test_a_ksoftirqd_that_waits_holds_it():
    conditions = Conditions(QUIET_NS)
    conditions.report(report_of(finding("rt-hog")), 0)
    conditions.observe(waiting(slices=1), QUIET_NS)
    assert not conditions.expire(QUIET_NS + 1, WALL)


def test_a_ksoftirqd_that_takes_turns_does_not():
    conditions = Conditions(QUIET_NS)
    conditions.report(report_of(finding("rt-hog")), 0)
    conditions.observe(waiting(slices=60), QUIET_NS)
    assert conditions.expire(QUIET_NS + 1, WALL)


def test_a_leak_holds_while_its_cgroups_are_there():
    conditions = Conditions(QUIET_NS)
    conditions.observe(dying(20_000), 0)
    conditions.mark(mark("dying-cgroups"), 0)
    conditions.observe(dying(15_000), 10 * QUIET_NS)
    assert not conditions.expire(10 * QUIET_NS, WALL)
    conditions.observe(dying(900), 11 * QUIET_NS)
    assert conditions.expire(11 * QUIET_NS, WALL)


def test_what_an_earlier_recorder_set_is_taken_over_and_clears():
    conditions = Conditions(QUIET_NS)
    conditions.adopt({"NICReset": {"status": True, "reason": "NicReset", "message": "x", "since": WALL}}, 7 * NANOS)
    assert set_types(conditions) == {RESET}
    assert conditions.expire(7 * NANOS + QUIET_NS, WALL)
    conditions.adopt({"NICReset": {"status": True, "reason": "NicReset", "message": "x", "since": WALL}}, 8 * NANOS)
    assert set_types(conditions) == set()


def test_a_change_of_the_reason_keeps_the_transition():
    conditions = Conditions(QUIET_NS)
    conditions.mark(mark("nic-reset"), 0)
    later = report_of(finding("softirq-storm"), marks=[Mark(0, WALL + NANOS, "nic-reset", "x")])
    assert conditions.report(later, NANOS)
    assert (conditions.states[RESET].reason, conditions.states[RESET].since) == ("SoftirqStorm", WALL)
    assert not conditions.report(later, 2 * NANOS)


def test_messages_are_bounded():
    conditions = Conditions(QUIET_NS)
    conditions.report(report_of(finding(summary="x" * 5000)), 0)
    assert len(conditions.states[STARVED].message) == MAX_MESSAGE


def test_reasons_are_as_the_api_writes_them():
    assert [reason_of(cause) for cause in ("zombie-memcgs", "rt-hog", "unexplained")] == [
        "ZombieMemcgs",
        "RtHog",
        "Unexplained",
    ]


def test_the_causes_of_leaks_exist():
    assert set(catalogue()) >= LEAK_CAUSES

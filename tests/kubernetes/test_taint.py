"""The policy of the taint."""

import pytest

from exhume.kubernetes.taint import TaintPolicy, TaintState, may_have_taint
from exhume.model.clock import NANOS

POLICY = TaintPolicy("NoSchedule", 0.1, 60 * NANOS, 600 * NANOS)


def wanted_at(*steps):
    """What is wanted after each step: seconds, and whether the node is starved."""
    state = TaintState(POLICY)
    found = []
    for second, starved in steps:
        state.observe(starved, second * NANOS)
        found.append(state.wanted)
    return found


def test_it_comes_late_and_goes_later():
    assert wanted_at((0, True), (59, True), (60, True)) == [False, False, True]
    assert wanted_at((0, True), (60, True), (61, False), (660, False), (661, False)) == [False, True, True, True, False]


def test_a_flapping_condition_does_not_flap_the_taint():
    steps = [(second, second % 60 < 40) for second in range(0, 600, 10)]
    assert not any(wanted_at(*steps))
    after = [(0, True), (60, True), *((100 + second, second % 300 < 10) for second in range(0, 3000, 10))]
    assert all(wanted_at(*after)[1:])


def test_one_from_before_goes_as_ours_does():
    state = TaintState(POLICY)
    state.adopt(0)
    state.observe(False, 599 * NANOS)
    assert state.wanted
    assert state.observe(False, 600 * NANOS) and not state.wanted


@pytest.mark.parametrize(
    ("tainted", "nodes", "share", "allowed"),
    [
        ([("me", "9999")], 10, 0.1, True),
        ([("me", "9999")], 9, 0.1, False),
        ([("a", "2026-01-01T00:00:00Z"), ("me", "9999")], 10, 0.1, False),
        ([("a", "2026-01-01T00:00:00Z"), ("me", "9999")], 20, 0.1, True),
        ([("me", "2026-01-01T00:00:00Z"), ("a", "2026-01-01T00:00:01Z")], 10, 0.1, True),
        ([("me", "2026-01-01T00:00:00Z"), ("a", "2026-01-01T00:00:00Z")], 10, 0.1, False),
    ],
)
def test_the_share_of_a_zone(tainted, nodes, share, allowed):
    assert may_have_taint("me", tainted, nodes, share) is allowed

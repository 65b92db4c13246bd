"""The tree of a flame graph: sums, shares, layout, and both sides of a difference."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.store.profiles import profile, random_profile

from exhume.store.read.flame_tree import NODE_STATES, build_tree

paths = st.tuples(
    st.sampled_from(["python3", "python", "kubelet"]),
    st.lists(st.sampled_from(["a", "b", "k:a", "k:b", "j:a"]), max_size=5),
).map(lambda pair: (pair[0], *pair[1]))
rows = st.dictionaries(paths, st.integers(1, 1000), min_size=1, max_size=25)


def nodes_by_path(tree):
    """Every node under the names that lead to it, written as the profiles of the tests are."""
    found = {}
    for node in range(len(tree)):
        labels = [int(tree.label[n]) for n in tree.path(node)]
        prefix = {"kernel": "k:", "jit": "j:"}
        found[tuple(prefix.get(tree.labels.kinds[i], "") + tree.labels.names[i] for i in labels)] = node
    assert len(found) == len(tree), "a path has more than one node"
    return found


def inclusive(stacks):
    """What each path weighs, added up the slow way."""
    sums = Counter()
    for path, count in stacks.items():
        for length in range(len(path) + 1):
            sums[path[:length]] += count
    return sums


@settings(deadline=None)
@given(rows)
def test_every_node_has_the_weight_of_the_stacks_that_pass_through_it(stacks):
    tree = build_tree(profile(stacks, weight_us=7))
    expected = inclusive(stacks)
    found = nodes_by_path(tree)
    assert found.keys() == expected.keys()
    for path, node in found.items():
        assert tree.samples[node] == expected[path]
        assert tree.weight[node] == 7 * expected[path]
        assert tree.self_weight[node] == 7 * stacks.get(path, 0)


@settings(deadline=None)
@given(rows)
def test_a_function_has_the_time_of_all_its_places_and_counts_once_where_it_calls_itself(stacks):
    tree = build_tree(profile(stacks, weight_us=7))
    own, total = Counter(), Counter()
    for path, count in stacks.items():
        # The thread is no function, whatever its name.
        frames = ["thread " + path[0], *path[1:]]
        own[frames[-1]] += 7 * count
        total.update(dict.fromkeys(frames, 7 * count))
    prefix = {"kernel": "k:", "jit": "j:", "comm": "thread "}
    names = [prefix.get(kind, "") + name for kind, name in zip(tree.labels.kinds, tree.labels.names, strict=True)]
    functions = tree.functions
    assert {name: int(value) for name, value in zip(names[1:], functions.own[1:], strict=True) if value} == own
    assert dict(zip(names[1:], functions.total[1:].tolist(), strict=True)) == total
    assert functions.base_own.sum() == 0


@settings(deadline=None)
@given(rows, rows)
def test_a_difference_covers_every_frame_of_either_side(current, baseline):
    tree = build_tree(profile(current), profile(baseline, weight_us=333))
    now, before = inclusive(current), inclusive(baseline)
    found = nodes_by_path(tree)
    assert found.keys() == now.keys() | before.keys()
    for path, node in found.items():
        expected = now[path] / now[()] - before[path] / before[()]
        assert tree.delta[node] == pytest.approx(expected, abs=1e-12)
        assert tree.width[node] > 0


@settings(deadline=None)
@given(rows, st.none() | rows)
def test_children_lie_inside_their_parent_and_never_overlap(current, baseline):
    tree = build_tree(profile(current), profile(baseline) if baseline else None)
    right = tree.x + tree.width
    for node in range(1, len(tree)):
        parent = tree.parent[node]
        assert tree.x[node] >= tree.x[parent] - 1e-9
        assert right[node] <= right[parent] + 1e-9
    for start, stop in tree.levels:
        level = sorted(range(start, stop), key=lambda node: tree.x[node])
        assert all(right[a] <= tree.x[b] + 1e-9 for a, b in pairwise(level))


def test_names_that_end_in_digits_stay_apart():
    tree = build_tree(profile({("python3", "main"): 1, ("python", "main"): 1, ("python3.11", "main"): 1}))
    assert {("python3",), ("python",), ("python3.11",)} <= nodes_by_path(tree).keys()


def test_samples_weigh_what_they_stand_for():
    """A rate that was lowered makes fewer samples, each standing for more time."""
    slow = profile({("app", "slow"): 10}, weight_us=100_000)
    fast = profile({("app", "fast"): 100}, weight_us=10_000)
    assert build_tree(slow).weight[0] == build_tree(fast).weight[0]


def test_nothing_at_all():
    tree = build_tree(profile({}))
    assert tree.empty
    assert len(tree) == 1
    assert tree.share.tolist() == [0.0]
    assert tree.x.tolist() == [0.0]


@pytest.mark.parametrize("empty", ["current", "baseline"])
def test_a_difference_with_one_empty_side(empty):
    sides = {"current": profile({("a", "f"): 3}), "baseline": profile({("a", "f"): 3})}
    sides[empty] = profile({})
    tree = build_tree(sides["current"], sides["baseline"])
    assert tree.width[0] == 1
    assert tree.delta.tolist() == [1.0 if empty == "baseline" else -1.0] * 3


def test_work_below_a_softirq_differs_from_the_work_it_interrupted():
    path = ("app", "main", "k:asm_common_interrupt", "k:handle_softirqs", "k:net_rx_action")
    tree = build_tree(profile({path: 1, ("app", "main", "k:net_rx_action"): 1}))
    states = {
        names[-1:]: NODE_STATES[tree.state[node]] for names, node in nodes_by_path(tree).items() if len(names) > 3
    }
    assert states == {("k:handle_softirqs",): "softirq", ("k:net_rx_action",): "softirq"}
    shallow = nodes_by_path(tree)["app", "main", "k:net_rx_action"]
    assert NODE_STATES[tree.state[shallow]] == "system"


def test_a_large_profile_is_merged_whole():
    large = random_profile(20_000)
    tree = build_tree(large)
    assert tree.weight[0] == large.weight_us
    assert tree.samples[0] == large.samples
    assert int(tree.self_weight.sum()) == large.weight_us
    assert np.all(tree.self_weight >= 0)

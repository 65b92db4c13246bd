"""What sets sick nodes apart, on fleets that are made up of arrays."""

import numpy as np
import pytest

from exhume.fleet.cohort.census import Values
from exhume.fleet.cohort.separators import Condition, Properties, properties_of, separate

NODES = 600


def values_of(columns: dict[str, np.ndarray], moment: int = 0) -> Values:
    """Attributes that each node has from a moment on."""
    keys = sorted(columns)
    texts = sorted({str(value) for column in columns.values() for value in column})
    count = len(next(iter(columns.values())))
    rows = [
        (node, place, texts.index(str(columns[key][node]))) for node in range(count) for place, key in enumerate(keys)
    ]
    node, key, value = (np.array(each, np.int64) for each in zip(*rows, strict=True))
    return Values(node, key, value, np.full(len(node), moment, np.int64), keys, texts)


def fleet(seed: int = 1) -> tuple[np.random.Generator, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    columns = {
        "zone": rng.choice(["a", "b", "c"], NODES),
        "image": rng.choice(["old", "new"], NODES),
        "kernel": rng.choice(["5.10", "6.1"], NODES),
        "pool": rng.choice(["train", "serve"], NODES),
        **{f"package.p{number}": rng.choice(["1", "2", "3"], NODES) for number in range(20)},
        "serial": np.arange(NODES).astype(str),
    }
    return rng, columns


def properties(columns: dict[str, np.ndarray]) -> Properties:
    return properties_of(values_of(columns), np.zeros(NODES, np.int64), NODES)


def flipped(rng: np.random.Generator, sick: np.ndarray) -> np.ndarray:
    return sick ^ (rng.random(len(sick)) < 0.02)


def test_one_attribute_is_found_and_its_confounder_is_explained():
    rng, columns = fleet()
    columns["kernel"] = np.where(rng.random(NODES) < 0.9, np.where(columns["image"] == "new", "6.1", "5.10"), "6.1")
    sick = flipped(rng, (columns["image"] == "new") & (rng.random(NODES) < 0.6))
    found = separate(properties(columns), {"": sick})
    first = found.separators[0]
    assert first.conditions == (Condition("image", "new"),)
    assert first.risk_ratio.low > 5 and first.q < 1e-6 and first.p < 0.01
    assert first.sick + first.other_sick == sick.sum() and first.nodes + first.others == NODES
    kernel = next(each for each in found.separators if each.conditions == (Condition("kernel", "6.1"),))
    assert kernel.explained and kernel.given_first is not None and kernel.given_first.low <= 1.2


def test_a_pair_is_named_where_neither_part_explains_it():
    rng, columns = fleet()
    sick = flipped(rng, (columns["image"] == "new") & (columns["zone"] == "b"))
    found = separate(properties(columns), {"": sick})
    assert found.separators[0].conditions == (Condition("image", "new"), Condition("zone", "b"))
    assert found.separators[0].coverage > 0.85
    assert found.members is not None
    assert (found.members == ((columns["image"] == "new") & (columns["zone"] == "b"))).all()


@pytest.mark.slow
def test_a_pair_is_not_named_where_one_attribute_explains_it():
    for seed in range(5):
        rng, columns = fleet(seed)
        sick = flipped(rng, (columns["image"] == "new") & (rng.random(NODES) < 0.5))
        found = separate(properties(columns), {"": sick})
        assert found.separators[0].conditions == (Condition("image", "new"),)


def test_attributes_of_the_same_nodes_are_named_together_and_states_last():
    rng, columns = fleet()
    columns["unit.agent.service"] = np.where(columns["image"] == "new", "failed/crash-loop", "active")
    columns["os"] = np.where(columns["image"] == "new", "2023", "2")
    sick = flipped(rng, columns["image"] == "new")
    first = separate(properties(columns), {"": sick}).separators[0]
    assert first.conditions == (Condition("image", "new"),)
    assert (Condition("os", "2023"),) in first.same_nodes
    assert (Condition("unit.agent.service", "failed/crash-loop"),) in first.same_nodes


def test_a_state_and_the_pair_behind_it_are_the_same_nodes():
    rng, columns = fleet()
    both = (columns["image"] == "new") & (columns["zone"] == "b")
    columns["unit.agent.service"] = np.where(both, "failed/crash-loop", "inactive")
    first = separate(properties(columns), {"": flipped(rng, both)}).separators[0]
    assert first.conditions == (Condition("image", "new"), Condition("zone", "b"))
    assert (Condition("unit.agent.service", "failed/crash-loop"),) in first.same_nodes


def test_two_causes_are_two_separators():
    rng, columns = fleet()
    one, other = columns["image"] == "new", columns["pool"] == "train"
    sick = flipped(rng, (one & (rng.random(NODES) < 0.7)) | (other & (rng.random(NODES) < 0.4)))
    found = separate(properties(columns), {"": sick}).separators
    own = {each.conditions for each in found if not each.explained}
    assert {(Condition("image", "new"),), (Condition("pool", "train"),)} <= own or any(
        set(each) == {Condition("image", "new"), Condition("pool", "train")} for each in own
    )


@pytest.mark.slow
def test_chance_sets_nothing_apart():
    alarms = 0
    for seed in range(20):
        rng, columns = fleet(100 + seed)
        found = separate(properties(columns), {"": rng.random(NODES) < 0.15})
        alarms += bool(found.separators)
        assert found.tried > 50
    assert alarms <= 1


@pytest.mark.slow
def test_a_cause_that_few_have_is_found_among_other_trouble():
    rng, columns = fleet()
    ill = (columns["zone"] == "b") & (columns["image"] == "new") & (rng.random(NODES) < 0.5)
    busy = rng.random(NODES) < 0.5
    found = separate(properties(columns), {"": ill | busy, "zombie-memcgs": ill, "user-hog": busy})
    assert found.separators[0].cause == "zombie-memcgs"
    assert found.separators[0].conditions == (Condition("image", "new"), Condition("zone", "b"))


def test_identities_are_not_compared():
    _, columns = fleet()
    made = properties(columns)
    assert made.skipped_keys == ["serial"]
    assert not any(each.key == "serial" for group in made.conditions for each in group)


def test_nothing_to_compare():
    _, columns = fleet()
    made = properties(columns)
    assert separate(made, {"": np.zeros(NODES, bool)}).separators == ()
    assert separate(made, {"": np.ones(NODES, bool)}).separators == ()
    empty = Values(*(np.empty(0, np.int64) for _ in range(4)), [], [])
    assert separate(properties_of(empty, np.zeros(5, np.int64), 5), {"": np.array([True] + [False] * 4)}).tried == 0


def test_values_are_those_of_the_moment():
    rows = np.array([(0, 0, 0, 10), (0, 0, 1, 20), (0, 0, -1, 30), (1, 0, 1, 25)], np.int64)
    values = Values(rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3], ["image"], ["old", "new"])
    assert [values.at(np.array([moment, 0]))[2].tolist() for moment in (5, 10, 20, 29, 30)] == [
        [0, 1],
        [0, 1],
        [1, 1],
        [1, 1],
        [-1, 1],
    ]

"""Sick nodes in clusters, on fleets that are made up of arrays: what goes with the clusters is not taken for a cause,
and a cause is still found."""

from dataclasses import replace

import numpy as np
import pytest
from tests.fleet.cohort.test_separators import values_of
from tests.parts import sampled

from exhume.fleet.cohort.clusters import Clustering, active, clusterings_of, sick_clusters
from exhume.fleet.cohort.separators import Condition, Properties, Separation, properties_of, separate

NODES, RACKS = 600, 30


def fleet(seed: int, racks: int = RACKS) -> tuple[np.random.Generator, np.ndarray, dict[str, np.ndarray]]:
    """Nodes in racks, of which each has one image, kernel, pool and so on."""
    rng = np.random.default_rng(seed)
    rack = rng.integers(0, racks, NODES)

    def drawn(*values: str) -> np.ndarray:
        return rng.choice(values, racks)[rack]

    columns = {
        "label.rack": np.array([f"rack-{number}" for number in range(racks)])[rack],
        "zone": drawn("a", "b", "c"),
        "kernel": drawn("5.10", "6.1"),
        "pool": drawn("train", "serve"),
        **{f"package.p{number}": drawn("1", "2", "3") for number in range(12)},
        "image": rng.choice(["old", "new"], NODES),
        **{f"module.m{number}": rng.choice(["1", "2"], NODES) for number in range(5)},
    }
    return rng, rack, columns


def properties(columns: dict[str, np.ndarray]) -> Properties:
    return properties_of(values_of(columns), np.zeros(NODES, np.int64), NODES)


def in_racks(rng: np.random.Generator, rack: np.ndarray, racks: int) -> np.ndarray:
    """Most nodes of some racks, and a few others."""
    chosen = np.isin(rack, rng.choice(rack.max() + 1, racks, replace=False))
    return (chosen & (rng.random(NODES) < 0.8)) | (rng.random(NODES) < 0.02)


def counting_clusters(columns: dict[str, np.ndarray], sick: np.ndarray) -> Separation:
    """What separates if clusters count."""
    return separate(properties(columns), {"": sick})


def both(columns: dict[str, np.ndarray], sick: np.ndarray) -> tuple[Separation, Separation]:
    """What separates if clusters count, and if they don't."""
    made = properties(columns)
    return separate(made, {"": sick}), separate(replace(made, clusterings=()), {"": sick})


@pytest.mark.slow
@pytest.mark.parametrize("racks", [2, 5, 12])
def test_sick_racks_without_a_cause_raise_no_alarm(racks: int):
    alarms = naive = 0
    for seed in range(12):
        rng, rack, columns = fleet(seed)
        found, as_if_none = both(columns, in_racks(rng, rack, racks))
        alarms += bool(found.separators)
        naive += bool(as_if_none.separators)
        assert [each.key for each in found.clusters] == ["label.rack"]
        assert found.clusters[0].spread > 3
        assert not {each.key for each in found.unproven} & {"label.rack"}
    assert naive == 12, "these fleets would all alarm without it"
    assert alarms == 0


def test_the_sick_racks_are_named():
    rng, rack, columns = fleet(3)
    sick = in_racks(rng, rack, 3)
    found = counting_clusters(columns, sick)
    [clusters] = found.clusters
    rates = np.bincount(rack, sick) / np.bincount(rack)
    assert set(clusters.sick) == {f"rack-{number}" for number in np.flatnonzero(rates > 0.5)}
    assert len(clusters.sick) == 3 and clusters.clusters == RACKS
    assert clusters.coverage > 0.8 and clusters.p < 0.01


def test_a_single_sick_rack_is_what_sets_its_nodes_apart():
    rng, rack, columns = fleet(4)
    found = counting_clusters(columns, ((rack == 7) & (rng.random(NODES) < 0.9)) | (rng.random(NODES) < 0.02))
    assert found.separators[0].conditions == (Condition("label.rack", "rack-7"),)
    assert found.clusters == ()


@pytest.mark.parametrize("seed", sampled(range(20, 26), every=6))
def test_a_cause_is_found_next_to_sick_racks(seed: int):
    rng, rack, columns = fleet(seed)
    cause = (columns["image"] == "new") & (rng.random(NODES) < 0.5)
    found = counting_clusters(columns, cause | in_racks(rng, rack, 3))
    first = found.separators[0]
    assert first.conditions == (Condition("image", "new"),)
    assert first.p <= 0.01 and found.clusters == ()


@pytest.mark.parametrize("seed", sampled(range(40, 46), every=6))
def test_a_cause_that_goes_with_whole_racks_is_found_where_there_are_enough(seed: int):
    rng, _, columns = fleet(seed)
    sick = (columns["kernel"] == "6.1") & (rng.random(NODES) < 0.7)
    found = counting_clusters(columns, sick | (rng.random(NODES) < 0.02))
    assert found.separators[0].conditions == (Condition("kernel", "6.1"),)


def test_the_same_attribute_of_a_few_clusters_is_not_proven():
    rng, rack, columns = fleet(5, racks=8)
    # Two of eight racks have it, and are the sick ones: one in 28 by chance, for each of all that were tried.
    columns["package.p0"] = np.where(np.isin(rack, (2, 5)), "3", "1")
    found, naive = both(columns, (np.isin(rack, (2, 5)) & (rng.random(NODES) < 0.8)) | (rng.random(NODES) < 0.02))
    assert Condition("package.p0", "3") in naive.separators[0].conditions
    assert found.separators == ()
    assert Condition("package.p0", "3") in found.unproven


def test_intervals_count_clusters_as_one():
    rng, rack, columns = fleet(6)
    cause = (columns["image"] == "new") & (rng.random(NODES) < 0.5)
    found, naive = both(columns, cause | in_racks(rng, rack, 4))
    clustered, plain = found.separators[0].risk_ratio, naive.separators[0].risk_ratio
    assert clustered.value == plain.value
    assert clustered.low < plain.low and clustered.high > plain.high


def test_clusters_are_exchanged_as_wholes():
    rng = np.random.default_rng(1)
    codes = rng.integers(-1, 9, 500)
    clustering = Clustering("label.job", tuple(f"job-{number}" for number in range(9)), codes)
    for _ in range(20):
        drawn = codes[clustering.draw(rng)]
        assert (drawn[codes < 0] == -1).all()
        sources = [set(drawn[codes == each].tolist()) for each in range(9)]
        assert all(len(each) == 1 for each in sources), "all nodes of a cluster get labels of one"
        assert set.union(*sources) == set(range(9)), "each cluster's labels are given once"
    some = rng.random(500) < 0.1
    few = clustering.among(some)
    assert few.sizes.min() > 0 and few.sizes.sum() == (codes[some] >= 0).sum()
    assert [few.names[code] if code >= 0 else "" for code in few.codes] == [
        clustering.names[code] if code >= 0 else "" for code in codes[some]
    ]


def test_clusters_are_exchanged_with_those_of_their_size():
    rng = np.random.default_rng(2)
    codes = np.repeat(np.arange(8), (4, 5, 6, 7, 100, 30, 40, 50))
    clustering = Clustering("label.job", tuple(map(str, range(8))), codes)
    seen: dict[int, set[int]] = {each: set() for each in range(8)}
    for _ in range(200):
        drawn = codes[clustering.draw(rng)]
        for each in range(8):
            seen[each].add(int(drawn[codes == each][0]))
    few = {0, 1, 2, 3}
    assert seen == {0: few, 1: few, 2: few, 3: few, 4: {4}, 5: {5}, 6: {6, 7}, 7: {6, 7}}


def test_clusters_that_differ_by_chance_alone_rarely_count():
    counted = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        clustering = Clustering("label.rack", tuple(map(str, range(20))), rng.integers(0, 20, NODES))
        counted += bool(active([clustering], [rng.random(NODES) < 0.15]))
    assert counted <= 12, "5% of them are expected"


def test_only_places_with_several_nodes_each_are_clusters():
    _, _, columns = fleet(7)
    columns["label.serial"] = np.arange(NODES).astype(str)
    columns["label.team"] = np.array(["x", "y"])[np.arange(NODES) % 2]
    columns["kernel"] = np.array([f"5.{number}" for number in range(20)])[np.arange(NODES) % 20]
    found = clusterings_of(values_of(columns), np.zeros(NODES, np.int64), NODES)
    assert [each.key for each in found] == ["label.rack"]
    made = sick_clusters(found[0], np.zeros(NODES, bool))
    assert (made.sick, made.coverage, made.spread) == ((), 0.0, 0.0)

"""Random fleets with planted attributes, confounders and wrong labels: the cause is first; without one, no alarm."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fleet.lakes import plan, planted, report_of

from exhume.fleet.cohort.separators import Separator
from exhume.present.fleet_view import verdict

FLEETS = 20


def names(first: Separator) -> list[dict[str, str]]:
    """The first separator and what can't be separated from it."""
    return [{each.key: each.value for each in group} for group in (first.conditions, *first.same_nodes)]


# Kinds of clusters and their sizes: a fleet of 400 to 1,500 nodes has 8 to 300 of them.
CLUSTERS = [(kind, size) for kind in ("rack", "job", "wave") for size in (5, 10, 20, 50)]


def draw(seed: int) -> tuple[int, float, float]:
    rng = np.random.default_rng(seed)
    return int(rng.integers(400, 1500)), float(rng.uniform(0.05, 0.5)), float(rng.uniform(1, 3))


def clustered(seed: int) -> dict[str, Any]:
    kind, size = CLUSTERS[seed % len(CLUSTERS)]
    return {"clusters": kind, "cluster_size": size}


def ranked_first(directory: Path, seed: int, **others: Any) -> bool:
    nodes, sick, days = draw(seed)
    made = planted(directory, plan(nodes, round(days, 1), seed=seed, sick=sick, agent=False, **others))
    found = report_of(directory, days).first
    truth = json.loads(made.truth_file.read_text())["conditions"]
    return found is not None and {each.key: each.value for each in found.conditions} == truth


def alarms(directory: Path, seed: int, **others: Any) -> bool:
    nodes, sick, days = draw(seed)
    planted(directory, plan(nodes, round(days, 1), seed=seed, sick=sick, cause=False, **others))
    found = report_of(directory, days)
    return bool(found.separators or found.changes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_cause_of_a_small_fleet_is_first(tmp_path: Path, seed: int):
    made = planted(tmp_path / "lake", plan(300, 0.5, seed=seed, sick=0.15, agent=False))
    first = report_of(tmp_path / "lake", 0.5).first
    assert first is not None
    assert made.truth.conditions in names(first)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rack", "job", "wave"])
def test_a_small_fleet_with_sick_clusters_raises_no_alarm(tmp_path: Path, kind: str):
    made = planted(tmp_path / "lake", plan(400, 0.2, seed=3, cause=False, clusters=kind, cluster_size=16))
    found = report_of(tmp_path / "lake", 0.2)
    assert (found.separators, found.changes) == ((), ())
    assert verdict(found) == "clustered"
    clusters = next(each for each in found.clusters if each.key == made.truth.clustered_by)
    # All that are named are sick; one with few sick nodes may not be.
    assert clusters.sick and set(clusters.sick) <= set(made.truth.sick_clusters)
    assert made.truth.clustered_by in found.steps[0].text


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_cause_of_random_fleets_is_first(tmp_path: Path):
    right = [ranked_first(tmp_path / str(seed), 1000 + seed) for seed in range(FLEETS)]
    print(f"ranked first: {sum(right)} of {FLEETS}")
    assert sum(right) >= 0.95 * FLEETS


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_random_fleets_without_a_cause_raise_no_alarm(tmp_path: Path):
    raised = [alarms(tmp_path / str(seed), 2000 + seed) for seed in range(FLEETS)]
    print(f"false alarms: {sum(raised)} of {FLEETS}")
    assert sum(raised) <= 0.05 * FLEETS


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_cause_of_random_fleets_is_first_next_to_sick_clusters(tmp_path: Path):
    right = [ranked_first(tmp_path / str(seed), 3000 + seed, **clustered(seed)) for seed in range(FLEETS)]
    print(f"ranked first: {sum(right)} of {FLEETS}")
    assert sum(right) >= 0.95 * FLEETS


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_sick_clusters_without_a_cause_raise_no_alarm(tmp_path: Path):
    raised = [alarms(tmp_path / str(seed), 4000 + seed, **clustered(seed)) for seed in range(2 * FLEETS)]
    print(f"false alarms: {sum(raised)} of {2 * FLEETS}")
    assert sum(raised) <= 0.05 * 2 * FLEETS

"""A synthetic lake is a lake: in the layout of all lakes, the same for a seed, with the truth next to it."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.fleet.lakes import UNTIL, plan

from exhume.cli.main import main
from exhume.fleet.schema import TABLES
from exhume.lab.fleet import CLUSTERS, FleetPlan, FleetSummary, World, write_fleet
from exhume.model.errors import LabError, UsageError

NODES, DAYS = 50, 1.0


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> FleetSummary:
    return write_fleet(tmp_path_factory.mktemp("lab") / "lake", plan(NODES, DAYS, seed=3))


def test_every_table_has_the_columns_of_the_lake(lake: FleetSummary):
    total = 0
    for name, table in TABLES.items():
        files = list((lake.directory / name).rglob("*.parquet"))
        assert files
        for path in files:
            schema = pq.read_schema(path)
            for column in schema.names:
                assert schema.field(column).type == table.schema.field(column).type, (name, column)
            assert set(table.required) <= set(schema.names)
            total += pq.read_metadata(path).num_rows
    assert total == lake.rows


def test_every_node_has_every_minute_in_its_partition(lake: FleetSummary):
    hours = sorted(lake.directory.glob("summaries/*/*"))
    assert len(hours) == 24
    for place in hours:
        rows = pq.read_table(place, columns=["node", "minute", "memcgs_dying", "uptime_s"], partitioning=None)
        assert rows.num_rows == NODES * 60
        minutes = rows["minute"].to_numpy().astype("datetime64[m]")
        assert {f"hour={str(each)[11:13]}" for each in np.unique(minutes)} == {place.name}
        assert {f"date={str(each)[:10]}" for each in np.unique(minutes)} == {place.parent.name}
        assert len(set(rows["node"].to_pylist())) == NODES


def test_zombies_grow_on_planted_nodes_alone(lake: FleetSummary):
    world = World(plan(NODES, DAYS, seed=3))
    first, last = (
        dict(
            zip(
                *(pq.read_table(place, partitioning=None)[name].to_pylist() for name in ("node", "memcgs_dying")),
                strict=True,
            )
        )
        for place in sorted(lake.directory.glob("summaries/*/*"))[::23]
    )
    grown = {node for node in first if last[node] > first[node] + 1000}
    planted = {world.names[node] for node in np.flatnonzero(world.members)}
    assert planted and grown <= planted
    assert len(grown) >= len(planted) - 5, "some of them were booted meanwhile"


def test_the_truth_is_not_in_the_lake(lake: FleetSummary):
    assert lake.truth_file.parent == lake.directory.parent
    truth = json.loads(lake.truth_file.read_text())
    assert truth["conditions"] == {"image": "ami-0b22", "zone": "b"} and truth["confounders"]
    assert not [path for path in lake.directory.rglob("*") if path.is_file() and path.suffix != ".parquet"]


def test_a_seed_is_a_lake(lake: FleetSummary, tmp_path: Path):
    again = write_fleet(tmp_path / "again", plan(NODES, DAYS, seed=3))
    assert again.truth == lake.truth
    for path in sorted(lake.directory.rglob("*.parquet"))[::7]:
        other = tmp_path / "again" / path.relative_to(lake.directory)
        assert pq.read_table(other, partitioning=None) == pq.read_table(path, partitioning=None)
    assert write_fleet(tmp_path / "other", plan(NODES, DAYS, seed=4)).truth != lake.truth


@pytest.mark.parametrize("sick", [0.05, 0.3, 0.5])
def test_about_the_requested_share_is_sick(sick: float):
    for agent in (True, False):
        world = World(plan(4000, 3.0, seed=8, sick=sick, agent=agent))
        assert world.truth.sick / 4000 == pytest.approx(sick, rel=0.25)
    none = World(plan(4000, 3.0, seed=8, sick=sick, cause=False))
    assert none.truth.conditions == {} and none.truth.members == 0
    assert len(np.unique(none.incidents["node"])) / 4000 == pytest.approx(sick, rel=0.15, abs=0.03)


def test_what_can_not_be_written(tmp_path: Path, lake: FleetSummary):
    with pytest.raises(LabError, match="not empty"):
        write_fleet(lake.directory, plan(NODES, DAYS))
    with pytest.raises(LabError, match="GB free"):
        write_fleet(tmp_path / "large", FleetPlan(1_000_000, 400, UNTIL))
    for wrong in ({"nodes": 0}, {"days": 0.0}, {"sick": 0.9}):
        with pytest.raises(UsageError):
            plan(**{"nodes": 5, "days": 1.0, **wrong})


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    args = [
        "lab",
        "fleet",
        "--nodes",
        "20",
        "--days",
        "0.1",
        "--dir",
        str(tmp_path / "lake"),
        "--until",
        f"@{UNTIL // 10**9}",
    ]
    assert main(args) == 0
    assert "20 nodes" in capsys.readouterr().out
    assert (tmp_path / "lake.truth.json").exists()


@pytest.mark.parametrize("kind", sorted(CLUSTERS))
def test_clusters_have_attributes_in_common_and_are_sick_together(kind: str):
    world = World(plan(800, 0.2, seed=5, sick=0.2, cause=False, clusters=kind, cluster_size=20))
    names = world.given[CLUSTERS[kind].key]
    assert 20 <= len(set(names)) <= 60
    for key in CLUSTERS[kind].nested:
        usual = [Counter(world.given[key][names == name]).most_common(1)[0][1] for name in set(names)]
        assert sum(usual) > 0.9 * 800, key
    sick = np.zeros(800, bool)
    sick[world.incidents["node"]] = True
    inside = np.isin(names, world.truth.sick_clusters)
    assert len(world.truth.sick_clusters) >= 2
    assert sick[inside].mean() > 0.4 and sick[~inside].mean() < 0.05
    assert 0.1 < sick.mean() < 0.35


def test_every_node_is_up_when_the_lake_begins():
    """Also where the last wave of a rollout began within the hour before."""
    for seed in range(5):
        world = World(FleetPlan(1000, 1.0, UNTIL, seed=seed, cause=False, clusters="wave", cluster_size=2))
        assert world.boot_us.max() <= world.since


def test_clusters_next_to_a_cause_have_another_trouble():
    world = World(plan(800, 2.0, seed=5, sick=0.2, agent=False, clusters="job", cluster_size=10))
    assert world.conditions and world.truth.sick_clusters
    trouble = ~world.incidents["planted"] & np.isin(
        world.given["label.job"][world.incidents["node"]], world.truth.sick_clusters
    )
    assert trouble.sum() > 10
    assert not world.members[world.incidents["node"][trouble]].all()


def test_clusters_that_are_none():
    with pytest.raises(UsageError):
        plan(100, clusters="rack", cluster_size=80)
    with pytest.raises(UsageError):
        plan(100, clusters="moon")

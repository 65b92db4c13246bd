"""Groups of nodes in a lake: the newest value of each attribute counts."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.fleet.inventories import AGENT, BOOTSTRAP, node

from exhume.fleet.attributes import attributes_of
from exhume.fleet.compare import compare
from exhume.fleet.groups import parse_group, read_groups
from exhume.model.errors import ExhumeError, NoData
from exhume.model.inventory import Cloud

BEGIN = datetime(2026, 11, 10, 12, tzinfo=UTC)


def write(lake: Path, rows: list[tuple[str, datetime, str, str | None]], name: str = "part.parquet") -> None:
    """Rows (node, at, key, value) as a node pushes them; columns of a later version are among them."""
    for day in {at.date() for _, at, _, _ in rows}:
        place = lake / f"attributes/date={day}"
        place.mkdir(parents=True, exist_ok=True)
        mine = [row for row in rows if row[1].date() == day]
        nodes, times, keys, values = map(list, zip(*mine, strict=True))
        columns = {
            "node": pa.array(nodes, pa.string()),
            "at": pa.array(times, pa.timestamp("us", tz="UTC")),
            "key": pa.array(keys, pa.string()),
            "value": pa.array(values, pa.string()),
            "colour": pa.array(["red"] * len(mine)),
        }
        pq.write_table(pa.table(columns), place / name)


def pushed(inventory, at: datetime = BEGIN) -> list[tuple[str, datetime, str, str | None]]:
    return [(inventory.node, at, key, value) for key, value in attributes_of(inventory).items()]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Zone a, where the bootstrap went well, and zone b, where it failed on nine of ten."""
    rows = []
    for number in range(10):
        for zone in ("a", "b"):
            place = Cloud("aws", "us-east-1", f"us-east-1{zone}", "p4d.24xlarge", "ami-1")
            rows += pushed(node(f"n{zone}-{number}", bootstrap=zone == "a" or number == 0, cloud=place))
    write(tmp_path / "lake", rows)
    return tmp_path / "lake"


def test_two_zones(lake: Path):
    a, b = read_groups(str(lake), ["zone=us-east-1a", "zone=us-east-1b"])
    assert (a.nodes, b.nodes, a.label) == (10, 10, "zone=us-east-1a")
    found = compare(a, b)
    assert found.sentence.startswith(f"{AGENT} crash-loops on zone=us-east-1a; on zone=us-east-1b it never started")
    assert [each.key for each in found.differences] == [f"unit.{AGENT}", f"unit.{BOOTSTRAP}", "bootstrap"]


def test_what_a_part_of_a_group_has_is_named(tmp_path: Path):
    """Most nodes of both zones have the same; what differs is on a part of one."""
    rows = []
    for number in range(20):
        for zone in ("a", "b"):
            place = Cloud("aws", "us-east-1", f"us-east-1{zone}", "p4d.24xlarge", "ami-1")
            rows += pushed(node(f"n{zone}-{number}", bootstrap=zone == "a" and number < 8, cloud=place))
    write(tmp_path / "lake", rows)
    found = compare(*read_groups(str(tmp_path / "lake"), ["zone=us-east-1a", "zone=us-east-1b"]))
    assert found.sentence == (
        f"{AGENT} crash-loops on zone=us-east-1a (40% of nodes); on zone=us-east-1b it never started, "
        f"because {BOOTSTRAP} failed"
    )
    bootstrap = next(each for each in found.differences if each.key == "bootstrap")
    assert (bootstrap.a.value, bootstrap.a.share, bootstrap.b.value, bootstrap.b.share) == ("ok", 0.4, "failed", 1.0)


def test_the_newest_value_counts_also_where_it_is_none(lake: Path):
    later = BEGIN + timedelta(days=1)
    rows = [(f"nb-{number}", later, f"unit.{AGENT}", "failed/crash-loop") for number in range(10)]
    rows += [(f"nb-{number}", later, "package.bash", None) for number in range(10)]
    write(lake, rows)
    found = {
        each.key: each for each in compare(*read_groups(str(lake), ["zone=us-east-1a", "zone=us-east-1b"])).differences
    }
    assert f"unit.{AGENT}" not in found
    assert found["package.bash"].b.value is None


def test_a_node_that_moved_is_in_its_new_group(lake: Path):
    write(lake, [("na-0", BEGIN + timedelta(hours=1), "zone", "us-east-1b")], "moved.parquet")
    a, b = read_groups(str(lake), ["zone=us-east-1a", "zone=us-east-1b"])
    assert (a.nodes, b.nodes) == (9, 11)


def test_a_group_without_nodes_names_those_that_there_are(lake: Path):
    with pytest.raises(NoData, match="us-east-1a, us-east-1b"):
        read_groups(str(lake), ["zone=us-east-1a", "zone=x"])
    with pytest.raises(NoData, match="no node has that attribute"):
        read_groups(str(lake), ["colour=red"])


def test_a_lake_without_attributes(tmp_path: Path):
    with pytest.raises(NoData):
        read_groups(str(tmp_path), ["a=b"])


def test_a_damaged_file_is_one_sentence(lake: Path):
    (lake / "attributes/date=2026-11-10/bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ExhumeError, match="can't be read"):
        read_groups(str(lake), ["zone=us-east-1a"])


def test_values_with_signs_of_sql(lake: Path):
    with pytest.raises(NoData):
        read_groups(str(lake), ["zone='; DROP TABLE latest; --"])


def test_groups_as_they_are_written():
    assert parse_group("Zone = a=b") == ("zone", "a=b")
    assert parse_group("instance-type=m5") == ("instance_type", "m5")

"""A lake is read by another engine as DuckDB reads it: Daft, from PyPI in an environment of its own."""

import json
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.fleet.lakes import minutes, plan, planted, write_rows
from tests.interop.outside_readers import environment

from exhume.fleet.schema import TABLES

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

DAFT = "daft==0.7.26"
# Columns that the first file does not have are named with their types, as docs/fleet.md says.
READ = """
import json, sys
import daft

lake, added, answers = sys.argv[1], json.loads(sys.argv[2]), {}
for table, hints in added.items():
    path = f"{lake}/{table}/**/*.parquet"
    plain = daft.read_parquet(path, hive_partitioning=True)
    schema = {name: getattr(daft.DataType, kind)() for name, kind in hints.items()}
    rows = daft.read_parquet(path, hive_partitioning=True, schema=schema).to_arrow()
    answers[table] = {
        "plain": plain.count_rows(),
        "rows": rows.num_rows,
        "types": {each.name: str(each.type) for each in rows.schema},
    }
stalls = daft.read_parquet(f"{lake}/summaries/**/*.parquet", hive_partitioning=True)
stalls = stalls.groupby("node").agg(daft.col("longest_stall_s").max()).to_pydict()
answers["stalls"] = dict(zip(stalls["node"], stalls["longest_stall_s"]))
jobs = daft.read_parquet(f"{lake}/jobs/**/*.parquet", schema={"member": daft.DataType.string()}).to_pydict()
answers["members"] = [each for each in jobs["member"] if each is not None]
print(json.dumps(answers))
"""
ADDED = {"summaries": {"dropped_minutes": "uint32"}, "attributes": {}, "incidents": {}, "jobs": {"member": "string"}}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small one, with files of before some columns were added, which come first."""
    place = planted(tmp_path_factory.mktemp("fleet") / "lake", plan(20, 0.2, seed=4)).directory
    failed = {"node": "head", "at": 2970, "job": "train", "kind": "job-failed"}
    write_rows(place, "jobs", [failed], "a-old", leave=("member",))
    write_rows(place, "jobs", [{**failed, "member": "gpu-1"}], "new")
    write_rows(place, "summaries", minutes("head", 7200), "a-old", leave=("dropped_minutes",))
    write_rows(place, "summaries", minutes("head", 3600, dropped_minutes=3), "new")
    return place


def _daft(lake: Path) -> dict[str, Any]:
    command = [environment(DAFT), "-I", "-c", READ, str(lake), json.dumps(ADDED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _source(lake: Path, table: str) -> str:
    return f"read_parquet('{lake}/{table}/**/*.parquet', hive_partitioning = true, union_by_name = true)"


def test_daft_reads_what_duckdb_reads(lake: Path):
    found = _daft(lake)
    for name, table in TABLES.items():
        known = duckdb.sql(f"SELECT * FROM {_source(lake, name)}").to_arrow_table()
        assert found[name]["plain"] == found[name]["rows"] == known.num_rows > 0, name
        types = {each: kind.replace("large_", "") for each, kind in found[name]["types"].items()}
        wanted = {each.name: str(each.type) for each in table.schema if each.name in types}
        assert {each: types[each] for each in wanted} == wanted
        # DuckDB names its session's zone in the type of a time.
        duck = {each.name: str(each.type).partition(",")[0] for each in known.schema if each.name in wanted}
        assert duck == {each: kind.partition(",")[0] for each, kind in wanted.items()}
    stalls = duckdb.sql(f"SELECT node, max(longest_stall_s) FROM {_source(lake, 'summaries')} GROUP BY node").fetchall()
    assert found["stalls"] == dict(stalls)
    assert found["members"] == ["gpu-1"]

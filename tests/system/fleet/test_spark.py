"""Spark reads a lake as it is, and as a table of Hive's catalog, which is how Athena knows it: pyspark, from PyPI in an
environment of its own."""

import json
import os
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.fleet.fleet_rows import summaries
from tests.fleet.lakes import UNTIL, minutes, plan, planted, write_rows
from tests.interop.outside_readers import environment
from tests.parts import missing

from exhume.fleet.batch import to_arrow
from exhume.fleet.lake import Lake
from exhume.fleet.schema import SUMMARIES, TABLES

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

SPARK, JAVA = "pyspark==4.0.5", ("17", "21")
DOCUMENT = Path(__file__).parents[3] / "docs/fleet.md"
# The lake, a directory for Spark's own files, and statements of Athena; prints the rows of each table with times in
# microseconds, their types, and what the last statement answers.
READ = """
import json, sys
from pyspark.sql import SparkSession, functions

lake, place, statements = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", f"{place}/warehouse")
    .config("spark.hadoop.javax.jdo.option.ConnectionURL", f"jdbc:derby:;databaseName={place}/metastore;create=true")
    .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={place}")
    .config("spark.local.dir", f"{place}/local")
    .enableHiveSupport()
    .getOrCreate()
)
answers = {}
for table in ("summaries", "attributes", "incidents", "jobs"):
    rows = spark.read.option("mergeSchema", "true").parquet(f"{lake}/{table}")
    types = dict(rows.dtypes)
    names = [name for name in sorted(types) if name != "date"]
    shown = [functions.unix_micros(name).alias(name) if types[name] == "timestamp" else name for name in names]
    answers[table] = {"types": types, "rows": [list(row) for row in rows.select(*shown).collect()]}
for statement in statements:
    found = spark.sql(statement)
answers["athena"] = [list(row) for row in found.collect()]
print(json.dumps(answers))
spark.stop()
"""
TYPES = {"string": "string", "float": "float", "uint16": "int", "uint32": "bigint", "int32": "int"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What nodes and hubs write and what compactions leave, with files of before some columns were added."""
    place = planted(tmp_path_factory.mktemp("fleet") / "lake", plan(20, 0.2, seed=4)).directory
    write_rows(place, "jobs", [{"node": "head", "at": 2970, "job": "train", "kind": "job-failed"}], "a", ("member",))
    write_rows(place, "summaries", minutes("head", 7200), "a-old", leave=("dropped_minutes",))
    opened, first = Lake.open(str(place)), UNTIL // 1000 - 3_600_000_000
    for hour in (0, 1):
        # Beyond what a signed number of as many bits holds.
        large = {"memcgs_dying": [3_000_000_000] * 50, "unit_restarts": [65_000] * 50}
        rows = summaries(50, first - hour * 3_600_000_000, **large)
        opened.write(SUMMARIES, to_arrow(SUMMARIES, rows, "head", UNTIL // 1000), f"hub-0-{hour}")
    opened.compact(datetime.fromtimestamp(UNTIL / 1e9, UTC))
    names = [path.name[:4] for path in (place / "summaries").rglob("*.parquet")]
    assert {"hub-", "comp"} <= set(names), "the last hour is not compacted yet"
    return place


def _java() -> Path:
    """The home of a Java that this Spark runs on: 17 and 21 are Debian's (12 and 13)."""
    homes = (home for version in JAVA for home in Path("/usr/lib/jvm").glob(f"java-{version}-openjdk-*"))
    return next((home for home in homes if (home / "bin/java").exists()), None) or missing(f"Java {' or '.join(JAVA)}")


def _spark(lake: Path, place: Path, statements: list[str]) -> dict[str, Any]:
    java, python = _java(), environment(SPARK)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "HIVE_"))}
    clean |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python), "JAVA_HOME": str(java)}
    done = subprocess.run(
        [python, "-I", "-c", READ, str(lake), str(place), json.dumps(statements)],
        capture_output=True,
        text=True,
        check=False,
        cwd=place,
        env=clean,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _of_athena(lake: Path) -> list[str]:
    """The statements of the document, on this lake; Spark quotes the name of a column differently in a query."""
    block = DOCUMENT.read_text().partition("\nAthena")[2].partition("```sql\n")[2].partition("```")[0]
    statements = [each.strip() for each in block.replace("s3://bucket/lake", f"file:{lake}").split(";") if each.strip()]
    assert re.match("CREATE EXTERNAL TABLE", statements[0]) and re.match("SELECT", statements[-1])
    statements[-1] = statements[-1].replace('"', "`").replace("2026-03-01", "2026-03-08")
    return statements


def _source(lake: Path, table: str) -> str:
    options = "hive_partitioning = true, hive_types = {date: DATE, hour: INTEGER}, union_by_name = true"
    if not TABLES[table].hourly:
        options = options.replace(", hour: INTEGER", "")
    return f"read_parquet('{lake}/{table}/**/*.parquet', {options})"


def _duckdb(lake: Path, table: str) -> list[tuple[Any, ...]]:
    kinds = {name: kind for name, kind, *_ in duckdb.sql(f"DESCRIBE SELECT * FROM {_source(lake, table)}").fetchall()}
    shown = [
        f'epoch_us("{name}")' if kinds[name].startswith("TIMESTAMP") else f'"{name}"'
        for name in sorted(kinds)
        if name != "date"
    ]
    return duckdb.sql(f"SELECT {', '.join(shown)} FROM {_source(lake, table)}").fetchall()


def test_spark_reads_what_duckdb_reads(lake: Path, tmp_path: Path):
    found = _spark(lake, tmp_path, _of_athena(lake))
    for name, table in TABLES.items():
        expected = _duckdb(lake, name)
        assert expected and sorted(map(repr, found[name]["rows"])) == sorted(repr(list(row)) for row in expected), name
        types = {
            each.name: "timestamp" if pa.types.is_timestamp(each.type) else TYPES[str(each.type)]
            for each in table.schema
            if each.name in found[name]["types"]
        }
        assert {each: kind for each, kind in found[name]["types"].items() if each not in ("date", "hour")} == types
    stalls = f"SELECT node, max(longest_stall_s) FROM {_source(lake, 'summaries')} WHERE date = '2026-03-08'"
    answer = duckdb.sql(f"{stalls} GROUP BY node").fetchall()
    assert len(answer) == 21 and sorted(map(repr, found["athena"])) == sorted(repr(list(row)) for row in answer)

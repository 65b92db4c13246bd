"""The lake as any reader of Parquet finds it: partitions, compaction, retention, several versions."""

import os
import pickle
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.fleet.fleet_rows import MINUTE_US, keys_in, rows_in, summaries
from tests.store.conftest import small_disk  # noqa: F401

from exhume.fleet import lake as lake_module
from exhume.fleet.batch import to_arrow
from exhume.fleet.lake import MERGED_KEY, STAGING, Lake, LakeError, bundle_path
from exhume.fleet.schema import ATTRIBUTES, INCIDENTS, JOBS, SUMMARIES, TABLES
from exhume.model.errors import NoData, UsageError

HOUR_US = 60 * MINUTE_US
FIRST = datetime(2026, 3, 1, 23, 50, tzinfo=UTC)
FIRST_US = int(FIRST.timestamp()) * 1_000_000
LATER = FIRST + timedelta(days=2)
READABLE = {"PLAIN", "RLE", "RLE_DICTIONARY", "PLAIN_DICTIONARY", "DELTA_BINARY_PACKED"}


def minutes(node: str, count: int, first: int = FIRST_US, **columns) -> pa.Table:
    return to_arrow(SUMMARIES, summaries(count, first, **columns), node)


@pytest.fixture
def lake(tmp_path) -> Lake:
    return Lake.open(str(tmp_path / "lake"))


def test_rows_are_in_the_partition_of_their_hour(lake):
    lake.write(SUMMARIES, minutes("node-1", 20), "a")
    found = {str(path.relative_to(lake.directory)) for path in lake.directory.rglob("*.parquet")}
    assert found == {"summaries/date=2026-03-01/hour=23/a.parquet", "summaries/date=2026-03-02/hour=00/a.parquet"}
    assert len(rows_in(lake)) == 20


def test_the_same_file_written_again_is_there_once(lake):
    for _ in range(2):
        lake.write(SUMMARIES, minutes("node-1", 20), "a")
    assert len(rows_in(lake)) == 20


def test_every_reader_gets_the_types_of_the_table(lake):
    lake.write(SUMMARIES, minutes("node-1", 5), "a")
    path = next(lake.directory.rglob("*.parquet"))
    for found, wanted in zip(pq.ParquetFile(path).schema_arrow, SUMMARIES.schema, strict=True):
        assert found.type == wanted.type, wanted.name
    rows = duckdb.sql(
        f"SELECT node, epoch_us(minute), date, hour FROM read_parquet('{lake.directory}/summaries/**/*.parquet', "
        "hive_partitioning = true, union_by_name = true) ORDER BY minute"
    ).fetchall()
    assert [row[0] for row in rows] == ["node-1"] * 5
    assert rows[0][1] == FIRST_US
    assert str(rows[0][2]) == "2026-03-01"
    assert int(rows[0][3]) == 23


def test_files_have_only_what_the_readers_of_clusters_know(lake):
    """Spark 4.0 refuses other encodings; Athena's table of compressions has zstd; neither knows 64-bit counts without a
    sign."""
    for table in TABLES.values():
        columns = {
            each.name: pa.array([FIRST_US] * 3 if pa.types.is_timestamp(each.type) else [None] * 3, each.type)
            for each in table.schema
        }
        columns |= {name: pa.array(["a", "b", "c"]) for name in table.required if name != table.time}
        if table is SUMMARIES:
            columns["uptime_s"] = pa.array([60.0, 120.0, 180.5], pa.float32())
        lake.write(table, pa.table(columns), "a")
        lake.write(table, pa.table(columns), "b")
    written = [pq.read_metadata(path) for path in lake.directory.rglob("*.parquet")]
    lake.compact(LATER)
    compacted = [pq.read_metadata(path) for path in lake.directory.rglob("*.parquet")]
    assert (len(written), len(compacted)) == (2 * len(TABLES), len(TABLES))
    for known in (*written, *compacted):
        chunks = [known.row_group(0).column(number) for number in range(known.num_columns)]
        assert {each for chunk in chunks for each in chunk.encodings} <= READABLE
        assert {chunk.compression for chunk in chunks} == {"ZSTD"}
        types = {str(known.schema.column(number).logical_type) for number in range(known.num_columns)}
        assert not {each for each in types if "bitWidth=64" in each}


def test_a_compaction_holds_few_files_at_once(lake, monkeypatch):
    held, united = [], lake_module._united

    def counted(table, parts):
        held.append(len(parts))
        return united(table, parts)

    monkeypatch.setattr(lake_module, "_united", counted)
    monkeypatch.setattr(lake_module, "_FILES_AT_ONCE", 3)
    # An older and a newer version next to each other, and files of the hub in each part.
    for number in range(7):
        rows = minutes("node-1", 1, FIRST_US + number * MINUTE_US)
        if number == 1:
            rows = rows.drop_columns(["pressure_io"])
        if number == 5:
            rows = rows.append_column("warp_factor", pa.array([9.5], pa.float64()))
        lake.write(SUMMARIES, rows, f"hub-{number}")
    done = lake.compact(LATER)
    assert (done.files, done.rows) == (7, 7)
    assert max(held) == 3
    assert [row["warp_factor"] for row in rows_in(lake)] == [None] * 5 + [9.5, None]
    [path] = lake.directory.rglob("*.parquet")
    assert pq.read_metadata(path).metadata[MERGED_KEY].count(b"hub-") == 7


def test_compaction_makes_one_sorted_file_a_partition_and_drops_repeats(lake):
    for number in range(6):
        lake.write(SUMMARIES, minutes("node-2", 2, FIRST_US + number * MINUTE_US), f"two-{number}")
        lake.write(SUMMARIES, minutes("node-1", 1, FIRST_US + number * MINUTE_US), f"one-{number}")
    done = lake.compact(LATER)
    assert (done.partitions, done.files, done.rows, done.repeats) == (1, 12, 13, 5)
    (path,) = lake.directory.rglob("*.parquet")
    assert path.name.startswith("compact-")
    keys = [(row["node"], row["minute"]) for row in rows_in(lake)]
    assert keys == sorted(set(keys))
    assert len(keys) == 13
    again = lake.compact(LATER)
    assert again.partitions == 0, "nothing is left to do"
    assert list((lake.directory / STAGING).iterdir()) == [lake.directory / STAGING / "compact.lock"]


def test_a_damaged_file_stays_and_keeps_no_other_from_being_merged(lake):
    for number in range(3):
        lake.write(SUMMARIES, minutes("node-1", 2, FIRST_US + 2 * number * MINUTE_US), f"file-{number}")
        lake.write(SUMMARIES, minutes("node-2", 1, FIRST_US + HOUR_US), f"later-{number}")
    damaged = next(lake.directory.rglob("file-1.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-20])
    path = str(damaged.relative_to(lake.directory))
    for partitions in (2, 0):
        done = lake.compact(LATER)
        assert (done.partitions, [each for each, _ in done.damaged]) == (partitions, [path])
        assert all(reason for _, reason in done.damaged)
    assert len(list(lake.directory.rglob("*.parquet"))) == 3
    damaged.unlink()
    assert [row["node"] for row in rows_in(lake)] == ["node-1"] * 4 + ["node-2"]
    assert lake.compact(LATER).damaged == []


def test_a_lake_that_goes_away_is_no_damaged_file(lake, monkeypatch):
    lake.write(SUMMARIES, minutes("node-1", 2), "a")
    lake.write(SUMMARIES, minutes("node-1", 2), "b")

    def gone(*_: object) -> None:
        raise LakeError("the store is away")

    monkeypatch.setattr(lake, "read", gone)
    monkeypatch.setattr(lake, "check", gone)
    with pytest.raises(LakeError, match="away"):
        lake.compact(LATER)
    assert len(list(lake.directory.rglob("*.parquet"))) == 2


def test_what_comes_after_a_compaction_is_merged_by_the_next(lake):
    for number in range(3):
        lake.write(SUMMARIES, minutes("node-1", 1, FIRST_US + number * MINUTE_US), f"file-{number}")
        lake.compact(LATER)
    assert len(list(lake.directory.rglob("*.parquet"))) == 1
    assert len(keys_in(lake)) == 3


def test_an_hour_that_is_not_over_is_left_alone(lake):
    for name in ("a", "b"):
        lake.write(SUMMARIES, minutes("node-1", 5), name)
    assert lake.compact(FIRST + timedelta(minutes=15)).partitions == 0
    assert len(list(lake.directory.rglob("*.parquet"))) == 2


def test_of_repeats_the_one_received_last_stays(lake):
    for name, received, share in (("b", 2, 0.5), ("a", 1, 0.25)):
        rows = to_arrow(SUMMARIES, summaries(1, FIRST_US, busiest_share=[share]), "node-1", received * HOUR_US)
        lake.write(SUMMARIES, rows, name)
    lake.compact(LATER)
    assert [row["busiest_share"] for row in rows_in(lake)] == [0.5]


def test_an_incident_that_is_there_twice_stays_once_and_others_stay(lake):
    for name, ids in (("a", ["x", "y"]), ("b", ["y"])):
        rows = to_arrow(INCIDENTS, {"at": [FIRST_US + len(each) for each in ids], "id": ids}, "node-1")
        lake.write(INCIDENTS, rows, name)
    lake.write(ATTRIBUTES, to_arrow(ATTRIBUTES, {"at": [FIRST_US], "key": ["zone"], "value": ["b"]}, "node-1"), "a")
    lake.compact(LATER)
    assert [row["id"] for row in rows_in(lake, "incidents")] == ["x", "y"]
    assert [row["value"] for row in rows_in(lake, "attributes")] == ["b"]


def test_members_of_a_job_are_kept_apart_and_repeats_are_not(lake):
    at = datetime.fromtimestamp(FIRST_US / 1e6, UTC)
    failed = [
        {"node": "head", "at": at, "job": "train", "kind": "job-failed", "member": each} for each in ("a", "b", None)
    ]
    for name in ("one", "two"):
        lake.write(JOBS, pa.Table.from_pylist(failed, JOBS.schema), name)
    # Of before there were members.
    lake.write(JOBS, pa.Table.from_pylist(failed[2:], JOBS.schema).drop_columns(["member"]), "old")
    lake.compact(LATER)
    assert sorted(str(row["member"]) for row in rows_in(lake, "jobs")) == ["None", "a", "b"]


def test_files_of_an_older_and_a_newer_version_are_merged(lake):
    old = minutes("node-1", 1).drop_columns(["pressure_io", "received_at", "clock_off_s"])
    new = minutes("node-2", 1).append_column("warp_factor", pa.array([9.5], pa.float64()))
    wide = minutes("node-3", 1).set_column(4, "cores", pa.array([128], pa.int64()))
    for name, rows in (("old", old), ("new", new), ("wide", wide)):
        lake.write(SUMMARIES, rows, name)
    lake.compact(LATER)
    rows = {row["node"]: row for row in rows_in(lake)}
    assert rows["node-1"]["pressure_io"] is None
    assert rows["node-2"]["warp_factor"] == 9.5
    assert rows["node-1"]["warp_factor"] is None
    assert rows["node-3"]["cores"] == 128


def test_a_file_of_the_hub_that_was_merged_is_not_written_again(lake):
    lake.write(SUMMARIES, minutes("node-1", 20), "hub-x-1")
    lake.compact(LATER)
    lake.write_new(SUMMARIES, minutes("node-1", 20), "hub-x-1")
    assert len(rows_in(lake)) == 20
    lake.write_new(SUMMARIES, minutes("node-2", 1), "hub-x-2")
    lake.compact(LATER)
    path = next(path for path in lake.directory.rglob("*.parquet") if "hour=23" in str(path))
    assert b"hub-x-1" in pq.read_metadata(path).metadata[MERGED_KEY]
    assert b"hub-x-2" in pq.read_metadata(path).metadata[MERGED_KEY]


@pytest.mark.slow
def test_a_reader_lists_the_old_files_or_the_new_one(lake):
    """Listed again and again while partitions are compacted: never both, never none."""
    partition = lake.directory / "summaries/date=2026-03-01/hour=23"
    for number in range(8):
        lake.write(SUMMARIES, minutes("node-1", 1, FIRST_US + number * MINUTE_US), f"file-{number}")
    seen, ended = set(), threading.Event()

    def look() -> None:
        while not ended.is_set():
            seen.add(frozenset(path.name for path in partition.iterdir()))

    reader = threading.Thread(target=look)
    reader.start()
    lake.compact(LATER)
    ended.set()
    reader.join()
    seen.add(frozenset(path.name for path in partition.iterdir()))
    for names in seen:
        compacted = [name for name in names if name.startswith("compact-")]
        assert (len(names), len(compacted)) in ((8, 0), (1, 1))


def test_what_is_written_while_a_partition_is_exchanged_is_kept(lake, monkeypatch):
    for name in ("a", "b"):
        lake.write(SUMMARIES, minutes("node-1", 1), name)
    exchange = lake_module._exchange

    def late(one: Path, other: Path) -> bool:
        lake.write(SUMMARIES, minutes("node-2", 1), "late")
        return exchange(one, other)

    monkeypatch.setattr(lake_module, "_exchange", late)
    lake.compact(LATER)
    assert {row["node"] for row in rows_in(lake)} == {"node-1", "node-2"}


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_compaction_that_was_killed_is_finished_by_the_next(lake, monkeypatch, step):
    for name in ("a", "b"):
        lake.write(SUMMARIES, minutes(f"node-{name}", 2), name)
    exchange = lake_module._exchange

    class Killed(BaseException):
        pass

    def die(one: Path, other: Path) -> bool:
        if step == "after":
            exchange(one, other)
            (one / "late.parquet").write_bytes((one / "a.parquet").read_bytes())
        raise Killed

    monkeypatch.setattr(lake_module, "_exchange", die)
    with pytest.raises(Killed):
        lake.compact(LATER)
    monkeypatch.undo()
    lake.compact(LATER)
    assert len(keys_in(lake)) == 4
    assert len(list((lake.directory / "summaries").rglob("*.parquet"))) == 1
    assert [path.name for path in (lake.directory / STAGING).iterdir()] == ["compact.lock"]


def test_without_an_exchange_no_row_is_missing(lake, monkeypatch):
    monkeypatch.setattr(lake_module, "_exchange", lambda one, other: False)
    for name in ("a", "b"):
        lake.write(SUMMARIES, minutes(f"node-{name}", 2), name)
    assert lake.compact(LATER).partitions == 1
    assert len(keys_in(lake)) == 4


@pytest.mark.root
def test_a_compaction_on_a_full_disk_changes_nothing_until_there_is_room(small_disk):  # noqa: F811
    lake = Lake.open(str(small_disk / "lake"))
    for number in range(20):
        lake.write(SUMMARIES, minutes(f"node-{number}", 2), f"{number}")
    before = keys_in(lake)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize))
    with pytest.raises(LakeError) as raised:
        lake.compact(LATER)
    assert raised.value.full and keys_in(lake) == before
    ballast.unlink()
    assert lake.compact(LATER).repeats == 0
    assert keys_in(lake) == before
    assert len(list((lake.directory / "summaries").rglob("*.parquet"))) == 1


def test_two_compactions_at_once_are_refused(lake):
    with lake._only_compaction(), pytest.raises(LakeError, match="another compaction"):
        lake.compact(LATER)


def test_retention_removes_whole_partitions_and_old_bundles(lake, tmp_path):
    lake.write(SUMMARIES, minutes("node-1", 20), "a")
    source = tmp_path / "bundle"
    source.write_bytes(b"zip")
    for incident, age in (("old", 40), ("new", 0)):
        lake.put(bundle_path("node-1", incident), source)
        stamp = LATER.timestamp() - age * 86_400
        os.utime(lake.directory / bundle_path("node-1", incident), (stamp, stamp))
    removed = lake.prune(FIRST + timedelta(minutes=30))
    assert removed == 2
    assert len(rows_in(lake)) == 10
    assert not lake.has(bundle_path("node-1", "old"))
    assert lake.has(bundle_path("node-1", "new"))
    assert not (lake.directory / "summaries/date=2026-03-01").exists()


def test_what_is_no_lake_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        Lake.open("ftp://host/lake")
    with pytest.raises(LakeError):
        Lake.open(str(tmp_path / "file" / "lake"))


def test_the_path_of_a_bundle_is_made_of_nothing_that_a_node_chose():
    assert ".." not in bundle_path("../../etc", "0" * 16)
    assert bundle_path("a", "0" * 16) != bundle_path("b", "0" * 16)


def test_columns_are_documented():
    page = (Path(__file__).parents[2] / "docs/fleet.md").read_text()
    for table in TABLES.values():
        section = page.partition(f"### {table.name}\n")[2].partition("\n### ")[0]
        documented = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
        assert documented == table.schema.names, table.name


def test_a_lake_that_is_only_read_is_not_made(tmp_path):
    with pytest.raises(NoData):
        Lake.open(str(tmp_path / "none"), make=False)
    assert not (tmp_path / "none").exists()
    made = Lake.open(str(tmp_path / "lake"))
    made.write(SUMMARIES, minutes("node-1", 1), "a")
    read = Lake.open(str(tmp_path / "lake"), make=False)
    assert {each.base_name for each in read.listed()} == {"_staging", "summaries"}
    [path] = [each.path for each in read.listed("summaries", recursive=True) if each.is_file]
    assert pq.read_table(path, filesystem=read.filesystem, partitioning=None).num_rows == 1
    below = "summaries/date=2026-03-01/hour=23/a.parquet"
    assert pq.read_table(below, filesystem=read.subtree, partitioning=None).num_rows == 1
    assert not read.gone(path)
    Path(path).unlink()
    assert read.gone(path)


def test_a_lake_that_is_sent_elsewhere_is_the_same(tmp_path):
    lake = pickle.loads(pickle.dumps(Lake.open(str(tmp_path), make=False)))
    assert (lake.uri, lake.directory, lake.endpoint) == (str(tmp_path), tmp_path, None)
    far = pickle.loads(pickle.dumps(Lake.open("s3://bucket/lake", "http://127.0.0.1:9")))
    assert (far.uri, far.directory, far.endpoint) == ("s3://bucket/lake", None, "http://127.0.0.1:9")
    assert far.filesystem == Lake.open("s3://bucket/lake", "http://127.0.0.1:9").filesystem


@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:9", "127.0.0.1:9"])
def test_a_lake_in_googles_store(endpoint, monkeypatch):
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    lake = Lake.open("gs://bucket/some/lake", endpoint)
    assert isinstance(lake.filesystem, pa.fs.GcsFileSystem)
    assert lake.directory is None and lake.subtree.base_path == "bucket/some/lake/"
    assert lake.filesystem == Lake.open("gs://bucket/some/lake", endpoint).filesystem


def test_a_pyarrow_without_a_client_of_the_store_is_one_sentence(monkeypatch):
    """As pyarrow.fs is where it was built without."""
    monkeypatch.delattr(pa.fs, "GcsFileSystem")
    monkeypatch.setattr(pa.fs, "_not_imported", ["GcsFileSystem"])
    with pytest.raises(LakeError, match="no client of that object store"):
        Lake.open("gs://bucket/some/lake", "http://127.0.0.1:9")


def test_a_lake_with_options_in_its_address():
    lake = Lake.open("gs://anonymous@bucket/lake?scheme=http&endpoint_override=127.0.0.1:9")
    assert isinstance(lake.filesystem, pa.fs.GcsFileSystem) and lake.subtree.base_path == "bucket/lake/"
    far = Lake.open("s3://bucket/lake?scheme=http&endpoint_override=127.0.0.1:9&region=here")
    assert isinstance(far.filesystem, pa.fs.S3FileSystem) and far.subtree.base_path == "bucket/lake/"

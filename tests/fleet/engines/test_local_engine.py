"""Queries give the same answer of all files at once and of parts of them."""

import tempfile
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from tests.fleet.lakes import minutes, plan, planted, window, write_rows
from tests.parts import sampled
from tests.store.conftest import small_disk  # noqa: F401

from exhume.fleet.engines import ask, local
from exhume.fleet.engines.files import LakeFiles, list_files, newest_date
from exhume.fleet.engines.local import LocalEngine, OutOfMemory, connect, merge, ordered, select
from exhume.fleet.engines.ray import LEAST_BYTES, run_merge, run_part, shares, split
from exhume.fleet.lake import Lake, LakeError
from exhume.fleet.queries import COURSE, EPISODES, FAILURES, FINDINGS, VALUES, Query, step_micros
from exhume.fleet.schema import SUMMARIES
from exhume.model.errors import NoData, UsageError


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return opened(planted(tmp_path_factory.mktemp("engine") / "lake", plan(60, 0.5, seed=2)).directory)


def opened(directory: Path) -> Lake:
    return Lake.open(str(directory), make=False)


QUERIES = {
    "course": (COURSE, {"step": step_micros(window(0.5))}),
    "values": (VALUES, {}),
    "episodes": (EPISODES, {}),
    "findings": (FINDINGS, {"cause": "zombie-memcgs"}),
    "failures": (FAILURES, {}),
}


@pytest.mark.parametrize("name", sampled(QUERIES))
def test_parts_merge_to_the_whole(lake: Lake, name: str):
    query, values = QUERIES[name]
    made = query.within(window(20), **values)
    files = list_files(lake, query.table, window(20))
    engine = LocalEngine(2)
    [whole] = engine.run([(made, files)])
    engine.close()
    assert whole.rows.num_rows and not whole.unread
    with connect(1) as connection:
        parts = [
            table for place in range(len(files)) for table in select(connection, made, files.part(place, place + 1))[0]
        ]
        assert len(parts) == len(files)
        merged = merge(connection, made, parts[::-1])
        assert ordered(connection, made, [merged]).to_pylist() == whole.rows.to_pylist()
        # As the tasks of a cluster do it: the rows of some nodes are merged here, those of others there.
        tasks = [run_part(made, files.part(place, place + 1), 3) for place in range(len(files))]
        assert all(task[0] == () for task in tasks)
        merges = [run_merge(made, *(task[1 + each] for task in tasks)) for each in range(3)]
        assert ordered(connection, made, merges).to_pylist() == whole.rows.to_pylist()


def test_rows_are_split_by_node():
    rows = pa.table({"node": [f"n{number % 7}" for number in range(100)] + [None], "value": list(range(101))})
    parts = split(rows, 4)
    assert sorted(value for part in parts for value in part["value"].to_pylist()) == list(range(101))
    names = [set(part["node"].to_pylist()) for part in parts]
    assert sum(map(len, names)) == 8, "each node is in one part"
    # Wherever it is split: names decide, not the order of rows.
    assert [set(part["node"].to_pylist()) for part in split(rows.take(list(range(100, -1, -1))), 4)] == names
    assert split(rows, 1) == [rows]


def test_an_answer_without_files_has_its_columns():
    with connect(1) as connection:
        for query, values in QUERIES.values():
            made = query.within(window(1), **values)
            assert "node" in merge(connection, made, []).column_names


def test_values_that_are_pushed_again_are_left_out(tmp_path: Path):
    def row(ago: float, value: str | None) -> dict[str, object]:
        return {"node": "a", "at": ago, "key": "image", "value": value}

    write_rows(tmp_path, "attributes", [row(900, "x"), row(800, "x"), row(700, None)], "one")
    write_rows(tmp_path, "attributes", [row(600, None), row(500, "y"), row(400, "x")], "two")
    files = list_files(opened(tmp_path), VALUES.table, window(1))
    engine = LocalEngine(1)
    rows = engine.run([(VALUES.within(window(1)), files)])[0].rows.to_pylist()
    engine.close()
    assert [each["value"] for each in rows] == ["x", None, "y", "x"]


def test_the_newest_count_of_a_step_is_taken(tmp_path: Path):
    rows = [
        {**each, "memcgs_dying": dying} for each, dying in zip(minutes("a", 180, 120, 60), (5, None, 9), strict=True)
    ]
    write_rows(tmp_path, "summaries", rows[2:], "late")
    write_rows(tmp_path, "summaries", rows[:2], "early")
    engine = LocalEngine(1)
    query = COURSE.within(window(1), step=86_400_000_000)
    [found] = ask(engine, opened(tmp_path), [(query, window(1))])[0].rows.to_pylist()
    engine.close()
    assert (found["dying"], found["minutes"]) == (9, 3)


def test_files_are_chosen_by_their_partitions(lake: Lake):
    some = list_files(lake, SUMMARIES, window(2 / 24))
    # Those of two hours, and of two before for nodes whose clock is behind.
    assert len(some) == 4
    assert all(name.endswith(".parquet") for name in some.paths)
    assert newest_date(lake, SUMMARIES) == "2026-03-08"


def test_a_lake_that_is_not_there():
    with pytest.raises(NoData):
        Lake.open("/nonexistent/lake", make=False)
    with pytest.raises(UsageError):
        Lake.open("ftp://somewhere/lake", make=False)


def test_files_that_were_replaced_are_looked_for_again(tmp_path: Path):
    path = write_rows(tmp_path, "summaries", minutes("a", 180, 120), "old")
    query = COURSE.within(window(1), step=86_400_000_000)

    class Compacting(LocalEngine):
        """A compaction replaces the file between listing and reading, the first time."""

        def run(self, asked):
            if path.exists():
                path.rename(path.with_name("compact-1.parquet"))
            return super().run(asked)

    engine = Compacting(1)
    [answer] = ask(engine, opened(tmp_path), [(query, window(1))])
    engine.close()
    assert (answer.unread, answer.rows["minutes"].to_pylist()) == ((), [2])


def test_a_lake_that_is_gone_while_it_is_read_is_an_error_and_no_answer(tmp_path: Path):
    lake = tmp_path / "lake"
    write_rows(lake, "summaries", minutes("a", 180, 120))

    class Unmounting(LocalEngine):
        def run(self, asked):
            if lake.exists():
                lake.rename(tmp_path / "elsewhere")
            return super().run(asked)

    engine = Unmounting(1)
    with pytest.raises((LakeError, NoData)):
        ask(engine, opened(lake), [(COURSE.within(window(1), step=86_400_000_000), window(1))])
    engine.close()


def test_shares_are_of_about_the_same_size():
    sizes = tuple([LEAST_BYTES] * 20 + [1] * 50)
    somewhere = Lake.open("/", make=False)
    files = LakeFiles(somewhere, tuple(f"{place}" for place in range(70)), sizes)
    parts = list(shares(files, 8))
    assert sum(map(len, parts)) == 70 and len(parts) <= 8
    assert [path for part in parts for path in part.paths] == list(files.paths)
    assert list(shares(LakeFiles(somewhere, (), ()), 4)) == []


def test_queries_fill_in_texts_without_ending_them():
    query = Query(SUMMARIES, ("node",), "SELECT '{name}'", "SELECT {since}", "")
    made = query.within(window(1), name="a'b{c}")
    assert made.select == "SELECT 'a''b{c}'"
    with connect(1) as connection:
        assert connection.execute(made.select).fetchone() == ("a'b{c}",)


def sort_in_little_memory(place: Path, monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    """Two million names in 30 MB of memory, with what does not fit in a place."""
    monkeypatch.setattr(local, "MEMORY", "30MB")
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    names = "SELECT 'node-' || range AS node FROM range(2000000) ORDER BY hash(range)"
    with connect(1) as connection:
        directory = Path(connection.execute("SELECT current_setting('temp_directory')").fetchall()[0][0])
        assert directory.parent == place and directory.stat().st_mode & 0o777 == 0o700
        return merge(connection, Query(SUMMARIES, ("node",), "", names, ""), [pa.table({"node": ["a"]})])


def test_what_does_not_fit_is_spilled_to_a_private_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place, current = tmp_path / "temporary", tmp_path / "current"
    place.mkdir()
    current.mkdir()
    monkeypatch.chdir(current)
    assert sort_in_little_memory(place, monkeypatch).num_rows == 2_000_000
    assert list(current.iterdir()) == [] and list(place.iterdir()) == []


@pytest.mark.root
def test_a_full_disk_of_what_is_spilled_is_one_sentence(small_disk: Path, monkeypatch: pytest.MonkeyPatch):  # noqa: F811
    with pytest.raises(OutOfMemory, match="TMPDIR"):
        sort_in_little_memory(small_disk, monkeypatch)
    assert list(small_disk.iterdir()) == []


def test_no_temporary_directory_is_needed(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with connect(1) as connection:
        assert select(connection, COURSE.within(window(1), step=1), list_files(lake, SUMMARIES, window(1)))[1] == ()


def test_files_that_do_not_fit_together_are_read_one_by_one_and_none_is_damaged(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
):
    made, files = COURSE.within(window(20), step=step_micros(window(0.5))), list_files(lake, SUMMARIES, window(20))
    read, most = local._select, len(files)

    def bounded(connection: object, query: Query, files: LakeFiles) -> pa.Table:
        if len(files) > most:
            raise OutOfMemory("more than that")
        return read(connection, query, files)

    monkeypatch.setattr(local, "_select", bounded)
    with closing(LocalEngine(1)) as engine:
        whole = engine.run([(made, files)])
        most = 1
        assert len(files) > 2 and engine.run([(made, files)]) == whole
        most = 0
        with pytest.raises(OutOfMemory):
            engine.run([(made, files)])


@pytest.mark.parametrize("name", sampled(QUERIES))
def test_a_statement_reads_a_bounded_number_of_files(lake: Lake, monkeypatch: pytest.MonkeyPatch, name: str):
    query, values = QUERIES[name]
    made, files = query.within(window(20), **values), list_files(lake, query.table, window(20))
    read, sizes = local._select, list[int]()

    def counted(connection: object, query: Query, files: LakeFiles) -> pa.Table:
        sizes.append(len(files))
        return read(connection, query, files)

    monkeypatch.setattr(local, "_select", counted)
    with closing(LocalEngine(1)) as engine:
        whole = engine.run([(made, files)])
        assert sizes == [len(files)]
        sizes.clear()
        monkeypatch.setattr(local, "MOST_FILES", max(1, len(files) // 2))
        assert engine.run([(made, files)]) == whole
    assert max(sizes) <= max(1, len(files) // 2) and sum(sizes) == len(files)

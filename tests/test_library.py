"""The library: its tables are the rows of the store, its page runs as it stands, and importing it costs nothing."""

import io
import json
import re
import subprocess
import sys
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import pytest
from tests.store.store_rows import WALL, cpu_rows, recorder, tick_at
from tests.synthetic import synthetic_recording

import exhume
from exhume.model.clock import NANOS, Window
from exhume.model.errors import ExhumeError, NoRecording, UsageError
from exhume.model.tables import TABLES
from exhume.store.read.profile import ProfileFilter
from exhume.store.read.recording import Recording as StoredRecording

PAGE = Path(__file__).resolve().parents[1] / "docs/library.md"
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    return synthetic_recording(tmp_path_factory, cores=8, minutes=4, seed=7)


@pytest.fixture(scope="module")
def recording(synthetic):
    return exhume.open(synthetic.directory)


@pytest.fixture(scope="module")
def stored(synthetic):
    return StoredRecording.open(synthetic.directory)


def seconds(synthetic, since: int, until: int) -> Window:
    return Window(synthetic.since + since * NANOS, synthetic.since + until * NANOS)


def test_the_page_runs_and_prints_what_it_says(synthetic, tmp_path, monkeypatch):
    (tmp_path / "exhume-synth").symlink_to(synthetic.directory)
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) >= 14
    names: dict[str, object] = {}
    for (kind, code), (next_kind, expected) in zip(blocks[::2], blocks[1::2], strict=True):
        assert (kind, next_kind) == ("python", "text")
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), names)
        assert printed.getvalue() == expected


def test_cores_are_the_rows_of_the_store_in_order(recording, stored, synthetic):
    window = seconds(synthetic, 30, 90)
    found = recording.cores(window.since, window.until, cpus={3, 5})
    rows = stored.read("cpu", window, None, {3, 5})
    assert found.num_rows == rows.num_rows == 120
    walls = found.column("wall").to_pylist()
    assert walls == sorted(walls)
    assert walls[0].tzinfo is not None and walls[0] >= datetime.fromtimestamp(window.since / NANOS, UTC)
    assert sorted(found.column("time").to_pylist()) == sorted(rows.column("time").to_pylist())
    for row in found.to_pylist():
        assert row["busy"] == 1000 - row["idle"] - row["iowait"]


def test_samples_and_flame_agree_with_the_profile(recording, stored, synthetic):
    window, where = seconds(synthetic, 125, 140), ProfileFilter(cpus={5})
    profile = stored.profile(window, where)
    samples = recording.samples(window.since, window.until, where=where)
    flame = recording.flame(window.since, window.until, where=where)
    assert samples.num_rows == profile.samples == pc.sum(flame.column("samples")).as_py() > 100
    assert pc.sum(samples.column("weight_us")).as_py() == profile.weight_us == pc.sum(flame.column("cpu_us")).as_py()
    assert pc.unique(samples.column("cpu")).to_pylist() == [5]
    walls = samples.column("wall").to_pylist()
    assert walls == sorted(walls)
    summed: dict[tuple[str, ...], int] = {}
    for row in samples.to_pylist():
        assert row["function"] == row["frames"][-1]
        key = (row["comm"], *row["frames"])
        summed[key] = summed.get(key, 0) + row["weight_us"]
    assert summed == {(row["comm"], *row["frames"]): row["cpu_us"] for row in flame.to_pylist()}
    weights = flame.column("cpu_us").to_pylist()
    assert weights == sorted(weights, reverse=True)


@pytest.mark.parametrize("table", TABLES)
def test_every_table_can_be_read(recording, stored, table):
    found = recording.table(table)
    assert found.num_rows == stored.read(table, stored.span()).num_rows
    assert set(found.schema.names) >= set(stored.read(table, stored.span()).schema.names)


def test_events_reach_back_and_can_be_chosen_by_kind(recording, stored):
    assert recording.events().num_rows == len(stored.events())
    marks = recording.events(kinds=["incident"])
    assert marks.num_rows and pc.unique(marks.column("kind")).to_pylist() == ["incident"]


@pytest.mark.slow
def test_the_diagnosis_is_that_of_the_command(recording, synthetic):
    found = recording.diagnose()
    assert found.findings[0].cause == "zombie-memcgs"
    assert found.findings[0].culprit.cpu == synthetic.incident.cpu
    assert recording.diagnose(at=synthetic.incident.since).findings[0].cause == "zombie-memcgs"
    window = seconds(synthetic, 0, 60)
    assert recording.diagnose(window.since, window.until).window == (window.since, window.until)
    with pytest.raises(UsageError):
        recording.diagnose(window.since, at=window.since)
    with pytest.raises(UsageError):
        recording.diagnose(at=synthetic.since - NANOS)


def test_moments_can_be_written_in_every_form(recording, synthetic):
    ns = synthetic.since + 60 * NANOS
    forms = [ns, datetime.fromtimestamp(ns / NANOS, UTC), f"@{ns // NANOS}", "2025-03-03T18:01:00Z", "18:01:00"]
    tables = [recording.cores(form, ns + NANOS) for form in forms]
    assert {table.num_rows for table in tables} == {8}
    with pytest.raises(UsageError):
        recording.cores(datetime(2025, 3, 3, 18, 1))
    with pytest.raises(UsageError):
        recording.cores("yesterday")


def test_sql_reads_what_the_query_names(synthetic):
    ask = "SELECT count(*) AS n, max(wall) AS last FROM cpu"
    (row,) = exhume.sql(synthetic.directory, ask).to_pylist()
    assert row["n"] == 8 * 240
    window = seconds(synthetic, 0, 60)
    (part,) = exhume.sql(synthetic.directory, ask, window.since, window.until).to_pylist()
    assert part["n"] == 8 * 60 and part["last"] < row["last"]
    joined = "SELECT comm, sum(cpu_us) AS us FROM flame GROUP BY comm HAVING comm IN (SELECT comm FROM processes)"
    assert exhume.sql(synthetic.directory, joined).num_rows > 0
    for bad in ("SELEKT 1", "SELECT * FROM no_such_table", "SELECT nothing FROM cpu"):
        with pytest.raises(UsageError):
            exhume.sql(synthetic.directory, bad)


def test_a_growing_recording(tmp_path):
    writer = recorder(tmp_path / "r")
    for index in range(3):
        writer.append("cpu", cpu_rows(tick_at(index)))
        writer.commit(tick_at(index))
    recording = exhume.open(tmp_path / "r")
    assert recording.cores().num_rows == 6
    writer.append("cpu", cpu_rows(tick_at(3)))
    writer.commit(tick_at(3))
    recording.refresh()
    assert recording.cores(WALL).num_rows == 8
    writer.close()


def test_errors_are_sentences(tmp_path):
    with pytest.raises(NoRecording):
        exhume.open(tmp_path / "nothing")
    with pytest.raises(AttributeError):
        _ = exhume.no_such_name


def test_duckdb_is_an_extra(synthetic, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ExhumeError, match="exhume\\[sql\\]"):
        exhume.sql(synthetic.directory, "SELECT 1")


def test_importing_the_package_loads_nothing():
    heavy = "[name for name in sys.modules if name.startswith(('exhume', 'numpy', 'pyarrow'))]"
    code = f"import sys, json, exhume; print(json.dumps({heavy}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["exhume"]


def test_the_package_is_typed():
    assert Path(exhume.__file__).with_name("py.typed").is_file()

"""The overview of a segment says what its rows say; where it does not hold, the rows are read."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.parts import examples
from tests.store.store_rows import cpu_rows, loss_row, recorder, sample_rows, tick_at

from exhume.model.clock import MILLIS
from exhume.present.web.handle import RecordingHandle
from exhume.present.web.handlers.timeline import pool_measure
from exhume.store.format.names import OLD_OVERVIEW_FILE
from exhume.store.read.core_grid import (
    MEASURES,
    OVERVIEW_FILE,
    OVERVIEW_MEASURES,
    STATES,
    UNUSUAL_MEASURES,
    Piece,
    columns_for,
    read_overview,
    seconds_of,
)
from exhume.store.read.index import Segment
from exhume.store.read.reader import Request, read_segment
from exhume.store.read.recording import Recording

CELLS = 10


def from_rows(segment: Segment, measure: str = "busy") -> Piece:
    rows = read_segment(segment, Request("cpu", None, columns_for(measure)))
    assert rows is not None
    return seconds_of(segment.name, rows, measure)


def overview_of(segment: Segment, measure: str = "busy") -> Piece | None:
    return read_overview(segment.path, segment.name, measure)


def assert_alike(found: Piece | None, wanted: Piece) -> None:
    assert found is not None
    assert found.first == wanted.first
    assert np.array_equal(found.scores, wanted.scores)


def heatmap(directory: Path) -> tuple[list[int], list[list[list[int]]]]:
    """All of a recording as the page draws it, by the measures that overviews are for."""
    handle = RecordingHandle(directory)
    pooled = [pool_measure(handle, handle.span(), CELLS, measure) for measure in ("busy", *UNUSUAL_MEASURES)]
    return pooled[0].cpus, [part.tolist() for each in pooled for part in (each.values, each.states)]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Three segments of ten seconds, each second busier than the one before."""
    directory = tmp_path / "recording"
    writer = recorder(directory, segment_s=10)
    for index in range(30):
        tick = tick_at(index)
        writer.append("cpu", cpu_rows(tick, cores=3, user=10 * index, softirq=1 + index))
        writer.commit(tick)
    writer.close()
    return directory


@pytest.mark.parametrize("measure", [measure for measure in MEASURES if measure not in UNUSUAL_MEASURES])
def test_the_columns_of_a_measure_say_as_much_as_all(recorded: Path, measure: str) -> None:
    for segment in Recording.open(recorded).segments:
        rows = read_segment(segment, Request("cpu"))
        assert rows is not None
        assert len(columns_for(measure)) < len(rows.schema.names)
        assert_alike(from_rows(segment, measure), seconds_of(segment.name, rows, measure))


@st.composite
def ticks(draw: st.DrawFn) -> list[tuple[int, list[int], dict[str, int]]]:
    """Ticks: their milliseconds, the cores that were online, and the permille of each state."""
    found = []
    for _ in range(draw(st.integers(1, 12))):
        left = 1000
        states = {}
        for state in draw(st.permutations([*STATES, "nice"])):
            states[state] = draw(st.integers(0, left))
            left -= states[state]
        cores = draw(st.lists(st.integers(0, 5), unique=True, max_size=6))
        found.append((draw(st.integers(1, 4000)), sorted(cores), states))
    return found


@pytest.mark.slow
@examples(30)
@given(ticks())
def test_an_overview_says_what_the_rows_say(drawn: list[tuple[int, list[int], dict[str, int]]]) -> None:
    with TemporaryDirectory() as place:
        directory = Path(place) / "recording"
        writer = recorder(directory, segment_s=5)
        since = 0
        for millis, cores, states in drawn:
            tick = tick_at(0, nanos=millis * MILLIS, start=tick_at(0).start + since * MILLIS)
            since += millis
            rows = cpu_rows(tick, len(cores), **states) | {"cpu": cores}
            writer.append("cpu", rows)
            writer.append("losses", loss_row(tick, 1))
            writer.commit(tick)
        writer.close()
        for segment in Recording.open(directory).segments:
            if segment.file("cpu").exists():
                for measure in OVERVIEW_MEASURES:
                    assert_alike(overview_of(segment, measure), from_rows(segment, measure))
            else:
                assert overview_of(segment) is None
                assert not (segment.path / OVERVIEW_FILE).exists()


def test_the_page_draws_alike_with_and_without_overviews(recorded: Path) -> None:
    seen = heatmap(recorded)
    assert seen[0] == [0, 1, 2]
    removed = [path.unlink() for path in recorded.glob(f"2*/{OVERVIEW_FILE}")]
    assert len(removed) == 3
    assert heatmap(recorded) == seen
    assert Recording.open(recorded).info().skipped == []


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> tuple[Segment, bytes]:
    """A segment of one second, and the bytes of its overview."""
    writer = recorder(directory := tmp_path_factory.mktemp("second"))
    writer.append("cpu", cpu_rows(tick_at(0), user=300))
    writer.commit(tick_at(0))
    writer.close()
    (segment,) = Recording.open(directory).segments
    assert_alike(overview_of(segment), from_rows(segment))
    return segment, (segment.path / OVERVIEW_FILE).read_bytes()


@examples(60)
@given(data=st.data())
def test_no_damage_is_believed(data: st.DataObject, second: tuple[Segment, bytes]) -> None:
    segment, whole = second
    place = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[place] ^= data.draw(st.integers(1, 255))
    damaged = data.draw(st.sampled_from([bytes(flipped), whole[:place], whole + b"\0", b""]))
    (segment.path / OVERVIEW_FILE).write_bytes(damaged)
    found = overview_of(segment)
    # Some bytes of a Parquet file are not read, such as the version of its writer: damage there changes nothing.
    if found is not None:
        assert len(damaged) == len(whole)
        assert_alike(found, from_rows(segment))


def test_an_overview_of_an_earlier_version_is_not_believed(recorded: Path) -> None:
    """It had one column, with the time of all states under the state that took most."""
    seen = heatmap(recorded)
    for path in recorded.glob(f"2*/{OVERVIEW_FILE}"):
        table = pq.read_table(path)
        metadata = pq.read_metadata(path).metadata
        kept = {key: value for key, value in metadata.items() if not key.startswith(b"exhume.crc32.")}
        old = table.select(["second", "cpu", "busy"]).rename_columns(["second", "cpu", "score"])
        pq.write_table(old.replace_schema_metadata({**kept, b"exhume.checksum": b"0"}), path)
    assert heatmap(recorded) == seen


def test_an_overview_with_other_meanings_of_its_columns_is_not_believed(recorded: Path) -> None:
    """`held` had no sign of its own for a core that the kernel held: the share had to be 95%."""
    seen = heatmap(recorded)
    for path in recorded.glob(f"2*/{OVERVIEW_FILE}"):
        table = pq.read_table(path)
        metadata = pq.read_metadata(path).metadata
        old = {key.replace(b"exhume.crc32.", b"exhume.checksum."): value for key, value in metadata.items()}
        pq.write_table(table.replace_schema_metadata(old), path)
        assert read_overview(path.parent, Recording.open(recorded).segments[0].name, "held") is None
    assert heatmap(recorded) == seen


def test_a_recording_with_old_overviews_is_read_from_its_rows(recorded: Path) -> None:
    seen = heatmap(recorded)
    for path in recorded.glob(f"2*/{OVERVIEW_FILE}"):
        path.rename(path.with_name(OLD_OVERVIEW_FILE)).write_bytes(b"EXOVIEW1 and so on")
    assert heatmap(recorded) == seen
    assert Recording.open(recorded).info().skipped == []


def test_other_programs_read_overviews_as_a_table(recorded: Path) -> None:
    query = f"SELECT cpu, max(busy // 8), count(*) FROM '{recorded}/2*/{OVERVIEW_FILE}' GROUP BY cpu ORDER BY cpu"
    assert duckdb.sql(query).fetchall() == [(cpu, 290, 30) for cpu in range(3)]


def test_a_damaged_overview_is_reported_and_the_rows_are_drawn(recorded: Path) -> None:
    seen = heatmap(recorded)
    victim = sorted(recorded.glob(f"2*/{OVERVIEW_FILE}"))[1]
    victim.write_bytes(victim.read_bytes()[:-1])
    assert heatmap(recorded) == seen
    skipped = [(skipped.path, skipped.reason) for skipped in Recording.open(recorded).info().skipped]
    assert skipped == [(victim, "truncated or damaged")]


def test_the_overview_of_another_segment_is_not_believed(recorded: Path) -> None:
    seen = heatmap(recorded)
    one, other = (segment.path / OVERVIEW_FILE for segment in Recording.open(recorded).segments[:2])
    shutil.copy(one, other)
    assert heatmap(recorded) == seen


def test_an_overview_of_other_rows_is_not_believed(recorded: Path) -> None:
    segment = Recording.open(recorded).segments[0]
    rows = segment.file("cpu")
    rows.write_bytes(rows.read_bytes()[:-20])
    assert overview_of(segment) is None
    rows.unlink()
    assert overview_of(segment) is None


def test_rows_that_lie_ages_apart_are_sealed_without_an_overview(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    tick = tick_at(0)
    far = cpu_rows(tick, user=100) | {"time": [tick.start, tick.start + 10**18]}
    writer.append("cpu", far)
    writer.append("samples", sample_rows(tick, [(0, 1, "work", 1)]))
    writer.commit(tick)
    writer.close()
    (segment,) = Recording.open(tmp_path).segments
    assert segment.file("cpu").exists()
    assert not (segment.path / OVERVIEW_FILE).exists()

"""The grid of cores: maxima survive every zoom, gaps are gaps."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.parts import examples
from tests.store.store_rows import MONO, OFFSET, WALL, cpu_rows, recorder, seconds, tick_at

from exhume.model.clock import MILLIS, NANOS, Tick, Window
from exhume.model.errors import UsageError
from exhume.store.format.names import SegmentName
from exhume.store.read.core_grid import GAP, STATES, build_grid, greatest_row, row_window
from exhume.store.read.recording import Recording

CORES, HOURS = 96, 12
BAD_CORE, BAD_SECOND = 39, 7 * 3600 + 1234


@pytest.fixture(scope="module")
def half_a_day(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Twelve hours of 96 quiet cores, and one bad second on one of them."""
    directory = tmp_path_factory.mktemp("recording")
    writer = recorder(directory, segment_s=600)
    shares = cpu_rows(tick_at(0), 60 * CORES, user=20, system=10)
    for minute in range(HOURS * 60):
        tick = tick_at(minute, nanos=60 * NANOS)
        second = np.repeat(np.arange(60), CORES)
        rows = {name: values.copy() for name, values in shares.items()}
        rows["time"] = tick.start + second * NANOS
        rows["cpu"] = np.tile(np.arange(CORES), 60)
        bad = (rows["cpu"] == BAD_CORE) & (second + minute * 60 == BAD_SECOND)
        rows["system"][bad], rows["user"][bad], rows["idle"][bad] = 980, 20, 0
        writer.append("cpu", rows)
        writer.commit(tick)
    writer.close()
    return Recording.open(directory)


@pytest.mark.slow
@pytest.mark.parametrize("cells", [43200, 4000, 720, 120, 7, 1])
def test_one_bad_second_in_twelve_hours_stays_visible(half_a_day: Recording, cells: int) -> None:
    span = half_a_day.span()
    assert span is not None
    assert span.seconds == HOURS * 3600
    grid = half_a_day.cores(span, cells)
    assert grid.cpus == list(range(CORES))
    bad = grid.values > 500
    assert np.argwhere(bad).tolist() == [[BAD_CORE, BAD_SECOND * cells // (HOURS * 3600)]]
    assert grid.values[bad].tolist() == [980]
    assert [STATES[state] for state in grid.dominant[bad]] == ["system"]
    assert (grid.values != GAP).all()


@pytest.mark.slow
def test_zooming_in_below_a_second_opens_no_gaps(half_a_day: Recording) -> None:
    bad = Window(*seconds(BAD_SECOND + 0.25, BAD_SECOND + 0.75))
    grid = half_a_day.cores(bad, 20, "system")
    assert (grid.values[BAD_CORE] == 980).all()
    assert (np.delete(grid.values, BAD_CORE, axis=0) == 10).all()


def test_gaps_and_cores_that_went_away_are_marked(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    for index in (0, 1, 2, 6, 7):
        tick = tick_at(index)
        writer.append("cpu", cpu_rows(tick, cores=1 if index == 6 else 2, user=100 + index))
        writer.commit(tick)
    writer.close()
    grid = Recording.open(tmp_path).cores(Window(*seconds(0, 8)), 8, "user")
    assert grid.values.tolist() == [
        [100, 101, 102, GAP, GAP, GAP, 106, 107],
        [100, 101, 102, GAP, GAP, GAP, GAP, 107],
    ]
    assert (grid.dominant == GAP).tolist() == (grid.values == GAP).tolist()


def test_each_measure_shows_its_own_share(tmp_path: Path) -> None:
    shares = {"user": 100, "nice": 50, "system": 200, "irq": 10, "softirq": 300, "iowait": 40, "steal": 30}
    writer = recorder(tmp_path)
    tick = tick_at(0)
    writer.append("cpu", {**cpu_rows(tick, cores=1, **shares), "wait_ns": [2_500_000_000]})
    writer.commit(tick)
    tick = tick_at(1)
    writer.append("cpu", cpu_rows(tick, cores=1))
    writer.commit(tick)
    writer.close()
    recording = Recording.open(tmp_path)
    window = Window(*seconds(0, 2))
    shown = {
        m: recording.cores(window, 1, m).values[0, 0] for m in ("busy", "user", "system", "softirq", "irq", "steal")
    }
    # The busiest state is shown with its own share.
    assert shown == {"busy": 300, "user": 150, "system": 200, "softirq": 300, "irq": 10, "steal": 30}
    assert recording.cores(window, 1, "iowait").values[0, 0] == 40
    # The second tick doesn't tell how long tasks waited: that is a gap, not zero.
    assert recording.cores(window, 2, "wait").values.tolist() == [[2500, GAP]]
    with pytest.raises(UsageError, match="no measure nonsense"):
        recording.cores(window, 1, "nonsense")


def test_a_busy_core_is_not_busy_with_waiting_for_a_disk(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    tick = tick_at(0)
    writer.append("cpu", cpu_rows(tick, cores=1, iowait=600, softirq=200, user=100))
    writer.commit(tick)
    writer.close()
    recording = Recording.open(tmp_path)
    grid = recording.cores(Window(*seconds(0, 1)), 1)
    assert (grid.values[0, 0], STATES[grid.dominant[0, 0]]) == (200, "softirq")
    assert STATES[recording.cores(Window(*seconds(0, 1)), 1, "iowait").dominant[0, 0]] == "iowait"


def test_the_row_that_gave_a_cell_its_value_is_found(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    for index, user in enumerate((100, 900, 100)):
        tick = tick_at(index, start=MONO + 966 * MILLIS)
        writer.append("cpu", cpu_rows(tick, cores=1, user=user))
        writer.commit(tick)
    writer.close()
    rows = Recording.open(tmp_path).read("cpu")
    hot = Window(*seconds(1.966, 2.966))

    def found(since: float, until: float) -> Window | None:
        row = greatest_row(rows, "user", Window(*seconds(since, until)))
        return None if row is None else row_window(rows, row)

    assert found(1, 2) == hot
    assert found(2.2, 2.4) == hot
    assert found(9, 10) is None


@examples(60)
@given(
    users=st.lists(st.integers(0, 1000), min_size=1, max_size=40),
    coarse=st.integers(1, 8),
    finer=st.integers(1, 6),
)
def test_a_coarse_cell_is_the_maximum_of_its_fine_ones(users: list[int], coarse: int, finer: int) -> None:
    name = SegmentName((MONO + OFFSET) // 10**6, "1f0c5a9e", MONO // 10**6, 60_000)
    parts = [cpu_rows(Tick(i, MONO + i * NANOS, MONO + (i + 1) * NANOS, 0), 1, user=u) for i, u in enumerate(users)]
    rows = pa.table({column: np.concatenate([part[column] for part in parts]) for column in parts[0]})
    window = Window(WALL, WALL + len(users) * NANOS)
    grids = [build_grid(window, cells, "user", [name], lambda _: rows).values[0] for cells in (coarse, coarse * finer)]
    assert grids[0].max() == grids[1].max() == max(users)
    if coarse * finer <= len(users):
        assert grids[1].reshape(coarse, finer).max(axis=1).tolist() == grids[0].tolist()

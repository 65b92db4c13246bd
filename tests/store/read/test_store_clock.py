"""A wall clock that is set moves nothing that was recorded: every row keeps the wall time at which it happened."""

from pathlib import Path

import pytest
from tests.store.store_rows import MONO, OFFSET, WALL, cpu_rows, recorder, seconds, tick_at

from exhume.model.clock import MILLIS, NANOS, Tick, Window
from exhume.store.read.recording import Recording

HOUR = 3600 * NANOS


def record(directory: Path, offsets: list[int], segment_s: int = 60) -> list[bool]:
    """A tick a second, with the difference between wall and monotonic time at the end of each; one core's system
    share is the tick's number. Returns what commit said."""
    writer = recorder(directory, segment_s=segment_s)
    said = []
    for index, offset in enumerate(offsets):
        tick = tick_at(index, offset=offset)
        writer.append("cpu", cpu_rows(tick, cores=1, system=index))
        said.append(writer.commit(tick))
    writer.close()
    return said


def walls(recording: Recording, window: Window | None = None) -> dict[int, int]:
    rows = recording.read("cpu", window, ["system", "wall"])
    return dict(zip(rows.column("system").to_pylist(), rows.column("wall").to_pylist(), strict=True))


@pytest.mark.parametrize("step", [HOUR, -HOUR, NANOS, -NANOS])
def test_a_step_cuts_the_segment_and_both_sides_keep_their_time(tmp_path: Path, step: int) -> None:
    # The clock is set in the middle of tick 10: it began before the step, so its row has the time before the step.
    said = record(tmp_path, [OFFSET] * 10 + [OFFSET + step] * 10)
    assert said.index(True) == 10
    recording = Recording.open(tmp_path)
    assert len(recording.segments) == 2 + said[11:].count(True)
    expected = {index: MONO + index * NANOS + OFFSET + (step if index > 10 else 0) for index in range(20)}
    assert walls(recording) == expected


def test_a_wall_window_that_came_twice_returns_both(tmp_path: Path) -> None:
    # The clock is set back by ten seconds after ten: the wall seconds 1 to 10 come twice.
    record(tmp_path, [OFFSET] * 10 + [OFFSET - 10 * NANOS] * 10)
    recording = Recording.open(tmp_path)
    assert sorted(walls(recording, Window(*seconds(5, 6)))) == [5, 15]
    grid = recording.cores(Window(*seconds(0, 10)), 10, "system")
    assert grid.values[0].tolist() == [0, 11, 12, 13, 14, 15, 16, 17, 18, 19]


def test_two_steps_in_a_row(tmp_path: Path) -> None:
    record(tmp_path, [OFFSET] * 3 + [OFFSET + HOUR, OFFSET - HOUR, OFFSET - HOUR])
    expected = {0: 0, 1: 0, 2: 0, 3: 0, 4: HOUR, 5: -HOUR}
    found = walls(Recording.open(tmp_path))
    assert {index: wall - MONO - index * NANOS - OFFSET for index, wall in found.items()} == expected


def test_slewing_does_not_cut_and_stays_true(tmp_path: Path) -> None:
    # 500 ppm is the most that the kernel slews by itself: 30 ms a minute.
    slew = [OFFSET + index * NANOS // 2000 for index in range(120)]
    said = record(tmp_path, slew)
    assert said.count(True) == 2
    recording = Recording.open(tmp_path)
    for index, wall in walls(recording).items():
        assert abs(wall - (MONO + index * NANOS + slew[index])) < 40 * MILLIS


def test_fast_slewing_cuts_before_the_time_is_wrong(tmp_path: Path) -> None:
    slew = [OFFSET + index * NANOS // 12 for index in range(30)]
    record(tmp_path, slew)
    for index, wall in walls(Recording.open(tmp_path)).items():
        assert abs(wall - (MONO + index * NANOS + slew[index])) < 500 * MILLIS


def test_a_suspended_recorder_writes_one_long_tick(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    ticks = [
        Tick(0, MONO, MONO + NANOS, WALL + NANOS),
        Tick(1, MONO + NANOS, MONO + 31 * NANOS, WALL + 31 * NANOS),
        Tick(2, MONO + 31 * NANOS, MONO + 32 * NANOS, WALL + 32 * NANOS),
    ]
    for tick in ticks:
        writer.append("cpu", cpu_rows(tick, cores=1, system=tick.index * 100))
        writer.commit(tick)
    writer.close()
    grid = Recording.open(tmp_path).cores(Window(*seconds(0, 32)), 32, "system")
    assert grid.values[0].tolist() == [0, *[100] * 30, 200]


def test_anchors_pair_the_clocks_each_tick(tmp_path: Path) -> None:
    record(tmp_path, [OFFSET] * 3)
    anchors = Recording.open(tmp_path).read("anchors", None, ["time", "wall"]).to_pylist()
    assert anchors == [{"time": MONO + n * NANOS, "wall": WALL + n * NANOS} for n in (1, 2, 3)]
    with pytest.raises(ValueError, match="written by the store"):
        recorder(tmp_path).append("anchors", {"time": [1], "wall": [1]})


@pytest.mark.parametrize("fraction_us", [0, 1, 200, 499, 500, 999])
def test_a_row_that_begins_right_after_a_full_second_is_in_that_second(tmp_path: Path, fraction_us: int) -> None:
    """Whatever part of a millisecond the clocks are apart, of which a segment's name keeps only whole ones."""
    fraction, late = fraction_us * 1000, MILLIS // 10
    writer = recorder(tmp_path)
    for index in range(3):
        tick = tick_at(index, offset=OFFSET + fraction, start=MONO - fraction + late)
        writer.append("cpu", cpu_rows(tick, cores=1, system=index))
        writer.commit(tick)
    writer.close()
    recording = Recording.open(tmp_path)
    assert recording.cores(Window(*seconds(0, 3)), 3, "system").values[0].tolist() == [0, 1, 2]
    assert all(0 <= wall - WALL - index * NANOS - late < MILLIS for index, wall in walls(recording).items())

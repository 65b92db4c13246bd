"""The range rules: half-open, clamped, and an empty window is no error."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.store_rows import WALL, cpu_rows, recorder, sample_rows, seconds, tick_at

from exhume.model.clock import NANOS, Window
from exhume.model.errors import RecordingError, UsageError
from exhume.store.format.names import SegmentName, boot_part
from exhume.store.read.recording import Recording

TIMES = st.integers(0, 2**62)
# Names hold at most three hundred years, and end with what 64 bits of nanoseconds can hold.
MILLISECONDS = st.integers(0, 10**12)


@given(st.builds(Window, TIMES, TIMES), st.builds(Window, TIMES, TIMES), TIMES)
def test_a_clamped_window_holds_what_both_hold(window: Window, other: Window, moment: int) -> None:
    clamped = window.clamp(other)
    assert clamped.contains(moment) == (window.contains(moment) and other.contains(moment))
    assert clamped.nanos >= 0
    if not window.empty and not other.empty:
        assert (window.since < other.until and other.since < window.until) == (not clamped.empty)


@given(
    st.builds(
        SegmentName,
        st.integers(0, 4 * 10**12),
        st.text("0123456789abcdef", min_size=8, max_size=8),
        MILLISECONDS,
        MILLISECONDS,
        MILLISECONDS,
    )
)
def test_names_of_segments_say_all_of_it(name: SegmentName) -> None:
    assert SegmentName.parse(str(name)) == name
    live = SegmentName(name.wall_ms, name.boot, name.start_ms)
    assert SegmentName.parse(str(live)) == live
    assert live.key == name.key


@pytest.mark.parametrize(
    "text",
    [
        *("", "live", "a.txt", "20260714T120000000Z_xyz_1_2"),
        *(f"{moment}000Z_1f0c5a9e_1_2" for moment in ("20261340T000000", "20260230T000000", "00000101T000000")),
        *(f"20260714T{clock}000Z_1f0c5a9e_1_2" for clock in ("240000", "126000", "120060")),
    ],
)
def test_other_names_are_not_segments(text: str) -> None:
    assert SegmentName.parse(text) is None


def test_an_unknown_boot_has_a_name_too() -> None:
    assert boot_part("") == "00000000"
    assert boot_part("1F0C5A9E-0000-4000") == "1f0c5a9e"


@pytest.fixture
def three_minutes(tmp_path: Path) -> Recording:
    writer = recorder(tmp_path)
    for index in range(180):
        tick = tick_at(index)
        writer.append("cpu", cpu_rows(tick))
        writer.append("samples", sample_rows(tick, [(0, 1, "a", 9)]))
        writer.commit(tick)
    writer.close()
    return Recording.open(tmp_path)


def test_segments_are_cut_at_full_minutes(three_minutes: Recording) -> None:
    starts = [segment.name.wall_ms for segment in three_minutes.segments]
    assert starts == [WALL // 10**6 + minute * 60_000 for minute in range(3)]
    assert three_minutes.span() == Window(*seconds(0, 180))


def test_a_window_is_half_open(three_minutes: Recording) -> None:
    assert three_minutes.read("cpu", Window(*seconds(59, 61))).num_rows == 4
    assert three_minutes.read("cpu", Window(*seconds(59.5, 60))).num_rows == 0
    assert three_minutes.read("cpu", Window(WALL, WALL + 1)).num_rows == 2
    assert three_minutes.read("cpu", Window(*seconds(59, 61)), cpus={1}).num_rows == 2


def test_a_window_past_the_ends_is_clamped(three_minutes: Recording) -> None:
    beyond = Window(*seconds(-1000, 5000))
    assert three_minutes.read("cpu", beyond).num_rows == 360
    assert three_minutes.profile(beyond).samples == 180
    grid = three_minutes.cores(beyond, 180)
    assert grid.window == three_minutes.span()
    assert (grid.values == 0).all()


@pytest.mark.parametrize("bounds", [(10, 10), (20, 10), (-900, -800), (900, 1000)])
def test_an_empty_window_gives_empty_results(three_minutes: Recording, bounds: tuple[int, int]) -> None:
    window = Window(*seconds(*bounds))
    assert three_minutes.read("cpu", window).num_rows == 0
    assert three_minutes.read("cpu", window).schema.names[-1] == "wall"
    assert three_minutes.profile(window).samples == 0
    assert three_minutes.profile(window).stacks == []
    assert three_minutes.cores(window, 10).cpus == []
    assert three_minutes.events(window) == []
    assert three_minutes.losses(window) == []
    assert three_minutes.self_cost(window).seconds == 0


def test_columns_are_chosen(three_minutes: Recording) -> None:
    window = Window(*seconds(0, 1))
    assert three_minutes.read("cpu", window, ["idle", "wall"], cpus=[0]).to_pylist() == [{"idle": 1000, "wall": WALL}]
    assert three_minutes.read("node", window, ["load1"]).schema.names == ["load1"]
    with pytest.raises(UsageError, match="no column nonsense"):
        three_minutes.read("cpu", window, ["nonsense"])
    with pytest.raises(UsageError, match="no table nonsense"):
        three_minutes.read("nonsense", window)


def test_what_is_not_a_recording_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="does not exist"):
        Recording.open(tmp_path / "nowhere")
    with pytest.raises(RecordingError, match="is not a recording"):
        Recording.open(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(RecordingError, match=r"holds no recording; name .* with --dir"):
        Recording.open(tmp_path)
    with pytest.raises(RecordingError, match="is a file"):
        Recording.open(tmp_path / "file")


def test_a_recording_that_has_only_begun_is_empty(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    recording = Recording.open(tmp_path)
    assert recording.span() is None
    assert recording.read("cpu").num_rows == 0
    assert recording.cores(Window(0, NANOS), 10).cpus == []
    with pytest.raises(RecordingError, match="nothing that can be read yet"):
        _ = recording.facts
    writer.close()

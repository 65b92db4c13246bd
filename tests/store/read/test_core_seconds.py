"""What is unusual about a second: stalls and deviations, the same at every zoom and across segments."""

from pathlib import Path
from statistics import median_low
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.parts import examples, sampled
from tests.store.store_rows import cpu_rows, recorder, seconds, tick_at

from exhume.model.clock import Window
from exhume.model.tables import HELD_PERMILLE
from exhume.store.read.core_grid import CELL_STATES, GAP, UNUSUAL_MEASURES
from exhume.store.read.core_seconds import (
    LEAST_DEVIATION,
    LEAST_SPREADS,
    LONGEST_STALL_S,
    NORMAL_SEGMENTS,
    decode_unusual,
)
from exhume.store.read.recording import Recording

SEGMENT_S = 10


def write(
    directory: Path, kernel: list[list[int | None]], waits: list[list[int]] | None = None, stolen: int = 0
) -> Recording:
    """Seconds x cores: the kernel's permille (None: the second was not recorded), and how long tasks waited; of every
    second what the hypervisor had."""
    writer = recorder(directory, segment_s=SEGMENT_S)
    for index, shares in enumerate(kernel):
        if None in shares:
            continue
        tick = tick_at(index)
        rows = cpu_rows(tick, cores=len(shares))
        # Of the kernel's time a part is in softirqs, so that no state alone holds the core.
        system = np.array([int(share or 0) for share in shares])
        softirq = system // 3
        waited = waits[index] if waits else [0] * len(shares)
        rows |= {"system": system - softirq, "softirq": softirq, "idle": 1000 - stolen - system}
        rows["steal"] = [stolen] * len(shares)
        writer.append("cpu", {**rows, "wait_ns": [wait * 10**6 for wait in waited]})
        writer.commit(tick)
    writer.close()
    return Recording.open(directory)


def runs(held: list[bool]) -> list[int]:
    """For how many seconds without a pause it was held when each ends."""
    found, run = [], 0
    for each in held:
        run = run + 1 if each else 0
        found.append(run)
    return found


def normals(kernel: list[int | None]) -> list[tuple[int, int]]:
    """The median of the medians of the segments before each second, of its own where there are none; and the same of
    the median absolute deviations."""
    segments = [kernel[begin : begin + SEGMENT_S] for begin in range(0, len(kernel), SEGMENT_S)]
    parts: list[tuple[int, int] | None] = []
    for known in ([share for share in each if share is not None] for each in segments):
        middle = median_low(known) if known else 0
        parts.append((middle, median_low([abs(share - middle) for share in known])) if known else None)
    found = []
    for second in range(len(kernel)):
        own = second // SEGMENT_S
        before = [part for part in parts[:own] if part is not None][-NORMAL_SEGMENTS:] or [parts[own] or (0, 0)]
        found.append((median_low([part[0] for part in before]), median_low([part[1] for part in before])))
    return found


columns = st.lists(st.sampled_from([0, 20, 100, 400, 700, 949, 950, 980, 1000]), min_size=1, max_size=45)


@examples(25)
# Not next to the end of a segment, which a gap would move.
@given(
    kernel=columns, gaps=st.sets(st.integers(0, 44).filter(lambda at: 0 < at % SEGMENT_S < SEGMENT_S - 1), max_size=3)
)
def test_stalls_and_deviations_are_what_a_plain_count_says(kernel: list[int], gaps: set[int]) -> None:
    shares: list[int | None] = [None if second in gaps else share for second, share in enumerate(kernel)]
    if shares[-1] is None:
        return
    with TemporaryDirectory() as place:
        recording = write(Path(place), [[share] for share in shares])
        window = Window(*seconds(0, len(shares)))
        grids = {measure: recording.cores(window, len(shares), measure) for measure in UNUSUAL_MEASURES}
    stalls = runs([share is not None and share >= HELD_PERMILLE for share in shares])
    usual = normals(shares)
    high = [share is not None and share >= HELD_PERMILLE for share in shares]
    unusual = runs(
        [
            each and (share or 0) - own >= LEAST_DEVIATION
            for each, share, (own, _) in zip(high, shares, usual, strict=True)
        ]
    )
    for second, (normal, spread) in enumerate(usual):
        share = shares[second]
        if share is None:
            continue
        read = {measure: decode_unusual(measure, int(grid.values[0, second])) for measure, grid in grids.items()}
        assert read["stall"].stall_ms == min(stalls[second], LONGEST_STALL_S) * 1000
        assert read["deviation"].deviation_permille == max(0, share - normal)
        if unusual[second]:
            assert read["unusual"].stall_ms == min(unusual[second], LONGEST_STALL_S) * 1000
        else:
            deviation = read["deviation"].deviation_permille
            shown = deviation // 2 * 2 if deviation >= max(LEAST_DEVIATION, LEAST_SPREADS * spread) else 0
            assert read["unusual"].deviation_permille == shown


@pytest.fixture
def held(tmp_path: Path) -> Recording:
    """Three minutes of two cores; core 1 is held for 25 seconds, over the ends of segments."""
    kernel: list[list[int | None]] = [[30, 1000 if 97 <= second < 122 else 40] for second in range(180)]
    return write(tmp_path, kernel)


@pytest.mark.parametrize("since", sampled([110, 0, 60, 90, 121], every=5))
@pytest.mark.parametrize("measure", UNUSUAL_MEASURES)
def test_a_second_is_as_unusual_in_every_view(held: Recording, since: int, measure: str) -> None:
    whole = held.cores(Window(*seconds(0, 180)), 180, measure)
    part = held.cores(Window(*seconds(since, 180)), 180 - since, measure)
    assert part.values.tolist() == whole.values[:, since:].tolist()
    assert part.dominant.tolist() == whole.dominant[:, since:].tolist()


def test_a_stall_is_seen_where_it_ends_at_every_zoom(held: Recording) -> None:
    for cells in (180, 36, 9, 3, 1):
        grid = held.cores(Window(*seconds(0, 180)), cells, "stall")
        core, cell = np.unravel_index(int(np.argmax(grid.values)), grid.values.shape)
        assert (core, cell) == (1, 121 * cells // 180)
        assert decode_unusual("stall", int(grid.values.max())).stall_ms == 25_000
        assert CELL_STATES[grid.dominant[core, cell]] == "system"


def test_cells_of_less_than_a_second_show_the_second_that_covers_them(held: Recording) -> None:
    grid = held.cores(Window(*seconds(120, 124)), 16, "stall")
    assert grid.values[1].tolist() == [2400] * 4 + [2500] * 4 + [0] * 8


def test_a_guest_is_held_by_what_the_hypervisor_leaves_it(tmp_path: Path) -> None:
    kernel: list[list[int | None]] = [[870 if 30 <= second < 35 else 20, 840] for second in range(60)]
    grid = write(tmp_path, kernel, stolen=100).cores(Window(*seconds(0, 60)), 60, "stall")
    assert [decode_unusual("stall", int(value)).stall_ms for value in grid.values.max(axis=1)] == [5000, 0]


def test_what_a_guest_loses_is_no_deviation_of_the_kernel(tmp_path: Path) -> None:
    """The kernel's share is as it always is: that of the time that is left holds the core, and is its normal."""
    kernel: list[list[int | None]] = [[600, 850 if 40 <= second < 45 else 20] for second in range(60)]
    recording = write(tmp_path, kernel, stolen=140)
    grids = {each: recording.cores(Window(*seconds(0, 60)), 60, each) for each in UNUSUAL_MEASURES}
    read = {each: decode_unusual(each, int(grid.values[1, 44])) for each, grid in grids.items()}
    assert (read["stall"].stall_ms, read["unusual"].stall_ms) == (5000, 5000)
    assert read["deviation"].deviation_permille == 830
    always = write(tmp_path / "always", [[700] for _ in range(60)], stolen=270)
    found = [always.cores(Window(*seconds(0, 60)), 60, each).values[0] for each in ("stall", "deviation", "unusual")]
    assert found[0].max() > 0 and found[1].max() == 0 and found[2].max() == 0


def test_tasks_that_wait_hold_a_core_unless_that_is_normal(tmp_path: Path) -> None:
    seconds_in_all = 60
    kernel: list[list[int | None]] = [[20, 20] for _ in range(seconds_in_all)]
    waits = [[2000, 1500 if 40 <= second < 44 else 10] for second in range(seconds_in_all)]
    recording = write(tmp_path, kernel, waits)
    window = Window(*seconds(0, seconds_in_all))
    stall, unusual = (recording.cores(window, seconds_in_all, measure) for measure in ("stall", "unusual"))
    assert stall.values[:, 43].tolist() == [4000, 400]
    assert [CELL_STATES[state] for state in stall.dominant[:, 43]] == ["wait", "wait"]
    # Tasks always wait for core 0.
    assert decode_unusual("unusual", int(unusual.values[0].max())).stall_ms == 0
    assert decode_unusual("unusual", int(unusual.values[1].max())).stall_ms == 4000


def test_a_core_that_is_nearly_full_of_the_kernel_is_unusual_only_far_above_that(tmp_path: Path) -> None:
    kernel: list[list[int | None]] = [[900, 700] for _ in range(60)]
    for second in range(40, 47):
        kernel[second] = [970, 970]
    recording = write(tmp_path, kernel)
    window = Window(*seconds(0, 60))
    stall, unusual = (recording.cores(window, 60, measure) for measure in ("stall", "unusual"))
    assert stall.values[:, 46].tolist() == [700, 700]
    assert decode_unusual("unusual", int(unusual.values[0].max())).stall_ms == 0
    assert decode_unusual("unusual", int(unusual.values[1].max())).stall_ms == 7000


def test_what_was_not_recorded_is_not_unusual(tmp_path: Path) -> None:
    kernel: list[list[int | None]] = [[None] if 12 <= second < 15 else [990] for second in range(20)]
    grid = write(tmp_path, kernel).cores(Window(*seconds(0, 20)), 20, "stall")
    assert grid.values[0, 12:15].tolist() == [GAP] * 3
    # The recorder does not know whether it was held in between.
    assert grid.values[0, 15:].tolist() == [100, 200, 300, 400, 500]

"""What is kept: bounded by size and age, the oldest goes first, and nothing else is touched."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.store.store_rows import FACTS, MONO, OFFSET, cpu_rows, recorder, sample_rows, tick_at

from exhume.model.clock import NANOS
from exhume.model.facts import RecordingFacts
from exhume.store.read.index import list_recording
from exhume.store.read.recording import Recording
from exhume.store.write.retention import RESERVE_BYTES
from exhume.store.write.writer import SegmentWriter


def record(writer: SegmentWriter, ticks: range, offset: int = OFFSET) -> None:
    for index in ticks:
        tick = tick_at(index, offset=offset)
        writer.append("cpu", cpu_rows(tick, cores=4, user=index % 1000))
        writer.commit(tick)
    writer.close()


def ticks_in(directory: Path) -> list[int]:
    return sorted(set(Recording.open(directory).read("cpu", None, ["user"]).column("user").to_pylist()))


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


@pytest.mark.slow
def test_size_is_bounded_and_the_newest_stays(tmp_path: Path) -> None:
    limit = 60_000
    record(recorder(tmp_path, segment_s=5, max_bytes=limit), range(200))
    assert size_of(tmp_path) <= limit
    ticks = ticks_in(tmp_path)
    assert ticks[0] > 0
    assert ticks == list(range(ticks[0], 200))


def test_a_limit_below_one_segment_still_keeps_one(tmp_path: Path) -> None:
    record(recorder(tmp_path, segment_s=5, max_bytes=10), range(20))
    assert ticks_in(tmp_path) == list(range(15, 20))


def test_age_is_bounded(tmp_path: Path) -> None:
    record(recorder(tmp_path, segment_s=5, max_age_s=30), range(100))
    assert ticks_in(tmp_path)[0] in range(60, 72)


def test_what_an_earlier_recorder_left_counts_too(tmp_path: Path) -> None:
    record(recorder(tmp_path, segment_s=5), range(50))
    record(recorder(tmp_path, segment_s=5, max_age_s=30), range(50, 100))
    assert ticks_in(tmp_path)[0] in range(60, 72)


def test_a_clock_set_forward_does_not_make_the_recording_old(tmp_path: Path) -> None:
    record(recorder(tmp_path, segment_s=5, max_age_s=1000), range(50))
    record(recorder(tmp_path, segment_s=5, max_age_s=1000), range(50, 100), OFFSET + 10**6 * NANOS)
    assert ticks_in(tmp_path) == list(range(100))


@pytest.mark.slow
def test_a_clock_set_back_does_not_make_new_segments_the_oldest(tmp_path: Path) -> None:
    record(recorder(tmp_path, segment_s=5), range(100))
    keep = size_of(tmp_path)
    record(recorder(tmp_path, segment_s=5, max_bytes=keep), range(100, 150), OFFSET - 3600 * NANOS)
    ticks = ticks_in(tmp_path)
    assert ticks[-1] == 149
    assert ticks[0] > 0
    # The next recorder finds the order in the names.
    record(recorder(tmp_path, segment_s=5, max_bytes=keep // 2), range(150, 155), OFFSET - 3600 * NANOS)
    assert ticks_in(tmp_path) == list(range(ticks_in(tmp_path)[0], 155))
    starts = [segment.name.start_ms for segment in list_recording(tmp_path).segments]
    assert starts == sorted(starts)


def test_an_earlier_boot_is_older_whatever_its_monotonic_clock_says(tmp_path: Path) -> None:
    record(recorder(tmp_path, segment_s=5), range(400, 450))
    facts = {name: getattr(FACTS, name) for name in ("node", "cores", "kernel", "arch", "event_source", "rate_hz")}
    later = RecordingFacts(**facts, boot_id="0badcafe" + "0" * 24)
    writer = SegmentWriter(tmp_path, later, max_bytes=None, max_age_s=None, segment_s=5)
    record(writer, range(10), OFFSET + 1000 * NANOS)
    boots = [segment.name.boot for segment in list_recording(tmp_path).segments]
    assert boots == ["1f0c5a9e"] * 10 + ["0badcafe"] * 2


def another_boot(directory: Path, **limits: Any) -> SegmentWriter:
    facts = {name: getattr(FACTS, name) for name in ("node", "cores", "kernel", "arch", "event_source", "rate_hz")}
    later = RecordingFacts(**facts, boot_id="0badcafe" + "0" * 24)
    return SegmentWriter(directory, later, **{"max_bytes": None, "max_age_s": None, **limits}, segment_s=5)


def test_an_earlier_boot_with_a_clock_in_the_future_ages_out(tmp_path: Path) -> None:
    record(recorder(tmp_path, segment_s=5), range(400, 420), OFFSET + 10**6 * NANOS)
    # Long after this boot began: whatever came before is older than that.
    since_boot = MONO // NANOS
    record(another_boot(tmp_path, max_age_s=since_boot - 10), range(10))
    assert ticks_in(tmp_path) == list(range(10))


def test_an_earlier_boot_with_a_clock_in_the_future_goes_first(tmp_path: Path) -> None:
    record(recorder(tmp_path, segment_s=5), range(400, 420), OFFSET + 10**6 * NANOS)
    record(another_boot(tmp_path), range(10))
    keep = size_of(tmp_path)
    record(another_boot(tmp_path, max_bytes=keep), range(10, 20))
    ticks = ticks_in(tmp_path)
    assert set(range(10, 20)) <= set(ticks)
    assert max(ticks) < 400


def test_a_boot_whose_clock_was_ahead_for_a_while_is_not_the_newest(tmp_path: Path) -> None:
    record(recorder(tmp_path, segment_s=5), range(20))
    record(recorder(tmp_path, segment_s=5), range(20, 25), OFFSET + 3600 * NANOS)
    record(recorder(tmp_path, segment_s=5), range(25, 40))
    assert Recording.open(tmp_path).newest() == MONO + 40 * NANOS + OFFSET
    writer = another_boot(tmp_path)
    record(writer, range(10), OFFSET + 1000 * NANOS)
    recording = Recording.open(tmp_path)
    assert recording.segments[-1].name.boot == "0badcafe"
    assert recording.newest() == MONO + 10 * NANOS + OFFSET + 1000 * NANOS


@pytest.mark.slow
def test_the_size_limit_counts_what_is_not_sealed_yet(tmp_path: Path) -> None:
    """Rows of noise, thirty times the limit within one minute."""
    limit = 4 << 20
    writer = recorder(tmp_path, max_bytes=limit)
    chance = np.random.default_rng(1)
    largest = 0
    for index in range(59):
        tick = tick_at(index)
        columns = sample_rows(tick, [(0, 1, "a", 1)] * 20_000)
        writer.append("samples", {**columns, "stack": chance.integers(0, 2**63, 20_000, np.int64)})
        writer.commit(tick)
        # The sealer is given its time, which ticks of a second would give it.
        while writer._sealer._active or writer._sealer._waiting:
            time.sleep(0.01)
        largest = max(largest, size_of(tmp_path) - RESERVE_BYTES)
    writer.close()
    assert 1 << 20 < largest <= limit

"""Reads can be cancelled and report their progress, in the context that set it and in no other."""

from contextvars import copy_context
from pathlib import Path

import pytest
from tests.store.store_rows import cpu_rows, recorder, sample_rows, tick_at

from exhume.model.clock import Window
from exhume.store.read.progress import Cancelled, set_cancel_check, set_progress_callback
from exhume.store.read.recording import Recording

ALWAYS = Window(0, 2**62)
SEGMENTS = 12


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """Enough segments for several threads to read them."""
    writer = recorder(tmp_path, segment_s=1)
    for index in range(SEGMENTS):
        tick = tick_at(index)
        writer.append("cpu", cpu_rows(tick))
        writer.append("samples", sample_rows(tick, [(0, 7, "a", 5)]))
        writer.commit(tick)
    writer.close()
    return Recording.open(tmp_path)


@pytest.mark.parametrize("query", ["profile", "rows", "cores"])
def test_a_cancelled_query_ends_before_the_next_file(recording: Recording, query: str) -> None:
    checks: list[bool] = []

    def is_cancelled() -> bool:
        checks.append(len(checks) >= 3)
        return checks[-1]

    def cancelled() -> None:
        set_cancel_check(is_cancelled)
        with pytest.raises(Cancelled):
            run(recording, query)

    copy_context().run(cancelled)
    assert checks.count(False) == 3
    before = len(checks)
    run(recording, query)
    assert len(checks) == before


def run(recording: Recording, query: str) -> None:
    if query == "profile":
        assert recording.profile(ALWAYS).samples == SEGMENTS
    elif query == "rows":
        assert recording.read("samples", ALWAYS).num_rows == SEGMENTS
    else:
        assert recording.cores(ALWAYS, SEGMENTS).cells == SEGMENTS


def test_progress_counts_segments(recording: Recording) -> None:
    counts = [0, 0]

    def progress(done: int, total: int) -> None:
        counts[0] += done
        counts[1] += total

    def profile() -> None:
        set_progress_callback(progress)
        recording.profile(ALWAYS)

    copy_context().run(profile)
    assert counts == [SEGMENTS, SEGMENTS]
    recording.profile(ALWAYS)
    assert counts == [SEGMENTS, SEGMENTS]

"""Samples by core and thread on a time axis: nothing is lost, nothing overlaps, and times stay what they were."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.interop.tracks import BY, CORE, SLACK_US, Track, parts, runs, tracks
from exhume.store.read.profile import SampleTable
from exhume.store.read.stacks import FrameTable

times = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 40_000)), min_size=1, max_size=40).map(sorted)


def table(taken: list[tuple[int, int]]) -> SampleTable:
    """Samples of one thread on one core, as (millisecond, weight)."""
    zeros = np.zeros(len(taken), np.int64)
    walls = np.array([ms for ms, _ in taken], np.int64) * 1_000_000
    weights = np.array([weight for _, weight in taken], np.int64)
    frames = FrameTable(["user"], ["/bin/a"], ["main"])
    stacks, offsets, members = np.array([7], np.uint64), np.array([0, 1]), np.array([0])
    return SampleTable(
        walls, zeros, zeros + 5, zeros + 6, ["a"], zeros, weights, stacks, zeros, frames, offsets, members
    )


@given(times)
def test_runs_keep_weights_and_order_and_begin_when_they_were_taken(taken):
    samples = table(taken)
    found = list(runs(samples, tracks(samples, CORE)[0], 0))
    assert [end - begin for begin, end, _, _ in found] == samples.weights_us.tolist()
    before = 0
    for (begin, end, row, _), (ms, _) in zip(found, taken, strict=True):
        assert begin >= before
        # Later only where the one before was still there, earlier only within the slack.
        assert begin == before or begin == ms * 1000
        assert begin >= ms * 1000 - SLACK_US
        before = end
        assert samples.walls[row] == ms * 1_000_000


@pytest.mark.parametrize("by", BY)
def test_every_sample_is_on_one_track(samples, by):
    found = tracks(samples, by)
    assert sorted(np.concatenate([track.rows for track in found]).tolist()) == list(range(len(samples)))
    for track in found:
        assert np.all(np.diff(samples.walls[track.rows]) >= 0)
        of = {"cpu": samples.cpus, "pid": samples.pids, "tid": samples.tids}
        for name, value in track.labels:
            assert set(of[name][track.rows].tolist()) == {value}


@pytest.mark.parametrize("by", BY)
def test_sums_of_the_parts_are_those_of_the_whole(samples, recording, window, by):
    whole, found = recording.profile(window), parts(samples, by)
    assert sum(part.profile.samples for part in found) == whole.samples
    assert sum(part.profile.weight_us for part in found) == whole.weight_us


def test_no_samples_are_no_tracks():
    nothing = table([])
    assert [tracks(nothing, by) for by in BY] == [[], []]
    assert list(runs(nothing, Track("none", np.zeros(0, np.int64)), 0)) == []

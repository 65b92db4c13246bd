"""Profiles: the samples of a window, summed by command and stack."""

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.store_rows import loss_row, recorder, sample_rows, seconds, tick_at

from exhume.lab.synth import write_synthetic
from exhume.model.clock import NANOS, Window
from exhume.model.errors import UsageError
from exhume.store.read import profile
from exhume.store.read.flame_tree import build_tree
from exhume.store.read.index import gaps_between
from exhume.store.read.profile import ProfileFilter, StackProfile
from exhume.store.read.recording import Recording
from exhume.store.read.stacks import UNKNOWN_FRAME, FrameTable, ResolvedStacks
from exhume.store.write.writer import SegmentWriter

FRAMES = {11: "start_thread", 12: "poll", 13: "mem_cgroup_nr_lru_pages", 14: "spin"}
STACKS = {1: [11, 12], 2: [11, 12, 13], 3: [11, 14], 4: []}
ALWAYS = Window(0, 2**62)


def _in_seconds(window: Window) -> Window:
    return Window(window.since * NANOS, window.until * NANOS)


def tell(writer: SegmentWriter) -> None:
    count = len(FRAMES)
    kinds, modules = ["kernel"] * count, ["[kernel]"] * count
    writer.append("frames", {"frame": list(FRAMES), "kind": kinds, "module": modules, "name": list(FRAMES.values())})
    writer.append("stacks", {"stack": list(STACKS), "frames": list(STACKS.values())})
    tick = tick_at(0)
    processes = {"time": [tick.start] * 2, "pid": [100, 200], "container": ["c0ffee11", None], "pod": ["pod-a", None]}
    writer.append("processes", processes)
    # The same pod and container, recorded with their names by another process of theirs.
    named = {"time": [tick.start], "pid": [101], "container": ["c0ffee11"], "pod": ["pod-a"]}
    writer.append("processes", {**named, "pod_name": ["shop/cart-0"], "container_name": ["shop/cart-0/web"]})


def record(directory: Path, ticks: int = 1, close: bool = True) -> SegmentWriter:
    writer = recorder(directory)
    begins = True
    for index in range(ticks):
        if begins:
            tell(writer)
        tick = tick_at(index)
        samples = [(0, 100, "kubelet", 1), (1, 100, "kubelet", 2), (1, 200, "stress", 3), (0, 200, "stress", 3)]
        writer.append("samples", sample_rows(tick, samples))
        begins = writer.commit(tick)
    if close:
        writer.close()
    return writer


def folded(profile: StackProfile) -> dict[str, int]:
    """`command;root;...;leaf` -> samples, as people read a profile."""
    names = profile.frames.names
    stacks = [[names[i] for i in stack] for stack in profile.stacks]
    rows = zip(profile.comm_index, profile.stack_index, profile.counts, strict=True)
    return {";".join([profile.comms[comm], *stacks[stack]]): int(count) for comm, stack, count in rows}


WHOLE = {
    "kubelet;start_thread;poll": 1,
    "kubelet;start_thread;poll;mem_cgroup_nr_lru_pages": 1,
    "stress;start_thread;spin": 2,
}


@pytest.mark.parametrize("close", [True, False], ids=["sealed", "live"])
def test_samples_are_summed_by_command_and_stack(tmp_path: Path, close: bool) -> None:
    writer = record(tmp_path, close=close)
    profile = Recording.open(tmp_path).profile(ALWAYS)
    assert folded(profile) == WHOLE
    assert profile.samples == 4
    assert profile.weight_us == 40_000
    assert profile.blind_spots == []
    assert set(profile.frames.kinds) == {"kernel"}
    if not close:
        writer.close()


def test_segments_add_up(tmp_path: Path) -> None:
    record(tmp_path, ticks=150)
    recording = Recording.open(tmp_path)
    assert len(recording.segments) == 3
    assert folded(recording.profile(ALWAYS)) == {line: count * 150 for line, count in WHOLE.items()}
    assert folded(recording.profile(Window(*seconds(58, 63)))) == {line: count * 5 for line, count in WHOLE.items()}


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("synthetic") / "r"
    write_synthetic(directory, cores=2, hours=12 / 60, seed=3)
    return directory


@pytest.mark.slow
@pytest.mark.parametrize("fold_rows", [1, 3, 500_000])
def test_sums_are_the_same_however_often_they_are_folded(synthetic: Path, monkeypatch, fold_rows: int) -> None:
    monkeypatch.setattr(profile, "_FOLD_ROWS", fold_rows)
    recording = Recording.open(synthetic)
    # More segments than are read at once.
    assert len(recording.segments) >= 2 * profile._AHEAD
    whole = recording.profile(recording.span() or Window(0, 0))
    parts = [recording.profile(segment.name.span) for segment in recording.segments]
    assert (whole.samples, whole.weight_us) == (sum(p.samples for p in parts), sum(p.weight_us for p in parts))
    pairs = list(zip(whole.comm_index.tolist(), whole.stack_index.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)


@pytest.mark.parametrize(
    ("wanted", "lines"),
    [
        (ProfileFilter(comm="stress"), ["stress;start_thread;spin"]),
        (ProfileFilter(pid=200), ["stress;start_thread;spin"]),
        (ProfileFilter(cpus={0}, comm="kubelet"), ["kubelet;start_thread;poll"]),
        (ProfileFilter(stack_regex="mem_cgroup|spin"), list(WHOLE)[1:]),
        (ProfileFilter(stack_regex="^poll$"), list(WHOLE)[:2]),
        (ProfileFilter(container="c0ffee"), list(WHOLE)[:2]),
        (ProfileFilter(pod="pod-a", cpus={1}), list(WHOLE)[1:2]),
        (ProfileFilter(pod="shop/cart-0"), list(WHOLE)[:2]),
        (ProfileFilter(pod="cart"), list(WHOLE)[:2]),
        (ProfileFilter(pod="art"), []),
        (ProfileFilter(pod="shop/web"), []),
        (ProfileFilter(container="shop/cart-0/w"), list(WHOLE)[:2]),
        (ProfileFilter(container="shop/cart-1"), []),
        (ProfileFilter(comm="nobody"), []),
        (ProfileFilter(container="nobody"), []),
        (ProfileFilter(cpus=set()), []),
    ],
)
def test_filters(tmp_path: Path, wanted: ProfileFilter, lines: list[str]) -> None:
    record(tmp_path)
    assert sorted(folded(Recording.open(tmp_path).profile(ALWAYS, wanted))) == sorted(lines)


def test_a_bad_expression_is_said_in_a_sentence(tmp_path: Path) -> None:
    record(tmp_path)
    with pytest.raises(UsageError, match="not a regular expression"):
        Recording.open(tmp_path).profile(ALWAYS, ProfileFilter(stack_regex="("))


def test_no_expression_takes_long() -> None:
    """One that tries every way to divide a name would double its time with each letter."""
    frames = FrameTable(["user"], ["/bin/x"], ["a" * 26 + "b"])
    stacks = ResolvedStacks(frames, np.array([0, 1]), np.array([0]), 0)
    began = time.process_time()
    assert ProfileFilter(stack_regex="^(a+)+$").keeps(stacks).tolist() == [False]
    assert ProfileFilter(stack_regex="^(a+)+b$").keeps(stacks).tolist() == [True]
    assert time.process_time() - began < 1


def test_an_empty_stack_and_an_untold_one_are_not_confused(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    tell(writer)
    writer.append("samples", sample_rows(tick_at(0), [(0, 1, "a", 4), (0, 1, "b", 99)]))
    writer.commit(tick_at(0))
    writer.close()
    profile = Recording.open(tmp_path).profile(ALWAYS)
    assert folded(profile) == {"a": 1, f"b;{UNKNOWN_FRAME}": 1}
    assert any("1 stacks" in line for line in profile.blind_spots)


def test_frames_that_were_not_recorded_are_one_unknown_frame(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    writer.append("frames", {"frame": [11], "kind": ["kernel"], "module": ["[kernel]"], "name": ["start_thread"]})
    writer.append("stacks", {"stack": [1, 2], "frames": [[11, 12], [11, 13]]})
    writer.append("samples", sample_rows(tick_at(0), [(0, 1, "a", 1), (0, 1, "a", 2), (0, 1, "a", 99)]))
    writer.commit(tick_at(0))
    writer.close()
    profile = Recording.open(tmp_path).profile(ALWAYS)
    assert profile.frames.names == ["start_thread", UNKNOWN_FRAME]
    tree = build_tree(profile)
    weights = {tuple(map(tree.name, tree.path(node))): int(tree.samples[node]) for node in range(1, len(tree))}
    inside = {("a", "start_thread"): 2, ("a", "start_thread", UNKNOWN_FRAME): 2}
    assert weights == {("a",): 3, **inside, ("a", UNKNOWN_FRAME): 1}


def test_losses_are_blind_spots(tmp_path: Path) -> None:
    writer = recorder(tmp_path)
    tell(writer)
    writer.append("losses", loss_row(tick_at(0), 17))
    writer.commit(tick_at(0))
    writer.close()
    recording = Recording.open(tmp_path)
    assert recording.profile(ALWAYS).blind_spots == ["test: 17 lost: for a test"]
    assert recording.profile(Window(*seconds(5, 6))).blind_spots == []
    assert [loss.count for loss in recording.losses()] == [17]


def test_what_was_not_recorded_is_a_blind_spot(tmp_path: Path) -> None:
    record(tmp_path, ticks=10)
    writer = recorder(tmp_path)
    tell(writer)
    for index in (40, 41):
        writer.append("samples", sample_rows(tick_at(index), [(0, 1, "a", 1)]))
        writer.commit(tick_at(index))
    writer.close()
    recording = Recording.open(tmp_path)
    assert recording.gaps(ALWAYS) == [Window(*seconds(10, 40))]
    assert recording.gaps(Window(*seconds(0, 10))) == []
    profile = recording.profile(Window(*seconds(0, 42)))
    assert profile.samples == 42
    assert profile.blind_spots == ["nothing was recorded in 30 of the 42 seconds"]
    assert recording.profile(Window(*seconds(20, 25))).blind_spots == ["nothing was recorded in 5 of the 5 seconds"]
    assert recording.profile(Window(*seconds(0, 5))).blind_spots == []


@given(
    st.lists(st.builds(Window, st.integers(0, 100), st.integers(0, 100)).map(_in_seconds), max_size=8),
    st.builds(Window, st.integers(0, 100), st.integers(0, 100)).map(_in_seconds),
)
def test_gaps_are_what_no_span_covers(spans: list[Window], window: Window) -> None:
    gaps = gaps_between(spans, window)
    for second in range(100):
        moment = second * NANOS
        covered = any(span.contains(moment) for span in spans)
        in_gap = any(gap.contains(moment) for gap in gaps)
        assert not (covered and in_gap)
        if window.contains(moment) and not covered and not in_gap:
            # Only a gap of a second or less goes unmentioned.
            neighbours = [any(span.contains(moment + step) for span in spans) for step in (-NANOS, NANOS)]
            at_the_edge = not window.contains(moment - NANOS), not window.contains(moment + NANOS)
            assert all(near or edge for near, edge in zip(neighbours, at_the_edge, strict=True))

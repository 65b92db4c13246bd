"""Following a live recording: each row once, over the ends of segments, with damage named."""

import os

import pytest
from tests.replay import Replay
from tests.synthetic import synthetic_recording

from exhume.store.read.index import live_segments
from exhume.store.read.recording import Recording
from exhume.store.read.tail import Tail

TABLES = ("cpu", "samples", "events", "losses", "processes", "stacks", "frames")


@pytest.fixture
def replay(tmp_path, tmp_path_factory):
    source = synthetic_recording(tmp_path_factory, cores=8, minutes=4, seed=7).directory
    with Replay(source, tmp_path / "r") as replay:
        yield replay


def rows_in(found, table):
    return sum(rows[table].num_rows for _, rows in found if table in rows)


def test_each_row_comes_once(replay):
    tail = Tail(replay.directory, TABLES)
    assert tail.poll() == []
    replay.play(3)
    first = tail.poll()
    assert [len(rows["anchors"]) for _, rows in first] == [3]
    assert tail.poll() == []
    replay.play(2)
    second = tail.poll()
    assert rows_in(second, "cpu") == 2 * 8
    assert rows_in(second, "stacks") == 0
    whole = Recording.open(replay.directory)
    for table in ("cpu", "samples", "processes", "stacks", "frames"):
        assert rows_in(first, table) + rows_in(second, table) == whole.read(table).num_rows, table
    assert tail.facts is not None
    assert tail.facts.node == whole.facts.node
    assert not tail.damaged
    tail.close()


def test_what_was_written_last_is_read_after_the_segment_was_sealed(replay):
    tail = Tail(replay.directory, TABLES)
    replay.play(2)
    tail.poll()
    # The last tick of a segment, with the first rows of a table; then it is sealed.
    replay.writer.append("losses", {"time": [0], "source": ["x"], "kind": ["y"], "count": [4], "text": ["z"]})
    replay.writer.relabel({"pool": "b"})
    replay.play(1)
    replay.writer._sealer.close()
    assert not live_segments(replay.directory)
    late = tail.poll()
    assert rows_in(late, "cpu") == 8
    replay.play(1)
    new = tail.poll()
    assert rows_in(new, "losses") == 1
    assert rows_in(new, "cpu") == 8
    assert rows_in(new, "stacks") > 0
    assert tail.facts is not None
    assert tail.facts.labels == {"pool": "b"}
    tail.close()


def test_half_a_message_is_read_when_it_is_whole(replay):
    tail = Tail(replay.directory, ("cpu",))
    replay.play(1)
    (segment,) = live_segments(replay.directory)
    file = segment.file("cpu")
    before = file.stat().st_size
    replay.play(1)
    whole = file.read_bytes()
    os.truncate(file, (before + len(whole)) // 2)
    assert rows_in(tail.poll(), "cpu") == 8
    file.write_bytes(whole)
    replay.play(1)
    assert rows_in(tail.poll(), "cpu") == 16
    tail.close()


def test_a_damaged_file_is_named_and_the_others_are_read(replay):
    tail = Tail(replay.directory, ("cpu", "samples"))
    replay.play(1)
    tail.poll()
    (segment,) = live_segments(replay.directory)
    before = segment.file("samples").stat().st_size
    replay.play(1)
    content = bytearray(segment.file("samples").read_bytes())
    content[(before + len(content)) // 2] ^= 0xFF
    segment.file("samples").write_bytes(content)
    found = tail.poll()
    assert rows_in(found, "cpu") == 8
    assert rows_in(found, "samples") == 0
    assert list(tail.damaged) == [segment.file("samples")]
    assert rows_in(tail.poll(), "samples") == 0
    tail.close()


def test_a_recording_that_waits_to_be_sealed_is_not_followed(replay):
    """Of what a killed recorder left, and what one writes now, the newer one is followed."""
    replay.play(2)
    (old,) = live_segments(replay.directory)
    replay.writer._segment, replay.writer._files = None, {}
    replay.play(1)
    tail = Tail(replay.directory, ("cpu",))
    assert live_segments(replay.directory)[0].name.key == old.name.key
    assert rows_in(tail.poll(), "cpu") == 8
    tail.close()

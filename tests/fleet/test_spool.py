"""The spool: what was committed is there after a kill, what was not is made again, and it has bounds."""

import json
import os
import time

import pytest
from tests.fleet.fleet_rows import summaries

from exhume.fleet.batch import decode
from exhume.fleet.spool import Spool, SpoolError


def opened(tmp_path, **bounds) -> Spool:
    return Spool(tmp_path / "push", **bounds)


def commit(spool: Spool, minutes: int = 1) -> None:
    spool.commit("node-1", {"summaries": summaries(minutes)})


def test_batches_are_numbered_and_come_oldest_first(tmp_path):
    spool = opened(tmp_path)
    for _ in range(3):
        commit(spool)
    entries = spool.entries()
    assert [entry.seq for entry in entries] == [0, 1, 2]
    assert [decode(entry.read()).seq for entry in entries] == [0, 1, 2]
    spool.remove(entries[0])
    assert [entry.seq for entry in spool.entries()] == [1, 2]


def test_numbers_go_on_after_a_restart(tmp_path):
    spool = opened(tmp_path)
    commit(spool)
    spool.remove(spool.entries()[0])
    spool.close()
    spool = opened(tmp_path)
    commit(spool)
    assert [entry.seq for entry in spool.entries()] == [1]


def test_what_was_not_committed_before_a_kill_is_removed(tmp_path):
    spool = opened(tmp_path)
    commit(spool)
    # Killed between the file and the commit.
    (tmp_path / "push" / f"{1:012d}-3.json.gz").write_bytes(b"whatever")
    (tmp_path / "push" / f"{2:012d}-{'a' * 16}.exhume.zip").write_bytes(b"whatever")
    spool.close()
    assert [entry.seq for entry in opened(tmp_path).entries()] == [0]


def test_a_commit_that_fails_leaves_nothing(tmp_path, monkeypatch):
    spool = opened(tmp_path)
    commit(spool)

    def full(self):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Spool, "_save", full)
    spool.state.cursor = ("aaaaaaaa", 7)
    with pytest.raises(SpoolError):
        commit(spool)
    monkeypatch.undo()
    assert [entry.seq for entry in spool.entries()] == [0]
    assert spool.state.cursor is None
    commit(spool)
    assert [entry.seq for entry in spool.entries()] == [0, 1]


def test_past_its_bound_bundles_go_first_then_the_oldest_minutes_and_are_counted(tmp_path):
    spool = opened(tmp_path, max_bytes=6000)
    spool.place_of_bundle("a" * 16).write_bytes(os.urandom(5000))
    commit(spool, minutes=2)
    assert [entry.incident for entry in spool.entries()] == ["a" * 16, None]
    for _ in range(40):
        commit(spool, minutes=2)
    entries = spool.entries()
    assert sum(entry.path.stat().st_size for entry in entries) <= 6000
    assert {entry.incident for entry in entries} == {None}
    assert entries[-1].seq == spool.state.next - 1, "the newest is kept"
    assert spool.state.dropped_minutes == 2 * (41 - len(entries))
    assert [entry.seq for entry in entries] == list(range(entries[0].seq, spool.state.next))


def test_what_is_too_old_goes(tmp_path):
    spool = opened(tmp_path, max_age_s=3600)
    commit(spool, minutes=5)
    old = time.time() - 3700
    os.utime(spool.entries()[0].path, (old, old))
    commit(spool)
    assert [entry.seq for entry in spool.entries()] == [1]
    assert spool.state.dropped_minutes == 5


def test_two_processes_do_not_share_a_spool(tmp_path):
    spool = opened(tmp_path)
    with pytest.raises(SpoolError, match="another process"):
        opened(tmp_path)
    spool.close()
    opened(tmp_path)


def test_numbered_again_under_another_id(tmp_path):
    spool = opened(tmp_path)
    before = spool.state.spool
    for _ in range(2):
        commit(spool)
    spool.renumber()
    assert spool.state.spool != before
    assert {decode(entry.read()).spool for entry in spool.entries()} == {spool.state.spool}
    spool.close()
    assert opened(tmp_path).state.spool == spool.state.spool


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 9}', '{"version": 1, "cursor": [1]}'])
def test_a_damaged_state_begins_again_under_another_id(tmp_path, content):
    spool = opened(tmp_path)
    commit(spool)
    before = spool.state.spool
    spool.close()
    (tmp_path / "push/state.json").write_text(content)
    spool = opened(tmp_path)
    assert spool.state.spool != before
    assert spool.entries() == []


def test_the_state_comes_back(tmp_path):
    spool = opened(tmp_path)
    spool.state.cursor, spool.state.attributes = ("aaaaaaaa", 7), {"zone": "b"}
    commit(spool)
    spool.close()
    state = opened(tmp_path).state
    assert (state.cursor, state.attributes, state.next) == (("aaaaaaaa", 7), {"zone": "b"}, 1)
    assert json.loads((tmp_path / "push/state.json").read_text())["version"] == 1

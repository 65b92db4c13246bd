"""Disks and directories that fail the recorder: full, read-only, vanished, foreign, or somebody else's."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.on_time import on_time
from tests.system.faults.recorder_process import (
    MISSING,
    PATIENCE_S,
    PROGRAM,
    RecorderProcess,
    anchor_count,
    clean_words,
    exhume,
    fill,
    losses,
    monotonic,
    rows,
    seconds,
    until,
    until_rows_are_dropped,
)

from exhume.model.facts import FORMAT_VERSION
from exhume.store.format.schema import FACTS_KEY
from exhume.store.read.recording import Recording
from exhume.store.write.sealer import SYNC_S

pytestmark = pytest.mark.root

Start = Callable[..., RecorderProcess]

# Power cuts, a tick or more from each other; and what one may cost beyond the time between two syncs: the tick that was
# going on, and the sync itself on a disk that others use.
CUTS, MORE_S = 8, 3.0


def refused(recorder: RecorderProcess) -> str:
    """The one sentence of a recorder that could not run."""
    assert recorder.wait() == 2
    clean_words(recorder)
    said = [line for line in recorder.err.splitlines() if not line.startswith(MISSING)]
    assert len(said) == 1
    assert said[0].startswith("exhume: ")
    return said[0]


def info(directory: Path) -> dict[str, Any]:
    return exhume("info", "--dir", directory)


def test_a_disk_that_fills_up_is_survived_and_counted(small_disk: Path, start: Start) -> None:
    directory = small_disk / "recording"
    recorder = start(directory).ticks(2)
    ballast = fill(small_disk)
    until_rows_are_dropped(recorder)
    ballast.unlink()
    freed_at = monotonic()

    def ticks_again() -> bool:
        """Four ticks in a row, of which each begins where the one before ended: none was dropped in between."""
        ends = [row["time"] for row in rows(directory, "anchors") if row["time"] > freed_at][-4:]
        begins = {row["time"] for row in rows(directory, "self")}
        return len(ends) == 4 and begins.issuperset(ends[:-1])

    until("it recovers by itself", ticks_again, every=0.2)
    assert recorder.stop() == 0
    clean_words(recorder)
    lost = losses(directory)["disk-full"]
    reported = re.search(r"^lost: .*\bdisk-full ([\d,]+)", recorder.out, re.MULTILINE)
    # The last words count all of them; of the rows that count, some may have had to go with the oldest.
    assert reported
    assert int(reported[1].replace(",", "")) >= lost > 0
    assert info(directory)["skipped"] == []
    flame = small_disk / "flame.folded"
    words = [PROGRAM, "flame", "--dir", directory, "-o", flame]
    subprocess.run(words, check=True, timeout=PATIENCE_S, capture_output=True)
    assert flame.stat().st_size > 0


def test_on_a_full_disk_the_oldest_segment_goes_first(small_disk: Path, start: Start) -> None:
    directory = small_disk / "recording"
    for _ in range(3):
        assert start(directory).ticks(1).stop() == 0
    kept = [segment.path for segment in Recording.open(directory).segments]
    ballast = fill(small_disk)
    recorder = start(directory)
    until("the oldest goes", lambda: not kept[0].exists())
    until_rows_are_dropped(recorder)
    # The newest is looked at first: meanwhile more may go.
    gone = [not path.exists() for path in reversed(kept)]
    assert gone == sorted(gone), "never a newer one before an older one"
    assert kept[-1].exists(), "the newer half stays, whatever fills the disk"
    ballast.unlink()
    recorder.ticks(2)
    assert recorder.stop() == 0, recorder.err
    clean_words(recorder)


def test_no_room_even_for_the_first_segment(small_disk: Path, start: Start) -> None:
    directory = small_disk / "recording"
    ballast = fill(small_disk)
    recorder = start(directory).recording()
    until_rows_are_dropped(recorder)
    ballast.unlink()
    recorder.ticks(2)
    assert recorder.stop() == 0
    clean_words(recorder)
    assert losses(directory)["disk-full"] > 0


def test_a_full_disk_until_the_end_leaves_what_was_before(small_disk: Path, start: Start) -> None:
    # Each minute has a segment of its own, and the oldest makes room for a newer one: it is to be the only one.
    for attempt in range(3):
        directory, minute = small_disk / f"recording-{attempt}", time.time() // 60
        recorder = start(directory).ticks(2)
        ballast = fill(small_disk)
        assert recorder.stop() == 0, recorder.err
        clean_words(recorder)
        if time.time() // 60 == minute:
            break
        ballast.unlink()
        shutil.rmtree(directory)
    assert anchor_count(directory) >= 2


def test_a_disk_without_a_free_inode_is_one_sentence(tmp_path: Path, start: Start) -> None:
    disk = tmp_path / "inodes"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,nr_inodes=1", "tmpfs", str(disk)], check=True)
    try:
        assert "no space left on device; free some space" in refused(start(disk / "recording"))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_read_only_disk_is_one_sentence(small_disk: Path, start: Start) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    sentence = refused(start(small_disk / "recording"))
    assert "read-only file system" in sentence
    assert "--dir" in sentence


def test_a_disk_that_turns_read_only_is_one_sentence_and_can_be_read(ext4_disk: Path, start: Start) -> None:
    directory = ext4_disk / "recording"
    recorder = start(directory).ticks(2)
    subprocess.run(["mount", "-o", "remount,abort", str(ext4_disk)], check=True)
    assert f"cannot record to {directory}: read-only file system; " in refused(recorder)
    assert anchor_count(directory) >= 2


@pytest.mark.paced
@pytest.mark.slow
def test_a_power_cut_costs_the_last_seconds(ext4_disk: Path, tmp_path: Path, start: Start) -> None:
    """A copy of the disk's image is what the disk has at that moment: what was not synced is in memory alone."""
    image, after = ext4_disk.with_name("image"), tmp_path / "after"
    after.mkdir()
    recorder = start(ext4_disk / "recording").ticks(round(SYNC_S) + 2)
    lost = []
    # Moments all over the time between two syncs.
    for number in range(CUTS):
        recorder.ticks(1)
        cut_at, copy = monotonic(), tmp_path / f"cut-{number}"
        shutil.copy(image, copy)
        subprocess.run(["mount", "-o", "loop", copy, after], check=True)
        try:
            kept = [row["time"] for row in rows(after / "recording", "anchors")]
            assert Recording.open(after / "recording").skipped == []
            lost.append(seconds(cut_at - kept[-1]))
            if number == CUTS - 1:
                again = start(after / "recording", "--for", "1s")
                assert again.wait() == 0, again.err
                assert [row["time"] for row in rows(after / "recording", "anchors")][: len(kept)] == kept
        finally:
            subprocess.run(["umount", after], check=True)
            copy.unlink()
    assert recorder.stop() == 0
    print("lost, in seconds: " + " ".join(f"{each:.1f}" for each in lost))
    assert max(lost) <= SYNC_S + MORE_S


def test_a_vanished_directory_is_one_sentence(tmp_path: Path, start: Start) -> None:
    directory = tmp_path / "recording"
    recorder = start(directory).ticks(1)

    def removed() -> bool:
        """The recorder makes files meanwhile, also in what was just found empty."""
        shutil.rmtree(directory, ignore_errors=True)
        return not directory.exists()

    until("the directory is gone", removed)
    assert f"{directory} was deleted while it was being recorded" in refused(recorder)
    assert not directory.exists(), "nothing was left in the place of a directory that somebody removed"


def test_a_directory_that_was_moved_away_is_one_sentence(tmp_path: Path, start: Start) -> None:
    directory, moved = tmp_path / "recording", tmp_path / "moved"
    recorder = start(directory).ticks(1)
    directory.rename(moved)
    recorder.send(signal.SIGTERM)
    sentence = refused(recorder)
    assert str(directory) in sentence
    assert anchor_count(moved) >= 1, "what was recorded went with it"


def test_a_directory_that_is_a_file_is_one_sentence(tmp_path: Path, start: Start) -> None:
    file = tmp_path / "recording"
    file.write_text("mine")
    assert "--dir" in refused(start(file))
    assert f"{file} is a file; name a directory with --dir" in refused(start(file / "below"))
    assert file.read_text() == "mine"


def test_a_path_without_permission_is_one_sentence(open_directory: Path, start: Start) -> None:
    locked = open_directory / "locked"
    locked.mkdir(mode=0o500)
    without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*without, PROGRAM, "--version"], capture_output=True, check=False).returncode != 0:
        # The interpreter belongs to root alone: even so, a directory that not even root may write to can be had.
        subprocess.run(["mount", "-t", "proc", "proc", str(locked)], check=True)
        try:
            assert "cannot record to" in refused(start(locked / "recording"))
        finally:
            subprocess.run(["umount", str(locked)], check=True)
        return
    sentence = refused(start(locked / "recording", under=without))
    assert "permission denied; make the directory writable" in sentence


def test_a_second_recorder_is_refused_and_names_the_first(tmp_path: Path, start: Start) -> None:
    first = start(tmp_path / "recording").ticks(1)
    assert f"process {first.pid};" in refused(start(tmp_path / "recording"))
    first.ticks(1)
    assert first.stop() == 0


def test_two_recorders_in_two_directories_get_along(tmp_path: Path, start: Start) -> None:
    """Neither costs the other a tick or a sample. A machine that is slow or busy otherwise may cost one of them a tick:
    then it is tried again. Two that are in each other's way would be so each time."""
    for attempt in range(5):
        with on_time():
            both = [start(tmp_path / f"{name}-{attempt}") for name in ("one", "two")]
        for recorder in both:
            recorder.ticks(2)
        assert [recorder.stop() for recorder in both] == [0, 0]
        lost = [losses(recorder.directory) for recorder in both]
        if not any("late-tick" in each for each in lost):
            break
    # Programs of other tests may be no ELF files.
    assert [kind for each in lost for kind in each if not kind.startswith("symbols-")] == []


def test_a_lock_that_a_dead_recorder_left_is_no_lock(tmp_path: Path, start: Start) -> None:
    directory = tmp_path / "recording"
    dead = start(directory).ticks(1)
    dead.kill()
    lock = directory / "recorder.lock"
    assert lock.read_text().strip() == str(dead.pid)
    recorder = start(directory).ticks(1)
    assert lock.read_text().strip() == str(recorder.pid)
    assert recorder.stop() == 0


def test_damaged_foreign_and_newer_files_are_named_and_the_rest_is_read(tmp_path: Path, start: Start) -> None:
    directory = tmp_path / "recording"
    for _ in range(2):
        assert start(directory).ticks(2).stop() == 0
    whole = info(directory)
    # Two of them, or more where a minute ended meanwhile.
    damaged, *_, other = (segment.path for segment in Recording.open(directory).segments)
    ticks = anchor_count(directory)
    os.truncate(damaged / "cpu.parquet", 100)
    newer = json.dumps({"format_version": FORMAT_VERSION + 1, "node": "later"})
    node = pq.read_table(other / "node.parquet").replace_schema_metadata({FACTS_KEY: newer})
    pq.write_table(node, other / "node.parquet")
    pq.write_table(pa.table({"time": [1]}), other / "threads.parquet")
    (directory / "notes.txt").write_text("mine")
    found = info(directory)
    reasons = {Path(each["path"]).name: each["reason"] for each in found["skipped"]}
    assert reasons == {
        "cpu.parquet": "truncated or damaged",
        "node.parquet": reasons["node.parquet"],
        "threads.parquet": "not written by exhume",
        "notes.txt": "not part of a recording",
    }
    assert "newer" in reasons["node.parquet"]
    assert anchor_count(directory) == ticks
    assert found["samples"] == whole["samples"]
    words = [PROGRAM, "info", "--dir", directory]
    reported = subprocess.run(words, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert all(name in reported.stdout for name in reasons)
    # A recorder goes on beside them and leaves them as they are.
    assert start(directory).ticks(1).stop() == 0
    assert (directory / "notes.txt").read_text() == "mine"
    assert (damaged / "cpu.parquet").stat().st_size == 100

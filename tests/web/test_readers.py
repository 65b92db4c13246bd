"""Answers are worked out in processes; what nobody waits for ends, and one question does not hold up the others."""

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from exhume.present.web.per_segment import PerSegment
from exhume.present.web.readers import Readers
from exhume.store.giving_up import GivenUp

ROOT = Path(__file__).resolve().parents[2]


def test_work_ends_when_the_last_who_waited_went_away(written, tmp_path):
    words = [sys.executable, "-m", "tests.web.reading_apart", str(written[0]), str(tmp_path / "go-on")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["statuses"] == [499, 499, 499]
    assert 0.9 < told["left_after"] < told["freed_after"] < 10
    assert told["answered_by"] == told["processes"] >= 2
    assert told["never_begun"]
    # Who waits is told how far it is, until it is answered.
    assert told["how_far"] == [{"mine": [3, 5]}, "to the end", {}]
    assert told["answered_after_a_kill"]


def test_questions_take_turns():
    """Pieces of a large question don't go before a small one that comes later."""
    readers = Readers()
    order: list[str] = []
    hold = threading.Event()
    first = readers.ask()
    held = [readers.submit(first, hold.wait) for _ in range(2)]
    large, small = readers.ask(), readers.ask()
    pieces = [readers.submit(large, order.append, "large") for _ in range(40)]
    pieces += [readers.submit(small, order.append, "small") for _ in range(3)]
    hold.set()
    for future in [*held, *pieces]:
        future.result(10)
    assert order.index("small") < 20
    assert sorted(order) == ["large"] * 40 + ["small"] * 3


def test_a_large_question_gets_on_while_new_ones_come_without_end():
    """Each small one that is answered is followed by a new one: the large one is still done before most of them."""
    readers = Readers()
    order: list[str] = []
    hold, over = threading.Event(), threading.Event()

    def another(_: object = None) -> None:
        if order.count("small") >= 200:
            over.set()
        else:
            readers.submit(readers.ask(), order.append, "small").add_done_callback(another)

    held = [readers.submit(readers.ask(), hold.wait) for _ in range(2)]
    large = readers.ask()
    pieces = [readers.submit(large, order.append, "large") for _ in range(12)]
    for _ in range(5):
        another()
    hold.set()
    for future in [*held, *pieces]:
        future.result(10)
    assert over.wait(10)
    last = max(place for place, name in enumerate(order) if name == "large")
    assert 12 + 5 < last < 100


def test_what_is_asked_at_the_same_time_is_read_once(recording):
    readers = Readers()
    memory = PerSegment(readers)
    read: list[str] = []

    def make(segments):
        read.extend(str(segment.name) for segment in segments)
        time.sleep(0.05)
        return [str(segment.name) for segment in segments]

    with ThreadPoolExecutor(6) as people:
        every = list(people.map(lambda _: memory.answers(recording.segments, "names", make), range(12)))
    assert all(answers == [str(segment.name) for segment in recording.segments] for answers in every)
    assert sorted(read) == sorted(str(segment.name) for segment in recording.segments)


def test_segments_that_are_read_for_a_question_are_counted(recording):
    readers = Readers()
    memory = PerSegment(readers)
    ask, again = readers.ask(), readers.ask()
    assert ask.progress == (0, 0)
    go_on = threading.Event()

    def make(segments):
        go_on.wait(10)
        return [0] * len(segments)

    with ThreadPoolExecutor(1) as people:
        answers = people.submit(memory.answers, recording.segments, "how far", make, ask)
        until = time.monotonic() + 10
        while ask.progress[1] == 0 and time.monotonic() < until:
            time.sleep(0.01)
        assert ask.progress == (0, len(recording.segments))
        go_on.set()
        answers.result(10)
    assert ask.progress == (len(recording.segments), len(recording.segments))
    # What is remembered has not to be read.
    memory.answers(recording.segments, "how far", make, again)
    assert again.progress == (0, sum(not segment.sealed for segment in recording.segments))


def test_who_stays_gets_an_answer_where_the_first_gave_up(recording):
    readers = Readers()
    memory = PerSegment(readers)
    begun, go_on = threading.Event(), threading.Event()
    leaving = readers.ask()

    def make(segments):
        begun.set()
        go_on.wait(10)
        if leaving.given_up and not stays.is_set():
            stays.set()
            raise GivenUp("gone")
        return [1] * len(segments)

    stays = threading.Event()
    with ThreadPoolExecutor(2) as people:
        gone = people.submit(memory.answers, recording.segments[:2], "ones", make, leaving)
        begun.wait(10)
        stayed = people.submit(memory.answers, recording.segments[:2], "ones", make)
        time.sleep(0.1)
        leaving.give_up()
        go_on.set()
        with pytest.raises(GivenUp):
            gone.result(10)
        assert stayed.result(10) == [1, 1]

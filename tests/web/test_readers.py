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
from exhume.store.read.progress import GivenUp

ROOT = Path(__file__).resolve().parents[2]


def test_work_ends_when_the_last_who_waited_went_away(written, tmp_path):
    words = [sys.executable, "-m", "tests.web.reading_apart", str(written[0]), str(tmp_path / "go-on")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["statuses"] == [499, 499, 499]
    # It would have been read for a minute.
    assert 0.9 < told["left_after"] < told["freed_after"] < 30
    assert told["answered_by"] == told["processes"] >= 2
    assert told["never_begun"]
    # Who waits is told how far it is, until it is answered.
    assert told["how_far"] == [{"mine": [3, 5]}, "to the end", {}]
    assert told["answered_after_a_kill"]


def one_at_work() -> tuple[Readers, threading.Event, threading.Event]:
    """Readers of whose two threads one works, once the first event is set: then what is begun first is done first. The
    other is held until the second is."""
    readers, hold, let_go = Readers(), threading.Event(), threading.Event()
    for event in (hold, let_go):
        readers.submit(readers.ask(), event.wait, 120)
    return readers, hold, let_go


def test_questions_take_turns():
    """Pieces of a large question don't go before a small one that comes later."""
    readers, hold, let_go = one_at_work()
    order: list[str] = []
    large, small = readers.ask(), readers.ask()
    pieces = [readers.submit(large, order.append, "large") for _ in range(40)]
    pieces += [readers.submit(small, order.append, "small") for _ in range(3)]
    hold.set()
    for future in pieces:
        future.result(60)
    let_go.set()
    assert order.index("small") < 20
    assert sorted(order) == ["large"] * 40 + ["small"] * 3


def test_a_large_question_gets_on_while_new_ones_come_without_end():
    """Each small one that is answered is followed by a new one: the large one is still done before most of them."""
    readers, hold, let_go = one_at_work()
    order: list[str] = []
    over = threading.Event()

    def another(_: object = None) -> None:
        if order.count("small") >= 200:
            over.set()
        else:
            readers.submit(readers.ask(), order.append, "small").add_done_callback(another)

    large = readers.ask()
    pieces = [readers.submit(large, order.append, "large") for _ in range(12)]
    for _ in range(5):
        another()
    hold.set()
    for future in pieces:
        future.result(60)
    assert over.wait(60)
    let_go.set()
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
        go_on.wait(60)
        return [0] * len(segments)

    with ThreadPoolExecutor(1) as people:
        answers = people.submit(memory.answers, recording.segments, "how far", make, ask)
        until = time.monotonic() + 60
        while ask.progress[1] == 0 and time.monotonic() < until:
            time.sleep(0.01)
        assert ask.progress == (0, len(recording.segments))
        go_on.set()
        answers.result(60)
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
        go_on.wait(60)
        if leaving.given_up and not stays.is_set():
            stays.set()
            raise GivenUp("gone")
        return [1] * len(segments)

    stays = threading.Event()
    with ThreadPoolExecutor(2) as people:
        gone = people.submit(memory.answers, recording.segments[:2], "ones", make, leaving)
        begun.wait(60)
        stayed = people.submit(memory.answers, recording.segments[:2], "ones", make)
        time.sleep(0.1)
        leaving.give_up()
        go_on.set()
        with pytest.raises(GivenUp):
            gone.result(60)
        assert stayed.result(60) == [1, 1]

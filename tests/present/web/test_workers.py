"""Jobs run in worker processes: cancelled with their last client, in two queues, within bounds."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.coroutines import in_thread
from tests.store.store_rows import cpu_rows, recorder, tick_at

from exhume.present.web.handle import RecordingHandle, SegmentCache
from exhume.present.web.params import QueryParams
from exhume.present.web.pool import WorkerPool
from exhume.present.web.schemas import Reply
from exhume.present.web.worker import Template, receive, send, shared_states
from exhume.store.read.progress import set_progress_callback
from exhume.store.read.recording import Recording

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def reported(written, tmp_path_factory):
    work = tmp_path_factory.mktemp("pool")
    args = [sys.executable, "-m", "tests.present.web.pool_program", str(written[0]), str(work)]
    done = subprocess.run(args, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_job_ends_with_its_last_client(reported):
    assert reported["statuses"] == [499, 499, 499]
    # It would have read for a minute.
    assert 0.9 < reported["left_after"] < reported["freed_after"] < 30
    assert reported["answered_by"] == reported["workers"] >= 2
    assert reported["never_begun"]


def test_progress_is_reported_until_the_answer(reported):
    assert reported["progress"] == [{"mine": [3, 5]}, "to the end", {}]


def test_neither_short_nor_long_jobs_hold_up_the_others(reported):
    assert reported["short_passed"]
    assert 12 <= reported["last_long"] < 100


def test_background_jobs_wait_for_requests_but_not_for_ever(reported):
    deferred, overdue = reported["behind_background"]
    # The others may still be at their last request.
    assert deferred < reported["workers"]
    assert overdue > 10


def test_a_job_that_needs_too_much_memory_is_refused(reported):
    assert reported["too_large"] == 413


def test_workers_that_end_are_replaced(reported):
    assert reported["crashed"] == 500
    assert reported["after_kill"] == [200] * 4


# A worker whose server ends during a job.
LEFT = """
import socket
from exhume.present.web import worker

ours, theirs = socket.socketpair()


class Handle:
    def warm_up(self): return iter(())
    def note_damaged(self, damaged): pass
    def damaged(self): return []


class Handlers:
    open_handle = staticmethod(lambda source: Handle())
    execute = staticmethod(lambda handle, name, params: theirs.close())


worker.send(theirs, ("recording.recording", None, []))
worker._run_worker(ours, None, worker.shared_states(1), Handlers)
"""


def test_a_worker_ends_quietly_with_its_server():
    done = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_jobs_wait_until_a_worker_joins():
    ours, theirs = socket.socketpair()

    async def submit() -> tuple[bool, Reply]:
        pool = WorkerPool(Template(0, ours, shared_states(1)))
        pool.start()
        job = pool.submit("recording.recording", QueryParams())
        await asyncio.sleep(0.1)
        waited = not job.result.done()
        threading.Thread(target=answer_one, args=(theirs,)).start()
        return waited, await job.result

    with ours, theirs:
        waited, reply = in_thread(submit)
    assert waited
    assert reply.body == b"recording.recording"


def answer_one(control: socket.socket) -> None:
    """A worker that answers one job with its name."""
    channel, server_end = socket.socketpair()
    with channel:
        socket.send_fds(control, [b"\0"], [server_end.fileno()])
        server_end.close()
        name, _, damaged = receive(channel)
        assert damaged == []
        send(channel, (Reply(name.encode()), []))


def test_the_end_of_the_template_is_reported():
    ours, theirs = socket.socketpair()

    async def wait() -> bool:
        pool = WorkerPool(Template(0, ours, shared_states(1)))
        ended = asyncio.Event()
        pool.on_failure = ended.set
        pool.start()
        theirs.close()
        await asyncio.wait_for(ended.wait(), 30)
        return pool.failed

    with ours:
        assert in_thread(wait)


def test_a_sealed_segment_is_read_once_for_a_query(recording):
    cache = SegmentCache()
    read: list[str] = []

    def load(segment):
        read.append(str(segment.name))
        return str(segment.name)

    names = [str(segment.name) for segment in recording.segments]
    assert cache.get(recording.segments, "names", load) == names
    assert cache.get(recording.segments[1:], "names", load) == names[1:]
    assert sorted(read) == sorted(names)
    cache.get(recording.segments, "other", load)
    assert len(read) == 2 * len(names)


@pytest.mark.parametrize("kinds", [["incident"], ["incident", "nic-reset"], ["none-such"], []])
def test_events_of_a_segment_by_kind(recording, kinds):
    for segment in recording.segments:
        every = recording.events_of(segment)
        assert recording.events_of(segment, kinds) == [event for event in every if event.kind in kinds]
    assert "incident" in {event.kind for segment in recording.segments for event in recording.events_of(segment)}


def test_the_cache_is_bounded_and_keeps_what_was_used_last(recording):
    class Value:
        nbytes = 1000

    size = 3 * (Value.nbytes + 500)
    cache = SegmentCache(max_bytes=size)
    first, *others = recording.segments[:4]
    reads: list[object] = []

    def load(segment):
        reads.append(segment)
        return Value()

    for segment in (first, *others[:2]):
        cache.get([segment], "q", load)
    cache.get([first], "q", load)
    cache.get([others[2]], "q", load)
    assert cache.nbytes == size
    assert len(reads) == 4
    cache.get([first], "q", load)
    assert len(reads) == 4
    cache.get([others[0]], "q", load)
    assert len(reads) == 5


def test_what_is_computed_of_all_segments_is_kept_until_one_is_added(tmp_path):
    writer = recorder(tmp_path / "r", segment_s=5)

    def write(seconds: range) -> None:
        for index in seconds:
            tick = tick_at(index)
            writer.append("cpu", cpu_rows(tick, cores=2))
            writer.commit(tick)

    write(range(10))
    writer.close()
    handle = RecordingHandle(tmp_path / "r")
    computed: list[int] = []

    def compute() -> int:
        computed.append(len(handle.recording().segments))
        return computed[-1]

    assert [handle.of_all_segments("q", compute) for _ in range(3)] == [2, 2, 2]
    assert computed == [2]
    assert handle.of_all_segments("other", compute) == 2
    writer = recorder(tmp_path / "r", segment_s=5)
    write(range(10, 12))
    handle.recording().refresh()
    # What grows is computed each time.
    assert [handle.of_all_segments("q", compute) for _ in range(2)] == [3, 3]
    writer.close()
    handle.recording().refresh()
    assert handle.of_all_segments("q", compute) == 3
    assert computed == [2, 2, 3, 3, 3]


def test_an_idle_worker_reads_the_names_of_containers(written, monkeypatch):
    handle = RecordingHandle(written[0])
    steps = sum(1 for _ in handle.warm_up())
    assert steps > 1
    names = RecordingHandle(written[0]).container_names()
    monkeypatch.setattr(Recording, "container_names_of", None)
    assert handle.container_names() == names


def test_segments_that_are_read_are_counted(recording):
    counts = [0, 0]

    def progress(done: int, total: int) -> None:
        counts[0] += done
        counts[1] += total

    cache = SegmentCache()
    many = [*recording.segments] * 3
    set_progress_callback(progress)
    try:
        cache.get(many, "progress", lambda segment: time.sleep(0.001))
        assert counts == [len(many), len(many)]
        # What is cached has not to be read.
        cache.get(recording.segments, "progress", lambda segment: 1)
        assert counts == [len(many), len(many)]
    finally:
        set_progress_callback(None)

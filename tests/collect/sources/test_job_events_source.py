"""The socket on which the recorder takes events: drained without waiting, bounded, and safe from its senders."""

import json
import os
import socket
import stat
import time

import pytest

from exhume.collect.sources.job_events import MOST_PER_TICK, OLDEST_NS, JobEventSource, JobSocket
from exhume.model.clock import NANOS, Tick
from exhume.model.errors import SourceUnavailable
from exhume.model.job_event import MAX_BYTES, JobEvent
from exhume.procfs.host import Host

WALL = 1_780_000_000 * NANOS
TICK = Tick(3, 999 * NANOS, 1000 * NANOS, WALL)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "events.sock"


@pytest.fixture
def source(path):
    made = JobEventSource(Host(), JobSocket(path))
    yield made
    made.close()


def send(path, *datagrams: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for each in datagrams:
            sender.sendto(each, str(path))


def rows(source, tick=TICK):
    columns = source.read(tick).get("events", {})
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def test_an_event_becomes_a_row_at_its_time(source, path):
    send(path, JobEvent("job-failed", "gone", WALL - 30 * NANOS).encode(), JobEvent("note", "now").encode())
    first, second = rows(source)
    assert (first["time"], first["source"], first["kind"], first["severity"]) == (
        970 * NANOS,
        "jobs",
        "job-failed",
        "error",
    )
    assert (second["time"], second["severity"], second["text"]) == (TICK.end, "info", "now")
    assert source.take_losses() == []
    assert rows(source) == []


def test_the_node_and_the_job_that_a_sender_names_have_columns(source, path):
    attributes = {"job": "train-7"}
    send(
        path,
        JobEvent("job-failed", "gone", node="gpu-7", attributes=attributes).encode(),
        JobEvent("note", "x").encode(),
    )
    first, second = rows(source)
    assert (first["job"], first["member"]) == ("train-7", "gpu-7")
    assert (second["job"], second["member"]) == (None, None)


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"garbage",
        b"[" * 5000,
        b"x" * (MAX_BYTES + 1),
        json.dumps({"version": 1, "kind": "incident", "text": "forged"}).encode(),
        JobEvent("note", "old", WALL - OLDEST_NS - 1).encode(),
        JobEvent("note", "future", WALL + 60 * NANOS).encode(),
    ],
)
def test_what_is_no_event_is_counted_and_nothing_else(source, path, datagram):
    send(path, datagram)
    assert rows(source) == []
    (loss,) = source.take_losses()
    assert (loss.kind, loss.count) == ("events-malformed", 1)
    assert source.take_losses() == []


def test_an_event_from_before_the_boot_is_at_its_beginning(source, path):
    send(path, JobEvent("note", "early", WALL - 5000 * NANOS).encode())
    assert rows(source)[0]["time"] == 0


def test_a_flood_is_taken_in_parts_and_holds_nothing_up(source, path):
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    refused, taken = 0, []
    began = time.monotonic()
    for _ in range(20):
        for _ in range(200):
            try:
                sender.sendto(JobEvent("note", "flood").encode(), str(path))
            except BlockingIOError:
                refused += 1
        taken.append(len(rows(source)))
    sender.close()
    assert refused > 0
    assert max(taken) <= MOST_PER_TICK
    assert time.monotonic() - began < 20


def test_only_root_or_the_group_may_send(path):
    JobEventSource(Host(), JobSocket(path)).close()
    source = JobEventSource(Host(), JobSocket(path, os.getgid()))
    known = path.lstat()
    assert stat.S_IMODE(known.st_mode) == 0o660 and known.st_gid == os.getgid()
    source.close()
    private = JobEventSource(Host(), JobSocket(path))
    assert stat.S_IMODE(path.lstat().st_mode) == 0o600
    private.close()
    assert not path.exists()


def test_the_socket_of_another_recorder_is_left_and_one_of_a_killed_one_replaced(source, path):
    with pytest.raises(SourceUnavailable, match="another recorder"):
        JobEventSource(Host(), JobSocket(path))
    send(path, JobEvent("note", "still there").encode())
    assert len(rows(source)) == 1
    left = path.with_name("left.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
        killed.bind(str(left))
    JobEventSource(Host(), JobSocket(left)).close()


def test_a_directory_of_others_a_file_or_a_long_path_is_refused(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (tmp_path / "file").write_text("kept")
    for path in (shared / "e.sock", tmp_path / "file", tmp_path / ("x" * 120), tmp_path / "a/b/c.sock"):
        with pytest.raises(SourceUnavailable):
            JobEventSource(Host(), JobSocket(path))
    assert (tmp_path / "file").read_text() == "kept"

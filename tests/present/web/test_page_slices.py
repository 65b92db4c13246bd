"""Slices over HTTP: who had each core when, as the store says."""

import struct

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.diagnose.scenes import Scene, at
from tests.present.web.wire import header_of

from exhume.model.clock import MILLIS, NANOS, Window
from exhume.present.web.app import create_app
from exhume.present.web.guard import Rules
from exhume.present.web.handlers.timeline import ms
from exhume.store.read.profile import ProfileFilter


def read(answer):
    """(header, array by its name)."""
    header = header_of(answer)
    start = 4 + struct.unpack_from("<I", answer.content)[0]
    assert start % 4 == 0
    found = {}
    for name, kind in (
        ("start", "<u4"),
        ("length", "<u4"),
        ("thread", "<i4"),
        ("frame", "<i4"),
        ("samples", "<u2"),
        ("line", "<u2"),
        ("state", "u1"),
    ):
        found[name] = np.frombuffer(answer.content, kind, header["count"], start).astype(np.int64)
        start += found[name].size * np.dtype(kind).itemsize
    assert start == len(answer.content)
    return header, found


@pytest.fixture(scope="module")
def incident(written):
    return written[1].incident


def test_the_incident_is_one_thread_on_its_core(client, incident):
    since = ms(incident.since)
    header, found = read(client.get(f"/api/slices?since={since + 1000}&until={since + 3000}&cpus={incident.cpu}"))
    assert header["cpus"] == [incident.cpu]
    assert not header["filtered"]
    ran = found["thread"] >= 0
    assert found["length"][ran].sum() >= 0.99 * 2_000_000
    assert {header["comms"][each] for each in found["thread"][ran]} == {incident.comm}
    assert {header["states"][each] for each in found["state"][ran]} == {"system"}
    assert len(found["start"]) < 20


def test_every_sample_of_the_window_is_in_a_slice(client, recording, incident):
    window = Window(incident.since, incident.since + 2 * NANOS)
    header, found = read(client.get(f"/api/slices?since={ms(window.since)}&until={ms(window.until)}"))
    taken = recording.sample_table(window, ProfileFilter())
    period = header["period_us"]
    assert period == int(np.median(taken.weights_us))
    starts, ends = found["start"], found["start"] + found["length"]
    for cpu, pid, wall in zip(taken.cpus.tolist(), taken.pids.tolist(), taken.walls.tolist(), strict=True):
        moment = (wall - ms(window.since) * MILLIS) // 1000
        here = (found["line"] == header["cpus"].index(cpu)) & (starts < moment) & (ends >= moment)
        if moment == 0:
            continue
        assert here.sum() == 1
        assert header["pids"][found["thread"][here][0]] == pid


def test_a_filter_leaves_what_matches_and_claims_nothing_else(client, incident):
    since = ms(incident.since)
    query = f"since={since}&until={since + 2000}&comm={incident.comm}"
    header, found = read(client.get(f"/api/slices?{query}"))
    assert header["filtered"]
    assert set(header["comms"]) == {incident.comm}
    assert (found["thread"] >= 0).all()


def test_a_long_time_is_refused_and_an_empty_one_is_empty(client, recording):
    span = recording.span()
    answer = client.get(f"/api/slices?since={ms(span.since)}&until={ms(span.since) + 60_000}")
    assert answer.status_code == 413
    assert "30 s" in answer.json()["detail"]
    header, _ = read(client.get(f"/api/slices?since={ms(span.until)}&until={ms(span.until) + 5}"))
    assert header["count"] == 0


@pytest.fixture
def scene_client(tmp_path):
    scene = Scene(cores=3, seconds=10)
    scene.core(1, 4, 6, system=980)
    scene.stack(1, 4, 6, 1.0, "app", 77, ["entry_SYSCALL_64", "vfs_read"])
    # Busy by its counters, and never sampled.
    scene.core(2, 4, 6, user=900)
    scene.write(tmp_path / "r")
    with TestClient(create_app(tmp_path / "r", Rules(), tmp_path), base_url="http://localhost") as client:
        yield client


def test_idle_is_not_the_same_as_not_sampled(scene_client):
    first = ms(at(0))
    header, found = read(scene_client.get(f"/api/slices?since={first + 3000}&until={first + 7000}"))
    assert header["cpus"] == [0, 1, 2]
    idle = header["states"].index("idle")

    def of(line: int) -> list[tuple[int, int, str]]:
        mine = found["line"] == line
        return [
            (start // 1000, (start + length) // 1000, header["states"][state])
            for start, length, state in zip(
                *(found[name][mine].tolist() for name in ("start", "length", "state")), strict=True
            )
        ]

    assert of(0) == [(0, 4000, "idle")]
    assert of(2) == [(0, 1000, "idle"), (3000, 4000, "idle")]
    ran = [each for each in of(1) if each[2] == "system"]
    assert ran[0][0] in range(985, 1001)
    assert ran[-1][1] in range(2970, 3001)
    assert (found["thread"][found["state"] == idle] == -1).all()

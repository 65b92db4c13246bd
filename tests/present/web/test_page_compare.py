"""Two recordings at one server: each answers for itself, and a difference is of both."""

import pytest
from starlette.testclient import TestClient
from tests.diagnose.scenes import Scene, at
from tests.present.web.wire import header_of

from exhume.model.clock import MILLIS, NANOS
from exhume.present.web.app import create_app
from exhume.present.web.guard import Rules
from exhume.present.web.source import RecordingSource

LATER_S = 3600


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    place = tmp_path_factory.mktemp("compare")
    Scene(cores=2, seconds=20).core(1, 5, 12, system=980).stack(
        1, 5, 12, 0.98, "app", 7, ["entry_SYSCALL_64", "vfs_read"]
    ).write(place / "this")
    Scene(cores=3, seconds=30, wall=at(LATER_S), node="node-2").core(1, 5, 12, user=980).stack(
        1, 5, 12, 0.98, "app", 7, ["libc:main"]
    ).event(6, "incident", "core 1 was held", cpu=1).write(place / "other")
    source = RecordingSource(place / "this", place / "other")
    with TestClient(create_app(source, Rules(), place), base_url="http://localhost") as opened:
        yield opened


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    place = tmp_path_factory.mktemp("alone")
    Scene(cores=2, seconds=20).write(place / "r")
    with TestClient(create_app(place / "r", Rules(), place), base_url="http://localhost") as opened:
        yield opened


def test_each_recording_answers_for_itself(client):
    this, other = (client.get(f"/api/recording?recording={which}").json() for which in ("this", "other"))
    assert (this["node"], this["cores"], this["compared"]) == ("node-1", 2, True)
    assert (other["node"], other["cores"], other["compared"]) == ("node-2", 3, False)
    assert other["since"] - this["since"] == LATER_S * 1000
    assert client.get("/api/recording").json() == this
    assert header_of(client.get("/api/cores?cells=5&recording=other"))["cpus"] == [0, 1, 2]
    assert header_of(client.get("/api/cores?cells=5"))["cpus"] == [0, 1]


def test_each_recording_has_incidents_of_its_own(client):
    assert client.get("/api/incidents").json() == client.get("/api/incidents?recording=this").json()
    assert client.get("/api/incidents").json()["incidents"] == []
    (found,) = client.get("/api/incidents?recording=other").json()["incidents"]
    assert (found["text"], found["cpus"]) == ("core 1 was held", [1])
    assert client.get(f"/api/diagnosis?incident={found['id']}").status_code == 404
    diagnosis = client.get(f"/api/diagnosis?incident={found['id']}&recording=other").json()
    assert diagnosis["node"] == "node-2"


def test_a_difference_has_both_recordings(client):
    since = at(5) // MILLIS
    base = (at(LATER_S) + 5 * NANOS) // MILLIS
    query = f"since={since}&until={since + 7000}&baseline=other&base_since={base}&base_until={base + 7000}"
    tree = client.get(f"/api/flame?{query}").json()
    assert tree["differential"]
    assert "node-2" in tree["baseline"]
    names = [tree["labels"]["name"][label] for label in tree["label"]]
    ran = {name: (tree["weight"][i] > 0, tree["base_weight"][i] > 0) for i, name in enumerate(names)}
    assert ran["vfs_read"] == (True, False)
    assert ran["main"] == (False, True)
    assert ran["app"] == (True, True)


def test_without_a_second_recording_it_is_refused(alone):
    assert not alone.get("/api/recording").json()["compared"]
    for path in (
        "recording?recording=other",
        "incidents?recording=other",
        "cores?recording=other",
        "flame?baseline=other",
    ):
        answer = alone.get(f"/api/{path}")
        assert answer.status_code == 404
        assert "--compare-with" in answer.json()["detail"]

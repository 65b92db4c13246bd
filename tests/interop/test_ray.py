"""What a real Ray answered (recorded by make test-ray), and what no Ray answers."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from exhume.interop.ray import (
    RayError,
    RayState,
    actor_failures,
    host_names,
    job_failures,
    node_failures,
    nodes_of,
)

ANSWERS = json.loads(Path(__file__).with_name("ray-answers.json").read_text())


def test_the_failed_job():
    (failure,) = job_failures(ANSWERS["/api/jobs/"], ANSWERS["/api/v0/actors"])
    assert failure.id == "job train-7"
    assert failure.event.kind == "job-failed"
    assert failure.event.at is not None and failure.event.at > 1_700_000_000 * 10**9
    assert failure.event.attributes["job"] == "train-7"
    assert "dies.py" in failure.event.attributes["entrypoint"]
    assert failure.job == "02000000"
    (event,) = failure.events(host_names(ANSWERS["/api/v0/nodes"], None))
    assert event.node == "192.0.2.2", "of a node without a name Ray knows the address"


def test_the_actor_that_died_and_none_that_was_ended_on_purpose():
    (failure,) = actor_failures(ANSWERS["/api/v0/actors"], ANSWERS["/api/jobs/"])
    assert failure.event.kind == "actor-failed"
    assert failure.event.attributes["job"] == "train-7", "as the failure of its job has it"
    assert len(failure.nodes) == 1
    assert failure.event.attributes["class"] == "Fragile"
    actors = ANSWERS["/api/v0/actors"]["data"]["result"]["result"]
    dead = {actor["class_name"] for actor in actors if actor["state"] == "DEAD"}
    assert dead == {"Fragile", "Wanted", "JobSupervisor"}, "the answers have all of them"


def test_a_node_that_lives_is_no_failure():
    assert list(node_failures(ANSWERS["/api/v0/nodes"])) == []


def test_a_node_that_died():
    def answer(message: str) -> dict:
        node = {"node_id": "ab12", "node_ip": "10.0.0.7", "state": "DEAD", "end_time_ms": 1_780_000_000_000}
        return {"result": True, "data": {"result": {"result": [{**node, "state_message": message}]}}}

    (failure,) = node_failures(answer("Unexpected termination: health check failed due to missing too many heartbeats"))
    assert (failure.id, failure.event.kind, failure.event.at) == ("node ab12", "node-failed", 1_780_000_000 * 10**9)
    assert list(node_failures(answer("Expected termination: received SIGTERM"))) == []
    assert [event.node for event in failure.events({"ab12": "gpu-7", "cd34": "gpu-8"})] == ["gpu-7"]


def listed(*rows: dict) -> dict:
    return {"result": True, "data": {"result": {"result": list(rows)}}}


NODES = listed(
    {"node_id": "aa", "node_ip": "10.0.0.1", "node_name": "10.0.0.1", "state": "ALIVE"},
    {"node_id": "bb", "node_ip": "10.0.0.2", "node_name": "10.0.0.2", "state": "ALIVE"},
    {"node_id": "cc", "node_ip": "10.0.0.3", "node_name": "rack-3", "state": "ALIVE"},
    {"node_id": "dd", "node_ip": "10.0.0.4", "node_name": "", "state": "DEAD"},
)
# As python/ray/dashboard/modules/node/node_head.py of Ray 2.60 makes it (get_all_nodes; GcsNodeInfo inside raylet).
SUMMARY = {
    "result": True,
    "data": {
        "summary": [
            {"hostname": "head", "raylet": {"nodeId": "aa", "nodeManagerHostname": "head"}},
            {"raylet": {"nodeId": "bb", "nodeManagerHostname": "gpu-2"}},
            {"raylet": {"nodeId": "cc", "nodeManagerHostname": "worker-pod-3"}},
        ]
    },
}


def test_nodes_have_the_name_that_they_were_given_or_that_of_their_host():
    assert host_names(NODES, SUMMARY) == {"aa": "head", "bb": "gpu-2", "cc": "rack-3", "dd": "10.0.0.4"}
    assert host_names(NODES, None) == {"aa": "10.0.0.1", "bb": "10.0.0.2", "cc": "rack-3", "dd": "10.0.0.4"}


def test_a_job_with_actors_on_two_nodes_fails_on_both():
    job = {"status": "FAILED", "job_id": "02", "submission_id": "train-7", "end_time": 1_780_000_000_000}
    actors = listed(
        {"job_id": "02", "node_id": "bb", "state": "ALIVE"},
        {"job_id": "02", "node_id": "cc", "state": "DEAD"},
        {"job_id": "02", "node_id": "cc", "state": "DEAD"},
        {"job_id": "02", "node_id": None, "state": "PENDING_CREATION"},
        {"job_id": "03", "node_id": "aa", "state": "ALIVE"},
    )
    (failure,) = job_failures([job], actors)
    hosts = host_names(NODES, SUMMARY)
    assert [event.node for event in failure.events(hosts)] == ["gpu-2", "rack-3"]
    assert {(event.job, event.at) for event in failure.events(hosts)} == {("train-7", 1_780_000_000 * 10**9)}
    (driven,) = job_failures([{**job, "driver_node_id": "aa"}], actors)
    assert [event.node for event in driven.events(hosts)] == ["gpu-2", "head", "rack-3"]
    tasks = listed({"job_id": "02", "node_id": "dd"}, {"job_id": "03", "node_id": "aa"})
    assert nodes_of("02", tasks) == {"dd"}
    # The job is known, its nodes are not.
    (event,) = failure.events({})
    assert (event.job, event.node) == ("train-7", "")


def job_failures_of(answer):
    return job_failures(answer, answer)


def actor_failures_of(answer):
    return actor_failures(answer, answer)


@pytest.mark.parametrize("read", [job_failures_of, actor_failures_of, node_failures])
@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        "x",
        [1, None],
        {"data": []},
        {"data": {"summary": [3, {"raylet": 3}, {"raylet": {"nodeId": ["x"]}}]}},
        {"data": {"result": {"result": [{"state": "DEAD", "death_cause": 7}, 3]}}},
        [{"status": "FAILED", "end_time": "soon", "message": {"a": 1}, "submission_id": ["x"]}],
    ],
)
def test_any_other_answer_raises_nothing(read, answer):
    hosts = host_names(answer, answer)
    for failure in read(answer):
        assert all(event.encode() for event in failure.events(hosts))


@pytest.fixture
def guarded() -> Iterator[str]:
    """A dashboard that wants a token."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            allowed = self.headers.get("Authorization") == "Bearer secret-1"
            self.send_response(200 if allowed else 401)
            self.end_headers()
            self.wfile.write(b"[]" if allowed else b"no")

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_a_user_without_a_home_has_no_token(guarded, monkeypatch):
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(RayError, match="without a token: set RAY_AUTH_TOKEN"):
        RayState(guarded).failures()


def test_a_token_is_taken_from_where_ray_takes_it(guarded, monkeypatch, tmp_path):
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(RayError, match="without a token: set RAY_AUTH_TOKEN"):
        RayState(guarded).failures()
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("secret-1\n")
    assert RayState(guarded).failures() == []
    (tmp_path / "other").write_text("wrong")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "other"))
    with pytest.raises(RayError, match="refuses this token"):
        RayState(guarded).failures()
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret-1")
    assert RayState(guarded).failures() == []

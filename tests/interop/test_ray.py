"""What a real Ray answered (recorded by make test-ray), and what no Ray answers."""

import json
from pathlib import Path

import pytest

from exhume.interop.ray import actor_failures, job_failures, node_failures

ANSWERS = json.loads(Path(__file__).with_name("ray-answers.json").read_text())


def test_the_failed_job():
    (failure,) = job_failures(ANSWERS["/api/jobs/"])
    assert failure.id == "job train-7"
    assert failure.event.kind == "job-failed"
    assert failure.event.at is not None and failure.event.at > 1_700_000_000 * 10**9
    assert failure.event.attributes["job"] == "train-7"
    assert "dies.py" in failure.event.attributes["entrypoint"]


def test_the_actor_that_died_and_none_that_was_ended_on_purpose():
    (failure,) = actor_failures(ANSWERS["/api/v0/actors"])
    assert failure.event.kind == "actor-failed"
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


@pytest.mark.parametrize("read", [job_failures, actor_failures, node_failures])
@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        "x",
        [1, None],
        {"data": []},
        {"data": {"result": {"result": [{"state": "DEAD", "death_cause": 7}, 3]}}},
        [{"status": "FAILED", "end_time": "soon", "message": {"a": 1}, "submission_id": ["x"]}],
    ],
)
def test_any_other_answer_raises_nothing(read, answer):
    for failure in read(answer):
        assert failure.event.encode()

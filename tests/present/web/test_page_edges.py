"""What the page's server says where there is nothing, too much or nonsense to answer; and how it follows what grows."""

import asyncio
import json
import re
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
from starlette.testclient import TestClient
from tests.coroutines import in_thread
from tests.diagnose.scenes import Scene
from tests.system.browser.odd_recordings import few_seconds_of_long

from exhume.model.clock import MILLIS, NANOS
from exhume.present.web import live, params
from exhume.present.web.app import ENDPOINTS, create_app
from exhume.present.web.guard import Rules
from exhume.present.web.handlers.stacks import FORMATS
from exhume.present.web.live import LiveStatus
from exhume.present.web.pool import ThreadPool
from exhume.store.read.core_grid import MEASURES

ROOT = Path(__file__).resolve().parents[3]


def test_a_directory_without_a_recording_says_what_is_coming(tmp_path):
    with TestClient(create_app(tmp_path / "none", Rules(), tmp_path), base_url="http://localhost") as client:
        body = client.get("/api/recording").json()
        assert body["state"] == "empty"
        assert "record" in body["hint"]
        assert client.get("/api/flame").status_code == 404
        assert "record" in client.get("/api/flame").json()["detail"]


@pytest.mark.parametrize(
    "question",
    [
        "cores?cells=0", "cores?cells=4001", "cores?measure=mood", "cores?cpus=a", "cores?since=-1",
        "flame?stack=((", "flame?kind=moon", "flame?least=2", "subsecond?rows=0", "subsecond?column_ms=5", "cell",
        "events?limit=0", "export/zip", "cell?at=1&cpu=-1", "frame-times",
    ],
)  # fmt: skip
def test_bad_input_is_a_sentence(client, question):
    answer = client.get(f"/api/{question}")
    assert answer.status_code == 422
    assert isinstance(answer.json()["detail"], str)
    assert len(answer.json()["detail"]) > 10


def test_too_many_columns_are_refused_with_what_to_do(tmp_path):
    few_seconds_of_long(tmp_path / "r", 2100)
    with TestClient(create_app(tmp_path / "r", Rules(), tmp_path), base_url="http://localhost") as long:
        answer = long.get("/api/subsecond?column_ms=100")
        assert answer.status_code == 413
        assert "shorter" in answer.json()["detail"]
        assert long.get("/api/subsecond?column_ms=1000").status_code == 200


def test_what_is_live_is_followed(tmp_path):
    scene = Scene(cores=2, seconds=5)
    scene.write(tmp_path / "r")
    app = create_app(tmp_path / "r", Rules(), tmp_path)
    with TestClient(app, base_url="http://localhost") as client:
        # The stream would go on: its first event is enough.
        app.state.api.status.stopping = True
        assert client.get("/api/live").status_code == 200
        app.state.api.status.stopping = False
        before = client.get("/api/recording").json()
    assert before["until"] - before["since"] == 5 * NANOS // MILLIS


def test_many_clients_cost_one_job_a_second(written, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(live, "time", SimpleNamespace(monotonic=lambda: now))

    async def follow() -> None:
        nonlocal now
        pool = ThreadPool(written[0])
        submitted = []
        submit = pool.submit
        pool.submit = lambda *args: submitted.append(args) or submit(*args)
        status = LiveStatus(pool)
        for seconds in (1, 2):
            assert len(set(await asyncio.gather(*(status.json() for _ in range(50))))) == 1
            assert len(submitted) == seconds
            now += 1

    in_thread(follow)


def test_parameters_have_the_values_of_the_store():
    assert set(get_args(params.Measure)) == set(MEASURES)
    assert set(get_args(params.Format)) == set(FORMATS)


def test_handlers_of_all_endpoints_exist():
    for endpoint in ENDPOINTS:
        if endpoint.handler is not None:
            module, _, function = endpoint.handler.partition(".")
            assert callable(getattr(import_module(f"exhume.present.web.handlers.{module}"), function))


def test_the_progress_of_a_request_that_does_not_exist(client):
    assert client.get("/api/progress?requests=one,two").json() == {"requests": {}}
    assert client.get(f"/api/progress?requests={'x' * 2000}").status_code == 422


def test_every_endpoint_is_on_its_page(client):
    page = (ROOT / "docs" / "page.md").read_text()
    body = set(re.findall(r"`/api/([\w{}/-]+)`", page))
    existing = {path.removeprefix("/api/") for path in client.get("/api/openapi.json").json()["paths"]}
    assert existing <= body
    assert body - existing <= {"openapi.json"}


def test_the_document_is_json_of_its_version(client):
    assert json.loads(client.get("/api/openapi.json").text)["openapi"].startswith("3.")

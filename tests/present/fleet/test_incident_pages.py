"""The recording of an incident is opened from its bundle in the lake; nothing else is."""

import shutil
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.coroutines import in_thread
from tests.present.fleet.conftest import HOST

from exhume.present.fleet import bundles, report_job
from exhume.present.fleet.app import create_app
from exhume.present.fleet.handlers.incidents import safe_bundle
from exhume.present.fleet.report_job import ReportJob
from exhume.present.web.guard import Rules


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where bundles are unpacked in these tests."""
    place = tmp_path / "scratch"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


def test_a_bundle_is_opened_by_the_page_of_recordings(lake, static, scratch):
    node, incident = lake.with_bundle
    link = f"/node/{node}/incident/{incident}"
    with TestClient(create_app(lake.directory, Rules(), static), base_url=HOST) as client:
        redirected = client.get(link, follow_redirects=False)
        assert redirected.headers["location"] == f"{incident}/"
        assert "a recording" in client.get(f"{link}/").text
        recording = client.get(f"{link}/api/recording").json()
        assert recording["cores"] == 2 and recording["until"] - recording["since"] > 15_000
        flame = client.get(f"{link}/api/processes")
        assert flame.status_code == 200
        assert client.get(f"{link}/api/cores?cells=nonsense").status_code == 422
        assert len(list(scratch.iterdir())) == 1
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("path", ["node/node-02/incident/i-escape", "node/node-01/incident/i-1", "node/x/incident/y"])
def test_an_incident_without_a_bundle_of_the_lake_has_no_page(client, path):
    answer = client.get(f"/{path}/")
    assert answer.status_code == 404 and "bundle" in answer.json()["detail"]


def test_a_link_in_the_lake_leads_nowhere_else(lake, static, tmp_path):
    node, incident = lake.with_bundle
    copy = tmp_path / "lake"
    shutil.copytree(lake.directory, copy)
    file = copy / "bundles/node=aa/i-0.exhume.zip"
    file.rename(tmp_path / "elsewhere.exhume.zip")
    file.symlink_to(tmp_path / "elsewhere.exhume.zip")
    with TestClient(create_app(copy, Rules(), static), base_url=HOST) as client:
        assert client.get(f"/node/{node}/incident/{incident}/").status_code == 404


@pytest.mark.parametrize(
    ("path", "safe"),
    [
        ("bundles/node=aa/i.exhume.zip", True),
        ("bundles/../x/i.exhume.zip", False),
        ("/bundles/node=aa/i.exhume.zip", False),
        ("bundles/node=aa/../../i.exhume.zip", False),
        ("summaries/node=aa/i.exhume.zip", False),
        ("bundles/node=aa/i.zip", False),
        ("bundles/node=aa/i\0.exhume.zip", False),
        ("", False),
        (None, False),
    ],
)
def test_only_paths_of_bundles_are_taken(path, safe):
    assert (safe_bundle(path) is not None) == safe


def test_only_some_stay_unpacked(lake, static, scratch, monkeypatch, bundle):
    monkeypatch.setattr(bundles, "MAX_OPEN", 1)
    node, incident = lake.with_bundle
    copy = scratch.parent / "lake"
    shutil.copytree(lake.directory, copy)
    with TestClient(create_app(copy, Rules(), static), base_url=HOST) as client:
        pages = client.app.routes[-2].endpoint
        assert client.get(f"/node/{node}/incident/{incident}/").status_code == 200
        (first,) = pages._opened
        pages._opened["other", "one"] = pages._opened.pop(first)
        assert client.get(f"/node/{node}/incident/{incident}/").status_code == 200
        assert list(pages._opened) == [first]
        assert len(list(scratch.iterdir())) == 1


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A program in the place of the one that computes reports."""

    def written(text: str) -> str:
        (tmp_path / "made_up_report.py").write_text(text)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return "made_up_report"

    return written


async def computed(job: ReportJob) -> dict:
    assert job.newest()["state"] == "computing"
    assert job._running is not None
    await job._running
    return job.newest()


def test_a_report_is_computed_once_and_kept(program, tmp_path):
    text = "import sys, json, pathlib\n"
    text += "counted = pathlib.Path(sys.argv[1]) / 'runs'\n"
    text += "counted.write_text(counted.read_text() + 'x' if counted.exists() else 'x')\n"
    text += "print(json.dumps({'state': 'ready', 'nodes': 7}))"
    job = ReportJob(tmp_path, program(text))
    assert in_thread(lambda: computed(job)) == {"state": "ready", "nodes": 7}
    assert (tmp_path / "runs").read_text() == "x"


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("import sys; sys.exit('the lake is gone')", "the lake is gone"),
        ("print('{')", "cut off"),
        ("import time; time.sleep(60)", "took more than"),
    ],
)
def test_a_report_that_fails_says_why(program, tmp_path, monkeypatch, text, detail):
    monkeypatch.setattr(report_job, "TIMEOUT_S", 5.0 if "sleep" not in text else 0.5)
    found = in_thread(lambda: computed(ReportJob(tmp_path, program(text))))
    assert found["state"] == "failed" and detail in found["detail"]

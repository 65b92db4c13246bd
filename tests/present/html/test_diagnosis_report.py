"""The data of the diagnosis report: it matches its schema, and its charts have what was recorded."""

import base64
import json
from datetime import timedelta, timezone

import numpy as np
import pytest
from pydantic import TypeAdapter
from tests.diagnose.scenes import Scene, at

from exhume.diagnose.engine import diagnose
from exhume.model.clock import MILLIS
from exhume.present.html.reports import MAX_CELLS, diagnosis_data
from exhume.present.html.schemas import DiagnosisReport

ZONE = timezone(timedelta(hours=5, minutes=30))
PATH = ["do_syscall_64", "vfs_read", "zorp_scan_table", "zorp_hash"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    scene = Scene(cores=4, seconds=60).core(2, 30, 37, system=990).stack(2, 30, 37, 0.97, "zorp\x1b[31m", 4711, PATH)
    scene.event(36.6, "nic-tx-paused", "eth0: \x1b[31mpaused", device="eth0", queue=5)
    recording = scene.write(tmp_path_factory.mktemp("scene"))
    return diagnosis_data(recording, diagnose(recording, scene.window), ZONE)


def test_it_matches_its_schema(data):
    report = TypeAdapter(DiagnosisReport).validate_python({"kind": "diagnosis", **json.loads(json.dumps(data))})
    assert report["diagnosis"]["verdict"] == "starved"
    assert report["offset_ms"] == 19_800_000
    assert report["flame"] is not None and report["flame_core"] == 2
    assert report["diagnosis"]["findings"][0]["chain"][0]["at_ms"] >= at(0) // MILLIS


def test_it_has_the_page_of_each_cause_that_was_found(data):
    found = [each["cause"] for each in data["diagnosis"]["findings"]]
    assert found and list(data["cause_pages"]) == found
    assert all(f"(`{cause}`)" in page.splitlines()[0] for cause, page in data["cause_pages"].items())
    assert "://" not in str(data["cause_pages"])


def test_control_characters_are_escaped(data):
    assert "\x1b" not in json.dumps(data, ensure_ascii=False)


def test_the_charts_have_the_bad_seconds(data):
    cores, kernel = data["cores"], data["kernel"]
    assert cores["cells"] == 60 <= MAX_CELLS
    values = np.frombuffer(base64.b64decode(cores["values"]), "<u2")
    assert len(values) == cores["cells"] * len(cores["cpus"])
    row = cores["cpus"].index(2)
    assert values[row * 60 + 33] == 990
    assert cores["states"][base64.b64decode(cores["dominant"])[row * 60 + 33]] == "system"
    assert (kernel["permille"][33], kernel["cpus"][33]) == (990, 2)
    assert [event["kind"] for event in data["events"]].count("nic-tx-paused") == 1

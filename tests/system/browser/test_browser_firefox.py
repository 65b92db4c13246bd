"""The page in Firefox: what the tests in Chromium check in detail is shown there too."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.parts import missing, need
from tools.page import node_of_python, node_on_path

SCRIPT = Path(__file__).with_name("firefox.mjs")


@pytest.mark.long
def test_an_incident_is_opened_in_firefox(address: str, incident, tmp_path: Path) -> None:
    node = node_of_python() or node_on_path() or missing("Node.js 22")
    words = [node, SCRIPT, need("firefox-esr"), address, tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert f"core {incident.cpu}" in shown["sentence"]
    assert 0 < shown["heat"] < 1 and 0 < shown["flame"] < 1
    assert shown["wide"]
    assert shown["complaints"] == []

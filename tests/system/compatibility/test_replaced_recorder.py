"""A recorder is replaced by another one (an upgrade, a downgrade) next to a page that stays open."""

import time
from itertools import pairwise
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.system.faults.recorder_process import RecorderProcess, exhume

from exhume.model.clock import NANOS, Window
from exhume.present.web.app import create_app
from exhume.present.web.guard import Rules
from exhume.store.read.recording import Recording

pytestmark = [pytest.mark.root, pytest.mark.paced]

BEFORE, AFTER = 5, 3


def test_a_replaced_recorder_loses_the_seconds_between_and_no_other(tmp_path: Path) -> None:
    directory = tmp_path / "r"
    first = RecorderProcess(directory, tmp_path / "first")
    try:
        first.ticks(BEFORE)
        with TestClient(create_app(directory, Rules()), base_url="http://localhost") as page:
            before = page.get("/api/recording").json()
            stopped = time.time_ns()
            assert first.stop() == 0
            second = RecorderProcess(directory, tmp_path / "second")
            try:
                second.ticks(AFTER)
                after = page.get("/api/recording").json()
            finally:
                second.stop()
        ended = time.time_ns()
    finally:
        first.kill()
    assert before["live"] and after["live"]
    assert after["since"] == before["since"] and after["until"] > before["until"]
    # Nothing is missing but the seconds from the last tick of the one to the first of the other.
    recording = Recording.open(directory)
    span = recording.span()
    assert span is not None
    walls = sorted(recording.read("anchors").column("wall").to_pylist())
    holes = [(one, next_) for one, next_ in pairwise(walls) if next_ - one > 2.5 * NANOS]
    between = Window(stopped - 3 * NANOS // 2, ended - (AFTER - 1) * NANOS)
    missing = [*(Window(*hole) for hole in holes), *recording.gaps(span)]
    assert [each for each in missing if not between.since <= each.since < each.until <= between.until] == []
    assert len(holes) <= 1 and len(walls) >= BEFORE + AFTER
    found = exhume("info", "--dir", directory)
    assert found["skipped"] == []
    assert found["segments"] >= 2

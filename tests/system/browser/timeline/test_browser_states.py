"""A page for every state of a recording: none yet, young, growing, with gaps, with sources missing, gone."""

import re
import subprocess
import sys
import time

import pytest
from playwright.sync_api import expect
from tests.diagnose.scenes import Scene
from tests.system.browser.canvas import state, until, wait_for_state
from tests.system.browser.conftest import drawn, shown
from tests.system.browser.idle import PATIENCE_S

from exhume.model.clock import NANOS, Tick
from exhume.model.facts import RecordingFacts
from exhume.store.write.lock import DirectoryLock
from exhume.store.write.writer import SegmentWriter

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_timeline")]


def test_an_empty_recording_shows_what_is_coming(new_page, served, tmp_path):
    lock = DirectoryLock(tmp_path)
    try:
        address = served(tmp_path)
        page = new_page(address)
        expect(page.locator("body")).to_contain_text(re.compile("nothing|first second|coming", re.IGNORECASE))
        # The measure that the page begins with.
        expect(page.get_by_role("list", name="what the page will show")).to_contain_text("unusual")
        expect(page.locator("body")).to_contain_text("exhume lab")
        expect(page.get_by_role("list", name="what the page will show").get_by_role("listitem")).to_have_count(4)
        # What is not known yet is not shown as none.
        expect(page.get_by_role("banner")).not_to_contain_text("0 cores")
    finally:
        lock.close()


def test_a_young_recording_shows_what_there_is(new_page, served, tmp_path):
    Scene(cores=2, seconds=12).core(1, 3, 6, system=900).write(tmp_path / "r")
    address = served(tmp_path / "r")
    page = new_page(address)
    drawn(page)
    expect(page.get_by_role("list", name="the recording")).to_contain_text("12 s recorded")


def test_a_missing_source_is_named_with_its_remedy(new_page, served, tmp_path):
    missing = "stacks: perf_event_open is not allowed; run as root, or grant CAP_PERFMON"
    scene = Scene(cores=2, seconds=90, sources_missing=[missing]).without("samples", "stacks", "frames")
    scene.core(1, 3, 6, system=900).write(tmp_path / "r")
    address = served(tmp_path / "r")
    page = new_page(address)
    drawn(page)
    expect(page.get_by_test_id("flame")).to_contain_text("CAP_PERFMON")


def test_a_gap_is_drawn_as_one(new_page, served, tmp_path):
    facts = RecordingFacts("node-1", "1f0c5a9e" + "0" * 24, 1, "6.8.0", "x86_64", "cpu-clock", 97)
    start, wall = 1000 * NANOS, 1_780_000_000 * NANOS
    for begin in (0, 120):
        writer = SegmentWriter(tmp_path / "r", facts, max_bytes=None, max_age_s=None, segment_s=3600)
        for second in range(begin, begin + 60):
            at = start + second * NANOS
            row = {"time": at, "cpu": 0, "span_ms": 1000, "idle": 0, "user": 1000}
            states = dict.fromkeys(("nice", "system", "irq", "softirq", "iowait", "steal", "guest"), 0)
            writer.append("cpu", {name: [value] for name, value in {**row, **states}.items()})
            writer.commit(Tick(second, at, at + NANOS, at + NANOS + wall - start))
        writer.close()
    address = served(tmp_path / "r")
    page = new_page(f"{address}#measure=busy")
    drawn(page)

    def a_gap_is_drawn() -> bool:
        before, between, after = page.evaluate(
            """() => {
                const heat = document.querySelector('[data-testid=heatmap]');
                const pen = heat.getContext('2d');
                const at = share => [...pen.getImageData(Math.floor(share * heat.width), heat.height >> 1, 1, 1).data];
                return [at(0.1), at(0.5), at(0.9)];
            }"""
        )
        return before == after != between

    until(page, a_gap_is_drawn)
    expect(page.get_by_role("list", name="the recording")).to_contain_text("1 gap")


@pytest.mark.root
def test_a_growing_recording_is_followed_until_touched(new_page, served, tmp_path):
    command = [sys.executable, "-m", "exhume.cli.main", "record", "--dir", str(tmp_path / "r"), "--for", "10m"]
    recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not list((tmp_path / "r").glob("live/*/cpu*")) and time.monotonic() < deadline:
            time.sleep(0.1)
        address = served(tmp_path / "r")
        page = new_page(address)
        shown(page)
        scope = page.get_by_test_id("scope")
        recorded = page.get_by_role("list", name="the recording")
        expect(recorded).to_contain_text("live")
        first = scope.inner_text()
        page.wait_for_function(
            "before => document.querySelector('[data-testid=scope]').innerText !== before", arg=first
        )
        assert "since" not in state(page)
        page.get_by_test_id("heatmap").click(position={"x": 100, "y": 5})
        wait_for_state(page, "s0=", "since=", "until=")
        page.get_by_role("button", name="follow it").click()
        wait_for_state(page, "!since=")
        page.keyboard.press("Escape")
        wait_for_state(page, "!s0=")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("+")
        wait_for_state(page, "since=")
        # From here on what is shown is held, while the recording grows.
        held = scope.inner_text()
        for _ in range(3):
            expect(recorded).not_to_have_text(recorded.inner_text(), use_inner_text=True)
        assert scope.inner_text() == held
    finally:
        recorder.terminate()
        recorder.wait(PATIENCE_S)

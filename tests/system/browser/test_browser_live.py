"""The page of a node that is being recorded: the answer of the last minute, and notes."""

import shlex
import subprocess
import sys
import time

import pytest
from playwright.sync_api import Page, expect
from tests.system.browser.canvas import wait_for_state
from tests.system.browser.conftest import serving, shown, visiting
from tests.system.browser.idle import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.root]
EXHUME = [sys.executable, "-m", "exhume.cli.main"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The address of a page over a recording that grows, and the recorder's socket for events."""
    place = tmp_path_factory.mktemp("live")
    socket = place / "events.sock"
    command = [*EXHUME, "record", "--dir", str(place / "r"), "--for", "10m", "--events-socket", str(socket)]
    recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not list((place / "r").glob("live/*/cpu*")) and time.monotonic() < deadline:
            time.sleep(0.1)
        with serving(place / "r") as address:
            yield address, socket
    finally:
        recorder.terminate()
        recorder.wait(PATIENCE_S)


def test_the_first_answer_has_the_last_minute(new_page, recorded):
    page: Page = new_page(recorded[0])
    shown(page)
    last = page.get_by_test_id("last-minute")
    expect(last).to_contain_text("last minute")
    verdict = last.locator(".sure").inner_text()
    assert verdict in ("starved", "degraded", "healthy", "unknown")
    last.get_by_role("button").click()
    selected = wait_for_state(page, "s0=", "s1=")
    assert 0 < int(selected["s1"]) - int(selected["s0"]) <= 60_000
    # Another answer takes its place: that of the selection.
    expect(page.get_by_test_id("landing")).to_have_count(0)


def test_a_server_that_is_gone_is_not_called_live(browser, recorded):
    context = visiting(browser)
    page: Page = context.new_page()
    facts = page.get_by_role("list", name="the recording")
    with serving(recorded[1].parent / "r") as address:
        page.goto(address)
        shown(page)
        expect(facts).to_contain_text("● live")
    expect(facts).to_contain_text("no answer from the server")
    expect(facts).not_to_contain_text("live")
    expect(page.locator(".notice.trouble")).to_contain_text("does not respond")
    context.close()


def test_the_command_of_a_note_puts_it_on_the_timeline(new_page, recorded):
    address, socket = recorded
    page: Page = new_page(f"{address}#tab=events")
    shown(page)
    page.get_by_role("button", name="add a note").click()
    dialog = page.get_by_test_id("terminal")
    expect(dialog.get_by_role("textbox")).to_be_focused()
    page.keyboard.type("it's the agent; $HOME")
    expect(dialog.locator(".command code")).to_contain_text("HOME'")
    command = shlex.split(dialog.locator(".command code").inner_text())
    assert command[:3] == ["exhume", "event", "add"]
    subprocess.run([*EXHUME, *command[1:], "--events-socket", str(socket)], check=True, timeout=PATIENCE_S)
    page.keyboard.press("Escape")
    page.goto(f"{address}#tab=events&kinds=note")
    page.reload()
    expect(page.get_by_test_id("events")).to_contain_text("it's the agent; $HOME")

"""What the page leaves to a terminal: notes, and files that are dropped on it."""

import re
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, expect
from tests.system.browser.axe import violations
from tests.system.browser.conftest import shown

from exhume.model.clock import MILLIS

pytestmark = pytest.mark.slow

DROP = """name => {
    const transfer = new DataTransfer();
    transfer.items.add(new File(['PK'], name));
    const over = new DragEvent('dragover', {dataTransfer: transfer, bubbles: true, cancelable: true});
    const drop = new DragEvent('drop', {dataTransfer: transfer, bubbles: true, cancelable: true});
    return [document.body.dispatchEvent(over), document.body.dispatchEvent(drop)];
}"""


def test_a_dropped_bundle_is_answered_with_the_command_that_opens_it(new_page, address):
    page: Page = new_page(address, bypass_csp=True)
    shown(page)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.method))
    # Neither is left to the browser, which would open the file in place of the page.
    assert page.evaluate(DROP, "incident of <b>node 7</b>.exhume.zip") == [False, False]
    dialog = page.get_by_test_id("terminal")
    command = "exhume serve --dir 'incident of <b>node 7</b>.exhume.zip'"
    expect(dialog.locator(".command code")).to_have_text(command)
    assert not (broken := violations(page)), "\n".join(broken)
    dialog.get_by_role("button", name="copy").click()
    expect(dialog.get_by_role("button", name="copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == command
    assert set(requests) <= {"GET"}
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.evaluate(DROP, "perf.data")
    expect(dialog.locator(".command code")).to_have_text(
        ["exhume import perf.data --dir imported", "exhume serve --dir imported"]
    )


def test_a_link_to_loopback_comes_with_the_command_for_a_bundle(new_page, address, incident):
    since = incident.since // MILLIS
    page: Page = new_page(f"{address}#s0={since}&s1={since + 5000}", bypass_csp=True)
    shown(page)
    page.get_by_role("button", name="share", exact=True).click()
    dialog = page.get_by_test_id("terminal")
    at = datetime.fromtimestamp(since / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    expect(dialog.locator(".command code")).to_have_text(
        re.compile(rf"^exhume export bundle --at {at}\.\d+Z -o incident\.exhume\.zip$")
    )
    # The link is copied all the same.
    assert page.evaluate("navigator.clipboard.readText()").endswith(page.evaluate("location.hash"))
    assert not (broken := violations(page)), "\n".join(broken)


def test_a_finished_recording_takes_no_notes_and_says_so(page: Page):
    page.keyboard.press("m")
    expect(page.get_by_test_id("terminal")).to_contain_text("not being written any more")
    expect(page.get_by_test_id("terminal").locator(".command")).to_have_count(0)

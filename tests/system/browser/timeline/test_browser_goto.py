"""Going to a time that is typed."""

import pytest
from playwright.sync_api import Page, expect
from tests.system.browser.canvas import state, wait_for_state
from tests.system.browser.conftest import drawn
from tests.system.browser.idle import at_rest

from exhume.model.clock import MILLIS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_timeline")]


@pytest.fixture
def page(new_page, address) -> Page:
    opened: Page = new_page(address, timezone_id="Asia/Tokyo")
    drawn(opened)
    return opened


def go_to(page: Page, text: str) -> None:
    at_rest(page)
    page.keyboard.press("g")
    expect(page.get_by_test_id("go-to")).to_be_focused()
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def test_a_time_is_typed_in_every_form(page: Page, incident):
    at = incident.since // MILLIS // 1000 * 1000
    forms = page.evaluate(
        """at => {
            const [day, time] = new Date(at).toISOString().slice(0, 19).split('T');
            const there = new Date(at + 9 * 3600000).toISOString().slice(0, 19);
            return [there.slice(11), `${time}Z`, `${day}T${time}Z`, `${there}+09:00`, there, `@${at / 1000}`];
        }""",
        at,
    )
    for form in forms:
        go_to(page, form)
        chosen = wait_for_state(page, f"s0={at}", f"s1={at + 1000}")
        assert int(chosen["since"]) <= at < int(chosen["until"])
        expect(page.get_by_test_id("heatmap")).not_to_be_focused()
        expect(page.get_by_test_id("selected").first).to_be_in_viewport()
        page.keyboard.press("Escape")
        wait_for_state(page, "!s0=")


@pytest.mark.parametrize(
    ("text", "problem"),
    [("yesterday", "yesterday is not a time: write 03:14:07"), ("10m ago", "after the recording, which ends at")],
)
def test_what_leads_nowhere_is_said(page: Page, text, problem):
    before = state(page)
    go_to(page, text)
    error = page.locator("#go-to-error")
    expect(error).to_contain_text(problem)
    expect(error).to_be_in_viewport(ratio=1)
    assert state(page) == before
    page.keyboard.press("Escape")
    expect(error).to_be_empty()

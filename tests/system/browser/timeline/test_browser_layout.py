"""The layout: the timeline stays in sight while the panels scroll, and what a click changes is on the screen."""

import pytest
from playwright.sync_api import Page, expect
from tests.system.browser.axe import violations
from tests.system.browser.canvas import box, until, wait_for_state
from tests.system.browser.conftest import drawn
from tests.system.browser.idle import at_rest

from exhume.model.clock import MILLIS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_timeline")]

LAPTOP = {"viewport": {"width": 1440, "height": 900}}
LOW = {"viewport": {"width": 1024, "height": 500}}
PHONE = {"viewport": {"width": 390, "height": 844}}


@pytest.fixture
def link(address, incident) -> str:
    since, until_ms = incident.since // MILLIS, incident.until // MILLIS
    return f"{address}#since={since - 60_000}&until={until_ms + 60_000}&s0={since}&s1={until_ms}&cpus={incident.cpu}"


def opened(new_page, link: str, **context: object) -> Page:
    page: Page = new_page(link, **context)
    drawn(page)
    return page


def test_the_timeline_stays_while_the_panels_scroll(new_page, link):
    page = opened(new_page, link, **LAPTOP)
    flame = box(page, "flame-canvas")
    page.mouse.move(flame["x"] + 200, 880)
    page.mouse.wheel(0, 400)
    until(page, lambda: page.evaluate("scrollY") > 200)
    assert box(page, "flame-canvas")["y"] < flame["y"] - 200
    assert 0 <= box(page, "heatmap")["y"] < 300
    # Evidence below is followed in sight.
    page.get_by_test_id("aside").get_by_test_id("evidence").first.click()
    wait_for_state(page, "d0=")
    expect(page.get_by_test_id("selected").first).to_be_in_viewport()


def test_the_splitter_is_used_by_keyboard_and_mouse_and_remembered(new_page, link):
    page = opened(new_page, link, bypass_csp=True, **LAPTOP)
    splitter = page.get_by_role("separator", name="height of the timeline")
    needed = box(page, "pane-content")["height"]
    splitter.focus()
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    # What it needs may be a part of a pixel more than it is set to by steps.
    until(page, lambda: abs(box(page, "pane-content")["height"] - (needed - 72)) < 1)
    assert splitter.get_attribute("aria-valuenow") == str(round(box(page, "pane-content")["height"]))
    page.keyboard.press("Home")
    until(page, lambda: box(page, "pane-content")["height"] == 120)
    assert not (broken := violations(page)), "\n".join(broken)
    bar = box(page, "splitter")
    page.mouse.move(bar["x"] + 300, bar["y"] + 4)
    page.mouse.down()
    page.mouse.move(bar["x"] + 300, bar["y"] + 84, steps=4)
    page.mouse.up()
    until(page, lambda: abs(box(page, "pane-content")["height"] - 200) <= 1)
    page.reload()
    drawn(page)
    assert abs(box(page, "pane-content")["height"] - 200) <= 1
    splitter.dblclick()
    until(page, lambda: box(page, "pane-content")["height"] == needed)


def test_what_gets_the_focus_below_is_not_behind_the_timeline(new_page, link):
    page = opened(new_page, f"{link}&tab=diagnosis", **LAPTOP)
    page.get_by_test_id("evidence").last.focus()
    at_rest(page)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")
    at_rest(page)
    top = page.evaluate("document.activeElement.getBoundingClientRect().top")
    pane = box(page, "pane")
    assert top >= pane["y"] + pane["height"]


def test_a_panel_that_is_opened_is_on_the_screen(new_page, link):
    page = opened(new_page, link, has_touch=True, **PHONE)
    page.get_by_role("tab", name="Diagnosis").tap()
    wait_for_state(page, "tab=diagnosis")
    expect(page.get_by_test_id("diagnosis").get_by_test_id("verdict")).to_be_in_viewport(ratio=1)
    # The timeline goes with the page there, and the height that was chosen elsewhere does not matter.
    page.evaluate("localStorage.setItem('timeline-height', '150')")
    page.reload()
    drawn(page)
    assert box(page, "pane-content")["height"] > 400
    expect(page.get_by_test_id("splitter")).to_be_hidden()


def test_a_painted_frame_is_in_sight_on_a_phone(new_page, link):
    page = opened(new_page, link, **PHONE)
    canvas = page.get_by_test_id("flame-canvas")
    canvas.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("w")
    expect(page.get_by_test_id("painted")).to_be_in_viewport()


@pytest.mark.parametrize("window", [PHONE, LOW], ids=["phone", "low"])
def test_a_moment_of_an_event_is_in_sight(new_page, link, window):
    page = opened(new_page, f"{link}&tab=events", **window)
    moment = page.get_by_test_id("events").locator(".moment").last
    moment.scroll_into_view_if_needed()
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    expect(page.get_by_test_id("heatmap")).not_to_be_in_viewport()
    before = page.evaluate("location.hash")
    moment.click()
    until(page, lambda: page.evaluate("location.hash") != before)
    expect(page.get_by_test_id("heatmap")).to_be_in_viewport()


def test_the_whole_timeline_is_printed(new_page, link):
    page = opened(new_page, link, **LAPTOP)
    whole = page.evaluate("document.querySelector('.timeline').scrollHeight")
    splitter = page.get_by_role("separator")
    splitter.focus()
    page.keyboard.press("Home")
    at_rest(page)
    page.emulate_media(media="print")
    assert page.evaluate("document.querySelector('[data-testid=pane-content]').clientHeight") >= 0.8 * whole
    assert page.evaluate("getComputedStyle(document.querySelector('[data-testid=pane]')).position") == "static"


def test_skip_links_lead_past_what_comes_before(new_page, link):
    page = opened(new_page, link, **LAPTOP)
    page.keyboard.press("Tab")
    first = page.get_by_role("button", name="skip to the heatmap")
    expect(first).to_be_focused()
    expect(first).to_be_in_viewport(ratio=1)
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("heatmap")).to_be_focused()
    page.get_by_role("button", name="skip to the panels").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("tab", name="Flame")).to_be_focused()


def test_marks_are_one_stop_of_the_tab_key(new_page, address):
    page = opened(new_page, address, **LAPTOP)
    for lane in ("marks", "incidents"):
        marks = page.get_by_test_id(lane).get_by_role("button")
        stops = [mark.get_attribute("tabindex") for mark in marks.all()]
        assert stops == ["0"] + ["-1"] * (len(stops) - 1)
    marks = page.get_by_test_id("marks").get_by_role("button")
    marks.first.focus()
    page.keyboard.press("ArrowRight")
    expect(marks.nth(1)).to_be_focused()

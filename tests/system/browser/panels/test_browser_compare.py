"""Two recordings, and two times of one, on one axis."""

import re

import pytest
from playwright.sync_api import Page, expect
from tests.synthetic import synthetic_recording
from tests.system.browser.axe import violations
from tests.system.browser.canvas import Spot, box, drag, state, wait_for_state
from tests.system.browser.conftest import drawn, serving
from tests.system.browser.idle import at_rest

from exhume.model.clock import MILLIS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_panels")]


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return synthetic_recording(tmp_path_factory, cores=4, minutes=2, seed=23)


@pytest.fixture(scope="module")
def both(written, other):
    with serving(written[0], "--compare-with", str(other.directory)) as address:
        yield address


def test_a_second_recording_is_below_the_first_and_can_be_moved(new_page, both):
    page: Page = new_page(both, bypass_csp=True)
    drawn(page)
    head = page.get_by_test_id("compared")
    expect(head).to_contain_text("synthetic-23")
    # Both begin at the same time.
    expect(head).to_contain_text("by the same clock")
    lane = page.get_by_test_id("cores-other")
    expect(lane).to_have_attribute("aria-label", re.compile("cores of what is compared; the worst: core [0-3], "))
    place = box(page, "cores-other")
    middle = place["y"] + place["height"] / 2
    drag(page, Spot(place["x"] + 300, middle), Spot(place["x"] + 200, middle))
    # It moves along with the mouse: only the last place counts.
    at_rest(page)
    moved = int(wait_for_state(page, "shift=")["shift"])
    assert moved > 0
    expect(head).to_contain_text("later")
    lane.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("before => !location.hash.includes(before)", arg=f"shift={moved}")
    assert int(state(page)["shift"]) < moved
    page.get_by_role("button", name="same clock").click()
    wait_for_state(page, "shift=0")
    assert not (broken := violations(page)), "\n".join(broken)


def test_a_difference_is_of_both_recordings(new_page, both, incident):
    since, until = incident.since // MILLIS, incident.until // MILLIS
    page = new_page(f"{both}#s0={since}&s1={until}&cpus={incident.cpu}&tab=difference&shift=-30000")
    drawn(page)
    page.get_by_test_id("baseline").select_option("other")
    wait_for_state(page, "baseline=other")
    expect(page.locator("section.panels")).to_contain_text("the recording of synthetic-23")


def test_without_a_second_recording_nothing_offers_one(at_incident: Page):
    at_incident.get_by_role("tab", name="Difference").click()
    expect(at_incident.get_by_test_id("baseline").locator("option")).to_have_count(3)
    expect(at_incident.get_by_test_id("compared")).to_have_count(0)


def test_another_time_is_below_the_selection(new_page, address, incident):
    since, until = incident.since // MILLIS, incident.until // MILLIS
    base = f"&tab=difference&baseline=window&b0={since - 60_000}&b1={since - 50_000}"
    page = new_page(f"{address}#since={since - 5000}&until={until + 5000}&s0={since}&s1={until}{base}")
    drawn(page)
    expect(page.get_by_test_id("compared-time")).to_contain_text("1 m earlier")
    expect(page.get_by_test_id("cores-this")).to_have_attribute("data-drawn", "true")


def test_incidents_and_slices_of_the_second_recording_are_below_it(new_page, both, other, incident):
    there = other.incident.since // MILLIS
    page: Page = new_page(f"{both}#since={there - 20_000}&until={there + 20_000}&shift=0")
    drawn(page)
    mark = page.get_by_test_id("incidents-other").get_by_role("button")
    expect(mark).to_have_count(1)
    # Its cause arrives from the background diagnosis, as that of the first recording does.
    expect(mark).to_contain_text("zombie", timeout=60_000)
    since, until = incident.since // MILLIS, incident.until // MILLIS
    before = there - since - 3000
    page.goto(f"{both}#since={since}&until={since + 5000}&s0={since}&s1={until}&shift={before}")
    lane = page.get_by_test_id("cores-other")
    expect(lane).to_have_attribute("data-slices", re.compile(r"\d+ \d+"))
    mark.click()
    page.wait_for_function("before => !location.hash.includes(before)", arg=f"shift={before}")
    # Now it is below the selection; marks are of whole seconds.
    assert abs(int(state(page)["shift"]) - (there - since)) <= 1500

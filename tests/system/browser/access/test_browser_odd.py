"""Recordings of odd nodes, as a person meets them in the browser."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.system.browser.canvas import Spot, address_of, box, colour, drag, orange, spot, until, wait_for_state
from tests.system.browser.conftest import drawn, serving
from tests.system.browser.odd_recordings import BITE, CPUS, START, odd_node, one_second

from exhume.model.clock import MILLIS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_access")]
SPAN = (START // MILLIS, START // MILLIS + 540_000)


@pytest.fixture(scope="module")
def odd(tmp_path_factory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("odd") / "recording"
    odd_node(directory)
    with serving(directory) as address:
        yield address


@pytest.fixture
def in_berlin(new_page, odd) -> Page:
    page = new_page(odd, timezone_id="Europe/Berlin")
    drawn(page)
    return page


def place(page: Page, second: float, cpu: int) -> Spot:
    return spot(page, SPAN, START // MILLIS + second * 1000, CPUS.index(cpu), len(CPUS))


def hatched(page: Page, second: float, cpu: int) -> bool:
    """Nothing is drawn there but stripes: more than one colour around, none of them a state's."""
    at = place(page, second, cpu)
    seen = {colour(page, "heatmap", Spot(at.x + x, at.y + y)) for x in range(-4, 5) for y in (-3, 0, 3)}
    return len(seen) > 1 and all(max(each) - min(each) < 25 for each in seen)


def test_changes_of_daylight_saving_are_shown(in_berlin: Page):
    scope = in_berlin.get_by_test_id("scope")
    expect(scope).to_contain_text("02:56:00 UTC+02:00 – 02:05:00 UTC+01:00")
    expect(scope).to_contain_text("9 m")
    labels = in_berlin.get_by_test_id("ruler").inner_text().split("\n")
    assert [label for label in labels if "UTC" in label] == ["02:00 UTC+01:00"]
    expect(in_berlin.get_by_role("button", name="UTC+02:00, then UTC+01:00")).to_be_visible()
    drag(in_berlin, place(in_berlin, 200, 130), place(in_berlin, 209, 130))
    expect(in_berlin.get_by_role("button", name="UTC+02:00", exact=True)).to_be_visible()
    in_berlin.keyboard.press("u")
    expect(scope).to_contain_text("00:59:")


def test_a_clock_step_and_gaps_are_shown(in_berlin: Page):
    facts = in_berlin.get_by_role("list", name="the recording")
    expect(facts).to_contain_text("recorded of 9 m")
    mark = in_berlin.get_by_test_id("marks").get_by_role("button", name="set back by 30 s")
    mark.click()
    expect(in_berlin.get_by_role("table", name="events of the window")).to_contain_text(
        "the clock was set back by 30 s"
    )
    # The file that was cut short is found in the background.
    expect(facts).to_contain_text("1 file not read")
    facts.locator("summary").click()
    expect(facts).to_contain_text("cpu.parquet: truncated or damaged")
    in_berlin.keyboard.press("Escape")
    expect(facts.get_by_text("This recording")).not_to_be_visible()
    # What is not known is not taken for idle.
    assert hatched(in_berlin, 320, 64)
    gap = place(in_berlin, 320, 64)
    in_berlin.keyboard.press("0")
    in_berlin.mouse.click(gap.x, gap.y)
    for tab in ("Flame", "Sub-second", "Processes", "Events", "Diagnosis", "Interrupts"):
        in_berlin.get_by_role("tab", name=tab).click()
        expect(in_berlin.get_by_role("tabpanel")).to_contain_text("Nothing was recorded in this time.")


def test_cores_with_holes_in_their_numbers(in_berlin: Page):
    assert orange(colour(in_berlin, "heatmap", place(in_berlin, 505, 130)))
    assert hatched(in_berlin, 90, 66)
    assert not hatched(in_berlin, 90, 64)
    drag(in_berlin, place(in_berlin, 500.5, 130), place(in_berlin, 509, 130))
    assert wait_for_state(in_berlin, "cpus=")["cpus"] == "130"
    expect(in_berlin.get_by_test_id("aside")).to_contain_text("starved")
    in_berlin.keyboard.press("2")
    in_berlin.get_by_test_id("baseline").select_option("others")
    expect(in_berlin.get_by_test_id("flame")).to_contain_text(re.compile(r"against the other cores \([1-9]"))
    in_berlin.keyboard.press("3")
    cores = in_berlin.get_by_test_id("one-core").locator("option")
    expect(cores).to_have_text(["all", *(f"core {cpu}" for cpu in CPUS)])
    # A filter shows who was on which core; the others idled, or were not there.
    in_berlin.keyboard.press("f")
    expect(in_berlin.get_by_role("combobox", name="filter")).to_be_focused()
    in_berlin.keyboard.type("comm:spinner")
    in_berlin.keyboard.press("Enter")
    expect(in_berlin.get_by_role("list", name="colours of the heatmap")).to_contain_text("matches the filter")
    until(in_berlin, lambda: max(colour(in_berlin, "heatmap", place(in_berlin, 505.25, 130))) < 60)
    assert not hatched(in_berlin, 505.25, 0)
    assert hatched(in_berlin, 90, 66)


def test_names_that_bite_are_only_names(in_berlin: Page):
    in_berlin.on("dialog", lambda _: pytest.fail("something was run"))
    mark = in_berlin.get_by_test_id("marks").get_by_role("button", name="xxxx")
    assert len(mark.get_attribute("title") or "") < 1000
    mark.click()
    table = in_berlin.get_by_role("table", name="events of the window")
    expect(table).to_contain_text("xxx …")
    assert in_berlin.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    in_berlin.keyboard.press("Escape")
    in_berlin.get_by_role("tab", name="Processes").click()
    in_berlin.get_by_test_id("processes").get_by_role("button", name=BITE[:15]).first.click()
    wait_for_state(in_berlin, "comm=")
    in_berlin.get_by_role("tab", name="Flame").click()
    in_berlin.get_by_text("Top functions").click()
    in_berlin.get_by_test_id("flame").get_by_role("button", name=BITE).click()
    in_berlin.get_by_test_id("function").get_by_role("button", name="When did this run?").click()
    expect(in_berlin.get_by_test_id("painted")).to_contain_text(BITE)
    link = address_of(in_berlin)
    in_berlin.goto("about:blank")
    in_berlin.goto(link)
    expect(in_berlin.get_by_test_id("painted")).to_contain_text(BITE)
    expect(in_berlin.get_by_role("combobox", name="filter")).to_have_value(re.compile(re.escape(BITE[:15])))
    assert in_berlin.locator("img").count() == 0


def test_a_link_outside_of_the_recording(new_page, odd):
    page = new_page(f"{odd}#since=1600000000000&until=1600000060000&s0=1600000010000&s1=1600000020000")
    drawn(page)
    for place in (page.get_by_role("tabpanel"), page.get_by_test_id("aside")):
        expect(place).to_contain_text("Outside of the recording, which has 2026-10-25 00:56:00")
    page.keyboard.press("0")
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("scope")).to_contain_text("9 m")


def test_one_second_of_one_core_without_stacks(new_page, served, tmp_path):
    one_second(tmp_path / "r")
    page = new_page(served(tmp_path / "r"))
    drawn(page)
    expect(page.get_by_role("list", name="the recording")).to_contain_text("1 core")
    expect(page.get_by_role("list", name="the recording")).to_contain_text("1 s recorded")
    heat = box(page, "heatmap")
    page.mouse.click(heat["x"] + 300, heat["y"] + 5)
    wait_for_state(page, "s0=")
    for tab in ("Flame", "Difference", "Sub-second", "Processes"):
        page.get_by_role("tab", name=tab).click()
        expect(page.get_by_role("tabpanel")).to_contain_text("CAP_PERFMON")

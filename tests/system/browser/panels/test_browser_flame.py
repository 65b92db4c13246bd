"""The trees of the flame graph and the search in it: sandwich, inverted tree, all places of a function, next match."""

import re

import pytest
from playwright.sync_api import Page, expect
from tests.diagnose.scenes import Scene
from tests.system.browser.canvas import Spot, box, state, until, wait_for_state
from tests.system.browser.conftest import drawn
from tests.system.browser.flame import ROW, frame_spot, name_under, open_menu, row_of
from tests.system.browser.idle import at_rest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_panels")]

# (comm, share of the core, frames); the kernel's are named by the scene.
STACKS = [
    ("app", 0.4, ["app:main", "app:load", "app:parse", "app:alloc"]),
    ("app", 0.2, ["app:main", "app:save", "app:parse"]),
    ("web", 0.2, ["web:serve", "app:parse", "app:parse", "app:alloc"]),
    ("web", 0.1, ["web:serve", "[anon]:[anon]"]),
]


@pytest.fixture
def page_of_stacks(new_page, served, tmp_path) -> Page:
    scene = Scene(cores=1, seconds=10)
    for pid, (comm, share, frames) in enumerate(STACKS, 10):
        scene.stack(0, 0, 10, share, comm, pid, frames)
    scene.write(tmp_path / "r")
    page: Page = new_page(served(tmp_path / "r"), viewport={"width": 1440, "height": 900})
    drawn(page)
    expect(page.get_by_test_id("flame-canvas")).to_be_visible()
    return page


def shares(text: str) -> list[int]:
    return [round(float(share)) for share in re.findall(r"([\d.]+) %", text)]


def test_the_tooltip_has_total_and_self_here_and_everywhere(page_of_stacks: Page):
    page = page_of_stacks
    assert name_under(page, frame_spot(page, 2, 0.1)) == "main"
    tip = page.get_by_test_id("flame-tip")
    expect(tip).to_contain_text(re.compile("total .*self 0 %"))
    assert name_under(page, frame_spot(page, 4, 0.1)) == "parse"
    text = tip.inner_text()
    # At 97 Hz these are 39 of 87 samples here; everywhere 77, of which 19 are its own.
    assert shares(text)[0] == 45
    assert re.search(r"4 places: total 89 %, self 22 %", text), text


def test_a_click_outlines_all_places_of_a_function(page_of_stacks: Page):
    page = page_of_stacks
    at = frame_spot(page, 4, 0.1)
    page.mouse.click(at.x, at.y)
    assert wait_for_state(page, "frame=", "root=")["frame"].startswith("parse")
    canvas = page.get_by_test_id("flame-canvas")
    expect(canvas).to_have_attribute("data-lit", "parse")
    function = page.get_by_test_id("function")
    expect(function).to_contain_text("4 places")
    page.get_by_test_id("zoom-out").click()
    expect(canvas).to_have_attribute("data-root", "all")
    expect(canvas).to_have_attribute("data-lit", "parse")
    # The focus of the keyboard outlines, too.
    canvas.focus()
    page.keyboard.press("ArrowDown")
    expect(canvas).to_have_attribute("data-lit", "app")
    page.get_by_test_id("function").get_by_role("button", name=re.compile("stop outlining")).click()
    wait_for_state(page, "!frame=")
    expect(function).to_have_count(0)


def test_a_sandwich_merges_callers_and_callees(page_of_stacks: Page):
    page = page_of_stacks
    open_menu(page, row_of(page, "parse"))
    page.get_by_role("menuitem", name=re.compile("Callers and callees")).click()
    assert wait_for_state(page, "graph=sandwich")["frame"].startswith("parse")
    callers, callees = page.get_by_test_id("callers-canvas"), page.get_by_test_id("flame-canvas")
    expect(callers).to_be_visible()
    expect(callees).to_have_attribute("data-root", "parse")
    assert name_under(page, frame_spot(page, 0)) == "parse"
    # Half of its time is called by load, directly above it.
    above = box(page, "callers-canvas")
    bottom = Spot(above["x"] + 0.25 * above["width"], above["y"] + above["height"] - ROW / 2)
    assert name_under(page, bottom) == "load"
    tip = page.get_by_test_id("flame-tip").first
    expect(tip).to_contain_text(re.compile(r"is in parse, called through here"))
    expect(tip).to_contain_text("51 % of parse")
    # A link holds it, and its zoom.
    page.mouse.click(*bottom.pair)
    wait_for_state(page, "callerRoot=")
    page.reload()
    drawn(page)
    expect(page.get_by_test_id("callers-canvas")).to_have_attribute("data-root", "load")
    # From here on, when it ran.
    page.get_by_test_id("function").get_by_role("button", name="When did this run?").click()
    expect(page.get_by_test_id("painted")).to_contain_text("parse")
    expect(page.get_by_test_id("heatmap")).to_be_in_viewport()


def test_the_inverted_tree_has_callers_by_self_time(page_of_stacks: Page):
    page = page_of_stacks
    canvas = page.get_by_test_id("flame-canvas")
    canvas.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("i")
    wait_for_state(page, "graph=inverted")
    at_rest(page)
    assert name_under(page, frame_spot(page, 1, 0.1)) == "alloc"
    assert name_under(page, frame_spot(page, 2, 0.1)) == "parse"
    canvas.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("t")
    wait_for_state(page, "!graph=")
    page.get_by_test_id("graph-sandwich").click()
    expect(page.get_by_test_id("choose-function")).to_be_visible()
    page.get_by_text("Top functions").click()
    page.get_by_role("button", name="alloc").click()
    expect(page.get_by_test_id("callers-canvas")).to_be_visible()
    assert name_under(page, frame_spot(page, 0)) == "alloc"


def test_a_frame_without_a_name_says_why_and_what_to_set(page_of_stacks: Page):
    page = page_of_stacks
    page.get_by_test_id("flame-search").fill("anon")
    page.keyboard.press("Enter")
    canvas = page.get_by_test_id("flame-canvas")
    expect(canvas).to_have_attribute("data-focused", "[anon]")
    page.get_by_test_id("graph-inverted").click()
    page.get_by_text("Top functions").click()
    page.get_by_role("button", name="[anon]").click()
    expect(page.get_by_test_id("nameless")).to_contain_text("perf map")
    expect(page.get_by_test_id("nameless")).to_contain_text("perf-PID.map")


def test_the_search_counts_next_to_the_box_and_goes_from_match_to_match(at_incident: Page, incident):
    page = at_incident
    page.set_viewport_size({"width": 1440, "height": 500})
    page.evaluate("() => window.scrollTo(0, 0)")
    page.keyboard.press("/")
    page.keyboard.type(incident.function)
    found, field = page.get_by_test_id("found"), page.get_by_test_id("flame-search")
    expect(found).to_contain_text("matching frame")
    near, typed = found.bounding_box(), field.bounding_box()
    assert near is not None and typed is not None
    assert abs(near["y"] - typed["y"]) < 60
    many = int(re.search(r"([\d,]+) matching", found.inner_text())[1].replace(",", ""))
    at = page.get_by_test_id("match-at")
    page.keyboard.press("Enter")
    expect(at).to_have_text(f"1 of {many}")
    canvas = page.get_by_test_id("flame-canvas")
    expect(canvas).to_have_attribute("data-focused", incident.function)
    # The row of the match is in sight, wherever the graph was.
    until(page, lambda: _spot_in_view(page))
    page.keyboard.press("Shift+Enter")
    expect(at).to_have_text(f"{many} of {many}")
    page.get_by_test_id("next-match").click()
    expect(at).to_have_text(f"1 of {many}")
    # The address follows the box a moment later.
    until(page, lambda: incident.function in state(page)["search"])


def _spot_in_view(page: Page) -> bool:
    return bool(
        page.evaluate(
            """() => {
                const row = document.querySelector('.flame-spot').getBoundingClientRect();
                return row.top >= 0 && row.bottom <= innerHeight;
            }"""
        )
    )

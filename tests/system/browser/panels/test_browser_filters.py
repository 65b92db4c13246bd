"""Each key of the filter, as it is typed: heatmap, flame graph and processes follow it."""

import re

import pytest
from playwright.sync_api import Page, expect
from tests.system.browser.canvas import filter_by, wait_for_state
from tests.system.browser.conftest import drawn
from tests.system.browser.idle import at_rest

from exhume.model.clock import MILLIS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_panels")]


def ask(page: Page, question: str) -> dict:
    """What the server answers to a script."""
    answer = page.request.get(page.url.partition("#")[0] + f"api/{question}")
    assert answer.ok, answer.text()
    return answer.json()


def test_every_word_of_the_filter_acts(new_page, address, incident):
    scope = f"since={incident.since // MILLIS - 5000}&until={incident.until // MILLIS + 5000}"
    page = new_page(f"{address}#{scope}")
    drawn(page)
    whole = ask(page, f"flame?{scope}")["samples"]
    ran = ask(page, f"processes?{scope}")
    inside = next(each for each in ask(page, f"processes?{scope}&by=container")["processes"] if each["pod"])
    # What is typed, and what a script would ask.
    wanted = {
        f"container:{inside['container'][:12]}": f"container={inside['container'][:12]}",
        f"pod:{inside['pod_name']}": f"pod={inside['pod_name']}",
        f"pid:{ran['processes'][0]['pid']}": f"pid={ran['processes'][0]['pid']}",
        f'stack:"{incident.function}$"': f"stack={incident.function}%24",
        "kind:kernel": "kind=kernel",
    }
    for text, question in wanted.items():
        filter_by(page, text)
        wait_for_state(page, question.partition("=")[0] + "=")
        left = ask(page, f"flame?{scope}&{question}")["samples"]
        assert 0 < left < whole, text
        expect(page.get_by_test_id("flame-summary")).to_have_text(re.compile(rf"^{left:,} samples? · "))
        expect(page.get_by_role("list", name="colours of the heatmap")).to_contain_text("matches the filter")
    expect(page.get_by_test_id("overview")).to_have_attribute("data-filtered", "true")
    page.get_by_role("button", name="remove the filter").click()
    expect(page.get_by_test_id("flame-summary")).to_contain_text(f"{whole:,} samples")


def test_a_filter_of_cores_leaves_their_rows(page: Page):
    filter_by(page, "cpu:3,5-7")
    wait_for_state(page, "cores=3")
    expect(page.get_by_test_id("scope")).to_contain_text("cores 3,5-7")
    expect(page.get_by_test_id("heatmap")).to_have_attribute("aria-label", re.compile("^cores 3,5-7 by time"))
    page.get_by_role("tab", name="Processes").click()
    shares = page.get_by_test_id("processes").locator(".long-body .cores")
    expect(shares.first).to_be_visible()
    at_rest(page)
    cores = {core for text in shares.all_text_contents() for core in re.findall(r"(\d+): ", text)}
    assert cores
    assert cores <= {"3", "5", "6", "7"}


def test_the_menu_of_a_frame_zooms_and_filters(at_incident: Page, incident):
    page = at_incident
    canvas = page.get_by_test_id("flame-canvas")
    canvas.focus()
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("m")
    name = page.get_by_role("menu").locator(".frame-menu-name").inner_text()
    page.get_by_role("menuitem", name="Zoom to this frame").click()
    expect(canvas).to_have_attribute("data-root", name)
    page.keyboard.press("m")
    page.get_by_role("menuitem", name="Filter everything by this frame").click()
    assert name.partition(".")[0] in wait_for_state(page, "stack=")["stack"]
    expect(page.get_by_role("combobox", name="filter")).to_have_value(re.compile("^stack:"))

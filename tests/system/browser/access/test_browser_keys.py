"""Every action has a key, or is in the list of those that Tab reaches."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.system.browser.idle import at_rest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_access")]

DOCUMENT = Path(__file__).resolve().parents[4] / "docs/page.md"
# A control, by its group or its name, and its hint; what a table or a diagnosis contains is their content.
CONTROLS = """() => [...document.querySelectorAll(
    ':is(header.top, .timeline-tools, .row-tools, .lane-switch, .tabs-line, .kinds) :is(button, select, input)')]
    .filter(each => each.checkVisibility() && !each.closest('[role=tablist], dialog'))
    .map(each => {
        const group = each.closest('[role=group]')?.getAttribute('aria-label');
        const own = each.getAttribute('aria-label') ?? each.labels?.[0]?.firstChild?.textContent ?? each.textContent;
        return {
            name: (group ?? own).trim(),
            hint: each.title || each.placeholder || '',
            tab: each.tabIndex >= 0,
        };
    })"""
KEY = re.compile(r"\(\s*([^()\s]+)(?:, \S+)?\s*\)$")


def tab_only() -> str:
    """The table of controls without a key."""
    _, _, rest = DOCUMENT.read_text().partition("Controls without a key of their own")
    return rest.partition("With the focus")[0]


@pytest.mark.parametrize("panel", ["1", "2", "3", "4", "5", "6", "7"])
def test_every_control_has_a_key_or_is_listed(at_incident: Page, panel):
    at_incident.keyboard.press(panel)
    at_rest(at_incident)
    controls = at_incident.evaluate(CONTROLS)
    assert all(each["tab"] for each in controls)
    at_incident.keyboard.press("?")
    expect(at_incident.get_by_role("dialog", name="Keys")).to_be_visible()
    keys = set(at_incident.locator("dialog[open] kbd").all_inner_texts())
    hinted = {found[1] for each in controls if (found := KEY.search(each["hint"]))}
    assert {"f", "u", "s", "v", "g", "o", "r", "t"} <= hinted <= keys
    listed = tab_only()
    without = {each["name"] for each in controls if not KEY.search(each["hint"])}
    assert {name for name in without if name not in listed} == set()


def test_measures_by_key(at_incident: Page):
    measures = at_incident.get_by_role("group", name="what the heatmap shows")
    expect(measures.get_by_role("button", pressed=True)).to_have_text("unusual")
    at_incident.keyboard.press("v")
    expect(measures.get_by_role("button", pressed=True)).to_have_text("stall")
    at_incident.keyboard.press("V")
    at_incident.keyboard.press("V")
    expect(measures.get_by_role("button", pressed=True)).to_have_text("run-queue wait")
    at_incident.keyboard.press("v")
    expect(measures.get_by_role("button", pressed=True)).to_have_text("unusual")

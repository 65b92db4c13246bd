"""The facts of a culprit in the answer: a long command gives way to them."""

import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_diagnosis")]


def test_a_long_command_leaves_the_other_facts_whole(at_incident: Page):
    facts = at_incident.locator("dl.culprit-facts")
    expect(facts).to_contain_text("mem_cgroup_nr_lru_pages")
    # As long as a command can be.
    facts.locator("div").last.locator("dd").evaluate("cell => { cell.textContent = '--option '.repeat(300); }")
    cut = facts.evaluate(
        """list => [...list.children].slice(0, -1).filter(each =>
            [...each.querySelectorAll('dt, dd')].some(text => text.scrollWidth > text.clientWidth)).length"""
    )
    assert cut == 0
    inside = facts.evaluate("list => list.scrollWidth <= list.parentElement.clientWidth")
    assert inside

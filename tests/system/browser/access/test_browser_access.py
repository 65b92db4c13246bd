"""The page for people who see little, see colours otherwise, or use no mouse."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.system.browser.axe import violations
from tests.system.browser.canvas import state, until, wait_for_state
from tests.system.browser.conftest import drawn
from tests.system.browser.idle import at_rest

from exhume.model.clock import MILLIS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser_access")]

LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}, "has_touch": True},
}
TABS = ("Flame", "Difference", "Sub-second", "Processes", "Events", "Diagnosis", "Interrupts")


@pytest.fixture
def link(address, incident) -> str:
    since, until = incident.since // MILLIS, incident.until // MILLIS
    return f"{address}#since={since - 60_000}&until={until + 60_000}&s0={since}&s1={until}&cpus={incident.cpu}"


@pytest.mark.parametrize("look", LOOKS)
def test_no_rule_of_access_is_broken_on_the_first_view(new_page, address, look):
    page = new_page(address, bypass_csp=True, **LOOKS[look])
    drawn(page)
    assert not (broken := violations(page)), "\n".join(broken)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert not (broken := violations(page)), "\n".join(broken)


@pytest.mark.parametrize("look", LOOKS)
def test_no_rule_of_access_is_broken_in_any_panel(new_page, link, look):
    page = new_page(link, bypass_csp=True, **LOOKS[look])
    broken = []
    for tab in TABS:
        page.get_by_role("tab", name=tab).click()
        drawn(page)
        # What is folded away counts too.
        page.evaluate("() => document.querySelectorAll('.panels details').forEach(each => { each.open = true; })")
        # Around the panels nothing changes from tab to tab.
        broken += [f"{tab}: {each}" for each in violations(page, "html" if tab == TABS[0] else ".panels")]
    assert not broken, "\n".join(broken)


def test_no_rule_of_access_is_broken_in_the_menu_of_a_frame(new_page, link):
    page = new_page(link, bypass_csp=True)
    drawn(page)
    page.get_by_test_id("flame-canvas").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("m")
    expect(page.get_by_role("menu")).to_be_visible()
    assert not (broken := violations(page)), "\n".join(broken)


def tab_to(page: Page, selector: str, key: str = "Tab") -> None:
    """Press Tab until the focus is there; wherever it is on the way, it is seen."""
    for _ in range(120):
        page.keyboard.press(key)
        here = page.evaluate(
            """selector => {
                const at = document.activeElement;
                const style = getComputedStyle(at);
                const seen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
                return {there: at.matches(selector), seen: seen || at === document.body, html: at.outerHTML};
            }""",
            selector,
        )
        assert here["seen"], f"the focus can't be seen on {here['html'][:200]}"
        if here["there"]:
            return
    raise AssertionError(f"Tab does not lead to {selector}")


def test_an_incident_from_the_first_view_to_a_saved_file_by_keyboard_alone(page: Page, incident, tmp_path: Path):
    spoken = page.get_by_test_id("announcement")
    page.keyboard.press("n")
    selected = wait_for_state(page, "s0=", "cpus=")
    assert selected["cpus"] == str(incident.cpu)
    expect(spoken).to_contain_text("incident")

    page.keyboard.press("6")
    expect(page.get_by_test_id("finding").first).to_be_visible()
    tab_to(page, "[data-testid=evidence]")
    page.keyboard.press("Enter")
    assert wait_for_state(page, f"!s0={selected['s0']}")["s0"] != selected["s0"]
    for _ in range(5):
        if (here := state(page)).get("s0") == selected["s0"]:
            break
        page.keyboard.press("Backspace")
        until(page, lambda here=here: state(page) != here)
    assert state(page)["s0"] == selected["s0"]
    at_rest(page)

    page.keyboard.press("1")
    expect(page.get_by_test_id("flame-canvas")).to_be_visible()
    at_rest(page)
    page.keyboard.press("/")
    expect(page.get_by_test_id("flame-search")).to_be_focused()
    page.keyboard.type(incident.function)
    expect(page.get_by_test_id("found")).to_contain_text("% of the time")
    tab_to(page, "[data-testid=flame-canvas]")
    for _ in range(40):
        page.keyboard.press("ArrowDown")
        if spoken.inner_text().startswith(f"{incident.function}:"):
            break
    expect(spoken).to_contain_text("samples")
    page.keyboard.press("w")
    expect(page.get_by_test_id("painted")).to_contain_text(incident.function)

    tab_to(page, "[data-testid=export] summary", "Shift+Tab")
    page.keyboard.press("Enter")
    tab_to(page, "[data-testid=export] a[href*=folded]")
    with page.expect_download() as waiting:
        page.keyboard.press("Enter")
    waiting.value.save_as(tmp_path / "stacks")
    assert incident.function in (tmp_path / "stacks").read_text()


def test_sub_second_cells_are_selected_by_keyboard(new_page, link):
    page = new_page(f"{link}&tab=subsecond")
    drawn(page)
    before = state(page)
    tab_to(page, "[data-testid=offsets]")
    page.keyboard.press("ArrowRight")
    label = page.get_by_test_id("offsets-label")
    expect(label).to_contain_text("sample")
    first = label.inner_text()
    page.keyboard.press("Shift+ArrowUp")
    expect(label).not_to_have_text(first)
    page.keyboard.press("Enter")
    after = wait_for_state(page, f"!s1={before['s1']}")
    # Two rows of twenty milliseconds.
    assert 40 <= int(after["s1"]) - int(after["s0"]) <= 42
